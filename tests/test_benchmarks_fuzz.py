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

        def draw(self, rng):
            return rng.randrange(10**9)

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
        "fine": (lambda given: None, "accepted"),
        "refused": (refuse, "refused"),
        "mumbled": (mumble, "a message that says nothing"),
        "crashed": (crash, "ZeroDivisionError at "),
        "hung": (hang, "TooLong in "),
        "dead": (die, "the process ended with status 3"),
    }
    kinds = [kind_of(fuzz, attempt, name) for name, (attempt, _) in expected.items()]
    outcomes = fuzz.run(kinds, 2 * len(kinds), 0, 2)
    assert len(outcomes) == 2 * len(kinds) and fuzz.show(outcomes) == 4
    printed = capfd.readouterr().out
    for one in outcomes:
        assert one.cause.startswith(expected[one.kind][1])
        assert one.is_finding == (f"\n{one.kind}: {one.cause}" in printed) and one.given.isdigit()


def test_the_same_seed_gives_the_same_inputs(fuzz, capfd):
    found = [fuzz.run([kind_of(fuzz, crash)], 4, seed, 1) for seed in (7, 7, 8)]
    given = [[one.given for one in outcomes] for outcomes in found]
    assert given[0] == given[1] != given[2] and len(given[0]) == 4
