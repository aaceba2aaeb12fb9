"""Seconds until the command line answers without running a command, and the ratio to ``python -c pass``.

The best of several runs of each::

    python benchmarks/startup.py --runs 10
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time

WORDS = ["-m", "adv_wrappers"]
COMPLETE = {
    "completion": "eval", "completion of ENV": "evaluate CartP", "completion of --victim": "suite E --victim zoo:cart",
    "completion of --threat": "evaluate E --threat pg",
}  # fmt: skip
CALL = ["-c", "from adv_wrappers.cli import main; main(prog_name='adv-wrappers')"]
COMMANDS: dict[str, tuple[list[str], dict[str, str]]] = {
    "python -c pass": (["-c", "pass"], {}),
    "import gymnasium": (["-c", "import gymnasium"], {}),
    "--help": ([*WORDS, "--help"], {}),
    "--version": ([*WORDS, "--version"], {}),
    "evaluate --help": ([*WORDS, "evaluate", "--help"], {}),
    "unknown command": ([*WORDS, "no-such-command"], {}),
    "missing option": ([*WORDS, "evaluate", "CartPole-v1"], {}),
    **{
        name: (CALL, {"_ADV_WRAPPERS_COMPLETE": "bash_complete", "COMP_LINE": f"adv-wrappers {words}"})
        for name, words in COMPLETE.items()
    },
}


def seconds(words: list[str], environment: dict[str, str], runs: int) -> float:
    """The least of the times of ``runs`` runs."""
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        subprocess.run([sys.executable, *words], capture_output=True, env={**os.environ, **environment}, check=False)
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10, help="of each command")
    runs = parser.parse_args().runs
    base = 0.0
    for name, (words, environment) in COMMANDS.items():
        taken = seconds(words, environment, runs)
        base = base or taken
        print(f"{name:<22} {taken:6.3f} s {taken / base:6.1f} x")


if __name__ == "__main__":
    main()
