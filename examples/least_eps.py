"""A study of one's own: the least eps at which an agent loses a fifth of its return, by bisection.

Run it again and it goes on where it stopped; ``--workers`` is the number of processes.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from adv_wrappers.evaluation.rows.row import Row
from adv_wrappers.studies import Plan, Store, play_study


@dataclass(frozen=True)
class LeastEps:
    """The range in which that eps lies, halved with every row."""

    victim: str
    attack: str
    most: float
    episodes: int
    steps: int
    lost: float = 0.2

    def next(self, rows: Sequence[Row]) -> Plan | None:
        """The middle of the range that is left; at first the largest eps, without which there is nothing to find."""
        low, high = self.conclusion(rows)
        if len(rows) > self.steps or low == self.most:
            return None
        eps = self.most if not rows else (low + high) / 2
        return Plan.of(victims=[self.victim], threats=[f"{self.attack}:eps={eps:.6g}"], episodes=self.episodes)

    def conclusion(self, rows: Sequence[Row]) -> tuple[float, float]:
        """The largest eps that takes less, and the least that takes as much."""
        low, high = 0.0, self.most
        for row in rows[1:]:  # the first is the run without an attack
            eps = row.eps or 0.0
            if row.mean_return > (1 - self.lost) * rows[0].mean_return:
                low = max(low, eps)
            else:
                high = min(high, eps)
        return low, high


def main() -> None:
    """Play the study, and say what it found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--victim", default="zoo:cartpole-dqn")
    parser.add_argument("--attack", default="pgd")
    parser.add_argument("--most", type=float, default=0.5)
    parser.add_argument("--episodes", type=int, default=20)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--store", type=Path, default=Path("least_eps.db"))
    parser.add_argument("--workers", type=int, default=1)
    given = parser.parse_args()
    study = LeastEps(given.victim, given.attack, given.most, given.episodes, given.steps)
    with Store(given.store) as store:
        low, high = play_study(study, store, given.workers)
    if low == given.most:
        print(f"{given.attack} takes less than a fifth up to eps={given.most:g}")
    else:
        print(f"{given.attack} takes a fifth from an eps between {low:.4g} and {high:.4g} on")


if __name__ == "__main__":
    main()
