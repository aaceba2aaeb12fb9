"""The physical parameters that cost an agent most."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import adv_wrappers as adv
from adv_wrappers.errors import BudgetError, SpaceError, ValueRangeError
from adv_wrappers.evaluation.rows.store import Store
from tests.every_case import every_case
from tests.rigs import RIGS


class Bowl(gym.Env[np.ndarray, int]):
    """Its return is the squared distance of its parameters from some that lie within every budget here."""

    physical_parameters = {"mass.a": "a", "mass.b": "b", "gravity": "g"}  # noqa: RUF012
    observation_space = gym.spaces.Box(-np.inf, np.inf, (4,))
    action_space = gym.spaces.Discrete(3)
    lowest = 1.2, 0.85, 1.1

    def __init__(self) -> None:
        self.a = self.b = self.g = 1.0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return np.zeros(4, np.float32), {}

    def step(self, action: int) -> Any:
        off = np.array([self.a, self.b, self.g]) - self.lowest
        return np.zeros(4, np.float32), float(off @ off), True, False, {}


class Fragile(Bowl):
    """Diverges where a is above 1.1."""

    def step(self, action: int) -> Any:
        obs, *rest = super().step(action)
        return np.where(self.a > 1.1, np.inf, obs), *rest


def search(env: Any = Bowl, **more: Any) -> adv.evaluation.worst_dynamics.WorstDynamics:
    return adv.worst_dynamics(RIGS["q"].victim(), env, ("mass", "gravity"), 0.3, episodes=2, **more)


def test_cma_finds_what_costs_most() -> None:
    found = search(evaluations=60)
    assert len(found.tried) == 60 and found.clean_return == pytest.approx(0.0725)
    assert found.mean_return == min(one.mean_return or 0.0 for one in found.tried) < 5e-3
    assert list(found.values) == ["mass.a", "mass.b", "gravity"] == list(found.names)
    np.testing.assert_allclose([*found.values.values()], Bowl.lowest, atol=0.06)


def test_what_was_found_is_a_threat() -> None:
    found = search(evaluations=16)
    report = adv.evaluate(RIGS["q"].victim(), Bowl, [found.threat], episodes=2)
    assert report.threats[1]["mean_return"] == found.mean_return
    assert report.threats[1]["threat"].startswith("fixed-dynamics:values=")


@pytest.mark.parametrize(("evaluations", "played"), [(9, 9), (26, 9), (28, 28)])
def test_a_grid_has_as_many_points_on_each_axis_as_the_evaluations_allow(evaluations: int, played: int) -> None:
    found = search(evaluations=evaluations, method="grid")
    assert len(found.tried) == played
    values = np.array([one.values for one in found.tried[1:]])
    axis = np.unique(values[:, 0].round(12))
    assert axis.tolist() == np.linspace(0.7, 1.3, round((played - 1) ** (1 / 3))).round(12).tolist()


def test_the_same_seed_finds_the_same() -> None:
    first, again, other = (search(evaluations=16, seed=seed) for seed in (3, 3, 4))
    assert first.tried == again.tried != other.tried


def test_all_points_lie_in_the_budget() -> None:
    found = adv.worst_dynamics(
        RIGS["q"].victim(), Bowl, "mass", within=adv.Linf(0.2, (1.0, 0.5)), evaluations=30, episodes=1
    )
    values = np.array([one.values for one in found.tried])
    assert (abs(values - 1) <= [0.2, 0.1]).all() and abs(values[:, 0] - 1).max() > 0.15


def test_a_simulation_that_diverges_is_no_worst_case() -> None:
    found = search(Fragile, evaluations=60)
    diverged = [one for one in found.tried if one.mean_return is None]
    assert diverged and all(one.values[0] > 1.1 for one in diverged)
    assert len(found.tried) == 60 and found.values["mass.a"] <= 1.1 and found.mean_return < found.clean_return


def test_what_was_played_is_kept_and_not_played_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = search(evaluations=20)

    def stop(played: int, lowest: float) -> None:
        if played > 10:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        search(evaluations=20, out=tmp_path, progress=stop)
    with Store(tmp_path / "rows.db") as store:
        assert 10 < len(list(store.rows())) < 20
    steps = []
    monkeypatch.setattr(Bowl, "step", lambda env, action, step=Bowl.step: steps.append(1) or step(env, action))
    told: list[tuple[int, float]] = []
    found = search(evaluations=20, out=tmp_path, progress=lambda *so_far: told.append(so_far))
    assert found.tried == whole.tried and len(steps) < 20 * 2 * 0.7
    assert [count for count, _ in told][-1] == 20 and told[-1][1] == found.mean_return


@every_case(
    ("more", "error", "words"),
    [
        (
            {"method": "grid", "evaluations": 7},
            ValueRangeError,
            "over 3 parameters needs at least 9 evaluations .*, got 7",
        ),
        ({"at": "weight"}, SpaceError, "must name parameters of the dynamics: it has mass"),
        ({"eps": 1.0}, BudgetError, r"mass.a must stay within \[0.01, 100\]"),
        ({"eps": 0.0}, BudgetError, "nothing can change"),
        ({"eps": None}, adv.AdvWrappersError, "worst_dynamics needs a budget"),
    ],
)
def test_bad_arguments_come_before_anything_is_searched(more: Any, error: Any, words: str) -> None:
    with pytest.raises(error, match=words):
        adv.worst_dynamics(RIGS["q"].victim(), Bowl, **{"at": ("mass", "gravity"), "eps": 0.3, **more})


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cma", None)
    with pytest.raises(ImportError, match=r"pip install 'adv_wrappers\[cma\]'"):
        adv.worst_dynamics(RIGS["q"].victim(), lambda: pytest.fail("an environment was made"), "mass", 0.3)
    assert len(search(evaluations=5, method="random").tried) == 5
