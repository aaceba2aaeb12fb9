"""The budgets of a report: a sweep of eps from what changes nothing to what breaks the agent."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from adv_wrappers.studies.report.trials import Trial

T = TypeVar("T", bound=Trial)
NO_LOSS = 0.02  # of the clean return, below which an eps counts as changing nothing
_CLOSE = 1.2  # the ratio of two eps between which the return halves, at which the search ends
_LADDER = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)  # of the range of every feature
_GREY = (1, 2, 4, 8, 16, 32, 64)  # of 255 grey levels
_START, _GREY_START = 0.05, 8


def strongest_by_eps(trials: Iterable[T], clean: T | None = None) -> dict[float, T]:
    """By eps, in rising order, the trial with the lowest mean return at that eps or any below.

    A larger budget allows whatever a smaller one does, so an attack that was weaker at a larger eps is replaced there
    by the stronger one.

    Args:
        trials: of all eps; those without one are left out.
        clean: the trial without an attack, which has the eps 0, if it counts too.
    """
    found, best = {} if clean is None else {0.0: clean}, clean
    for trial in sorted((t for t in trials if t.eps is not None), key=lambda t: (t.eps, t.mean)):
        assert trial.eps is not None
        if best is None or trial.mean < best.mean:
            best = trial
        found[trial.eps] = best
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
        image: whether eps are grey levels.
        levels: of images the range of a pixel, 255 for uint8.
        whole: whether an eps is a whole number of grey levels.
        clean: the mean return without an attack.
        least: the least eps that changes anything.
    """

    def __init__(self, image: bool, levels: float, whole: bool, clean: float, least: float = 0.0) -> None:
        self.clean, self.whole, self._least = clean, whole, least
        unit = levels / 255 if image else 1.0
        ladder = tuple(step * unit for step in _GREY) if image else _LADDER
        start = max(_GREY_START * unit if image else _START, least)
        self.ladder = tuple(eps for eps in ladder if eps >= least) or (1.0,)
        self.start = min((eps for eps in self.ladder if eps >= start), default=self.ladder[-1])

    def outwards(self, play: Callable[[float], Trial]) -> list[Trial]:
        """Play the ladder from its middle up until enough is lost, and down until nothing is.

        That is half of returns that are not negative; else as much as there seems to be, which half is counted from.

        Args:
            play: plays a row at an eps.
        """
        middle = self.ladder.index(self.start)
        trials = [play(self.ladder[middle])]
        for eps in self.ladder[middle + 1 :]:
            if self._is_broken(trials):
                break
            trials.append(play(eps))
        for eps in reversed(self.ladder[:middle]):
            if self.loses_nothing(min(trials, key=lambda t: t.eps or 0.0)):
                break
            trials.append(play(eps))
        return sorted(trials, key=lambda t: t.eps or 0.0)

    def next_between(self, strongest: Mapping[float, Trial]) -> float | None:
        """The next eps at which to look for where the return halves; None where that is known closely enough."""
        half = half_return(self.clean, (t.mean for t in strongest.values()))
        below, above = bracket(strongest, half)
        if above is None or half >= self.clean:  # nothing was lost, as of a return that is 0 or the least without it
            return None
        if below is None:
            below = max(above / 8, self._least)
        if above / below <= _CLOSE:
            return None
        eps = math.sqrt(below * above)
        if self.whole:
            eps = float(round(eps))
            return None if eps in (below, above) or eps < 1 else eps
        return max(float(f"{eps:.3g}"), self._least)

    def loses_nothing(self, trial: Trial) -> bool:
        """Whether a row is as good as the clean one."""
        changed = trial.row.action_change
        return changed == 0 or self.clean - trial.mean <= NO_LOSS * abs(self.clean)

    def _is_broken(self, trials: list[Trial]) -> bool:
        """Whether half is lost, and of negative returns no more at the largest eps than at the one before it."""
        lost = self.clean - trials[-1].mean
        if lost < 0.5 * abs(self.clean):
            return False
        known = self.clean > 0 and trials[-1].mean >= 0  # what half is
        return known or (len(trials) > 1 and trials[-1].mean >= trials[-2].mean - 0.05 * lost)


def bracket(strongest: Mapping[float, Trial], half: float) -> tuple[float | None, float | None]:
    """The largest eps that leaves more than half, and the least that does not; None where there is none."""
    above = next((eps for eps, trial in strongest.items() if trial.mean <= half), None)
    below = max(
        (eps for eps, trial in strongest.items() if trial.mean > half and (above is None or eps < above)), default=None
    )
    return below, above


def broken_eps(clean: float, strongest: Mapping[float, Trial]) -> float | None:
    """The least eps at which half of the return is lost; None where it is not, or there is nothing to lose."""
    half = half_return(clean, (trial.mean for trial in strongest.values()))
    return bracket(strongest, half)[1] if half < clean else None


def halving_eps(clean: float, strongest: Mapping[float, Trial]) -> float | None:
    """The eps at which the strongest attack leaves half the return, on the line between two rows, or None."""
    above = broken_eps(clean, strongest)
    half = half_return(clean, (trial.mean for trial in strongest.values()))
    below, _ = bracket(strongest, half)
    if above is None or below is None:
        return above
    high, low = strongest[below].mean, strongest[above].mean
    share = (high - half) / max(high - low, 1e-12)
    return math.exp(math.log(below) + share * (math.log(above) - math.log(below)))
