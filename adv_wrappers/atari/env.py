"""Atari games as agents of the DQN lineage see them, with three places for threats.

.. code-block:: text

   emulator --> two screens --> grey, maximum, 84x84 --> stack of four --> agent
                   raw                   frame               stack
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
from ale_py.env import AtariEnv
from ale_py.vector_env import AtariVectorEnv
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation
from numpy.typing import NDArray

from adv_wrappers.atari.ale import AtariGame, PressFire, is_atari, make_game, not_a_game
from adv_wrappers.atari.raw_screen import RawFrames, ShrinkFrames
from adv_wrappers.core.budgets.frame_stack import Newest
from adv_wrappers.core.perturbation import Perturbation
from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.environments.gym_make import spec_of
from adv_wrappers.errors import OrderError, SpaceError, ThreatError, VictimError
from adv_wrappers.threats.presets import as_threat
from adv_wrappers.utils.validation import EnvCount, checked
from adv_wrappers.victims import Victim, load_victim
from adv_wrappers.wrappers.layer import AnyVectorEnv
from adv_wrappers.wrappers.wrap import wrap

# ----------------------------------------------------------------------------------------------------------------------
# Keyword arguments of games and of environment ids: those that cannot be given, and the errors that say so.
# ----------------------------------------------------------------------------------------------------------------------


# what the preprocessing fixes: an argument that says the same is taken, and dropped
_FIXED = {
    "frameskip": 4, "obs_type": "grayscale", "grayscale": True, "img_height": 84, "img_width": 84, "stack_num": 4,
    "maxpool": True,
}  # fmt: skip
_PLACES = ("raw", "frame", "stack", "victim")
_GYMNASIUM = ("max_episode_steps", "disable_env_checker")  # of gymnasium.make
_NEVER = {"self", "game", "num_envs", "sound_obs"}  # the id says which game; pictures cannot be heard
_FRAMESKIP = "frameskip"


def single_game_arguments() -> set[str]:
    """Names of the arguments that a single game takes, but for what the preprocessing fixes."""
    return {*inspect.signature(AtariEnv).parameters, *_GYMNASIUM} - _NEVER - {*_FIXED}


def vector_game_arguments() -> set[str]:
    """Names of the arguments that ALE's vector environment takes, but for the same."""
    return set(inspect.signature(AtariVectorEnv).parameters) - _NEVER - {*_FIXED}


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
        # what the preprocessing decides itself may only be given as it is
        if name in _FIXED and value != _FIXED[name]:
            raise SpaceError(
                f"{function}() skips 4 frames a step and stacks 4 grey pictures of 84x84, so it cannot take "
                f"{name}={value!r}: leave it away (raw= reaches the colour screens), or wrap an environment of your "
                "own, wrap(AtariPreprocessing(gymnasium.make(id, frameskip=1), ...), threat)"
            )
        # an argument that the game does not take, with the one that was most likely meant
        if name not in _FIXED and name not in accepted and is_atari(id):
            known = [*_PLACES, *sorted(accepted)]
            close = difflib.get_close_matches(name, [*known, *_FIXED], n=1, cutoff=0.7)
            hint = f" (did you mean {close[0]}?)" if close else ""
            raise SpaceError(f"{function}() takes no argument {name}{hint}, but {', '.join(known)}")
    return {name: value for name, value in kwargs.items() if name not in _FIXED}


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


ThreatLike = ThreatModel | Perturbation | str | Mapping[str, Any]
Threats = ThreatLike | Sequence[ThreatLike]
Frames = NDArray[np.uint8]
_STACK = (4, 84, 84)
_FROM_ID = (
    "repeat_action_probability",
    "full_action_space",
    "max_num_frames_per_episode",
)  # of an id


