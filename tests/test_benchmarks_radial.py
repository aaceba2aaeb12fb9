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


@pytest.fixture(scope="module")
def paper():
    with result_script("radial_paper") as module:
        yield module


def data(script, **games):
    at = {"fgsm": 1.0, "pgd": 2.0, "gwc": 3.0, "acr": 0.5, "lower": None, "finished": None}
    agents = {
        game: {"PPO": {"0": {"clean": 5.0, **{f"{eps:g}": {**at, **more} for eps in script.GAMES[game].eps}}}}
        for game, more in games.items()
    }
    about = {"command": "python x", "machine": "a machine", "episodes": 20, "image_episodes": 5, "searched": 3}
    return {**about, "budget_s": 10.0, "games": agents}


def test_the_papers_agents_stand_in_the_table_of_their_game(script):
    page = script.PAGE.markdown(data(script, CartPole={"lower": 9.0}, BankHeist={}))
    cartpole, bankheist = page.split("## BankHeist")
    assert (
        "| PPO | 1 | 5.0 | 0.01 | 1.0 | 2.0 | not kept | 3.0 | 0.50 | 9 |" in cartpole
        and "the paper's A3C" not in cartpole
    )
    assert "| agent | seeds | clean | eps | FGSM | PGD-30 | GWC | ACR |\n" in bankheist  # nothing was searched
    assert "| PPO | 1 | 5.0 | 1/255 | 1.0 | 2.0 | 3.0 | 0.50 |" in bankheist
    assert "| the paper's A3C | - | 1099.0 +- 22.2 | 1/255 | - | 197.5 +- 15.5 | 0.0 +- 0.0 | - |" in bankheist
    assert "| the paper's A3C | - | 1099.0 +- 22.2 | 3/255 | - | 16.5 +- 2.5 | - | - |" in bankheist


def test_a_game_without_agents_says_what_they_would_take(script):
    found = data(script, CartPole={})
    assert "Freeway" not in script.PAGE.markdown(found).replace("the paper's", "")
    found["cost"] = {"PPO": {"steps": 1000, "seconds": 2.0}, "RADIAL-PPO": {"steps": 1000, "seconds": 10.0}}
    page = script.PAGE.markdown(found)
    assert "3 million steps at 500 a second, 1.7 hours of one core" in page
    assert "0.5 million steps at 100 a second, 1.4 hours" in page
    assert "| Freeway | RADIAL-DQN | 21.75 +- 0.35 | 21.95 +- 0.40 | 21.55 +- 0.26 | 21.7 +- 0.39 |" in page


def test_a_short_training_is_timed(script):
    cost = script.measured_cost(
        "CartPole-v1", 2048, num_envs=2, settings={"n_steps": 64, "n_epochs": 1, "batch_size": 64}
    )
    assert cost["steps"] == 2048 and cost["seconds"] > 0


def test_the_papers_table_is_whole(paper):
    assert [len(rows) for rows in paper.TABLE_1.values()] == [7, 5, 7, 7]  # its A3C did not learn Freeway
    for rows in paper.TABLE_1.values():
        assert all(
            (name.startswith("RS-") or "(" in name) == (cells[2:] == (None, None)) for name, cells in rows.items()
        )
    text = paper.table_1(("A3C", "RS-DQN (Fischer et al. 2019)"), ("RoadRunner",))
    assert "| RoadRunner | RS-DQN (Fischer et al. 2019) | 12106.67 | 5753.33 | - | - |" in text
    assert "| RoadRunner | A3C | 36670 +- 1313 | 4930 +- 710 | 1305 +- 206 | 0.0 +- 0.0 |" in text
    assert "GWC" not in paper.table_1(("RS-DQN (Fischer et al. 2019)",), ("Pong",))  # a column of dashes


def test_what_the_beam_has_searched_is_not_searched_again(script):
    game = script.Game("CartPole-v1", (0.05, 0.1))
    row = {"0.05": {"beam": 1.0}, "0.1": {}}
    kept, arguments = [], argparse.Namespace(searched=1, seed=0)
    script.beam(game, adv.load_victim("zoo:cartpole-ppo"), row, arguments, lambda: kept.append(1))
    assert row["0.05"] == {"beam": 1.0} and 5 <= row["0.1"]["beam"] < 40 and kept == [1]
    images = script.Game("PongNoFrameskip-v4", (1.0,), **script.ATARI)
    script.beam(images, adv.load_victim("zoo:pong-ppo"), {"1": {}}, arguments, lambda: kept.append(1))
    assert kept == [1]
