"""Numbers of a report, from the returns of paired episodes."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from adv_wrappers.errors import ValueRangeError
from adv_wrappers.utils.checks import integer
from adv_wrappers.utils.number_text import interval_text
from adv_wrappers.utils.validation import Expected, OpenShare

LEAST_EPISODES = 10  # episodes below which no interval is called one of 95%
FEW = 3  # returns other than the commonest one that an interval must not rest on alone
MARK = "\N{DAGGER}"  # of an interval that is none of 95%
_STEEPEST = 0.8  # skewness of the mean times the quantile: above it, lengths double for 1% more coverage
_FREEDOM = 10_000  # from here on Student's quantiles differ from this one's by less than 0.02%
Returns = Sequence[float] | NDArray[np.float64]
ReportRow = Mapping[str, Any]  # a row of a report, or a part of it
KnownRange = tuple[float | None, float | None]  # the lowest and the highest return of an episode, where they are known


def paired_differences(returns: Returns, others: Returns) -> NDArray[np.float64]:
    """The differences ``returns - others`` of the episodes that both rows hold, the first ones; float64 ``[E]``."""
    count = min(len(returns), len(others))
    return np.subtract(returns[:count], others[:count], dtype=np.float64)


def mean_interval(values: Returns, level: float = 0.95) -> tuple[float, float]:
    """Interval of the mean: Student's t, corrected for skewness by Hall's cubic transformation (Hall 1992, section 2).

    With the studentised mean ``T`` and the skewness ``g`` of the mean, ``T + g/3 T^2 + g^2/27 T^3 + g/6`` is compared
    with the quantiles of Student's t and solved for the mean, which has one solution. Without skewness this is the
    interval of Student's t. Where ``g`` times the quantile comes near 1 the solution runs away, to eight standard
    errors for one outlier in five values, so ``g`` is cut off at 0.8 of that. Nothing is drawn: the same values, the
    same bounds. ``docs/results/statistics.md`` has how often they hold the mean, and :func:`caveat` says where no
    interval can be trusted.

    Args:
        values: float ``[n]``, n at least 1; one value, or equal ones, are their own interval.
        level: probability that the interval covers the mean, above 0 and below 1.

    Raises:
        ValueRangeError: if there is no value, one is not finite, or ``level`` is out of range.

    >>> from adv_wrappers.evaluation.statistics.confidence_intervals import mean_interval
    >>> mean_interval([1.0, 1.0, 1.0])
    (1.0, 1.0)
    >>> low, high = mean_interval([1.0, 2.0, 3.0, 4.0, 5.0])  # 3 +- 2.776 standard errors
    >>> round(low, 3), round(high, 3)
    (1.037, 4.963)
    """
    array = finite_returns(values)
    if array.min() == array.max():
        _check(level)
        return float(array[0]), float(array[0])
    return stratified_interval([array], level)


def stratified_interval(scores: Sequence[Returns], level: float = 0.95) -> tuple[float, float]:
    """Interval of the mean over tasks of the mean over seeds, the seeds of every task being drawn apart.

    The strata of rliable (Agarwal et al. 2021, section 4.1): the tasks are given, and what would change in another
    experiment are the seeds of each. In place of the percentile bootstrap, which covers too little over the handful of
    seeds that one can afford, this is :func:`mean_interval` with the variance and the third moment of that mean, and
    the degrees of freedom of Welch and Satterthwaite, rounded down.

    Args:
        scores: by task, the score of every seed, float ``[n]``, n at least 2: of a training its mean return, not its
            episodes one by one, which share what the training has learned.
        level: as for :func:`mean_interval`.

    Raises:
        ValueRangeError: for no task, for one with fewer than two seeds, for scores that are not finite, and for a
            ``level`` out of range.
    """
    _check(level)
    arrays = [finite_returns(values) for values in scores]
    if not arrays or min(map(len, arrays)) < 2:
        raise ValueRangeError(f"expected scores of at least two seeds a task, got {[len(values) for values in arrays]}")
    # the mean over tasks of their means, and how far scores lie from the mean of their task
    mean = sum(float(values.mean()) for values in arrays) / len(arrays)
    around = [values - values.mean() for values in arrays]
    if all(values.min() == values.max() for values in arrays):
        return mean, mean
    unit = max(float(np.abs(off).max()) for off in around)  # so that squares and cubes neither overflow nor vanish
    # Of the sum of the tasks' means. An unbiased third moment would widen short samples by a third for 1% of coverage.
    variance = third = squares = 0.0
    for off in (off / unit for off in around):
        n = len(off)
        own = float((off**2).sum()) / (n - 1) / n
        variance, squares = variance + own, squares + own**2 / (n - 1)
        third += float((off**3).mean()) / n**2
    # degrees of freedom of Welch and Satterthwaite, and the transformation for skewness of mean_interval
    t = t_quantile(int(variance**2 / squares + 1e-9), level)
    g = min(max(third / variance**1.5, -_STEEPEST / t), _STEEPEST / t)
    error = unit * math.sqrt(variance) / len(arrays)
    return mean - error * _untransformed(t, g), mean - error * _untransformed(-t, g)


def _untransformed(y: float, g: float) -> float:
    """The ``T`` whose transformation ``T + g/3 T^2 + g^2/27 T^3 + g/6`` is ``y``."""
    return y if abs(g) < 1e-6 else 3 / g * float(np.cbrt(1 + g * (y - g / 6)) - 1)


@functools.lru_cache(maxsize=1024)
def t_quantile(freedom: int, level: float = 0.95) -> float:
    """The bound that the absolute value of Student's t stays below with probability ``level``.

    From the finite sums for whole degrees of freedom (Abramowitz and Stegun 26.7.3 and 26.7.4), to 12 digits.

    >>> round(t_quantile(9), 4)
    2.2622
    """
    freedom = min(freedom, _FREEDOM)
    # the finite sum, for odd and for even degrees of freedom
    if freedom % 2:
        steps = np.arange(1, (freedom - 1) // 2)
        factors = np.concatenate([np.ones(int(freedom > 1)), np.cumprod(2 * steps / (2 * steps + 1))])
        powers = 2 * np.arange(len(factors)) + 1
    else:
        steps = np.arange(1, freedom // 2)
        factors = np.concatenate([[1.0], np.cumprod((2 * steps - 1) / (2 * steps))])
        powers = 2 * np.arange(len(factors))

    def inside(angle: float) -> float:
        total = math.sin(angle) * float((factors * math.cos(angle) ** powers).sum())
        return 2 / math.pi * (angle + total) if freedom % 2 else total

    # the angle with that probability, by bisection
    low, high = 0.0, math.pi / 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if inside(middle) < level else (low, middle)
    return math.sqrt(freedom) * math.tan((low + high) / 2)


def least_probability(successes: int, trials: int, level: float) -> float:
    """Lower confidence bound on a probability (Clopper and Pearson 1934): the p at which so many are as rare as level.

    It is the ``level`` quantile of Beta(successes, trials - successes + 1), found by bisection and rounded down.

    Args:
        successes, trials: what was seen, 0 <= successes <= trials.
        level: probability that the bound fails, above 0 and below 1.

    >>> from adv_wrappers.evaluation.statistics.confidence_intervals import least_probability
    >>> round(least_probability(8, 10, 0.05), 4)
    0.4931
    """
    trials = integer("trials", trials, 1)
    successes = integer("successes", successes, 0, trials)
    Expected(OpenShare).check("level", level)
    return _least_probability(successes, trials, float(level))


@functools.lru_cache(maxsize=4096)
def _least_probability(successes: int, trials: int, level: float) -> float:
    if successes == 0:
        return 0.0
    k = torch.arange(successes, trials + 1, dtype=torch.float64)
    ways = math.lgamma(trials + 1) - torch.lgamma(k + 1) - torch.lgamma(trials - k + 1)
    # the probability at which so many successes or more are as rare as the level, by bisection
    low, high = 0.0, 1.0
    for _ in range(60):
        p = (low + high) / 2
        if p in (low, high):
            break
        tail = float(torch.logsumexp(ways + k * math.log(p) + (trials - k) * math.log1p(-p), 0))
        low, high = (p, high) if tail <= math.log(level) else (low, p)
    return low


def caveat(values: Returns) -> str | None:
    """Why no interval of these returns' mean is one of 95%, and what they cannot show; None where there is no reason.

    Below ``LEAST_EPISODES`` returns, or where all but ``FEW`` are equal, what the mean depends on may not have been
    seen at all.

    >>> from adv_wrappers.evaluation.statistics.confidence_intervals import caveat
    >>> caveat([500.0] * 10)
    'all 10 returns are equal: 10 episodes miss an event of 1 in 20 in 60% of the runs'
    >>> caveat([float(i) for i in range(10)]) is None
    True
    """
    array = finite_returns(values)
    count, others = len(array), len(array) - int(np.unique(array, return_counts=True)[1].max())
    if count > 1 and others == 0:
        reason = f"all {count} returns are equal"
    elif count < LEAST_EPISODES:
        reason = f"fewer than {LEAST_EPISODES} episodes"
    elif others <= FEW:
        reason = f"all returns but {others} of {count} are equal"
    else:
        return None
    return f"{reason}: {unseen(count)}"


def unseen(episodes: int) -> str:
    """How often a number of episodes does not show an event that is rare for it.

    >>> unseen(100)
    '100 episodes miss an event of 1 in 50 in 13% of the runs'
    """
    rare = 20
    while (1 - 1 / rare) ** episodes < 0.05:
        rare = rare * 5 // 2 if str(rare).startswith("2") else rare * 2  # 20, 50, 100, 200, ...
    words = f"{episodes} episodes miss" if episodes > 1 else "one episode misses"
    return f"{words} an event of 1 in {rare} in {(1 - 1 / rare) ** episodes:.0%} of the runs"


@dataclass(frozen=True)
class MeanWithInterval:
    """A mean over episodes with its interval of 95%, and why that is none of 95% (``caveat``), if it is not."""

    mean: float
    low: float
    high: float
    caveat: str | None

    @property
    def side(self) -> int:
        """Of zero, on which the interval lies: 1 above, -1 below, 0 where it holds zero."""
        return (self.low > 0) - (self.high < 0)


def paired_difference(
    returns: Sequence[float], others: Sequence[float], known: KnownRange = (None, None)
) -> MeanWithInterval:
    """The mean of ``returns - others``, episode by episode, over those that both have, the first ones.

    Args:
        returns, others: of the episodes.
        known: the lowest and the highest return that an episode can have: no two differ by more than their distance,
            at which the interval is cut.

    >>> found = paired_difference([0.0, 300.0], [500.0, 500.0], (0.0, 500.0))
    >>> found.mean, found.low, found.high
    (-350.0, -500.0, 500.0)
    """
    difference = paired_differences(returns, others)
    lowest, highest = known
    most = None if lowest is None or highest is None else highest - lowest
    mean = float(difference.mean())
    low, high = cut(mean_interval(difference), mean, (None, None) if most is None else (-most, most))
    return MeanWithInterval(mean, low, high, caveat(difference))


def marked(text: str, row: ReportRow) -> str:
    """A text about a row's interval, with a mark where it is none of 95%."""
    return f"{MARK} {text}" if row.get("caveat") else text


