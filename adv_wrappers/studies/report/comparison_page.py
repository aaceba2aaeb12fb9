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
from typing import Annotated, Any

from adv_wrappers.environments.environment import MakeEnv
from adv_wrappers.errors import ValueRangeError
from adv_wrappers.evaluation.confidence_intervals import MeanWithInterval, caveat, footnotes, paired_difference, summary
from adv_wrappers.evaluation.report import number_text
from adv_wrappers.studies.report.agent_article import line_of, mean_limits
from adv_wrappers.studies.report.article import (
    Article,
    Paragraph,
    Part,
    Section,
    check_target,
    render,
)
from adv_wrappers.studies.report.charts import Column, LineChart, Table, TableLine, Tone, eps_text, limits_of
from adv_wrappers.studies.report.missing_rows import Agents, key_of, play_missing_rows
from adv_wrappers.studies.report.sections import (
    AgentSections,
    AttackRow,
    StoredReports,
    read_reports,
    sorted_report,
)
from adv_wrappers.studies.report.verdict import headline
from adv_wrappers.utils.files import write
from adv_wrappers.utils.limits import Limits, checked
from adv_wrappers.utils.pace import Progress

Labels = tuple[str, str]
_TONES: dict[int, Tone] = {1: "certified", -1: "attack", 0: "other"}  # by the side of zero of a difference


@dataclass(frozen=True)
class Comparison:
    """A page that compares two reports.

    Attributes:
        page: its file.
        sentence: what it says first.
        notes: what was played for it, what could not be and why, and how the units differ.
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
    names = ", ".join(dict.fromkeys(f"{x.victim} ({x.episodes})" for pair in pairs for x in pair))
    why = f"hold several reports that could be compared, of {names}"
    if not pairs:
        why = f"cannot be compared: {'; '.join(_differences(a.agents[0], b.agents[0]))}"
    raise ValueRangeError(f"{a.path} and {b.path} {why}")


def _differences(a: AgentSections, b: AgentSections) -> list[str]:
    """What keeps two reports from being compared."""
    counts = [f"{one.report.episodes} episodes of seed {one.report.seed}" for one in (a, b)]
    differ = {
        f"they are of the environments {json.dumps(a.report.env)} and {json.dumps(b.report.env)}":
            a.report.env != b.report.env,
        f"they played different episodes, {counts[0]} and {counts[1]}": not _common_episodes(a, b),
        "one rounds integer observations, the other does not": a.report.quantize != b.report.quantize,
    }  # fmt: skip
    return [why for why, differs in differ.items() if differs]


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
    by_key = {key_of(row, second.choices.scale): row for row in second.rows}
    found = [(row, by_key.get(key_of(row, first.choices.scale))) for row in first.rows]
    pairs = [(one, other) for one, other in found if other is not None]
    if len(pairs) < 2:
        raise ValueRangeError(
            f"{first.victim} and {second.victim} have no attack in common, so that nothing but their returns without "
            f"an attack could be compared"
        )
    # both with the same rows in the same order, so that they are sorted alike
    rows = [tuple(row.row for row in side) for side in zip(*pairs, strict=True)]
    both = [sorted_report(replace(agent.report, threats=one)) for agent, one in zip(agents, rows, strict=True)]
    strongest = [one.sweeps[0].strongest if one.sweeps else {} for one in both]
    by_eps = {eps: (row, strongest[1][eps]) for eps, row in strongest[0].items() if eps in strongest[1]}
    changes = [_difference(*pair) for pair in pairs]
    sides, alone = [change.side for change in changes[1:]], [str(len(agent.rows) - len(pairs)) for agent in agents]
    if len({agent.choices.scale for agent in agents} - {None}) > 1:
        notes = [*notes, "An eps is a share of each agent's own ranges, which differ."]
    sections: dict[tuple[str, str], list[Part]] = {
        ("sweep", "Return over eps"): _sweep(by_eps, labels),
        ("difference", "Difference under each attack"): _table(pairs, changes, labels),
    }
    means = [TableLine(label, [row.returned]) for label, row in zip(labels, pairs[0], strict=True)]
    means.append(TableLine("difference", [changes[0]]))
    return Article(
        "both",
        "Comparison of two robustness reports",
        labels[1],
        f"against {labels[0]} in {first.environment}",
        f"{_under_attack(first, by_eps, labels)}Without an attack the means are {_kept(*pairs[0], labels)}.",
        Table("Without an attack", "agent", [Column("without an attack")], means),
        {
            "Attacks of both, of either alone": f"{len(pairs) - 1}, {' and '.join(alone)}",
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
    """What either keeps at the eps of the first one's verdict, or the nearest of both; "" without any."""
    common, (said, _) = [eps for eps in by_eps if eps], headline(first) or (None, None)
    if not common or not said:
        return ""
    eps = min(common, key=lambda eps: abs(math.log(eps / said)))
    nearest = "" if eps == said else f"the nearest to {eps_text(said)}, "
    kept = _kept(*by_eps[eps], labels)
    return f"At eps {eps_text(eps)}, {nearest}that of the verdict on {labels[0]}, the strongest attack leaves {kept}. "


