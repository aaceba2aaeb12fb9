"""``certify``: what no attack takes from an agent, beside what attacks leave it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast, get_args

import click

from adv_wrappers.cli.interruption import kept_ranges, resumable
from adv_wrappers.cli.main import main
from adv_wrappers.cli.options import (
    FOLDER,
    NUM_ENVS,
    POSITIVE,
    SCALE,
    SEED,
    SELECT,
    EnvArguments,
    Select,
    environment_options,
    load_agent,
    parse_scale,
    victim_options,
)
from adv_wrappers.cli.output import print_table, say, table_options
from adv_wrappers.cli.progress import show_progress
from adv_wrappers.registry import BEAM_WIDTH, Method

if TYPE_CHECKING:
    from adv_wrappers.environments.named_function import MakeFunction


@main.command("certify")
@environment_options
@victim_options
@click.option(
    "--eps", "radii", required=True, multiple=True, type=float, help="radius of the l-infinity budget; again for more"
)
@SCALE
@click.option("--episodes", default=10, show_default=True, type=POSITIVE)
@SEED
@click.option(
    "--method", default="crown", show_default=True, type=click.Choice(get_args(Method)),
    help="of the bounds on the network, from the fastest to the tightest",
)  # fmt: skip
@click.option(
    "--budget-s",
    type=click.FloatRange(0, min_open=True),
    help="seconds for an episode, for all but the attacks  [default: counts alone, the same on every machine]",
)
@click.option(
    "--max-nodes",
    type=click.IntRange(0),
    help="steps that a search simulates; 0 searches nothing  [default: 10000; a million with --budget-s]",
)
@click.option("--max-boxes", type=POSITIVE, help="boxes of states that it steps  [default: ten times --max-nodes]")
@click.option("--least-reward", type=float, help="of a step  [default: where it is known]")
@click.option("--least-return", type=float, help="of an episode  [default: where it is known]")
@click.option(
    "--attack", "attacks", multiple=True, metavar="TEXT",
    help="a name of the suite's, beam, or a threat without a budget; again for more  [default: all without training]",
)  # fmt: skip
@click.option("--width", default=BEAM_WIDTH, show_default=True, type=POSITIVE, help="of the beam: states that are kept")
@NUM_ENVS
@click.option("--no-quantize", is_flag=True, help="images as float32, for budgets below one grey level")
@SELECT
@click.option("--out", type=FOLDER, help="for ranges.json and ranges.png; the same call goes on from there")
@table_options
def certify_(
    env: str,
    env_kwargs: EnvArguments | None,
    make: MakeFunction | None,
    victim: str,
    stats: str | None,
    trust: bool,
    radii: tuple[float, ...],
    scale: str | None,
    episodes: int,
    seed: int,
    method: str,
    budget_s: float | None,
    max_nodes: int | None,
    max_boxes: int | None,
    least_reward: float | None,
    least_return: float | None,
    attacks: tuple[str, ...],
    width: int,
    num_envs: int | None,
    no_quantize: bool,
    select: Select | None,
    out: Path | None,
) -> None:
    """Bound from below what attacks within a budget leave a victim in ENV, and attack the same episodes."""
    from adv_wrappers.certification.ranges import certified_ranges

    agent = load_agent(victim, trust, stats, select)
    with show_progress() as move, resumable(out, kept_ranges(radii)):
        found = certified_ranges(
            agent,
            env,
            radii,
            episodes,
            seed,
            cast(Method, method),
            budget_s,
            scale=parse_scale(scale),
            attacks=attacks or None,
            least_reward=least_reward,
            least_return=least_return,
            max_nodes=max_nodes,
            max_boxes=max_boxes,
            width=width,
            num_envs=num_envs,
            env_kwargs=env_kwargs,
            make=make,
            quantize=not no_quantize,
            out=out,
            progress=move,
        )
    print_table(found.table(), [one.to_dict() for one in found.ranges])
    if out is not None:
        found.plot(out / "ranges.png")
        say(f"wrote {out / 'ranges.json'} and {out / 'ranges.png'}")
