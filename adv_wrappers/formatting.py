"""Threats as texts: the one renderer, for rows of tables, captions of pictures and what users copy from them.

:func:`text_of` writes what :func:`adv_wrappers.presets.parse_threat` reads, so a row of a report can be run again. What
no text can say (a function, a victim without a reference, a budget that a user wrote) is named in angle brackets,
``noise:eps=0.1,when=<rare>``, which the parser refuses with a reason.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from adv_wrappers.attacks.critic import Critic
from adv_wrappers.core.budgets import L0, L2, Budget, Linf, Valid
from adv_wrappers.core.newest import Newest, frame_budget
from adv_wrappers.core.perturbation import Perturbation
from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.core.values import Value, same
from adv_wrappers.daylight import Daylight
from adv_wrappers.daylight.by_game import transform_of
from adv_wrappers.errors import AdvWrappersError, ThreatError
from adv_wrappers.parsing import parse_when, pieces_of, plain_text, split, value_of
from adv_wrappers.presets import TEXTS, Preset, presets
from adv_wrappers.timing import Timing

_MOST = 256  # numbers of a scale that a text holds; an image has tens of thousands
_FEW = 4  # that a caption holds


def text_of(threat: ThreatModel, victim: Any = None) -> str:
    """The text of a threat, from which ``parse_threat`` makes an equal one.

    The preset is the one that leaves the fewest arguments to be said, and of several that leave none the one that
    stands for the most: MinBest with the numbers of PGD is ``pgd``.

    Args:
        threat: any.
        victim: whom the reader will aim the text at (``parse_threat(text).against(victim)``), as reports do with the
            evaluated agent; it is then left out of the text, and its unit is ``scale=victim``.

    >>> from adv_wrappers import Linf, MaxDiff, ThreatModel
    >>> from adv_wrappers.formatting import text_of
    >>> text_of(ThreatModel("observation", MaxDiff(steps=20), Linf(0.1)))
    'max-diff:steps=20,eps=0.1'
    """
    name, parts = _words(threat, victim, short=False)
    return name + (":" + ",".join(parts) if parts else "")


def words(threat: ThreatModel, when: bool = True) -> tuple[str, list[str]]:
    """The name of a threat and ``key=value`` of what matters in a picture of it: no victims, no long lists of numbers.

    A game's daylight transform is called by the transform, with the parameters that the game stands for.

    Args:
        threat: any.
        when: whether its timing is named.

    >>> words(ThreatModel("observation", Daylight("Pong", "shift")))
    ('shift', ['dx=2', 'dy=1'])
    """
    how: Any = threat.how
    if isinstance(how, Daylight):
        threat = dataclasses.replace(threat, how=transform_of(how.game, how.transform, how.layout))
    name, parts = _words(threat, next(iter(threat.victims), None), short=True)
    return name, [part for part in parts if when or not part.startswith("when=")]


def caption(threat: ThreatModel) -> str:
    """One line: ``rotation:degrees=3``."""
    name, parts = words(threat)
    return name + (":" + ",".join(parts) if parts else "")


def name_of(threat: ThreatModel) -> str:
    """The preset that a threat is called by; ``<...>`` where there is none."""
    return _words(threat, None, short=True)[0]


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


def _words(threat: ThreatModel, victim: Any, short: bool) -> tuple[str, list[str]]:
    how, owner = threat.how, next(iter(threat.victims), None)
    name, arguments = _preset(how) or (f"<{_named(how)}>", {})
    parts = [f"{key}={_written(key, value)}" for key, value in arguments.items()]
    aimed = victim if owner is None or _alike(owner, victim) else owner
    parts += _budget(threat, aimed, short)
    if threat.at is not None:
        parts.append(f"at={_written('at', threat.at)}")
    if owner is not None and not _alike(owner, victim) and not short:
        parts.append(f"victim={_victim(how, owner)}")
    if threat.when != getattr(how, "when", None):
        open_too = owner is None or _alike(owner, victim) or short  # then who reads the text fills in the same victim
        parts.append(f"when={_timing(threat.when, aimed, open_too)}")
    return name, parts


# the attack


def _preset(how: Any) -> tuple[str, dict[str, Any]] | None:
    """The preset's name, and the arguments that it does not say; None for what is no preset, or has no dictionary."""
    if not isinstance(how, Perturbation):
        return None
    found = [(name, preset) for name, preset in presets.items() if preset.kind is type(how)]
    own = sorted(dataclasses.fields(how), key=lambda field: bool(field.kw_only))  # type: ignore[arg-type]
    names = [field.name for field in own if field.init]
    if type(how).to_dict is not Value.to_dict:  # a class that says itself what is to be remembered of it
        try:
            names = [name for name in names if name in how.to_dict()]
        except ThreatError:
            return None
    names = [name for name in names if name not in ("victim", "sha256")]
    if not found:
        return None
    told = {name: _told(how, preset, names) for name, preset in found}
    # the fewest to be said; where nothing is, the preset that stands for the most, and else the one that does for least
    best = min(told, key=lambda name: (len(told[name]), (1 if told[name] else -1) * len(presets[name].arguments)))
    ranged = [name for name in getattr(how, "ranged", ()) if getattr(how, "corners", None) is None]
    return best, {key: getattr(how, key) for key in names if key in told[best] or key in ranged}


def _told(how: Any, preset: Preset, names: Sequence[str]) -> list[str]:
    """The arguments whose values a preset and the class's defaults do not say."""
    defaults = {field.name: field.default for field in dataclasses.fields(how)}
    return [key for key in names if not same(getattr(how, key), preset.arguments.get(key, defaults[key]))]


