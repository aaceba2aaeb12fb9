"""Results of resilience and robustness: their figures, Table 6, their files and plots."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adv_wrappers.errors import ValueRangeError
from adv_wrappers.training.resilience.result import TABLE_COLUMNS, AttackedEpisodes, Resilience, TransferRow


def episodes(returns: list[float], attacks: list[int], steps: list[int] | None = None) -> AttackedEpisodes:
    kept = None if steps is None else np.array(steps)
    lengths, costs = np.array(returns, np.int64), 2.0 * np.array(attacks)
    return AttackedEpisodes(np.array(returns, np.float64), np.array(attacks, np.int64), lengths, costs, 500.0, kept)


OTHER = {"ref": None, "fingerprint": "b", "select": "mode"}
GIVEN: dict[str, Any] = {
    "adversary": None, "victim": {"ref": "zoo:somebody", "fingerprint": "a", "select": "mode"},
    "env": {"id": "CartPole-v1", "kwargs": {}}, "r_max": 500.0, "test": episodes([9.0, 11.0], [5, 6]),
    "training": episodes([400.0] + [8.0] * 50 + [10.0] * 50, [90] + [7] * 50 + [5] * 50, [*range(101)]),
    "clean_returns": np.array([500.0, 480.0]), "histogram": np.array([2, 0, 1]),
    "transfer": (TransferRow(OTHER, episodes([100.0], [50]), np.array([300.0])),), "steps": 640, "seconds": 2.5,
    "episode_seeds": (3, 4), "about": {"cost": 2.0}, "versions": {"python": "3"},
}  # fmt: skip
RESULT = Resilience(**GIVEN)
ROBUST = Resilience(**{**GIVEN, "transfer": ()}, budget=5, hard=True)


def test_figures_of_the_test_and_of_the_training() -> None:
    assert (RESULT.mean_regret, RESULT.mean_perturbations, RESULT.test.mean_cost) == (490.0, 5.5, 11.0)
    assert RESULT.test.mean_total == 21.0 and RESULT.test.max_regret == 491.0
    assert RESULT.max_regret == 492.0  # of the training, as the paper's
    assert RESULT.training.last(100).mean_perturbations == 6.0 and RESULT.training.last(100).steps is not None
    assert len(RESULT.training.last(1000)) == 101


def test_a_training_without_an_episode_has_no_figures() -> None:
    none = dataclasses.replace(RESULT, training=episodes([], [], []))
    assert none.max_regret is None
    assert none.table().rows[0][1:4] == ("-", "-", "-")


def test_table_6() -> None:
    assert RESULT.table().columns == TABLE_COLUMNS
    own, other = RESULT.figures()
    assert (own["max_regret"], own["transfer"], own["training_perturbations"]) == (492.0, False, 6.0)
    assert (other["max_regret"], other["transfer"], other["return_and_cost"]) == (None, True, 200.0)
    assert RESULT.table().rows == (
        ("zoo:somebody", "492.0", "491.0", "6", "490.0", "5.5", "11", "21"),
        ("victim (transfer)", "-", "-", "-", "400.0", "50", "100.0", "200.0"),
    )
    assert "resilience of zoo:somebody on CartPole-v1, 2 episodes" in str(RESULT)
    assert "robustness of zoo:somebody on CartPole-v1 at 5 perturbations (hard), 2 episodes" in str(ROBUST)
    assert "(soft)" in str(dataclasses.replace(ROBUST, hard=False))


def test_a_file_holds_everything(tmp_path: Path) -> None:
    ROBUST.to_json(tmp_path / "r.json")
    found = json.loads((tmp_path / "r.json").read_text())
    assert found == ROBUST.to_dict() and (found["kind"], found["budget"], found["hard"]) == ("robustness", 5, True)
    assert RESULT.to_dict()["kind"] == "resilience" and "budget" not in RESULT.to_dict()
    again = AttackedEpisodes.from_dict(found["training"], found["r_max"])
    assert again.to_dict() == ROBUST.training.to_dict() and again.perturbations.dtype == np.int64


def test_plots(tmp_path: Path) -> None:
    RESULT.plot_training(tmp_path / "training.png")
    RESULT.plot_histogram(tmp_path / "histogram.png")
    assert all(path.read_bytes()[1:4] == b"PNG" for path in tmp_path.iterdir()) and len([*tmp_path.iterdir()]) == 2
    with pytest.raises(ValueRangeError, match="a picture is written as"):
        RESULT.plot_training(tmp_path / "training.jpg")