def _kept(one: AttackRow, other: AttackRow, labels: Labels) -> str:
    """Two means in words, and their difference, as far as the episodes tell them apart."""
    difference, apart = _difference(one, other), "which these episodes do not tell apart"
    if difference.side:
        low, high = number_text(difference.low), number_text(difference.high)
        interval = "too few or too alike for an interval" if difference.caveat else f"95% interval {low} to {high}"
        apart = f"a difference of {number_text(difference.mean)} ({interval})"
    return f"{number_text(other.mean)} of {labels[1]} and {number_text(one.mean)} of {labels[0]}, {apart}"


# The sections.


def _sweep(by_eps: Mapping[float, tuple[AttackRow, AttackRow]], labels: Labels) -> list[Part]:
    """Return over the radius of two agents under the strongest of the same attacks, with intervals."""
    if len(by_eps) < 3:
        return []
    legend: list[tuple[Tone, str]] = [("other", labels[0]), ("certified", labels[1])]
    rows = zip(*by_eps.values(), strict=True)
    lines = [line_of(label, zip(by_eps, side, strict=True), tone)
             for (tone, label), side in zip(legend, rows, strict=True)]  # fmt: skip
    limits = mean_limits([row for pair in by_eps.values() for row in pair], by_eps[0.0][0])
    lead = "What the strongest of the attacks that both were played under leaves of the return."
    chart = LineChart("eps", "mean return under the strongest attack", lines, limits, legend)
    return [Paragraph(lead, "lead"), chart]


def _table(
    pairs: Sequence[tuple[AttackRow, AttackRow]], changes: Sequence[MeanWithInterval], labels: Labels
) -> list[Part]:
    """All rows of both, those of which the second keeps least first."""
    lines = [
        TableLine(one.label, [change, one.returned, other.returned], "", change, _TONES[change.side])
        for change, (one, other) in sorted(zip(changes, pairs, strict=True), key=lambda line: line[0].mean)
    ]
    # the marks of differences are those of paired episodes, which may be alike where neither run's are
    marked: list[Mapping[str, Any]] = [row.row for pair in pairs for row in pair]
    marked += [{"episodes": pairs[0][0].row.episodes, "caveat": change.caveat} for change in changes]
    table = Table(
        "Difference under each attack", "attack",
        [Column("difference", "signed"), Column(labels[0], less=True), Column(labels[1], less=True)],
        lines, limits_of([0.0, *(end for one in changes for end in (one.mean, one.low, one.high))]), 0.0,
        legend=[("certified", f"{labels[1]} is better"), ("attack", f"{labels[0]} is better"),
                ("other", "not told apart")],
        notes=[f"{note}." for note in footnotes(marked)], sortable=True,
    )  # fmt: skip
    lead = (
        f"The mean return of {labels[1]} minus that of {labels[0]}, episode by episode. Where the line crosses zero "
        "the episodes do not tell them apart."
    )
    return [Paragraph(lead, "lead"), table]
