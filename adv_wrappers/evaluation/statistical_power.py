"""Power: whether a report has played the episodes that the differences between its means need.

A mean that is lower by much, with an interval of the paired difference that holds zero, may be chance. How many
episodes would tell follows from the difference and the deviation that were seen (Cohen 1988, chapter 2; for returns of
agents Colas et al. 2018). Both are estimates, and of few episodes poor ones: the number says whether twice as many
would do or a hundred times, and no more.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from adv_wrappers.errors import ValueRangeError
from adv_wrappers.evaluation.counts_that_warnings_need import CheckedRow
from adv_wrappers.evaluation.return_statistics import (
    Returns,
    finite_returns,
    mean_interval,
    paired_differences,
    t_quantile,
)

POWER = 0.8  # probability that a difference as large as the one that was seen is told from chance
MOST_COUNTED = 10_000  # episodes; more are not counted
_CLAIMED = 0.1  # of the clean mean: what a reader would take for a difference


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

    >>> from adv_wrappers.evaluation.statistical_power import episodes_needed
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

    if mean == 0 or not suffice(MOST_COUNTED):
        return None
    low, high = 1, MOST_COUNTED  # too few, enough
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if suffice(middle) else (middle, high)
    return high


def too_few_episodes(outcomes: Sequence[CheckedRow]) -> list[str]:
    """Differences that a reader would claim, and that the episodes of the report do not tell from chance.

    Those are what an attack takes from the clean return, and the lead of the strongest attack over the second
    strongest, where they are a tenth of the clean mean or more. One sentence names all of them.
    """
    clean = next((o for o in outcomes if not o.layers), None)
    attacks = sorted((o for o in outcomes if o.layers), key=lambda o: float(o.returns.mean()))
    if clean is None or not attacks or len(clean.returns) < 2:
        return []
    pairs = [(attack, clean) for attack in attacks] + [*itertools.pairwise(attacks[:2])]
    least = _CLAIMED * abs(float(clean.returns.mean()))
    said = [text for lower, higher in pairs if (text := _undecided(lower, higher, least)) is not None]
    if not said:
        return []
    return [
        f"too few episodes to tell from chance: {'; '.join(said)}. For a power of {POWER:.0%} at the difference that "
        f"was seen play more, and take the number for a rough one"
    ]


def _undecided(lower: CheckedRow, higher: CheckedRow, least: float) -> str | None:
    """The means of two rows, and the episodes that their difference needs; None where it is small, or established."""
    differences = paired_differences(higher.returns, lower.returns)
    mean = float(differences.mean())
    if mean <= 0 or mean < least or mean_interval(differences)[0] > 0:
        return None
    needed = episodes_needed(differences)
    count = f"more than {MOST_COUNTED}" if needed is None else f"about {max(needed, len(differences) + 1)}"
    means = f"{lower.returns.mean():.6g} against {higher.returns.mean():.6g}"
    return f"{lower.name} against {higher.name} ({means}, {count} episodes)"
