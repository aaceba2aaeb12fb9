"""Plans: what more processes give, and what a cell costs beside its play.

    python benchmarks/plan.py

A plan of about ``--cells`` cells on CartPole and Hopper, three seeds, is played in turn by this process, by two warm
processes, and by two actors of a local Ray cluster (``equal``: rows must be equal but for their times); one evaluation
by one process and by two (``workers``). ``load`` has ten thousand cells of one episode of five steps.
"""

from __future__ import annotations

import functools
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from timing import Data, Page, Results, hardware, prose, table

import adv_wrappers as adv
from adv_wrappers.studies import Plan, Store, expand, run
from adv_wrappers.studies.plan_cells import Expansion
from adv_wrappers.studies.ray_cluster import RayActors
from adv_wrappers.utils.processes import warm_pool

PARTS = ("equal", "workers", "load")
SEEDS = (0, 1, 2)
EVALUATIONS: dict[str, dict[str, Any]] = {
    "MaxDiff-10 on Hopper": {
        "victim": "zoo:hopper-ppo", "env": "Hopper-v5", "threats": "max-diff:eps=0.075,scale=victim,steps=10",
        "episodes": 64,
    },
    "PGD-10 on Pong": {
        "victim": "zoo:pong-ppo", "env": "PongNoFrameskip-v4", "threats": "pgd:eps=1,steps=10", "episodes": 16,
    },
}  # fmt: skip


def plan_of(cells: int, episodes: int = 2) -> Plan:
    """About so many cells: four threats and as many budgets as it takes, on CartPole and Hopper, three seeds."""
    budgets = max(round((cells / len(SEEDS) / 2 - 1) / 4), 1)
    radii = [0.2 * (i + 1) / budgets for i in range(budgets)]
    cartpole = Plan.of(
        victims=["zoo:cartpole-dqn"],
        episodes=episodes,
        threats=["noise", "max-diff", "min-best", "pgd"],
        seeds=SEEDS,
        budgets=[f"eps={eps:.4g}" for eps in radii],
    )
    hopper = Plan.of(
        victims=["zoo:hopper-ppo"],
        episodes=episodes,
        threats=["noise", "max-diff", "max-diff:steps=3", "max-diff:steps=1"],
        seeds=SEEDS,
        budgets=[f"eps={eps:.4g},scale=victim" for eps in radii],
    )
    return cartpole + hopper