def _named(thing: Any) -> str:
    """What a thing without a text is called."""
    name = thing.name if isinstance(thing, Value) else getattr(thing, "__name__", type(thing).__name__)
    return re.sub(r"[^\w .-]", "", str(name)) or "unnamed"


def _written(key: str, value: Any) -> str:
    """A value as ``parse_threat`` reads it, or ``<...>``."""
    if isinstance(value, Critic):
        value = value.folder
    if isinstance(value, Path):
        value = str(value)
    found = _value(value, key in TEXTS)
    return f"<{_named(value)}>" if found is None else found


def _value(value: Any, text: bool = False) -> str | None:
    if isinstance(value, str):
        return _string(value, plain_text if text else value_of)
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return _number(value)
    if isinstance(value, tuple):
        items = [f"({_value(item)})" if isinstance(item, tuple) else _value(item) for item in value]
        if not items or None in items:
            return None
        return ";".join(map(str, items)) + (";" if len(items) == 1 else "")
    return None


def _number(value: float) -> str:
    if isinstance(value, int):
        return str(int(value))
    whole = value.is_integer() and abs(value) < 1e15
    return str(int(value)) if whole else repr(float(value))


def _string(value: str, read: Any) -> str | None:
    """A text as it stands, or in the quotes that it does not hold itself."""
    try:
        alone = pieces_of(value) == [value] == split(value, " + ")
    except ThreatError:
        alone = False
    if alone and value == value.strip() and value[0] not in "<'\"" and " #" not in value and read(value) == value:
        return value
    quote = next((quote for quote in "'\"" if quote not in value), None)
    return None if quote is None else quote + value + quote


# the budget


def _budget(threat: ThreatModel, victim: Any, short: bool) -> list[str]:
    own, budget = getattr(threat.how, "within", None), threat.budget
    if own == budget:
        return []
    inner, parts = frame_budget(budget), list[str]()
    if isinstance(budget, Newest):
        said = budget.axis is None and budget.size == 1
        parts = ["newest=true" if said else f"newest=<axis {budget.axis} size {budget.size}>"]
        if own == inner:
            return parts
    return [*_ball(inner, victim, short), *parts]


def _ball(budget: Budget, victim: Any, short: bool) -> list[str]:
    if type(budget) is Valid:
        return ["norm=valid"]
    if type(budget) is L0:
        return [f"eps={_number(budget.k)}", "norm=l0"]
    if type(budget) is L2:
        return [f"eps={_number(budget.eps)}", "norm=l2"]
    if type(budget) is not Linf:
        return [f"within=<{_named(budget)} {_hash(budget)}>"]
    return [f"eps={_number(budget.eps)}", *_scale(budget, victim, short)]


def _scale(budget: Linf, victim: Any, short: bool) -> list[str]:
    scale = budget.scale
    if scale is None:
        return []
    if victim is not None and scale != "victim" and _unit(victim) == scale:
        return ["scale=victim"]
    if isinstance(scale, tuple) and len(scale) > (_FEW if short else _MOST):
        return [f"scale=<{len(scale)} numbers>" if short else f"scale=<{len(scale)} numbers {_hash(scale)}>"]
    return [f"scale={_value(scale)}"]


def _unit(victim: Any) -> Any:
    """The victim's own unit as ``scale="victim"`` has it, or None."""
    try:
        return Linf(1.0, "victim").resolve(victim).scale
    except AdvWrappersError:
        return None


def _hash(value: Any) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()[:8]


# victims and timings


def _alike(a: Any, b: Any) -> bool:
    """Whether two victims are one, by their weights where they have some."""
    return a is b or (None not in (a, b) and bool(a.modules()) and a.fingerprint() == b.fingerprint())


def _slots(value: Any) -> Iterator[Any]:
    """What every ``victim`` field of a value holds, at any depth."""
    if isinstance(value, Value):
        for field in dataclasses.fields(value):  # type: ignore[arg-type]
            inner = getattr(value, field.name)
            if field.name == "victim":
                yield inner
            else:
                yield from _slots(inner)


def _victim(how: Any, owner: Any) -> str:
    if not all(_alike(slot, owner) for slot in _slots(how)):
        return "<several>"
    if not owner.ref:
        return f"<{owner.fingerprint()[:12]}>" if owner.modules() else "<a function>"
    return _string(owner.ref, plain_text) or f"<{_named(owner)}>"


def _timing(when: Any, aimed: Any, open_too: bool) -> str:
    """A timing as its text is read, without victims: all are filled in with the threat's own.

    Args:
        when: the timing.
        aimed: the victim that is filled in, or None.
        open_too: whether one that is left open may be filled in as well.
    """
    if not _readable(when):
        return f"<{_named(when)}>"
    if any(not _alike(slot, aimed) if slot is not None else not open_too for slot in _slots(when)):
        return f"<{_named(when)} of another victim>"
    text = str(_open(when))
    try:
        return text if parse_when(text) == _open(when) else f"<{_named(when)}>"
    except ThreatError:
        return f"<{_named(when)}>"


def _readable(when: Any) -> bool:
    """Whether every part of a timing is of a kind that texts know."""
    if not isinstance(when, Timing) or Value.kinds.get(getattr(when, "name", "")) is not type(when):
        return False
    parts = [getattr(when, field.name) for field in dataclasses.fields(when)]  # type: ignore[arg-type]
    return all(_readable(part) for part in parts if isinstance(part, Value) or callable(part))


def _open(value: Any) -> Any:
    """A timing with every ``victim`` left open."""
    if not isinstance(value, Value):
        return value
    changes = {
        field.name: None if field.name == "victim" else _open(getattr(value, field.name))
        for field in dataclasses.fields(value)  # type: ignore[arg-type]
        if field.init
    }
    return dataclasses.replace(value, **changes)  # type: ignore[type-var]
