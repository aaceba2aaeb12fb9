"""A study of one's own and its command: the least eps at which an agent loses a share of its return, by bisection.

Run it again and it goes on where it stopped; ``--help`` has the options.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from adv_wrappers.cli import main
from adv_wrappers.cli.signatures import command
from adv_wrappers.evaluation.rows.row import Row
from adv_wrappers.studies import Plan, Store, play_study
from adv_wrappers.studies.bisection import Bisection, bracket
from adv_wrappers.utils.validation import AboveZero, EpisodeCount, OpenShare, check_fields


@dataclass(frozen=True)
class LeastEps:
    """The range in which that eps lies, halved with every row but the first.

    Args:
        victim: the agent, a reference.
        attack: its text without a budget.
        most: the largest eps that is tried.
        episodes: of every row.
        close: the difference of the two ends of that range, at which it ends.
        lost: the share.
    """

    victim: str = "zoo:cartpole-dqn"
    attack: str = "pgd"
    most: AboveZero = 0.5
    episodes: EpisodeCount = 20
    close: AboveZero = 0.005
    lost: OpenShare = 0.2

    def __post_init__(self) -> None:
        check_fields(self)

    def next(self, rows: Sequence[Row]) -> Plan | None:
        """The middle of the range that is left; at first the largest eps, without which there is nothing to find."""
        eps = Bisection([self.most], self.most, self.close).next(self._breaks(rows))
        if eps is None:
            return None
        return Plan.of(victims=[self.victim], threats=[f"{self.attack}:eps={eps:g}"], episodes=self.episodes)

    def conclusion(self, rows: Sequence[Row]) -> tuple[float | None, float | None]:
        """The largest eps that takes less, and the least that takes as much; None where there is none."""
        return bracket(self._breaks(rows))

    def _breaks(self, rows: Sequence[Row]) -> dict[float, bool]:
        """By eps, whether it takes the share; the first row is the run without an attack."""
        return {row.eps or 0.0: row.mean_return <= (1 - self.lost) * rows[0].mean_return for row in rows[1:]}


# options are made of the arguments of the study, and of one of evaluate; those of a file of a victim are left out
@command("least-eps", f"{__name__}.LeastEps", "adv_wrappers.evaluate:workers", without=("stats", "trust", "select"))
@click.option("--store", type=click.Path(path_type=Path), default="least_eps.db", help="for the rows")
def least_eps(store: Path, workers: int, **given: Any) -> None:
    """Find the least eps at which an agent loses a share of its return."""
    study = LeastEps(**given)
    with Store(store) as rows:
        low, high = play_study(study, rows, workers)
    found = f"at no eps up to {low:g}" if high is None else f"from an eps between {low or 0.0:g} and {high:g} on"
    click.echo(f"{study.attack} takes a share of {study.lost:g} {found}")


if __name__ == "__main__":
    main(["least-eps", *sys.argv[1:]])
