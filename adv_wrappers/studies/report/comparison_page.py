"""Two reports beside each other on one page: which agent, or which version of it, keeps more under the same attacks.

Both were played on the same episodes of the same environment, so every difference is one of paired episodes, whose
interval is narrower than those of the two means suggest. Only attacks that both were played under are compared; those
of the first can be played on the second before.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from adv_wrappers.environments.environment import MakeEnv
from adv_wrappers.errors import ValueRangeError
from adv_wrappers.evaluation.statistics.confidence_intervals import (
    MeanWithInterval,
    caveat,
    footnotes,
    paired_difference,
    summary,
)
from adv_wrappers.studies.report.agent_article import line_of, mean_limits, protocol_of
from adv_wrappers.studies.report.article import (
    Article,
    Facts,
    Paragraph,
    Part,
    Section,
    check_target,
    render,
)
from adv_wrappers.studies.report.charts import Column, LineChart, Table, TableLine, Tone, eps_text, limits_of
from adv_wrappers.studies.report.missing_rows import play_missing_rows
from adv_wrappers.studies.report.sections import (
    AgentSections,
    AttackRow,
    StoredReports,
    read_reports,
    sorted_report,
)
from adv_wrappers.studies.report.verdict import headline
from adv_wrappers.utils.files import write
from adv_wrappers.utils.number_text import interval_text, number_text
from adv_wrappers.utils.pace import Progress
from adv_wrappers.utils.validation import Limits, checked

Agents = tuple[AgentSections, AgentSections]
Labels = tuple[str, str]
_TONES: dict[int, Tone] = {1: "certified", -1: "attack", 0: "other"}  # by the side of zero of a difference


@dataclass(frozen=True)
class Comparison:
    """A page that compares two reports.

    Attributes:
        page: its file.
        sentence: what it says first.
        notes: what was played for it, and what could not be and why.
    """

    page: Path
    sentence: str
    notes: tuple[str, ...] = ()


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
        minutes: of wall clock, in which attacks that only ``a`` was played under are played on the agent of ``b``, with
            eps in the units of ``a``, and kept in a folder beside ``out``. What cannot be played again is said on the
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
    # two reports of one environment, cut to the episodes that both have
    first, second = _pair(read_reports(a), read_reports(b))
    count, notes = _common_episodes(first, second), list[str]()
    if first.report.episodes != second.report.episodes:
        notes.append(f"Compared are the first {count} episodes, which both were played on.")
    agents = _of_episodes(first, count), _of_episodes(second, count)
    # what only the first met is played on the second
    if minutes:
        folder = path.with_name(f"{path.stem}-rows")
        met, more = play_missing_rows(*agents, minutes, folder, trust=trust, make=make, progress=progress)
        agents, notes = (agents[0], met), [*notes, *more]
    labels = _labels(*agents)
    article = _article(agents, labels, notes)
    page = render(
        "page.html", title=f"{labels[0]} and {labels[1]} in {first.environment}", articles=[article], overview=None,
        notes=(), version=second.report.versions.get("adv_wrappers", ""), source=f"{Path(a).name} and {Path(b).name}",
    )  # fmt: skip
    write(path, page)
    return Comparison(path, article.sentence, tuple(article.notes))


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


def _labels(a: AgentSections, b: AgentSections) -> Labels:
    """What tells the two apart: their names, or which of them is meant."""
    return (a.victim, b.victim) if a.victim != b.victim else (f"{a.victim}, first", f"{b.victim}, second")


def _article(agents: Agents, labels: Labels, notes: Sequence[str]) -> Article:
    """What the page shows."""
    first, second = agents
    # rows of the same attack, within the same budget
    known = {row.identity: row for row in second.rows}
    pairs = [(row, known[row.identity]) for row in first.rows if row.identity in known]
    if len(pairs) < 2:
        raise ValueRangeError(
            f"{first.victim} and {second.victim} have no attack in common, so that nothing but their returns without "
            f"an attack could be compared (minutes= plays those of the first on the second)"
            f"{'. '.join(['', *notes]).removesuffix('.')}"
        )
    # both with the same rows in the same order, so that they are sorted alike
    strongest = list[Mapping[float, AttackRow]]()
    for agent, rows in zip(agents, zip(*pairs, strict=True), strict=True):
        both = sorted_report(replace(agent.report, threats=tuple(row.row for row in rows)))
        strongest.append(both.sweeps[0].strongest if both.sweeps else {})
    # the strongest of both at every eps, and how often either is better
    by_eps = {eps: (row, strongest[1][eps]) for eps, row in strongest[0].items() if eps in strongest[1]}
    sides = [_difference(*pair).side for pair in pairs[1:]]
    sections: dict[tuple[str, str], list[Part]] = {
        ("sweep", "Return over eps"): _sweep(by_eps, labels),
        ("difference", "Difference under each attack"): _table(pairs, labels),
        ("protocol", "Protocol"): [_protocol(agents, labels)],
    }
    means = [TableLine(label, [row.returned]) for label, row in zip(labels, pairs[0], strict=True)]
    means.append(TableLine("difference", [_difference(*pairs[0])]))
    return Article(
        "both",
        "Comparison of two robustness reports",
        labels[1],
        f"against {labels[0]} in {first.environment}",
        f"{_under_attack(first, by_eps, labels)}Without an attack the means are {_kept(*pairs[0], labels)}.",
        Table("Without an attack", "agent", [Column("without an attack")], means),
        {
            "Attacks of both": f"{len(pairs) - 1}, of {len(first.attacked)} and {len(second.attacked)}",
            f"{labels[1]} better, worse, not told apart": ", ".join(str(sides.count(side)) for side in (1, -1, 0)),
            "Episodes, the same of both": str(first.report.episodes),
        },
        [Section(*named, parts) for named, parts in sections.items() if parts],
        notes=notes,
    )


def _difference(one: AttackRow, other: AttackRow) -> MeanWithInterval:
    """The paired difference of the second of two rows to the first."""
    return paired_difference(other.row.returns, one.row.returns, one.known)


def _under_attack(first: AgentSections, by_eps: Mapping[float, tuple[AttackRow, AttackRow]], labels: Labels) -> str:
    """What either keeps at the eps of the first one's advice, or the nearest; else where they differ most; or ""."""
    common = {eps: _difference(*rows) for eps, rows in by_eps.items() if eps}
    if not common:
        return ""
    advised = (headline(first) or (None,))[0] if first.choices.played else None
    # the eps that matters to the first, or the one that tells them apart most
    if advised is None:
        eps, why = max(common, key=lambda eps: (common[eps].side != 0, abs(common[eps].mean))), "where they differ most"
    else:
        eps = min(common, key=lambda eps: abs(math.log(eps / advised)))
        nearest = "" if eps == advised else f"the nearest to {eps_text(advised)}, "
        why = f"{nearest}that of the advice on {labels[0]}"
    return f"At eps {eps_text(eps)}, {why}, the strongest attack leaves {_kept(*by_eps[eps], labels)}. "


