"""Two reports beside each other on one page: which agent, or which version of it, keeps more under the same attacks.

Both were played on the same episodes of the same environment, so every difference is one of paired episodes, whose
interval is narrower than those of the two means suggest. Only attacks that both were played under are compared; what
one lacks can be played first.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from adv_wrappers.core.budgets import Linf
from adv_wrappers.core.frame_stack import Newest
from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.environments.environment import Environment, MakeEnv, json_value
from adv_wrappers.errors import AdvWrappersError, ValueRangeError, VictimError
from adv_wrappers.evaluation.episodes import Episodes
from adv_wrappers.evaluation.report import number_text
from adv_wrappers.evaluation.row import Row
from adv_wrappers.evaluation.statistics import MeanWithInterval, caveat, footnotes, paired_difference, summary
from adv_wrappers.evaluation.threat_stacks import as_threat_stack, json_form
from adv_wrappers.studies.report.advice import option_of, words_of_agent
from adv_wrappers.studies.report.charts import difference_chart, eps_text, two_agents_chart
from adv_wrappers.studies.report.choices import ReportChoices
from adv_wrappers.studies.report.page import (
    Article,
    AttackTable,
    Column,
    Figures,
    Room,
    check_target,
    named_charts,
    protocol_of,
    render,
)
from adv_wrappers.studies.report.sections import (
    AgentSections,
    AttackRow,
    StoredReports,
    feature_name,
    read_reports,
    sorted_report,
)
from adv_wrappers.studies.report.trials import Progress, TrialPlayer
from adv_wrappers.studies.report.verdict import error_to_withstand
from adv_wrappers.threats.presets import as_threat
from adv_wrappers.threats.text import without_number
from adv_wrappers.utils.deadline import Deadline, OutOfTime
from adv_wrappers.utils.files import write
from adv_wrappers.utils.limits import Limits, checked
from adv_wrappers.utils.parsing import duration, split_stack
from adv_wrappers.victims import load_victim
from adv_wrappers.victims.victim import Victim

# ----------------------------------------------------------------------------------------------------------------------
# Plays on two agents that are compared what only one of them was played under, so that both met the same attacks.
#
# Every attack of either report is played on both: on the same episodes, under the same eps, counted in the units of the
# first report. The rows are kept in a folder of their own, so that the same call with more minutes goes on.
# ----------------------------------------------------------------------------------------------------------------------


_RESERVE = 2.0  # seconds that are kept for the page


Agents = tuple[AgentSections, AgentSections]


@dataclass
class _Attack:
    """An attack of one of two reports, in the units of the first.

    Attributes:
        name: what a row is called.
        layers: the threats; empty where they cannot be made again.
        why_not: the reason for that.
        rows: that of either report, None where it was not played under it, or in other units.
    """

    name: str
    layers: tuple[ThreatModel, ...]
    why_not: str
    rows: list[AttackRow | None] = field(default_factory=lambda: [None, None])


def play_missing_rows(
    agents: Agents,
    minutes: float,
    folder: Path,
    *,
    trust: bool = False,
    make: MakeEnv | None = None,
    progress: Progress | None = None,
) -> tuple[Agents, list[str]]:
    """Play what only one of two agents was played under on the other.

    Args:
        agents: two reports of the same episodes of one environment.
        minutes: of wall clock.
        folder: for the rows.
        trust: whether files may run code, as for :func:`adv_wrappers.load_victim`.
        make: the function that makes the environment, where the reports were made with one.
        progress: called as ``progress(what, done, of how many)``.

    Returns:
        Both with what was played on them, or as they were where nothing could be; and in sentences what was played,
        what could not be and why, and what there was no time for.
    """
    deadline, players, units = Deadline(60 * minutes), list[TrialPlayer](), agents[0].choices.scale
    try:
        victims = _victim(agents[0], trust), _victim(agents[1], trust)
        attacks = _attacks(agents, victims)
        missing = [(attack, side) for attack in attacks if attack.layers for side in (0, 1) if not attack.rows[side]]
        if not missing:
            return agents, _not_again(attacks)
        for agent, victim, name in zip(agents, victims, ("first", "second"), strict=True):
            about, part = agent.report, folder / name
            episodes = Episodes(about.episodes, about.seed, about.num_envs, quantize=about.quantize is not False)
            part.mkdir(parents=True, exist_ok=True)
            environment = _environment(agent, victim, trust, make)
            players.append(TrialPlayer(victim, environment, episodes, deadline, part))
    except (AdvWrappersError, ImportError, OSError) as error:
        return agents, [f"What only one of them was played under cannot be played on the other: {error}."]
    found: tuple[list[Row], list[Row]] = ([], [])
    failed, late = list[str](), list[float]()  # rows by side, errors, and seconds of those left out
    with closing(players[0]), closing(players[1]):
        for done, (attack, side) in enumerate(missing):
            if progress is not None:
                progress("attacks of one report alone", done, len(missing))
            player = players[side]
            if agents[0].report.num_envs == 1:  # there may be only one environment
                players[1 - side].close()
            try:
                if not player.has_clean:
                    player.reserve = min(_RESERVE, deadline.left / 4)
                    player.play_clean()
                found[side].append(player.play(attack.layers, None, "of both", label=attack.name).row)
            except OutOfTime:
                late.append(player.left_out[-1].seconds)
            except AdvWrappersError as error:
                failed.append(f"{attack.name}: {error}")
    if progress is not None:
        progress("attacks of one report alone", len(missing), len(missing))
    notes = _played(len(missing) - len(late) - len(failed), late) + _not_again(attacks, failed)
    if not any(found) and all(None in attack.rows for attack in attacks):
        return agents, notes  # nothing in common but what either report counts in its own units
    both = []
    for side, agent in enumerate(agents):
        # the run without an attack, the rows that count, and those that were played; in the units of the first
        rows = [agent.clean.row, *(row.row for attack in attacks if (row := attack.rows[side])), *found[side]]
        choices = agent.choices if agent.choices.scale is None else replace(agent.choices, scale=units)
        both.append(sorted_report(replace(agent.report, threats=tuple(rows)), choices))
    return (both[0], both[1]), notes


def _played(count: int, late: Sequence[float]) -> list[str]:
    """How many rows were played, and that there was no time for some, of which each takes so many seconds."""
    played = "row that one of the two lacked was" if count == 1 else "rows that one of the two lacked were"
    notes = [f"{count} {played} played on it, eps in the units of the first."]
    if not late:
        return notes[: min(count, 1)]
    words = f"{len(late)} row{'' if len(late) == 1 else 's'} did not fit into the time, about {duration(sum(late))}"
    return [*notes[: min(count, 1)], f"{words}: the same call with more minutes goes on."]


def _victim(agent: AgentSections, trust: bool) -> Victim:
    """The agent of a report, loaded again; raises :class:`VictimError` unless it is the same."""
    about, words = agent.report.victim, words_of_agent(agent) or []
    if not about.get("ref"):
        raise VictimError(f"{agent.victim} has no reference to load it by")
    found = load_victim(str(about["ref"]), trust=trust, stats=option_of(words, "--stats"), select=about.get("select"))
    if found.fingerprint() != about.get("fingerprint"):
        raise VictimError(f"{about['ref']} holds other weights than those that the report was played with")
    return found


def _environment(agent: AgentSections, victim: Victim, trust: bool, make: MakeEnv | None) -> Environment:
    """The environment of a report, made again; raises :class:`VictimError` where another function would make it."""
    env = agent.report.env
    if make is not None or "make" in env:
        made = Environment(agent.environment, dict(env.get("kwargs") or {}), make)
        if make is None or json_value(made.described) != env:
            by = env.get("make") or "gymnasium.make"
            raise VictimError(f"the environment {agent.environment} is made by {by}: give that as --make")
        return made.for_victim(victim)
    found = Environment.of_file(agent.environment, dict(env.get("kwargs") or {}), "a report", trust)
    return found.for_victim(victim)


def _attacks(agents: Agents, victims: tuple[Victim, Victim]) -> list[_Attack]:
    """The attacks of both reports, those first that are the strongest at an eps of either."""
    units, found = agents[0].choices.scale, dict[str, _Attack]()
    strongest = {id(row) for agent in agents for sweep in agent.sweeps[:1] for _, row in sweep.strongest}
    rows = [(side, row) for side, agent in enumerate(agents) for row in agent.attacked]
    for side, row in sorted(rows, key=lambda one: id(one[1]) not in strongest):
        own, layers = agents[side].choices.scale, row.row.layers
        if (key := _key(row, own)) not in found:
            found[key] = _Attack(row.attack or row.label, *_again(row, own, units, victims[side]))
        # a row of the second report counts where its budget means the same in the units of the first
        if own == units or None in (own, units) or not _is_scaled(layers):
            found[key].rows[side] = row
    return [*found.values()]


def _is_scaled(layers: Any) -> bool:
    """Whether a budget among some layers has a number a feature, which are those of a report's own units."""
    if isinstance(layers, Mapping):
        return isinstance(layers.get("scale"), (list, tuple)) or any(map(_is_scaled, layers.values()))
    return isinstance(layers, (list, tuple)) and any(map(_is_scaled, layers))


