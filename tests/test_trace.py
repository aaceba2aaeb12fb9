"""The ways of a step and of wrapping stay short."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.trace import ROUTES

LIMITS = {"noise": (28, 10), "max-diff": (223, 22), "wrapping": (91, 21)}  # calls, files


@pytest.mark.parametrize("route", ROUTES)
def test_calls_and_files(route):
    trace = ROUTES[route]()
    calls, files = LIMITS[route]
    assert 10 < trace.calls <= calls and len(set(trace.files)) <= files, f"\n{trace.listing()}"


def test_the_table():
    command = [sys.executable, "-m", "tests.trace", "noise", "--list"]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert out[0].split()[0] == "route" and out[1].split()[0] == "noise"
    assert any(line.endswith("core/engine.py  Engine.observe") for line in out)
