"""Save the state of an environment and come back to it, through any stack of wrappers.

A snapshot holds the content of everything that the environment can change: the attributes of every wrapper and of the
environment itself, and of every list, array, random generator or other object in them. Coming back writes the contents
into the same objects, so whatever refers to them still does. What simulators keep outside Python is copied by their own
means, the only ones that repeat to the bit: MuJoCo's data as a whole (parts of it miss the first step of some tasks),
the emulator of the Arcade Learning Environment with its random state. Shared, not copied: spaces, specs, victims,
networks, perturbations, MuJoCo's models and whatever draws pictures.

Environments that cannot be saved so are brought back by a replay, where a recorder was put around them before their
reset (:mod:`adv_wrappers.environments.replay`).
"""

from __future__ import annotations

import copy
import hashlib
import marshal
import types
from collections.abc import Iterator
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from torch import Tensor

from adv_wrappers.core.action_masks import action_mask_of, mask_choices, mask_path
from adv_wrappers.core.types import Flags, Info
from adv_wrappers.environments.object_snapshot import (
    HIDDEN,
    NotCopied,
    SavedContents,
    Walk,
    is_mujoco_data,
    random_parts,
)
from adv_wrappers.environments.replay import ReplayRecorder, recorders_of
from adv_wrappers.errors import SnapshotError


class Snapshot:
    """The state of one environment at one moment.

    >>> import gymnasium as gym
    >>> from adv_wrappers.environments.snapshot import Snapshot
    >>> env = gym.make("CartPole-v1")
    >>> _ = env.reset(seed=0)
    >>> snapshot = Snapshot.of(env)
    >>> first = env.step(1)
    >>> snapshot.restore(env)
    >>> bool((env.step(1)[0] == first[0]).all())
    True
    """

    __slots__ = ("_env", "_kept")

    def __init__(self, env: Any, kept: SavedContents) -> None:
        self._env, self._kept = env, kept

    @classmethod
    def of(cls, env: Any, reuse: Snapshot | None = None) -> Snapshot:
        """The present state of an environment.

        Args:
            env: the environment, of any wrappers around it the outermost: an ``Env``, or a vector of them in this
                process.
            reuse: an older snapshot that is needed no more, whose memory is written over: to allocate MuJoCo's takes
                forty times as long as to copy it.

        Raises:
            SnapshotError: for a part that cannot be copied, with its path.
        """
        walk = Walk()
        if reuse is not None:
            walk.spare = {id(target): kept for _, target, kept in reuse._kept if is_mujoco_data(kept)}
        try:
            walk.visit(env)
        except NotCopied as error:
            raise SnapshotError(f"{env} cannot be saved: {error.text}") from error
        return cls(env, walk.kept)

    @property
    def kept(self) -> SavedContents:
        """How each content is put back, into which object, and the content; not to be written to."""
        return self._kept

    def restore(self, env: Any) -> None:
        """Bring the environment back to the state of the snapshot, which can be used again.

        ALE draws its screen with the next frame: until then ``render`` shows the one before.

        Args:
            env: the environment that the snapshot is of.

        Raises:
            SnapshotError: for another one, and for an environment whose episode is replayed and goes another way.
        """
        if env is not self._env:
            raise SnapshotError(
                f"a snapshot is of one environment: expected that {type(self._env).__name__} itself, got another "
                f"{type(env).__name__} (wrapped or unwrapped afterwards, it is another)"
            )
        for put, target, kept in self._kept:
            put(target, kept)


def random_states(env: Any) -> list[object]:
    """The random states in an environment, saved or not, which are equal where nothing was drawn in between."""
    found = [kept for _, _, kept in random_parts(env)]
    return [kept.serialize() if type(kept).__name__ == "ALEState" else kept for kept in found]


# ----------------------------------------------------------------------------------------------------------------------
# Whether two snapshots of one environment are of the same state, to the bit: their contents, hashed.
#
# Two states are the same if whatever is done from them has the same answers. That is so where all that a snapshot
# keeps is equal: the content of every object, and which object refers to which. Objects are numbered in the order in
# which the snapshot came upon them, so a list that was made anew, with the same content in the same place, is no
# difference. What snapshots share and do not copy (spaces, functions, networks) has to be the same object.
# ----------------------------------------------------------------------------------------------------------------------


_PLAIN = frozenset({type(None), bool, int, float, str, bytes, complex})
_VERSION = 2  # of marshal: equal values have equal bytes, whichever objects they are, and floats all of theirs


