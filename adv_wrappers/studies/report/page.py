"""The page of a report: one file of HTML that needs nothing else, neither other files nor a network.

Names of agents, environments and threats are texts of strangers: the templates escape all of them, and the page's own
content security policy lets nothing be loaded and no script run but the one that stands in it.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import itertools
import json
import math
import re
import shlex
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from adv_wrappers.errors import OutputError
from adv_wrappers.evaluation.report import Report
from adv_wrappers.evaluation.statistics import LEAST_EPISODES, MeanWithInterval, footnotes
from adv_wrappers.studies.report.charts import (
    Chart,
    bar_place,
    distance_chart,
    episode_chart,
    episode_limits,
    eps_text,
    feature_chart,
    few_chart,
    moment_chart,
    rows_chart,
    sweep_chart,
)
from adv_wrappers.studies.report.choices import AttackedFrame
from adv_wrappers.studies.report.sections import (
    AgentSections,
    AttackRow,
    Kind,
    StoredReports,
    known_features,
    read_reports,
    sorted_report,
)
from adv_wrappers.studies.report.verdict import NEAR, Verdict, verdict
from adv_wrappers.threats.presets import presets
from adv_wrappers.utils.files import probe_file, write

if TYPE_CHECKING:
    import jinja2

GENERATOR = "adv_wrappers report"  # of the meta tag by which a page is known as ours
LARGEST_PAGE = 3_000_000  # bytes
_DASH, _MINUS = "\N{EN DASH}", "\N{MINUS SIGN}"
_MOST_AGENTS = 12  # that are shown in full
_MOST_RUNS = 12  # lines of the chart of episodes
_MOST_RETURNS = 3000  # of single episodes, in its table
_FEW_ROWS = 500  # of the table of attacks, where not all have room
_LONGEST_COMMAND = 8000  # letters
_TOO_LARGE = {"uri": ""}  # in place of a picture that alone is larger than a page
_PICTURES = {".png": "image/png", ".gif": "image/gif", ".webp": "image/webp", ".jpg": "image/jpeg"}
_FILMS = {**_PICTURES, ".mp4": "video/mp4"}
_SELECTS = {"mode": "its most likely action", "sample": "a sampled action"}
_KINDS = {
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

_UNLISTED = {  # what was made for the agent, and is played as a record or by a network
    "<recorded>": "What a search over the saved states of whole episodes found, played again.",
    "learned": "An adversary that was trained to lower the agent's return: a network chooses every perturbation.",
}

PAGE_FILE = "report.html"  # in the folder of a report, beside its rows


def write_page(source: str | Path | Report | Sequence[Report], out: str | Path) -> Path:
    """Write what a folder or store of rows holds as one page of HTML, of less than 3 MB.

    Args:
        source: a folder that ``evaluate``, a suite or a report wrote, or a file of rows (:class:`.Store`); or the
            reports that ``evaluate`` returned, one or several.
        out: the file to be written; a page of an earlier call is replaced, any other file is not.

    Returns:
        ``out``.

    Raises:
        ValueRangeError: where there are no rows to show, or ``choices.json`` is not of its form.
        StoreError: for a file that is damaged, something else, or of another release.
        OutputError: for a file that cannot be written, is there and is no page of ours, or would be too large.
    """
    path = Path(out)
    check_target(path)
    if isinstance(source, (str, Path)):
        stored = read_reports(source)
    else:
        reports = [source] if isinstance(source, Report) else source
        stored = StoredReports(Path("what evaluate returned"), tuple(map(sorted_report, reports)), (), {})
    write(path, page_of(stored, path.name))
    return path


def check_target(path: Path) -> None:
    """Raise :class:`OutputError` unless a page can be written there, now: over a page of ours, or where nothing is."""
    probe_file(path)
    if path.exists():
        try:
            with path.open("rb") as file:
                head = file.read(2000)
        except OSError as error:
            raise OutputError(f"cannot read {path}, which is there already: {error.strerror}") from error
        if f'<meta name="generator" content="{GENERATOR}">'.encode() not in head:
            raise OutputError(f"{path} is there and is no page of adv_wrappers: give the name of another file")


@dataclass(frozen=True)
class Room:
    """How much of some reports goes onto their page."""

    film: bool = True
    frames: bool = True
    agents: int = 1  # in full
    rows: int | None = None  # of the table of a report, those of the lowest returns; None for all


class Column(NamedTuple):
    """A column of the table of attacks.

    Attributes:
        name: its head.
        cells: by row its number, or None.
        share, signed: whether they are shares, or differences that have their sign.
        less: whether it is left out of narrow windows.
    """

    name: str
    cells: Sequence[MeanWithInterval | float | None]
    share: bool = False
    signed: bool = False
    less: bool = False


@dataclass(frozen=True)
class AttackTable:
    """The table of all rows.

    Attributes:
        rows: the rows, which have their name and eps in it.
        columns: what else it has.
        footnotes: what marks mean.
        bars: of every row the places of the clean mean, of both ends of its interval and of its mean, 0 to 100.
        kinds: kinds of rows with their words, to choose from.
        focus: whether a row is about the eps of the verdict; empty where that is no choice.
    """

    rows: Sequence[AttackRow]
    columns: Sequence[Column]
    footnotes: Sequence[str]
    bars: Sequence[Sequence[str]] = ()
    kinds: Sequence[tuple[str, str]] = ()
    focus: Sequence[bool] = ()


def page_of(stored: StoredReports, name: str) -> bytes:
    """The page of some reports; what is left out where it would be too large is said on it.

    Raises:
        OutputError: where it is too large even so.
    """
    few = min(len(stored.agents), _MOST_AGENTS)
    rooms = [Room(True, True, few), Room(False, True, few), Room(False, False, few)]
    while few > 1:
        few = math.ceil(few / 2)
        rooms.append(Room(False, False, few))
    rooms.append(Room(False, False, 1, _FEW_ROWS))
    articles = list[Article]()
    for room in rooms:
        for agent in stored.agents[len(articles) : room.agents]:
            articles.append(_article(agent, f"a{len(articles)}", len(stored.agents) > 1))
        shown = articles[: room.agents]
        pictures = [article.film for article in shown if room.film]
        pictures += [frame for article in shown if room.frames for frame in article.frames]
        if _TOO_LARGE in pictures:
            continue
        page = _render(stored, shown, room)
        if len(page) <= LARGEST_PAGE:
            return page
    raise OutputError(f"{name} would be larger than {LARGEST_PAGE / 1e6:g} MB: it has too many rows for one page")


def _render(stored: StoredReports, articles: Sequence[Article], room: Room) -> bytes:
    notes = []
    if not room.film and any(article.film for article in articles):
        notes.append("The film is left out, since the page would be larger than 3 MB with it.")
    if not room.frames and any(article.frames for article in articles):
        notes.append("The pictures are left out, since the page would be larger than 3 MB with them.")
    if room.agents < len(stored.agents):
        notes.append(
            f"The first {room.agents} of {len(stored.agents)} reports are shown in full, the others in the first table."
        )
    if room.rows is not None:
        notes.append(f"The table of attacks has the {room.rows} lowest returns alone; the file of rows has all.")
    if stored.left_out:
        some = ", ".join(stored.left_out[:3]) + (", ..." if len(stored.left_out) > 3 else "")
        notes.append(f"Not shown, since there is no run without an attack to compare them with: {some}.")
    if stored.errors:
        first, error = next(iter(stored.errors.items()))
        more = f" and {len(stored.errors) - 1} more" if len(stored.errors) > 1 else ""
        notes.append(f"Not shown, since they failed: {first} ({error}){more}.")
    titles = {f"{agent.victim} in {agent.environment}" for agent in stored.agents}
    return render(
        "page.html",
        articles=articles,
        room=room,
        version=stored.agents[0].report.versions.get("adv_wrappers", ""),
        source=stored.path.name,
        title=next(iter(titles)) if len(titles) == 1 else f"{len(stored.agents)} reports",
        overview=[_overview_line(agent, place < room.agents) for place, agent in enumerate(stored.agents)],
        overview_notes=footnotes([row.row for agent in stored.agents for row in agent.rows]),
        notes=notes,
    )


def render(template: str, **values: Any) -> bytes:
    """A page of a template, with its style and script inside."""
    from markupsafe import Markup

    folder = resources.files(__package__) / "templates"
    style, script = ((folder / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    page = _templates().get_template(template)
    text = page.render(
        generator=GENERATOR, style=Markup(style), script=Markup(script), script_hash=f"sha256-{digest}", **values
    )
    return text.encode()


@functools.cache
def _templates() -> jinja2.Environment:
    """The templates, which are compiled once for all pages of a program."""
    import jinja2
    from markupsafe import Markup

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader(__package__ or "", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["svg"] = lambda chart: Markup(chart)  # of charts.py, which escapes
    environment.filters["kind"] = lambda row: _kind_words([row])
    environment.filters["eps"] = eps_text
    environment.filters["share"] = lambda value: _DASH if value is None else f"{100 * value:.0f}%"
    environment.filters["duration"] = _duration
    environment.filters["breakable"] = lambda text: Markup("<wbr>").join(
        re.split(r"(?<=[,:])(?=[\w-]+=)|(?<=[/;])", str(text))
    )
    environment.tests["mean"] = lambda value: isinstance(value, MeanWithInterval)
    return environment


class Figures:
    """How returns that belong together are written: all with as many decimals, so that columns of them align.

    Args:
        largest: of their magnitudes.
        few: whether none of them has episodes enough for an interval of 95%.
    """

    def __init__(self, largest: float, few: bool = False) -> None:
        self.few = few
        self._decimals = 0 if largest >= 10_000 else 1 if largest >= 20 else 2 if largest >= 1 else 4

    @classmethod
    def of_rows(cls, rows: Sequence[AttackRow]) -> Figures:
        """Those of a report."""
        largest = max((abs(row.row[key]) for row in rows for key in ("mean_return", "min", "max")), default=1.0)
        return cls(largest, all(row.row.episodes < LEAST_EPISODES for row in rows))

    def number(self, value: float | None) -> str:
        """A return; a dash where there is none."""
        if value is None:
            return _DASH
        text = f"{value:.{self._decimals}f}"
        return (_MINUS + text[1:] if text.startswith("-") else text) if float(text) else text.removeprefix("-")

    def signed(self, value: float) -> str:
        """A difference of returns, with its sign."""
        text = self.number(value)
        return text if value < 0 or not float(text) else f"+{text}"


def _overview_line(agent: AgentSections, in_full: bool) -> dict[str, Any]:
    worst = min(agent.attacked, key=lambda row: row.mean, default=None)
    return {"agent": agent, "worst": worst, "in_full": in_full, "figures": Figures.of_rows(agent.rows)}


@dataclass(frozen=True)
class Article:
    """What the template shows of one report, or of two that are compared; empty where it has nothing of it.

    Attributes:
        id: what the ids of its elements begin with.
        title, about: its name, and what stands beside that.
        sentence: what it says first.
        figures: how its returns are written.
        charts: by section.
        table: of all attacks.
        protocol: how the figures came about, by name one text, or one of each report.
        facts: names and values below the sentence.
        said: the verdict of a single report.
        means: names, means and whether they are differences, in place of a verdict's figure.
        notes: what else is to be known first.
        only: of a comparison, by report the names of the attacks that it alone has.
        agent: the single report.
        left: of what can be lost, the share that its verdict's attack leaves.
        eps: what an eps of the verdict amounts to in every feature.
        names: what attacks do.
        frames, film: its pictures.
        returns: of single episodes.
        command: what plays it again.
    """

    id: str
    title: str
    about: str
    sentence: str
    figures: Figures
    charts: Mapping[str, Sequence[Chart]]
    table: AttackTable
    protocol: Mapping[str, Sequence[str]]
    facts: Mapping[str, str]
    said: Verdict | None = None
    means: Sequence[tuple[str, MeanWithInterval, bool]] = ()
    notes: Sequence[str] = ()
    only: Mapping[str, Sequence[str]] = field(default_factory=dict)
    agent: AgentSections | None = None
    left: float | None = None
    eps: Sequence[tuple[Any, ...]] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    frames: Sequence[Mapping[str, Any]] = ()
    film: Mapping[str, str] | None = None
    returns: Mapping[str, Any] | None = None
    command: str = ""

    def with_labels(self, text: str) -> str:
        """A sentence in which rows are named as everywhere on the page."""
        for row in sorted(self.agent.attacked if self.agent else (), key=lambda row: -len(row.name)):
            text = text.replace(row.name, row.label)
        return text


def _article(agent: AgentSections, id: str, several: bool) -> Article:
    """A single report."""
    said, choices = verdict(agent), agent.choices
    certified = None if said.figure is None else said.figure.certified_eps
    facts = {
        "Certified up to": None if certified is None else f"eps {eps_text(certified)}",
        "Weakest feature": said.feature,
        "Weakest moment": said.moment,
        "Worst change of light or camera": said.light,
        "Worst fault of sensors and channels": said.fault,
        "Worst change of body or world": said.dynamics,
        "Strongest attack on actions": said.action,
        "Runs under attack": str(len(agent.attacked)),
        "Episodes each": str(agent.report.episodes),
    }
    return Article(
        id,
        agent.victim,
        f"in {agent.environment}" + (f", {agent.episodes}" if several else ""),
        said.sentence,
        Figures.of_rows(agent.rows),
        named_charts(id, _charts(agent, said)),
        _attacks_table(agent, said),
        {name: [text] for name, text in protocol_of(agent).items()},
        {name: text for name, text in facts.items() if text},
        said,
        agent=agent,
        left=_left(agent, said),
        eps=_eps_lines(agent, said),
        names=_what_attacks_do(agent),
        frames=[found for frame in choices.frames if (found := _frame(frame))],
        film=None if choices.film is None else _embedded(choices.film, _FILMS),
        returns=_episode_table(agent),
        command=choices.command or _evaluate_command(agent),
    )


def named_charts(id: str, charts: Mapping[str, Sequence[Chart]]) -> Mapping[str, Sequence[Chart]]:
    """The charts of an article with ids; no charts of any other section."""
    named = {key: [replace(one, name=f"{id}-{key}-chart{i}") for i, one in enumerate(found)]
             for key, found in charts.items()}  # fmt: skip
    return defaultdict(list, named)


def _charts(agent: AgentSections, said: Verdict) -> dict[str, list[Chart]]:
    """By section, its charts."""
    choices, clean, figure = agent.choices, agent.clean, said.figure
    sweeps = list[Chart]()
    for sweep in agent.sweeps:
        first, alone = not sweeps, len(agent.sweeps) == 1 and not sweep.keys
        proved = choices.certificates if first else ()
        if len(sweep.strongest) > 2 or proved:
            headline = figure.eps if figure and first else None
            sweeps.append(sweep_chart(sweep, proved, choices.unit if first else "", alone, headline))
        else:  # a line between no attack and a single eps would show nothing that was played
            title = f"At eps {eps_text(sweep.strongest[-1][0])}: {sweep.budget}"
            sweeps.append(rows_chart(title, [row for curve in sweep.curves for row in curve.rows], clean))
    natural: dict[Kind, str] = {
        "daylight": "Light and camera",
        "fault": "Sensors and channels",
        "dynamics": "Body and world",
        "action": "Attacks on actions",
    }
    measured = defaultdict[str, list[AttackRow]](list)  # by distance
    for row in agent.attacked:
        for name, distance in row.row.distances.items():
            measured[name] += [row] if distance is not None else []
    lowest = agent.report.minimum.get("value")
    return {
        "sweep": sweeps,
        "entries": [rows_chart("Other values", rows, clean, titled=False)] if (rows := agent.of("entries")) else [],
        "feature": [
            feature_chart(curve, clean, known_features(curve.rows[0], choices)) for curve in agent.curves("feature")
        ],
        "moment": [moment_chart(curve, clean) for curve in agent.curves("moment")],
        "few": [few_chart(agent.curves("few"), clean)] if len({row.count for row in agent.of("few")}) > 1 else [],
        "daylight": [rows_chart(natural[kind], rows, clean) for kind in natural if (rows := agent.of(kind))],
        "other": [rows_chart("Other attacks", rows, clean, titled=False)] if (rows := agent.of("other")) else [],
        "distance": [distance_chart(name, rows, clean, lowest) for name, rows in measured.items() if len(rows) > 1],
        "episodes": [episode_chart(_telling_runs(agent))],
    }


def _attacks_table(agent: AgentSections, said: Verdict) -> AttackTable:
    """All rows of a report, those of the lowest returns first."""
    rows, eps = sorted(agent.rows, key=lambda row: row.mean), said.figure.eps if said.figure else None
    limits = episode_limits(rows, [one.lower for one in agent.choices.certificates])
    focus = [row.kind == "clean" or bool(row.eps and eps and eps / NEAR <= row.eps <= eps * NEAR) for row in rows]
    ends = [(agent.clean.mean, row.returned.low, row.returned.high, row.mean) for row in rows]
    kinds = [
        (kind, _kind_words(own)) for kind in _KINDS if (own := [one for one in agent.attacked if one.kind == kind])
    ]
    columns = [
        Column("mean return", [row.returned for row in rows]),
        Column("against no attack", [None if row.kind == "clean" else row.change for row in rows], signed=True),
        Column("worst episode", [row.row.min for row in rows], less=True),
        Column("steps attacked", [row.row.attacked_fraction for row in rows], share=True, less=True),
        Column("actions changed", [row.row.action_change for row in rows], share=True, less=True),
    ]
    return AttackTable(
        rows,
        columns,
        footnotes([row.row for row in rows]),
        [[f"{bar_place(value, limits):.1f}" for value in values] for values in ends],
        kinds if len(kinds) > 1 else [],
        focus if sum(focus) > 2 else [],
    )


def _eps_lines(agent: AgentSections, said: Verdict) -> list[tuple[Any, ...]]:
    """Of every feature what is known of it, how far an eps of the verdict moves it, and which share of its range."""
    eps, lines = said.figure.eps if said.figure else None, []
    for feature, unit in zip(agent.choices.features or (), agent.choices.scale or itertools.repeat(1.0), strict=False):
        change = None if eps is None else eps * unit
        width = None if feature.low is None or feature.high is None else feature.high - feature.low
        lines.append((feature, change, change / width if change is not None and width else None))
    return lines


def _what_attacks_do(agent: AgentSections) -> dict[str, str]:
    """By the name of each attack that was played, a sentence on it; none for an attack of somebody's own."""
    found = dict[str, str]()
    for row in agent.attacked:
        for part in row.row.threat.split(" + "):
            name = part.partition(":")[0].partition(" (")[0].strip()
            preset = presets.get(name)
            if words := _UNLISTED.get(name, "" if preset is None else preset.summary):
                found["episode search" if name == "<recorded>" else name] = words
    return dict(sorted(found.items()))


