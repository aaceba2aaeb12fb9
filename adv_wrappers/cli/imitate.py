"""``imitate``: a surrogate of a black box, as a card that every other command reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from adv_wrappers.cli.interruption import resumable
from adv_wrappers.cli.options import REQUIRED, evaluate_with, load_agent, repeated
from adv_wrappers.cli.output import print_columns, say, table_options
from adv_wrappers.cli.progress import show_progress
from adv_wrappers.cli.signatures import command


@command(
    "imitate",
    "adv_wrappers.imitate",
    files=True,
    out=REQUIRED,
)
@click.option("--no-attacks", is_flag=True, help="ask on episodes without attacks alone")
@table_options
def imitate_(env: str, no_attacks: bool, threats: tuple[str, ...], rounds: int, out: Path, **given: Any) -> None:
    """Imitate a victim in ENV from its actions alone, and keep the surrogate as a card to aim attacks at."""
    if threats and no_attacks:
        raise click.UsageError("--no-attacks leaves out what --threat asks for")
    how, agent = repeated(given), load_agent(given, env=env)
    from adv_wrappers.threats.presets import threat
    from adv_wrappers.threats.text import text_of
    from adv_wrappers.training.models.imitation import RADII, SOURCES, imitate

    # the surrogate
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
    # its rounds as a table, how well it agrees, and the command that attacks through it
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
