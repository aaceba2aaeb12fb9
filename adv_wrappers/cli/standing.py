"""``standing``: measure an agent at the budget of its environment, and make the table of all that were measured."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from adv_wrappers.cli.completion import complete_victim
from adv_wrappers.cli.interruption import resumable
from adv_wrappers.cli.main import main
from adv_wrappers.cli.options import FOLDER, Text
from adv_wrappers.cli.output import print_table, tell
from adv_wrappers.cli.signatures import command
from adv_wrappers.errors import ThreatError
from adv_wrappers.utils.number_text import number_text
from adv_wrappers.utils.object_by_name import object_by_name

_MEASURE = "adv_wrappers.studies.standing.measure."
_VICTIM = click.argument("victim", metavar="REF", shell_complete=complete_victim("card"))


def _read_perturbation(text: str) -> Any:
    """What ``module:name`` names; of a class what it makes without arguments."""
    found = object_by_name(text, ThreatError)
    return found() if isinstance(found, type) else found


@main.group("standing")
def standing_() -> None:
    """Agents under the strongest attack, at one budget an environment."""


@command(
    "add",
    f"{_MEASURE}Submission",
    f"{_MEASURE}add_submission:minutes",
    group=standing_,
    name={"required": False, "help": "of the agent  [default: of its card's folder, or in the zoo]"},
)
@_VICTIM
@click.option("--store", required=True, type=FOLDER, help="of the standing; the agent gets a folder in it")
@click.option("--dry-run", is_flag=True, help="play the clean run and time each attack, and say what all would take")
def add_(victim: str, store: Path, name: str | None, minutes: float, dry_run: bool, **given: Any) -> None:
    """Measure the agent of a card, or go on with it; the table counts the lowest mean of all its attacks."""
    from adv_wrappers.studies.standing.measure import Submission, add_submission, minutes_for, submission_cost

    name = name or Path(victim.partition(":")[2]).name
    agent = Submission(victim, name, **given)
    # what it takes, or the entry itself
    if dry_run:
        cost = submission_cost(agent, store / name, minutes)
        table, whole = cost.table(), f"{minutes_for(cost):.1f} minutes play all of them"
        print_table(replace(table, notes=(*table.notes, whole)), (part.to_dict() for part in cost.parts))
        return
    with resumable(store / name):
        entry = add_submission(agent, store / name, minutes, tell)
    clean, worst = entry.clean, entry.strongest
    assert clean is not None
    left = f"{worst[0]} leaves {number_text(worst[1].mean)}" if worst else "no attack fitted into the time"
    click.echo(f"{name}: {number_text(clean.mean)} without an attack, {left}")


@command("attack", f"{_MEASURE}add_attack", group=standing_, without=("out",), threat={"required": False})
@_VICTIM
@click.option("--store", required=True, type=FOLDER, help="of the standing, which has the agent")
@click.option("--name", help="of the agent in the standing  [default: as for add]")
@click.option(
    "--perturbation",
    type=Text(_read_perturbation, "module:name"),
    help="of your own code instead: a class, an instance or a function; found in the current directory too",
)
def attack_(
    victim: str, store: Path, name: str | None, threat: str | None, perturbation: Any, label: str | None, **given: Any
) -> None:
    """Attack an agent of the standing in a way of your own, on its episodes: it can only be lowered."""
    from adv_wrappers.studies.standing.measure import add_attack, called

    if (threat is None) == (perturbation is None):
        raise click.UsageError("give an attack, either --threat or --perturbation")
    attack = perturbation if threat is None else threat
    label = label or called(attack)
    name = name or Path(victim.partition(":")[2]).name
    entry = add_attack(
        victim,
        store / name,
        attack,
        label=label,
        tell=tell,
        **given,
    )
    found, worst = entry.attacks[label], entry.strongest
    assert worst is not None
    click.echo(
        f"{name}: {label} leaves {number_text(found.mean)}; the strongest, {worst[0]}, {number_text(worst[1].mean)}"
    )


@standing_.command("build")
@click.argument("store", type=FOLDER)
@click.option("--out", required=True, type=FOLDER, help="for standing.html, and the pages of agents")
def build_(store: Path, out: Path) -> None:
    """Make the page of all agents of STORE, a table that sorts and filters, and the report's page of each."""
    from adv_wrappers.studies.report.article import check_target
    from adv_wrappers.studies.report.page import write_page
    from adv_wrappers.studies.standing.entry import read_entries
    from adv_wrappers.studies.standing.page import STANDING_PAGE, standing_page
    from adv_wrappers.utils.files import write

    entries, page = read_entries(store), out / STANDING_PAGE
    check_target(page)
    # a page for every agent, and the table that links to them
    pages = {entry.name: f"agents/{entry.name}.html" for entry in entries}
    for name, path in pages.items():
        write_page(store / name, out / path)
    write(page, standing_page(entries, pages))
    click.echo(f"wrote {page} and {len(entries)} pages in {out / 'agents'}")
