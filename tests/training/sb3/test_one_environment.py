"""A simulator of which one instance alone may run can be trained in; its episodes interrupt each other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from adv_wrappers.environments.environment import Environment
from adv_wrappers.errors import SpaceError
from tests.studies.report.planted import Guess

pytest.importorskip("stable_baselines3")

from adv_wrappers.training.agent import train_agent
from adv_wrappers.training.sb3.one_environment import OneEnvironment, only_one_runs

SHORT: dict[str, Any] = {
    "steps": 32, "phase": 32, "checks": 1, "episodes": 2, "settings": {"n_steps": 16, "n_epochs": 1},
    "adversary_settings": {"n_steps": 16, "n_epochs": 1},
}  # fmt: skip


class Alone(Guess):
    """Holds a port that a second instance would need."""

    running, made = 0, 0

    def __init__(self) -> None:
        if Alone.running:
            raise RuntimeError("the port is in use")
        super().__init__()
        Alone.running, Alone.made = 1, Alone.made + 1

    def close(self) -> None:
        Alone.running = 0


@pytest.fixture(autouse=True)
def nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Alone, "running", 0)
    monkeypatch.setattr(Alone, "made", 0)


@pytest.mark.parametrize(
    "how", [{"adversary": "sa-rl", "eps": 0.1}, pytest.param({"robust": "sa", "eps": 0.1}, marks=pytest.mark.slow)]
)
def test_both_sides_and_the_checkpoints_share_one(how: dict[str, Any]) -> None:
    found = train_agent(Alone, num_envs=1, **how, **SHORT)
    assert [row["steps"] for row in found.record] == [32] and np.isfinite(found.record[0]["clean"])
    assert Alone.running == 0, "it is closed at the end"


def test_more_than_one_is_refused_with_what_helps() -> None:
    with pytest.raises(SpaceError, match=r"cannot make 4 .*the port is in use.*Where only one can be.*num_envs=1"):
        train_agent(Alone, None, num_envs=4, **SHORT)


def test_where_several_run_nothing_is_shared() -> None:
    assert only_one_runs(Environment(Alone)) and not only_one_runs(Environment(Guess))


def test_an_episode_that_another_view_interrupts_is_truncated() -> None:
    one = OneEnvironment(Environment(Alone))
    first, second = one(), one()
    seen, _ = first.reset(seed=1)
    seen = first.step(0)[0]
    begun, _ = second.reset(seed=2)
    obs, reward, terminated, truncated, _ = first.step(0)
    assert obs.tolist() == seen.tolist() and (reward, terminated, truncated) == (0.0, False, True)
    assert second.step(0)[0].tolist() != begun.tolist(), "the other one plays on"
    again, _ = first.reset(seed=1)
    assert first.step(0)[0].tolist() == seen.tolist() and again.tolist() != seen.tolist()
    second.close()
    assert Alone.running == 1
    one.close()
    assert Alone.running == 0 and Alone.made == 1
