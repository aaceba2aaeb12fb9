"""How far a command is: what a line says, and that lines come where no terminal is."""

from __future__ import annotations

import io
import threading

import click
import pytest
from rich.console import Console

from adv_wrappers.cli import progress
from adv_wrappers.cli.progress import ProgressLines, show_progress


class Clock:
    """Seconds that pass when a test says so."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def told():
    """Lines, the clock, and what was written."""
    written, clock = [], Clock()
    return ProgressLines(written.append, clock), clock, written


def test_a_line_says_what_runs_and_what_is_left(told):
    lines, clock, written = told
    lines.tell()
    assert written == []
    lines.move("beam", 0, 20)
    clock.now += 30
    lines.tell()
    lines.move("beam", 5, 20)
    clock.now += 10
    lines.tell()
    lines.move("beam", 5, 2000, "1 failed")
    lines.tell()
    assert written == [
        "beam: 0 of 20 after 30 s",
        "beam: 5 of 20 after 40 s, about 2 min left",
        "beam: 5 of 2000, 1 failed after 40 s, about 4.4 h left",
    ]


def test_what_is_done_is_not_told_of(told):
    lines, clock, written = told
    lines.move("noise", 0, 3)
    lines.move("pgd", 0, 3)
    clock.now += 10
    lines.tell()
    lines.move("pgd", 3, 3)
    lines.tell()
    lines.move("noise", 3, 3)
    lines.tell()
    assert written == ["pgd: 0 of 3 after 10 s", "noise: 0 of 3 after 10 s"]


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
    console = Console(file=shown, force_terminal=True, width=120)
    monkeypatch.setattr(progress, "make_console", lambda stderr: console)
    with show_progress() as move:
        move("cells [a]", 1, 4, "1 failed")
    assert "cells [a], 1 failed" in shown.getvalue() and "1/4" in shown.getvalue()
    assert not [thread for thread in threading.enumerate() if thread.name == "progress"]
