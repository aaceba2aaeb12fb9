"""Threats as texts: the one renderer, for rows of tables, captions of pictures and what users copy from them.

:func:`text_of` writes what :func:`.parse_threat` reads, so a row of a report can be run again. What no text
can say (a function, a victim without a reference, a budget that a user wrote) is named in angle brackets,
``noise:eps=0.1,when=<rare>``, which the parser refuses with a reason.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from adv_wrappers.attacks.targets import Target, target_text
from adv_wrappers.core.budgets.budget import Budget, Linf, OfFrames, budget_of
from adv_wrappers.core.budgets.frame_stack import Newest
from adv_wrappers.core.perturbation import Perturbation
from adv_wrappers.core.serialization import Value, same_value
from adv_wrappers.core.threat import ThreatModel, replace_victims, victims_in
from adv_wrappers.core.timing import Timing
from adv_wrappers.daylight import Daylight
from adv_wrappers.daylight.daylight import transform_of
from adv_wrappers.errors import AdvWrappersError, ThreatError
from adv_wrappers.threats.presets import TEXTS, Preset, parse_when, presets
from adv_wrappers.utils.parsing import parse_value, split_arguments, split_outside_quotes, unquote
from adv_wrappers.victims.auxiliary_networks import Critic, Dynamics
from adv_wrappers.victims.victim import Victim

_MOST = 256  # numbers of a scale that a text holds; an image has tens of thousands
_FEW = 4  # that a caption holds


def text_of(threat: ThreatModel, victim: Victim | None = None) -> str:
    """The text of a threat, from which ``parse_threat`` makes an equal one.

    The preset is the one that leaves the fewest arguments to be written, and of several that leave none the one with
    the most of its own: MinBest with the numbers of PGD is ``pgd``.

    Args:
        threat: any.
        victim: the victim that the reader will fill in (``parse_threat(text).against(victim)``), as reports do with
            the evaluated agent; it is left out of the text, and its unit is ``scale=victim``.

    >>> from adv_wrappers import Linf, MaxDiff, ThreatModel
    >>> from adv_wrappers.threats.text import text_of
    >>> text_of(ThreatModel("observation", MaxDiff(steps=20), Linf(0.1)))
    'max-diff:steps=20,eps=0.1'
    """
    name, parts = _name_and_arguments(threat, victim, short=False)
    return name + (":" + ",".join(parts) if parts else "")


def name_and_arguments(threat: ThreatModel, when: bool = True) -> tuple[str, list[str]]:
    """The name of a threat and ``key=value`` of what matters in a picture of it: no victims, no long lists of numbers.

    A game's daylight transform is called by the transform, with the parameters that the game stands for.

    Args:
        threat: any.
        when: whether its timing is named.

    >>> name_and_arguments(ThreatModel("observation", Daylight("Pong", "shift")))
    ('shift', ['dx=2', 'dy=1'])
    """
    how: object = threat.how
    if isinstance(how, Daylight):
        threat = dataclasses.replace(threat, how=transform_of(how.game, how.transform, how.layout))
    name, parts = _name_and_arguments(threat, next(iter(threat.victims), None), short=True)
    return name, [part for part in parts if when or not part.startswith("when=")]


def caption(threat: ThreatModel) -> str:
    """One line: ``rotation:degrees=3``."""
    name, parts = name_and_arguments(threat)
    return name + (":" + ",".join(parts) if parts else "")


def name_of(threat: ThreatModel) -> str:
    """The name of a threat's preset; ``<...>`` where there is none."""
    return _name_and_arguments(threat, None, short=True)[0]


def unique(texts: Iterable[str]) -> list[str]:
    """The texts, those that were there before with `` #2``, `` #3``, ... behind them (see :func:`without_number`)."""
    found: list[str] = []
    for text in texts:
        numbered = (f"{text} #{i}" for i in range(2, len(found) + 3))
        found.append(text if text not in found else next(name for name in numbered if name not in found))
    return found


def without_number(text: str) -> str:
    """A text as it was before :func:`unique`."""
    return re.sub(r" #\d+$", "", text.strip())


