"""The best of several draws of an episode: what a random attack can do that is tried again and again.

Weng et al. 2020 compare with noise that is drawn 1000 times (their rand-U and rand-B), of which the trajectory with the
smallest loss, or return, counts. Each draw plays the same episode, under its seed, with random numbers of its own: the
attack is told afterwards which draw was the best, which no attacker knows beforehand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from adv_wrappers.errors import ValueRangeError
from adv_wrappers.evaluation.measurements import RunMeasurements
from adv_wrappers.evaluation.threat_stacks import ThreatStack
from adv_wrappers.option_values import BY
from adv_wrappers.utils.numbers import integer

MOST_DRAWS = 10**6
BestOf = int | Mapping[str, int]
Play = Callable[[Sequence[int]], RunMeasurements]


def check_by(by: object, measured: bool) -> None:
    """Raise :class:`ValueRangeError` unless this names what the best draw is chosen by, and it is measured."""
    if by not in BY:
        raise ValueRangeError(f"by must be one of {', '.join(map(repr, BY))}, got {by!r}")
    if by == "loss" and not measured:
        raise ValueRangeError("by='loss' needs the loss of states: give measure=")


def draws_of(best_of: BestOf, stacks: Sequence[ThreatStack]) -> list[int]:
    """The number of draws of every run, 1 for the one without a threat.

    Args:
        best_of: one for all threats, or by the text of a threat, those it does not name being drawn once.
        stacks: the runs.

    Raises:
        ValueRangeError: for numbers below 1, and for the text of a threat that is not evaluated.
    """
    named = best_of if isinstance(best_of, Mapping) else {}
    known = {stack.name for stack in stacks if stack.layers}
    if unknown := [name for name in named if name not in known]:
        raise ValueRangeError(f"best_of names {unknown[0]!r}, which is none of the threats {sorted(known)}")
    every = 1 if isinstance(best_of, Mapping) else integer("best_of", best_of, 1, MOST_DRAWS)
    counts = {name: integer(f"best_of of {name}", count, 1, MOST_DRAWS) for name, count in named.items()}
    return [counts.get(stack.name, every) if stack.layers else 1 for stack in stacks]


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

    def all_of_them(self) -> dict[str, list[list[float]] | None] | None:
        """Returns and losses of every draw of every episode, None where there is one draw."""
        if self.count == 1:
            return None
        shape, run = (-1, len(self.best)), self.run
        losses = None if run.losses is None else run.losses.reshape(shape).tolist()
        return {"returns": run.returns.reshape(shape).tolist(), "losses": losses}


def play_draws(play: Play, count: int, episodes: int, by: str) -> EpisodeDraws:
    """Play every episode several times.

    Args:
        play: plays an episode for each number of a draw that it is given, all episodes of a draw one after another.
        count: the number of draws.
        episodes: the number of episodes.
        by: ``"return"`` or ``"loss"``.
    """
    run = play([draw for draw in range(min(count, 2)) for _ in range(episodes)])
    alike = False
    if count > 1:
        alike = run.drew == 0 and all((x[:episodes] == x[episodes:]).all() for x in (run.returns, run.lengths))
        if count > 2 and not alike:
            run = joined(run, play([draw for draw in range(2, count) for _ in range(episodes)]))
    values = run.returns if by == "return" else run.losses
    assert values is not None
    best = values.reshape(-1, episodes).argmin(0)
    return EpisodeDraws(run, best * episodes + np.arange(episodes), count, alike)


def joined(first: RunMeasurements, second: RunMeasurements) -> RunMeasurements:
    """What two runs measured, as that of one: episodes one after another, sums added."""
    episodes = {
        name: np.concatenate([getattr(run, name) for run in (first, second)])
        for name in ("returns", "lengths", "attacked_steps", *(() if first.losses is None else ("losses",)))
    }
    summed = {field.name for field in fields(RunMeasurements)} - {*episodes, "losses", "integers"}
    sums = {name: getattr(first, name) + getattr(second, name) for name in summed}
    return RunMeasurements(**episodes, **sums, integers=first.integers)  # type: ignore[arg-type]
