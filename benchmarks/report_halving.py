"""Whether a report finds the eps at which the return halves: against a dense grid of eps, on five agents.

    python benchmarks/report_halving.py --minutes 1

Both play the same episodes. The grid has twenty eps a decade, from 0.63 to 1.58 times the report's finding, each under
every attack that the report swept with; its halving eps lies on the line between two of them, as that of the report
does. A line is written as soon as its agent is done, some minutes after the one before.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np

import adv_wrappers as adv
from adv_wrappers.studies.report.sections import read_reports
from adv_wrappers.studies.report.sweep import halving_eps, strongest_by_eps
from adv_wrappers.studies.report.trials import Trial
from adv_wrappers.threats.presets import parse_threat

AGENTS = {
    "zoo:cartpole-dqn": "CartPole-v1",
    "zoo:cartpole-ppo": "CartPole-v1",
    "zoo:cartpole-radial-ppo": "CartPole-v1",
    "zoo:mountaincar-dqn": "MountainCar-v0",
    "zoo:hopper-ppo": "Hopper-v5",
}
A_DECADE, REACH = 20, 4  # eps of the grid, in a decade and on either side of what the report found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=1.0, help="of every report")
    options = parser.parse_args()
    print(f"{'agent':26} {'report':>8} {'grid':>8} {'ratio':>6}", flush=True)
    for ref, env in AGENTS.items():
        with tempfile.TemporaryDirectory() as folder:
            found = adv.report(ref, env, options.minutes, out=Path(folder) / "report")
            (agent,) = read_reports(Path(folder) / "report").agents
        half = found.choices.halving_eps
        if half is None:
            print(f"{ref:26} {'none':>8}")
            continue
        attacks = sorted({curve.attack for curve in agent.sweeps[0].curves})
        points = half * 10 ** (np.arange(-REACH, REACH + 1) / A_DECADE)
        threats = [
            parse_threat(attack, within=adv.Linf(float(eps), found.choices.scale))
            for attack in attacks
            for eps in points
        ]
        grid = adv.evaluate(ref, env, threats, adv.Episodes(found.report.episodes, found.report.seed))
        rows = grid.threats[1:]
        trials = [Trial("", float(points[i % len(points)]), row, grid.threats[0]) for i, row in enumerate(rows)]
        dense = halving_eps(grid.threats[0]["mean_return"], strongest_by_eps(trials))
        print(f"{ref:26} {half:8.4g} {dense or 0:8.4g} {half / dense if dense else 0:6.2f}", flush=True)


if __name__ == "__main__":
    main()
