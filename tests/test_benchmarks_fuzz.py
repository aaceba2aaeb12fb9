"""Bad input at random: a hundred inputs of every kind, and that the script finds what is wrong."""

from __future__ import annotations

import importlib
import os
from pathlib import Path

import pytest

from adv_wrappers.errors import AdvWrappersError, ValueRangeError
from tests.processes import python

SCRIPT = Path(__file__).resolve().parents[1] / "benchmarks" / "fuzz.py"
pytest.importorskip("stable_baselines3")


@pytest.mark.slow
def test_a_hundred_inputs_have_no_finding():
    done = python(SCRIPT, "--inputs", "100", "--seed", "5", "--workers", "1")
    assert done.returncode == 0, done.stdout
    assert "100 inputs in" in done.stdout and "0 causes of findings, seed 5" in done.stdout
    for kind in ("plans", "cards", "zips", "texts", "dictionaries", "commands"):
        assert f"{kind}: " in done.stdout


@pytest.fixture
def fuzz(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    module = importlib.import_module("fuzz")
    monkeypatch.setattr(module, "SECONDS", 0.2)
    return module


def kind_of(fuzz, attempt, called="numbers"):
    """A kind whose inputs are a number each, with what is done to it."""

    class Numbers(fuzz.Kind):
        name = called

        def draw(self, draw):
            return draw(fuzz.RNG).randrange(10**9)

        def attempt(self, given):
            attempt(given)

    return Numbers()


def refuse(given):
    raise ValueRangeError("expected another number than this one")


def mumble(given):
    raise AdvWrappersError("no")


def crash(given):
    return 1 / 0


def hang(given):
    while True:
        pass


def die(given):
    os._exit(3)


@pytest.mark.slow
def test_what_counts_as_a_finding(fuzz, capfd):
    expected = {
        "fine": (lambda given: None, 2, 0, None),
        "refused": (refuse, 0, 2, None),
        "mumbled": (mumble, 0, 0, "a message that says nothing"),
        "crashed": (crash, 0, 0, "ZeroDivisionError at "),
        "hung": (hang, 0, 0, "TooLong in "),
        "dead": (die, 0, 0, "the process ended with status 3"),
    }
    kinds = [kind_of(fuzz, attempt, name) for name, (attempt, *_) in expected.items()]
    totals = fuzz.run(kinds, 2 * len(kinds), 0, 2)
    assert fuzz.show(totals)
    printed = capfd.readouterr().out
    for name, (_, accepted, refused, cause) in expected.items():
        tally = totals[name]
        assert (tally.accepted, tally.refused, bool(tally.findings)) == (accepted, refused, cause is not None)
        for finding in tally.findings:
            assert cause in finding.cause and f"{name}: {finding.cause}" in printed and finding.given.isdigit()


def test_the_same_seed_gives_the_same_inputs(fuzz, capfd):
    found = [fuzz.run([kind_of(fuzz, crash)], 4, seed, 1)["numbers"].findings for seed in (7, 7, 8)]
    given = [[finding.given for finding in findings] for findings in found]
    assert given[0] == given[1] != given[2] and len(given[0]) == 4
