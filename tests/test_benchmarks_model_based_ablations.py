"""The script of the model-based paper's ablations: its page, its figure, and the rows that it takes from the tables."""

from __future__ import annotations

import pytest

from tests.result_scripts import result_script, runs


@pytest.fixture(scope="module")
def script():
    with result_script("model_based_ablations") as module:
        yield module


def test_rows_are_those_that_the_paper_varies(script):
    assert (
        [row.name for row in (script.STAND, script.WALK, script.ACTIONS)]
        == [*script.LENGTHS]
        == [
            "walker-stand, observations",
            "walker-walk, observations",
            "cartpole-balance, actions",
        ]
    )
    assert set(script.PAPER[script.WALK.name]) == set(script.LENGTHS[script.WALK.name])


def test_the_page_has_what_was_measured_and_nothing_else(script, tmp_path):
    errors = {"one_step": [1e-3] * 5, "mse": 2e-5, "open_loop": {"1": 0.1, "20": 0.25, "100": None}}
    results = {
        "command": "x",
        "machine": "a machine",
        "models": {"26000 linear": {"victim": errors}},
        "lengths": {script.STAND.name: {"5": runs(10, 20, 60)}},
        "seldom": {"flip": runs(100, 140)},
        "samples": {"50000": runs(4, 6)},
    }
    text = script.PAGE.markdown(results)
    assert "| walker-stand, observations | 5 | 30 (26) | 20 | 10 to 60 | 3 (3) | 2 | 1 to 6 | 163 |" in text
    assert "| flip | 120 (28) | 120 | 100 to 140 | 12 (3) | 12 | 10 to 14 | 1532 |" in text
    assert "| 50,000 | 5 (1) | 5 | 4 to 6 |" in text and "| rand-U |" not in text
    assert "| 26000 linear | victim | 1.0e-03 | 1.0e-03 | 1.0e-03 | 1.0e-03 | 1.0e-03 | 2.0e-05 | 2.5e-01 | - |" in text
    script.draw(results, tmp_path)
    assert (tmp_path / "model_based_samples.png").read_bytes()[1:4] == b"PNG"
    assert script.PAGE.markdown({"command": "x", "machine": "a machine"}).count("Not measured yet.") == 4
