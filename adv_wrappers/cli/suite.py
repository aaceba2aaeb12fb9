"""``suite``: the strongest of many attacks on one agent."""

from __future__ import annotations

from pathlib import Path

import click

from adv_wrappers.campaign import SUITES, SuiteReport, run_suite
from adv_wrappers.cli.main import (
    FOLDER,
    POSITIVE,
    SCALE,
    SEED,
    SELECT,
    VICTIM,
    WORKERS,
    Select,
    main,
    make_console,
    parse_scale,
    print_if_unwritten,
    progress_bars,
    resumable,
    stats_option,
)
from adv_wrappers.core.budgets import Linf
from adv_wrappers.evaluation.report import Report
from adv_wrappers.victims import load_victim


@main.command("suite")
@click.argument("env")
@VICTIM
@stats_option
@click.option("--suite", default="standard", show_default=True, type=click.Choice([*SUITES]), help="which attacks")
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
@click.option("--num-envs", type=POSITIVE, help="side by side  [default: 32, or 8 for images]")
@WORKERS
@click.option("--no-quantize", is_flag=True, help="images as float32, for budgets below one grey level")
@SELECT
@click.option("--device", default=None, metavar="DEVICE", help="of the victim  [default: cpu]")
@click.option("--out", type=FOLDER, help="for the report and all that is trained; the same call goes on from there")
def suite_(
    env: str, victim: str, stats: str | None,
    suite: str, eps: float | None, scale: str | None, action_eps: float | None, train: bool,
    attacks: tuple[str, ...], episodes: int, seed: int,
    steps: int, dynamics: str | None, num_envs: int | None, workers: int, no_quantize: bool, select: Select | None,
    device: str | None, out: Path | None,
) -> None:  # fmt: skip
    """Attack a victim in ENV with every attack of a suite that applies, and report the strongest on fresh episodes."""
    agent = load_victim(victim, select=select, device=device or "cpu", stats=stats)
    with print_if_unwritten(_show), progress_bars() as progress, resumable(out):
        report = run_suite(
            suite, agent, env, eps, scale=parse_scale(scale), attacks=attacks or None, episodes=episodes, seed=seed,
            steps=steps, num_envs=num_envs, quantize=not no_quantize, out=out, progress=progress,
            dynamics=dynamics, workers=workers, train=train, tell=click.echo,
            action_within=None if action_eps is None else Linf(action_eps),
        )  # fmt: skip
    _show(report)
    if out is not None:
        report.plot(out / "returns.png")
        click.echo(f"wrote {out / 'report.json'} and {out / 'returns.png'}")


def _show(report: SuiteReport | Report) -> None:
    console = make_console()
    console.print(report.table())
    for note in report.notes() if isinstance(report, SuiteReport) else ():
        console.print(note, markup=False, soft_wrap=True)
    for warning in report.warnings:
        console.print(f"warning: {warning}", style="yellow", markup=False)