def _kind_words(rows: Sequence[AttackRow]) -> str:
    """What rows of one kind vary; an attack on some keys of an observation is none on all of its features."""
    keys = {row.keys for row in rows}
    if rows[0].kind != "sweep" or keys == {()}:
        return _KINDS[rows[0].kind]
    return f"all of {', '.join(*keys)}" if len(keys) == 1 else "all of some keys"


def _duration(seconds: float) -> str:
    """A time in words."""
    if seconds < 90:
        return "1 second" if seconds < 1.5 else f"{seconds:.0f} seconds"
    return f"{seconds / 60:.1f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"


def _left(agent: AgentSections, said: Verdict) -> float | None:
    """The share of what can be lost that a verdict's attack leaves, 0 to 1; None where that is not known."""
    figure, lowest = said.figure, agent.report.minimum.get("value")
    least = float(lowest) if lowest is not None else 0.0
    if figure is None or figure.of <= least or figure.mean < least:
        return None
    return min((figure.mean - least) / (figure.of - least), 1.0)


def _telling_runs(agent: AgentSections) -> list[AttackRow]:
    """The run without an attack, the strongest at each eps, the strongest of each kind, and the lowest of the rest."""
    lowest = sorted(agent.attacked, key=lambda row: row.mean)
    strongest = [row for sweep in agent.sweeps[:1] for _, row in sweep.strongest]
    kinds = [next(row for row in lowest if row.kind == kind) for kind in dict.fromkeys(row.kind for row in lowest)]
    found = list({id(row): row for row in [agent.clean, *strongest, *kinds, *lowest]}.values())[:_MOST_RUNS]
    return [agent.clean, *sorted(found[1:], key=lambda row: -row.mean)]


