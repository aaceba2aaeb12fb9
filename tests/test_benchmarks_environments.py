"""Environments that misbehave: every cell of a selection is a result or a sentence, and a failure is found."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).resolve().parents[1] / "benchmarks" / "environments.py"
pytest.importorskip("stable_baselines3")


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    return importlib.import_module("environments")


RESULTS = {  # of evaluate; the others are sentences
    "a reward that is a tensor", "float64 where float32 is declared", "an observation outside of its space",
    "an observation in a list", "an observation in one buffer", "global random numbers", "a state over episodes",
}  # fmt: skip
SLOW = {"an episode that never ends"}


def test_evaluate_and_wrap(script: Any) -> None:
    agent, found = script.victim(), dict[tuple[str, str], tuple[str, str]]()
    names = [name for name in script.MISBEHAVIOURS if name not in SLOW]
    assert len(names) >= 40
    for name in names:
        for way in ("evaluate", "wrap"):
            found[name, way] = script.cell(name, way, agent)
    assert not {cell: what for cell, what in found.items() if what[0].startswith("FAILED")}
    assert {name for name in names if found[name, "evaluate"][0] == script.RESULT} == RESULTS


@pytest.mark.parametrize("way", ["report", "command line"])
@pytest.mark.parametrize("name", ["reset takes no options", "a shape that changes", "only one can be made"])
def test_report_and_command_line(script: Any, name: str, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert script.cell(name, way, script.victim())[0] == script.SENTENCE


def test_failures_are_found(script: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fails(*_: object) -> str:
        raise KeyError("x")

    monkeypatch.setitem(script._PLAY, "wrap", fails)
    monkeypatch.setattr("sys.argv", ["environments.py", "--ways", "wrap", "--only", "reset raises"])
    assert script.main() == 1
    assert "FAILED: KeyError" in capsys.readouterr().out
