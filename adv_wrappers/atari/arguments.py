"""Keyword arguments of games: those that the classic pipeline has settled are refused, and so are typing errors."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Mapping
from typing import Any

from ale_py.env import AtariEnv
from ale_py.vector_env import AtariVectorEnv

from adv_wrappers.atari.games import is_atari
from adv_wrappers.errors import SpaceError

_CLASSIC = "AtariPreprocessing(gymnasium.make(id, frameskip=1)"
_GREY = "makes grey pictures (raw= reaches the colour screens)"
# What is settled: its value, in words, and what to wrap instead.
_SETTLED: dict[str, tuple[Any, str, str]] = {
    "frameskip": (4, "skips 4 frames a step itself", _CLASSIC + ", frame_skip={value!r})"),
    "obs_type": ("grayscale", _GREY, "gymnasium.make(id, obs_type={value!r})"),
    "grayscale": (True, _GREY, _CLASSIC + ", grayscale_obs={value!r})"),
    "img_height": (84, "makes pictures of 84x84", _CLASSIC + ", screen_size={value!r})"),
    "img_width": (84, "makes pictures of 84x84", _CLASSIC + ", screen_size={value!r})"),
    "stack_num": (4, "stacks 4 frames", f"FrameStackObservation({_CLASSIC}), {{value!r}})"),
    "maxpool": (True, "takes the maximum of two screens", "gymnasium.make(id, frameskip=4)"),
}
_PLACES = ("raw", "frame", "stack", "victim")
_GYMNASIUM = ("max_episode_steps", "disable_env_checker")  # of gymnasium.make
_NEVER = {"self", "game", "num_envs", "sound_obs"}  # the id says which game; pictures cannot be heard


def single_names() -> set[str]:
    """What a single game takes."""
    return {*inspect.signature(AtariEnv).parameters, *_GYMNASIUM} - _NEVER


def vector_names() -> set[str]:
    """What ALE's vector environment takes."""
    return set(inspect.signature(AtariVectorEnv).parameters) - _NEVER


def settle(function: str, id: str, kwargs: Mapping[str, Any], takes: set[str]) -> dict[str, Any]:
    """The arguments without those that say what the pipeline does anyway.

    Args:
        function: ``atari`` or ``atari_vec``, for messages.
        id: of the game; an id that hides a game behind a name of its own may take any others.
        kwargs: as they were given.
        takes: names that the game takes.

    Raises:
        SpaceError: for one that contradicts the pipeline, which would ignore it; and for an unknown one.
    """
    for name, value in kwargs.items():
        if name in _SETTLED:
            if value != _SETTLED[name][0]:
                raise _contradiction(function, name, name, value)
        elif name not in takes and is_atari(id):
            raise _unknown(function, name, value, takes - set(_SETTLED))
    return {name: value for name, value in kwargs.items() if name not in _SETTLED}


def _contradiction(function: str, name: str, settled: str, value: Any) -> SpaceError:
    _, does, instead = _SETTLED[settled]
    how = instead.format(value=value)
    if function == "atari_vec":
        option = f"{settled}={value!r}" if settled in vector_names() else "grayscale=False"
        how = f"gymnasium.make_vec('ALE/...-v5', num_envs, {option})"
    return SpaceError(
        f"{function}() {does} and cannot take {name}={value!r}: leave it away, or wrap an environment of your own, "
        f"wrap({how}, threat)"
    )


def _unknown(function: str, name: str, value: Any, takes: set[str]) -> SpaceError:
    known = [*_PLACES, *sorted(takes)]
    close = difflib.get_close_matches(name, [*known, *_SETTLED], n=1, cutoff=0.7)
    if close and close[0] in _SETTLED:
        return _contradiction(function, name, close[0], value)
    hint = f" (did you mean {close[0]}?)" if close else ""
    return SpaceError(f"{function}() takes no argument {name}{hint}, but {', '.join(known)}")
