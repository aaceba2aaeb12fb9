"""Two reports beside each other on one page: which agent, or which version of it, keeps more under the same attacks.

Both were played on the same episodes of the same environment, so every difference is one of paired episodes, whose
interval is narrower than those of the two means suggest. Only attacks that both were played under are compared; what
one lacks can be played first.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from adv_wrappers.core.budgets import Linf
from adv_wrappers.core.frame_stack import Newest
from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.environments.environment import Environment, MakeEnv, json_value
from adv_wrappers.errors import AdvWrappersError, ValueRangeError, VictimError
from adv_wrappers.evaluation.episodes import Episodes
from adv_wrappers.evaluation.report import number_text
from adv_wrappers.evaluation.statistics import caveat, footnotes, summary
from adv_wrappers.evaluation.threat_stacks import as_threat_stack, json_form
from adv_wrappers.studies.report.advice import option_of, words_of_agent
from adv_wrappers.studies.report.charts import Chart, chart_limits, difference_chart, eps_text, two_agents_chart
from adv_wrappers.studies.report.choices import ReportChoices
from adv_wrappers.studies.report.page import Figures, check_target, protocol_of, render
from adv_wrappers.studies.report.sections import (
    AgentSections,
    AttackRow,
    MeanWithInterval,
    StoredReports,
    feature_name,
    paired_difference,
    read_reports,
    sorted_report,
)
from adv_wrappers.studies.report.trials import Progress, TrialPlayer
from adv_wrappers.studies.report.verdict import verdict
from adv_wrappers.threats.presets import as_threat
from adv_wrappers.threats.text import without_number
from adv_wrappers.utils.checks import number
from adv_wrappers.utils.deadline import Deadline, OutOfTime
from adv_wrappers.utils.files import write
from adv_wrappers.utils.text import duration, split_stack
from adv_wrappers.victims import load_victim
from adv_wrappers.victims.victim import Victim

# ----------------------------------------------------------------------------------------------------------------------
# Plays on two agents that are compared what only one of them was played under, so that both met the same attacks.
#
# Every attack of either report is played on both: on the same episodes, under the same eps, counted in the units of the
# first report. The rows are kept in a folder of their own, so that the same call with more minutes goes on.
# ----------------------------------------------------------------------------------------------------------------------


_RESERVE = 2.0  # seconds that are kept for the page


@dataclass(frozen=True)
class Completed:
    """Two reports of the same attacks.

    Attributes:
        agents: the first and the second, with what was played on them; as they were where nothing could be.
        notes: what was played, what could not be and why, and what there was no time for, in sentences.
    """

    agents: tuple[AgentSections, AgentSections]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class _Attack:
    """An attack of one of two reports, in the units of the first.

    Attributes:
        name: what a row is called.
        rows: that of either report, None where it was not played under it, or in other units.
        layers: the threats; empty where they cannot be made again.
        why_not: the reason for that.
    """

    name: str
    rows: tuple[AttackRow | None, AttackRow | None]
    layers: tuple[ThreatModel, ...]
    why_not: str = ""


def play_missing_rows(
    agents: tuple[AgentSections, AgentSections],
    key: Callable[[AttackRow, Sequence[float] | None], str],
    minutes: float,
    folder: Path,
    *,
    trust: bool = False,
    make: MakeEnv | None = None,
    progress: Progress | None = None,
) -> Completed:
    """Play what only one of two agents was played under on the other.

    Args:
        agents: two reports of the same episodes of one environment.
        key: the same for rows of one threat, by the scale that their report counts in.
        minutes: of wall clock.
        folder: for the rows.
        trust: whether files may run code, as for :func:`adv_wrappers.load_victim`.
        make: the function that makes the environment, where the reports were made with one.
        progress: called as ``progress(what, done, of how many)``.
    """
    first, second = agents
    deadline = Deadline(60 * minutes)
    players: list[TrialPlayer] = []
    try:
        victims = _victim(first, trust), _victim(second, trust)
        attacks = _attacks(agents, key, victims)
        if all(None not in attack.rows or not attack.layers for attack in attacks):
            return Completed(agents, tuple(_not_again(attacks)))
        for agent, victim, name in zip(agents, victims, ("first", "second"), strict=True):
            about, part = agent.report, folder / name
            episodes = Episodes(about.episodes, about.seed, about.num_envs, quantize=about.quantize is not False)
            part.mkdir(parents=True, exist_ok=True)
            environment = _environment(agent, victim, trust, make)
            players.append(TrialPlayer(victim, environment, episodes, deadline, part))
    except (AdvWrappersError, ImportError, OSError) as error:
        return Completed(agents, (f"What only one of them was played under cannot be played on the other: {error}.",))
    missing = [(attack, side) for attack in attacks if attack.layers for side in (0, 1) if attack.rows[side] is None]
    found: list[list[Any]] = [[], []]
    left, failed, seconds = 0, list[str](), 0.0
    with closing(players[0]), closing(players[1]):
        for done, (attack, side) in enumerate(missing):
            if progress is not None:
                progress("attacks of one report alone", done, len(missing))
            player = players[side]
            if first.report.num_envs == 1:  # there may be only one environment
                players[1 - side].close()
            try:
                if not player.has_clean:
                    player.reserve = min(_RESERVE, deadline.left / 4)
                    player.play_clean()
                found[side].append(player.play(attack.layers, None, "of both", label=attack.name).row)
            except OutOfTime:
                left, seconds = left + 1, seconds + player.left_out[-1].seconds
            except AdvWrappersError as error:
                failed.append(f"{attack.name}: {error}")
        if progress is not None:
            progress("attacks of one report alone", len(missing), len(missing))
    notes = _played(len(missing) - left - len(failed), left, seconds) + _not_again(attacks, failed)
    if not any(found) and all(None in attack.rows for attack in attacks):
        return Completed(agents, tuple(notes))  # nothing in common but what either report counts in its own units
    both = [
        _with_rows(agent, [attack.rows[side] for attack in attacks], found[side], first.choices.scale)
        for side, agent in enumerate(agents)
    ]
    return Completed((both[0], both[1]), tuple(notes))


def _played(count: int, left: int, seconds: float) -> list[str]:
    """What was played, and what there was no time for, about how many seconds."""
    played = "row that one of the two lacked was" if count == 1 else "rows that one of the two lacked were"
    notes = [f"{count} {played} played on it, eps in the units of the first."]
    late = f"{left} row{'' if left == 1 else 's'} did not fit into the time, about {duration(seconds)}"
    return notes[: min(count, 1)] + ([f"{late}: the same call with more minutes goes on."] if left else [])


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


def _attacks(
    agents: tuple[AgentSections, AgentSections],
    key: Callable[[AttackRow, Sequence[float] | None], str],
    victims: tuple[Victim, Victim],
) -> list[_Attack]:
    """The attacks of both reports, those first that are the strongest at an eps of either."""
    units = agents[0].choices.scale
    found = dict[str, _Attack]()
    strongest = [
        row for agent in agents for sweep in agent.sweeps[:1] for _, row in sweep.strongest if row.kind != "clean"
    ]
    for wanted in (strongest, None):
        for side, agent in enumerate(agents):
            own = agent.choices.scale
            for row in agent.attacked:
                if wanted is not None and not any(row is one for one in wanted):
                    continue
                name = key(row, own)
                attack = found.get(name)
                if attack is None:
                    layers, why_not = _again(row, own, units, victims[side])
                    attack = _Attack(row.attack or row.label, (None, None), layers, why_not)
                # a row of the second report counts where its budget means the same in the units of the first
                if own == units or None in (own, units) or not _is_scaled(row.row["layers"]):
                    rows = (row, attack.rows[1]) if side == 0 else (attack.rows[0], row)
                    attack = replace(attack, rows=rows)
                found[name] = attack
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
             for layer in row.row["layers"]]  # fmt: skip
    if "recorded" in kinds or "<recorded>" in str(row.row["threat"]):
        return (), "what a search found is for its own agent"
    if "learned" in kinds or row.row.get("transfer"):
        return (), "it was trained against, or aimed at, another agent"
    if row.row.get("best_of", 1) > 1:
        return (), "it is the best of several draws"
    try:
        made = tuple(as_threat(part) for part in split_stack(without_number(str(row.row["threat"]))))
        if _open([json_form(layer) for layer in as_threat_stack([*made], victim).layers]) != _open(row.row["layers"]):
            return (), "its text does not say all of it"
    except AdvWrappersError as error:
        return (), str(error)
    if own is None or units is None or tuple(own) == tuple(units) or len(own) != len(units):
        return made, ""
    return tuple(replace(threat, within=_in_units(threat.budget, own, units)) for threat in made), ""


def _open(value: Any) -> Any:
    """A JSON form without the victims in it."""
    if isinstance(value, Mapping):
        if "sha256" in value:
            return "victim"
        return {name: _open(part) for name, part in value.items()}
    return [_open(part) for part in value] if isinstance(value, (list, tuple)) else value


def _in_units(budget: Any, own: Sequence[float], units: Sequence[float]) -> Any:
    """A budget whose scale is in one report's units, in those of another."""
    if isinstance(budget, Newest):
        return replace(budget, within=_in_units(budget.within, own, units))
    if not isinstance(budget, Linf) or not isinstance(budget.scale, tuple) or len(budget.scale) != len(own):
        return budget
    scale = (x / mine * unit if mine else x for x, mine, unit in zip(budget.scale, own, units, strict=True))
    return Linf(budget.eps, tuple(float(f"{one:.6g}") for one in scale))


