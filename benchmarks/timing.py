"""What the benchmarks share: interleaved timing, and the frame of their pages."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "reproduce"))

from figures import pivot, table
from page import (
    AGAIN,
    Data,
    Page,
    Results,
    command,
    episode_options,
    hardware,
    machine,
    made_by,
    prose,
    put,
    releases,
    save,
    write,
)

__all__ = [
    "AGAIN", "INTERLEAVED", "Data", "Page", "Results", "command", "episode_options", "hardware", "interleave",
    "machine", "machines", "made_by", "medians", "pivot", "prose", "put", "releases", "save", "table", "timing_options",
    "write",
]  # fmt: skip
INTERLEAVED = "Processor time, medians over the rounds of one interleaved run"


def timing_options(rounds: int, least: float) -> dict[str, Data]:
    """The options ``--rounds`` and ``--least`` of :func:`interleave`, with their defaults."""
    helps = "seconds a timing lasts at least"
    return {
        "--rounds": {"type": int, "default": rounds},
        "--least": {"type": float, "default": least, "help": helps},
    }


def interleave(
    contestants: Mapping[str, Callable[[], object]], rounds: int, least: float, warm: bool = False
) -> dict[str, list[float]]:
    """Processor seconds a call of every contestant in each of ``rounds`` rounds.

    The clock is the process's own, so time in which the machine serves somebody else is not counted; with one thread
    it is otherwise the clock on the wall.

    Every round times all of them, each beginning one place later than in the round before, so that whatever else the
    machine does falls on all alike. A timing repeats its call until ``least`` seconds have passed, by an estimate.
    ``warm`` says that each was called before.
    """
    repeats = {}
    for name, call in contestants.items():
        if not warm:
            call()
        started = time.process_time()
        call()
        repeats[name] = max(1, round(least / max(time.process_time() - started, 1e-9)))
    names = list(contestants)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for i in range(rounds):
        at = i % len(names)
        for name in names[at:] + names[:at]:
            call, count = contestants[name], repeats[name]
            started = time.process_time()
            for _ in range(count):
                call()
            seconds[name].append((time.process_time() - started) / count)
    return seconds


def medians(seconds: dict[str, list[float]], base: str) -> dict[str, float]:
    """Median over the rounds of each contestant's ratio to ``base`` in the same round."""
    return {
        name: statistics.median(own / floor for own, floor in zip(times, seconds[base], strict=True))
        for name, times in seconds.items()
    }


def machines(rows: list[Data], name: str) -> str:
    """The machines that rows were measured on; of several machines each with what was, by the entry ``name``."""
    found: dict[str, dict[str, None]] = {}
    for row in rows:
        found.setdefault(row["machine"], {})[row[name]] = None
    if len(found) == 1:
        return next(iter(found))
    return "; ".join(f"{machine} ({', '.join(names)})" for machine, names in found.items())