def marked_interval(row: ReportRow) -> str:
    """A row's interval as a table has it, with the mark of :func:`marked`."""
    return marked(interval_text(row["low"], row["high"], ".."), row)


def footnotes(rows: Sequence[ReportRow]) -> list[str]:
    """What the mark of :func:`marked` means, once for each number of episodes; none where no row is marked."""
    counts = dict.fromkeys(int(row["episodes"]) for row in rows if row.get("caveat"))
    few = f"all returns are equal, or all but {FEW} or fewer"
    why = {count: f"fewer than {LEAST_EPISODES} episodes" if count < LEAST_EPISODES else few for count in counts}
    return [f"{MARK} no interval of 95% ({why[count]}): {unseen(count)}" for count in counts]


def _check(level: float) -> None:
    if not 0 < level < 1:
        raise ValueRangeError(f"level must be a probability above 0 and below 1, got {level!r}")


def finite_returns(values: Returns) -> NDArray[np.float64]:
    """``values`` as float64 ``[n]``; raises :class:`ValueRangeError` if there are none, or one is not finite."""
    array = np.asarray(values, dtype=np.float64).reshape(-1)
    if len(array) == 0 or not np.isfinite(array).all():
        raise ValueRangeError(f"expected at least one return, all finite, got {array}")
    return array


