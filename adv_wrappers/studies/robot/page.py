"""The page of a robot's study: a function a section, from what was found to its parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from adv_wrappers.evaluation.measurements.metrics import metric_of
from adv_wrappers.evaluation.rows.row import Row
from adv_wrappers.evaluation.statistics.confidence_intervals import MeanWithInterval
from adv_wrappers.studies.report.article import (
    DASH,
    Article,
    Command,
    Facts,
    Listing,
    Paragraph,
    Part,
    Pictures,
    Section,
    embedded,
)
from adv_wrappers.studies.report.charts import Cell, Column, Line, LineChart, Point, Table, TableLine, Tone, limits_of
from adv_wrappers.studies.robot.study import Combination, DisturbanceMargin, RobotReport, RobotStudy

_MOST_CHARTS = 12
# seconds
_FILM, _AFTER = 3.0, 0.6  # of a film before a failure and after it
_PICTURE = 0.06


def sentence_of(
    study: RobotStudy, clean: Row, margins: Sequence[DisturbanceMargin], combined: Sequence[Combination]
) -> str:
    """What is to be known first."""
    what = "falls" if study.metric == "terminated" else f"breaks by {study.metric}"
    if study.breaks(clean, clean):
        return f"It {what} without any disturbance in half of the episodes or more, so nothing else was played."
    # what breaks it first alone, and then several at once
    broken = [one for one in margins if one.breaks is not None]
    if not broken:
        return f"Nothing that was played {'makes it fall' if what == 'falls' else 'breaks it'}."
    first, *others = (one.disturbance.said(one.breaks or 0.0) for one in broken[:4])
    alone = f"It {what} first under {first}" + (f"; then under {', '.join(others)}." if others else ".")
    if not combined:
        return alone
    worst, breaks = combined[0], "makes it fall" if what == "falls" else "breaks it"
    if not worst.breaks:
        return f"{alone} Combinations of them, each at half of that: none of {len(combined)} {breaks}."
    return f"{alone} Together {worst} are enough, each half of what does it alone."


NO_PICTURES = Paragraph("There is no film: the environment has no render_mode rgb_array.")


def film_of(
    words: str,
    threat: str,
    row: Row,
    study: RobotStudy,
    seeds: Sequence[int],
    step: float,
    made_by: Callable[..., Path],
) -> list[Part]:
    """The episode that a disturbance spoils most, beside the same one without it; or why there is none."""
    values, sign = row.metrics[study.metric], 1 if metric_of(study.metric).bad_when_high else -1
    worst = max(range(len(seeds)), key=lambda i: (sign * values[i], -row.lengths[i]))
    end = row.lengths[worst]
    first = max(end - round(_FILM / step), 0)
    steps = range(first, end + round(_AFTER / step), max(round(_PICTURE / step), 1))
    try:
        file = made_by({"without a disturbance": None, "with it": threat}, seeds[worst], steps)
    except Exception as error:  # whatever renderers raise
        return [Paragraph(f"There is no film: {type(error).__name__}: {error}. Without a display, set MUJOCO_GL=egl.")]
    lead = f"{words}: episode {worst + 1} of {len(seeds)}, from {first * step:.1f} s to {end * step:.1f} s."
    return [Paragraph(lead), Pictures("", {f"a film of {words}": embedded(file.parent, file.name)}, True)]


def article_of(
    found: RobotReport, study: RobotStudy, film: Sequence[Part], about: Sequence[str], command: str | None
) -> Article:
    """The page: what was found, section by section; those that have nothing to say are left out."""
    broken = [one for one in found.margins if one.breaks is not None][:_MOST_CHARTS]
    missing, reasons = found.unfinished, found.reasons
    how = (
        "A rate breaks where half of the episodes fail, another metric where half of it is lost. The least magnitude "
        "that does it is found by bisection, which takes more for worse: the curves show what was played. Margins are "
        "sorted by their share of the largest magnitude. On a slope what an environment computes from the world's axes "
        "is relative to the ground, and where it shows the last action, that is the one that it received."
    )
    protocol = Facts({"environment": about[1:2], "metric": [study.metric], "episodes": about[2:], "how": [how]})
    sections: dict[str, tuple[str, Sequence[Part]]] = {
        "margins": ("What it bears", [_margins(found.margins, found.clean)]),
        "combinations": ("Several at once", [_combinations(found, study)] if found.combinations else []),
        "film": ("A film of the worst", film),
        "curves": (
            "From nothing to where it breaks",
            [_curve(one, found.clean, study) for one in broken],
        ),
        "more": ("With more time", [Listing([(one, "") for one in missing])] if missing else []),
        "cannot": ("Not tried", [Facts({", ".join(n): [reason] for reason, n in reasons.items()})] if reasons else []),
        "protocol": ("Protocol", [protocol, *([Command(command)] if command else [])]),
    }
    return Article(
        id="a0",
        what="What a robot's policy survives",
        title=about[0],
        about=f"in {about[1]}",
        sentence=found.sentence,
        headline=None,
        facts={f"{study.metric} without a disturbance": str(found.clean.metric(study.metric))},
        sections=[Section(key, title, parts) for key, (title, parts) in sections.items() if parts],
        finished=not missing,
    )


_TONES: dict[tuple[bool, bool], Tone] = {(True, True): "other", (True, False): "certified"}  # of those that bear it


def _margins(margins: Sequence[DisturbanceMargin], clean: Row) -> Table:
    """A line for each disturbance: the largest harmless magnitude, the return at it, and the least breaking one.

    The return shows a robot that does not fall because it stands still.
    """
    lines = list[TableLine]()
    for one in margins:
        what = one.disturbance
        breaks = one.breaks
        open_ = one.next is not None
        # where it breaks, or how far that is known
        if breaks is None:
            where = "more was not tried yet" if open_ else DASH
        else:
            where = f"at most {what.size(breaks)}" if open_ else what.size(breaks)
        left = next((f"{row.mean_return:.3g}" for m, row in one.points if m == one.safe), DASH)
        cells: list[Cell] = [what.size(one.safe) if one.safe else DASH, left, where]
        # a bar from what it bears to what breaks it, as shares of the largest
        low, high = (100 * m / what.most for m in (one.safe, one.safe if breaks is None else breaks))
        bar, tone = MeanWithInterval(high, low, high, None), _TONES.get((breaks is None, open_), "attack")
        lines.append(TableLine(what.name, [*cells, what.size(what.most)], bar=bar, tone=tone))
    columns = [
        Column("harmless up to", "text"),
        Column(f"return there (of {clean.mean_return:.3g})", "text"),
        Column("breaks from", "text"),
        Column("largest", "text", True),
    ]
    legend = [("attack", "where it breaks, as a share of the largest"), ("certified", "the largest does not break it")]
    return Table("Margins", "disturbance", columns, lines, limits=(0.0, 100.0), legend=legend)


def _combinations(found: RobotReport, study: RobotStudy) -> Table:
    """A line a combination, with what the metric is under it."""
    metric, lines = study.metric, list[TableLine]()
    for one in found.combinations:
        if one.row is not None:
            mean = one.row.metric(metric)
            bar = MeanWithInterval(mean.mean, mean.low, mean.high, None)
            lines.append(TableLine(str(one), [str(mean)], bar=bar, tone="attack" if one.breaks else "certified"))
    limits = (0.0, 1.0) if metric_of(metric).is_rate else limits_of([line.bar.mean for line in lines if line.bar])
    legend = [("attack", "breaks the policy"), ("certified", "does not")]
    return Table(
        "Combinations",
        "each at half of what breaks it alone",
        [Column(metric, "text")],
        lines,
        limits=limits,
        legend=legend,
    )


def _curve(one: DisturbanceMargin, clean: Row, study: RobotStudy) -> LineChart:
    """What the metric is at the magnitudes that were played."""
    points, metric = list[Point](), study.metric
    for m, row in [(0.0, clean), *one.points]:
        found = row.metric(metric)
        points.append(Point(m, MeanWithInterval(found.mean, found.low, found.high, None), one.disturbance.size(m)))
    # the axis holds all intervals
    ends = [end for point in points for end in (point.mean.low, point.mean.high)]
    return LineChart(
        x_label=f"{one.disturbance.name}, {one.disturbance.unit}",
        y_label=metric,
        lines=[Line(metric, points, "attack", True)],
        limits=(-0.05, 1.05) if metric_of(metric).is_rate else limits_of(ends),
        legend=[("attack", f"{metric}, mean and 95% interval")],
        title=one.disturbance.name,
    )