def rows_of(store: Store) -> dict[str, str]:
    """By key, every row without its time."""
    found = {}
    for played in store.played():
        if played.key in found:
            raise SystemExit(f"two rows of one key: {played.name}")
        found[played.key] = json.dumps({**(played.row or {}), "ms_per_step": None}, sort_keys=True)
    return found


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds of a call, and what it returned."""
    began = time.perf_counter()
    found = call()
    return time.perf_counter() - began, found


@contextmanager
def players() -> Iterator[dict[str, Any]]:
    """Whoever plays, ready to."""
    with warm_pool(2) as pool, closing(RayActors("local", 2)) as actors:
        list(pool.map(time.sleep, [1, 1]))
        yield {"this process": 1, "two processes": 2, "two Ray actors": actors}


def equal(cells: int, rounds: int) -> dict[str, Any]:
    """Seconds of a plan by whoever plays it; raises where rows differ."""
    expansion = expand(plan_of(cells))
    seconds: dict[str, list[float]] = {}
    rows: dict[str, dict[str, str]] = {}
    with players() as found:
        for _ in range(rounds):
            for name, workers in found.items():
                with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "rows.db") as store:
                    spent, summary = timed(functools.partial(run, expansion, store, workers))
                    if summary.failed:
                        raise SystemExit(f"{name}: {summary.failed}")
                    seconds.setdefault(name, []).append(spent)
                    rows[name] = rows_of(store)
    if any(other != rows["this process"] for other in rows.values()):
        raise SystemExit("rows differ between those who played them")
    return {"cells": len(expansion.cells), "seconds": seconds}


def workers(rounds: int, names: list[str]) -> dict[str, Any]:
    """Seconds of one evaluation by one process and two; raises where rows differ."""
    found: dict[str, Any] = {}
    with warm_pool(2) as pool:
        list(pool.map(time.sleep, [1, 1]))
    for name in names:
        how = EVALUATIONS[name]
        seconds: dict[int, list[float]] = {1: [], 2: []}
        rows = {}
        for count in (1, 2):
            adv.evaluate(**{**how, "episodes": 2}, num_envs=1, workers=count)  # imports, and opens what stays open
        for _ in range(rounds):
            for count in (1, 2):
                spent, report = timed(functools.partial(adv.evaluate, **how, workers=count))
                seconds[count].append(spent)
                rows[count] = [{**row, "ms_per_step": None} for row in report.threats]
        if rows[1] != rows[2]:
            raise SystemExit(f"{name}: rows differ")
        found[name] = {"episodes": how["episodes"], "seconds": seconds}
    return found


def load(cells: int) -> dict[str, Any]:
    """What many tiny cells cost beyond their play."""
    plan = Plan.of(
        victims=["zoo:cartpole-dqn"],
        environments=[{"id": "CartPole-v1", "kwargs": {"max_episode_steps": 5}}],
        threats=["noise:eps=0.1"],
        seeds=range(cells // 2),
        episodes=1,
    )
    memory: list[int] = []

    def look(done: int, failed: int, total: int) -> None:
        if len(memory) < 10 * (done + failed) // total:
            memory.append(int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 10)

    with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "rows.db") as store:
        expanding, expansion = timed(functools.partial(expand, plan))
        running, summary = timed(functools.partial(run, expansion, store, 1, progress=look))
        play = sum(row["ms_per_step"] * sum(row["lengths"]) for _, row in store.rows()) / 1000
        size = sum(file.stat().st_size for file in Path(folder).iterdir())
    if summary.failed:
        raise SystemExit(f"cells failed: {summary.failed}")
    count = len(expansion.cells)
    part = Expansion(expansion.cells[: max(count // 10, 1)])
    own = {}
    with players() as found:
        for name, workers in found.items():
            with Store(":memory:") as store:
                began = time.process_time()
                run(part, store, workers)
                own[name] = 1000 * (time.process_time() - began) / len(part.cells)
    beyond = 1000 * (expanding + running - play) / count
    return {
        "cells": count,
        "ms beyond the play": beyond,
        "ms of expanding": 1000 * expanding / count,
        "ms of play": 1000 * play / count,
        "bytes": size / count,
        "KiB after each tenth": memory,
        "ms of the writing process": {name: spent for name, spent in own.items() if name != "this process"},
    }


def _ratios(seconds: dict[Any, list[float]]) -> dict[Any, float]:
    """Of each, the median over rounds of how many times as fast as the first it was."""
    first = next(iter(seconds))
    return {
        name: statistics.median(a / b for a, b in zip(seconds[first], of, strict=True)) for name, of in seconds.items()
    }


def body(data: Data) -> list[str]:
    """The page after its head."""
    parts = prose(__doc__)
    if found := data.get("equal"):
        lines = [
            [name, f"{statistics.median(found['seconds'][name]):.1f}", f"{ratio:.2f}"]
            for name, ratio in _ratios(found["seconds"]).items()
        ]
        parts.append(f"{found['cells']} cells:\n\n" + table(["played by", "seconds", "times as fast"], lines))
    if found := data.get("workers"):
        lines = [
            [
                name,
                str(of["episodes"]),
                *(f"{statistics.median(times):.1f}" for times in of["seconds"].values()),
                f"{list(_ratios(of['seconds']).values())[1]:.2f}",
            ]
            for name, of in found.items()
        ]
        head = ["evaluation", "episodes", "seconds of one process", "of two", "times as fast"]
        parts.append("One evaluation:\n\n" + table(head, lines))
    if found := data.get("load"):
        memory = found["KiB after each tenth"]
        own = ", by ".join(f"{name} {spent:.2f} ms" for name, spent in found["ms of the writing process"].items())
        parts.append(
            f"Load, {found['cells']} cells: {found['ms beyond the play']:.2f} ms a cell beyond its play of "
            f"{found['ms of play']:.2f} ms, {found['ms of expanding']:.2f} ms of it for the expansion of the plan; "
            f"{found['bytes']:.0f} bytes a row; memory grows by "
            f"{(memory[-1] - memory[0]) / 1024:.1f} MiB. The process that writes the store spends on a cell "
            f"that is played by {own}."
        )
    return parts


def measure(results: Results) -> None:
    """Measure the parts that are asked for."""
    given, data = results.given, results.data
    line = results.made.pop("command")  # of every part its own
    measures: dict[str, Callable[[], Any]] = {
        "equal": lambda: equal(given.cells, given.rounds),
        "load": lambda: load(given.tiny),
        "workers": lambda: {**data.get("workers", {}), **workers(given.rounds, given.evaluations)},
    }
    for name in PARTS:
        if name in given.only:
            data[name] = measures[name]()
            results.part("commands")[name] = line
            results.keep()
            print(name, json.dumps(data[name]), flush=True)


def head(data: Data) -> str:
    """Which commands made the parts of the page."""
    lines = ", ".join(f"`{line}`" for line in dict.fromkeys(data["commands"].values()))
    return f"Made by {lines} on {hardware(data['machine'])}."


PAGE = Page(
    "plan",
    "Plans",
    __doc__,
    measure,
    body,
    page="speed",
    options={
        "--only": {"nargs": "+", "choices": PARTS, "default": PARTS},
        "--cells": {"type": int, "default": 500, "help": "of the plan that is run by each"},
        "--tiny": {"type": int, "default": 10_000, "help": "cells of load"},
        "--rounds": {"type": int, "default": 3},
        "--evaluations": {"nargs": "+", "choices": EVALUATIONS, "default": [*EVALUATIONS]},
    },
    head=head,
)


if __name__ == "__main__":
    PAGE.main()
