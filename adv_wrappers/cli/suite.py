"""``suite``: the strongest of many attacks on one agent."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from adv_wrappers.cli.gate import check_gate, gate_options, judge_suite, pass_or_fail
from adv_wrappers.cli.interruption import kept_suite, resumable
from adv_wrappers.cli.main import main, print_if_unwritten
from adv_wrappers.cli.options import (
    FOLDER,
    NUM_ENVS,
    POSITIVE,
    SCALE,
    SEED,
    SELECT,
    WORKERS,
    EnvArguments,
    Select,
    environment_options,
    load_agent,
    parse_scale,
    victim_options,
)
from adv_wrappers.cli.output import print_table, say, table_options
from adv_wrappers.cli.progress import show_progress
from adv_wrappers.registry import SUITE_NAMES
from adv_wrappers.utils.pace import EVERY_S

if TYPE_CHECKING:
    from adv_wrappers.environments.named_function import MakeFunction
    from adv_wrappers.evaluation.report import Report
    from adv_wrappers.studies import Costs, SuiteReport

_AGAIN = "; and the strongest again on fresh episodes"


@main.command("suite")
@environment_options
@victim_options
@click.option("--suite", default="standard", show_default=True, type=click.Choice(SUITE_NAMES), help="which attacks")
@click.option("--eps", type=float, help="radius of the l-infinity budget; daylight and discrete actions need none")
@SCALE
@click.option("--action-eps", type=float, help="radius of continuous actions  [default: --eps, without a --scale]")
@click.option("--train/--no-train", default=True, show_default=True, help="adversaries, critics and surrogates")
@click.option("--attack", "attacks", multiple=True, metavar="NAME", help="of the suite, again for more  [default: all]")
@click.option(
    "--episodes",
    default=50,
    show_default=True,
    type=POSITIVE,
    help="that every attack is scored on, and the strongest again",
)
@SEED
@click.option("--steps", default=100_000, show_default=True, type=POSITIVE, help="of each adversary that learns")
@click.option("--dynamics", metavar="REF", help="card:FOLDER of a model of ENV, for model-based")
@NUM_ENVS
@WORKERS
@click.option("--no-quantize", is_flag=True, help="images as float32, for budgets below one grey level")
@SELECT
@click.option("--device", default=None, metavar="DEVICE", help="of the victim  [default: cpu]")
@click.option("--out", type=FOLDER, help="for the report and all that is trained; the same call goes on from there")
@click.option("--dry-run", is_flag=True, help="play the clean run and a sample, and say what the attacks will take")
@gate_options
@table_options
def suite_(
    env: str,
    env_kwargs: EnvArguments | None,
    make: MakeFunction | None,
    victim: str,
    stats: str | None,
    trust: bool,
    suite: str,
    eps: float | None,
    scale: str | None,
    action_eps: float | None,
    train: bool,
    attacks: tuple[str, ...],
    episodes: int,
    seed: int,
    steps: int,
    dynamics: str | None,
    num_envs: int | None,
    workers: int,
    no_quantize: bool,
    select: Select | None,
    device: str | None,
    out: Path | None,
    dry_run: bool,
    at_least: float | None,
    junit: Path | None,
) -> None:
    """Attack a victim in ENV with every attack of a suite that applies, and report the strongest on fresh episodes."""
    check_gate(at_least, junit)
    if dry_run and at_least is not None:
        raise click.UsageError("--dry-run judges nothing: leave out --at-least")
    from adv_wrappers.core.budgets import Linf
    from adv_wrappers.core.threat import needed_budget
    from adv_wrappers.environments.environment import Environment
    from adv_wrappers.evaluation.return_range import lowest_return
    from adv_wrappers.studies import AttackSetting, run_suite, suite_cost
    from adv_wrappers.victims.saved_networks import load_dynamics

    agent = load_agent(victim, trust, stats, select, device)
    action_within = None if action_eps is None else Linf(action_eps)
    if dry_run:
        with show_progress() as progress:
            unbounded = eps is None and scale is None
            setting = AttackSetting(
                agent,
                Environment(env, env_kwargs, make),
                None if unbounded else needed_budget("the suite", eps, parse_scale(scale), None),
                action_within,
                not no_quantize,
                train,
                seed + 1,
                steps,
                num_envs=num_envs,
                dynamics=None if dynamics is None else load_dynamics(dynamics),
                out=out,
                episodes=episodes,
                episode_seed=seed,
                progress=progress,
            )
            cost = suite_cost(suite, setting, attacks or None)
        parts = (part.to_dict() for part in cost.parts)
        print_table(replace(cost.table(), notes=(cost.summary(workers) + _AGAIN,)), parts)
        return

    def tell_cost(cost: Costs) -> None:
        if cost.wall_clock(workers) >= EVERY_S:
            click.echo(cost.line(workers) + _AGAIN, err=True)

    with print_if_unwritten(_show), show_progress() as progress, resumable(out, kept_suite):
        report = run_suite(
            suite,
            agent,
            env,
            eps,
            scale=parse_scale(scale),
            attacks=attacks or None,
            episodes=episodes,
            seed=seed,
            steps=steps,
            num_envs=num_envs,
            quantize=not no_quantize,
            out=out,
            progress=progress,
            dynamics=dynamics,
            workers=workers,
            train=train,
            tell=say,
            env_kwargs=env_kwargs,
            make=make,
            action_within=action_within,
            on_cost=tell_cost,
        )
    _show(report)
    if out is not None:
        report.plot(out / "returns.png")
        say(f"wrote {out / 'report.json'} and {out / 'returns.png'}")
    if at_least is not None:
        lowest = lowest_return(Environment.of(env, agent, env_kwargs, make))
        pass_or_fail(judge_suite(report, at_least, lowest), f"{agent.ref or victim} on {env}", junit)


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
