"""The study of a robot: of each disturbance the least magnitude that breaks the policy, by bisection.

Then those that break it first are combined, each at half of what does it alone (:class:`Combination`).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from adv_wrappers.evaluation.measurements.metrics import metric_of
from adv_wrappers.evaluation.rows.row import Row
from adv_wrappers.studies.bisection import Bisection, bracket
from adv_wrappers.studies.plan import Plan
from adv_wrappers.studies.robot.disturbances import Disturbance

_FINE = 32  # parts of the largest magnitude, to one of which the least that breaks the policy is found
_COARSE = 2  # magnitudes of every disturbance that are played before any is known well
_COMBINED = 5  # disturbances, of which combinations are made


@dataclass(frozen=True)
class DisturbanceMargin:
    """How much of a disturbance the policy bears.

    Attributes:
        disturbance: the disturbance.
        points: the magnitudes that were played, in rising order, with their rows.
        safe: the largest magnitude at which, and below which, no episode failed; of a metric that is no rate, none
            that breaks the policy.
        breaks: the least that breaks the policy; None where none does.
        next: the magnitude that would be played next; None where the bisection is done.
        error: of the magnitude at which a simulation failed, which ends the bisection, or "".
    """

    disturbance: Disturbance
    points: tuple[tuple[float, Row], ...]
    safe: float
    breaks: float | None
    next: float | None
    error: str = ""

    @property
    def share(self) -> float:
        """Of the largest magnitude, at which the policy breaks; above 1 where it does not."""
        return 2.0 if self.breaks is None else self.breaks / self.disturbance.most

    def __str__(self) -> str:
        one = self.disturbance
        if self.breaks is None:
            more = "; more was not tried yet" if self.next is not None else ", the largest"
            return f"{one.name}: bears {one.size(self.points[-1][0])}{more}"
        harmless = f"harmless up to {one.size(self.safe)}" if self.safe else "none that was played is harmless"
        if self.next is not None:
            return f"{one.name}: breaks it at {one.size(self.breaks)}, {harmless}; less was not tried yet"
        return f"{one.name}: breaks it from {one.size(self.breaks)} on, {harmless}"


@dataclass(frozen=True)
class Combination:
    """Several disturbances at once, each at half of the least magnitude that alone breaks the policy.

    Attributes:
        parts: the disturbances, each with its magnitude here.
        row: of the episodes under all of them; None before they are played.
        breaks: whether it breaks the policy.
    """

    parts: tuple[tuple[Disturbance, float], ...]
    row: Row | None = None
    breaks: bool = False

    @property
    def threat(self) -> str:
        """The stack of threats."""
        return " + ".join(one.threat(m) for one, m in self.parts)

    def __str__(self) -> str:
        *others, last = (one.said(m) for one, m in self.parts)
        return f"{', '.join(others)} and {last}"


@dataclass(frozen=True)
class RobotStudy:
    """The bisections, and the combinations of what breaks the policy first.

    First come a few magnitudes of every disturbance, then the bisections to their ends, of those first that break the
    policy at the smallest share of their largest. Once the few that break it first are known well they are combined:
    all pairs of them, all triples where no pair breaks the policy, and so on. So a limit of time leaves open what
    matters least.

    Attributes:
        plan: of the runs without a threat.
        table: the disturbances.
        metric: what counts.
        at_once: rows of a round: the time is looked at between two rounds.
        failed: by the threats whose rows could not be played, the errors; those that come while it is played too.
    """

    plan: Plan
    table: tuple[Disturbance, ...]
    metric: str
    at_once: int = 1
    failed: Mapping[str, str] = field(default_factory=dict)

    def next(self, rows: Sequence[Row]) -> Plan | None:
        """The next magnitudes of a few disturbances; None once all are done, or it breaks without any."""
        if rows and self.breaks(rows[0], rows[0]):
            return None
        open_ = [one for one in (self._margin(each, rows) for each in self.table) if one.next is not None]
        coarse = [one for one in open_ if len(one.points) < _COARSE and not one.disturbance.last]
        coarse.sort(key=lambda one: len(one.points))
        fine = sorted(open_, key=lambda one: (one.disturbance.last, one.share))
        threats = [one.threat for one in self.combinations(rows) if self._is_open(one)]  # none before the coarse
        threats += [one.disturbance.threat(one.next or 0.0) for one in coarse or fine]
        return Plan((replace(self.plan.grids[0], threats=tuple(threats[: self.at_once])),)) if threats else None

    def conclusion(self, rows: Sequence[Row]) -> tuple[list[DisturbanceMargin], list[Combination], list[Combination]]:
        """The margins of what was played, the smallest first, those whose simulation failed among them; combinations.

        The combinations are those of :meth:`combinations`: first those that were played, the worst first, then those
        that come next.
        """
        margins = sorted((self._margin(each, rows) for each in self.table), key=lambda one: one.share)
        known = [one for one in margins if one.points or one.error]
        found = self.combinations(rows)
        played = [one for one in found if not self._is_open(one)]
        played.sort(key=lambda one: (one.breaks, self._harm(one.row)), reverse=True)
        return known, played, [one for one in found if self._is_open(one)]

    def combinations(self, rows: Sequence[Row]) -> list[Combination]:
        """The combinations of the few that break the policy first, with the rows that there are.

        There are none before a few magnitudes of every disturbance, and all of the few, were played. Once one of them
        breaks the policy, those of more disturbances are left out; they also wait for those of fewer.
        """
        halves, kinds = list[tuple[Disturbance, float]](), set[str]()
        # every disturbance has to be known roughly first
        margins = [one for one in (self._margin(each, rows) for each in self.table) if not one.disturbance.last]
        if any(one.next is not None and len(one.points) < _COARSE for one in margins):
            return []
        for margin in sorted(margins, key=lambda one: one.share):
            # the few that break it first, each at half of that, and one of a kind
            one, breaks = margin.disturbance, margin.breaks or 0.0
            half = float(f"{breaks / 2:.3g}") if one.step is None else breaks // 2
            acts_on = re.search("(at|scale)=[^,]+", one.text)  # pushes of two sides are one force
            kind = acts_on.group() if acts_on else one.name
            if len(halves) == _COMBINED or (margin.breaks is None and margin.next is None):
                break
            if margin.next is not None:  # it may turn out to be among the few
                return []
            if half and kind not in kinds:
                halves.append((one, half))
                kinds.add(kind)
        played, found = {row.threat: row for row in rows}, list[Combination]()
        # two of them, then three, until some break it
        for count in range(2, len(halves) + 1):
            if any(one.breaks or self._is_open(one) for one in found):
                break
            for parts in itertools.combinations(halves, count):
                row = played.get(Combination(parts).threat)
                found.append(Combination(parts, row, row is not None and self.breaks(row, rows[0])))
        return found

    def _is_open(self, one: Combination) -> bool:
        """Whether it was not played yet."""
        return one.row is None and one.threat not in self.failed

    def _margin(self, one: Disturbance, rows: Sequence[Row]) -> DisturbanceMargin:
        """Follow the bisection of one disturbance through its rows, as far as there are any."""
        search, known = _bisection(one), {row.threat: row for row in rows}
        played, breaks = dict[float, Row](), dict[float, bool]()
        while (m := search.next(breaks)) is not None and (row := known.get(one.threat(m))) is not None:
            played[m], breaks[m] = row, self.breaks(row, rows[0])
        error = "" if m is None else self.failed.get(one.threat(m), "")
        points = sorted(played.items())
        failed = next((m for m, row in points if self._fails(row, rows[0])), None)
        safe = max((m for m, _ in points if failed is None or m < failed), default=0.0)
        return DisturbanceMargin(one, tuple(points), safe, bracket(breaks)[1], None if error else m, error)

    def breaks(self, row: Row, clean: Row) -> bool:
        """Whether half of the episodes fail, or half of what the metric is without a disturbance is lost."""
        metric = metric_of(self.metric)
        mean = row.metric(self.metric).mean
        without = clean.metric(self.metric).mean
        if metric.is_rate:
            return (mean if metric.bad_when_high else 1 - mean) >= 0.5
        if row is clean:
            return False
        return mean >= 2 * without if metric.bad_when_high else without - mean >= 0.5 * abs(without)

    def _harm(self, row: Row | None) -> float:
        """By which rows are compared."""
        mean = 0.0 if row is None else row.metric(self.metric).mean
        return mean if metric_of(self.metric).bad_when_high else -mean

    def _fails(self, row: Row, clean: Row) -> bool:
        """Whether any episode fails; of a metric that is no rate, whether the policy breaks."""
        metric, mean = metric_of(self.metric), row.metric(self.metric).mean
        return (mean > 0 if metric.bad_when_high else mean < 1) if metric.is_rate else self.breaks(row, clean)


def _bisection(one: Disturbance) -> Bisection:
    """Of a disturbance: a quarter of its largest magnitude comes first, unless that is as good as nothing."""
    whole = one.step is not None
    search = Bisection([one.most], one.most, 1 if whole else one.most / _FINE, whole=whole)
    first = search.between(0.0, one.most / 2)
    return search if first is None else replace(search, sizes=[first, one.most], start=first)


@dataclass(frozen=True)
class RobotReport:
    """What :func:`.robot_report` found.

    Attributes:
        page: the page.
        sentence: what breaks the policy first.
        margins: of every disturbance that was played, the smallest first.
        combinations: of several that were played, the worst first.
        clean: the row without any.
        left_out: why the others were not played, by their names.
        unfinished: what more time would play: magnitudes that come next, disturbances that were not begun, and
            combinations.
    """

    page: Path
    sentence: str
    margins: tuple[DisturbanceMargin, ...]
    combinations: tuple[Combination, ...]
    clean: Row
    left_out: Mapping[str, str]
    unfinished: tuple[str, ...] = ()

    @property
    def reasons(self) -> dict[str, list[str]]:
        """By the reason, the names of what was not played."""
        found = dict[str, list[str]]()
        for name, reason in self.left_out.items():
            found.setdefault(reason, []).append(name)
        return found

    @property
    def worst(self) -> tuple[str, str, Row] | None:
        """The worst combination that breaks the policy, or the disturbance that breaks it first.

        In words, as a threat, and the row; None where nothing breaks it.
        """
        for one in self.combinations[:1]:
            if one.breaks and one.row is not None:
                return str(one), one.threat, one.row
        for margin in self.margins[:1]:
            if margin.breaks is not None:
                what, m = margin.disturbance, margin.breaks
                return what.said(m), what.threat(m), dict(margin.points)[m]
        return None

    def __str__(self) -> str:
        lines = [self.sentence, *(f"- {margin}" for margin in self.margins)]
        lines += [f"not tried: {', '.join(names)}: {reason}" for reason, names in self.reasons.items()]
        if self.unfinished:
            lines.append(f"not finished, more minutes play: {'; '.join(self.unfinished)}")
        return "\n".join([*lines, f"the page: {self.page}"])