def _kept(one: AttackRow, other: AttackRow, labels: Labels) -> str:
    """Two means in words, and their difference, as far as the episodes tell them apart."""
    difference, apart = _difference(one, other), "which these episodes do not tell apart"
    if difference.side:
        interval = f"95% interval {interval_text(difference.low, difference.high)}"
        if difference.caveat:
            interval = "too few or too alike for an interval"
        apart = f"a difference of {number_text(difference.mean)} ({interval})"
    return f"{number_text(other.mean)} of {labels[1]} and {number_text(one.mean)} of {labels[0]}, {apart}"


# The sections.


def _sweep(by_eps: Mapping[float, tuple[AttackRow, AttackRow]], labels: Labels) -> list[Part]:
    """Return over the radius of two agents under the strongest of the same attacks, with intervals."""
    if len(by_eps) < 3:
        return []
    tones: tuple[Tone, Tone] = ("other", "certified")
    lines = [
        line_of(labels[side], [(eps, pair[side]) for eps, pair in by_eps.items()], tone, bold=True)
        for side, tone in enumerate(tones)
    ]
    rows = [row for pair in by_eps.values() for row in pair]
    legend = [*zip(tones, labels, strict=True)]
    chart = LineChart("eps", "mean return under the strongest attack", lines, mean_limits(rows, rows[0]), legend)
    lead = "What the strongest of the attacks that both were played under leaves of the return."
    return [Paragraph(lead, "lead"), chart]


def _table(pairs: Sequence[tuple[AttackRow, AttackRow]], labels: Labels) -> list[Part]:
    """All rows of both, those of which the second keeps least first."""
    changes = [_difference(*pair) for pair in pairs]
    order = sorted(zip(pairs, changes, strict=True), key=lambda one: one[1].mean)
    lines = [
        TableLine(one.label, [change, one.returned, other.returned], "", change, _TONES[change.side])
        for (one, other), change in order
    ]
    # the marks of differences are those of paired episodes, which may be alike where neither run's are
    marked: list[Mapping[str, Any]] = [row.row for pair in pairs for row in pair]
    marked += [
        {"episodes": pair[0].row.episodes, "caveat": change.caveat} for pair, change in zip(pairs, changes, strict=True)
    ]
    # a line each, the worst for the second agent first
    table = Table(
        "Difference under each attack", "attack",
        [Column("difference", "signed"), Column(labels[0], less=True), Column(labels[1], less=True)],
        lines, limits_of([0.0, *(end for one in changes for end in (one.mean, one.low, one.high))]), 0.0,
        legend=[(_TONES[side], words) for side, words in
                ((1, f"{labels[1]} is better"), (-1, f"{labels[0]} is better"), (0, "not told apart"))],
        notes=[f"{note}." for note in footnotes(marked)], sortable=True,
    )  # fmt: skip
    lead = (
        f"The mean return of {labels[1]} minus that of {labels[0]}, episode by episode. Where the line crosses zero "
        "the episodes do not tell them apart."
    )
    return [Paragraph(lead, "lead"), table]


def _protocol(agents: Agents, labels: Labels) -> Facts:
    """How the figures of both came about; by name one text, or one of each."""
    one, other = (protocol_of(agent) for agent in agents)
    return Facts({
        name: [one[name]]
        if one.get(name) == other.get(name)
        else [f"{label}: {own.get(name) or 'nothing'}" for label, own in zip(labels, (one, other), strict=True)]
        for name in {**one, **other}
    })  # fmt: skip