def atari(
    id: str,
    *,
    raw: Threats = (),
    frame: Threats = (),
    stack: Threats = (),
    victim: Victim | str | None = None,
    **kwargs: Any,
) -> AtariGame:
    """An Atari game as agents of the DQN lineage see it: uint8 ``[4, 84, 84]``, the oldest frame first.

    4 skipped frames and the maximum of the last two, grey, 84x84 by area, up to 30 no-ops after a reset, FIRE after a
    reset and after a lost life; rewards are not clipped and a lost life does not end the episode.

    A threat acts at one of three places. All of them count the same steps, which are the agent's: FIRE is pressed
    beneath.

    Args:
        id: the game, such as ``"PongNoFrameskip-v4"`` or ``"ALE/Pong-v5"`` (which keeps its sticky actions unless
            ``repeat_action_probability=0`` is given).
        raw: threats to the last two screens, uint8 ``[2, 210, 160, 3]``, before they are grey.
        frame: threats to the new frame, uint8 ``[84, 84]``; the stack holds it as it was perturbed.
        stack: threats to the stack that the agent receives. These may change old frames again, unless their budget is
            :class:`adv_wrappers.Newest` (``newest=true`` in a text). Attacks that use a victim belong here.
        victim: the victim of threats that have none, or a reference to it such as ``"card:FOLDER"``.
        **kwargs: arguments of ``gymnasium.make`` other than ``frameskip`` and ``obs_type``, which are fixed here.

    Raises:
        SpaceError: if the id is unknown, or no Atari game; for an argument that is unknown or fixed here.
        VictimError: for a threat at ``raw`` or ``frame`` whose victim sees stacks.
        OrderError: for a ``Newest`` budget where there is no stack.

    >>> from adv_wrappers.atari import atari
    >>> env = atari("PongNoFrameskip-v4", raw="jpeg:quality=10", stack=["brightness:newest=true", "action-noise:p=0.1"])
    >>> env.observation_space.shape
    (4, 84, 84)
    """
    raw, frame, stack = _by_place(raw, frame, stack, victim)
    kwargs = without_fixed("atari", id, kwargs, single_game_arguments())
    base = make_game(id, {"obs_type": "grayscale", **kwargs, "frameskip": 1})
    # the emulator's two screens as observations, only where they are attacked; else Gymnasium's own preprocessing
    if raw:
        env: Any = ShrinkFrames(wrap(PressFire(RawFrames(base, noop_max=30, frame_skip=4)), *raw))
    else:
        env = PressFire(AtariPreprocessing(base, noop_max=30, frame_skip=4))
    env = FrameStackObservation(wrap(env, *frame), 4)
    return wrap(env, *stack)  # type: ignore[no-any-return]


