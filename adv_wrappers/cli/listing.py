"""``threats`` and ``victims``: what there is."""

from __future__ import annotations

import dataclasses
from typing import Any

from adv_wrappers.cli.main import main, make_console, make_table


@main.command("threats")
def threats_() -> None:
    """List the presets, what they perturb, and their arguments."""
    from rich.markup import escape

    from adv_wrappers.presets import presets

    table = make_table(
        "preset", "perturbs", "what it does", "arguments (beside eps norm scale newest victim when p at)"
    )
    for name, preset in sorted(presets.items()):
        given = {**{f.name: _default(f) for f in _fields(preset.kind)}, **preset.arguments}
        arguments = " ".join(f"{key}={_value_text(value)}" for key, value in given.items() if key != "victim")
        table.add_row(name, preset.on, escape(preset.summary), escape(arguments))
    console = make_console()
    console.print(table)
    console.print("A threat is written name:key=value,key=value, as in max-diff:eps=0.075,scale=victim", markup=False)


def _fields(kind: Any) -> tuple[dataclasses.Field[Any], ...]:
    return tuple(field for field in dataclasses.fields(kind) if field.init)


def _default(field: dataclasses.Field[Any]) -> object:
    return "(required)" if field.default is dataclasses.MISSING else field.default


def _value_text(value: object) -> str:
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


@main.command()
def victims() -> None:
    """List the agents of the zoo with their measured scores."""
    from rich.markup import escape

    from adv_wrappers.victims import environment_of, load_victim, zoo_names

    table = make_table("victim", "environment", "kind", "acts by", "measured return")
    for name in zoo_names():
        victim = load_victim(f"zoo:{name}")
        card = victim.card or {}
        table.add_row(f"zoo:{name}", environment_of(card)[0], victim.kind, victim.select, escape(_measured(card)))
    make_console().print(table)


def _measured(card: dict[str, Any]) -> str:
    for entry in card.get("measured", []):
        if entry.get("attack") == "none":
            return f"{entry['mean']:.1f} +- {entry['std']:.1f} over {entry['episodes']} episodes"
    return "-"
