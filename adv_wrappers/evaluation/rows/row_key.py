"""The key of a row, by which a store knows it: the same key is the same row, to the last digit."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import json
import platform
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

# ----------------------------------------------------------------------------------------------------------------------
# Where numbers come from: the releases and the revision that made them.
# ----------------------------------------------------------------------------------------------------------------------


def versions() -> dict[str, str]:
    """Versions of Python, this package and those that numbers depend on; packages that are missing are left out."""
    return dict(_versions())


@functools.cache  # looking them up takes as long as an episode of a small environment
def _versions() -> dict[str, str]:
    root = sys.modules[__name__.partition(".")[0]]
    found = {"python": platform.python_version(), "adv_wrappers": str(getattr(root, "__version__", "unknown"))}
    for name in ("gymnasium", "torch", "numpy", "mujoco", "ale-py", "opencv-python", "dm-control"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


@functools.cache
def revision() -> str | None:
    """Git revision of this package's sources; None where git does not know this very file (an installed copy)."""
    here = Path(__file__)
    try:
        for arguments in (["ls-files", "--error-unmatch", here.name], ["rev-parse", "HEAD"]):
            done = subprocess.run(
                ["git", *arguments], cwd=here.parent, check=True, capture_output=True, text=True, timeout=10
            )
    except (OSError, subprocess.SubprocessError):
        return None
    return str(done.stdout).strip() or None


def row_key(about: Mapping[str, object], layers: Sequence[Any], draws: int, distances: Collection[str]) -> str | None:
    """What a row is known by among those of all evaluations: the sha256 of everything that it depends on.

    Args:
        about: what a report says of all its rows.
        layers: the dictionaries of its threats, in which trained adversaries and critics have their hashes.
        draws: how often every episode was drawn.
        distances: names of the distances that were sampled.

    Returns:
        64 hexadecimal digits; None where a threat has no dictionary.
    """
    if None in layers:
        return None
    shared = {key: value for key, value in about.items() if key != "git"}  # it moves with every commit of a checkout
    text = json.dumps([shared, list(layers), draws, sorted(distances)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