@checked
def atari_vec(
    id: str,
    num_envs: EnvCount,  # with none ALE would crash
    *,
    raw: Threats = (),
    frame: Threats = (),
    stack: Threats = (),
    victim: Victim | str | None = None,
    **kwargs: Any,
) -> AnyVectorEnv:
    """``num_envs`` Atari games side by side: the pictures of :func:`atari`, uint8 ``[num_envs, 4, 84, 84]``.

    They are ALE's own vector environment under one batched wrapper a threat. It makes its stacks itself, so a threat at
    ``frame`` may change the newest frame of a stack alone (:class:`adv_wrappers.Newest`), which has the same effect. It
    draws other no-ops than :func:`atari` and presses FIRE after a reset only. Rewards are not clipped unless
    ``reward_clipping=True`` is given.

    With threats at ``raw`` they are a ``SyncVectorEnv`` of :func:`atari`, row by row to the byte, and only ``stack`` is
    batched: ALE's vector environment takes the maximum of two screens colour by colour before it returns them, which is
    not the maximum of greys, and whole stacks of screens are slow.

    Args:
        id: the game, as for :func:`atari`, with its sticky actions.
        num_envs: number of rows.
        raw, frame, stack, victim: as for :func:`atari`.
        **kwargs: ``autoreset_mode``, and others of ``AtariVectorEnv`` such as ``num_threads``, ``noop_max`` or
            ``reward_clipping``; with ``raw`` those of ``gymnasium.make``. Those of the preprocessing are fixed.

    Raises:
        SpaceError: if the id is unknown or no Atari game, or an argument does not suit the environment.
        AdvWrappersError: one of its kinds, as for :func:`atari`.

    >>> from adv_wrappers.atari import atari_vec
    >>> atari_vec("PongNoFrameskip-v4", 2, stack="rotation:degrees=3,newest=true").observation_space.shape
    (2, 4, 84, 84)
    """
    raw, frame, stack = _by_place(raw, frame, stack, victim)
    if not is_atari(id):
        raise not_a_game(spec_of(id).id)
    defaults = spec_of(id).kwargs
    accepted = vector_game_arguments() | (single_game_arguments() if raw else set())
    kwargs = without_fixed("atari_vec", id, kwargs, accepted)
    # rows that are atari() themselves, since ALE's vector does not show its screens
    if raw:
        try:
            mode = AutoresetMode(kwargs.pop("autoreset_mode", AutoresetMode.NEXT_STEP))
        except ValueError as error:
            raise SpaceError(f"autoreset_mode must be one of Gymnasium's: {error}") from error
        vector_only = sorted(set(kwargs) & vector_game_arguments() - {*_FROM_ID})
        if vector_only:
            raise SpaceError(
                f"{', '.join(vector_only)} of AtariVectorEnv cannot be given with raw=, whose rows are atari()"
            )
        rows = SyncVectorEnv([lambda: atari(id, raw=raw, frame=frame, **kwargs)] * num_envs, autoreset_mode=mode)
        return wrap(rows, *stack)  # type: ignore[no-any-return]
    # ALE's vector of the game, with what its id says
    name = str(defaults["game"]).title().replace("_", "")
    settings = {**{key: defaults[key] for key in _FROM_ID if key in defaults}, "reward_clipping": False, **kwargs}
    try:
        env: Any = gym.make_vec(f"ALE/{name}-v5", num_envs, "vector_entry_point", **settings)
    except Exception as error:  # whatever the environment's own constructor may raise
        raise SpaceError(f"cannot make {num_envs} rows of {id!r} with {settings}: {error}") from error
    return wrap(env, *map(_newest, frame), *stack)  # type: ignore[no-any-return]


def _newest(threat: ThreatModel) -> ThreatModel:
    return replace(threat, within=Newest(threat.budget)) if threat.on == "observation" else threat


def _by_place(
    raw: Threats, frame: Threats, stack: Threats, victim: Victim | str | None
) -> tuple[list[ThreatModel], ...]:
    """The threats for each place, in the order of the places."""
    victim = None if victim is None else load_victim(victim)
    return tuple(_threats_at(*each, victim) for each in (("raw", raw), ("frame", frame), ("stack", stack)))


def _threats_at(place: str, threats: Threats, victim: Victim | None) -> list[ThreatModel]:
    """The threats for a place, checked as far as they can be before the emulator starts."""
    if isinstance(threats, (str, Mapping, ThreatModel, Perturbation)) or not isinstance(threats, Sequence):
        threats = [threats]
    # threats against the victim; outside of the stack none may look at one that sees stacks
    made = [as_threat(item) for item in threats]
    made = made if victim is None else [threat.against(victim) for threat in made]
    for threat in made if place != "stack" else ():
        open_victim = getattr(threat.how, "needs_victim", False) and not threat.victims
        if open_victim or any(v.observation_space.shape == _STACK for v in threat.victims):
            raise VictimError(
                f"{threat.label} looks at a victim, which sees stacks of frames; at {place}= there is no stack yet: "
                f"give it as stack= (with newest=true it changes new frames alone)"
            )
        if isinstance(threat.budget, Newest):
            raise OrderError(
                f"newest=true is for stacks, and at {place}= {threat.label} sees new frames only: leave it away, or "
                f"give it as stack="
            )
    return made
