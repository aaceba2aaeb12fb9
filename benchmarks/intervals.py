"""How often the intervals of reports cover the mean, and how far the worst case of a suite is off.

    python benchmarks/intervals.py

How often intervals of n drawn returns hold the mean of the distribution: normal; lognormal (sigma 1); an agent that
earns 3000 and falls in one episode out of twenty, to 300; and one of two modes. ``percentile`` is the bootstrap's,
``t`` is Student's, ``ours`` what reports print (``evaluation.confidence_intervals.mean_interval``), with its median
width in units of the interval that one who knows the deviation would take. A row of a report has a ``caveat`` where its
interval is not to be called one of 95%; the last column is the share of all rows that miss the mean and have none.

The worst case of a suite, of nine attacks that take the same, normal with a standard deviation of 500: by the lowest of
their means, and as suites have it, where the lowest chooses, and the mean and the interval are those of as many fresh
episodes. ``shared`` is the correlation between two attacks' returns in the same episode.

Means over three tasks of the mean over n seeds of each, with standard deviations of 1, 100 and 400: rliable's
stratified percentile bootstrap, and ``stratified_interval``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from timing import Data, Page, Results, made_by, prose, table

from adv_wrappers.evaluation.statistics.confidence_intervals import (
    caveat,
    mean_interval,
    stratified_interval,
    t_quantile,
)

Array = NDArray[np.float64]
Draw = Callable[[np.random.Generator, tuple[int, int]], Array]
SIZES = (4, 10, 30, 50, 100)
RESAMPLES = 10_000
ATTACKS, DEVIATION = 9, 500.0


def falls(rng: np.random.Generator, shape: tuple[int, int]) -> Array:
    """3000, and 300 once in twenty episodes."""
    return np.where(rng.random(shape) < 0.05, 300.0, 3000.0)


def modes(rng: np.random.Generator, shape: tuple[int, int]) -> Array:
    """Around 500 or around 3000."""
    return np.where(rng.random(shape) < 0.5, 500.0, 3000.0) + 100 * rng.normal(size=shape)


# by name: how to draw, the mean, and the standard deviation
RETURNS: dict[str, tuple[Draw, float, float]] = {
    "normal": (lambda rng, shape: rng.normal(size=shape), 0.0, 1.0),
    "lognormal": (lambda rng, shape: rng.lognormal(size=shape), math.exp(0.5), math.sqrt((math.e - 1) * math.e)),
    "falls, 1 in 20": (falls, 2865.0, 2700 * math.sqrt(0.05 * 0.95)),
    "two modes": (modes, 1750.0, math.sqrt(1250**2 + 100**2)),
}


def percentile(*strata: Array) -> Array:
    """Percentile bootstrap intervals ``[B, 2]`` of the mean over the strata, each ``[B, n]``, resampled apart."""
    count = strata[0].shape[1]
    shape, at = (RESAMPLES, count), count * np.arange(RESAMPLES)[:, None]
    picks = [at + np.random.default_rng(i).integers(0, count, shape) for i in range(len(strata))]
    weights = [np.bincount(p.ravel(), minlength=at.size * count).reshape(shape).T / count / len(strata) for p in picks]
    found = []
    for at in range(0, len(strata[0]), 500):
        means = sum(values[at : at + 500] @ w for values, w in zip(strata, weights, strict=True))
        found.append(np.quantile(means, [0.025, 0.975], axis=1).T)
    return np.concatenate(found)


def student(values: Array) -> Array:
    """Intervals ``[B, 2]`` of Student's t."""
    mean, count = values.mean(1), values.shape[1]
    half = t_quantile(count - 1) * values.std(1, ddof=1) / math.sqrt(count)
    return np.stack([mean - half, mean + half], 1)


def ours(values: Array) -> Array:
    """Intervals ``[B, 2]`` as reports have them."""
    return np.array([mean_interval(row) for row in values])


METHODS = {"percentile": percentile, "t": student, "ours": ours}


def covered(intervals: Array, mean: float) -> NDArray[np.bool_]:
    """Which intervals hold the mean, up to the rounding of sums."""
    slack = 1e-9 * abs(mean)
    return (intervals[:, 0] <= mean + slack) & (mean - slack <= intervals[:, 1])


def measure(name: str, count: int, repetitions: int, seed: int) -> dict[str, Any]:
    """One line of the first table."""
    draw, mean, deviation = RETURNS[name]
    values = draw(np.random.default_rng((seed, count)), (repetitions, count))
    clear = np.array([caveat(row) is None for row in values])
    line: dict[str, Any] = {"returns": name, "n": count, "caveats": float(1 - clear.mean())}
    for method, find in METHODS.items():
        found = find(values)
        widths = (found[:, 1] - found[:, 0]) / (2 * 1.959964 * deviation / math.sqrt(count))
        line[method] = {"coverage": float(covered(found, mean).mean()), "width": float(np.median(widths))}
    line["misses_without_a_caveat"] = float((clear & ~covered(found, mean)).mean())
    return line


