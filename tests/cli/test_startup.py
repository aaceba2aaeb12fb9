"""Help, versions, errors of usage and completions do not wait for what only running commands need."""

from __future__ import annotations

import subprocess
import sys
from typing import get_args

import pytest

from adv_wrappers.cli import main
from adv_wrappers.daylight.daylight import SETTINGS, TRANSFORM_CLASSES
from adv_wrappers.registry import DAYLIGHT_GAMES, DAYLIGHT_TRANSFORMS, NAMES, SUITE_NAMES, Robust
from adv_wrappers.studies import SUITES
from adv_wrappers.threats.presets import presets

SLOW = ("torch", "numpy", "gymnasium", "stable_baselines3", "matplotlib", "rich")
WORDS: list[tuple[list[str], int]] = [
    ([], 0), (["--help"], 0), (["--version"], 0), *(([name, "--help"], 0) for name in sorted(main.commands)),
    (["no-such-command"], 2), (["evaluate", "CartPole-v1"], 2), (["train-dynamics", "--layers", "many"], 2),
    (["suite", "E", "--victim", "v", "--suite", "no"], 2), (["evaluate", "E", "--env-kwargs", "a=1,b"], 2),
    (["evaluate", "E", "--make", "no-colon"], 2), (["evaluate", "E", "--victim", "v", "--at-least", "nan"], 2),
    (["suite", "E", "--victim", "v", "--dry-run", "--at-least", "1"], 2), (["run", "no.toml", "--store", "s"], 2),
    (["train-critic", "E", "--victim", "v", "--out", "o", "--eps", "1", "--one"], 2),
    (["train-agent", "E", "--out", "o", "--robust", "no"], 2),
]  # fmt: skip


COMPLETIONS = {
    "eval": "evaluate",
    "train-agent --robust r": "radial",
    "suite CartPole-v1 --victim zoo:cartpole-d": "cartpole-dqn",
    "evaluate CartPole-v1 --threat pg": "pgd",
}


def test_help_versions_errors_of_usage_and_completions_import_nothing_slow() -> None:
    """All of them in one process: what one of them imported would be seen after the last."""
    code = f"""
import contextlib, io, os, sys
from adv_wrappers.cli import main

def check(words, status, expected=""):
    sys.argv[1:], printed = words, io.TextIOWrapper(io.BytesIO())
    try:
        with contextlib.redirect_stdout(printed):
            main(prog_name="adv-wrappers")
    except SystemExit as end:
        assert (end.code or 0) == status, (words, end.code)
    printed.flush()
    assert expected in printed.buffer.getvalue().decode(), (words, expected)
    found = [name for name in {SLOW!r} if name in sys.modules]
    assert not found, (words, expected, found)

for words, status in {WORDS!r}:
    check(words, status)
os.environ["_ADV_WRAPPERS_COMPLETE"] = "bash_complete"
for line, completion in {COMPLETIONS!r}.items():
    os.environ["COMP_LINE"] = "adv-wrappers " + line
    check([], 0, completion)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


def test_names_that_are_known_without_importing_are_those_of_the_modules() -> None:
    own = [name for name, preset in presets.items() if preset.kind.__module__.startswith("adv_wrappers.")]
    assert [*NAMES] == own and [*SUITE_NAMES] == [*SUITES] and {*DAYLIGHT_GAMES} == {*SETTINGS}
    assert {kind: name for name, kind in TRANSFORM_CLASSES.items()} == {
        kind: name for kind in TRANSFORM_CLASSES.values() for name in [DAYLIGHT_TRANSFORMS[kind.__name__]]
    }


def test_robust_losses_that_are_known_without_importing_are_those_of_the_modules() -> None:
    pytest.importorskip("stable_baselines3")
    from adv_wrappers.training.defences.lookup import POLICY_METHODS, Q_METHODS

    assert {*get_args(Robust)} == {*POLICY_METHODS} | {*Q_METHODS}