def _name_and_arguments(threat: ThreatModel, victim: Victim | None, short: bool) -> tuple[str, list[str]]:
    how, owner = threat.how, next(iter(threat.victims), None)
    name, arguments = _preset_of(how) or (f"<{_bare_name(how)}>", {})
    parts = [f"{key}={_argument_text(key, value)}" for key, value in arguments.items()]
    filled_in = victim if owner is None or _same_victim(owner, victim) else owner
    parts += _budget_arguments(threat, filled_in, short)
    if threat.at != getattr(how, "at", None):  # as with the timing: an adversary brings its own along
        parts.append(f"at={_argument_text('at', threat.at)}")
    if owner is not None and not _same_victim(owner, victim) and not short:
        parts.append(f"victim={_victim_text(how, owner)}")
    if threat.when != getattr(how, "when", None):
        # then the reader of the text fills in the same victim
        open_too = owner is None or _same_victim(owner, victim) or short
        parts.append(f"when={_timing_text(threat.when, filled_in, open_too)}")
    return name, parts


# the attack


def _preset_of(how: object) -> tuple[str, dict[str, Any]] | None:
    """The preset's name and the arguments beside it; None for what has no preset or no dictionary."""
    if not isinstance(how, Perturbation):
        return None
    found = [(name, preset) for name, preset in presets.items() if preset.kind is type(how)]
    own = sorted(dataclasses.fields(how), key=lambda field: bool(field.kw_only))  # type: ignore[arg-type]
    names = [field.name for field in own if field.init]
    if type(how).to_dict is not Value.to_dict:  # a class with a dictionary of its own
        try:
            names = [name for name in names if name in how.to_dict()]
        except ThreatError:
            return None
    names = [name for name in names if name not in ("victim", "sha256")]
    if not found:
        return None
    stated = {name: _not_in_preset(how, preset, names) for name, preset in found}
    # the fewest arguments; of several without any the preset with the most of its own, else the one with the fewest
    best = min(stated, key=lambda name: (len(stated[name]), (1 if stated[name] else -1) * len(presets[name].arguments)))
    ranged = [name for name in getattr(how, "ranged", ()) if getattr(how, "corners", None) is None]
    return best, {key: getattr(how, key) for key in names if key in stated[best] or key in ranged}


def _not_in_preset(how: Perturbation, preset: Preset, names: Sequence[str]) -> list[str]:
    """The arguments whose values are neither those of the preset nor the class's defaults."""
    defaults = {field.name: field.default for field in dataclasses.fields(how)}  # type: ignore[arg-type]
    return [key for key in names if not same_value(getattr(how, key), preset.arguments.get(key, defaults[key]))]


def _bare_name(thing: object) -> str:
    """The name, to be put in angle brackets, of what has no text."""
    name = thing.name if isinstance(thing, Value) else getattr(thing, "__name__", type(thing).__name__)
    return re.sub(r"[^\w .-]", "", str(name)) or "unnamed"


def _argument_text(key: str, value: object) -> str:
    """A value as ``parse_threat`` reads it, or ``<...>``."""
    # objects from a folder are named by it
    if isinstance(value, Critic):
        value = value.folder
    if isinstance(value, Dynamics) and value.folder is not None:
        value = f"card:{value.folder}"
    if isinstance(value, Target):
        value = target_text(value) or value
    if isinstance(value, Path):
        value = str(value)
    found = _value_text(value, key in TEXTS)
    return f"<{_bare_name(value)}>" if found is None else found


def _value_text(value: object, text: bool = False) -> str | None:
    if isinstance(value, str):
        return _string_text(value, unquote if text else parse_value)
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return _number_text(value)
    # a tuple of one has a separator too, or it would be read as a number
    if isinstance(value, tuple):
        items = [f"({_value_text(item)})" if isinstance(item, tuple) else _value_text(item) for item in value]
        if not items or None in items:
            return None
        return ";".join(map(str, items)) + (";" if len(items) == 1 else "")
    return None


def _number_text(value: float) -> str:
    if isinstance(value, int):
        return str(int(value))
    whole = value.is_integer() and abs(value) < 1e15
    return str(int(value)) if whole else repr(float(value))


def _string_text(value: str, read: Callable[[str], object]) -> str | None:
    """A text as it stands, or in the quotes that it does not hold itself."""
    try:
        alone = split_arguments(value) == [value] == split_outside_quotes(value, " + ")
    except ThreatError:
        alone = False
    if alone and value == value.strip() and value[0] not in "<'\"" and " #" not in value and read(value) == value:
        return value
    quote = next((quote for quote in "'\"" if quote not in value), None)
    return None if quote is None else quote + value + quote


