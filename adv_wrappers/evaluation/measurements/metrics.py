"""Metrics of an episode beside its return: success, falls, costs, and whatever an environment writes into its info.

Owners of robots count how often a policy reaches its goal or falls, what that costs, and how bad the bad episodes are.
A metric is one number an episode, named by a text; a row keeps those of all its episodes, and :func:`metric_summary`
says what they add up to.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from adv_wrappers.errors import ValueRangeError
from adv_wrappers.evaluation.statistics.confidence_intervals import mean_interval
from adv_wrappers.utils.number_text import interval_text, number_text, share_text
from adv_wrappers.utils.validation import OpenShare, checked

Reduction = Literal["any", "last", "sum", "mean", "min", "max"]
_REDUCED: dict[Reduction, Callable[[Sequence[float]], float]] = {
    "any": lambda values: float(any(values)),
    "last": lambda values: values[-1],
    "sum": math.fsum,
    "mean": lambda values: math.fsum(values) / len(values),
    "min": min,
    "max": max,
}
_SUCCESS = ("is_success", "success")  # Gymnasium-Robotics and SB3; Meta-World and ManiSkill
_ENDINGS = ("terminated", "truncated")
_RATES = ("success", *_ENDINGS)


@dataclass(frozen=True)
class Metric:
    """One number an episode.

    Attributes:
        text: its name: ``success`` (whether ``info["is_success"]`` or ``info["success"]`` was ever true),
            ``terminated`` (whether the episode ended by itself, as by a fall), ``truncated`` (whether it lasted until
            the limit of time), ``cost`` (the sum of ``info["cost"]``), a key of ``info``, whose last value counts, or
            ``sum:KEY``, ``mean:KEY``, ``min:KEY``, ``max:KEY`` or ``any:KEY``.
        keys: of ``info``, of which the first that is there is read; none for how an episode ends.
        reduction: what is made of its values in an episode.
    """

    text: str
    keys: tuple[str, ...]
    reduction: Reduction

    @property
    def bad_when_high(self) -> bool:
        """Whether large values are the bad ones: of falls and costs; of all others small ones are."""
        return self.text == "terminated" or self.keys == ("cost",)

    @property
    def is_rate(self) -> bool:
        """Whether it is 0 or 1 by what it is."""
        return self.text in _RATES or self.reduction == "any"


def metric_of(text: str) -> Metric:
    """The metric of a name; raises :class:`ValueRangeError` for what is none.

    >>> from adv_wrappers.evaluation.measurements.metrics import metric_of
    >>> metric_of("max:torque").reduction, metric_of("x_position").reduction
    ('max', 'last')
    """
    how, colon, key = text.partition(":") if isinstance(text, str) else ("", "", "")
    if colon and how not in _REDUCED:
        raise ValueRangeError(f"metrics are made by {', '.join(_REDUCED)}, as in sum:cost, got {text!r:.80}")
    if not (key if colon else how):
        raise ValueRangeError(f"a metric is {', '.join(_RATES)}, cost or a key of info, got {text!r:.80}")
    if colon:
        return Metric(text, (key,), how)  # type: ignore[arg-type]  # it has just been checked
    known: dict[str, tuple[tuple[str, ...], Reduction]] = {
        "success": (_SUCCESS, "any"), "cost": (("cost",), "sum"), **dict.fromkeys(_ENDINGS, ((), "last")),
    }  # fmt: skip
    return Metric(text, *known.get(text, ((text,), "last")))


class EpisodeMetrics:
    """Reads the metrics of the episodes of one run.

    Args:
        metrics: which.
        episodes: how many the run has.
        rows: how many are played at once.

    Attributes:
        values: by the name of a metric those of the finished episodes, float64 ``[episodes]``.
    """

    def __init__(self, metrics: Sequence[Metric], episodes: int, rows: int) -> None:
        self.metrics = metrics
        self.values = {metric.text: np.zeros(episodes) for metric in metrics}
        self._seen: list[list[list[float]]] = [[[] for _ in range(rows)] for _ in metrics]

    def add(self, infos: Sequence[Mapping[str, Any]], busy: NDArray[np.bool_], terminated: NDArray[np.bool_]) -> None:
        """One step: the info of every row, the rows that count, and those whose episode ends by itself, ``[B]``."""
        for metric, rows in zip(self.metrics, self._seen, strict=True):
            for row in np.flatnonzero(busy).tolist():
                if not metric.keys:
                    rows[row] = [float(terminated[row] == (metric.text == "terminated"))]
                elif (key := next((key for key in metric.keys if key in infos[row]), None)) is not None:
                    rows[row].append(_number(key, infos[row][key]))

    def finish(self, episodes: NDArray[np.int64], rows: NDArray[np.bool_], infos: Sequence[Mapping[str, Any]]) -> None:
        """The rows of a mask ``[B]`` have finished these episodes, and begin others.

        Raises:
            ValueRangeError: for an info without the key of a metric, naming those that it has.
        """
        for metric, seen in zip(self.metrics, self._seen, strict=True):
            for episode, row in zip(episodes.tolist(), np.flatnonzero(rows).tolist(), strict=True):
                if not seen[row]:
                    raise ValueRangeError(
                        f"the metric {metric.text} needs info[{metric.keys[0]!r}], the environment's info has "
                        f"{', '.join(map(repr, infos[row])) or 'nothing'}"
                    )
                self.values[metric.text][episode] = _REDUCED[metric.reduction](seen[row])
                seen[row] = []


def _number(key: str, value: Any) -> float:
    try:
        found = float(np.asarray(value, np.float64).reshape(()))
    except (TypeError, ValueError) as error:
        raise ValueRangeError(f"a metric is a number, info[{key!r}] is {value!r:.80}") from error
    if not math.isfinite(found):
        raise ValueRangeError(f"a metric is a finite number, info[{key!r}] is {found}")
    return found


@dataclass(frozen=True)
class MetricSummary:
    """What a metric says of a row.

    Attributes:
        mean: over the episodes; of a metric that is 0 or 1 the rate.
        low, high: of its interval: Wilson's for a rate, else that of :func:`.mean_interval`.
        worst: the mean of the worst 5% of the episodes, at least of one (the conditional value at risk).
        is_rate: whether every value is 0 or 1.
        first_failure: the mean number of steps of the episodes that failed, by a rate; None where none did.
    """

    mean: float
    low: float
    high: float
    worst: float
    is_rate: bool
    first_failure: float | None

    def __str__(self) -> str:
        if self.is_rate:
            return f"{share_text(self.mean)} ({100 * self.low:.0f} to {100 * self.high:.0f})"
        return f"{number_text(self.mean)} ({interval_text(self.low, self.high)})"


def metric_summary(text: str, values: Sequence[float], lengths: Sequence[int]) -> MetricSummary:
    """What a metric's values of every episode add up to.

    Args:
        text: the name of the metric.
        values: of every episode.
        lengths: steps of every episode.
    """
    metric, array = metric_of(text), np.asarray(values, np.float64)
    is_rate = bool(np.isin(array, (0.0, 1.0)).all())
    low, high = wilson_interval(int(array.sum()), len(array)) if is_rate else mean_interval(array)
    ordered = np.sort(array)[:: -1 if metric.bad_when_high else 1]
    worst = float(ordered[: max(len(array) // 20, 1)].mean())
    steps = np.asarray(lengths)[array == float(metric.bad_when_high)] if is_rate else np.array([])
    return MetricSummary(float(array.mean()), low, high, worst, is_rate, float(steps.mean()) if len(steps) else None)


@checked
def wilson_interval(successes: int, count: int, level: OpenShare = 0.95) -> tuple[float, float]:
    """Interval of a rate (Wilson 1927): unlike the mean's it has a width where all trials came out alike.

    Args:
        successes, count: how many of how many trials, at least one.
        level: probability that the interval covers the rate.

    >>> from adv_wrappers.evaluation.measurements.metrics import wilson_interval
    >>> [round(end, 3) for end in wilson_interval(10, 10)]
    [0.722, 1.0]
    """
    if not 0 <= successes <= count or count < 1:
        raise ValueRangeError(f"expected successes among at least one trial, got {successes} of {count}")
    z = NormalDist().inv_cdf(0.5 + level / 2)
    rate, share = successes / count, z * z / count
    middle = (rate + share / 2) / (1 + share)
    half = z * math.sqrt(rate * (1 - rate) / count + share / (4 * count)) / (1 + share)
    return (0.0 if successes == 0 else middle - half), (1.0 if successes == count else middle + half)


def pass_hat_k(successes: int, count: int, k: int) -> float:
    """Probability that ``k`` episodes in a row succeed (Yao et al. 2024), without bias from ``count`` >= k episodes.

    >>> from adv_wrappers.evaluation.measurements.metrics import pass_hat_k
    >>> pass_hat_k(9, 10, 2)
    0.8
    """
    if not 0 <= successes <= count or not 1 <= k <= count:
        raise ValueRangeError(f"expected successes among at least k episodes, got {successes} of {count}, k={k}")
    return math.comb(successes, k) / math.comb(count, k)
