"""A plan run by the actors of a Ray cluster: one on this machine, or any other by ``--address``.

Needs ``pip install 'adv_wrappers[ray]'``. Rows are the same as without a cluster, to the last digit on the same kind of
machine, and the store stays with the process that calls.
"""

from __future__ import annotations

import argparse
from contextlib import closing
from pathlib import Path

from adv_wrappers.studies import Plan, Store, run
from adv_wrappers.studies.ray_cluster import RayActors


def main() -> None:
    """Start or find a cluster, run the plan on it, and print what every agent keeps."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--address", default="local", help="local, auto, or that of a cluster")
    parser.add_argument("--actors", type=int, default=2)
    parser.add_argument("--store", type=Path, default=Path("ray-rows.db"))
    parser.add_argument("--episodes", type=int, default=10)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    given = parser.parse_args()
    plan = Plan.of(
        victims=["zoo:cartpole-dqn", "zoo:hopper-ppo"],
        threats=["noise", "max-diff"],
        budgets=["eps=0.1"],
        seeds=given.seeds,
        episodes=given.episodes,
    )
    with Store(given.store) as store, closing(RayActors(given.address, given.actors)) as actors:
        print(run(plan, store, actors))
        for report in store.reports():
            for row in report.threats:
                print(report.victim["ref"], report.seed, row["threat"], row["mean_return"])


if __name__ == "__main__":
    main()
