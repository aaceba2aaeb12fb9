"""The page of ``benchmarks/reproduce/resilience.py``: its tables, and what became of the goals."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
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


RESULTS = {
    "resilience/zoo dqn/0": row(15.0), "resilience/zoo dqn/1": row(16.0, 31.0),
    "exact/zoo dqn": {"totals": [14.0, 16.0], "perturbations": [5, 5], "finished": True, "seconds": 2.0},
    "robustness/zoo dqn/5/soft/0": row(15.0),
    "baselines/zoo dqn": {
        "target": 5.0, "random timing": "bernoulli(0.01)", "strategic timing": "strategic(0.2)",
        **{name: {"returns": [500.0, 400.0], "perturbations": [5, 5]} for name in ("random", "strategic", "always")},
    },
    "dqn/zoo dqn/0": row(15.5, 500.0),
    "opinions/zoo a2c": {
        "clean": [500.0], "always": {"policy": {"returns": [9.0, 10.0]}}, "quarter": {"policy": {"returns": [30.0]}},
    },
    "opinions resilience/zoo a2c/policy": row(15.2),
    "profile/zoo ppo": {
        "budgets": [1, 2], "regret": [[0.0, 480.0], [0.0, 20.0]], "finished": [[True, True], [True, False]],
        "seconds": 3.2,
    },
}  # fmt: skip


def test_the_page_has_every_result_and_says_which_goals_were_met(page: Any) -> None:
    text = page.PAGE.markdown({"command": "python x", "machine": "a machine", "results": RESULTS})
    assert "| zoo dqn | 2 | 492 | 490.00 | 5.50 | 490.00 | 5.00 | 15.50 | 15.00 | 0.0% | 3.3% | 23 |" in text
    assert "regret 490.00, met; 5.00 perturbations against 6.95, met; best seed 0.0% above the optimum, met" in text
    assert "3.3% on average, met; slowest training 31 s, missed" in text
    assert "| zoo dqn | 0 | 100% |" in text  # no episode below the optimum, both at it
    assert "| zoo dqn | 2 | 15.00 [" in text and "| 490.00 [" in text and "| 5.00 [5.00, 5.00] | yes | 2.0 |" in text
    assert "| zoo dqn | 5 | soft | 1 | 492 | 490.00 | 5.00 | 100% | 462.5 |" in text
    assert "450.00" in text and "strategic(0.2)" in text and "| zoo dqn | dqn | 1 | 640 |" in text
    assert "| zoo a2c | 500.00 | policy | 9.50" in text and "| zoo a2c | policy | 490.00 | 5.00 | 15.20 |" in text
    assert "| zoo dqn | 10.00 | 2.00 | 100% |" in text
    assert "| zoo ppo | 2 | 0 | 250* | 3 |" in text


def test_an_adversary_below_the_optimum_is_counted(page: Any) -> None:
    results = {
        "resilience/zoo dqn/0": row(14.0),
        "exact/zoo dqn": {"totals": [14.5, 16.5], "perturbations": [5, 5], "finished": True, "seconds": 2.0},
    }
    assert "| zoo dqn | 2 | 100% |" in page.PAGE.markdown({"command": "", "machine": "", "results": results})


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


def test_the_exact_optimum_is_computed_once(page: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["--exact", "--victims", str(tmp_path), "--episodes", "2", "--out", str(tmp_path)]
    page.PAGE.main(words)
    kept = json.loads((tmp_path / "resilience.json").read_text(encoding="utf-8"))
    assert {*kept["results"]} == {f"exact/zoo {kind}" for kind in ("dqn", "a2c", "ppo")}
    assert kept["results"]["exact/zoo dqn"]["finished"] and "FOLDER" in kept["command"]
    least = np.mean(kept["results"]["exact/zoo dqn"]["totals"])
    assert 10 < least < 20 and f"| zoo dqn | 2 | {least:.2f} [" in (tmp_path / "resilience.md").read_text()
    monkeypatch.setattr(page, "exact", lambda *given: pytest.fail("computed again"))
    page.PAGE.main(words)
    assert json.loads((tmp_path / "resilience.json").read_text(encoding="utf-8")) == kept


def test_the_exact_profile_has_every_budget(page: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "HORIZON", 8)
    found = page.profile("zoo:cartpole-dqn", page.draw_seeds(0, 1))
    assert found["budgets"] == [*range(1, 11)] and found["regret"][0][:2] == [0.0, 0.0] and all(found["finished"][0])
