"""A claim about an agent as a test: ``--at-least`` compares returns with a number, ``--junit`` writes it for CI.

The claim is that a mean return is at least ``X``, and a row's returns show it, do not show it, or refute it
(:class:`adv_wrappers.evaluation.statistics.claim.RobustnessClaim`, with one look at 95%). Only the first
passes, so that few episodes fail where they cannot tell. Of ``evaluate`` every row with a threat is judged, without
threats the clean one; of ``suite`` the worst case on fresh episodes, on which nothing was chosen.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from adv_wrappers.cli.options import Command, finite_number
from adv_wrappers.cli.output import say
from adv_wrappers.utils.files import probe_file, write

if TYPE_CHECKING:
    from adv_wrappers.evaluation.rows.report import Report
    from adv_wrappers.evaluation.rows.row import Row
    from adv_wrappers.evaluation.statistics.claim import RobustnessClaim, Verdict
    from adv_wrappers.studies import SuiteReport

FAILED = 1  # exit status; 2 is wrong usage
_UNPRINTABLE = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # what XML 1.0 cannot hold
_AT_LEAST = click.option(
    "--at-least", type=float, callback=finite_number, metavar="RETURN",
    help="fail (status 1) unless the mean return under attack is shown to be at least this, at 95%",
)  # fmt: skip
_JUNIT = click.option(
    "--junit", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
    help="write the rows as test cases of a JUnit XML file; goes with --at-least",
)  # fmt: skip


def gate_options(command: Command) -> Command:
    """``--at-least`` and ``--junit``."""
    return _AT_LEAST(_JUNIT(command))


@dataclass(frozen=True)
class Judged:
    """One row beside the number that its mean return is to reach.

    Attributes:
        name: the threat.
        verdict: what the row says of the claim; None where the claim is not about this row.
        sentence: the verdict with its figures.
        low: the lower end of the interval.
        seconds: how long the row took to play, of one environment.
    """

    name: str
    verdict: Verdict | None
    sentence: str
    low: float
    seconds: float

    @property
    def failed(self) -> bool:
        """Whether the row is judged, and does not show the claim."""
        return self.verdict in ("not shown", "below")


def judge(row: Row, claim: RobustnessClaim, name: str | None = None, judged: bool = True) -> Judged:
    """What a row of a report says of a claim.

    Args:
        row: a row with its ``returns``.
        claim: about the mean of these.
        name: what the row is called; None takes its ``threat``.
        judged: whether the claim is about this row.
    """
    from adv_wrappers.evaluation.rows.report import number_text
    from adv_wrappers.evaluation.statistics.confidence_intervals import caveat

    name = row.threat if name is None else name
    returns = row.returns
    least = claim.min_return
    verdict, (low, high) = claim.verdict(returns), claim.interval(returns)
    # the interval, or why there is none that could be trusted
    interval = f"{claim.confidence:.0%} interval {number_text(low)} to {number_text(high)}"
    if not claim.conclusive(returns):
        interval = (
            f"{number_text(low)} to {number_text(high)}, no interval of {claim.confidence:.0%}, {caveat(returns)}"
        )
    found = f"{'the agent earns' if name == 'none' else f'{name} leaves'} {number_text(row.mean_return)} ({interval})"
    # a sentence for each verdict
    said = {
        "shown": f"{found}, at least the {least:g} asked for",
        "not shown": f"{found}, which does not show the {least:g} asked for: it may be more or less; "
        f"{claim.why_open(returns)}",
        "below": f"{found}, less than the {least:g} asked for",
    }
    return Judged(name, verdict if judged else None, said[verdict], low, row.seconds)


def judge_report(report: Report, least: float, threats: int, lowest: float | None) -> list[Judged]:
    """Every row of a report; its last ``threats`` rows are judged, or the clean one where there are none.

    The row of ``--minimum worst-action``, which nobody asks about, comes before those of the threats.

    Args:
        report: the report.
        least: the return that is claimed.
        threats: how many rows the claim is about.
        lowest: return that an episode can have; None where it is not known.
    """
    from adv_wrappers.evaluation.statistics.claim import RobustnessClaim

    claim = RobustnessClaim(least, attacks=max(threats, 1), lowest=lowest)
    asked = range(len(report.threats) - threats, len(report.threats)) if threats else range(1)
    return [judge(row, claim, judged=i in asked) for i, row in enumerate(report.threats)]


def judge_suite(report: SuiteReport, least: float, lowest: float | None) -> list[Judged]:
    """The rows of a suite, which chose the strongest attack, and that attack's on fresh episodes, which is judged."""
    from adv_wrappers.evaluation.statistics.claim import RobustnessClaim

    claim = RobustnessClaim(least, lowest=lowest)
    name = f"worst case {report.worst.threat} on fresh episodes"
    return [*(judge(row, claim, judged=False) for row in report.report.threats), judge(report.worst, claim, name)]


def check_gate(least: float | None, junit: Path | None) -> None:
    """Raise, before anything is played, for ``--junit`` without a claim, or in a folder that cannot be written to."""
    if junit is not None:
        if least is None:
            raise click.UsageError("--junit goes with --at-least")
        probe_file(junit)


def pass_or_fail(rows: Sequence[Judged], suite: str, junit: Path | None) -> None:
    """Write the file of a CI server, say how the claim stands, and end with status 1 unless it is shown.

    Args:
        rows: judged or not.
        suite: what was evaluated on what, for the file.
        junit: the file, or None.
    """
    if junit is not None:
        write(junit, junit_xml(rows, suite))
        say(f"wrote {junit}")
    # the row that decides: the worst that fails, else the lowest of those that pass
    failed = [row for row in rows if row.failed]
    about = failed or [row for row in rows if row.verdict is not None]
    decisive = min(about, key=lambda row: (row.verdict != "below", row.low))
    more = f" (the worst of {len(failed)} rows that fail)" if len(failed) > 1 else ""
    say(f"{'failed' if failed else 'passed'}: {decisive.sentence}{more}", err=bool(failed))
    if failed:
        raise click.exceptions.Exit(FAILED)


def junit_xml(rows: Sequence[Judged], suite: str) -> bytes:
    """Rows as JUnit's XML, which GitHub's actions, GitLab and Jenkins read: a test case each, failed or skipped.

    Args:
        rows: the rows.
        suite: the name of the test suite, and the class of its cases.
    """
    from xml.etree import ElementTree

    counts = {
        "tests": str(len(rows)),
        "failures": str(sum(row.failed for row in rows)),
        "errors": "0",
        "skipped": str(sum(row.verdict is None for row in rows)),
        "time": f"{sum(row.seconds for row in rows):.3f}",
    }
    suite = _UNPRINTABLE.sub("?", suite)
    # one case a row: failed, skipped where it is not judged, or passed with what was found
    root = ElementTree.Element("testsuites", {"name": "adv-wrappers", **counts})
    group = ElementTree.SubElement(root, "testsuite", {"name": suite, **counts})
    for row in rows:
        about = {"classname": suite, "name": _UNPRINTABLE.sub("?", row.name), "time": f"{row.seconds:.3f}"}
        case, said = ElementTree.SubElement(group, "testcase", about), _UNPRINTABLE.sub("?", row.sentence)
        if row.failed:
            ElementTree.SubElement(case, "failure", {"message": said, "type": str(row.verdict)}).text = said
        elif row.verdict is None:
            ElementTree.SubElement(case, "skipped", {"message": "the claim is not about this row"})
        else:
            ElementTree.SubElement(case, "system-out").text = said
    ElementTree.indent(root)
    return bytes(ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)) + b"\n"
