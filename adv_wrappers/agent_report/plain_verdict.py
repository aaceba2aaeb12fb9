"""A verdict made of the rows alone, for reports that bring none of their own."""

from __future__ import annotations

import shlex

from adv_wrappers.agent_report.choices_file import NextStep, PageVerdict, VerdictFigure
from adv_wrappers.agent_report.rows_by_section import AgentSections, AttackRow
from adv_wrappers.evaluation.report import number_text
from adv_wrappers.evaluation.statistics import unseen

_BROKEN = 0.5  # of what an agent earns above the lowest return: less than this is left


def plain_verdict(agent: AgentSections) -> PageVerdict:
    """What the rows of a report say in one sentence: the least eps at which half of the return is lost."""
    clean = agent.clean
    certified = [one.eps for one in agent.choices.certificates if one.lower >= _half(agent)]
    row, eps, broken = _telling_row(agent)
    start = f"Without an attack {agent.victim} earns {number_text(clean.row['mean_return'])} an episode"
    figure = None
    if row is None:
        sentence = f"{start}. No attack was played."
    else:
        mean = row.returned
        figure = VerdictFigure(
            mean.mean, mean.low, mean.high, clean.row["mean_return"], eps, max(certified, default=None)
        )
        at = "" if eps is None else f" at eps {eps:.3g}"
        who = f"{row.attack}{at}" if broken else f"the strongest attack that was tried, {row.attack}{at},"
        sentence = f"{start}; under {who} it earns {number_text(mean.mean)}."
    return PageVerdict(sentence, figure, next=_next_steps(agent), cannot_tell=_cannot_tell(agent))


def _half(agent: AgentSections) -> float:
    """The return halfway from that without an attack to the lowest possible one, or else to 0 or the lowest found."""
    means = [float(row.row["mean_return"]) for row in agent.rows]
    known = agent.report.minimum.get("value")
    lowest = float(known) if known is not None else min(0.0, *means)
    return lowest + _BROKEN * (means[0] - lowest)


def _telling_row(agent: AgentSections) -> tuple[AttackRow | None, float | None, bool]:
    """The row that the sentence is about, its radius, and whether half of the return is lost there."""
    half = _half(agent)
    for eps, row in agent.sweeps[0].strongest if agent.sweeps else ():
        if row.kind != "clean" and row.row["mean_return"] <= half:
            return row, eps, True
    if not agent.attacked:
        return None, None, False
    row = min(agent.attacked, key=lambda row: float(row.row["mean_return"]))
    return row, row.eps, row.row["mean_return"] <= half


def _next_steps(agent: AgentSections) -> tuple[NextStep, ...]:
    ref = agent.report.victim.get("ref")
    if agent.choices.played or not ref or "make" in agent.report.env:
        return ()
    words = ["adv-wrappers", "report", agent.environment, "--victim", str(ref), "--minutes", "5", "--out", "FOLDER"]
    what = "Let a report choose budgets and attacks for this agent, and certify what it can"
    return (NextStep(what, shlex.join(words)),)


def _cannot_tell(agent: AgentSections) -> tuple[str, ...]:
    found = ["Another attack may take more than those that were tried: what is shown here is not the worst case."]
    if not agent.choices.certificates:
        found.append("Nothing is certified: no bound says that some return is kept whatever the attack.")
    found.append(f"Rare events: {unseen(agent.report.episodes)}.")
    return tuple(found)