def _again(
    row: AttackRow, own: Sequence[float] | None, units: Sequence[float] | None, victim: Victim
) -> tuple[tuple[ThreatModel, ...], str]:
    """The threats of a row in other units, whose victim is open; or why they cannot be played on another agent."""
    kinds = [layer["how"].get("type") if isinstance(layer, Mapping) and isinstance(layer["how"], Mapping) else None
             for layer in row.row.layers]  # fmt: skip
    if "recorded" in kinds or "<recorded>" in row.row.threat:
        return (), "what a search found is for its own agent"
    if "learned" in kinds or row.row.transfer:
        return (), "it was trained against, or aimed at, another agent"
    if row.row.best_of > 1:
        return (), "it is the best of several draws"
    try:
        made = tuple(as_threat(part) for part in split_stack(without_number(row.row.threat)))
        again = [json_form(layer) for layer in as_threat_stack([*made], victim).layers]
        if _in_own_terms(again) != _in_own_terms(row.row.layers):
            return (), "its text does not say all of it"
    except AdvWrappersError as error:
        return (), str(error)
    if own is None or units is None or tuple(own) == tuple(units) or len(own) != len(units):
        return made, ""
    return tuple(replace(threat, within=_in_units(threat.budget, own, units)) for threat in made), ""


def _in_units(budget: Any, own: Sequence[float], units: Sequence[float]) -> Any:
    """A budget whose scale is in one report's units, in those of another."""
    if isinstance(budget, Newest):
        return replace(budget, within=_in_units(budget.within, own, units))
    if not isinstance(budget, Linf) or not isinstance(budget.scale, tuple) or len(budget.scale) != len(own):
        return budget
    scale = (x / mine * unit if mine else x for x, mine, unit in zip(budget.scale, own, units, strict=True))
    return Linf(budget.eps, tuple(float(f"{one:.6g}") for one in scale))


