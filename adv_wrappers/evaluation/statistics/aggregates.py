"""Many agents, environments and seeds as one figure with an interval, as rliable has them (Agarwal et al. 2021).

- The interquartile mean (IQM): the mean of the middle half of all scores, which one outlier does not move as it does a
  mean, and which uses more of the scores than a median.
- The performance profile: the share of runs whose score is above tau, for every tau.
- The probability of improvement: that a run of one group scores higher than a run of another in the same environment,
  the statistic of Mann and Whitney, averaged over environments.

Intervals are stratified bootstraps: runs are drawn again with replacement within each environment, and the interval has
the percentiles of what is computed from them. Scores are mean returns, normalised in each environment so that 0 is the
low end of a range and 1 its high end.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray

from adv_wrappers.errors import ValueRangeError
from adv_wrappers.evaluation.rows.report import pandas_module
from adv_wrappers.evaluation.rows.stored_rows import RowSource, StoredRow, read_rows
from adv_wrappers.evaluation.statistics.return_range import described_range
from adv_wrappers.rendering.plots import BandedLine, LinesPanel, plot_lines
from adv_wrappers.rendering.table import Tabular, TextTable
from adv_wrappers.utils.checks import finite_float
from adv_wrappers.utils.number_text import interval_text, number_text
from adv_wrappers.utils.validation import Limits, Seed, checked

Scores = Mapping[str, NDArray[np.float64]]  # by environment, those of its runs
Statistic = Callable[[NDArray[np.float64]], NDArray[np.float64]]
GROUP_COLUMNS = ("threat", "attack", "eps", "victim", "env", "seed")
_FEW_RUNS = 5  # in an environment, below which the note on short intervals is given
_TAUS = 201  # of a figure
_AT_ONCE = 2_000_000  # scores of a bootstrap that are held at a time


def iqm(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """The interquartile mean over the last axis ``[..., n]``: without the lowest and the highest ``n // 4``.

    >>> from adv_wrappers.evaluation.statistics.aggregates import iqm
    >>> float(iqm(np.array([0.0, 1.0, 2.0, 100.0])))
    1.5
    """
    cut = scores.shape[-1] // 4
    middle: NDArray[np.float64] = np.sort(scores, axis=-1)[..., cut : scores.shape[-1] - cut].mean(-1)
    return middle


def bootstrap(
    scores: Sequence[NDArray[np.float64]], statistic: Statistic, level: float, repetitions: int, seed: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The percentile interval of a statistic, by the stratified bootstrap.

    Args:
        scores: of every stratum, ``[n]``; those of each are drawn again among themselves.
        statistic: of all scores ``[R, N]``, one stratum after another, to ``[R]`` or ``[R, K]``.
        level: probability of the interval.
        repetitions: R, how many times all are drawn.
        seed: of the draws.

    Returns:
        Both ends, of the shape of one repetition; NaN where no stratum has two scores.
    """
    if max(map(len, scores)) < 2:
        nothing = np.full_like(statistic(np.concatenate(scores)[None])[0], np.nan)
        return nothing, nothing
    # as many repetitions at once as fit into memory, each stratum drawn again by itself
    random = np.random.default_rng(seed)
    count = max(1, _AT_ONCE // sum(map(len, scores)))
    found = []
    for start in range(0, repetitions, count):
        size = min(count, repetitions - start)
        drawn = [values[random.integers(len(values), size=(size, len(values)))] for values in scores]
        found.append(statistic(np.concatenate(drawn, 1)))
    low, high = np.quantile(np.concatenate(found), [(1 - level) / 2, (1 + level) / 2], axis=0)
    return low, high


@dataclass(frozen=True)
class ScoreRange:
    """What the scores of an environment are counted from and to.

    Attributes:
        low, high: the returns that have the scores 0 and 1.
        low_is, high_is: what they are, in words.
    """

    low: float
    high: float
    low_is: str
    high_is: str

    def __str__(self) -> str:
        return f"0 is {number_text(self.low)} ({self.low_is}), 1 is {number_text(self.high)} ({self.high_is})"


@dataclass(frozen=True)
class ScoreGroup:
    """The scores of one group, such as a threat.

    Attributes:
        name: the values of the columns that it is grouped by.
        scores: normalised, by environment those of its runs.
        iqm: the interquartile mean of all of them, with its interval ``low`` to ``high``; the ends are None where no
            environment has two runs.
        mean: of all scores.
    """

    name: str
    scores: Scores
    iqm: float
    low: float | None
    high: float | None
    mean: float

    @property
    def runs(self) -> int:
        """The number of scores."""
        return sum(map(len, self.scores.values()))


@dataclass(frozen=True)
class Aggregates(Tabular):
    """What :func:`adv_wrappers.aggregate` found.

    Attributes:
        by: the columns that scores are grouped by.
        groups: in the order of their rows.
        ranges: by environment, what scores were normalised by.
        runs: what a run is: ``"victim"``, with the mean of its seeds, or ``"seed"``, of a victim.
        level: probability of the intervals.
        repetitions, seed: of the bootstrap.
        notes: what the figures say, and what they do not.
    """

    by: str
    groups: tuple[ScoreGroup, ...]
    ranges: Mapping[str, ScoreRange]
    runs: str
    level: float
    repetitions: int
    seed: int
    notes: tuple[str, ...]

    def group(self, name: str) -> ScoreGroup:
        """The group of a name; raises :class:`ValueRangeError` where there is none."""
        groups = {group.name: group for group in self.groups}
        if name not in groups:
            raise ValueRangeError(f"no group {name!r:.80}: there are {', '.join(groups)}")
        return groups[name]

    def profile(
        self, name: str, taus: Sequence[float] | NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """The performance profile of a group: the share of runs whose score is above each tau, and its band.

        Args:
            name: of the group.
            taus: float ``[K]``.

        Returns:
            The shares and both ends of their intervals, each ``[K]``; ends are NaN where no environment has two runs.
        """
        found, at = self.group(name), np.asarray(taus, np.float64)

        def above(scores: NDArray[np.float64]) -> NDArray[np.float64]:
            return np.stack([(scores > tau).mean(-1) for tau in at], -1)

        values = [*found.scores.values()]
        share = above(np.concatenate(values))
        return share, *bootstrap(values, above, self.level, self.repetitions, self.seed)

    def improvement(self, better: str, than: str) -> tuple[float, float | None, float | None]:
        """How probable it is that a run of one group scores higher than one of another in the same environment.

        Ties count half. It is the mean over the environments that both have, in each of which it is Mann and Whitney's
        U over the number of pairs; 0.5 is no difference.

        Args:
            better: name of the group that is asked about.
            than: name of the other.

        Returns:
            The probability and its interval, whose ends are None where no environment has two runs.

        Raises:
            ValueRangeError: for an unknown group, and for two that share no environment.
        """
        first, second = self.group(better).scores, self.group(than).scores
        # the runs of both groups in every environment, as strata side by side
        shared = [env for env in first if env in second]
        if not shared:
            raise ValueRangeError(f"{better} and {than} share no environment")
        strata = [values for env in shared for values in (first[env], second[env])]
        ends = np.cumsum([0, *map(len, strata)])

        def probability(scores: NDArray[np.float64]) -> NDArray[np.float64]:
            parts = [scores[..., a:b] for a, b in itertools.pairwise(ends)]
            # Mann and Whitney's U over all pairs, ties for one half
            wins = [
                np.mean([np.sign(x[..., i, None] - y).mean(-1) for i in range(x.shape[-1])], 0)
                for x, y in zip(parts[::2], parts[1::2], strict=True)
            ]
            mean: NDArray[np.float64] = (1 + np.mean(wins, 0)) / 2
            return mean

        low, high = bootstrap(strata, probability, self.level, self.repetitions, self.seed)
        return float(probability(np.concatenate(strata))), finite_float(low), finite_float(high)

    def to_dict(self) -> dict[str, Any]:
        """Everything, as values that JSON knows."""
        groups = [
            {**vars(group), "scores": {env: values.tolist() for env, values in group.scores.items()}}
            for group in self.groups
        ]
        ranges = {env: {"low": one.low, "high": one.high, "text": str(one)} for env, one in self.ranges.items()}
        return {
            "by": self.by, "runs": self.runs, "level": self.level, "repetitions": self.repetitions, "seed": self.seed,
            "ranges": ranges, "groups": groups, "notes": [*self.notes],
        }  # fmt: skip

    def to_dataframe(self) -> Any:
        """A pandas ``DataFrame`` with one row a group, and columns as in :meth:`table`.

        Raises:
            AdvWrappersError: where pandas is missing.
        """
        columns = (self.by, "iqm", "low", "high", "mean", "runs", "environments")
        rows = [(g.name, g.iqm, g.low, g.high, g.mean, g.runs, len(g.scores)) for g in self.groups]
        return pandas_module().DataFrame(rows, columns=columns).astype({"low": "float64", "high": "float64"})

    def table(self) -> TextTable:
        """The table, one row a group; below it are the ranges and the notes."""
        columns = (self.by, "IQM", f"{100 * self.level:g}% interval", "mean", "runs", "environments")
        rows = [
            (
                g.name,
                number_text(g.iqm),
                interval_text(g.low, g.high),
                number_text(g.mean),
                str(g.runs),
                str(len(g.scores)),
            )
            for g in self.groups
        ]
        return TextTable("normalised scores", columns, tuple(rows), tuple(self._explanations()))

    def plot(self, path: str | Path) -> None:
        """Write a figure of the performance profiles with their bands; the legend has the interquartile means.

        The file's name says what it is, ``.png``, ``.svg`` or ``.pdf``; :class:`ValueRangeError` for another.
        """
        every = np.concatenate([values for group in self.groups for values in group.scores.values()])
        low, high = min(0.0, float(every.min())), max(1.0, float(every.max()))
        taus = np.linspace(low, high, _TAUS)
        lines = []
        for group in self.groups:
            label = f"{group.name}\nIQM {number_text(group.iqm)}, {interval_text(group.low, group.high)}"
            lines.append(BandedLine(label, taus, *self.profile(group.name, taus)))
        labels = "normalised score tau", "share of runs with a score above tau"
        plot_lines([LinesPanel("", lines)], path, f"runs by {self.by}", labels, self._explanations(), steps=True)

    def _explanations(self) -> list[str]:
        return [*(f"{env}: {one}" for env, one in self.ranges.items()), *self.notes]


@checked
def aggregate(
    source: RowSource,
    by: str | Sequence[str] | Callable[[StoredRow], str] = "threat",
    *,
    where: Mapping[str, object] | None = None,
    ranges: Mapping[str, tuple[float, float]] | None = None,
    runs: Literal["victim", "seed"] | None = None,
    level: Annotated[float, Limits(0.01, 0.999)] = 0.95,
    repetitions: Annotated[int, Limits(100, 1_000_000)] = 10_000,
    seed: Seed = 0,
) -> Aggregates:
    """Interquartile means with intervals, performance profiles and probabilities of improvement, from many rows.

    Args:
        source: a :class:`~adv_wrappers.studies.Store` or its file, a folder that ``evaluate(out=...)`` wrote, or
            reports.
        by: the column that scores are grouped by, or several: ``"threat"``, ``"attack"`` (a threat without its eps),
            ``"eps"``, ``"victim"``, ``"env"`` or ``"seed"``; or a function from a
            :class:`~adv_wrappers.evaluation.rows.stored_rows.StoredRow` to the name of its group, such as that of
            the algorithm that trained its victim.
        where: which rows count: by column a value, or a list of values.
        ranges: by environment, as text with its arguments or by its id, the returns that have the scores 0 and 1.
            Default of the first: the lowest return that the rules of the game allow, or, where that is not known, the
            lowest mean return of a row. Default of the second: the mean of the clean runs. Both look at all rows.
        runs: what a run is, which is drawn again: a ``"victim"``, whose seeds are averaged, or a ``"seed"``, the
            episodes of one seed of one victim. None takes victims if an environment has two of a group, else seeds.
        level: probability of the intervals.
        repetitions, seed: of the bootstrap, which gives the same intervals every time.

    Raises:
        ValueRangeError: for a source without rows, an unknown column, a range that is none or unknown, and where rows
            of several threats fall into one run of one group.
        StoreError: for a file that is damaged, no store, or of another release.
    """
    # which rows count, and what they are grouped by
    rows = read_rows(source)
    columns = () if callable(by) else (by,) if isinstance(by, str) else tuple(by)
    for argument, names in (("by", columns), ("where", where or {})):
        for name in names:
            if name not in GROUP_COLUMNS:
                known = ", ".join(GROUP_COLUMNS)
                raise ValueRangeError(f"no column {name!r:.80} for {argument}=: there are {known}")
    if not columns and not callable(by):
        raise ValueRangeError(f"by must name a column, of {', '.join(GROUP_COLUMNS)}")
    chosen = [row for row in rows if all(_is_one_of(getattr(row, name), one) for name, one in (where or {}).items())]
    if not chosen:
        raise ValueRangeError(f"no row has where={dict(where or {})!r}")
    # rows by group and environment
    groups: dict[str, dict[str, list[StoredRow]]] = {}
    for row in chosen:
        name = str(by(row)) if callable(by) else ", ".join(_text(getattr(row, column)) for column in columns)
        groups.setdefault(name, {}).setdefault(row.env, []).append(row)
    # agents trained anew say most; where there is one of each, its seeds have to do
    if runs is None:
        several = any(len({row.victim for row in own}) > 1 for group in groups.values() for own in group.values())
        runs = "victim" if several else "seed"
    # the scores of every group, and the mean of their middle half with its interval
    used = _ranges(rows, {row.env for row in chosen}, ranges or {})
    found = []
    for name, envs in groups.items():
        scores = {env: _scores(own, name, runs, used[env]) for env, own in envs.items()}
        every = np.concatenate([*scores.values()])
        low, high = map(finite_float, bootstrap([*scores.values()], iqm, level, repetitions, seed))
        found.append(ScoreGroup(name, scores, float(iqm(every)), low, high, float(every.mean())))
    named = ", ".join(columns) or "group"
    return Aggregates(named, tuple(found), used, runs, level, repetitions, seed, tuple(_notes(found, runs)))


def _text(value: object) -> str:
    """The value of a column."""
    return "no eps" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _is_one_of(value: object, wanted: object) -> bool:
    return value in (wanted if isinstance(wanted, (list, tuple, set)) else [wanted])


def _scores(rows: Sequence[StoredRow], group: str, runs: str, range_: ScoreRange) -> NDArray[np.float64]:
    """The normalised scores of the runs of a group in one environment, ``[n]``."""
    by_run: dict[tuple[str, int | None], list[StoredRow]] = {}
    for row in rows:
        by_run.setdefault((row.victim, row.seed if runs == "seed" else None), []).append(row)
    for own in by_run.values():
        if len(threats := list(dict.fromkeys(row.threat for row in own))) > 1:
            raise ValueRangeError(
                f"rows of {threats[0]} and {threats[1]} of one victim fall together in {group!r:.80}: group by= threat "
                "too, or choose one with where="
            )
    means = [np.mean(np.concatenate([row.row.returns for row in own])) for own in by_run.values()]
    return (np.array(means, np.float64) - range_.low) / (range_.high - range_.low)


def _ranges(
    rows: Iterable[StoredRow], needed: set[str], given: Mapping[str, tuple[float, float]]
) -> dict[str, ScoreRange]:
    """The range of every environment that is needed."""
    envs: dict[str, list[StoredRow]] = {}
    for row in rows:
        envs.setdefault(row.env, []).append(row)
    ids = {env: str(own[0].described_env["id"]) for env, own in envs.items()}
    if unknown := [name for name in given if name not in (*ids, *ids.values())]:
        raise ValueRangeError(f"ranges= has {unknown[0]!r:.80}: rows are of {', '.join(envs)}")
    found: dict[str, ScoreRange] = {}
    for env in filter(needed.__contains__, envs):
        # a range that was given, under the text of the environment or its id
        pair = given.get(env, given.get(ids[env]))
        if pair is None:
            found[env] = _default_range(env, envs[env])
            continue
        two = isinstance(pair, (list, tuple)) and len(pair) == 2
        low, high = map(finite_float, pair) if two else (None, None)
        if low is None or high is None or low >= high:
            raise ValueRangeError(f"ranges= expects two finite numbers, the lower first, for {env}, got {pair!r:.80}")
        found[env] = ScoreRange(low, high, "given", "given")
    return found


def _default_range(env: str, rows: Sequence[StoredRow]) -> ScoreRange:
    lowest, low_is = described_range(rows[0].described_env)[0], "the lowest return of the game"
    if lowest is None:
        lowest, low_is = min(row.row.mean_return for row in rows), "the lowest mean return of a row"
    clean = [row.row.mean_return for row in rows if row.is_clean]
    if not clean or np.mean(clean) <= lowest:
        why = "there is no clean run" if not clean else f"clean runs have the lowest return there is, {lowest:g}"
        raise ValueRangeError(f"{env} has no range to normalise by, as {why}: give ranges= a pair for it")
    count = f"{len(clean)} clean runs" if len(clean) > 1 else "the clean run"
    return ScoreRange(lowest, float(np.mean(clean)), low_is, f"the mean of {count}")


def _notes(groups: Sequence[ScoreGroup], runs: str) -> list[str]:
    """What the figures do not say."""
    if runs == "victim":
        notes = ["a run is a victim in an environment, with the mean return over its seeds"]
    else:
        notes = ["a run is a seed of a victim: intervals are of its episodes, and say nothing of agents trained anew"]
    # what makes an interval too short, and groups that cannot be compared
    least = min(len(values) for group in groups for values in group.scores.values())
    if least < _FEW_RUNS:
        few = f"an environment has {least} runs" if least > 1 else "an environment has one run"
        notes.append(f"{few}: with fewer than {_FEW_RUNS}, bootstrap intervals are too short")
    equal = [group.name for group in groups if len({*np.concatenate([*group.scores.values()])}) == 1 < group.runs]
    if equal:
        notes.append(f"all scores of {', '.join(equal)} are equal, so that the interval shows no event that is rare")
    every = {env for group in groups for env in group.scores}
    for group in groups:
        if len(group.scores) < len(every):
            lacking = ", ".join(sorted(every - {*group.scores}))
            notes.append(f"{group.name} was not played in {lacking}, and is not comparable with groups that were")
    return notes
