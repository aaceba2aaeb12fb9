"""Come back to a state by playing its episode again, for simulators whose state cannot be saved.

Box2D keeps its worlds where Python cannot copy them, and ALE does not save the action that it may repeat. But where an
environment is deterministic under its seed, the same reset and the same actions lead to the same state. A recorder
directly around the environment, beneath all of its wrappers, notes both; what the wrappers hold is saved as it is of
any environment. Every replay is compared with what was returned the first time, to the bit.

To come back takes as many steps as the episode has had, and none where the state is the present one.
"""

from __future__ import annotations

import copy
import hashlib
import struct
import warnings
from typing import Any, NamedTuple, SupportsFloat

import gymnasium as gym
import numpy as np
from gymnasium.vector import VectorWrapper
from torch import Tensor

from adv_wrappers.core.types import Info
from adv_wrappers.environments.checked import TransparentEnv
from adv_wrappers.environments.object_snapshot import (
    KeepsItself,
    NotCopied,
    SavedContents,
    Walk,
    make_worlds_anew,
    random_parts,
)
from adv_wrappers.errors import SnapshotError
from adv_wrappers.utils import trees


class Answer(NamedTuple):
    """What an environment returned, as bytes to be compared with what it returns in a replay; of a reset the first."""

    observation: bytes  # a digest
    reward: bytes = b""
    terminated: bool = False
    truncated: bool = False


class ResetCall(NamedTuple):
    """How an episode began.

    Attributes:
        seed, options: what the environment was reset with.
        random: without a seed, how its random states of before the reset are put back.
    """

    seed: int | None
    options: Info | None
    random: SavedContents


class Moment:
    """A state that an environment has been in, and how it came there; episodes that branch share their beginnings.

    Attributes:
        before: the state before; None after a reset.
        call: the action that led here from there, or the reset.
        answer: what the environment returned.
        t: the number of steps since the reset.
    """

    __slots__ = ("answer", "before", "call", "t")

    def __init__(self, before: Moment | None, call: ResetCall | Any, answer: Answer) -> None:
        self.before = before
        self.call = call
        self.answer = answer
        self.t: int = 0 if before is None else before.t + 1


