"""The budgets of a report: a sweep of eps from what changes nothing to what breaks the agent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from adv_wrappers.studies.bisection import Bisection, bracket
from adv_wrappers.studies.report.observation_ranges import ObservationRanges
from adv_wrappers.studies.report.trials import NO_LOSS, Trial

T = TypeVar("T", bound=Trial)
_CLOSE = 1.2  # the ratio of two eps between which the return halves, at which the search ends
_BELOW = 8  # by which the smallest eps of a ladder is divided, below which none is looked for
_LADDER = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)  # of the range of every feature
_GREY = (1, 2, 4, 8, 16, 32, 64)  # of 255 grey levels
_START, _GREY_START = 0.05, 8


def strongest_by_eps(trials: Iterable[T]) -> dict[float, T]:
    """By eps, in rising order, the trial with the lowest mean return at that eps or any below; none of what has none.

    A larger budget allows whatever a smaller one does, so an attack that was weaker at a larger eps is replaced there
    by the stronger one.
    """
    return lowest_up_to((trial.eps, trial) for trial in trials if trial.eps is not None)


def lowest_up_to(trials: Iterable[tuple[float, T]]) -> dict[float, T]:
    """:func:`strongest_by_eps` of trials with the eps that each counts for."""
    found, best = dict[float, T](), None
    for eps, trial in sorted(trials, key=lambda pair: (pair[0], pair[1].mean)):
        best = trial if best is None or trial.mean < best.mean else best
        found[eps] = best
    return found


def half_return(clean: float, means: Iterable[float]) -> float:
    """The return that counts as half: of the clean one where returns are positive, else half way to the lowest found.

    >>> from adv_wrappers.studies.report.eps_search import half_return
    >>> half_return(500.0, [480.0, 9.0]), half_return(-100.0, [-110.0, -200.0])
    (250.0, -150.0)
    """
    lowest = min([clean, *means])
    return clean / 2 if clean > 0 and lowest >= 0 else (clean + lowest) / 2


class EpsSweep:
    """Chooses the eps of one attack after another: outwards from the middle, then where the return halves.

    Args:
        part: of the observations, by whose ranges or grey levels eps are counted.
        clean: the mean return without an attack.
    """

    def __init__(self, part: ObservationRanges, clean: float) -> None:
        self.clean = clean
        unit, least = part.levels / 255 if part.image else 1.0, part.least_eps
        ladder = tuple(step * unit for step in _GREY) if part.image else _LADDER
        start = max(_GREY_START * unit if part.image else _START, least)
        self.ladder = tuple(eps for eps in ladder if eps >= least) or (1.0,)
        self.start = min((eps for eps in self.ladder if eps >= start), default=self.ladder[-1])
        least = max(self.ladder[0] / _BELOW, least)
        self._halving = Bisection(self.ladder, self.start, _CLOSE, by_ratio=True, whole=part.whole, least=least)

    def next(self, known: Mapping[float, Trial], all: bool) -> float | None:
        """The next eps: up the ladder until half is lost, and down.

        Args:
            known: by eps, in rising order, the strongest trial up to there.
            all: whether it goes down until nothing is lost; else until less than half is, and then between the two
                around which it halves.

        Returns:
            None where nothing more is to be found.
        """
        if not known:
            return self.start
        # up until it is broken
        larger = [eps for eps in self.ladder if eps > max(known)]
        if larger and not self._is_broken([*known.values()]):
            return larger[0]
        # down until nothing is lost
        if all:
            smaller = [eps for eps in self.ladder if eps < min(known)]
            return smaller[-1] if smaller and not self.loses_nothing(known[min(known)]) else None
        # or to where half is; nothing is lost where the return is 0, or the least, without an attack
        half = half_return(self.clean, (trial.mean for trial in known.values()))
        return self._halving.next(leaves_at_most(half, known)) if half < self.clean else None

    def loses_nothing(self, trial: Trial) -> bool:
        """Whether a row is as good as the clean one."""
        return trial.row.action_change == 0 or not trial.takes(NO_LOSS)

    def _is_broken(self, trials: Sequence[Trial]) -> bool:
        """Whether half is lost, and of negative returns no more at the largest eps than at the one before it."""
        if not trials[-1].takes(0.5):
            return False
        known = self.clean > 0 and trials[-1].mean >= 0  # what half is
        return known or (len(trials) > 1 and trials[-1].mean >= trials[-2].mean - 0.05 * trials[-1].lost)


def leaves_at_most(half: float, strongest: Mapping[float, Trial]) -> dict[float, bool]:
    """By eps, whether no more than half of the return is left."""
    return {eps: trial.mean <= half for eps, trial in strongest.items()}


def broken_eps(clean: float, strongest: Mapping[float, Trial]) -> float | None:
    """The least eps at which half of the return is lost; None where it is not, or there is nothing to lose."""
    half = half_return(clean, (trial.mean for trial in strongest.values()))
    return bracket(leaves_at_most(half, strongest))[1] if half < clean else None
