"""``suite``: the strongest of many attacks on one agent."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from adv_wrappers.cli.gate import AT_LEAST, judge_suite, pass_or_fail
from adv_wrappers.cli.interruption import resumable
from adv_wrappers.cli.main import print_if_unwritten
from adv_wrappers.cli.options import load_agent
from adv_wrappers.cli.output import print_table, say, table_options
from adv_wrappers.cli.progress import show_progress
from adv_wrappers.cli.signatures import command
from adv_wrappers.registry import SUITE_NAMES
from adv_wrappers.utils.files import held
from adv_wrappers.utils.pace import EVERY_S

if TYPE_CHECKING:
    from adv_wrappers.evaluation.rows.report import Report
    from adv_wrappers.studies import SuiteReport

_AGAIN = "; and the strongest again on fresh episodes"


@command(
    "suite",
    "adv_wrappers.studies.suite.runner.run_suite",
    "adv_wrappers.evaluation.evaluate.evaluate:device",
    without=("name",),
    suite={"default": "standard", "type": click.Choice(SUITE_NAMES)},
    train={"default": True},
    files=True,
)
@click.option(
    "--action-eps",
    type=click.FloatRange(min=0),
    help="radius of continuous actions  [default: --eps, without a --scale]",
)
@click.option("--dry-run", is_flag=True, help="play the clean run and a sample, and say what the attacks will take")
@AT_LEAST
@table_options
def suite_(
    suite: str,
    env: str,
    device: str | None,
    action_eps: float | None,
    attacks: tuple[str, ...] | None,
    workers: int,
    out: Path | None,
    dry_run: bool,
    at_least: float | None,
    **given: Any,
) -> None:
    """Attack a victim in ENV with every attack of a suite that applies, and report the strongest on fresh episodes."""
    if dry_run and at_least is not None:
        raise click.UsageError("--dry-run judges nothing: leave out --at-least")
    from adv_wrappers.core.budgets.budget import Linf
    from adv_wrappers.evaluation.statistics.return_range import lowest_return
    from adv_wrappers.studies import AttackSetting, suite_cost
    from adv_wrappers.studies.suite.runner import play_suite

    # what the attacks are made for
    agent = load_agent(given, device, env)
    action_budget = None if action_eps is None else Linf(action_eps)
    setting = AttackSetting.of(agent, env, within=None, action_budget=action_budget, **given)
    with print_if_unwritten(_show), show_progress() as progress, resumable(out), held(out):
        setting = replace(setting, out=out, progress=progress)
        # what takes long is said before it begins
        cost = suite_cost(suite, setting, attacks)
        if not dry_run:
            if cost.wall_clock(workers) >= EVERY_S:
                click.echo(cost.line(workers) + _AGAIN, err=True)
            report = play_suite(suite, setting, attacks, workers, tell=say)
    # what it would take, or what was found
    if dry_run:
        table = cost.table(workers)
        table = replace(table, notes=(table.notes[0] + _AGAIN, *table.notes[1:]))
        print_table(table, (part.to_dict() for part in cost.parts))
        return
    _show(report)
    if out is not None:
        report.plot(out / "returns.png")
        say(f"wrote {out / 'report.json'} and {out / 'returns.png'}")
    if at_least is not None:
        pass_or_fail(judge_suite(report, at_least, lowest_return(setting.environment)))


def _show(report: SuiteReport | Report) -> None:
    from adv_wrappers.studies import SuiteReport

    rows = _rows(report) if isinstance(report, SuiteReport) else [row.to_dict() for row in report.threats]
    print_table(report.table(), rows)


def _rows(report: SuiteReport) -> list[dict[str, Any]]:
    """The rows of the table: every attack, and the two below them, by the names in the first column."""
    name, shares = report.worst.threat, report.shares
    rows = [
        {
            "attack": row.threat,
            "strongest": row.threat == name,
            "share": shares.get(row.threat),
            "other_budget": report.other_budgets.get(row.threat),
            **row.to_dict(),
        }
        for row in report.report.threats
    ]
    worst = {"attack": f"worst case: {name}, fresh episodes", **report.worst}
    return [*rows, worst, {"attack": "worst per episode (optimistic)", **report.worst_per_episode}]
