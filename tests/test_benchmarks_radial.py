"""The script that measures RADIAL-PPO, and the paper's figures that stand on its page and on others."""

from __future__ import annotations

import argparse

import pytest

import adv_wrappers as adv
from tests.result_scripts import result_script


@pytest.fixture(scope="module")
def script():
    pytest.importorskip("stable_baselines3")
    with result_script("radial") as module:
        yield module


def test_what_the_beam_has_searched_is_not_searched_again(script):
    game = script.Game("CartPole-v1", (0.05, 0.1))
    row = {"0.05": {"beam": 1.0}, "0.1": {}}
    kept, arguments = [], argparse.Namespace(searched=1, seed=0)
    script.beam(game, adv.load_victim("zoo:cartpole-ppo"), row, arguments, lambda: kept.append(1))
    assert row["0.05"] == {"beam": 1.0} and 5 <= row["0.1"]["beam"] < 40 and kept == [1]
    images = script.Game("PongNoFrameskip-v4", (1.0,), **script.ATARI)
    script.beam(images, adv.load_victim("zoo:pong-ppo"), {"1": {}}, arguments, lambda: kept.append(1))
    assert kept == [1]
