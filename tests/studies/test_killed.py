"""Studies of every kind that are killed in the middle: the same call goes on to the rows of one that was not.

A plan is in ``test_runner.py``; the gate keeps nothing.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from adv_wrappers.evaluation.rows.store import ROWS_FILE, Store
from adv_wrappers.studies import play_study, run_suite
from adv_wrappers.studies.standing import measure
from tests.evaluation.agents import short
from tests.processes import python
from tests.studies.test_study import Bisection


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def suite(folder: Path, killed: bool) -> None:
    """Killed in its third row."""
    names = ["noise", "max-diff:steps=2"]

    def progress(what: str, done: int, total: int) -> None:
        if killed and done and what == f"scoring {names[1]}":
            kill()

    run_suite(names, "zoo:cartpole-dqn", short, 0.05, episodes=2, num_envs=1, out=folder, progress=progress)


def standing(folder: Path, killed: bool) -> None:
    """Killed where its third row begins."""
    measure.ATTACKS = ("noise", "max-diff")
    measure.EPISODES = 2
    measure.CERTIFIED_SHARE = 1e-3  # rows are what is looked at
    given = measure.Submission("zoo:cartpole-dqn", "dqn", env_kwargs={"max_episode_steps": 5})
    measure.add_submission(given, folder, 10.0, lambda sentence: kill() if killed and "max-diff" in sentence else None)


def study(folder: Path, killed: bool) -> None:
    """Killed after two rows."""
    with Store(folder / ROWS_FILE) as store:
        play_study(Bisection(), store, progress=lambda *_: kill() if killed and len(store) >= 2 else None)


def rows(folder: Path) -> dict[tuple[str, str], tuple[list[float], float]]:
    """Of every store in a folder, by its name and the threat, the returns and how long a step took."""
    found = {}
    for path in sorted(folder.rglob(ROWS_FILE)):
        with Store(path, read_only=True) as store:
            found |= {(path.parent.name, row.threat): ([*row.returns], row.ms_per_step) for _, row in store.rows()}
    return found


@pytest.mark.parametrize("play", [suite, standing, study], ids=["suite", "standing", "study"])
def test_a_study_that_is_killed_goes_on_to_the_same_rows(play, tmp_path):
    script = f"""
import sys
from pathlib import Path
from tests.studies import test_killed
test_killed.{play.__name__}(Path(sys.argv[1]) / "one", sys.argv[2] == "killed")
"""
    assert python(script, str(tmp_path / "a"), "killed").returncode == -signal.SIGKILL
    before = rows(tmp_path / "a")
    for name in ("a", "b"):
        done = python(script, str(tmp_path / name), "whole")
        assert done.returncode == 0, done.stderr
    after, whole = rows(tmp_path / "a"), rows(tmp_path / "b")
    assert 0 < len(before) < len(after) and before.items() <= after.items()  # these were not played again
    assert {of: returns for of, (returns, _) in after.items()} == {of: returns for of, (returns, _) in whole.items()}
