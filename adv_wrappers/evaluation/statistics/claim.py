"""The claim that a mean return is at least so much, and what the returns of episodes say of it.

This is the one test behind :func:`.assert_robust`, which looks at the returns again and again while it
plays, and behind ``--at-least`` on the command line, which looks once, at a number of episodes that is fixed.

- The claim is shown where the interval of the mean (:func:`.mean_interval`) lies at or
  above the return, and refuted where it lies below.
- Either verdict is wrong with a probability of at most ``1 - confidence``. One half of that is divided among the looks,
  each of which is a chance to err (Bonferroni's inequality), and the other half is for what is not seen at all. For a
  refutation a look's share is divided among the attacks too, since any of them may bring one. All attacks have to show
  the claim, so that share is not divided.
- There is no verdict on fewer than 10 episodes.
- Where all returns but three or fewer are equal, episodes of another kind may be as frequent as the exact bound of a
  proportion allows (Clopper and Pearson 1934), and worth the lowest or the highest return possible. Where that is not
  known, there is no verdict before an event of the share ``rare`` would have been seen, and what is rarer than that is
  not looked for: an agent that earns all in 999 episodes of a thousand passes, whatever it loses in the last.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from adv_wrappers.evaluation.statistics.confidence_intervals import (
    FEW,
    LEAST_EPISODES,
    Returns,
    caveat,
    cut,
    least_probability,
    mean_interval,
)
from adv_wrappers.utils.number_text import number_text

Verdict: TypeAlias = Literal["shown", "not shown", "below"]


@dataclass(frozen=True)
class RobustnessClaim:
    """The claim that the mean return is at least ``min_return``, under each of some attacks.

    Attributes:
        min_return: the return.
        confidence: of either verdict, above 0.5 and below 1.
        looks: how often the returns are judged, at least 1.
        attacks: how many attacks are judged, at least 1.
        rare: the share of episodes, above 0 and below 1, from which on a kind of them must not be missed where nearly
            all that were played are equal, and their range is not known.
        lowest, highest: of the returns that an episode can have, each None where it is not known.

    >>> from adv_wrappers.evaluation.statistics.claim import RobustnessClaim
    >>> claim = RobustnessClaim(400.0, lowest=0.0)
    >>> claim.verdict([500.0] * 10), claim.verdict([500.0] * 20)  # they show 345 and 415
    ('not shown', 'shown')
    """

    min_return: float
    confidence: float = 0.95
    looks: int = 1
    attacks: int = 1
    rare: float = 0.05
    lowest: float | None = None
    highest: float | None = None

    @property
    def share(self) -> float:
        """The probability of an error that one look has, on either side."""
        return (1 - self.confidence) / 2 / self.looks

    def verdict(self, returns: Returns) -> Verdict:
        """What the returns of one attack's episodes, at least one, say of the claim."""
        return "shown" if self.shown_by(returns) else "below" if self.refuted_by(returns) else "not shown"

    def shown_by(self, returns: Returns) -> bool:
        """Whether the mean of these returns lies at or above the one that is claimed."""
        return self.conclusive(returns) and self.interval(returns)[0] >= self.min_return

    def refuted_by(self, returns: Returns) -> bool:
        """Whether it lies below, with each attack's share of a look's probability of an error."""
        if not _enough(returns, self.highest, self._episodes((1 - self.confidence) / 2 / self.attacks)):
            return False
        return self._interval(returns, self.share / self.attacks)[1] < self.min_return

    def conclusive(self, returns: Returns) -> bool:
        """Whether there are enough of them to show the claim, where nearly all are equal too."""
        return _enough(returns, self.lowest, self._episodes((1 - self.confidence) / 2))

    def why_open(self, returns: Returns) -> str:
        """By which rule these returns, which neither show the claim nor refute it, leave it open, in words."""
        least, count = number_text(self.min_return), len(returns)
        if count < LEAST_EPISODES:
            return f"there is no verdict on fewer than {LEAST_EPISODES} episodes"
        # nearly equal returns wait until an episode of another kind would have been seen
        low, high = self.interval(returns)[0], self._interval(returns, self.share / self.attacks)[1]
        equal = "nearly all of these returns are equal, and what another episode may return is not known: it"
        known = "on, or with assert_robust(return_range=(lowest, highest))"
        # the interval would decide, if more episodes had been seen
        if low >= self.min_return:
            return f"{equal} passes from {self._episodes((1 - self.confidence) / 2)} episodes {known}"
        if high < self.min_return:
            return f"{equal} fails from {self._episodes((1 - self.confidence) / 2 / self.attacks)} episodes {known}"
        # either verdict has its own share of the probability of an error, so the two intervals differ
        several = [f"{n} {what}" for n, what in ((self.looks, "looks"), (self.attacks, "attacks")) if n > 1]
        shares = f", wider than one of {100 * self.confidence:.4g}% for {' and '.join(several)}" if several else ""
        return (
            f"it passes where the interval lies at or above {least} (it begins at {number_text(low)}) and fails where "
            f"the interval lies below (for that it reaches up to {number_text(high)}{shares})"
        )

    def interval(self, returns: Returns) -> tuple[float, float]:
        """The interval of the mean that has to lie at or above the return that is claimed."""
        return self._interval(returns, self.share)

    def _interval(self, returns: Returns, risk: float) -> tuple[float, float]:
        return interval_with_unseen(returns, 1 - 2 * risk, self.lowest, self.highest)

    def _episodes(self, risk: float) -> int:
        """The number of episodes that all miss an event of the share ``rare`` with a probability of ``risk``."""
        return math.ceil(math.log(risk) / math.log1p(-self.rare))


def _enough(returns: Returns, edge: float | None, episodes: int) -> bool:
    """Whether there are enough returns for a verdict, where they are nearly all equal too.

    Args:
        returns: of the episodes.
        edge: the return that episodes which were not seen may have; None where it is not known.
        episodes: how many are enough then.
    """
    return len(returns) >= LEAST_EPISODES and (edge is not None or len(returns) >= episodes or caveat(returns) is None)


def interval_with_unseen(
    returns: Returns, level: float, lowest: float | None = None, highest: float | None = None
) -> tuple[float, float]:
    """The :func:`mean_interval` of the mean, wider where all returns but ``FEW`` are equal.

    Other episodes may then be as frequent as the bound of Clopper and Pearson allows, each of them worth the lowest
    return, or the highest: that of the rules, or where these are not known of the episodes that were played.

    Args:
        returns: of the episodes.
        level: probability that the interval covers the mean.
        lowest, highest: of the returns that an episode can have, or None.
    """
    mean = float(np.mean(np.asarray(returns, np.float64)))
    low, high = cut(mean_interval(returns, level), mean, (lowest, highest))
    # how many of the returns are not the common one
    values, counts = np.unique(np.asarray(returns, np.float64), return_counts=True)
    common, others = float(values[counts.argmax()]), len(returns) - int(counts.max())
    if others > FEW:
        return low, high
    # as frequent as episodes of another kind may be, and worth the lowest or the highest return
    share = 1 - least_probability(len(returns) - others, len(returns), (1 - level) / 2)
    least = min(float(values[0]), math.inf if lowest is None else lowest)
    most = max(float(values[-1]), -math.inf if highest is None else highest)
    return min(low, common - share * (common - least)), max(high, common + share * (most - common))