def _with_rows(
    agent: AgentSections, kept: Sequence[AttackRow | None], played: Sequence[Any], units: tuple[float, ...] | None
) -> AgentSections:
    """A report of the run without an attack, the rows that count, and those that were played; in these units."""
    rows = [agent.clean.row, *(row.row for row in kept if row is not None), *played]
    choices = replace(agent.choices, scale=units) if agent.choices.scale is not None else agent.choices
    return sorted_report(replace(agent.report, threats=tuple(rows)), choices)


def _not_again(attacks: Sequence[_Attack], failed: Sequence[str] = ()) -> list[str]:
    """What could not be played on the other agent, and why."""
    reasons = [f"{one.name}: {one.why_not}" for one in attacks if one.why_not and None in one.rows]
    reasons += failed
    if not reasons:
        return []
    some = "; ".join(reasons[:5]) + (f"; and {len(reasons) - 5} more" if len(reasons) > 5 else "")
    return [f"Not played on the other: {some}."]


_MOST_LINES = 24  # of the chart of differences


@dataclass(frozen=True)
class ComparedRows:
    """Two rows of one threat, and the paired difference of the second to the first."""

    first: AttackRow
    second: AttackRow
    difference: MeanWithInterval


@dataclass(frozen=True)
class Comparison:
    """A page that compares two reports.

    Attributes:
        page: its file.
        sentence: what it says first.
    """

    page: Path
    sentence: str