def cut(interval: tuple[float, float], mean: float, known: KnownRange) -> tuple[float, float]:
    """An interval of a mean without what no return can be; the mean stays inside.

    >>> cut((-2234.0, 2835.0), 300.0, (0.0, 500.0)), cut((-2234.0, 2835.0), 300.0, (None, 500.0))
    ((0.0, 500.0), (-2234.0, 500.0))
    """
    (low, high), (lowest, highest) = interval, known
    low = low if lowest is None else min(max(low, lowest), mean)
    high = high if highest is None else max(min(high, highest), mean)
    return low, high


def summary(values: Returns, known: KnownRange = (None, None)) -> dict[str, Any]:
    """``mean_return``, its :func:`mean_interval` ``low`` to ``high``, ``std``, ``median``, ``min`` and ``max``.

    Args:
        values: the returns.
        known: the lowest and the highest return that an episode can have, at which the interval is cut.
    """
    array = finite_returns(values)
    low, high = cut(mean_interval(array), float(array.mean()), known)
    return {
        "mean_return": float(array.mean()),
        "low": low,
        "high": high,
        "std": float(array.std(ddof=1)) if len(array) > 1 else 0.0,
        "median": float(np.median(array)),
        "min": float(array.min()),
        "max": float(array.max()),
    }


