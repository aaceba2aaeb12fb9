"""What has a name here and is imported when it is needed: presets, environment ids, and what options choose from.

``import adv_wrappers``, ``adv-wrappers COMMAND --help``, errors of usage and completions in a shell read these names;
the modules that they stand for import torch, which takes more than a second.

Presets: :data:`adv_wrappers.threats.presets.presets` has the presets themselves. Installed packages add theirs by
entry points of the group ``adv_wrappers.presets``, whose names are read without importing them, until
:func:`load_entry_points` does. Ids: ``adv/<preset>-v0`` for every preset
(:mod:`adv_wrappers.environments.registration`), and thirty ids ``adv-daylight/<Game>-<Transform>-v0``
(:mod:`adv_wrappers.atari.daylight_ids`).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Literal, get_args

import gymnasium as gym

# presets

GROUP = "adv_wrappers.presets"  # of entry points
# those of this package, in the order of adv_wrappers/threats/all_attacks.py and adv_wrappers/daylight
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


# environment ids

DAYLIGHT_GAMES = ("BankHeist", "JamesBond", "Pong", "RiverRaid", "TimePilot")
# the classes of the transforms, by which ids call them, and their presets
DAYLIGHT_TRANSFORMS = {
    "Brightness": "brightness", "MedianBlur": "median-blur", "Rotation": "rotation", "Shift": "shift", "JPEG": "jpeg",
    "Perspective": "perspective",
}  # fmt: skip


def register_id(id: str, kwargs: Mapping[str, Any], make: str, make_vec: str) -> None:
    """Register an id for ``gymnasium.make`` and ``gymnasium.make_vec``.

    Args:
        id: the id.
        kwargs: the keyword arguments of both functions.
        make: the function that makes one environment, as ``module:function``; it is imported when it is called.
        make_vec: the function that makes several.
    """
    gym.register(
        id,
        entry_point=make,
        vector_entry_point=make_vec,
        kwargs=dict(kwargs),
        order_enforce=False,
        disable_env_checker=True,
    )


def register_threats(id: str, kwargs: Mapping[str, Any]) -> None:
    """Register an id of an environment under a preset or threats."""
    register_id(
        id,
        kwargs,
        "adv_wrappers.environments.registration:make_env",
        "adv_wrappers.environments.registration:make_vec_env",
    )


def register_presets(names: Iterable[str]) -> None:
    """Register ``adv/<preset>-v0`` for every name that has none yet."""
    for name in names:
        if f"adv/{name}-v0" not in gym.registry:
            register_threats(f"adv/{name}-v0", {"preset": name})


def daylight_ids() -> dict[str, dict[str, str]]:
    """The ids of the daylight paper, and the game and transform of each.

    >>> len(daylight_ids()), next(iter(daylight_ids()))
    (30, 'adv-daylight/BankHeist-Brightness-v0')
    """
    return {
        f"adv-daylight/{game}-{kind}-v0": {"game": game, "transform": transform}
        for game in DAYLIGHT_GAMES
        for kind, transform in DAYLIGHT_TRANSFORMS.items()
    }


def register_all() -> None:
    """Register every id, those of presets of installed packages by the names of their entry points.

    Done on ``import adv_wrappers``; an entry point may hold presets of other names, which follow when it is imported.
    """
    register_presets(names_without_importing())
    after_load.append(register_presets)
    module = "adv_wrappers.atari.daylight_ids"
    for id, kwargs in daylight_ids().items():
        if id not in gym.registry:
            register_id(id, kwargs, f"{module}:make_daylight", f"{module}:make_daylight_vec")


# what options choose from, and the defaults that their help shows

SUITE_NAMES = ("standard", "action", "daylight", "certified", "everything")  # of adv_wrappers.studies.SUITES
Method = Literal["interval", "crown", "full-crown", "refined", "bisect"]  # of bounds, from the fastest to the tightest
By = Literal["return", "loss"]  # what the best of several draws is chosen by
CurvesBy = Literal["threat", "victim", "env", "seed"]  # of adv_wrappers.evaluation.curves
CURVES_BY: tuple[CurvesBy, ...] = get_args(CurvesBy)
FORMS = ("direction", "target")  # of PA-AD's actions
BOTH = "both"  # forms are trained, and the stronger is kept
Form = Literal["direction", "target", "both"]
Observe = Literal["state", "state+action", "state+action+spent"]  # what an adversary that learns may observe
OBSERVE: tuple[Observe, ...] = get_args(Observe)
Robust = Literal["radial", "sa", "wocar", "car", "smoothed"]  # robust losses; wocar of PPO and A2C, car of DQN
Rewards = Literal["normalized", "clipped", "raw"]  # what an agent learns from
MOST_HIDDEN = 500  # layers of a learned model of an environment
BEAM_WIDTH = 32  # states that a beam search keeps of every episode
Select = Literal["mode", "sample"]  # what a victim plays of its distribution
