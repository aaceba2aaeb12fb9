"""``imitate``: a surrogate of a black box, as a card that every other command reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, get_args

import click

from adv_wrappers.cli.completion import complete_victim
from adv_wrappers.cli.interruption import resumable
from adv_wrappers.cli.options import REQUIRED, evaluate_with, load_agent, repeated
from adv_wrappers.cli.output import print_columns, say, table_options
from adv_wrappers.cli.progress import show_progress
from adv_wrappers.cli.signatures import command

Kind = Literal["q", "logits", "mean", "gaussian", "action"]
_FILES = ("onnx", "torchscript")


@command(
    "imitate",
    "adv_wrappers.imitate",
    victim={
        "help": "zoo:NAME, card:FOLDER, sb3:FILE.zip, rllib:FOLDER, onnx:FILE or torchscript:FILE",
        "shell_complete": complete_victim("card", "sb3", "rllib", *_FILES),
    },
    trust={"help": "run the code in sb3:FILE.zip, rllib:FOLDER and --stats, or the program in a TorchScript file"},
    out=REQUIRED,
)
@click.option("--kind", type=click.Choice(get_args(Kind)), help="what an ONNX or TorchScript file returns")
@click.option("--no-attacks", is_flag=True, help="ask on episodes without attacks alone")
@table_options
def imitate_(
    env: str, kind: Kind | None, no_attacks: bool, threats: tuple[str, ...], rounds: int, out: Path, **given: Any
) -> None:
    """Imitate a victim in ENV from its actions alone, and keep the surrogate as a card to aim attacks at."""
    if threats and no_attacks:
        raise click.UsageError("--no-attacks leaves out what --threat asks for")
    how, agent = repeated(given), _victim(env, kind, given)
    from adv_wrappers.threats.presets import threat
    from adv_wrappers.threats.text import text_of
    from adv_wrappers.training.imitation import RADII, SOURCES, imitate

    with show_progress() as move, resumable(out):
        found = imitate(
            agent,
            env,
            rounds=rounds,
            out=out,
            threats=() if no_attacks else threats,
            progress=lambda *at: move("queries", *at),
            **given,
        )
    columns: dict[str, Any] = {name: name for name in ("queries", *SOURCES)}
    columns |= {"threat": lambda row: row["threat"] or "", "agreement": lambda row: f"{row['agreement']:.4f}"}
    print_columns(found.rounds, columns, texts=("threat",), by_importance=("queries", "agreement", "threat"))
    measure = "equal actions" if agent.discrete else "R2 of the actions"
    attacked = "" if found.attacked_agreement is None else f", and {found.attacked_agreement:.4f} under the attacks"
    say(f"{measure}: {found.agreement:.4f} over {given['episodes']} episodes that the training never sees{attacked}")
    if agent.ref is not None:
        name = "pgd" if agent.discrete else "max-diff"
        text = text_of(threat(name, found.victim, eps=RADII[-1], scale="victim"), agent)
        say(f"attack through it with: {evaluate_with(env, how, agent.ref, text)}")


def _victim(env: str, kind: Kind | None, given: dict[str, Any]) -> Any:
    """The victim that ``--victim`` names; a file takes its spaces from the environment."""
    ref = given["victim"]
    where, _, path = ref.partition(":")
    if where not in _FILES:
        if kind is not None:
            raise click.UsageError("--kind goes with onnx:FILE and torchscript:FILE")
        return load_agent(given)
    if kind is None:
        raise click.UsageError(f"{ref} does not say what it returns: give --kind, one of {', '.join(get_args(Kind))}")
    del given["victim"]
    stats, trust, select = given.pop("stats"), given.pop("trust"), given.pop("select")
    if stats is not None:
        raise click.UsageError("--stats goes with sb3:FILE.zip")
    from adv_wrappers.environments.environment import Environment
    from adv_wrappers.victims import from_onnx, from_torchscript

    made = Environment(env, given["env_kwargs"], given["make"])()
    made.close()
    seen, acted = made.observation_space, made.action_space
    if where == "onnx":
        return from_onnx(path, seen, acted, kind, select=select or "mode")
    return from_torchscript(path, seen, acted, kind, select=select or "mode", trust=trust)
