"""Whether two snapshots of one environment are of the same state, to the bit: their contents, hashed.

Two states are the same if whatever is done from them has the same answers. That is so where all that a snapshot keeps
is equal: the content of every object, and which object refers to which. Objects are numbered in the order in which the
snapshot came upon them, so a list that was made anew, with the same content in the same place, is no difference. What
snapshots share and do not copy (spaces, functions, networks) has to be the same object.
"""

from __future__ import annotations

import hashlib
import struct
import types

import numpy as np
from torch import Tensor

from adv_wrappers.snapshots.contents import HIDDEN
from adv_wrappers.snapshots.snapshot import Snapshot

_PLAIN = frozenset({type(None), bool, int, str, bytes, complex})


class _NotComparable(Exception):
    """Content that bytes do not tell apart."""


class StateFingerprints:
    """Fingerprints of the snapshots of one environment, to be compared with each other.

    >>> import gymnasium as gym
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

        Those are of MuJoCo, and of objects whose state is hidden from Python.
        """
        kept = snapshot.kept
        numbers = {id(target): number for number, (_, target, _) in enumerate(kept)}
        parts = list[bytes]()
        try:
            for put, target, content in kept:
                if put in HIDDEN:
                    return None
                self._identity(parts, type(target))
                self._write(parts, numbers, content)
        except _NotComparable:
            return None
        return hashlib.blake2b(b"".join(parts), digest_size=20).digest()

    def _write(self, parts: list[bytes], numbers: dict[int, int], value: object) -> None:
        """Append the bytes of a value; every one says how long it is, so that no two values have the same."""
        kind = type(value)
        if kind is float:
            parts.append(b"f" + struct.pack("<d", value))
        elif kind in _PLAIN:
            text = repr(value).encode("utf-8", "surrogatepass")
            parts.append(b"%s%d:%s" % (kind.__name__.encode(), len(text), text))
        elif id(value) in numbers:
            parts.append(b"@%d;" % numbers[id(value)])
        elif isinstance(value, (dict, list, tuple)):
            parts.append(b"%s%d:" % (kind.__name__.encode(), len(value)))
            for item in value.items() if isinstance(value, dict) else value:
                self._write(parts, numbers, item)
        elif isinstance(value, (set, frozenset)):
            items = list[bytes]()
            for item in value:
                own = list[bytes]()
                self._write(own, numbers, item)
                items.append(b"".join(own))
            parts.append(b"%s%d:" % (kind.__name__.encode(), len(value)))
            parts.extend(sorted(items))
        elif isinstance(value, (np.ndarray, np.generic)):
            if value.dtype.hasobject:
                raise _NotComparable
            parts.append(f"{kind.__name__}{value.dtype.str}{value.shape}:".encode())
            parts.append(value.tobytes())
        elif isinstance(value, Tensor):
            self._write(parts, numbers, value.detach().cpu().contiguous().numpy())
        elif isinstance(value, types.MethodType):
            self._identity(parts, value.__func__)
            self._write(parts, numbers, value.__self__)
        elif kind.__name__ == "ALEState":
            self._write(parts, numbers, value.serialize())  # type: ignore[attr-defined]
        else:
            self._identity(parts, value)

    def _identity(self, parts: list[bytes], value: object) -> None:
        self._shared[id(value)] = value
        parts.append(b"#%d;" % id(value))