class _NotComparable(Exception):
    """Content that bytes do not tell apart."""


class StateFingerprints:
    """Fingerprints of the snapshots of one environment, to be compared with each other.

    >>> import gymnasium as gym
    >>> from adv_wrappers.environments.snapshot import Snapshot, StateFingerprints
    >>> env = gym.make("CartPole-v1")
    >>> _ = env.reset(seed=0)
    >>> before, fingerprints = Snapshot.of(env), StateFingerprints()
    >>> _ = env.step(1)
    >>> after = Snapshot.of(env)
    >>> before.restore(env)
    >>> _ = env.step(1)
    >>> fingerprints.of(Snapshot.of(env)) == fingerprints.of(after) != fingerprints.of(before)
    True
    """

    def __init__(self) -> None:
        self._shared: dict[int, object] = {}  # kept alive, so that no other object gets the identity of one of them

    def of(self, snapshot: Snapshot) -> bytes | None:
        """The same bytes for the same state, and other bytes for any other; None for states that cannot be compared.

        Those are of MuJoCo, of objects whose state is hidden from Python, and of episodes that are replayed.
        """
        kept = snapshot.kept
        # objects are known by their place in the walk, not by where they lie in memory
        numbers = {id(target): number for number, (_, target, _) in enumerate(kept)}
        parts = list[object]()
        try:
            for put, target, content in kept:
                if put in HIDDEN or put is ReplayRecorder.go_to:
                    return None
                if put is ReplayRecorder.put_moment:  # how the environment came there, which is no part of its state
                    continue
                parts += self._identity(type(target)), self._comparable(numbers, content)
        except _NotComparable:
            return None
        return hashlib.blake2b(marshal.dumps(parts, _VERSION), digest_size=20).digest()

    def _comparable(self, numbers: dict[int, int], value: object) -> object:
        """A value in plain ones: itself, or a tuple of what kind it is, and its content."""
        kind = type(value)
        if kind in _PLAIN:
            return value
        # another object of the snapshot
        if id(value) in numbers:
            return "@", numbers[id(value)]
        if isinstance(value, (dict, list, tuple)):
            items = [item for pair in value.items() for item in pair] if isinstance(value, dict) else value
            found = [item if type(item) in _PLAIN else self._comparable(numbers, item) for item in items]
            return kind.__name__, found
        # sets have no order of their own
        if isinstance(value, (set, frozenset)):
            found = [self._comparable(numbers, item) for item in value]
            return kind.__name__, sorted(marshal.dumps([item], _VERSION) for item in found)
        if isinstance(value, (np.ndarray, np.generic)):
            if value.dtype.hasobject:
                raise _NotComparable
            return kind.__name__, value.dtype.str, value.shape, value.tobytes()
        if isinstance(value, Tensor):
            return "Tensor", self._comparable(numbers, value.detach().cpu().contiguous().numpy())
        if isinstance(value, types.MethodType):
            return "method", self._identity(value.__func__), self._comparable(numbers, value.__self__)
        if kind.__name__ == "ALEState":
            return "ALEState", value.serialize()  # type: ignore[attr-defined]
        return self._identity(value)

    def _identity(self, value: object) -> tuple[str, int]:
        self._shared[id(value)] = value
        return "#", id(value)


# ----------------------------------------------------------------------------------------------------------------------
# Whether an environment repeats after a snapshot of it was restored: a few steps are played twice and compared.
# ----------------------------------------------------------------------------------------------------------------------


class _Answer(NamedTuple):
    """What an environment returned to one action."""

    observation: Any
    reward: object
    terminated: Flags
    truncated: Flags
    info: Info


