"""The command line: ``adv-wrappers demo | threats | victims | evaluate``, also as ``python -m adv_wrappers``."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import click
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table

from adv_wrappers import __version__
from adv_wrappers.core.errors import AdvWrappersError
from adv_wrappers.evaluation.episodes import evaluate
from adv_wrappers.evaluation.report import Report
from adv_wrappers.presets import presets
from adv_wrappers.victims import environment_of, load_victim, zoo_names

_PLAIN = 150  # columns where there is no terminal that has a width

_DEMO: tuple[tuple[str, str, str, tuple[str, ...], int], ...] = (
    ("cartpole", "zoo:cartpole-dqn", "CartPole-v1", ("noise:eps=0.2", "pgd:eps=0.2", "action-flip:p=0.2"), 10),
    (
        "hopper", "zoo:hopper-ppo", "Hopper-v5",
        ("noise:eps=0.1,scale=victim", "max-diff:eps=0.1,scale=victim", "action-noise:eps=0.2"), 8,
    ),
)  # fmt: skip


class _Clear(click.ClickException):
    """An error of the package's own: one line, and the exit code of wrong usage."""

    exit_code = 2


class _Commands(click.Group):
    """Commands whose expected errors are one line and exit code 2."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except AdvWrappersError as error:
            raise _Clear(" ".join(str(error).split())) from error


def _console(stderr: bool = False) -> Console:
    """A console of the present standard streams: plain and wide enough where no terminal is."""
    console = Console(stderr=stderr, highlight=False)
    return console if console.is_terminal else Console(stderr=stderr, highlight=False, width=_PLAIN, color_system=None)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="adv-wrappers")
def main() -> None:
    """Attack reinforcement-learning agents, and measure what they lose."""


def _run(victim: Any, env: str, threats: tuple[str, ...], **options: Any) -> Report:
    """Evaluate with progress bars on a terminal, and silently elsewhere."""
    console = _console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bars:
        tasks: dict[int, Any] = {}

        def tell(threat: str, done: int, total: int) -> None:
            if done == 0:
                tasks[len(tasks)] = bars.add_task(escape(threat), total=total)
            bars.update(tasks[len(tasks) - 1], completed=done)

        return evaluate(victim, env, list(threats), progress=tell, **options)


def _show(report: Report) -> None:
    console = _console()
    table = report.table()
    table.caption = None  # a caption is as narrow as its table; warnings get lines of their own
    console.print(table)
    for warning in report.warnings:
        console.print(f"warning: {warning}", style="yellow", markup=False)


_THREAT = "e.g. max-diff:eps=0.1; again for more runs; ' + ' between two makes a stack, innermost first"


@main.command("evaluate")
@click.argument("env")
@click.option("--victim", required=True, metavar="REF", help="zoo:NAME, card:FOLDER or sb3:FILE.zip")
@click.option(
    "--threat",
    "threats",
    multiple=True,
    metavar="TEXT",
    help="e.g. max-diff:eps=0.1; ' + ' between threats makes a stack, innermost first; again for more runs",
)
@click.option(
    "--select", type=click.Choice(["mode", "sample"]), help="how the victim acts  [default: as its card says]"
)
@click.option("--episodes", default=10, show_default=True, type=click.IntRange(min=1))
@click.option("--seed", default=0, show_default=True, type=click.IntRange(min=0))
@click.option("--num-envs", type=click.IntRange(min=1), help="side by side  [default: 32, or 8 for images]")
@click.option("--device", default=None, metavar="DEVICE", help="of the victim  [default: cpu]")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), help="for report.json and returns.png")
def evaluate_(
    env: str, victim: str, threats: tuple[str, ...], select: Any, episodes: int, seed: int, num_envs: int | None,
    device: str | None, out: Path | None,
) -> None:  # fmt: skip
    """Play ENV clean and under each threat, on the same episodes."""
    agent = load_victim(victim, select=select, device=device or "cpu")
    report = _run(agent, env, threats, episodes=episodes, seed=seed, num_envs=num_envs, out=out)
    _show(report)
    if out is not None:
        report.plot(out / "returns.png")
        click.echo(f"wrote {out / 'report.json'} and {out / 'returns.png'}")


@main.command()
@click.option(
    "--out", default=Path("adv-wrappers-demo"), show_default=True, type=click.Path(path_type=Path, file_okay=False)
)
def demo(out: Path) -> None:
    """Attack two agents of the zoo: tables, JSON and figures in well under a minute."""
    for name, victim, env, threats, episodes in _DEMO:
        report = _run(victim, env, threats, episodes=episodes)
        _show(report)
        report.to_json(out / f"{name}.json")
        report.plot(out / f"{name}.png")
    click.echo(f"wrote {', '.join(str(out / f'{item[0]}.json') for item in _DEMO)} and a .png beside each")


def _table(*columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


@main.command("threats")
def threats_() -> None:
    """List the presets, what they perturb, and their arguments."""
    table = _table("preset", "perturbs", "what it does", "arguments (beside eps norm scale victim when p at)")
    for name, preset in sorted(presets.items()):
        given = {**{f.name: _default(f) for f in _fields(preset.kind)}, **preset.arguments}
        arguments = " ".join(f"{key}={_word(value)}" for key, value in given.items() if key != "victim")
        table.add_row(name, preset.on, escape(preset.summary), escape(arguments))
    console = _console()
    console.print(table)
    console.print("A threat is written name:key=value,key=value, as in max-diff:eps=0.075,scale=victim", markup=False)


def _fields(kind: Any) -> tuple[dataclasses.Field[Any], ...]:
    return dataclasses.fields(kind)


def _default(field: dataclasses.Field[Any]) -> Any:
    return "(required)" if field.default is dataclasses.MISSING else field.default


def _word(value: Any) -> str:
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


@main.command()
def victims() -> None:
    """List the agents of the zoo with their measured scores."""
    table = _table("victim", "environment", "kind", "acts by", "measured return")
    for name in zoo_names():
        victim = load_victim(f"zoo:{name}")
        card = victim.card or {}
        table.add_row(f"zoo:{name}", environment_of(card)[0], victim.kind, victim.select, escape(_measured(card)))
    _console().print(table)


def _measured(card: dict[str, Any]) -> str:
    for entry in card.get("measured", []):
        if entry.get("attack") == "none":
            return f"{entry['mean']:.1f} +- {entry['std']:.1f} over {entry['episodes']} episodes"
    return "-"
