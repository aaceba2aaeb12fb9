"""``threats`` and ``victims``: what there is."""

from __future__ import annotations

import dataclasses
from typing import Any

from adv_wrappers.cli.main import main
from adv_wrappers.cli.output import print_table, table_options


@main.command("threats")
@table_options
def threats_() -> None:
    """List the presets, what they perturb, and their arguments."""
    from adv_wrappers.rendering.text_table import TextTable
    from adv_wrappers.threats.presets import presets

    lines, rows = list[tuple[str, ...]](), list[dict[str, object]]()
    for name, preset in sorted(presets.items()):
        given = {**{f.name: _default(f) for f in _fields(preset.kind)}, **preset.arguments}
        given.pop("victim", None)
        arguments = " ".join(f"{key}={_value_text(value)}" for key, value in given.items())
        lines.append((name, preset.on, preset.summary, arguments))
        rows.append({"preset": name, "perturbs": preset.on, "what_it_does": preset.summary, "arguments": given})
    columns, first = ("preset", "perturbs", "what it does", "arguments"), ("preset", "what it does")
    notes = (
        "Every threat takes eps, norm, scale, newest, change, victim, when, p and at too, where they apply.",
        "A threat is written name:key=value,key=value, as in max-diff:eps=0.075,scale=victim",
    )
    print_table(TextTable("", columns, tuple(lines), notes, texts=columns, by_importance=first), rows)


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
    from adv_wrappers.rendering.text_table import TextTable
    from adv_wrappers.victims import environment_of, load_victim, zoo_names

    lines, rows = list[tuple[str, ...]](), list[dict[str, object]]()
    for name in zoo_names():
        victim = load_victim(f"zoo:{name}")
        card, about = victim.card or {}, {"victim": f"zoo:{name}", "kind": victim.kind, "acts_by": victim.select}
        about["environment"] = environment_of(card)[0]
        found = [entry for entry in card.get("measured", []) if entry.get("attack") == "none"][:1]
        said = [f"{entry['mean']:.1f} +- {entry['std']:.1f} over {entry['episodes']} episodes" for entry in found]
        names = (about[key] for key in ("victim", "environment", "kind", "acts_by"))
        lines.append((*map(str, names), said[0] if said else "-"))
        rows.append({**about, "measured": found[0] if found else None})
    columns = ("victim", "environment", "kind", "acts by", "measured return")
    first = ("victim", "environment", "measured return")
    print_table(TextTable("", columns, tuple(lines), texts=columns, by_importance=first), rows)
