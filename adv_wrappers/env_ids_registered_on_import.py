"""The environment ids that ``import adv_wrappers`` registers, by names alone: environments are imported when made.

``adv/<preset>-v0`` for every preset (:mod:`adv_wrappers.make_adversarial_envs`), and thirty ids
``adv-daylight/<Game>-<Transform>-v0`` (:mod:`adv_wrappers.atari.daylight_env_ids_per_game`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import gymnasium as gym

from adv_wrappers.preset_names_without_torch import after_load, names_without_importing

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
        "adv_wrappers.make_adversarial_envs:make_env",
        "adv_wrappers.make_adversarial_envs:make_vec_env",
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
    module = "adv_wrappers.atari.daylight_env_ids_per_game"
    for id, kwargs in daylight_ids().items():
        if id not in gym.registry:
            register_id(id, kwargs, f"{module}:make_daylight", f"{module}:make_daylight_vec")