def _not_again(attacks: Sequence[_Attack], failed: Sequence[str] = ()) -> list[str]:
    """What could not be played on the other agent, and why."""
    reasons = dict[str, dict[str, None]]()  # names by reason, each once
    for one in attacks:
        if one.why_not and None in one.rows:
            reasons.setdefault(one.why_not, {})[one.name] = None
    said = [f"{', '.join(names)}: {why}" for why, names in reasons.items()] + [*failed]
    if not said:
        return []
    some = "; ".join(said[:5]) + (f"; and {len(said) - 5} more" if len(said) > 5 else "")
    return [f"Not played on the other: {some}."]


@dataclass(frozen=True)
class Comparison:
    """A page that compares two reports.

    Attributes:
        page: its file.
        sentence: what it says first.
    """

    page: Path
    sentence: str


@checked
def compare_pages(
    a: str | Path,
    b: str | Path,
    out: str | Path,
    minutes: Annotated[float, Limits(0, 1e5)] = 0.0,
    *,
    trust: bool = False,
    make: MakeEnv | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """Write a page that compares two reports, of two agents or of two versions of one.

    Args:
        a, b: folders or files of rows, as for :func:`.write_page`; differences are ``b`` minus ``a``.
        out: the file to be written; a page of an earlier call is replaced, any other file is not.
        minutes: of wall clock, for attacks that one of the two was not played under: they are played on it, with eps in
            the units of the first, and kept in a folder beside ``out``. What cannot be played again is said on the
            page. 0 plays nothing, and compares what both have.
        trust: whether files of victims may run code, as for :func:`adv_wrappers.load_victim`.
        make: the function that makes the environment, where the reports were made with one: no file's is called.
        progress: called as ``progress(what, done, of how many)``.

    Raises:
        ValueRangeError: for reports of different environments or episodes, for files with several that could be
            compared, and where the two have no attack in common.
        StoreError, OutputError: as for :func:`.write_page`.
    """
    path = Path(out)
    check_target(path)
    first, second = _pair(read_reports(a), read_reports(b))
    count, notes = _common_episodes(first, second), list[str]()
    if first.report.episodes != second.report.episodes:
        notes.append(f"Compared are the first {count} episodes, which both were played on.")
    agents = _of_episodes(first, count), _of_episodes(second, count)
    if minutes:
        folder = path.with_name(f"{path.stem}-rows")
        agents, more = play_missing_rows(agents, minutes, folder, trust=trust, make=make, progress=progress)
        notes += more
    article = _article(*agents, notes)
    page = render(
        "page.html", title=" and ".join(_labels(*agents)) + f" in {agents[0].environment}", articles=[article],
        overview=(), notes=(), room=Room(), version=agents[1].report.versions.get("adv_wrappers", ""),
        source=f"{Path(a).name} and {Path(b).name}",
    )  # fmt: skip
    write(path, page)
    return Comparison(path, article.sentence)


def _pair(a: StoredReports, b: StoredReports) -> Agents:
    """The one report of each that can be compared with one of the other."""
    firsts, seconds = ([agent for agent in stored.agents if not agent.part] for stored in (a, b))
    pairs = [(one, other) for one in firsts for other in seconds if not _differences(one, other)]
    if len(pairs) == 1:
        return pairs[0]
    if pairs:
        names = ", ".join(dict.fromkeys(f"{x.victim} ({x.episodes})" for pair in pairs for x in pair))
        raise ValueRangeError(f"{a.path} and {b.path} hold several reports that could be compared, of {names}")
    why = _differences(a.agents[0], b.agents[0])
    raise ValueRangeError(f"{a.path} and {b.path} cannot be compared: {'; '.join(why)}")


def _differences(a: AgentSections, b: AgentSections) -> list[str]:
    """What keeps two reports from being compared."""
    found = []
    if a.report.env != b.report.env:
        found.append(f"they are of the environments {_made(a)} and {_made(b)}")
    if not _common_episodes(a, b):
        counts = [f"{one.report.episodes} episodes of seed {one.report.seed}" for one in (a, b)]
        found.append(f"they played different episodes, {counts[0]} and {counts[1]}")
    if a.report.quantize != b.report.quantize:
        found.append("one rounds integer observations, the other does not")
    return found


def _made(agent: AgentSections) -> str:
    more = {key: value for key, value in agent.report.env.items() if key != "id" and value}
    return agent.environment + (f" {json.dumps(more)}" if more else "")


def _common_episodes(a: AgentSections, b: AgentSections) -> int:
    """How many episodes both played, from the first; 0 where one of the shorter is of another seed."""
    pairs = list(zip(a.report.episode_seeds, b.report.episode_seeds, strict=False))
    return len(pairs) if all(x == y for x, y in pairs) else 0


def _of_episodes(agent: AgentSections, count: int) -> AgentSections:
    """A report of its first episodes alone."""
    if count == agent.report.episodes:
        return agent
    cut = []
    for row in agent.report.threats:
        returns = row.returns[:count]
        cut.append(replace(row, **summary(returns), caveat=caveat(returns), returns=returns, episodes=len(returns)))
    seeds = agent.report.episode_seeds[:count]
    report = replace(agent.report, threats=tuple(cut), episodes=count, episode_seeds=seeds)
    return sorted_report(report, agent.choices)


def _key(row: AttackRow, scale: Sequence[float] | None) -> str:
    """The same for rows of the same threat, each aimed at its own agent, and its budget in units of its own scale."""
    layers = row.row.layers
    threat = row.row.threat if None in layers else _in_own_terms(layers, scale)
    return json.dumps([threat, row.row.transfer, row.row.best_of], sort_keys=True)


def _in_own_terms(value: Any, scale: Sequence[float] | None = None) -> Any:
    """A threat's layers without the agent that they are aimed at, scales as multiples of the agent's own."""
    if isinstance(value, Mapping):
        if "victim" in value and "sha256" in value:
            return "victim"
        found = {key: _in_own_terms(item, scale) for key, item in value.items()}
        given = value.get("scale")
        if value.get("type") == "linf" and scale and isinstance(given, list) and len(given) == len(scale):
            found["scale"] = [round(x / own, 6) if own else x for x, own in zip(given, scale, strict=True)]
        return found
    return [_in_own_terms(item, scale) for item in value] if isinstance(value, (list, tuple)) else value


def _units(agents: Agents, labels: tuple[str, str]) -> str:
    """That an eps is another error for either agent, and by how much; "" where it is the same."""
    one, other = (agent.choices.scale for agent in agents)
    if one is None or other is None or one == other or len(one) != len(other):
        return ""
    i = max(range(len(one)), key=lambda i: abs(math.log(max(one[i], 1e-12) / max(other[i], 1e-12))))
    ranges = f"{eps_text(one[i])} of {labels[0]} and {eps_text(other[i])} of {labels[1]}"
    return (
        "The same eps is another error for either, a share of its own ranges, which differ most in "
        f"{feature_name(i, agents[0].choices.features)}: {ranges}."
    )


def _labels(a: AgentSections, b: AgentSections) -> tuple[str, str]:
    """What tells the two apart: their names, their weights, or the release that played them."""

    def described(agent: AgentSections) -> tuple[str, ...]:
        version = agent.report.versions.get("adv_wrappers", "")
        weights = str(agent.report.victim.get("fingerprint") or "")[:8]
        return agent.victim, f"weights {weights}", f"adv_wrappers {version}"

    name, *more = described(a)
    other, *others = described(b)
    if name != other:
        return name, other
    for one, two in zip(more, others, strict=True):
        if one != two:
            return f"{name}, {one}", f"{other}, {two}"
    return f"{name}, first", f"{other}, second"


def _article(first: AgentSections, second: AgentSections, notes: Sequence[str]) -> Article:
    """What the page shows."""
    by_key = {_key(row, second.choices.scale): row for row in second.rows}
    found = [(row, by_key.get(_key(row, first.choices.scale))) for row in first.rows]
    pairs = [(one, other) for one, other in found if other is not None]
    if len(pairs) < 2:
        raise ValueRangeError(
            f"{first.victim} and {second.victim} have no attack in common, so that nothing but their returns without "
            f"an attack could be compared"
        )
    both = _only(first, [one for one, _ in pairs]), _only(second, [other for _, other in pairs])
    labels, differences = _labels(first, second), [_difference(*pair) for pair in pairs]
    said = [_at_its_eps(first, both, labels), _sentence(both, labels), _units((first, second), labels)]
    said.append(f"Without an attack the means are {_kept(*pairs[0], labels)}.")
    lines = [(one.label, difference) for (one, _), difference in zip(pairs, differences, strict=True)]
    charts = {"difference": [difference_chart(labels, sorted(lines, key=lambda line: -abs(line[1].mean)))]}
    if both[0].sweeps and len(both[0].sweeps[0].strongest) > 2:
        charts["sweep"] = [two_agents_chart((both[0].sweeps[0], both[1].sweeps[0]), labels)]
    sides = [difference.side for difference in differences[1:]]
    kept = {id(row) for pair in pairs for row in pair}
    only = {
        label: names
        for label, agent in zip(labels, (first, second), strict=True)
        if (names := [row.label for row in agent.attacked if id(row) not in kept])
    }
    one, other = protocol_of(first), protocol_of(second)
    protocol = {
        name: [one[name]]
        if one.get(name) == other.get(name)
        else [f"{label}: {own.get(name) or 'nothing'}" for label, own in zip(labels, (one, other), strict=True)]
        for name in {**one, **other}
    }
    return Article(
        "both",
        labels[1],
        f"against {labels[0]} in {first.environment}",
        " ".join(filter(None, said)),
        Figures.of_rows([*first.rows, *second.rows]),
        named_charts("both", charts),
        _table(pairs, differences, labels),
        protocol,
        {
            "Attacks of both": str(len(pairs) - 1),
            f"{labels[1]} better, worse, not told apart": ", ".join(str(sides.count(side)) for side in (1, -1, 0)),
            "Episodes, the same of both": str(first.report.episodes),
        },
        means=[(labels[0], pairs[0][0].returned, False), (labels[1], pairs[0][1].returned, False),
               ("difference", differences[0], True)],
        notes=notes,
        only=only,
    )  # fmt: skip


def _difference(one: AttackRow, other: AttackRow) -> MeanWithInterval:
    """The paired difference of the second of two rows to the first."""
    return paired_difference(other.row.returns, one.row.returns, one.known)


def _table(
    pairs: Sequence[tuple[AttackRow, AttackRow]], differences: Sequence[MeanWithInterval], labels: tuple[str, str]
) -> AttackTable:
    """All rows of both, those of which the second keeps least first."""
    order = sorted(range(len(pairs)), key=lambda i: differences[i].mean)
    firsts, seconds, changes = ([column[i] for i in order] for column in (*zip(*pairs, strict=True), differences))
    # the marks of differences are those of paired episodes, which may be alike where neither run's are
    marked = [row.row for row in (*firsts, *seconds)]
    marked += [
        {"episodes": one.row.episodes, "caveat": change.caveat} for one, change in zip(firsts, changes, strict=True)
    ]
    columns = [
        Column("difference", changes, signed=True),
        Column(labels[0], [row.returned for row in firsts]),
        Column(labels[1], [row.returned for row in seconds]),
    ]
    return AttackTable(firsts, columns, footnotes(marked))


def _only(agent: AgentSections, rows: Sequence[AttackRow]) -> AgentSections:
    """A report of some of its rows, in this order, so that both reports are sorted alike."""
    threats = tuple(row.row for row in rows)
    return sorted_report(replace(agent.report, threats=threats), ReportChoices())


def _at_its_eps(first: AgentSections, both: Agents, labels: tuple[str, str]) -> str:
    """What either keeps at the eps that the first one's advice is about, or the nearest; "" where none was chosen."""
    found = error_to_withstand(first) if first.choices.played else None
    one, other = (dict(agent.sweeps[0].strongest) if agent.sweeps else {} for agent in both)
    common = [eps for eps in one if eps and eps in other]
    if found is None or found[0] is None or not common:
        return ""
    advised, about = found[0], f"that of the advice on {labels[0]}"
    eps = min(common, key=lambda eps: abs(math.log(eps / advised)))
    about = about if eps == advised else f"the nearest to {eps_text(advised)}, {about}"
    return f"At eps {eps_text(eps)}, {about}, the strongest attack leaves {_kept(one[eps], other[eps], labels)}."


def _kept(one: AttackRow, other: AttackRow, labels: tuple[str, str]) -> str:
    """Two means in words, and their difference, as far as the episodes tell them apart."""
    means = [number_text(row.mean) for row in (one, other)]
    difference = _difference(one, other)
    apart = "which these episodes do not tell apart"
    if difference.side:
        apart = f"{number_text(abs(difference.mean))} {'more' if difference.mean > 0 else 'less'} ({_ends(difference)})"
    return f"{means[1]} of {labels[1]} and {means[0]} of {labels[0]}, {apart}"


def _ends(difference: MeanWithInterval) -> str:
    """The interval of a difference that does not hold zero, without its sign."""
    low, high = sorted((abs(difference.low), abs(difference.high)))
    if difference.caveat:
        return f"{number_text(low)} to {number_text(high)}, no interval of 95%"
    return f"95% interval {number_text(low)} to {number_text(high)}"


def _sentence(both: Agents, labels: tuple[str, str]) -> str:
    """Where the two differ most under the strongest of the attacks that both were played under."""
    one, other = (dict(agent.sweeps[0].strongest) if agent.sweeps else {} for agent in both)
    found = [(eps, _difference(row, other[eps])) for eps, row in one.items() if eps and eps in other]
    told_apart = [(eps, mean) for eps, mean in found if mean.side]
    if not told_apart:
        return f"No eps tells {labels[0]} and {labels[1]} apart on these episodes."
    eps, mean = max(told_apart, key=lambda one: abs(one[1].mean))
    better, worse = (labels[1], labels[0]) if mean.mean > 0 else (labels[0], labels[1])
    why = f": {mean.caveat}" if mean.caveat else ""
    more = f"{number_text(abs(mean.mean))} more than {worse} ({_ends(mean)}{why})"
    return f"The strongest attack at eps {eps_text(eps)} leaves {better} {more}."
