"""Threats in words, for pictures: a name and the numbers that matter, as texts write them."""

from __future__ import annotations

import dataclasses
from typing import Any

from adv_wrappers.core.budgets import Valid
from adv_wrappers.core.frames import Newest, plain
from adv_wrappers.core.perturbation import Perturbation, When
from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.core.values import same
from adv_wrappers.daylight import Daylight
from adv_wrappers.daylight.preset import transform_of
from adv_wrappers.presets import presets


def words(threat: ThreatModel, when: bool = True) -> tuple[str, list[str]]:
    """The name of a threat, and ``key=value`` of its parameters and its budget.

    A game's daylight transform is called by the transform, with the parameters that the game stands for.

    Args:
        threat: any.
        when: whether its timing is named.

    >>> words(ThreatModel("observation", Daylight("Pong", "shift")))
    ('shift', ['dx=2', 'dy=1'])
    """
    how: Any = threat.how
    if isinstance(how, Daylight):
        how = transform_of(how.game, how.transform, how.layout)
    if not isinstance(how, Perturbation):
        return threat.label, _budget(threat, when)
    name, filled = how.label(threat.budget), {"victim"}
    for preset, entry in presets.items():
        if type(how) is entry.kind and entry.arguments and _filled(how, entry.arguments):
            name, filled = preset, {"victim", *entry.arguments}
    numbers = [
        f"{field.name}={_text(getattr(how, field.name))}"
        for field in dataclasses.fields(how)  # type: ignore[arg-type]
        if field.name not in filled
        and (field.name in getattr(how, "ranged", ()) or not same(getattr(how, field.name), field.default))
    ]
    return name, numbers + _budget(threat, when)


def caption(threat: ThreatModel) -> str:
    """One line: ``rotation:degrees=3``."""
    name, numbers = words(threat)
    return name + (":" + ",".join(numbers) if numbers else "")


def _filled(how: Perturbation, arguments: Any) -> bool:
    return all(same(getattr(how, key), value) for key, value in arguments.items())


def _budget(threat: ThreatModel, when: bool) -> list[str]:
    budget = plain(threat.budget)
    parts = [f"eps={_text(getattr(budget, key))}" for key in ("eps", "k") if hasattr(budget, key)]
    if budget.name != "linf" and not (
        isinstance(budget, Valid) and isinstance(getattr(threat.how, "within", 0), Valid)
    ):
        parts.append(f"norm={budget.name}")
    scale = getattr(budget, "scale", None)
    if scale is not None:
        parts.append(f"scale={_text(scale)}" if isinstance(scale, (str, float)) else "scale=...")
    if isinstance(threat.budget, Newest):
        parts.append("newest=true")
    if when and threat.when is not None:
        parts.append(f"when={threat.when}" if isinstance(threat.when, When) else "when=...")
    return parts


def _text(value: Any) -> str:
    if isinstance(value, tuple) and len(value) == 2 and not isinstance(value[0], tuple):
        return ";".join(_text(end) for end in value)
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return f"{value:g}"
    return value if isinstance(value, str) else "..."
