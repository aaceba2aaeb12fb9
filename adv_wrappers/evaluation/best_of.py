"""The best of several draws of an episode: what a random attack can do that is tried again and again.

Weng et al. 2020 compare with noise that is drawn 1000 times (their rand-U and rand-B), of which the trajectory with the
smallest loss, or return, counts. Each draw plays the same episode, under its seed, with random numbers of its own: the
attack is told afterwards which draw was the best, which no attacker knows beforehand.
"""

from __future__ import annotations

import functools
from collections.abc import Generator, Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from adv_wrappers.evaluation.run_monitor import RunMeasurements


class DrawResults(TypedDict):
    """Returns and losses of every draw (outer) of every episode (inner)."""

    returns: Annotated[list[list[float]], "by draw"]
    losses: Annotated[list[list[float]] | None, "by draw"]


@dataclass(frozen=True)
class EpisodeDraws:
    """What several draws of every episode measured.

    Attributes:
        run: of all draws, those of an episode ``episodes`` apart.
        best: the episodes of the run that are the best draws, int ``[episodes]``.
        count: how many draws were asked for.
        alike: whether nothing random was drawn, and the first two are alike; no others are played then.
    """

    run: RunMeasurements
    best: NDArray[np.int64]
    count: int
    alike: bool

    def all_of_them(self) -> DrawResults | None:
        """Returns and losses of every draw of every episode, None where there is one draw."""
        if self.count == 1:
            return None
        shape, run = (-1, len(self.best)), self.run
        losses = None if run.losses is None else run.losses.reshape(shape).tolist()
        return DrawResults(returns=run.returns.reshape(shape).tolist(), losses=losses)


def play_draws(count: int, episodes: int, by: str) -> Generator[list[int], Sequence[RunMeasurements], EpisodeDraws]:
    """The draws of every episode, as a generator that says what is to be played and is sent what that measured.

    Args:
        count: the number of draws.
        episodes: the number of episodes.
        by: ``"return"`` or ``"loss"``.

    Yields:
        Of every play the number of its draw, all episodes of a draw one after another; it is sent what was measured,
        in parts, one after another.
    """
    run = functools.reduce(joined_runs, (yield [draw for draw in range(min(count, 2)) for _ in range(episodes)]))
    alike = False
    if count > 1:
        alike = run.drew == 0 and all((x[:episodes] == x[episodes:]).all() for x in (run.returns, run.lengths))
        if count > 2 and not alike:
            more = yield [draw for draw in range(2, count) for _ in range(episodes)]
            run = joined_runs(run, functools.reduce(joined_runs, more))
    values = run.returns if by == "return" else run.losses
    assert values is not None
    best = values.reshape(-1, episodes).argmin(0)
    return EpisodeDraws(run, best * episodes + np.arange(episodes), count, alike)


def joined_runs(first: RunMeasurements, second: RunMeasurements) -> RunMeasurements:
    """What two runs measured, as that of one: episodes one after another, sums added."""
    episodes: dict[str, Any] = {
        name: np.concatenate([getattr(run, name) for run in (first, second)])
        for name in ("returns", "lengths", "attacked_steps", *(() if first.losses is None else ("losses",)))
    }
    said: dict[str, Any] = {
        name: getattr(first, name) or getattr(second, name) for name in ("integers", "unrepeated", "outside")
    }
    metrics = {name: np.concatenate([values, second.metrics[name]]) for name, values in first.metrics.items()}
    summed = {field.name for field in fields(RunMeasurements)} - {*episodes, *said, "losses", "metrics"}
    sums: dict[str, Any] = {name: getattr(first, name) + getattr(second, name) for name in summed}
    return RunMeasurements(**episodes, **sums, **said, metrics=metrics)
