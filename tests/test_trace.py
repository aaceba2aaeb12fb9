"""The tool that lists the calls of a step."""

from __future__ import annotations

import subprocess
import sys


def test_the_table():
    command = [sys.executable, "-m", "tests.trace", "noise", "--list"]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert out[0].split()[0] == "route" and out[1].split()[0] == "noise"
    assert any(line.endswith("core/engine.py  Engine.observe") for line in out)
