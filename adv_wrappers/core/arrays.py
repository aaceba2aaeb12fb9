"""The part of a space that a layer perturbs, and the way in and out: numpy in, numpy out; tensors in, tensors out.

Computing is done in one dtype (the victim's), projecting in another (the space's own, or the float that holds its
integers exactly): a float64 space that is projected in float32 would not contain its own true values.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from torch import Tensor

from adv_wrappers.core.errors import SpaceError, VictimError

At = str | tuple[str, ...] | None


def _bounds(space: spaces.Space[Any]) -> tuple[NDArray[Any], NDArray[Any], np.dtype[Any]] | None:
    if isinstance(space, spaces.Box):
        return space.low, space.high, np.dtype(space.dtype)
    if isinstance(space, spaces.Discrete):
        return np.asarray(space.start), np.asarray(space.start + space.n - 1), np.dtype(np.int64)
    if isinstance(space, spaces.MultiDiscrete):
        return np.asarray(space.start), np.asarray(space.start + space.nvec - 1), np.dtype(space.dtype)
    if isinstance(space, spaces.MultiBinary):
        return np.zeros(space.shape, np.int8), np.ones(space.shape, np.int8), np.dtype(np.int8)
    return None


class Field:
    """The perturbed part of a space: a whole space, one key of a Dict, or several keys side by side.

    Args:
        space: space of one row.
        at: key, or tuple of keys, of a Dict space; None for the space itself.
        what: "observation" or "action", for messages.

    Raises:
        SpaceError: for a space or key that cannot be perturbed.
    """

    def __init__(self, space: spaces.Space[Any], at: At, what: str) -> None:
        self.at, self.keys = at, (at,) if isinstance(at, str) else at
        if at is not None and (
            not isinstance(at, (str, tuple))
            or not all(isinstance(k, str) for k in at)
            or len({*at}) < len(at) * isinstance(at, tuple)
        ):
            raise SpaceError(f"at must be a key or a tuple of different keys of the {what} space, got {at!r}")
        if self.keys is None:
            leaves = [space]
        elif not isinstance(space, spaces.Dict):
            raise SpaceError(f"at={at!r} picks keys of a Dict {what} space, got {space}")
        elif not self.keys or any(key not in space.spaces for key in self.keys):
            raise SpaceError(f"at={at!r} must name keys of the {what} space: it has {', '.join(space.spaces)}")
        else:
            leaves = [space.spaces[key] for key in self.keys]
        if isinstance(space, spaces.Dict) and self.keys is None:
            raise SpaceError(f"the {what} space is a Dict: choose what to perturb with at=: {', '.join(space.spaces)}")
        discrete = [isinstance(leaf, (spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)) for leaf in leaves]
        bounds = [found for found in map(_bounds, leaves) if found is not None]
        if len(bounds) < len(leaves) or (what == "observation" and any(discrete)):
            more = "" if what == "observation" else ", Discrete, MultiDiscrete or MultiBinary"
            raise SpaceError(f"cannot perturb the {what} space {space}: expected a Box{more}")
        if len({b[2] for b in bounds}) > 1:
            raise SpaceError(f"at={at!r} joins leaves of different dtypes: {', '.join(str(b[2]) for b in bounds)}")
        self.leaves, self.joined, self.discrete = leaves, isinstance(at, tuple), any(discrete)
        self.dtype = bounds[0][2]
        if self.dtype.kind not in "fiu":
            raise SpaceError(f"cannot perturb a {what} of dtype {self.dtype}: expected floats or integers")
        self.grid = self.dtype.kind in "iu"
        self.low = np.concatenate([b[0].reshape(-1) for b in bounds]) if self.joined else bounds[0][0]
        self.high = np.concatenate([b[1].reshape(-1) for b in bounds]) if self.joined else bounds[0][1]
        self.shape: tuple[int, ...] = self.low.shape
        wide = self.dtype.itemsize > (2 if self.grid else 4)
        self.exact = torch.float64 if wide else torch.float16 if self.dtype == np.float16 else torch.float32
        self._exact_np = np.dtype(str(self.exact).removeprefix("torch."))
        self._on: dict[torch.device, tuple[Tensor, Tensor]] = {}
        # whether the space is all values of its dtype: full uint8 images
        self.whole = self.dtype == np.uint8 and bool((self.low == 0).all() and (self.high == 255).all())
        finite = np.isfinite(np.stack([self.low, self.high]).astype(np.float64))
        self.bounded, self._open = bool(finite.all()), not finite.any()  # every feature, and none

    def holds(self, part: Any) -> bool:
        """Whether a part of this dtype cannot lie outside of the space."""
        return self._open or (self.whole and part.dtype in (np.uint8, torch.uint8))

    def bounds(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Bounds of the space in the exact dtype, ``[*S]`` twice."""
        if device not in self._on:
            low, high = (torch.from_numpy(np.array(b, dtype=self._exact_np)) for b in (self.low, self.high))
            self._on[device] = (low.to(device), high.to(device))
        return self._on[device]

    def take(self, value: Any, batched: bool) -> Any:
        """The perturbed part of a native value as one array or tensor ``[B, *S]`` (no copy for a whole space)."""
        if self.keys is None:
            part = value
        elif not self.joined:
            part = value[self.keys[0]]
        else:
            parts = [value[key] if batched else _row(value[key]) for key in self.keys]
            if isinstance(parts[0], Tensor):
                return torch.cat([p.reshape(len(p), -1) for p in parts], 1)
            return np.concatenate([_array(p).reshape(len(p), -1) for p in parts], 1)
        if batched:
            return part if isinstance(part, Tensor) else _array(part)
        return _row(part)

    def give(self, value: Any, part: Any, batched: bool) -> Any:
        """``value`` with its perturbed part replaced by ``part`` ``[B, *S]``; type, dtype and shape as they came in."""
        if self.keys is None:
            return part if batched else _single(value, part[0])
        if not self.joined:
            key = self.keys[0]
            return value | {key: part if batched else _single(value[key], part[0])}  # an OrderedDict stays one
        out, start = value.copy(), 0
        for key, leaf in zip(self.keys, self.leaves, strict=True):
            size = int(np.prod(leaf.shape or ()))
            piece = part[:, start : start + size].reshape(len(part), *(leaf.shape or ()))
            out[key], start = (piece if batched else _single(value[key], piece[0])), start + size
        return out

    def exactly(self, part: Any) -> Tensor:
        """A fresh tensor of the part in the exact dtype, on its own device."""
        if isinstance(part, Tensor):
            return part.to(self.exact, copy=True)
        if part.dtype.kind not in ("biu" if self.grid else "biuf"):
            raise SpaceError(f"expected {'integers' if self.grid else 'numbers'}, got an array of dtype {part.dtype}")
        return torch.from_numpy(np.array(part, dtype=self._exact_np, order="C"))

    def native(self, y: Tensor, like: Any) -> Any:
        """``y`` (already on the grid of an integer space) in the dtype and kind of ``like``."""
        if isinstance(like, Tensor):
            return y.to(like.device, like.dtype)
        return y.detach().cpu().numpy().astype(like.dtype, copy=False)


