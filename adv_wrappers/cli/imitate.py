"""``imitate``: a surrogate of a black box, as a card that every other command reads."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from adv_wrappers.cli.completion import complete_threat, complete_victim
from adv_wrappers.cli.interruption import kept_rounds, resumable
from adv_wrappers.cli.main import main
from adv_wrappers.cli.options import (
    FOLDER,
    POSITIVE,
    SEED,
    SELECT,
    STATS,
    EnvArguments,
    Select,
    environment_options,
    load_agent,
    repeated,
)
from adv_wrappers.cli.output import print_table, say, table_options
from adv_wrappers.cli.progress import show_progress

if TYPE_CHECKING:
    from adv_wrappers.environments.environment import EnvFactory
    from adv_wrappers.environments.named_function import MakeFunction
    from adv_wrappers.victims import Victim
    from adv_wrappers.wrappers.layer import AnyEnv

Kind = Literal["q", "logits", "mean", "gaussian", "action"]
KINDS: tuple[Kind, ...] = ("q", "logits", "mean", "gaussian", "action")
_FILES = ("onnx", "torchscript")


@main.command("imitate")
@environment_options
@click.option(
    "--victim",
    required=True,
    metavar="REF",
    shell_complete=complete_victim("card", "sb3", "rllib", "onnx", "torchscript"),
    help="zoo:NAME, card:FOLDER, sb3:FILE.zip, rllib:FOLDER, onnx:FILE or torchscript:FILE",
)
@STATS
@click.option("--kind", type=click.Choice(KINDS), help="what an ONNX or TorchScript file returns")
@click.option(
    "--trust",
    is_flag=True,
    help="run the code in sb3:FILE.zip, rllib:FOLDER and --stats, or the program in a TorchScript file",
)
@click.option(
    "--queries", default=20_000, show_default=True, type=POSITIVE, help="actions that the victim is asked for"
)
@click.option("--rounds", default=6, show_default=True, type=click.IntRange(min=0), help="after the first; 0 clones")
@click.option(
    "--threat",
    "threats",
    multiple=True,
    metavar="TEXT",
    shell_complete=complete_threat,
    help="an attack to ask under, e.g. pgd:eps=0.1; again for more  [default: pgd or max-diff at three radii]",
)
@click.option("--no-attacks", is_flag=True, help="ask on episodes without attacks alone")
@click.option("--episodes", default=10, show_default=True, type=POSITIVE, help="to measure the agreement on")
@SEED
@SELECT
@click.option("--out", required=True, type=FOLDER, help="for the surrogate's card; the same call resumes")
@table_options
def imitate_(
    env: str,
    env_kwargs: EnvArguments | None,
    make: MakeFunction | None,
    victim: str,
    stats: str | None,
    kind: Kind | None,
    trust: bool,
    queries: int,
    rounds: int,
    threats: tuple[str, ...],
    no_attacks: bool,
    episodes: int,
    seed: int,
    select: Select | None,
    out: Path,
) -> None:
    """Imitate a victim in ENV from its actions alone, and keep the surrogate as a card to aim attacks at."""
    if threats and no_attacks:
        raise click.UsageError("--no-attacks leaves out what --threat asks for")
    agent = _victim(lambda: _made(env, env_kwargs, make), victim, kind, trust, select, stats)
    from adv_wrappers.threats.presets import threat
    from adv_wrappers.threats.text import text_of
    from adv_wrappers.training.imitation import RADII, SOURCES, imitate

    chosen = () if no_attacks else threats or None
    from adv_wrappers.rendering.text_table import TextTable

    with show_progress() as move, resumable(out, kept_rounds(rounds)):
        found = imitate(
            agent,
            env,
            queries,
            rounds,
            seed,
            out,
            threats=chosen,
            episodes=episodes,
            progress=lambda *at: move("queries", *at),
            env_kwargs=env_kwargs,
            make=make,
        )
    rows = [
        (*(str(row[name]) for name in ("queries", *SOURCES)), str(row["threat"] or ""), f"{row['agreement']:.4f}")
        for row in found.rounds
    ]
    columns, first = ("queries", *SOURCES, "threat", "agreement"), ("queries", "agreement", "threat")
    print_table(TextTable("", columns, tuple(rows), texts=("threat",), by_importance=first), found.rounds)
    measure = "equal actions" if agent.discrete else "R2 of the actions"
    attacked = "" if found.attacked_agreement is None else f", and {found.attacked_agreement:.4f} under the attacks"
    say(f"{measure}: {found.agreement:.4f} over {episodes} episodes that the training never sees{attacked}")
    if agent.ref is not None:
        name = "pgd" if agent.discrete else "max-diff"
        text = text_of(threat(name, found.victim, eps=RADII[-1], scale="victim"), agent)
        words = ["adv-wrappers", "evaluate", env, *repeated(env_kwargs, make, trust), "--victim", agent.ref]
        words += ["--threat", text]
        say(f"attack through it with: {shlex.join(words)}")


def _made(env: str, env_kwargs: EnvArguments | None, make: MakeFunction | None) -> AnyEnv:
    from adv_wrappers.environments.environment import Environment

    return Environment(env, env_kwargs, make)()


def _victim(
    make_env: EnvFactory, ref: str, kind: Kind | None, trust: bool, select: Select | None, stats: str | None
) -> Victim:
    """The victim that ``--victim`` names; a file takes its spaces from the environment."""
    where, _, path = ref.partition(":")
    if where not in _FILES:
        if kind is not None:
            raise click.UsageError("--kind goes with onnx:FILE and torchscript:FILE")
        return load_agent(ref, trust, stats, select)
    if kind is None:
        raise click.UsageError(f"{ref} does not say what it returns: give --kind, one of {', '.join(KINDS)}")
    if stats is not None:
        raise click.UsageError("--stats goes with sb3:FILE.zip")
    from adv_wrappers.victims import from_onnx, from_torchscript

    made = make_env()
    made.close()
    seen, acted = made.observation_space, made.action_space
    if where == "onnx":
        return from_onnx(path, seen, acted, kind, select=select or "mode")
    return from_torchscript(path, seen, acted, kind, select=select or "mode", trust=trust)