def impact(clean: float, attacked: float, minimum: float | None) -> float | None:
    """The share of what could be taken that was taken, ``(clean - attacked) / (clean - minimum)``.

    1 is the worst return possible, 0 no effect, and a negative number an attack that helps. None where the lowest
    return is not known, or the agent is already there.

    >>> impact(21.0, 0.0, -21.0)
    0.5
    """
    if minimum is None or not math.isfinite(minimum) or clean <= minimum:
        return None
    return (clean - attacked) / (clean - minimum)


# ----------------------------------------------------------------------------------------------------------------------
# Power: whether a report has played the episodes that the differences between its means need.
#
# A mean that is lower by much, with an interval of the paired difference that holds zero, may be chance. How many
# episodes would tell follows from the difference and the deviation that were seen (Cohen 1988, chapter 2; for returns
# of agents Colas et al. 2018). Both are estimates, and of few episodes poor ones: the number says whether twice as
# many would do or a hundred times, and no more.
# ----------------------------------------------------------------------------------------------------------------------


POWER = 0.8  # probability that a difference as large as the one that was seen is told from chance
MOST_COUNTED = 10_000  # episodes; more are not counted


def episodes_needed(differences: Returns, power: float = POWER, level: float = 0.95) -> int | None:
    """The number of paired episodes from which a difference like this one is told from zero.

    The smallest n at which ``sqrt(n) |mean| / std`` is the sum of two quantiles of Student's t with n - 1 degrees of
    freedom: that of a two-sided test at ``level``, and that of ``power``. With the defaults this is the exact number,
    that of the noncentral t distribution, for ten differences from 0.05 to 3 deviations.

    Args:
        differences: of paired returns, float ``[n]``, n at least 2.
        power: probability that a paired t-test finds the difference, above 0.5 and below 1.
        level: 1 minus the probability that it finds one where there is none.

    Returns:
        The number, 2 to ``MOST_COUNTED``; None where more are needed, as where the mean is zero.

    Raises:
        ValueRangeError: for fewer than two differences, some that are not finite, and probabilities out of range.

    >>> from adv_wrappers.evaluation.statistics.confidence_intervals import episodes_needed
    >>> episodes_needed([-1.0, 0.0, 1.0, 2.0])  # a mean of 0.5 and a deviation of 1.29: 2.6 times the mean
    55
    >>> episodes_needed([1.0, 1.0]), episodes_needed([-1.0, 1.0])
    (2, None)
    """
    array = finite_returns(differences)
    if len(array) < 2:
        raise ValueRangeError(f"expected at least two paired differences, got {len(array)}")
    if not 0.5 < power < 1 or not 0 < level < 1:
        raise ValueRangeError(f"expected 0.5 < power < 1 and 0 < level < 1, got {power!r} and {level!r}")
    mean, deviation = abs(float(array.mean())), float(array.std(ddof=1))

    def suffice(count: int) -> bool:
        quantiles = t_quantile(count - 1, level) + t_quantile(count - 1, 2 * power - 1)  # one-sided
        return math.sqrt(count) * mean >= quantiles * deviation

    # the smallest number that suffices, by bisection
    if mean == 0 or not suffice(MOST_COUNTED):
        return None
    low, high = 1, MOST_COUNTED  # too few, enough
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if suffice(middle) else (middle, high)
    return high
