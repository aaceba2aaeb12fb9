"""What a page says of one report, section by section: each is a function from its rows and verdict to its parts."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial

from adv_wrappers.evaluation.statistics.confidence_intervals import footnotes
from adv_wrappers.studies.report.article import (
    LARGEST_PICTURES,
    Article,
    Command,
    Details,
    Facts,
    Listing,
    Paragraph,
    Part,
    Pictures,
    Section,
    embedded,
)
from adv_wrappers.studies.report.charts import (
    Cell,
    Column,
    Legend,
    Limits,
    Line,
    LineChart,
    Point,
    Table,
    TableLine,
    Tone,
    eps_text,
    limits_of,
)
from adv_wrappers.studies.report.sections import AgentSections, AttackRow, Kind, Sweep
from adv_wrappers.studies.report.trials import shown_text
from adv_wrappers.studies.report.verdict import NEAR, Verdict, verdict
from adv_wrappers.threats.presets import presets
from adv_wrappers.utils.number_text import duration, number_text

_MOST_ROWS = 500  # of the table of attacks
_MOST_RUNS = 12  # lines of the chart of episodes
_MOST_LINES = 24  # of a table of one kind of attack
_SELECTS = {"mode": "its most likely action", "sample": "a sampled action"}
_KINDS: dict[Kind, tuple[str, str]] = {  # what rows of a kind are called, and what their section says of them
    "sweep": ("all features", ""),
    "entries": (
        "other values",
        "An attack shows the agent other values of so many entries of its observation, or of all of them, however far "
        "from the true ones: those of discrete spaces have no distance, and so no eps. It does so at every step, "
        "unless a share of the steps is named.",
    ),
    "feature": (
        "some features",
        "An attack that may change only the features named on its line. The lower the return, the more the agent "
        "relies on them.",
    ),
    "moment": (
        "some steps",
        "An attack that acts in a window of steps alone. A window takes nothing of what was earned before it: a late "
        "one may cost less even where it ends the episode.",
    ),
    "few": ("few steps", "How the return falls with the number of steps of an episode that an attack may change."),
    "daylight": ("light and camera", "Natural changes of light and camera, which need no adversary."),
    "fault": ("sensors and channels", "Sensors and messages that fail, each in one or two sizes."),
    "dynamics": ("body and world", "A heavier or lighter body, other friction, weaker or stronger motors."),
    "action": ("actions", "Changes of the actions on their way to the environment."),
    "other": ("other attacks", "Stacks of attacks, other timings and other budgets."),
}
_LEGEND: Legend = (("attack", "mean and its interval"), ("clean", "no attack"))
_UNLISTED = {  # what was made for the agent, and is played as a record or by a network
    "<recorded>": "What a search over the saved states of whole episodes found, played again.",
    "learned": "An adversary that was trained to lower the agent's return: a network chooses every perturbation.",
}


def article_of(agent: AgentSections, id: str, several: bool) -> Article:
    """What a page says of a report; ``several`` where there are others on it."""
    said = verdict(agent)
    facts = dict(said.hurts)
    if said.figure is not None and said.figure.certified_eps is not None:
        facts = {"Certified up to": f"eps {eps_text(said.figure.certified_eps)}", **facts}
    # the sections that have something to say
    facts |= {"Runs under attack": str(len(agent.attacked)), "Episodes each": str(agent.report.episodes)}
    sections = [Section(key, title, parts) for key, title, made in _SECTIONS if (parts := made(agent, said))]
    return Article(
        id,
        "Robustness report",
        agent.victim,
        f"in {agent.environment}" + (f", {agent.episodes}" if several else ""),
        said.sentence,
        said.figure,
        facts,
        sections,
        agent.choices.finished,
    )


# Means with their intervals: tables with bars, and charts over a number.


def mean_limits(rows: Sequence[AttackRow], clean: AttackRow, more: Sequence[float] = ()) -> Limits:
    """The range of the means of some rows and of their intervals, as far as episodes went, and of further returns.

    A single bad episode, or another chart's row, does not stretch it; a small loss does not fill it either.
    """
    values = [*more, clean.mean - 0.25 * abs(clean.mean)]
    for row in (clean, *rows):
        mean = row.returned
        values += [mean.mean, max(mean.low, row.row.min), min(mean.high, row.row.max)]
    return limits_of(values)


def _tone(row: AttackRow) -> Tone:
    return "clean" if row.kind == "clean" else "attack"


def notes_of(rows: Sequence[AttackRow]) -> list[str]:
    """What the marks of some rows mean."""
    return [f"{note}." for note in footnotes([row.row for row in rows])]


def _rows_table(title: str, rows: Sequence[AttackRow], clean: AttackRow) -> Table:
    """A line for each of some rows, with its return as a bar: by window or count of steps, else the lowest first."""
    rows = sorted(rows, key=lambda row: (row.window or (), row.count or 0, row.mean))
    lines = [TableLine(row.label, [row.returned, row.change], bar=row.returned) for row in rows[:_MOST_LINES]]
    more = len(rows) - _MOST_LINES
    return Table(
        title or "Return under each attack",
        "attack",
        [Column("mean return"), Column("against no attack", "signed", less=True)],
        lines,
        mean_limits(rows, clean),
        clean.mean,
        title,
        _LEGEND,
        [f"{more} more are in the table of all attacks alone."] if more > 0 else (),
    )


def line_of(name: str, rows: Sequence[tuple[float, AttackRow]], tone: Tone = "other", bold: bool = False) -> Line:
    """Rows over a number."""
    says = f"{name}, " if bold else ""
    return Line(name, [Point(x, row.returned, says + row.label) for x, row in rows], tone, bold)


def _sweep_chart(agent: AgentSections, sweep: Sweep, headline: float | None) -> LineChart:
    """Return over the radius: every attack, the strongest of them with its interval, and the certified return."""
    first, curves = sweep is agent.sweeps[0], defaultdict[str, list[tuple[float, AttackRow]]](list)
    for row in sweep.rows:
        curves[row.attack].append((row.eps or 0.0, row))
    certificates, unit = (agent.choices.certificates, agent.choices.unit) if first else ((), "")
    # a thin line for each attack, a thick one for the strongest
    lines = [line_of(attack, rows) for attack, rows in curves.items()]
    lines.append(line_of("strongest so far", [*sweep.strongest.items()], "attack", bold=True))
    legend = [("attack", "the strongest attack and its interval"), ("other", "each attack"), _LEGEND[1]]
    legend += [("certified", "certified: no attack goes below")] if certificates else []
    # the eps of the verdict is marked, in the first sweep alone
    mark, marked = None, sweep.strongest.get(headline or 0.0)
    if first and headline and marked:
        mark = headline, marked.mean, f"{number_text(marked.mean)} at eps {eps_text(headline)}"
    counts = {one.episodes for one in certificates} - {None, sweep.clean.row.episodes}
    return LineChart(
        f"eps ({unit})" if unit else "eps",
        "mean return of an episode",
        lines,
        mean_limits(sweep.rows, sweep.clean, [one.lower for one in certificates]),
        legend,
        sweep.clean.mean,
        sorted((one.eps, one.lower) for one in certificates),
        mark,
        "" if len(agent.sweeps) == 1 and not sweep.keys else f"Budget: {sweep.budget}",
        [f"The certified return is the mean over {', '.join(map(str, counts))} episodes."] if counts else (),
    )


# The sections: what each has of a report and its verdict; nothing where there is nothing to say.


def _led(lead: str, parts: Sequence[Part]) -> list[Part]:
    """Parts below a first sentence; nothing without any."""
    return [Paragraph(lead, "lead"), *parts] if parts else []


def _next(agent: AgentSections, said: Verdict) -> list[Part]:
    return [Listing([(step.what, step.command) for step in said.next], "steps")] if said.next else []


def _sweep(agent: AgentSections, said: Verdict) -> list[Part]:
    lead = "How much of the return is left as an attack may change observations by more. "
    if agent.choices.certificates:
        lead += (
            "The truth about the worst attack lies between the two thick lines: an attack reaches the upper one, and "
            "no attack gets below the lower one."
        )
    else:
        lead += "An attack reaches the thick line; one that was not tried may get below it."
    parts = list[Part]()
    # a chart, or a table where there are too few eps for a line
    for sweep in agent.sweeps:
        if len(sweep.strongest) > 2 or (sweep is agent.sweeps[0] and agent.choices.certificates):
            parts.append(_sweep_chart(agent, sweep, said.figure.eps if said.figure else None))
        else:  # a line between no attack and a single eps would show nothing that was played
            title = f"At eps {eps_text(max(sweep.strongest))}: {sweep.budget}"
            parts.append(_rows_table(title, sweep.rows, agent.clean))
    return _led(lead, parts)


def _eps(agent: AgentSections, said: Verdict) -> list[Part]:
    """What an eps of the verdict amounts to in every feature, and why the budgets were chosen."""
    choices = agent.choices
    eps = said.figure.eps if said.figure else None
    parts = list[Part]()
    # the budget in words
    if agent.sweeps:
        words = f"Budget: {agent.sweeps[0].budget}."
        if not choices.played:
            words += (
                " How wide each feature ranges is not in these rows: compare with the environment's observation space."
            )
        parts.append(Paragraph(words, "lead"))
    parts += [Paragraph(reason) for reason in choices.reasons]
    # a line for every feature whose range is known
    lines = list[TableLine]()
    for feature, unit in zip(choices.features or (), choices.scale or itertools.repeat(1.0), strict=False):
        cells: list[Cell] = [None, feature.std]
        if feature.low is not None and feature.high is not None:
            cells[0] = f"{eps_text(feature.low)} to {eps_text(feature.high)}"
        lines.append(TableLine(feature.name, [*cells, *([f"± {eps_text(eps * unit)}"] if eps else [])]))
    if lines:
        columns = [Column("range", "text"), Column("standard deviation", "eps", less=True)]
        columns += [Column(f"moved by eps {eps_text(eps)}", "text")] if eps else []
        note = "The range holds 95% of what the feature was in episodes without an attack."
        parts.append(Table("What an eps means", "feature", columns, lines, notes=[note]))
    return parts


def _attacks(agent: AgentSections, said: Verdict) -> list[Part]:
    """All rows of a report, those of the lowest returns first."""
    rows, eps = sorted(agent.rows, key=lambda row: row.mean), said.figure.eps if said.figure else None
    if len(rows) < 2:
        return []
    lines = list[TableLine]()
    for row in rows[:_MOST_ROWS]:
        one, clean = row.row, row.kind == "clean"
        # the lines that are shown first are those of about the eps of the verdict
        near = bool(row.eps and eps and eps / NEAR <= row.eps <= eps * NEAR)
        own: list[Cell] = [None, None] if clean else [row.change, row.eps]
        cells = [row.returned, *own, one.min, one.attacked_fraction, one.action_change]
        under = "" if clean else _kind_words(row)
        lines.append(TableLine(row.label, cells, under, row.returned, _tone(row), focus=clean or near))
    # the lowest returns, if there are too many
    columns = [
        Column("mean return"), Column("against no attack", "signed"), Column("eps", "eps", less=True),
        Column("worst episode", less=True), Column("steps attacked", "share", less=True),
        Column("actions changed", "share", less=True),
    ]  # fmt: skip
    lead = (
        f"Every attack on the same {agent.report.episodes} episodes. The change is of paired episodes, and has an "
        "interval of its own."
    )
    notes = notes_of(rows)
    if len(rows) > _MOST_ROWS:
        notes.append(f"The table has the {_MOST_ROWS} lowest returns alone; the file of rows has all.")
    return _led(lead, [Table(
        "All attacks", "attack", columns, lines, mean_limits(rows, agent.clean), agent.clean.mean,
        notes=notes, sortable=True,
        focus=f"eps about {eps_text(eps)}" if eps and sum(line.focus for line in lines) > 2 else "",
    )])  # fmt: skip


def _of_kind(kind: Kind, agent: AgentSections, said: Verdict) -> list[Part]:
    rows = agent.of(kind)
    return _led(_KINDS[kind][1], [_rows_table("", rows, agent.clean)] if rows else [])


def _measures(agent: AgentSections, said: Verdict) -> list[Part]:
    """Metrics of episodes beside the return, and distances of what an attack shows, as far as rows have them."""
    rows = [agent.clean, *sorted(agent.attacked, key=lambda row: row.mean)][:_MOST_ROWS]
    metrics = dict.fromkeys(name for row in rows for name in row.row.metrics)
    distances = dict.fromkeys(name for row in rows for name, value in row.row.distances.items() if value is not None)
    # a column for every metric and distance that any row has
    lines = [
        TableLine(row.label, [
            row.returned,
            *(str(row.row.metric(name)) if name in row.row.metrics else None for name in metrics),
            *(row.row.distances.get(name) for name in distances),
        ])
        for row in rows
    ]  # fmt: skip
    columns = [*(Column(name, "text") for name in metrics), *map(Column, distances)]
    lead = (
        "What was measured beside the return: metrics of episodes with their 95% interval, and distances of the "
        "attacked observations to the true ones, by which an attack that takes much and changes little is known."
    )
    table = Table("Other measures", "attack", [Column("mean return"), *columns], lines)
    return _led(lead, [table] if columns else [])


def _pictures(agent: AgentSections, said: Verdict) -> list[Part]:
    """Attacked steps, then a film, as far as a page has room for them."""
    parts, room = list[Part](), LARGEST_PICTURES  # bytes that are left
    given = [
        (one.title, {"true": one.true, "shown to the agent": one.shown, "difference, amplified": one.difference})
        for one in agent.choices.frames
    ]
    for title, files in [*given, ("", {"a film of an episode under attack": agent.choices.film})]:
        uris = {name: uri for name, file in files.items() if (uri := embedded(agent.choices.folder, file))}
        size = sum(map(len, uris.values()))
        left_out = Paragraph(f"{title or 'The film'} is left out: the page would be too large.", "note")
        parts += [Pictures(title, uris, not title) if size <= room else left_out] if uris else []
        room -= size if size <= room else 0
    return _led("What the environment showed, what the attack made of it, and the difference.", parts)


def _episodes(agent: AgentSections, said: Verdict) -> list[Part]:
    """The returns of every episode of the run without an attack and of those that tell most."""
    lowest = sorted(agent.attacked, key=lambda row: row.mean)
    of_kinds = {row.kind: row for row in reversed(lowest)}.values()
    # the strongest of a small eps may be the run without an attack
    telling = [*{id(row): row for row in [agent.clean, *agent.strongest.values(), *of_kinds, *lowest]}.values()]
    # the clean run, then as many others as fit
    rows = [agent.clean, *sorted(telling[1:_MOST_RUNS], key=lambda row: -row.mean)]
    lines = [
        TableLine(
            row.label, [row.returned, row.row.median, row.row.min, row.row.max], bar=row.returned,
            tone=_tone(row), episodes=row.row.returns,
        )
        for row in rows
    ]  # fmt: skip
    columns = [Column("mean return"), Column("median", less=True), Column("lowest"), Column("highest")]
    limits = limits_of([row.row[end] for row in rows for end in ("min", "max")])
    legend = [("tick", "an episode"), *_LEGEND]
    table = Table("Each episode's return", "attack", columns, lines, limits, agent.clean.mean, legend=legend)
    return _led("A mean can hide that most episodes are kept and some are lost. Every mark is one episode.", [table])


def _untried(agent: AgentSections, said: Verdict) -> list[Part]:
    choices, lines = agent.choices, list[TableLine]()
    for one in choices.untried:
        lines.append(TableLine(one.threat, [one.why, f"about {duration(one.seconds)}" if one.seconds else ""]))
    columns = [Column("what it is for", "text"), Column("takes", "text")]
    parts: list[Part] = [Command(choices.more)] if choices.more else []
    lead = f"Attacks that did not fit into the time.{' With so many minutes they do:' if parts else ''}"
    return _led(lead, [*parts, Table("With more time", "attack", columns, lines)]) if lines else []


def _cannot(agent: AgentSections, said: Verdict) -> list[Part]:
    return [Listing([(sentence, "") for sentence in said.cannot_tell])]


def _names(agent: AgentSections, said: Verdict) -> list[Part]:
    """A sentence on each attack that was played; none on an attack of somebody's own."""
    found = dict[str, list[str]]()
    for part in (part for row in agent.attacked for part in row.row.threat.split(" + ")):
        name = part.partition(":")[0].partition(" (")[0].strip()
        preset = presets.get(name)
        if words := _UNLISTED.get(name, "" if preset is None else preset.summary):
            found[shown_text(name)] = [words]
    return [Facts(dict(sorted(found.items())))] if found else []


