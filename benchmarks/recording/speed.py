"""Ratios of the benchmarks in small form."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.recording.values import in_folder

ROOT = Path(__file__).resolve().parents[2]
SPEED = {
    "attacks": "--only mlp simba sac-actor cnn --batches 1 8 64 --rounds 5 --least 0.1",
    "wrappers": "--rounds 9",
    "plan": "--only load --tiny 200",
}

PEERS = {
    "noise": "hand-written noise", "five layers of noise": "hand-written noise",
    "action flip": "hand-written action flip", "action noise": "hand-written action noise",
}  # fmt: skip


def speed() -> dict[str, float]:
    """Ratios within one run of the benchmarks in small form.

    Of attacks to their floor, of steps to a bare one or to a wrapper written by hand, of a cell to its play.
    """
    found = dict[str, float]()
    with in_folder() as folder:
        (folder / "results").mkdir()
        for script, words in SPEED.items():
            command = [sys.executable, str(ROOT / "benchmarks" / f"{script}.py"), *words.split(), "--out", "results"]
            path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": path})
            data = json.loads((folder / "results" / f"{script}.json").read_text(encoding="utf-8"))
            found |= {f"{script}: {name}": ratio for name, ratio in ratios(script, data)}
    return found


def ratios(script: str, data: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """(name, ratio) of what a benchmark wrote."""
    if script == "attacks":
        for row in data["rows"]:
            if row["contestant"].startswith("adv_wrappers"):
                yield f"{row['network']} {row['batch']} {row['contestant']}", row["ratio"]
    elif script == "wrappers":
        for name in ("Never()", "Every(k)", "Bernoulli(p)"):
            yield f"CartPole, not attacked {name}", 1 + data["cartpole"][name]["added"]
        for place, rows in data["attacked"].items():
            for name, peer in PEERS.items():
                if name in rows:
                    yield f"{place} {name}", rows[name]["microseconds"] / rows[peer]["microseconds"]
        yield "MaxDiff, wrapper to hand-written loop", data["hopper"]["wrapper_to_hand"]
        yield "MaxDiff, evaluate to wrapper", data["hopper"]["evaluate_to_wrapper"]
    else:
        yield "a cell beyond its play", data["load"]["ms beyond the play"] / data["load"]["ms of play"]