def _episode_table(agent: AgentSections) -> dict[str, Any] | None:
    """The returns of every episode of some runs, by the seeds of their resets."""
    runs = _telling_runs(agent)
    seeds = agent.report.episode_seeds
    if len(runs) * len(seeds) > _MOST_RETURNS:
        return None
    return {"runs": runs, "lines": list(itertools.zip_longest(seeds, *(run.row.returns for run in runs)))}


def _embedded(path: Path, kinds: Mapping[str, str]) -> dict[str, str] | None:
    """A picture or film as a data URI with its kind; None where none is there that browsers show."""
    kind = kinds.get(path.suffix.lower())
    try:
        if kind is None or not path.is_file():
            return None
        if path.stat().st_size > LARGEST_PAGE:
            return _TOO_LARGE
        return {"kind": kind, "uri": f"data:{kind};base64,{base64.b64encode(path.read_bytes()).decode()}"}
    except OSError:
        return None


def _frame(frame: AttackedFrame) -> dict[str, Any] | None:
    """The pictures of an attacked step, as far as they are there."""
    named = (("true", frame.true), ("shown to the agent", frame.shown), ("difference, amplified", frame.difference))
    found = [(name, picture) for name, path in named if path is not None and (picture := _embedded(path, _PICTURES))]
    if any(picture == _TOO_LARGE for _, picture in found):
        return _TOO_LARGE
    return {"title": frame.title, "pictures": [(name, one["uri"]) for name, one in found]} if found else None


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
