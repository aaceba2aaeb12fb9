"""Numbers of a report, from the returns of paired episodes."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from adv_wrappers.core.errors import ValueRangeError

RESAMPLES = 10_000
Returns = Sequence[float] | NDArray[np.float64]


@functools.lru_cache(maxsize=8)
def _picks(count: int, resamples: int) -> NDArray[np.intp]:
    return np.random.default_rng(0).integers(0, count, (resamples, count), dtype=np.intp)


def interval(values: Returns, level: float = 0.95, resamples: int = RESAMPLES) -> tuple[float, float]:
    """Bootstrap interval of the mean by percentiles (Efron 1979), with a fixed seed: the same values, the same bounds.

    Args:
        values: float ``[n]``, n at least 1; one value is its own interval.
        level: probability that the interval covers.

    Raises:
        ValueRangeError: if there is no value, or one is not finite.

    >>> interval([1.0, 1.0, 1.0])
    (1.0, 1.0)
    """
    array = finite(values)
    means = np.empty(resamples)
    width = max(1, 2_000_000 // len(array))  # many episodes need not fit into memory ten thousand times over
    if resamples <= width:
        means = array[_picks(len(array), resamples)].mean(1)
    else:
        draws = np.random.default_rng(0)
        for start in range(0, resamples, width):
            stop = min(start + width, resamples)
            means[start:stop] = array[draws.integers(0, len(array), (stop - start, len(array)))].mean(1)
    tail = (1 - level) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    return float(low), float(high)


def finite(values: Returns) -> NDArray[np.float64]:
    """``values`` as float64 ``[n]``; raises :class:`ValueRangeError` if there are none, or one is not finite."""
    array = np.asarray(values, dtype=np.float64).reshape(-1)
    if len(array) == 0 or not np.isfinite(array).all():
        raise ValueRangeError(f"expected at least one return, all finite, got {array}")
    return array


def summary(values: Returns) -> dict[str, float]:
    """``mean_return``, its 95% interval ``low`` and ``high``, ``std`` (of the sample), ``median``, ``min``, ``max``."""
    array = finite(values)
    low, high = interval(array)
    return {
        "mean_return": float(array.mean()), "low": low, "high": high,
        "std": float(array.std(ddof=1)) if len(array) > 1 else 0.0, "median": float(np.median(array)),
        "min": float(array.min()), "max": float(array.max()),
    }  # fmt: skip


def regret(clean: float, attacked: float) -> float:
    """What the attack took: clean minus attacked mean return."""
    return clean - attacked


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
