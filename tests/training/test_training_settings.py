"""How something is trained is one value, checked where it is made."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from adv_wrappers.errors import ThreatError, ValueRangeError

pytest.importorskip("stable_baselines3")
from adv_wrappers.training.settings import Training

QUICK = Training(steps=100, algorithm="ppo", num_envs=None, checks=3, episodes=2, seed=0)


def test_checkpoints_are_evenly_apart_and_at_least_one_step():
    assert QUICK.checkpoint_every == 33 and replace(QUICK, checks=1000).checkpoint_every == 1


def test_logs_are_a_text_as_stable_baselines3_takes_it():
    assert QUICK.logs is None and replace(QUICK, tensorboard=Path("logs")).logs == "logs"


@pytest.mark.parametrize("name", ["steps", "num_envs", "checks", "episodes"])
def test_counts_are_checked(name):
    with pytest.raises(ValueRangeError, match=f"{name} must be an integer from 1"):
        replace(QUICK, **{name: 0})


def test_settings_are_those_of_the_algorithm():
    assert replace(QUICK, settings={"n_epochs": 3}).settings == {"n_epochs": 3}
    with pytest.raises(ThreatError, match=r"A2C takes .*, not n_epochs"):
        replace(QUICK, algorithm="a2c", settings={"n_epochs": 3})
