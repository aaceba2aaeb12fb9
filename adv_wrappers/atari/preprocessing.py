"""Atari games as agents of the DQN lineage see them, with a place for threats at each of the three stations.

.. code-block:: text

   emulator --> two screens --> grey, maximum, 84x84 --> stack of four --> agent
                   raw                   frame               stack
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import gymnasium as gym
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation

from adv_wrappers.atari.arguments import settle, single_names, vector_names
from adv_wrappers.atari.games import Fire, game, is_atari, known, no_game
from adv_wrappers.atari.screens import RawFrames, ShrinkFrames
from adv_wrappers.core.newest import Newest
from adv_wrappers.core.perturbation import Perturbation
from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.errors import OrderError, SpaceError, VictimError
from adv_wrappers.presets import as_threat
from adv_wrappers.utils.numbers import check_integer
from adv_wrappers.victims import Victim, load_victim
from adv_wrappers.wrappers.stack import wrap

Threats = Any  # a threat (anything that wrap takes), or a sequence of them
_STACK = (4, 84, 84)
_KEPT = ("repeat_action_probability", "full_action_space", "max_num_frames_per_episode")  # of an id, in a vector


def atari(
    id: str, *, raw: Threats = (), frame: Threats = (), stack: Threats = (), victim: Victim | str | None = None,
    **kwargs: Any,
) -> gym.Env[Any, Any]:  # fmt: skip
    """An Atari game as agents of the DQN lineage see it: uint8 ``[4, 84, 84]``, the oldest frame first.

    4 skipped frames and the maximum of the last two, grey, 84x84 by area, up to 30 no-ops after a reset, FIRE after a
    reset and after a lost life; rewards are not clipped and a lost life does not end the episode.

    A threat sits at one of three places. All of them count the same steps, which are the agent's: FIRE is pressed
    beneath.

    Args:
        id: such as ``"PongNoFrameskip-v4"`` or ``"ALE/Pong-v5"`` (which keeps its sticky actions unless
            ``repeat_action_probability=0`` is given).
        raw: threats to the last two screens, uint8 ``[2, 210, 160, 3]``, before they are grey.
        frame: threats to the new frame, uint8 ``[84, 84]``; the stack keeps it as it was shown.
        stack: threats to the stack that the agent receives. These may change old frames again, unless their budget is
            :class:`adv_wrappers.Newest` (``newest=true`` in a text). Attacks that look at a victim belong here.
        victim: fills in threats that were left open; a reference such as ``"card:FOLDER"`` will do.
        **kwargs: for ``gymnasium.make``, but for ``frameskip`` and ``obs_type``, which are settled here.

    Raises:
        SpaceError: if the id is unknown, or no Atari game; for an unknown argument, or one that is settled.
        VictimError: for a threat at ``raw`` or ``frame`` that looks at a victim of stacks.
        OrderError: for a ``Newest`` budget where there is no stack.

    >>> env = atari("PongNoFrameskip-v4", raw="jpeg:quality=10", stack=["brightness:newest=true", "action-noise:p=0.1"])
    >>> env.observation_space.shape
    (4, 84, 84)
    """
    victim = None if victim is None else load_victim(victim)
    inside = {name: _listed(name, item, victim) for name, item in (("raw", raw), ("frame", frame))}
    outside = _listed("stack", stack, victim)
    kwargs = settle("atari", id, kwargs, single_names())
    base = game(id, {"obs_type": "grayscale", **kwargs, "frameskip": 1})
    if inside["raw"]:
        env: Any = ShrinkFrames(wrap(Fire(RawFrames(base, noop_max=30, frame_skip=4)), *inside["raw"]))
    else:
        env = Fire(AtariPreprocessing(base, noop_max=30, frame_skip=4))
    env = FrameStackObservation(wrap(env, *inside["frame"]), 4)
    return wrap(env, *outside)  # type: ignore[no-any-return]


def atari_vec(
    id: str, num_envs: int, *, raw: Threats = (), frame: Threats = (), stack: Threats = (),
    victim: Victim | str | None = None, **kwargs: Any,
) -> gym.vector.VectorEnv[Any, Any, Any]:  # fmt: skip
    """``num_envs`` Atari games side by side: the pictures of :func:`atari`, uint8 ``[num_envs, 4, 84, 84]``.

    They are ALE's own vector environment under one batched layer a threat. It makes its stacks itself, so ``frame``
    is a layer around them that may change new frames alone (:class:`adv_wrappers.Newest`), which comes to the same. It
    draws other no-ops than :func:`atari` and presses FIRE after a reset only. Rewards are not clipped unless
    ``reward_clipping=True`` is given.

    With threats at ``raw`` they are a ``SyncVectorEnv`` of :func:`atari`, row by row to the byte, and only ``stack`` is
    batched: ALE's vector environment takes the maximum of two screens colour by colour before it hands them out, which
    is not the maximum of greys, and whole stacks of screens are slow.

    Args:
        id: as for :func:`atari`; its sticky actions are kept.
        num_envs: number of rows.
        raw, frame, stack, victim: as for :func:`atari`.
        **kwargs: ``autoreset_mode``, and others of ``AtariVectorEnv`` such as ``num_threads``, ``noop_max`` or
            ``reward_clipping``; with ``raw`` those of ``gymnasium.make``. What the pictures are like is settled.

    Raises:
        ValueRangeError: for a number of rows below 1.
        SpaceError: if the id is unknown or no Atari game, or an argument does not suit the environment.
        AdvWrappersError: one of its kinds, as for :func:`atari`.

    >>> atari_vec("PongNoFrameskip-v4", 2, stack="rotation:degrees=3,newest=true").observation_space.shape
    (2, 4, 84, 84)
    """
    check_integer("num_envs", num_envs, 1)  # ALE would crash
    victim = None if victim is None else load_victim(victim)
    inside: dict[str, Any] = {name: _listed(name, item, victim) for name, item in (("raw", raw), ("frame", frame))}
    outside = _listed("stack", stack, victim)
    if not is_atari(id):
        raise no_game(known(id).id)
    given = known(id).kwargs
    takes = vector_names() | (single_names() if inside["raw"] else set())
    kwargs = settle("atari_vec", id, kwargs, takes)
    if inside["raw"]:
        try:
            mode = AutoresetMode(kwargs.pop("autoreset_mode", AutoresetMode.NEXT_STEP))
        except ValueError as error:
            raise SpaceError(f"autoreset_mode must be one of Gymnasium's: {error}") from error
        only = sorted(set(kwargs) & vector_names() - {*_KEPT})
        if only:
            raise SpaceError(f"{', '.join(only)} of AtariVectorEnv cannot be given with raw=, whose rows are atari()")
        rows = SyncVectorEnv([lambda: atari(id, **inside, **kwargs)] * num_envs, autoreset_mode=mode)
        return wrap(rows, *outside)  # type: ignore[no-any-return]
    name = str(given["game"]).title().replace("_", "")
    settings = {**{key: given[key] for key in _KEPT if key in given}, "reward_clipping": False, **kwargs}
    try:
        env: Any = gym.make_vec(f"ALE/{name}-v5", num_envs, "vector_entry_point", **settings)
    except Exception as error:  # whatever the environment's own constructor may raise
        raise SpaceError(f"cannot make {num_envs} rows of {id!r} with {settings}: {error}") from error
    return wrap(env, *map(_newest, inside["frame"]), *outside)  # type: ignore[no-any-return]


def _newest(threat: ThreatModel) -> ThreatModel:
    return replace(threat, within=Newest(threat.budget)) if threat.on == "observation" else threat


def _listed(place: str, given: Threats, victim: Victim | None) -> list[ThreatModel]:
    """The threats for a place, checked as far as they can be before the emulator starts."""
    single = isinstance(given, (str, Mapping, ThreatModel, Perturbation)) or not isinstance(given, Sequence)
    made = [as_threat(item) for item in ([given] if single else given)]
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