def compare_pages(
    a: str | Path,
    b: str | Path,
    out: str | Path,
    minutes: float = 0.0,
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
    if number("minutes", minutes, 0, 1e5):
        folder = path.with_name(f"{path.stem}-rows")
        completed = play_missing_rows(agents, _key, minutes, folder, trust=trust, make=make, progress=progress)
        agents, notes = completed.agents, [*notes, *completed.notes]
    page, sentence = _page(*agents, notes)
    write(path, page)
    return Comparison(path, sentence)


def _pair(a: StoredReports, b: StoredReports) -> tuple[AgentSections, AgentSections]:
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
        returns = row["returns"][:count]
        cut.append({**row, **summary(returns), "caveat": caveat(returns), "returns": returns, "episodes": len(returns)})
    seeds = agent.report.episode_seeds[:count]
    report = replace(agent.report, threats=tuple(cut), episodes=count, episode_seeds=seeds)
    return sorted_report(report, agent.choices)


def _key(row: AttackRow, scale: Sequence[float] | None) -> str:
    """The same for rows of the same threat, each aimed at its own agent, and its budget in units of its own scale."""
    layers = row.row["layers"]
    threat = row.row["threat"] if None in layers else _in_own_terms(layers, scale)
    return json.dumps([threat, row.row.get("transfer"), row.row.get("best_of")], sort_keys=True)


def _in_own_terms(value: Any, scale: Sequence[float] | None) -> Any:
    """A threat's layers without the agent that they are aimed at, scales as multiples of the agent's own."""
    if isinstance(value, Mapping):
        if "victim" in value and "sha256" in value:
            return "victim"
        found = {key: _in_own_terms(item, scale) for key, item in value.items()}
        given = value.get("scale")
        if value.get("type") == "linf" and scale and isinstance(given, list) and len(given) == len(scale):
            found["scale"] = [round(x / own, 6) if own else x for x, own in zip(given, scale, strict=True)]
        return found
    return [_in_own_terms(item, scale) for item in value] if isinstance(value, list) else value


def _units(first: AgentSections, second: AgentSections) -> str:
    """What is to be known of an eps that means something else for either agent; "" where it means the same."""
    one, other = first.choices.scale, second.choices.scale
    if one is None or other is None or one == other or len(one) != len(other):
        return ""
    order = sorted(
        range(len(one)), key=lambda i: abs(math.log(max(one[i], 1e-12) / max(other[i], 1e-12))), reverse=True
    )
    features = first.choices.features
    some = "; ".join(f"{feature_name(i, features)} {eps_text(one[i])} and {eps_text(other[i])}" for i in order[:3])
    return (
        f"An eps is a share of the range that each agent meets by itself, and the ranges differ, most of all those of "
        f"{some}. Where an absolute error matters, evaluate both under one scale."
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


def _page(first: AgentSections, second: AgentSections, notes: Sequence[str]) -> tuple[bytes, str]:
    notes = [note for note in (_units(first, second), *notes) if note]
    by_key = {_key(row, second.choices.scale): row for row in second.rows}
    pairs = [(row, by_key.get(_key(row, first.choices.scale))) for row in first.rows]
    rows = [
        ComparedRows(x, y, paired_difference(y.row["returns"], x.row["returns"])) for x, y in pairs if y is not None
    ]
    if len(rows) < 2:
        raise ValueRangeError(
            f"{first.victim} and {second.victim} have no attack in common, so that nothing but their returns without "
            f"an attack could be compared"
        )
    kept = ([row.first for row in rows], [row.second for row in rows])
    agents = (first, second)
    only = [
        [row.label for row in agent.attacked if row.row not in [one.row for one in own]]
        for agent, own in zip(agents, kept, strict=True)
    ]
    both = (_only(first, kept[0]), _only(second, kept[1]))
    labels, limits = _labels(first, second), chart_limits([*both[0].rows, *both[1].rows])
    charts: dict[str, list[Chart]] = {"sweep": []}
    if both[0].sweeps and len(both[0].sweeps[0].strongest) > 2:
        charts["sweep"] = [two_agents_chart("sweep", (both[0].sweeps[0], both[1].sweeps[0]), labels, limits)]
    order = sorted(rows, key=lambda row: -abs(row.difference.mean))[:_MOST_LINES]
    lines = [(row.first.label, row.difference) for row in order]
    charts["difference"] = [difference_chart("difference", labels, lines)]
    said = [_at_its_eps(first, both, labels), _sentence(both, labels), _clean_sentence(rows[0], labels)]
    sentence = " ".join(filter(None, said))
    page = render(
        "comparison.html",
        title=f"{labels[0]} and {labels[1]} in {first.environment}",
        labels=labels,
        agents=agents,
        notes=notes,
        rows=rows,
        charts=charts,
        sentence=sentence,
        tally=_tally(rows[1:]),
        clean=rows[0],
        only=only,
        figures=Figures.of_rows([*first.rows, *second.rows]),
        footnotes=_footnotes(rows),
        protocol=_protocols(first, second),
    )
    return page, sentence


def _footnotes(rows: Sequence[ComparedRows]) -> list[str]:
    """What the marks of the table mean, of means and of differences."""
    marked = [row.row for pair in rows for row in (pair.first, pair.second)]
    marked += [{"episodes": pair.first.row["episodes"], "caveat": pair.difference.caveat} for pair in rows]
    return footnotes(marked)


def _only(agent: AgentSections, rows: Sequence[AttackRow]) -> AgentSections:
    """A report of some of its rows, in this order, so that both reports are sorted alike."""
    threats = tuple(row.row for row in rows)
    return sorted_report(replace(agent.report, threats=threats), ReportChoices())


def _at_its_eps(first: AgentSections, both: tuple[AgentSections, AgentSections], labels: tuple[str, str]) -> str:
    """What either keeps at the eps of the first one's verdict, which its advice is about; "" where none was chosen."""
    figure = verdict(first).figure if first.choices.played else None
    if figure is None or figure.eps is None or not both[0].sweeps:
        return ""
    one, other = (dict(agent.sweeps[0].strongest).get(figure.eps) for agent in both)
    if one is None or other is None:
        return ""
    kept = _kept(one, other, paired_difference(other.row["returns"], one.row["returns"]), labels)
    return f"At eps {eps_text(figure.eps)}, that of the verdict on {labels[0]}, the strongest attack leaves {kept}."


def _clean_sentence(clean: ComparedRows, labels: tuple[str, str]) -> str:
    return f"Without an attack the means are {_kept(clean.first, clean.second, clean.difference, labels)}."


def _kept(one: AttackRow, other: AttackRow, difference: MeanWithInterval, labels: tuple[str, str]) -> str:
    """Two means in words, and whether the episodes tell them apart."""
    means = [number_text(row.row["mean_return"]) for row in (one, other)]
    apart = "" if difference.side else ", which these episodes do not tell apart"
    return f"{means[1]} of {labels[1]} and {means[0]} of {labels[0]}{apart}"


def _sentence(both: tuple[AgentSections, AgentSections], labels: tuple[str, str]) -> str:
    """Where the two differ most under the strongest of the attacks that both were played under."""
    found: list[tuple[float, MeanWithInterval]] = []
    if both[0].sweeps:
        strongest = dict(both[1].sweeps[0].strongest)
        for eps, row in both[0].sweeps[0].strongest:
            if eps and eps in strongest:
                found.append((eps, paired_difference(strongest[eps].row["returns"], row.row["returns"])))
    told_apart = [(eps, mean) for eps, mean in found if mean.side]
    if not told_apart:
        return f"No eps tells {labels[0]} and {labels[1]} apart on these episodes."
    eps, mean = max(told_apart, key=lambda one: abs(one[1].mean))
    better, worse = (labels[1], labels[0]) if mean.mean > 0 else (labels[0], labels[1])
    low, high = sorted((abs(mean.low), abs(mean.high)))
    interval = f"95% interval {number_text(low)} to {number_text(high)}"
    if mean.caveat:
        interval = f"{number_text(low)} to {number_text(high)}, no interval of 95%: {mean.caveat}"
    more = f"{number_text(abs(mean.mean))} more than {worse} ({interval})"
    return f"The strongest attack at eps {eps_text(eps)} leaves {better} {more}."


def _tally(rows: Sequence[ComparedRows]) -> tuple[int, int, int]:
    """Under how many attacks the second agent keeps more, less, and as much as far as the episodes tell."""
    sides = [row.difference.side for row in rows]
    return sides.count(1), sides.count(-1), sides.count(0)


def _protocols(first: AgentSections, second: AgentSections) -> list[tuple[str, str, str]]:
    """Lines of both protocols: what is the same, and what differs."""
    one, other = dict(protocol_of(first)), dict(protocol_of(second))
    names = list(dict.fromkeys([*one, *other]))
    return [(name, one.get(name, ""), other.get(name, "")) for name in names]
