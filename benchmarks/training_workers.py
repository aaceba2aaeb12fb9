"""What further processes save in the training of an adversary.

PA-AD is trained against zoo:hopper-ppo on Hopper-v5, under eps=0.075 in units of the agent's normaliser, by default
with ten checkpoints of thirty episodes each: once in one process, which trains and plays the episodes of checkpoints
by turns; once with ``workers=2``, where a second process plays them while the first trains on; and once with
``env_workers=2`` as well, where another steps half of the environments of the training. All begin with the same seed
and write a folder, and what comes out must be the same: the weights of the best adversary, and every figure of every
checkpoint.

Seconds are by the clock on the wall, and those of the process by its own clock. Processes are started before the
clocks, as they are for every training but the first of a program; that takes the seconds that are given apart. Where
the process's own time is far below the clock on the wall with one process, the machine was busy with something else,
and the ratio says little. ``workers=2`` can save the time of the checkpoints: the share that is given is the processor
time of the training with one process that is not in its record, which counts training alone. The longer the training
between two checkpoints, the smaller that share. ``env_workers=2`` can save half of what stepping takes.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from timing import Data, Page, Results, prose, table

from adv_wrappers.training.adversary import train_adversary
from adv_wrappers.utils.processes import warm_pool

ENV, VICTIM, EPS = "Hopper-v5", "zoo:hopper-ppo", 0.075


def train(
    steps: int, seed: int, forms: int, workers: int, env_workers: int, checks: int = 10, episodes: int = 30
) -> dict[str, Any]:
    """A training of one form or both: its seconds, the hash of its adversary, and its record."""
    with tempfile.TemporaryDirectory() as folder:
        wall, own = time.perf_counter(), time.process_time()
        learned = train_adversary(
            "pa-ad",
            ENV,
            VICTIM,
            EPS,
            steps,
            seed=seed,
            scale="victim",
            checks=checks,
            episodes=episodes,
            out=folder,
            workers=workers,
            env_workers=env_workers,
            form="both" if forms == 2 else None,
        )
        wall, own = time.perf_counter() - wall, time.process_time() - own
        paths = sorted(Path(folder).rglob("state.json"))
        record = [row for path in paths for row in json.loads(path.read_text(encoding="utf-8"))["record"]]
    return {
        "forms": forms,
        "workers": workers,
        "env_workers": env_workers,
        "wall": wall,
        "processor": own,
        "training": record[-1]["seconds"],
        "sha256": learned.sha256,
        "record": record,
    }


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two trainings have the same adversary and, but for seconds, the same record."""
    records = [[{**row, "seconds": None} for row in found["record"]] for found in (one, other)]
    return bool(one["sha256"] == other["sha256"] and records[0] == records[1])


def body(data: Data) -> list[str]:
    """The page after its head."""
    rows = data["rows"]
    one, _, last, *_ = rows
    base = {row["forms"]: row["wall"] for row in rows if row["workers"] == 1}
    share = 1 - one["training"] / one["processor"]
    header = [
        "forms",
        "workers",
        "env_workers",
        "seconds on the wall",
        "processor seconds of the process that trains",
        "of one process",
    ]
    lines = [
        [
            *(row[name] for name in ("forms", "workers", "env_workers")),
            f"{row['wall']:.1f}",
            f"{row['processor']:.1f}",
            f"{row['wall'] / base[row['forms']]:.2f}",
        ]
        for row in rows
    ]
    figures = [["steps", "mean return", "std"]]
    figures += [[row["steps"], f"{row['mean_return']:.1f}", f"{row['std']:.1f}"] for row in last["record"]]
    return [
        *prose(__doc__, 1),
        "## Time\n\n" + table(header, lines),
        f"{data['steps']} steps. Checkpoints were {share:.0%} of the processor time of one process. Starting a "
        f"process took {data['start_seconds']:.1f} seconds.",
        "## The checkpoints of one form, the same of all\n\n" + table(figures[0], figures[1:]),
    ]


def measure(results: Results) -> None:
    """Train every way, anew; the trainings must be the same."""
    given, rows = results.given, []
    began = time.perf_counter()
    with warm_pool(1) as pool:
        pool.submit(os.getpid).result()
    results.data |= {"steps": given.steps, "start_seconds": time.perf_counter() - began}
    train(1, given.seed, 2, 2, 2, 1, 1)  # torch's optimisers are imported, and processes begin
    for how in ((1, 1, 1), (1, 2, 1), (1, 2, 2), (2, 1, 1), (2, 2, 1)):
        row = train(given.steps, given.seed, *how, given.checks, given.episodes)
        rows.append(row)
        first = next(one for one in rows if one["forms"] == row["forms"])
        if not same(first, row):
            sys.exit("the trainings differ")
        print(
            f"forms={how[0]}, workers={how[1]}, env_workers={how[2]}: {row['wall']:.1f} s on the wall, "
            f"{row['processor']:.1f} s of its own; {row['wall'] / first['wall']:.2f} of one process",
            flush=True,
        )
    print("the same adversary and record")
    results.data["rows"] = rows
    results.keep()


PAGE = Page(
    "training_workers",
    "Training in several processes",
    __doc__,
    measure,
    body,
    options={
        "--steps": {"type": int, "default": 500_000, "help": "of each training"},
        "--seed": {"type": int, "default": 0},
        "--checks": {"type": int, "default": 10, "help": "checkpoints"},
        "--episodes": {"type": int, "default": 30, "help": "of each checkpoint"},
    },
)


if __name__ == "__main__":
    PAGE.main()