# the budget


def _budget_arguments(threat: ThreatModel, victim: Victim | None, short: bool) -> list[str]:
    own, budget = getattr(threat.how, "within", None), threat.budget
    if own == budget:
        return []
    parts = [] if own == budget.frame else _ball_arguments(budget.frame, victim, short)
    if isinstance(budget, Newest) and budget.own_words is None:
        return [*parts, f"newest=<axis {budget.axis} size {budget.size}>"]
    more = budget.own_words if isinstance(budget, OfFrames) else None
    return [*parts, *(f"{key}={_argument_text(key, value)}" for key, value in (more or {}).items())]


def _ball_arguments(budget: Budget, victim: Victim | None, short: bool) -> list[str]:
    words = budget.words
    if words is None or budget_of(words.get("eps"), words.get("norm"), words.get("scale")) != budget:  # a subclass
        return [f"within=<{_bare_name(budget)} {_hash(budget)}>"]
    return [
        _scale_argument(value, victim, short) if key == "scale" else f"{key}={_value_text(value)}"
        for key, value in words.items()
    ]


def _scale_argument(scale: Any, victim: Victim | None, short: bool) -> str:
    if victim is not None and scale != "victim" and _unit_of(victim) == scale:
        return "scale=victim"
    if isinstance(scale, tuple) and len(scale) > (_FEW if short else _MOST):
        return f"scale=<{len(scale)} numbers>" if short else f"scale=<{len(scale)} numbers {_hash(scale)}>"
    return f"scale={_value_text(scale)}"


def _unit_of(victim: Victim | None) -> Any:
    """The victim's own unit as ``scale="victim"`` has it, or None."""
    try:
        return Linf(1.0, "victim").resolve(victim).scale
    except AdvWrappersError:
        return None


def _hash(value: object) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()[:8]


# victims and timings


def _same_victim(a: Victim | None, b: Victim | None) -> bool:
    """Whether two victims are one, by their weights where they have some."""
    if a is b or a is None or b is None:
        return a is b
    return bool(a.modules()) and a.fingerprint() == b.fingerprint()


def _victim_fields(value: object) -> Iterator[Any]:
    """The values of all ``victim`` fields of a value, at any depth."""
    if isinstance(value, Value):
        for field in dataclasses.fields(value):  # type: ignore[arg-type]
            inner = getattr(value, field.name)
            if field.name == "victim":
                yield inner
            else:
                yield from _victim_fields(inner)


def _victim_text(how: object, owner: Victim) -> str:
    if not all(_same_victim(slot, owner) for slot in _victim_fields(how)):
        return "<several>"
    if not owner.ref:
        return f"<{owner.fingerprint()[:12]}>" if owner.modules() else "<a function>"
    return _string_text(owner.ref, unquote) or f"<{_bare_name(owner)}>"


def _timing_text(when: object, victim: Victim | None, open_too: bool) -> str:
    """The text of a timing, without victims: the parser fills in the threat's own.

    Args:
        when: the timing.
        victim: the victim that is filled in, or None.
        open_too: whether a victim that is left open may be filled in as well.
    """
    if not _is_readable(when):
        return f"<{_bare_name(when)}>"
    if any(not _same_victim(slot, victim) if slot is not None else not open_too for slot in _victim_fields(when)):
        return f"<{_bare_name(when)} of another victim>"
    timing = when  # with every victim left open
    for found in victims_in(when):
        timing = replace_victims(timing, found, None)
    text = str(timing)
    try:
        return text if parse_when(text) == timing else f"<{_bare_name(when)}>"
    except ThreatError:
        return f"<{_bare_name(when)}>"


def _is_readable(when: object) -> bool:
    """Whether every part of a timing is of a kind that texts know."""
    if not isinstance(when, Timing) or Value.kinds.get(getattr(when, "name", "")) is not type(when):
        return False
    parts = [getattr(when, field.name) for field in dataclasses.fields(when)]  # type: ignore[arg-type]
    return all(_is_readable(part) for part in parts if isinstance(part, Value) or callable(part))
