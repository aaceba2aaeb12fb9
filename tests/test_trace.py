"""The tool that lists the calls of a step."""

from __future__ import annotations

from pathlib import Path

from tests.processes import python


def test_the_table():
    code = "import runpy; runpy.run_module('tests.trace', run_name='__main__', alter_sys=True)"
    done = python(code, "noise", "--list", cwd=Path(__file__).parents[1])
    assert done.returncode == 0, done.stderr
    out = done.stdout.splitlines()
    assert out[0].split()[0] == "route" and out[1].split()[0] == "noise"
    assert any(line.endswith("core/engine/engine.py  Engine.observe") for line in out)