def _protocol(agent: AgentSections, said: Verdict) -> list[Part]:
    parts, warnings = list[Part](), [*agent.report.warnings]
    for row in sorted(agent.attacked, key=lambda row: -len(row.name)):  # named as everywhere on the page
        warnings = [text.replace(row.name, row.label) for text in warnings]
    if warnings:
        parts += [Paragraph("Warnings", "h3"), Listing([(one, "") for one in warnings], "plain warnings")]
    parts.append(Facts({name: [text] for name, text in protocol_of(agent).items()}))
    names = [row.name for row in agent.attacked]
    if names != [row.label for row in agent.attacked]:
        parts.append(Details("Every threat in full", Listing([(name, "") for name in names[:_MOST_ROWS]])))
    if agent.choices.command:
        parts += [Paragraph("Play it again", "h3"), Command(agent.choices.command)]
    return parts


_SECTIONS: tuple[tuple[str, str, Callable[[AgentSections, Verdict], list[Part]]], ...] = (
    ("next", "What to do next", _next),
    ("sweep", "Return over eps", _sweep),
    ("eps", "What an eps means", _eps),
    ("attacks", "All attacks", _attacks),
    *((kind, words.capitalize(), partial(_of_kind, kind)) for kind, (words, _) in _KINDS.items() if kind != "sweep"),
    ("measures", "Other measures", _measures),
    ("pictures", "What the agent saw", _pictures),
    ("episodes", "Each episode", _episodes),
    ("untried", "With more time", _untried),
    ("cannot", "What this cannot tell", _cannot),
    ("names", "What the attacks do", _names),
    ("protocol", "Protocol", _protocol),
)


