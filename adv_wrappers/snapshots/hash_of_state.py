"""Whether two snapshots of one environment are of the same state, to the bit: their contents, hashed.

Two states are the same if whatever is done from them has the same answers. That is so where all that a snapshot keeps
is equal: the content of every object, and which object refers to which. Objects are numbered in the order in which the
snapshot came upon them, so a list that was made anew, with the same content in the same place, is no difference. What
snapshots share and do not copy (spaces, functions, networks) has to be the same object.
"""

from __future__ import annotations

import hashlib
import marshal
import types

import numpy as np
from torch import Tensor

from adv_wrappers.snapshots.restore_by_replaying import go_to, put_moment
from adv_wrappers.snapshots.save_and_restore_python_objects import HIDDEN
from adv_wrappers.snapshots.snapshot import Snapshot

_PLAIN = frozenset({type(None), bool, int, float, str, bytes, complex})
_VERSION = 2  # of marshal: equal values have equal bytes, whichever objects they are, and floats all of theirs


class _NotComparable(Exception):
    """Content that bytes do not tell apart."""


class StateFingerprints:
    """Fingerprints of the snapshots of one environment, to be compared with each other.

    >>> import gymnasium as gym
    >>> from adv_wrappers.snapshots import Snapshot, StateFingerprints
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
        numbers = {id(target): number for number, (_, target, _) in enumerate(kept)}
        parts = list[object]()
        try:
            for put, target, content in kept:
                if put in HIDDEN or put is go_to:
                    return None
                if put is put_moment:  # how the environment came there, which is no part of its state
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
        if id(value) in numbers:
            return "@", numbers[id(value)]
        if isinstance(value, (dict, list, tuple)):
            items = [item for pair in value.items() for item in pair] if isinstance(value, dict) else value
            found = [item if type(item) in _PLAIN else self._comparable(numbers, item) for item in items]
            return kind.__name__, found
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
