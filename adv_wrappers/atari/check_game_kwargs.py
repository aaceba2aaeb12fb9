"""Keyword arguments of games and of environment ids: those that cannot be given, and the errors that say so."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ale_py.env import AtariEnv
from ale_py.vector_env import AtariVectorEnv

from adv_wrappers.atari.make_game_environments import is_atari
from adv_wrappers.errors import SpaceError, ThreatError


class FixedArgument(NamedTuple):
    """An argument that the preprocessing fixes: its value, what that means, and what to wrap for another value."""

    value: int | str | bool
    meaning: str
    instead: str


_CLASSIC = "AtariPreprocessing(gymnasium.make(id, frameskip=1)"
_GREY = "makes grey pictures (raw= reaches the colour screens)"
_FIXED = {
    "frameskip": FixedArgument(4, "skips 4 frames a step itself", _CLASSIC + ", frame_skip={value!r})"),
    "obs_type": FixedArgument("grayscale", _GREY, "gymnasium.make(id, obs_type={value!r})"),
    "grayscale": FixedArgument(True, _GREY, _CLASSIC + ", grayscale_obs={value!r})"),
    "img_height": FixedArgument(84, "makes pictures of 84x84", _CLASSIC + ", screen_size={value!r})"),
    "img_width": FixedArgument(84, "makes pictures of 84x84", _CLASSIC + ", screen_size={value!r})"),
    "stack_num": FixedArgument(4, "stacks 4 frames", f"FrameStackObservation({_CLASSIC}), {{value!r}})"),
    "maxpool": FixedArgument(True, "takes the maximum of two screens", "gymnasium.make(id, frameskip=4)"),
}
_PLACES = ("raw", "frame", "stack", "victim")
_GYMNASIUM = ("max_episode_steps", "disable_env_checker")  # of gymnasium.make
_NEVER = {"self", "game", "num_envs", "sound_obs"}  # the id says which game; pictures cannot be heard
_FRAMESKIP = "frameskip"


def single_game_arguments() -> set[str]:
    """Names of the arguments that a single game takes."""
    return {*inspect.signature(AtariEnv).parameters, *_GYMNASIUM} - _NEVER


def vector_game_arguments() -> set[str]:
    """Names of the arguments that ALE's vector environment takes."""
    return set(inspect.signature(AtariVectorEnv).parameters) - _NEVER


def without_fixed(function: str, id: str, kwargs: Mapping[str, Any], accepted: set[str]) -> dict[str, Any]:
    """The arguments without those that the preprocessing fixes, once they are checked.

    Args:
        function: ``atari`` or ``atari_vec``, for messages.
        id: of the game; an id that is registered for a game under another name may take any other arguments.
        kwargs: the arguments as they were given.
        accepted: names that the game takes.

    Raises:
        SpaceError: for an argument that contradicts the preprocessing, which would ignore it, and for an unknown one.
    """
    for name, value in kwargs.items():
        if name in _FIXED:
            if value != _FIXED[name].value:
                raise _contradiction(function, name, name, value)
        elif name not in accepted and is_atari(id):
            raise _unknown(function, name, value, accepted - set(_FIXED))
    return {name: value for name, value in kwargs.items() if name not in _FIXED}


def _contradiction(function: str, name: str, fixed: str, value: object) -> SpaceError:
    how = _FIXED[fixed].instead.format(value=value)
    if function == "atari_vec":
        option = f"{fixed}={value!r}" if fixed in vector_game_arguments() else "grayscale=False"
        how = f"gymnasium.make_vec('ALE/...-v5', num_envs, {option})"
    return SpaceError(
        f"{function}() {_FIXED[fixed].meaning} and cannot take {name}={value!r}: leave it away, or wrap an environment "
        f"of your own, wrap({how}, threat)"
    )


def _unknown(function: str, name: str, value: object, accepted: set[str]) -> SpaceError:
    known = [*_PLACES, *sorted(accepted)]
    close = difflib.get_close_matches(name, [*known, *_FIXED], n=1, cutoff=0.7)
    if close and close[0] in _FIXED:
        return _contradiction(function, name, close[0], value)
    hint = f" (did you mean {close[0]}?)" if close else ""
    return SpaceError(f"{function}() takes no argument {name}{hint}, but {', '.join(known)}")


class ArgumentError(ThreatError, TypeError):
    """An argument that an id does not take, worded as Python words it.

    TorchRL's ``GymEnv`` passes a ``frameskip`` to every environment, and leaves it away where it gets this answer.
    """


def unknown_arguments(accepts: str, arguments: Iterable[str]) -> ThreatError:
    """The error for arguments that an id does not take.

    Args:
        accepts: a clause that says what the id takes.
        arguments: names of those that were given and that it does not take.
    """
    names = sorted(arguments)
    message = f"{accepts}, not {', '.join(names)}"
    if _FRAMESKIP not in names:
        return ThreatError(message)
    return ArgumentError(
        f"{message}: got an unexpected keyword argument {_FRAMESKIP!r} (for the environment beneath it goes into "
        f"env_kwargs)"
    )