def _row(part: Any) -> Any:
    """One row as a batch of one."""
    return part[None] if isinstance(part, Tensor) else _array(part)[None]


def _array(part: Any) -> NDArray[Any]:
    try:
        return np.asarray(part)
    except ValueError as error:
        raise SpaceError(f"expected an array, got {part!r:.80}") from error


def _single(like: Any, value: Any) -> Any:
    """One row in the Python type that came in: integers stay integers, numpy scalars numpy scalars."""
    if isinstance(like, Tensor):
        return value
    if isinstance(like, np.ndarray):
        return np.asarray(value, dtype=like.dtype)
    return type(like)(value)


def to_victim(
    obs: Any, dtype: torch.dtype, device: torch.device, batched: bool,
    lift: Callable[[Any], Tensor] = lambda array: torch.from_numpy(np.array(array, order="C")),
) -> Any:  # fmt: skip
    """An observation (or Dict of them) as tensors ``[B, *S]`` in a victim's dtype and on its device."""
    if isinstance(obs, dict):
        return {key: to_victim(value, dtype, device, batched, lift) for key, value in obs.items()}
    tensor = obs if isinstance(obs, Tensor) else lift(obs)
    tensor = tensor.to(device).to(dtype)  # at once torch would convert first, and send bytes as floats
    return tensor if batched else tensor[None]


def _shapes(space: spaces.Space[Any]) -> Any:
    if isinstance(space, spaces.Dict):
        return {key: _shapes(value) for key, value in space.spaces.items()}
    if isinstance(space, spaces.Discrete):
        return int(space.n)
    if isinstance(space, spaces.MultiDiscrete):
        return tuple(space.nvec.tolist())
    return space.shape


def fits(victim: Any, observation_space: spaces.Space[Any], action_space: spaces.Space[Any]) -> None:
    """Raise :class:`VictimError` unless the victim's spaces have the kinds and shapes of these."""
    for what, own, other in (
        ("observation", victim.observation_space, observation_space),
        ("action", victim.action_space, action_space),
    ):
        if type(own) is not type(other) or _shapes(own) != _shapes(other):
            raise VictimError(f"the victim {victim.ref or ''} is for {what} space {own}, this environment has {other}")


def finite(x: Tensor) -> bool:
    """Whether all of ``x`` is finite; its sum tells at once, unless it overflows."""
    return math.isfinite(float(x.sum())) or bool(torch.isfinite(x).all())
