"""The page of ``benchmarks/reproduce/resilience.py``: its tables, and what became of the goals."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.result_scripts import result_script


@pytest.fixture(scope="module")
def page() -> Iterator[Any]:
    pytest.importorskip("stable_baselines3")
    with result_script("resilience") as script:
        yield script


def row(total: float, seconds: float = 15.0) -> dict[str, Any]:
    """Two episodes of nine and eleven steps, five perturbations each."""
    return {
        "max_regret": 492.0,
        "training_regret": 490.0,
        "training_perturbations": 5.5,
        "regrets": [491.0, 489.0],
        "perturbations": [5, 5],
        "lengths": [9, 11],
        "total": total,
        "seconds": seconds,
        "steps": 640,
        "histogram": [2, 2, 2, 2, 2],
        "clean": 500.0,
    }


def test_victims_are_ranked_with_intervals_over_seeds_and_over_starts(page: Any) -> None:
    def victim(kind: str, *perturbations: list[int]) -> dict[str, Any]:
        return {
            f"resilience/zoo {kind}/{i}": {**row(15.0), "perturbations": own} for i, own in enumerate(perturbations)
        }

    results = victim("dqn", [6, 8], [6, 8]) | victim("a2c", [5, 5], [4, 4]) | victim("ppo", [6, 7], [6, 9])
    (text,) = page.ranking(results)
    lines = [line for line in text.splitlines() if line.startswith("| zoo")]
    assert lines[1:] == [
        "| zoo dqn | 2 | 7.00 [7.00, 7.00] | +0.00 [+0.00, +0.00] |",  # of equals the paper's first
        "| zoo ppo | 2 | 7.00 [0.65, 13.35] | - |",  # Student's t of 6.5 and 7.5
    ]
    assert lines[0].startswith("| zoo a2c | 2 | 4.50 [-1.85, 10.85] | +2.50 [")  # over the starts: 1.5 and 3.5
    assert not list(page.ranking(victim("dqn", [6, 8]) | victim("a2c", [5, 5])))  # two of three are no ranking


def test_training_curves_are_means_of_episodes_in_a_row(page: Any) -> None:
    n = 2 * page.TOGETHER + 3  # what is left is not drawn
    late = np.arange(n) >= page.TOGETHER
    episodes = page.AttackedEpisodes(
        returns=np.where(late, 9.0, 500.0),
        perturbations=np.where(late, 5, 0),
        lengths=np.full(n, 9),
        costs=np.zeros(n),
        r_max=500.0,
        steps=np.arange(1, n + 1) * 10,
    )
    assert page.curve_of(episodes) == {
        "steps": [10 * page.TOGETHER, 20 * page.TOGETHER],
        "regrets": [0.0, 491.0],
        "perturbations": [0.0, 5.0],
    }


def test_the_exact_profile_has_every_budget(page: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "HORIZON", 8)
    found = page.profile("zoo:cartpole-dqn", page.draw_seeds(0, 1))
    assert found["budgets"] == [*range(1, 11)] and found["regret"][0][:2] == [0.0, 0.0] and all(found["finished"][0])
