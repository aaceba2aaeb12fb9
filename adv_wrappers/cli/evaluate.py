"""``evaluate`` and ``demo``: agents are played, clean and under attack."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from adv_wrappers.cli.gate import AT_LEAST, judge_report, pass_or_fail
from adv_wrappers.cli.interruption import resumable
from adv_wrappers.cli.main import main, print_if_unwritten
from adv_wrappers.cli.options import FOLDER, Text, load_agent
from adv_wrappers.cli.output import json_asked, print_rows, print_table, say, table_options
from adv_wrappers.cli.progress import show_progress
from adv_wrappers.cli.signatures import command
from adv_wrappers.utils.files import held
from adv_wrappers.utils.parsing import parse_value

if TYPE_CHECKING:
    from adv_wrappers.evaluation.rows.report import Report
    from adv_wrappers.victims import Victim

_DEMO: tuple[tuple[str, str, str, tuple[str, ...], int], ...] = (
    ("cartpole", "zoo:cartpole-dqn", "CartPole-v1", ("noise:eps=0.2", "pgd:eps=0.2", "action-flip:p=0.2"), 10),
    (
        "hopper", "zoo:hopper-ppo", "Hopper-v5",
        (
            "noise:eps=0.1,scale=victim", "max-diff:eps=0.1,scale=victim",
            "max-diff:eps=0.1,scale=victim,restarts=6,keep=best,noise=0", "action-noise:eps=0.2",
        ), 10,
    ),
)  # fmt: skip


def _run(victim: Victim | str, env: str, threats: tuple[str, ...], **options: Any) -> Report:
    """Evaluate, and show how far it is."""
    from adv_wrappers.evaluation.evaluate import evaluate

    with show_progress() as move:
        return evaluate(victim, env, list(threats), progress=move, **options)


def _show(report: Report) -> None:
    print_table(report.table(), [row.to_dict() for row in report.threats])


@command(
    "evaluate",
    "adv_wrappers.evaluate",
    threats={"help": "such as max-diff:eps=0.1, in quotes where it has ; or (; ' + ' between threats makes a stack"},
    minimum={"type": Text(parse_value, "return")},
    measure={"type": str, "metavar": "TARGET"},
    files=True,
)
@AT_LEAST
@table_options
def evaluate_(env: str, at_least: float | None, threats: tuple[str, ...] | None, **given: Any) -> None:
    """Play ENV clean and under each threat, on the same episodes."""
    out = given["out"]
    device = given.pop("device")
    agent = load_agent(given, device, env)
    # the report, printed even where it cannot be written
    with resumable(out, "the same command" + ("" if given["resume"] else " with --resume")):
        with print_if_unwritten(_show):
            report = _run(agent, env, threats or (), **given)
        _show(report)
        if out is not None:
            report.plot(out / "returns.png")
            say(f"wrote {out / 'report.json'} and {out / 'returns.png'}")
    # the claim about it, by what is known of the least return
    if at_least is not None:
        from adv_wrappers.environments.environment import Environment
        from adv_wrappers.evaluation.statistics.return_range import lowest_return

        lowest_known = lowest_return(Environment.of(env, agent, given["env_kwargs"], given["make"]))
        pass_or_fail(judge_report(report, at_least, len(threats or ()), lowest_known))


@main.command()
@click.option("--out", default=Path("adv-wrappers-demo"), show_default=True, type=FOLDER)
@table_options
def demo(out: Path) -> None:
    """Attack two agents of the zoo: tables, a page, JSON and figures in well under a minute."""
    from adv_wrappers.studies.report.article import check_target
    from adv_wrappers.studies.report.page import PAGE_FILE, write_page

    rows: list[dict[str, Any]] = []
    reports: list[Report] = []
    with held(out):
        # every agent under its threats, as evaluate plays them, and one page of all
        check_target(out / PAGE_FILE)
        for name, victim, env, threats, episodes in _DEMO:
            report = _run(victim, env, threats, episodes=episodes)
            rows += [{"victim": victim, "environment": env, **row} for row in report.threats]
            if not json_asked():
                _show(report)
            report.to_json(out / f"{name}.json")
            report.plot(out / f"{name}.png")
            reports.append(report)
        page = write_page(reports, out / PAGE_FILE)
    # what was written, and where
    if json_asked():
        print_rows(rows)
    say(f"wrote {', '.join(str(out / f'{item[0]}.json') for item in _DEMO)} and a .png beside each")
    say(f"the page: {page}")
