"""Whether a folder holds what a caller means to go on with, and what tells the two apart."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from adv_wrappers.core.errors import ValueRangeError

MOST_SEED = 2**32 - 2**16
SHOWN = 4  # differences
_PLAIN = (bool, int, float, str, type(None))


def check_seed(seed: Any) -> None:
    """Raise :class:`ValueRangeError` unless Stable-Baselines3 can seed NumPy's own generator with it."""
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or not 0 <= seed <= MOST_SEED:
        raise ValueRangeError(f"seed must be an integer from 0 to {MOST_SEED}, got {seed!r:.80}")


def refuse_another(folder: Path, found: Mapping[str, Any], mine: Mapping[str, Any], what: str = "training") -> None:
    """Raise :class:`ValueRangeError`, naming what differs, unless the two are the same as JSON."""
    theirs, own = (dict(_leaves("", json.loads(json.dumps(part)))) for part in (found, mine))
    apart = sorted(key for key in {*theirs, *own} if theirs.get(key) != own.get(key))
    if apart:
        said = ", ".join(f"{key} {theirs.get(key)!r:.60} and not {own.get(key)!r:.60}" for key in apart[:SHOWN])
        said += f" and {len(apart) - SHOWN} more" if len(apart) > SHOWN else ""
        raise ValueRangeError(f"{folder} holds another {what}, with {said}: give another folder, or what it has")


def plain(about: Mapping[str, Any]) -> dict[str, Any]:
    """What tells a training from another as JSON gives it back; :class:`ValueRangeError` for what JSON cannot hold."""
    try:
        return dict(json.loads(json.dumps(about)))
    except (TypeError, ValueError) as error:
        held = [name for name, value in _leaves("", about) if not isinstance(value, (*_PLAIN, list, tuple))]
        raise ValueRangeError(f"a folder keeps what JSON can hold, not {', '.join(held)}: {error}") from error


def refuse_card(folder: Path, mine: Mapping[str, Any]) -> None:
    """Raise :class:`ValueRangeError` for a folder whose card was not begun by the training ``mine``."""
    path = folder / "card.json"
    if not path.exists():
        return
    try:
        card = json.loads(path.read_text(encoding="utf-8"))
        training = card["training"]
        known = {name: training.get(name) for name in mine}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        known = {}
    if known != json.loads(json.dumps(mine)):
        raise ValueRangeError(f"{path} belongs to something else, which a training would write over: give another out=")


def in_words(value: Any) -> Any:
    """Settings as JSON holds them: classes and functions by their names, other objects by their classes'."""
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return {str(key): in_words(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [in_words(part) for part in value]
    named = value if hasattr(value, "__qualname__") else type(value)
    return f"{named.__module__}.{named.__qualname__}"


def _leaves(name: str, tree: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from _leaves(f"{name}.{key}".lstrip("."), value)
    else:
        yield name, tree