def _kind_words(row: AttackRow) -> str:
    """What a row varies; an attack on some keys of an observation is none on all of its features."""
    return f"all of {', '.join(row.keys)}" if row.kind == "sweep" and row.keys else _KINDS[row.kind][0]


def protocol_of(agent: AgentSections) -> dict[str, str]:
    """How the figures came about, by name."""
    report, choices = agent.report, agent.choices
    kwargs = ", ".join(f"{key}={value!r}" for key, value in (report.env.get("kwargs") or {}).items())
    made, lowest = report.env.get("make"), report.minimum.get("value")
    # facts that are not known are left out
    lines = {
        "Agent": agent.victim,
        "Weights": str(report.victim.get("fingerprint") or "not known"),
        "Acts by": _SELECTS.get(str(report.victim.get("select")), ""),
        "Environment": agent.environment
        + (f" with {kwargs}" if kwargs else "")
        + (f", made by {made}" if made else ""),
        "Episodes": f"{report.episodes} for every attack, the same ones; {report.num_envs} side by side",
        "Seed": f"{report.seed}, from which every episode's seed is drawn",
        "Budgets": "; ".join(
            f"{sweep.budget}: eps {', '.join(eps_text(eps) for eps in sweep.strongest if eps)}"
            for sweep in agent.sweeps
        ),
        "Lowest return": "" if lowest is None else f"{lowest:g}, by the environment's rewards",
        "Integers": "observations became floats" if report.quantize is False else "",
        "Time": "" if choices.seconds is None else f"{choices.seconds:.0f} seconds",
        "Device": report.device,
        "Releases": ", ".join(f"{name} {version}" for name, version in report.versions.items()),
        "Revision": report.git or "",
    }
    return {name: value for name, value in lines.items() if value}