def suite(count: int, shared: float, repetitions: int, seed: int) -> dict[str, Any]:
    """One line of the second table: the mean of the worst case, whose true mean is 0, and what its interval covers."""
    rng = np.random.default_rng((seed, count, round(100 * shared)))

    def lottery() -> Array:
        luck, own = rng.normal(size=(repetitions, 1, count)), rng.normal(size=(repetitions, ATTACKS, count))
        return DEVIATION * (math.sqrt(shared) * luck + math.sqrt(1 - shared) * own)

    choosing, every = lottery(), np.arange(repetitions)
    lowest = choosing.mean(2).argmin(1)
    before, now = choosing[every, lowest], lottery()[every, lowest]
    return {
        "n": count,
        "shared": shared,
        "before": {"bias": float(before.mean()), "coverage": float(covered(percentile(before), 0.0).mean())},
        "now": {"bias": float(now.mean()), "coverage": float(covered(ours(now), 0.0).mean())},
    }


def seeds(count: int, repetitions: int, seed: int) -> dict[str, Any]:
    """One line of the third table."""
    deviations = np.array([1.0, 100.0, 400.0])[:, None, None]
    values = deviations * np.random.default_rng((seed, count)).normal(size=(len(deviations), repetitions, count))
    unit = 2 * 1.959964 * math.sqrt((deviations**2).sum() / count) / len(deviations)
    line: dict[str, Any] = {"n": count}
    for name, found in (
        ("percentile", percentile(*values)),
        ("ours", np.array([stratified_interval(list(values[:, i])) for i in range(repetitions)])),
    ):
        width = float(np.median(found[:, 1] - found[:, 0]) / unit)
        line[name] = {"coverage": float(covered(found, 0.0).mean()), "width": width}
    return line


def head(data: Data) -> str:
    """Which command made the page, on which machine, and how exactly coverages are known."""
    count = data["repetitions"]
    known = f"{count} repetitions a line, so a coverage of 95% is known to {1.96 * math.sqrt(0.95 * 0.05 / count):.1%}"
    return made_by({**data, "releases": known})


def body(data: Data) -> list[str]:
    """The section after its head."""
    about = prose(__doc__)
    lines = [
        [
            row["returns"], row["n"], *(f"{row[method]['coverage']:.1%}" for method in METHODS),
            f"{row['ours']['width']:.2f}", f"{row['caveats']:.0%}", f"{row['misses_without_a_caveat']:.1%}",
        ]
        for row in data["rows"]
    ]  # fmt: skip
    header = ["returns", "n", *METHODS, "width of ours", "rows with a caveat", "ours misses, no caveat"]
    worst = [
        [row["n"], f"{row['shared']:g}"]
        + [f"{row[when]['bias']:+.1f}, covers {row[when]['coverage']:.1%}" for when in ("before", "now")]
        for row in data["suite"]
    ]
    strata = [
        [row["n"], *(f"{row[m]['coverage']:.1%}, width {row[m]['width']:.2f}" for m in ("percentile", "ours"))]
        for row in data["seeds"]
    ]
    return [
        about[0], table(header, lines),
        about[1], table(["n", "shared", "lowest mean: bias", "fresh episodes: bias"], worst),
        about[2], table(["seeds", "percentile covers", "ours covers"], strata),
    ]  # fmt: skip


def measure_all(results: Results) -> None:
    """Every table, anew."""
    given, data = results.given, results.data
    drawn = given.repetitions, given.seed
    data |= {"repetitions": given.repetitions, "rows": [], "suite": [], "seeds": []}
    for name in RETURNS:
        for count in SIZES:
            data["rows"].append(measure(name, count, *drawn))
            print(data["rows"][-1], flush=True)
    for count in (10, 50):
        for shared in (0.0, 0.5):
            data["suite"].append(suite(count, shared, *drawn))
            print(data["suite"][-1], flush=True)
    for count in (3, 5, 10):
        data["seeds"].append(seeds(count, *drawn))
        print(data["seeds"][-1], flush=True)
    results.keep()


PAGE = Page(
    "intervals",
    "What 95% intervals cover",
    __doc__,
    measure_all,
    body,
    page="statistics",
    options={"--repetitions": {"type": int, "default": 10_000}, "--seed": {"type": int, "default": 0}},
    head=head,
)


if __name__ == "__main__":
    PAGE.main()