class ReplayRecorder(TransparentEnv, KeepsItself):
    """Notes how the episodes of an environment go, so that snapshots come back to their states by a replay.

    It stands directly around the environment, and replays only what cannot be saved, or does not repeat after it was
    (:func:`.check_repeats`); its first replay warns of what that takes. Specs and texts of
    environments do not name it. One that comes from another process begins its record at the next reset.

    Args:
        env: the environment.

    Attributes:
        why: why states are replayed; "" while the contents are saved.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self.why = ""
        self._recording = True
        self._warned = False
        self._at: Moment | None = None

    def __getstate__(self) -> dict[str, object]:
        """Without the record: a copy is not where this environment is."""
        return {**self.__dict__, "_at": None}

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Any, Info]:
        """Reset, and begin the record of an episode."""
        if not self._recording:
            return self.env.reset(seed=seed, options=options)
        call = ResetCall(seed, copy.deepcopy(options), random_parts(self.env) if seed is None else [])
        make_worlds_anew(self.env)
        observation, info = self.env.reset(seed=seed, options=options)
        self._at = Moment(None, call, Answer(_digest(observation)))
        return observation, info

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, Info]:
        """One step, which is noted."""
        if self._at is None:
            return self.env.step(action)
        call = copy.deepcopy(action)
        answer = self.env.step(action)
        self._at = Moment(self._at, call, _answer(answer))
        return answer

    # how its states are saved

    @property
    def at(self) -> Moment | None:
        """Where the environment is; None before a reset, and where nothing is recorded."""
        return self._at

    def replay(self, why: str, moment: Moment) -> None:
        """Replay from now on, instead of saving contents, which have left the environment in another state.

        Args:
            why: the reason, which follows the environment's name in messages.
            moment: where the environment is brought to.
        """
        self.why, self._at = why, None
        self.go_to(moment)

    def save_contents(self) -> None:
        """Record no more: the contents can be saved, and repeat."""
        if not self.why:
            self._recording, self._at = False, None

    def keep(self, walk: Walk) -> None:
        """The contents of the environment, or where they cannot be saved the moment of its episode."""
        if walk.partial or not self._recording:
            walk.visit(self.env)
            return
        # contents are saved as long as they can be, with the moment beside them
        if not self.why:
            count, seen = len(walk.kept), walk.seen.copy()
            try:
                walk.visit(self.env)
            except NotCopied as error:
                if self._at is None:
                    raise
                del walk.kept[count:]
                walk.seen = seen
                self.why = f"cannot be saved: {error.text}"
            else:
                walk.kept.append((ReplayRecorder.put_moment, self, self._at))
                return
        # else the moment alone is kept, to be reached by a replay
        if self._at is None:
            raise NotCopied(self.env, "which is replayed, and has no state yet: call reset first")
        # what wrappers hold of the environment, such as its emulator, is brought back with it
        walk.seen.update(map(id, (self.env, *self.env.__dict__.values())))
        walk.kept.append((ReplayRecorder.go_to, self, self._at))

    def put_moment(self, moment: Moment | None) -> None:
        """Note that the environment was brought to a moment, by its contents."""
        self._at = moment

    def go_to(self, moment: Moment) -> None:
        """Bring the environment to a moment: by the steps that are left, where its present one lies on the way.

        Raises:
            SnapshotError: for an environment that returns something else than the first time.
        """
        # back from the moment to where the environment is, or to the reset of the episode
        way = list[Moment]()
        before: Moment | None = moment
        while before is not None and before is not self._at:
            way.append(before)
            before = before.before
        self._at = None  # nowhere, if it stops on the way
        # each call again, whose answer has to be the same to the bit
        for one in reversed(way):
            again = self._play(one.call)
            if again != one.answer:
                pairs = zip(Answer._fields, again, one.answer, strict=True)
                name = next(name for name, value, first in pairs if value != first)
                step = f"step {one.t} has another {name}" if one.t else "its reset has another observation"
                raise SnapshotError(
                    f"{self.env} is not deterministic under its seed: replayed from its reset, {step}; a replay is "
                    f"needed since it {self.why}"
                )
        self._at = moment
        if len(way) > 1 and way[-1].before is None and not self._warned:
            self._warned = True
            warnings.warn(
                f"{self.env} {self.why}. So its states are reached by replaying its episode from the reset, each time "
                f"with as many steps as the episode has had",
                RuntimeWarning,
                stacklevel=2,
            )

    def _play(self, call: ResetCall | Any) -> Answer:
        """Answer to a reset or an action of the record."""
        if not isinstance(call, ResetCall):
            return _answer(self.env.step(copy.deepcopy(call)))
        for put, target, kept in call.random:
            put(target, kept)
        make_worlds_anew(self.env)
        return Answer(_digest(self.env.reset(seed=call.seed, options=copy.deepcopy(call.options))[0]))


def record_for_replay(env: Any) -> Any:
    """Put a :class:`ReplayRecorder` around the environment beneath all wrappers, unless there is one.

    Args:
        env: an ``Env``, with any wrappers; its episodes are recorded from the next reset on.

    Returns:
        The same environment; an ``Env`` without wrappers inside the recorder.
    """
    # down through the wrappers, to where the recorder belongs
    outer, inner = None, env
    while isinstance(inner, gym.Wrapper):
        if isinstance(inner, ReplayRecorder):
            return env
        outer, inner = inner, inner.env
    recorder = ReplayRecorder(inner)
    if outer is None:
        return recorder
    outer.env = recorder
    return env


def recorders_of(env: Any) -> list[ReplayRecorder]:
    """The recorders in an environment, and in the rows of a vector in this process."""
    while not isinstance(env, ReplayRecorder):
        if isinstance(env, (gym.Wrapper, VectorWrapper)):
            env = env.env
        elif "venv" in env.__dict__:  # a wrapper of SB3
            env = env.venv
        else:
            rows = () if isinstance(env, gym.Env) else getattr(env, "envs", ())
            return [recorder for row in rows for recorder in recorders_of(row)]
    return [env]


def _answer(answer: tuple[Any, SupportsFloat, bool, bool, Info]) -> Answer:
    observation, reward, terminated, truncated, _ = answer
    return Answer(_digest(observation), struct.pack("d", float(reward)), bool(terminated), bool(truncated))


def _digest(observation: Any) -> bytes:
    found = hashlib.blake2b(digest_size=16)
    for leaf in trees.leaves(observation):
        array = np.asarray(leaf.detach().cpu() if isinstance(leaf, Tensor) else leaf)
        found.update(f"{array.dtype.str}{array.shape}".encode())
        found.update(repr(array.tolist()).encode() if array.dtype.hasobject else array.tobytes())
    return found.digest()
