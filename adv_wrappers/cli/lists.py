"""``threats`` and ``victims``: what there is."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from adv_wrappers.cli.main import main
from adv_wrappers.cli.output import print_columns, table_options


@main.command("threats")
@table_options
def threats_() -> None:
    """List the presets, what they perturb, and their arguments."""
    from adv_wrappers.threats.presets import presets

    rows = []
    for name, preset in sorted(presets.items()):
        given = {**{f.name: _default(f) for f in _fields(preset.kind)}, **preset.arguments}
        given.pop("victim", None)
        rows.append({"preset": name, "perturbs": preset.on, "what_it_does": preset.summary, "arguments": given})

    def arguments(row: Mapping[str, Any]) -> str:
        return " ".join(f"{key}={_value_text(value)}" for key, value in row["arguments"].items())

    # arguments as they are written in a text
    columns: dict[str, Any] = {
        "preset": "preset", "perturbs": "perturbs", "what it does": "what_it_does", "arguments": arguments,
    }  # fmt: skip
    notes = (
        "Every threat takes eps, norm, scale, newest, change, victim, when, p and at too, where they apply.",
        "A threat is written name:key=value,key=value, as in max-diff:eps=0.075,scale=victim",
    )
    print_columns(rows, columns, notes=notes, texts=tuple(columns), by_importance=("preset", "what it does"))


def _fields(kind: Any) -> tuple[dataclasses.Field[Any], ...]:
    return tuple(field for field in dataclasses.fields(kind) if field.init)


def _default(field: dataclasses.Field[Any]) -> object:
    return "(required)" if field.default is dataclasses.MISSING else field.default


def _value_text(value: object) -> str:
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


@main.command()
@table_options
def victims() -> None:
    """List the agents of the zoo with their measured scores."""
    from adv_wrappers.victims import environment_of, load_victim, zoo_names

    rows = []
    for name in zoo_names():
        victim = load_victim(f"zoo:{name}")
        card, about = victim.card or {}, {"victim": f"zoo:{name}", "kind": victim.kind, "acts_by": victim.select}
        found = [entry for entry in card.get("measured", []) if entry.get("attack") == "none"]
        rows.append({**about, "environment": environment_of(card)[0], "measured": found[0] if found else None})

    def measured(row: Mapping[str, Any]) -> str | None:
        entry = row["measured"]
        return entry and f"{entry['mean']:.1f} +- {entry['std']:.1f} over {entry['episodes']} episodes"

    # clean returns as the cards say them
    columns: dict[str, Any] = {
        "victim": "victim", "environment": "environment", "kind": "kind", "acts by": "acts_by",
        "measured return": measured,
    }  # fmt: skip
    print_columns(rows, columns, texts=tuple(columns), by_importance=("victim", "environment", "measured return"))
