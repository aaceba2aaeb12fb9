"""Whether a folder holds what a caller means to go on with, and what tells the two apart."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from adv_wrappers.core.errors import ValueRangeError

SHOWN = 4  # differences


def refuse_another(folder: Path, found: Mapping[str, Any], mine: Mapping[str, Any], what: str = "training") -> None:
    """Raise :class:`ValueRangeError`, naming what differs, unless the two are the same as JSON."""
    theirs, own = (dict(_leaves("", json.loads(json.dumps(part)))) for part in (found, mine))
    apart = sorted(key for key in {*theirs, *own} if theirs.get(key) != own.get(key))
    if apart:
        said = ", ".join(f"{key} {theirs.get(key)!r:.60} and not {own.get(key)!r:.60}" for key in apart[:SHOWN])
        said += f" and {len(apart) - SHOWN} more" if len(apart) > SHOWN else ""
        raise ValueRangeError(f"{folder} holds another {what}, with {said}: give another folder, or what it has")


def _leaves(name: str, tree: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from _leaves(f"{name}.{key}".lstrip("."), value)
    else:
        yield name, tree
