"""The key of a row, by which a store knows it: the same key is the same row, to the last digit."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

# What a report says of all its rows; but for git, which moves with every commit of a checkout.
_KNOWN_BY = (
    "victim",
    "env",
    "seed",
    "episode_seeds",
    "episodes",
    "num_envs",
    "quantize",
    "device",
    "versions",
    "measure",
    "by",
)


def row_key(about: Mapping[str, object], layers: Sequence[Any], draws: int, distances: Collection[str]) -> str | None:
    """What a row is known by among those of all evaluations: the sha256 of everything that it depends on.

    Args:
        about: of the attributes of a report at least those that all its rows share.
        layers: the dictionaries of its threats, in which trained adversaries and critics have their hashes.
        draws: how often every episode was drawn.
        distances: names of the distances that were sampled.

    Returns:
        64 hexadecimal digits; None where a threat has no dictionary.
    """
    if None in layers:
        return None
    shared = {key: about[key] for key in _KNOWN_BY}
    text = json.dumps([shared, list(layers), draws, sorted(distances)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
