"""The names of presets, which registered ids need before any class is imported: torch takes more than a second.

:data:`adv_wrappers.presets.presets` has the presets themselves. Installed packages add theirs by entry points of the
group ``adv_wrappers.presets``, whose names are read here without importing them, until :func:`load_entry_points` does.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from importlib.metadata import EntryPoint, entry_points
from typing import Any

GROUP = "adv_wrappers.presets"  # of entry points
# those of this package, in the order of adv_wrappers/all_attacks.py and adv_wrappers/daylight
NAMES = (
    "noise", "flip", "min-best", "fgsm", "pgd", "apgd", "multi-targeted", "min-played-q", "max-worst", "momentum",
    "min-q", "min-value", "max-diff", "robust-sarsa", "carlini-wagner", "square", "hop-skip-jump", "discrete-search",
    "model-based", "sensor-bias", "sensor-drift", "quantization", "saturation", "stuck-sensor", "sensor-dropout",
    "swapped-sensors", "observation-delay", "observation-jitter", "observation-loss", "occlusion", "trigger", "learned",
    "action-noise", "action-flip", "worst-action", "action-delay", "action-loss", "action-model-based",
    "dynamics-noise", "fixed-dynamics", "reward-noise", "reward-flip", "reward-clip", "reward-delay",
    "median-blur", "brightness", "daylight", "jpeg", "perspective", "rotation", "shift",
)  # fmt: skip
# called with the names of all presets when those of installed packages have been imported
after_load: list[Callable[[Iterable[str]], None]] = []


def preset_entry_points() -> list[EntryPoint]:
    """The entry points of installed packages, in the order of their names."""
    return sorted(entry_points(group=GROUP), key=lambda one: (one.name, one.value))


def load_entry_points() -> list[tuple[EntryPoint, Any]]:
    """Import what installed packages add: their entry points, each with the object that it names.

    Warns:
        RuntimeWarning: for a package that cannot be imported, which is left out.
    """
    found = []
    for entry_point in preset_entry_points():
        try:
            found.append((entry_point, entry_point.load()))
        except Exception as error:  # whatever the package does when it is imported
            warn_left_out(entry_point, error)
    return found


def warn_left_out(entry_point: EntryPoint, why: Exception) -> None:
    """Warn that the presets of an installed package are left out."""
    message = f"the presets {entry_point.value} of {package_of(entry_point)} are left out: {why}"
    warnings.warn(message, RuntimeWarning, stacklevel=4)


def package_of(entry_point: EntryPoint) -> str:
    """The name of the package that an entry point belongs to."""
    return "an installed package" if entry_point.dist is None else entry_point.dist.name


def names_without_importing() -> list[str]:
    """The names of this package's presets, and of the entry points of others."""
    return [*NAMES, *(one.name for one in preset_entry_points())]
