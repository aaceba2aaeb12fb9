"""Values: frozen dataclasses with a name and a JSON form, from which threats are made.

Budgets, timings, perturbations and threat models are all values. Defining a subclass with a ``name`` registers it, so
a dictionary written by :meth:`Value.to_dict` can be read back by :func:`decode` without a table to keep in step.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeVar

import numpy as np

from adv_wrappers.errors import ThreatError, VictimError
from adv_wrappers.registry import load_entry_points
from adv_wrappers.utils.checks import check_names
from adv_wrappers.utils.validation import check_fields

T = TypeVar("T")
Victims = Mapping[str, Any] | Callable[[str], Any]  # by reference or by hash


class Value:
    """A frozen dataclass that is registered under ``name`` and survives a round trip through JSON."""

    name: ClassVar[str]
    kinds: ClassVar[dict[str, type[Value]]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        name = cls.__dict__.get("name")
        if name is None:
            return
        known = Value.kinds.get(name)
        if known is not None and (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
            raise ThreatError(f"the name {name!r} is taken by {known.__module__}.{known.__qualname__}")
        Value.kinds[name] = cls

    def __post_init__(self) -> None:
        """Check the fields by their annotations. Rules that join several follow in subclasses."""
        check_fields(self)

    def to_dict(self) -> dict[str, Any]:
        """JSON form: ``type`` and every field that differs from its default. Victims appear as reference and hash."""
        data: dict[str, Any] = {"type": self.name}
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if field.init and not (field.default is not dataclasses.MISSING and same_value(value, field.default)):
                data[field.name] = encode(value)
        return data


def same_value(a: Any, b: Any) -> bool:
    """Equality that never asks an array for its truth value; 3 and 3.0 are the same, 1 and True are not."""
    alike = type(a) is type(b) or {type(a), type(b)} == {int, float}
    return a is b or (alike and isinstance(a, (bool, int, float, str, tuple)) and a == b)


def encode(value: Any) -> Any:
    """JSON form of a field. Raises :class:`ThreatError` for what has none (a bare function, an array)."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (tuple, list)):
        return [encode(v) for v in value]
    if isinstance(value, Value):
        return value.to_dict()
    if hasattr(value, "fingerprint"):
        if not value.is_known:
            raise ThreatError(f"{value!r} has no JSON form: functions have no weights that it could be known by")
        hashes = {"sha256": value.fingerprint(), "structure": value.structure()}
        return {"victim": value.ref or "", **hashes, "select": value.select}
    raise ThreatError(f"{type(value).__name__} has no JSON form: use a named perturbation, or a victim with a ref")


def decode(data: Any, victims: Victims | None = None) -> Any:
    """Inverse of :func:`encode`.

    A ``type`` that nothing has defined yet is looked for in the installed packages that add presets, which are imported
    for it.

    Args:
        data: what ``to_dict`` gave, also after a round trip through JSON.
        victims: where a dictionary names victims: these by reference or by hash, or a function such as
            :func:`adv_wrappers.load_victim`, which is called with the reference.

    Raises:
        ThreatError: for an unknown ``type``, arguments that the type does not take, and values that JSON cannot hold,
            such as arrays.
        VictimError: for a victim that cannot be found, or whose weights are no longer those of the dictionary.
    """
    if isinstance(data, (list, tuple)):
        return tuple(decode(v, victims) for v in data)
    if isinstance(data, np.generic):
        data = data.item()
    # values of JSON stand for themselves
    if not isinstance(data, Mapping):
        if data is None or isinstance(data, (bool, int, float, str, Value)) or hasattr(data, "fingerprint"):
            return data
        raise ThreatError(f"a dictionary holds values that JSON can hold, got {type(data).__name__} {data!r:.80}")
    if "victim" in data and "type" not in data:
        return _victim({key: decode(value, victims) for key, value in data.items()}, victims)
    # a value by its type, which an installed package may define
    name = str(data.get("type"))
    if name not in Value.kinds:
        load_entry_points()
    kind = Value.kinds.get(name)
    if kind is None:
        raise ThreatError(f"unknown type {data.get('type')!r}; known: {', '.join(sorted(Value.kinds))}")
    if not all(isinstance(key, str) for key in data):
        raise ThreatError(f"the names in a dictionary of type {data['type']!r} must be texts, got {list(data)!r:.80}")
    arguments = {key: decode(value, victims) for key, value in data.items() if key != "type"}
    return construct(kind, **arguments)


def construct(kind: Callable[..., T], /, **arguments: Any) -> T:
    """``kind(**arguments)``, with an unknown or missing argument reported by name as a :class:`ThreatError`."""
    label = getattr(kind, "name", getattr(kind, "__name__", str(kind)))
    if dataclasses.is_dataclass(kind):
        # a dataclass says itself which arguments it takes, and which it needs
        known = {field.name for field in dataclasses.fields(kind) if field.init}
        check_names(label, arguments, known)
        missing = [
            field.name
            for field in dataclasses.fields(kind)
            if field.init
            and field.name not in arguments
            and field.default is dataclasses.MISSING
            and field.default_factory is dataclasses.MISSING
        ]
        if missing:
            raise ThreatError(
                f"{label} needs {', '.join(missing)}, got {', '.join(sorted(arguments)) or 'no arguments'}"
            )
    try:
        return kind(**arguments)
    except TypeError as error:
        raise ThreatError(f"{label}: {error}") from error


def _victim(data: Mapping[str, Any], victims: Victims | None) -> Any:
    ref, sha256 = str(data["victim"]), str(data.get("sha256", ""))
    if isinstance(victims, Mapping):
        victim = victims.get(ref) or victims.get(sha256)
    else:
        victim = victims(ref) if victims is not None and ref else None
    if victim is None:
        takes = "victims=load_victim, or victims={reference or hash: victim}"
        takes += "" if ref else "; one that is saved has a reference, as in victim=card:FOLDER or sb3:FILE.zip"
        raise VictimError(f"no victim for reference {ref!r} (sha256 {sha256[:12]}): from_dict takes {takes}")
    # what was written has to be the same agent still
    if sha256 and victim.fingerprint() != sha256:
        raise VictimError(
            f"the weights of victim {ref!r} changed: expected sha256 {sha256[:12]}, got {victim.fingerprint()[:12]}"
        )
    if data.get("structure", victim.structure()) != victim.structure():
        raise VictimError(f"the victim {ref!r} is no longer what it was: its weights are, its structure is not")
    return victim
