"""How far a command is: lines where no terminal is, and bars on one."""

from __future__ import annotations

import io
import re
import threading

import click
from rich.console import Console

from adv_wrappers.cli import progress
from adv_wrappers.cli.progress import show_progress


def test_lines_come_while_a_command_is_silent_and_end_with_it(monkeypatch):
    came = threading.Event()

    def echo(line, err):
        assert (line.split(" after")[0], err) == ("cells: 1 of 4, 1 failed", True)
        came.set()

    monkeypatch.setattr(progress, "EVERY_S", 0.0)
    monkeypatch.setattr(click, "echo", echo)
    with show_progress() as move:
        move("cells", 1, 4, "1 failed")
        assert came.wait(60)
    assert not [thread for thread in threading.enumerate() if thread.name == "progress"]


def test_a_terminal_has_bars(monkeypatch):
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=True, width=80, color_system=None)
    monkeypatch.setattr(progress, "make_console", lambda stderr: console)
    with show_progress() as move:
        move("cells [a]", 0, 4, "1 failed")
        console.print("above")  # draws the bars again
        assert "cells [a]" in shown.getvalue() and "0/4 1 failed 0:00:00 -:--:--" in shown.getvalue()
        move("cells [a]", 1, 4, "1 failed")
        move("a name that is much too long for a line of eighty columns, in which there are numbers", 0, 4)
    assert "1/4 1 failed 0:00:0" in shown.getvalue() and "…" in shown.getvalue()
    assert all(len(line) <= 80 for line in re.sub(r"\x1b\[[0-9?]*[A-Za-z]", "", shown.getvalue()).splitlines())
    assert not [thread for thread in threading.enumerate() if thread.name == "progress"]
