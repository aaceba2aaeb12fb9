"""The script that measures RADIAL-DQN: what its page says of the agents that there are, and what is not made again."""

from __future__ import annotations

import argparse

import pytest

from tests.result_scripts import result_script


@pytest.fixture(scope="module")
def script():
    pytest.importorskip("stable_baselines3")
    with result_script("radial_dqn") as module:
        yield module


def agent(script, lower, clean=500.0):
    at = {"gwc": 480.0, "acr": 0.5, "lower": lower, "seconds": 1.0}
    return {"clean": clean, "steps": 1, "seconds": 9.0, **{f"{e:g}": at for e in script.GAMES["cartpole"].certified}}


def test_atari_says_what_it_would_take_and_has_the_papers_agents(script):
    assert script.atari({}) == ""
    cost = {method: {"steps": 1000, "seconds": 4.0} for method in script.ATARI_STEPS}
    text = script.atari({"cost": cost})
    assert "plain: 6 million steps at 250 a second, 6.7 hours" in text
    assert "RADIAL, equation 5: 4.5 million steps at 250 a second, 5.0 hours" in text
    assert "| Pong | RADIAL-DQN | 20.85 +- 0.08 | 20.8 +- 0.09 | 20.8 +- 0.09 | -1.85 +- 4.62 |" in text
    assert "| BankHeist | SA-DQN (Zhang et al. 2020) | 1041.4 +- 12.3 |" in text and "A3C |" not in text


@pytest.mark.parametrize(("lower", "boxes", "done"), [(None, 0, True), (None, 9, False), (8.0, 9, True)])
def test_what_is_there_is_not_made_again(script, lower, boxes, done):
    arguments, game = argparse.Namespace(boxes=boxes), script.GAMES["cartpole"]
    assert script.done(agent(script, lower), game, arguments) == done
    assert not script.done({"clean": 500.0}, game, arguments)
