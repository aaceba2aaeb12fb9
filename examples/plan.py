"""A plan of many cells, run into a store: victims x threats x budgets x seeds, on all cores, and resumable.

Run it again and only what is missing is played; ``--workers`` is the number of processes.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from adv_wrappers.studies import Plan, Store, run
from adv_wrappers.studies.run_time import estimate


def main() -> None:
    """Make the plan, say what it will cost, run it, and print its reports."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", type=Path, default=Path("rows.db"))
    parser.add_argument("--episodes", type=int, default=10)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--workers", type=int, default=1)
    given = parser.parse_args()
    plan = Plan.of(
        victims=["zoo:cartpole-dqn", "zoo:cartpole-radial-dqn"],
        threats=["noise", "pgd"],
        budgets=["eps=0.05", "eps=0.1"],
        seeds=given.seeds,
        episodes=given.episodes,
    ) + Plan.of(victims=["zoo:cartpole-dqn"], threats=["action-flip:p=0.1"], seeds=given.seeds, episodes=given.episodes)
    plan.save(given.store.with_suffix(".json"))
    with Store(given.store) as store:
        print(estimate(plan, store))
        print(run(plan, store, given.workers))
        for report in store.reports():
            print(report)


if __name__ == "__main__":
    main()