def check_repeats(env: Any, action: Any = None, steps: int = 3, action_space: spaces.Space[Any] | None = None) -> None:
    """Play a few steps twice from the present state, compare them to the bit, and return to it.

    What a wrapper measures by the clock on the wall, ``info["episode"]["t"]``, is not compared. Where a recorder is
    around an environment whose contents do not repeat, its episodes are replayed from then on
    (:class:`adv_wrappers.environments.replay.ReplayRecorder`); if they do repeat, it records no more.

    Args:
        env: the environment, reset before; an ``Env`` or a ``VectorEnv`` in this process.
        action: the first action; None draws it, as the later ones are: not from the environment's own generators, and
            by its action mask.
        steps: how many steps are played, fewer where the episode is over before.
        action_space: from which actions are drawn; None for the environment's own. Agents may number them otherwise.

    Raises:
        SnapshotError: for an environment that cannot be saved, for one that was not reset, and for one that answers
            differently the second time, naming what differs.
    """
    before = Snapshot.of(env)
    moments = [(recorder, recorder.at) for recorder in recorders_of(env) if recorder.at and not recorder.why]
    space = env.action_space if action_space is None else action_space
    # where contents do not bring the state back, a replay of the episode may
    where = _difference(env, before, action, steps, space)
    if where and moments:
        for recorder, moment in moments:
            recorder.replay(f"does not repeat after its contents were restored: {where}", moment)
        before = Snapshot.of(env)
        where = _difference(env, before, action, steps, space)
    if where:
        raise SnapshotError(
            f"{env} does not repeat: {where}; it has a state outside Python's objects, or draws from a generator that "
            f"it does not hold itself"
        )
    for recorder, _ in moments:
        recorder.save_contents()


def _difference(env: Any, before: Snapshot, action: Any, steps: int, space: spaces.Space[Any]) -> str:
    """Where a few steps from a snapshot differ the second time, "" where they do not; the state is the same after."""
    try:
        # played once, and after coming back once more with the same actions
        first, actions = list[_Answer](), list[Any]()
        for played, answer in _play(env, action, steps, copy.deepcopy(space)):
            actions.append(played)
            first.append(answer)
        before.restore(env)
        for number, (one, played) in enumerate(zip(first, actions, strict=True), 1):
            two = copy.deepcopy(_Answer(*env.step(played)))
            for name, part, again in zip(_Answer._fields, one, two, strict=True):
                where = difference(part, again, name)
                if where:
                    return f"step {number} after a restore has another {where}"
        return ""
    except gym.error.ResetNeeded as error:
        raise SnapshotError(f"{env} has no state yet: call reset first") from error
    finally:
        before.restore(env)


def _play(env: Any, action: Any, steps: int, space: spaces.Space[Any]) -> Iterator[tuple[Any, _Answer]]:
    space.seed(0)
    # actions that the environment's masks allow
    path = mask_path(getattr(env, "single_observation_space", env.observation_space), mask_choices(space))
    action = space.sample() if action is None else action
    for _ in range(steps):
        answer = copy.deepcopy(_Answer(*env.step(action)))
        yield action, answer
        if np.all(np.asarray(answer.terminated) | np.asarray(answer.truncated)):
            return
        mask = action_mask_of(answer.observation, answer.info, path)
        action = space.sample() if mask is None else space.sample(np.asarray(mask, np.int8))


def difference(one: object, two: object, name: str, rounding: float = 0.0) -> str:
    """Where two answers differ, "" where they do not: to the bit, or by more than rounding, relative and absolute."""
    if name == "info[episode][t]":  # seconds
        return ""
    one, two = _plain(one), _plain(two)
    if isinstance(one, dict) and isinstance(two, dict) and one.keys() != two.keys():
        return f"{name} (with {sorted(map(str, one.keys() ^ two.keys()))} only once)"
    # part by part, down to arrays and plain values
    if type(one) is type(two) and isinstance(one, (dict, list, tuple)) and len(one) == len(two):  # type: ignore[arg-type]
        keys = one if isinstance(one, dict) else range(len(one))
        parts = (difference(one[key], two[key], f"{name}[{key}]", rounding) for key in keys)  # type: ignore[index]
        return next(filter(None, parts), "")
    if isinstance(one, (np.ndarray, np.generic, float)) and type(one) is type(two):
        a, b = np.asarray(one), np.asarray(two)
        alike = a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
        if not alike and rounding and a.shape == b.shape and {a.dtype.kind, b.dtype.kind} <= set("iuf"):
            alike = np.allclose(a, b, rounding, rounding, equal_nan=True)
    else:
        alike = type(one) is type(two) and (type(one).__eq__ is object.__eq__ or bool(one == two))
    return "" if alike else f"{name} ({' '.join(f'{one!r:.60}, then {two!r:.60}'.split())})"


def _plain(value: object) -> object:
    """Tensors and what else is like an array as arrays, and arrays of objects as lists."""
    value = value.detach().cpu() if isinstance(value, Tensor) else value
    value = np.asarray(value) if hasattr(value, "__array__") and not isinstance(value, np.generic) else value
    return value.tolist() if isinstance(value, np.ndarray) and value.dtype == object else value
