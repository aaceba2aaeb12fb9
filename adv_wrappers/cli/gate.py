"""A claim about an agent as a test: ``--at-least`` compares returns with a number.

The claim is that a mean return is at least ``X``, and a row's returns show it, do not show it, or refute it
(:class:`adv_wrappers.evaluation.statistics.claim.RobustnessClaim`, with one look at 95%). Only the first
passes, so that few episodes fail where they cannot tell. Of ``evaluate`` every row with a threat is judged, without
threats the clean one; of ``suite`` the worst case on fresh episodes, on which nothing was chosen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import click

from adv_wrappers.cli.options import finite_number
from adv_wrappers.cli.output import say

if TYPE_CHECKING:
    from adv_wrappers.evaluation.rows.report import Report
    from adv_wrappers.evaluation.rows.row import Row
    from adv_wrappers.evaluation.statistics.claim import RobustnessClaim, Verdict
    from adv_wrappers.studies import SuiteReport

FAILED = 1  # exit status; 2 is wrong usage
AT_LEAST = click.option(
    "--at-least", type=float, callback=finite_number, metavar="RETURN",
    help="fail (status 1) unless the mean return under attack is shown to be at least this, at 95%",
)  # fmt: skip


class Judged(NamedTuple):
    """What a row says of a claim: its verdict, the sentence with its figures, and the lower end of its interval."""

    verdict: Verdict
    sentence: str
    low: float


def judge(row: Row, claim: RobustnessClaim, name: str | None = None) -> Judged:
    """What a row of a report says of a claim.

    Args:
        row: a row with its ``returns``.
        claim: about the mean of these.
        name: what the row is called; None takes its ``threat``.
    """
    from adv_wrappers.evaluation.statistics.confidence_intervals import caveat
    from adv_wrappers.utils.number_text import interval_text, number_text

    name = row.threat if name is None else name
    returns = row.returns
    least = claim.min_return
    verdict, (low, high) = claim.verdict(returns), claim.interval(returns)
    # the interval, or why there is none that could be trusted
    interval = f"{claim.confidence:.0%} interval {interval_text(low, high)}"
    if not claim.conclusive(returns):
        interval = f"{interval_text(low, high)}, no interval of {claim.confidence:.0%}, {caveat(returns)}"
    found = f"{'the agent earns' if name == 'none' else f'{name} leaves'} {number_text(row.mean_return)} ({interval})"
    # a sentence for each verdict
    said = {
        "shown": f"{found}, at least the {least:g} asked for",
        "not shown": f"{found}, which does not show the {least:g} asked for: it may be more or less; "
        f"{claim.why_open(returns)}",
        "below": f"{found}, less than the {least:g} asked for",
    }
    return Judged(verdict, said[verdict], low)


def judge_report(report: Report, least: float, threats: int, lowest: float | None) -> list[Judged]:
    """The last ``threats`` rows of a report, or the clean one where there are none.

    The row of ``--minimum worst-action``, which nobody asks about, comes before those of the threats.

    Args:
        report: the report.
        least: the return that is claimed.
        threats: how many rows the claim is about.
        lowest: return that an episode can have; None where it is not known.
    """
    from adv_wrappers.evaluation.statistics.claim import RobustnessClaim

    claim = RobustnessClaim(least, attacks=max(threats, 1), lowest=lowest)
    return [judge(row, claim) for row in (report.threats[-threats:] if threats else report.threats[:1])]


def judge_suite(report: SuiteReport, least: float, lowest: float | None) -> list[Judged]:
    """The strongest attack of a suite on fresh episodes."""
    from adv_wrappers.evaluation.statistics.claim import RobustnessClaim

    claim = RobustnessClaim(least, lowest=lowest)
    return [judge(report.worst, claim, f"worst case {report.worst.threat} on fresh episodes")]


def pass_or_fail(rows: Sequence[Judged]) -> None:
    """Say how the claim stands, and end with status 1 unless all rows show it."""
    # the row that decides: the worst that fails, else the lowest of those that pass
    failed = [row for row in rows if row.verdict != "shown"]
    decisive = min(failed or rows, key=lambda row: (row.verdict != "below", row.low))
    more = f" (the worst of {len(failed)} rows that fail)" if len(failed) > 1 else ""
    say(f"{'failed' if failed else 'passed'}: {decisive.sentence}{more}", err=bool(failed))
    if failed:
        raise click.exceptions.Exit(FAILED)
