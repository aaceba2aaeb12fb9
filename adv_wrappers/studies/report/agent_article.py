"""What a page says of one report, section by section: each is a function from its rows and verdict to its parts."""

from __future__ import annotations

import itertools
import json
import shlex
from collections.abc import Callable, Mapping, Sequence

from adv_wrappers.evaluation.confidence_intervals import footnotes
from adv_wrappers.evaluation.report import number_text
from adv_wrappers.studies.report.article import (
    FILMS,
    LARGEST_PICTURES,
    PICTURES,
    Article,
    Command,
    Details,
    Facts,
    Figures,
    Headline,
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
from adv_wrappers.studies.report.sections import AgentSections, AttackRow, Kind, Sweep, with_search_named
from adv_wrappers.studies.report.verdict import NEAR, Verdict, verdict
from adv_wrappers.threats.presets import presets
from adv_wrappers.utils.parsing import duration

_MOST_ROWS = 500  # of the table of attacks
_MOST_RUNS = 12  # lines of the chart of episodes
_MOST_RETURNS = 3000  # of single episodes, in its table
_MOST_LINES = 24  # of a table of one kind of attack
_LONGEST_COMMAND = 8000  # letters
_SELECTS = {"mode": "its most likely action", "sample": "a sampled action"}
_KINDS: dict[Kind, str] = {
    "clean": "no attack",
    "sweep": "all features",
    "feature": "some features",
    "entries": "other values",
    "moment": "some steps",
    "few": "few steps",
    "action": "actions",
    "daylight": "light and camera",
    "fault": "sensors and channels",
    "dynamics": "body and world",
    "other": "other",
}
_HEADS: dict[Kind, str] = {"feature": "features", "moment": "attacked steps", "few": "attacked steps"}
_LEGEND: Legend = (("attack", "mean and its interval"), ("clean", "no attack"))
_UNLISTED = {  # what was made for the agent, and is played as a record or by a network
    "<recorded>": "What a search over the saved states of whole episodes found, played again.",
    "learned": "An adversary that was trained to lower the agent's return: a network chooses every perturbation.",
}


def article_of(agent: AgentSections, id: str, several: bool) -> Article:
    """What a page says of a report; ``several`` where there are others on it."""
    said = verdict(agent)
    certified = None if said.figure is None else said.figure.certified_eps
    facts = {} if certified is None else {"Certified up to": f"eps {eps_text(certified)}"}
    facts |= said.hurts
    facts |= {"Runs under attack": str(len(agent.attacked)), "Episodes each": str(agent.report.episodes)}
    found = [Section(key, title, parts) for key, title, made in _SECTIONS if (parts := made(agent, said))]
    return Article(
        id,
        "Robustness report",
        agent.victim,
        f"in {agent.environment}" + (f", {agent.episodes}" if several else ""),
        said.sentence,
        figures_of(agent.rows),
        _headline(agent, said),
        facts,
        found,
        agent.choices.finished,
    )


def figures_of(rows: Sequence[AttackRow]) -> Figures:
    """How the returns of some rows are written."""
    return Figures([row.row[key] for row in rows for key in ("mean_return", "min", "max")])


def _headline(agent: AgentSections, said: Verdict) -> Headline | None:
    figure, lowest, number = said.figure, agent.report.minimum.get("value"), figures_of(agent.rows).number
    if figure is None:
        return None
    least = float(lowest) if lowest is not None else 0.0
    left = None
    if figure.of > least and figure.mean >= least:
        left = min((figure.mean - least) / (figure.of - least), 1.0)
    interval = f"95% interval {number(figure.low)} to {number(figure.high)}"
    if figure.caveat:
        episodes = f"{figure.episodes} episode{'' if figure.episodes == 1 else 's'}"
        interval = f"{episodes}, too few or too alike for an interval"
    at = "" if figure.eps is None else f" at eps {eps_text(figure.eps)}"
    return Headline(figure.mean, figure.of, left, f"mean return an episode under {figure.attack}{at}, {interval}")


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


def rows_table(title: str, named: Sequence[tuple[str, AttackRow]], clean: AttackRow, head: str = "attack") -> Table:
    """A line for each of some rows, with its return as a bar; the first ones of many."""
    rows = [row for _, row in named]
    lines = [TableLine(name, [row.returned, row.change], bar=row.returned) for name, row in named[:_MOST_LINES]]
    more = len(named) - _MOST_LINES
    return Table(
        title or "Return under each attack",
        head,
        [Column("mean return"), Column("against no attack", "signed", less=True)],
        lines,
        mean_limits(rows, clean),
        clean.mean,
        title,
        _LEGEND,
        [f"The {more} that hurt least are in the table of all attacks alone."] if more > 0 else (),
    )


def _by_return(title: str, rows: Sequence[AttackRow], clean: AttackRow) -> list[Part]:
    """The table of some rows, the lowest return first; nothing where there are none."""
    named = [(row.label, row) for row in sorted(rows, key=lambda row: row.mean)]
    return [rows_table(title, named, clean)] if named else []


def line_of(name: str, rows: Sequence[tuple[float, AttackRow]], tone: Tone = "other", bold: bool = False) -> Line:
    """Rows over a number."""
    says = f"{name}, " if bold else ""
    return Line(name, [Point(x, row.returned, says + row.label) for x, row in rows], tone, bold)


def _sweep_chart(agent: AgentSections, sweep: Sweep, headline: float | None) -> LineChart:
    """Return over the radius: every attack, the strongest of them with its interval, and the certified return."""
    first, clean = sweep is agent.sweeps[0], sweep.clean
    certificates, unit = (agent.choices.certificates, agent.choices.unit) if first else ((), "")
    lines = [line_of(curve.attack, [(row.eps or 0.0, row) for row in curve.rows]) for curve in sweep.curves]
    lines.append(line_of("strongest so far", sweep.strongest, "attack", bold=True))
    legend = [("attack", "the strongest attack and its interval"), ("other", "each attack"), _LEGEND[1]]
    legend += [("certified", "certified: no attack goes below")] if certificates else []
    mark, marked = None, dict(sweep.strongest).get(headline or 0.0)
    if first and headline and marked:
        mark = headline, marked.mean, f"{number_text(marked.mean)} at eps {eps_text(headline)}"
    counts = {one.episodes for one in certificates} - {None, clean.row.episodes}
    return LineChart(
        f"eps ({unit})" if unit else "eps",
        "mean return of an episode",
        lines,
        mean_limits([row for curve in sweep.curves for row in curve.rows], clean, [one.lower for one in certificates]),
        legend,
        clean.mean,
        sorted((one.eps, one.lower) for one in certificates),
        mark,
        "" if len(agent.sweeps) == 1 and not sweep.keys else f"Budget: {sweep.budget}",
        [f"The certified return is the mean over {', '.join(map(str, counts))} episodes."] if counts else (),
    )


# The sections: what each has of a report and its verdict; nothing where there is nothing to say.


def _next(agent: AgentSections, said: Verdict) -> list[Part]:
    return [Listing([(step.what, step.command) for step in said.next], "steps")] if said.next else []


def _sweep(agent: AgentSections, said: Verdict) -> list[Part]:
    lead = "An attack reaches the thick line; one that was not tried may get below it."
    if agent.choices.certificates:
        lead = (
            "The truth about the worst attack lies between the two thick lines: an attack reaches the upper one, and "
            "no attack gets below the lower one."
        )
    parts: list[Part] = [
        Paragraph(f"How much of the return is left as an attack may change observations by more. {lead}", "lead")
    ]
    for sweep in agent.sweeps:
        if len(sweep.strongest) > 2 or (sweep is agent.sweeps[0] and agent.choices.certificates):
            parts.append(_sweep_chart(agent, sweep, said.figure.eps if said.figure else None))
        else:  # a line between no attack and a single eps would show nothing that was played
            title = f"At eps {eps_text(sweep.strongest[-1][0])}: {sweep.budget}"
            parts += _by_return(title, [row for curve in sweep.curves for row in curve.rows], agent.clean)
    return parts if agent.sweeps else []


def _entries(agent: AgentSections, said: Verdict) -> list[Part]:
    lead = (
        "An attack shows the agent other values of so many entries of its observation, or of all of them, however far "
        "from the true ones: those of discrete spaces have no distance, and so no eps. It does so at every step, "
        "unless a share of the steps is named."
    )
    return _led(lead, _by_return("", agent.of("entries"), agent.clean))


def _led(lead: str, parts: Sequence[Part]) -> list[Part]:
    """Parts below a first sentence; nothing without any."""
    return [Paragraph(lead, "lead"), *parts] if parts else []


def _eps(agent: AgentSections, said: Verdict) -> list[Part]:
    """What an eps of the verdict amounts to in every feature, and why the budgets were chosen."""
    choices, eps, parts = agent.choices, said.figure.eps if said.figure else None, list[Part]()
    if agent.sweeps:
        words = f"Budget: {agent.sweeps[0].budget}"
        if choices.unit:
            words += f". Eps is {'a share' if choices.unit.startswith('of ') else 'counted in'} {choices.unit}"
        if not choices.played:
            words += (
                ". How wide each feature ranges is not in these rows: compare with the environment's observation space"
            )
        parts.append(Paragraph(f"{words}.", "lead"))
    parts += [Paragraph(_with_labels(agent, reason)) for reason in choices.reasons]
    lines = list[TableLine]()
    for feature, unit in zip(choices.features or (), choices.scale or itertools.repeat(1.0), strict=False):
        cells: list[Cell] = [None, feature.std]
        width = 0.0
        if feature.low is not None and feature.high is not None:
            cells[0], width = f"{eps_text(feature.low)} to {eps_text(feature.high)}", feature.high - feature.low
        if eps is not None:
            cells += [f"± {eps_text(eps * unit)}", eps * unit / width if width else None]
        lines.append(TableLine(feature.name, cells))
    if lines:
        columns = [Column("range", "text"), Column("standard deviation", "eps", less=True)]
        if eps is not None:
            columns += [Column(f"moved by eps {eps_text(eps)}", "text"), Column("of its range", "share", less=True)]
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
        near = bool(row.eps and eps and eps / NEAR <= row.eps <= eps * NEAR)
        cells: list[Cell] = [
            row.returned,
            None if clean else row.change,
            row.eps,
            one.min,
            one.attacked_fraction,
            one.action_change,
        ]
        under = "" if clean else _kind_words([row])
        line = TableLine(row.label, cells, under, row.returned, _tone(row), kind=row.kind, focus=clean or near)
        lines.append(line)
    columns = [
        Column("mean return"), Column("against no attack", "signed"), Column("eps", "eps", less=True),
        Column("worst episode", less=True), Column("steps attacked", "share", less=True),
        Column("actions changed", "share", less=True),
    ]  # fmt: skip
    lead = (
        f"Every attack on the same {agent.report.episodes} episodes. The change is of paired episodes, and has an "
        "interval of its own."
    )
    kinds = [
        (kind, _kind_words(own)) for kind in _KINDS if (own := [one for one in agent.attacked if one.kind == kind])
    ]
    notes = notes_of(rows)
    if len(rows) > _MOST_ROWS:
        notes.append(f"The table has the {_MOST_ROWS} lowest returns alone; the file of rows has all.")
    return _led(lead, [Table(
        "All attacks", "attack", columns, lines, mean_limits(rows, agent.clean), agent.clean.mean,
        notes=notes, sortable=True,
        kinds=kinds if len(kinds) > 1 else [],
        focus=f"eps about {eps_text(eps)}" if eps and sum(line.focus for line in lines) > 2 else "",
    )])  # fmt: skip


def _features(agent: AgentSections, said: Verdict) -> list[Part]:
    lead = (
        "One attack that may change only the features named on its line. The lower the return, the more the agent "
        "relies on this feature."
    )
    names = {id(row): f"{row.names}, eps {eps_text(row.eps or 0.0)}" for row in agent.of("feature")}
    return _led(lead, _groups(agent, "feature", "One feature at a time", names))


def _moments(agent: AgentSections, said: Verdict) -> list[Part]:
    lead = (
        "One attack that acts in a window of steps alone. A window takes nothing of what was earned before it: a late "
        "one may cost less even where it ends the episode."
    )
    names = {id(row): f"steps {row.window[0]} to {row.window[1] - 1}" for row in agent.of("moment") if row.window}
    return _led(lead, _groups(agent, "moment", "One window of steps at a time", names))


def _few(agent: AgentSections, said: Verdict) -> list[Part]:
    names = {id(row): f"at most {row.count} step{'' if row.count == 1 else 's'}" for row in agent.of("few")}
    lead = "How the return falls with the number of steps of an episode that an attack may change."
    return _led(lead, _groups(agent, "few", "Some steps alone", names))


def _groups(agent: AgentSections, kind: Kind, title: str, names: Mapping[int, str]) -> list[Part]:
    """A table for each attack whose rows of a kind differ in what they are named by."""
    parts = list[Part]()
    for curve in agent.curves(kind):
        rows = sorted(curve.rows, key=lambda row: row.mean) if kind == "feature" else curve.rows
        named = [(names[id(row)], row) for row in rows]
        parts.append(rows_table(f"{title}: {curve.attack}", named, agent.clean, _HEADS[kind]))
    return parts


def _natural(agent: AgentSections, said: Verdict) -> list[Part]:
    named: dict[Kind, tuple[str, str]] = {
        "daylight": ("Light and camera", "natural changes of light and camera, which need no adversary"),
        "fault": ("Sensors and channels", "sensors and messages that fail, each in one size"),
        "dynamics": ("Body and world", "a heavier or lighter body, other friction, weaker or stronger motors"),
        "action": ("Attacks on actions", "changes of the actions on their way to the environment"),
    }
    leads, parts = list[str](), list[Part]()
    for kind, (title, lead) in named.items():
        if rows := agent.of(kind):
            leads.append(lead)
            parts += _by_return(title, rows, agent.clean)
    return _led(f"{'; '.join(leads)}.".capitalize(), parts)


def _other(agent: AgentSections, said: Verdict) -> list[Part]:
    return _led("Stacks of attacks, other timings and other budgets.", _by_return("", agent.of("other"), agent.clean))


def _measures(agent: AgentSections, said: Verdict) -> list[Part]:
    """Metrics of episodes beside the return, and distances of what an attack shows, as far as rows have them."""
    metrics = [*dict.fromkeys(name for row in agent.rows for name in row.row.metrics)]
    distances = [
        *dict.fromkeys(name for row in agent.rows for name, value in row.row.distances.items() if value is not None)
    ]
    lines = list[TableLine]()
    for row in [agent.clean, *sorted(agent.attacked, key=lambda row: row.mean)][:_MOST_ROWS]:
        cells: list[Cell] = [row.returned]
        for name in metrics:
            found = row.row.metric(name) if name in row.row.metrics else None
            cells.append(None if found is None else str(found))
        lines.append(TableLine(row.label, [*cells, *(row.row.distances.get(name) for name in distances)]))
    columns = [
        Column("mean return"),
        *(Column(name, "text") for name in metrics),
        *(Column(name, "other") for name in distances),
    ]
    lead = (
        "What was measured beside the return: metrics of episodes with their 95% interval, and distances of the "
        "attacked observations to the true ones, by which an attack that takes much and changes little is known."
    )
    return _led(lead, [Table("Other measures", "attack", columns, lines)]) if metrics or distances else []


def _pictures(agent: AgentSections, said: Verdict) -> list[Part]:
    """Attacked steps, then a film, as far as a page has room for them."""
    parts, room, missing = list[Part](), LARGEST_PICTURES, list[str]()  # parts, bytes that are left, notes
    for frame in agent.choices.frames:
        named = {"true": frame.true, "shown to the agent": frame.shown, "difference, amplified": frame.difference}
        found = {name: uri for name, path in named.items() if (uri := embedded(path, PICTURES))}
        size = sum(map(len, found.values()))
        if size > room:
            missing.append("Pictures are left out")
        elif found:
            room -= size
            parts.append(Pictures(frame.title, found))
    if film := embedded(agent.choices.film, FILMS):
        if len(film) > room:
            missing.append("The film is left out")
        else:
            parts.append(Pictures("", {"a film of an episode under attack": film}, True))
    for what in dict.fromkeys(missing):
        parts.append(Paragraph(f"{what}: the page would be too large.", "note"))
    return _led("What the environment showed, what the attack made of it, and the difference.", parts)


def _episodes(agent: AgentSections, said: Verdict) -> list[Part]:
    """The returns of every episode of the run without an attack and of those that tell most."""
    lowest = sorted(agent.attacked, key=lambda row: row.mean)
    strongest = [row for sweep in agent.sweeps[:1] for _, row in sweep.strongest]
    kinds = [next(row for row in lowest if row.kind == kind) for kind in dict.fromkeys(row.kind for row in lowest)]
    telling = [*{id(row): row for row in [agent.clean, *strongest, *kinds, *lowest]}.values()][:_MOST_RUNS]
    rows = [agent.clean, *sorted(telling[1:], key=lambda row: -row.mean)]
    lines = [
        TableLine(
            row.label, [row.returned, row.row.median, row.row.min, row.row.max], bar=row.returned,
            tone=_tone(row), episodes=row.row.returns,
        )
        for row in rows
    ]  # fmt: skip
    columns = [Column("mean return"), Column("median", less=True), Column("lowest"), Column("highest")]
    limits = limits_of([row.row[end] for row in rows for end in ("min", "max")])
    parts: list[Part] = [
        Table(
            "Each episode's return",
            "attack",
            columns,
            lines,
            limits,
            agent.clean.mean,
            legend=[("tick", "an episode"), *_LEGEND],
        )
    ]
    seeds = agent.report.episode_seeds
    if len(rows) * len(seeds) <= _MOST_RETURNS:
        single = [
            TableLine(
                str(seed), [run.returns[i] if i < len(run.returns) else None for run in (row.row for row in rows)]
            )
            for i, seed in enumerate(seeds)
        ]
        table = Table("Returns by the seed of the episode", "seed", [Column(row.label) for row in rows], single)
        parts.append(Details("Returns by the seed of the episode", table))
    return _led("A mean can hide that most episodes are kept and some are lost. Every mark is one episode.", parts)


def _untried(agent: AgentSections, said: Verdict) -> list[Part]:
    choices, lines = agent.choices, list[TableLine]()
    for one in choices.untried:
        lines.append(TableLine(one.threat, [one.why, f"about {duration(one.seconds)}" if one.seconds else ""]))
    columns = [Column("what it is for", "text"), Column("takes", "text")]
    parts: list[Part] = [Command(choices.more)] if choices.more else []
    lead = f"Attacks that did not fit into the time.{' With so many minutes they do:' if parts else ''}"
    return _led(lead, [*parts, Table("With more time", "attack", columns, lines)]) if lines else []


def _cannot(agent: AgentSections, said: Verdict) -> list[Part]:
    return [Listing([(_with_labels(agent, sentence), "") for sentence in said.cannot_tell])]


def _names(agent: AgentSections, said: Verdict) -> list[Part]:
    """A sentence on each attack that was played; none on an attack of somebody's own."""
    found = dict[str, list[str]]()
    for row in agent.attacked:
        for part in row.row.threat.split(" + "):
            name = part.partition(":")[0].partition(" (")[0].strip()
            preset = presets.get(name)
            if words := _UNLISTED.get(name, "" if preset is None else preset.summary):
                found[with_search_named(name)] = [words]
    return [Facts(dict(sorted(found.items())))] if found else []


def _protocol(agent: AgentSections, said: Verdict) -> list[Part]:
    parts, warnings = list[Part](), agent.report.warnings
    if warnings:
        parts += [
            Paragraph("Warnings", "h3"),
            Listing([(_with_labels(agent, one), "") for one in warnings], "plain warnings"),
        ]
    parts.append(Facts({name: [text] for name, text in protocol_of(agent).items()}))
    names = [row.name for row in agent.attacked]
    if names != [row.label for row in agent.attacked]:
        parts.append(Details("Every threat in full", Listing([(name, "") for name in names[:_MOST_ROWS]])))
    again = agent.choices.command or _evaluate_command(agent)
    parts.append(Paragraph("Play it again", "h3"))
    parts.append(
        Command(again)
        if again
        else Paragraph(
            "No single command plays this again: the agent, the environment or a threat has no name that a command "
            "could give, or there are too many threats."
        )
    )
    return parts


_SECTIONS: tuple[tuple[str, str, Callable[[AgentSections, Verdict], list[Part]]], ...] = (
    ("next", "What to do next", _next),
    ("sweep", "Return over eps", _sweep),
    ("entries", "Other values", _entries),
    ("eps", "What an eps means", _eps),
    ("attacks", "All attacks", _attacks),
    ("feature", "Which features", _features),
    ("moment", "Which moments", _moments),
    ("few", "How few steps", _few),
    ("natural", "Faults and changes", _natural),
    ("other", "Other attacks", _other),
    ("measures", "Other measures", _measures),
    ("pictures", "What the agent saw", _pictures),
    ("episodes", "Each episode", _episodes),
    ("untried", "With more time", _untried),
    ("cannot", "What this cannot tell", _cannot),
    ("names", "What the attacks do", _names),
    ("protocol", "Protocol", _protocol),
)


def _with_labels(agent: AgentSections, text: str) -> str:
    """A sentence in which rows are named as everywhere on the page."""
    for row in sorted(agent.attacked, key=lambda row: -len(row.name)):
        text = text.replace(row.name, row.label)
    return text


def _kind_words(rows: Sequence[AttackRow]) -> str:
    """What rows of one kind vary; an attack on some keys of an observation is none on all of its features."""
    keys = {row.keys for row in rows}
    if rows[0].kind != "sweep" or keys == {()}:
        return _KINDS[rows[0].kind]
    return f"all of {', '.join(*keys)}" if len(keys) == 1 else "all of some keys"


def _evaluate_command(agent: AgentSections) -> str:
    """The command that plays the rows again; "" where it is too long, or something has no name for it."""
    report = agent.report
    ref = report.victim.get("ref")
    threats = [row.row.threat for row in agent.attacked]
    if not ref or "make" in report.env or any("<" in threat or " #" in threat for threat in threats):
        return ""
    words = ["adv-wrappers", "evaluate", agent.environment, "--victim", str(ref)]
    for threat in threats:
        words += ["--threat", threat]
    words += ["--episodes", str(report.episodes), "--seed", str(report.seed), "--num-envs", str(report.num_envs)]
    if report.env.get("kwargs"):
        words += ["--env-kwargs", json.dumps(report.env["kwargs"])]
    if report.quantize is False:
        words.append("--no-quantize")
    command = shlex.join([*words, "--out", "FOLDER"])
    return command if len(command) <= _LONGEST_COMMAND else ""


def protocol_of(agent: AgentSections) -> dict[str, str]:
    """How the figures came about, by name."""
    report, choices = agent.report, agent.choices
    kwargs = ", ".join(f"{key}={value!r}" for key, value in (report.env.get("kwargs") or {}).items())
    made = f", made by {report.env['make']}" if report.env.get("make") else ""
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    time = f"{choices.seconds:.0f} seconds" if choices.seconds is not None else ""
    given = f" of the {60 * choices.minutes:.0f} that were given" if time and choices.minutes is not None else ""
    budgets = "; ".join(
        f"{sweep.budget}: eps {', '.join(eps_text(eps) for eps, _ in sweep.strongest if eps)}" for sweep in agent.sweeps
    )
    lowest = report.minimum.get("value")
    drawn = any(row.row.best_of > 1 for row in agent.rows)
    lines = {
        "Agent": agent.victim,
        "Weights": str(report.victim.get("fingerprint") or "not known"),
        "Acts by": _SELECTS.get(str(report.victim.get("select")), ""),
        "Environment": agent.environment + (f" with {kwargs}" if kwargs else "") + made,
        "Episodes": f"{report.episodes} for every attack, the same ones; {report.num_envs} side by side",
        "Seed": f"{report.seed}, from which every episode's seed is drawn",
        "Budgets": budgets,
        "Lowest return": "" if lowest is None else f"{lowest:g}, by the environment's rewards",
        "Chosen by": f"the lowest {report.by} of several draws" if drawn else "",
        "Integers": "observations became floats" if report.quantize is False else "",
        "Time": time + given,
        "Device": report.device,
        "Releases": versions,
        "Revision": report.git or "",
    }
    return {name: value for name, value in lines.items() if value}
