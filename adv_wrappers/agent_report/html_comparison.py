"""Two reports beside each other on one page: which agent, or which version of it, keeps more under the same attacks.

Both were played on the same episodes of the same environment, so every difference is one of paired episodes, whose
interval is narrower than those of the two means suggest. Only attacks that both were played under are compared; what
one lacks can be played first.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from adv_wrappers.agent_report.html_page import Figures, check_target, protocol_of, render
from adv_wrappers.agent_report.missing_rows import play_missing_rows
from adv_wrappers.agent_report.play_rows_until_deadline import Progress
from adv_wrappers.agent_report.rows_by_section import (
    AgentSections,
    AttackRow,
    MeanWithInterval,
    StoredReports,
    feature_name,
    paired_difference,
    read_reports,
    sorted_report,
)
from adv_wrappers.agent_report.svg_charts import Chart, chart_limits, difference_chart, eps_text, two_agents_chart
from adv_wrappers.agent_report.verdict import verdict
from adv_wrappers.agent_report.what_the_report_chose_and_why import ReportChoices
from adv_wrappers.errors import ValueRangeError
from adv_wrappers.evaluation.environments import MakeEnv
from adv_wrappers.evaluation.report import number_text
from adv_wrappers.evaluation.return_statistics import caveat, footnotes, summary
from adv_wrappers.utils.checks import number
from adv_wrappers.utils.files import write

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
