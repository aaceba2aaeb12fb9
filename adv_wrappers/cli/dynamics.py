"""``train-dynamics``: a model of an environment, for attacks that plan."""

from __future__ import annotations

import shlex
from pathlib import Path

import click
import numpy as np

from adv_wrappers.attacks.targets import target_of
from adv_wrappers.cli.main import (
    FOLDER,
    POSITIVE,
    SEED,
    VICTIM,
    main,
    make_console,
    make_table,
    progress_bars,
    resumable,
    stats_option,
)
from adv_wrappers.evaluation.report import number
from adv_wrappers.training.train_dynamics import HORIZONS, train_dynamics
from adv_wrappers.victims import load_victim


@main.command("train-dynamics")
@click.argument("env")
@VICTIM
@stats_option
@click.option("--transitions", default=100_000, show_default=True, type=POSITIVE, help="of the victim and at random")
@click.option("--noise", default=0.3, show_default=True, help="on actions of half of the victim's episodes")
@click.option("--random", default=0.5, show_default=True, help="share of transitions with random actions")
@click.option("--width", default=1000, show_default=True, type=POSITIVE, help="of each layer")
@click.option("--layers", default=4, show_default=True, type=click.IntRange(min=0), help="0 for a linear model")
@click.option("--ensemble", default=1, show_default=True, type=POSITIVE, help="networks whose predictions are averaged")
@click.option("--epochs", default=20, show_default=True, type=POSITIVE, help="passes over the transitions")
@click.option("--lr", default=1e-3, show_default=True, help="Adam's first learning rate")
@click.option("--num-envs", default=8, show_default=True, type=POSITIVE, help="side by side")
@SEED
@click.option("--out", required=True, type=FOLDER, help="for the model; the same call goes on where it stopped")
def train_dynamics_(
    env: str, victim: str, stats: str | None, transitions: int, noise: float, random: float, width: int, layers: int,
    ensemble: int, epochs: int, lr: float, num_envs: int, seed: int, out: Path,
) -> None:  # fmt: skip
    """Learn a model of ENV from what a victim and random actions do there."""
    agent = load_victim(victim, stats=stats)
    with progress_bars() as move, resumable(out):
        model = train_dynamics(
            agent, env, transitions, noise=noise, random=random, hidden=(width,) * layers, ensemble=ensemble,
            epochs=epochs, lr=lr, seed=seed, num_envs=num_envs, out=out, progress=move,
        )  # fmt: skip
    table = make_table("transitions of", "one step", *(f"{steps} steps" for steps in HORIZONS[1:]))
    for column in table.columns[1:]:
        column.justify = "right"
    errors = model.card["errors"]
    assert isinstance(errors, dict)
    for source, found in errors.items():
        loops = (found["open_loop"].get(str(steps)) for steps in HORIZONS[1:])
        table.add_row(source, number(float(np.mean(found["one_step"]))), *map(number, loops))
    make_console().print(table)
    click.echo(
        "mean squared errors on steps that were held out, as shares of the variance of changes (one step) and of"
    )
    click.echo("observations (several steps that are predicted without correction)")
    if agent.ref is not None:
        target = "" if target_of(env) is not None else ",target=reward"
        text = f"model-based:dynamics='card:{out}',eps=0.1{target}"
        words = ["adv-wrappers", "evaluate", env, "--victim", agent.ref, "--threat", text]
        click.echo(f"evaluate with: {shlex.join(words)}")
