"""The part of a space that a layer perturbs, and the way in and out: numpy in, numpy out; tensors in, tensors out.

Computing is done in one dtype (the victim's), projecting in another (that of the true values, or the float that holds
their integers exactly): float64 values that are projected in float32 would not lie in their own budget. Values come out
in the dtype that they came in; integers that stand for floats, in a space of floats, come out in the space's dtype.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from adv_wrappers.core.arrays import at_least, at_most
from adv_wrappers.core.types import Array, Batch, DType, Space
from adv_wrappers.errors import SpaceError, ValueRangeError
from adv_wrappers.utils.trees import is_text

Key = str | int  # of a Dict, or the index of a Tuple; "a/b" is the key b in the Dict a
At = Key | tuple[Key, ...] | None
Path = tuple[Key, ...]  # the keys and indices from a space down to one of its leaves

_WHOLE = 2.0**53  # up to here float64 holds every integer

_FLOATS = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32, "float64": torch.float64}
CHOICES = (spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)  # whose values have no distance
_KINDS = (spaces.Box, *CHOICES)
ARRAYS = {kind: np.dtype(name) for name, kind in _FLOATS.items() if name != "bfloat16"}


def _bounds(space: Space) -> tuple[Array, Array, np.dtype[np.generic]] | None:
    if isinstance(space, spaces.Box):
        # a copied space has a dtype that is a copy: the one of arrays is found again, since it is compared by identity
        own = np.dtype(space.dtype.type)
        return space.low, space.high, own if own == space.dtype else space.dtype
    if isinstance(space, spaces.Discrete):
        return np.asarray(space.start), np.asarray(space.start + space.n - 1), np.dtype(np.int64)
    if isinstance(space, spaces.MultiDiscrete):
        return np.asarray(space.start), np.asarray(space.start + space.nvec - 1), np.dtype(space.dtype)
    if isinstance(space, spaces.MultiBinary):
        return np.zeros(space.shape, np.int8), np.ones(space.shape, np.int8), np.dtype(np.int8)
    return None


def from_zero(space: Space) -> Space:
    """The space with all choices numbered from 0, whatever its ``start`` is: as Stable-Baselines3 numbers them.

    >>> from_zero(spaces.Dict(a=spaces.Discrete(3, start=5), b=spaces.MultiDiscrete([2, 3], start=[1, 7])))
    Dict('a': Discrete(3), 'b': MultiDiscrete([2 3]))
    """

    def numbered(leaf: Space, path: Path) -> Space:
        if isinstance(leaf, spaces.Discrete):
            return spaces.Discrete(int(leaf.n)) if leaf.start != 0 else leaf
        if isinstance(leaf, spaces.MultiDiscrete):
            return spaces.MultiDiscrete(leaf.nvec, dtype=leaf.dtype.type) if np.any(leaf.start) else leaf
        return leaf

    return with_leaves(space, numbered)


def with_leaves(space: Space, change: Callable[[Space, Path], Space], path: Path = ()) -> Space:
    """A space with other leaves in its Dicts and Tuples; any other space is a leaf itself.

    Args:
        space: the space.
        change: from a leaf, and its path, to what stands in its place.
        path: of the space.
    """
    if isinstance(space, spaces.Dict):  # pairs: a dictionary would have its keys sorted
        return spaces.Dict([(key, with_leaves(leaf, change, (*path, key))) for key, leaf in space.spaces.items()])
    if isinstance(space, spaces.Tuple):
        return spaces.Tuple([with_leaves(leaf, change, (*path, i)) for i, leaf in enumerate(space.spaces)])
    return change(space, path)


def numbered_as(own: Space, space: Space) -> Space:
    """``space``, with its choices numbered from 0 where those of ``own`` are, a space of the same form."""
    zero = from_zero(space)
    return zero if zero != space and own == from_zero(own) else space


def path_to(space: Space, key: Key) -> tuple[Path, Space] | None:
    """The way from a Dict or Tuple space to what a key names, and that space; None where there is none.

    A key that holds slashes names a leaf of spaces in spaces, unless a Dict has that very key.

    >>> inner = spaces.Dict({"b": spaces.Tuple([spaces.Discrete(2), spaces.Discrete(3)])})
    >>> path_to(spaces.Dict({"a": inner}), "a/b/1")
    (('a', 'b', 1), Discrete(3))
    """
    for steps in ([key], key.split("/") if isinstance(key, str) else []):
        path, inner = list[Key](), space
        # down one step at a time: keys of a Dict, indices of a Tuple
        for step in steps:
            if isinstance(inner, spaces.Dict) and step in inner.spaces:
                inner = inner.spaces[step]
            elif isinstance(inner, spaces.Tuple) and str(step).isdecimal() and int(step) < len(inner.spaces):
                step = int(step)
                inner = inner.spaces[step]
            else:
                break
            path.append(step)
        else:
            if path:
                return tuple(path), inner
    return None


def leaf_keys(space: Space) -> list[Key | None]:
    """The keys of all leaves of a Dict or Tuple space, those of spaces in spaces with slashes; None for any other.

    >>> leaf_keys(spaces.Dict({"a": spaces.Tuple([spaces.Discrete(2), spaces.Discrete(3)]), "b": spaces.Discrete(4)}))
    ['a/0', 'a/1', 'b']
    """
    return [key for key, _ in _places(space)] or [None]


def has_images(space: Space) -> bool:
    """Whether a space, or a leaf of a Dict or Tuple, has more than one axis."""
    inside = children(space)
    return any(has_images(one) for _, one in inside) if inside else len(space.shape or ()) > 1


def is_text_space(space: Space) -> bool:
    """Whether the values of a space are strings: of ``Text``, and of others, such as the missions of MiniGrid."""
    return space.dtype is not None and np.dtype(space.dtype).kind == "U"


def keys_in(at: At) -> tuple[Key, ...] | None:
    """The keys that ``at`` names; None for a whole space."""
    return at if at is None or isinstance(at, tuple) else (at,)


def leaf_at(tree: Any, path: Path) -> Any:
    """The leaf of a value, of a batch or of a space, at the end of a path."""
    for step in path:
        tree = tree[step]
    return tree


def with_leaf(tree: Any, path: Path, leaf: Any) -> Any:
    """A value, or a batch, with another leaf at the end of a path; what came in is not written to."""
    if not path:
        return leaf
    step: Any = path[0]
    inner = with_leaf(tree[step], path[1:], leaf)
    if isinstance(tree, dict):
        return tree | {step: inner}  # an OrderedDict stays one
    return type(tree)((*tree[:step], inner, *tree[step + 1 :]))


class Labelled(Protocol):
    """What has a name for messages."""

    @property
    def label(self) -> str: ...


class Field:
    """The perturbed part of a space: a whole space, one key of a Dict or Tuple, or several keys side by side.

    Args:
        space: space of one row.
        at: key, or tuple of keys, of a Dict space, or index of a Tuple; None for the space itself.
        what: "observation" or "action", for messages.

    Attributes:
        paths: of the keys; None for the space itself.
        discrete: whether values are choices (of a Discrete, MultiDiscrete or MultiBinary), which have no distance.
        choices: of how many values every entry is then one, in C order; else None.

    Raises:
        SpaceError: for a space or key that cannot be perturbed.
    """

    def __init__(self, space: Space, at: At, what: str) -> None:
        self.what = what
        self.at = at
        self.keys = keys_in(at)
        if self.keys is not None and (
            not all(isinstance(k, (str, int)) and not isinstance(k, bool) for k in self.keys)
            or len({*self.keys}) < len(self.keys)
        ):
            raise SpaceError(
                f"at must be a key, or a tuple of different keys, of the {what} space (of a Tuple an index), got {at!r}"
            )
        # the leaves: the whole space, or what the keys name
        self.paths: tuple[Path, ...] | None = None
        if self.keys is None:
            leaves = [space]
        elif not isinstance(space, (spaces.Dict, spaces.Tuple)):
            raise SpaceError(f"at={at!r} picks keys of a Dict or Tuple {what} space, got {space}: leave at away")
        else:
            found = [path_to(space, key) for key in self.keys]
            if not found or None in found:
                has = ", ".join(str(key) for key, _ in children(space))
                raise SpaceError(f"at={at!r} must name keys of the {what} space: it has {has}")
            self.paths = tuple(path for path, _ in found)  # type: ignore[misc]
            if len({*self.paths}) < len(self.paths):
                raise SpaceError(f"at must be a tuple of different keys of the {what} space, got {at!r}")
            leaves = [leaf for _, leaf in found]  # type: ignore[misc]
        # their bounds, in one dtype where several are joined
        bounds: list[tuple[Array, Array, np.dtype[np.generic]]] = []
        self.discrete = False
        for key, leaf in zip(self.keys or (None,), leaves, strict=True):
            sides = _bounds(leaf)
            if sides is None:
                raise _unfit(what, leaf, key)
            bounds.append(sides)
            self.discrete = self.discrete or isinstance(leaf, CHOICES)
        if len(bounds) > 1 and len({b[2] for b in bounds}) > 1:
            raise SpaceError(
                f"at={at!r} joins leaves of different dtypes, {', '.join(str(b[2]) for b in bounds)}: perturb them in "
                f"layers of their own"
            )
        # what is attacked: its bounds, side by side where leaves are joined, and whether it has a grid
        self.leaves, self.joined = leaves, isinstance(at, tuple)
        self.dtype = bounds[0][2]
        if self.dtype.kind not in "fiu":
            raise SpaceError(
                f"cannot perturb a {what} of dtype {self.dtype}: expected floats or integers"
                + (", as gymnasium.wrappers.DtypeObservation(env, np.uint8) makes of it" * (what == "observation"))
            )
        self.grid = self.dtype.kind in "iu"
        self.low = np.concatenate([b[0].reshape(-1) for b in bounds]) if self.joined else bounds[0][0]
        self.high = np.concatenate([b[1].reshape(-1) for b in bounds]) if self.joined else bounds[0][1]
        self.shape: tuple[int, ...] = self.low.shape
        if self.low.size == 0:
            raise SpaceError(f"cannot perturb the {what} space {leaves[0]}: it has no elements")
        # the float that holds its values exactly; bounds on other devices are made when they are asked for
        self._exact: dict[DType, torch.dtype] = {}
        self.exact = self.exact_for(self.dtype)
        self._on: dict[tuple[torch.device | None, DType | None], tuple[Batch, Batch]] = {}
        # whether the space is all values of its dtype: full uint8 images
        self.whole = self.dtype == np.uint8 and bool((self.low == 0).all() and (self.high == 255).all())
        # of choices how many there are of each, of numbers whether all have bounds
        self.choices: tuple[int, ...] | None = None
        if self.discrete:
            self.choices = tuple((self.high.astype(int) - self.low + 1).reshape(-1).tolist())
        finite = np.isfinite(np.stack([self.low, self.high]).astype(np.float64))
        self.bounded, self._open = bool(finite.all()), not finite.any()  # every feature, and none

    def widened(self, exact: Batch, dtype: DType) -> tuple[Any, Any]:
        """:meth:`bounds`, widened to contain the true values ``[B, *S]``, which came in ``dtype``."""
        xp, place = (torch, exact.device) if isinstance(exact, Tensor) else (np, None)
        low, high = self._on.get((place, dtype)) or self.bounds(place, dtype)
        if self._open or (self.whole and dtype in (np.uint8, torch.uint8)):  # nothing can lie outside
            return low, high
        return xp.minimum(low, exact), xp.maximum(high, exact)

    def exact_for(self, dtype: DType) -> torch.dtype:
        """The float dtype in which values of a dtype (numpy's or torch's) are projected.

        Raises:
            SpaceError: for floats in a space of integers, and for anything but numbers.
        """
        found = self._exact.get(dtype)
        if found is None:
            found = self._exact[dtype] = self._exactly(dtype)
        return found

    def _exactly(self, dtype: DType) -> torch.dtype:
        name = str(dtype).removeprefix("torch.") if isinstance(dtype, torch.dtype) else np.dtype(dtype).name
        known = _FLOATS.get(name)
        if known is not None and not self.grid:
            return known
        # integers that stand for floats need a float that holds them all
        kind = np.dtype(name).kind if known is None and name in np.sctypeDict else ""
        if kind not in ("b", "i", "u"):
            expected = "integers" if self.grid else "integers or floats of 16, 32 or 64 bits"
            raise SpaceError(f"expected {expected}, as the space has them ({self.dtype}), got {name}")
        if not self.grid:
            return _FLOATS[self.dtype.name]
        return torch.float64 if max(np.dtype(name).itemsize, self.dtype.itemsize) > 2 else torch.float32

    def bounds(self, device: torch.device | None, dtype: DType | None = None) -> tuple[Any, Any]:
        """Bounds for values of a dtype (None for the space's own), in the dtype that these are projected in.

        ``[*S]`` twice: the space's, rounded inwards, and of integers those that the dtype and its float both hold.
        Tensors on ``device``; without one arrays ``[1, *S]``.
        """
        key = device, dtype
        if key not in self._on:
            self._on[key] = self._sides(device, self.dtype if dtype is None else dtype)
        return self._on[key]

    def _sides(self, device: torch.device | None, dtype: DType) -> tuple[Batch, Batch]:
        exact = self.exact_for(dtype)
        low, high = self.low.astype(np.float64), self.high.astype(np.float64)
        if self.grid:
            kind = np.dtype(str(dtype).removeprefix("torch."))
            least, most = (0, 1) if kind.kind == "b" else (np.iinfo(kind).min, np.iinfo(kind).max)
            low, high = (side.clip(max(least, -_WHOLE), min(most, _WHOLE)) for side in (low, high))
        lower, upper = (torch.from_numpy(np.array(side)) for side in (low, high))
        lower, upper = at_least(lower, exact), at_most(upper, exact)
        if device is None:  # with an axis of rows: numpy is slower where shapes differ
            return lower.numpy()[None], upper.numpy()[None]
        return lower.to(device), upper.to(device)

    def take(self, value: Any, batched: bool) -> Batch:
        """The perturbed part of a native value as one array or tensor ``[B, *S]`` (no copy for a whole space)."""
        if type(value) is np.ndarray and self.keys is None:
            return value if batched else value[None]
        # one leaf as it is, several side by side in one vector
        if self.paths is None:
            part = value
        elif not self.joined:
            part = leaf_at(value, self.paths[0])
        else:
            parts: list[Any] = [leaf_at(value, path) for path in self.paths]
            parts = parts if batched else [_row(part) for part in parts]
            if isinstance(parts[0], Tensor):
                return torch.cat([p.reshape(len(p), -1) for p in parts], 1)
            return np.concatenate([_array(p).reshape(len(p), -1) for p in parts], 1)
        if batched:
            return part if isinstance(part, Tensor) else _array(part)
        return _row(part)

    def give(self, value: Any, part: Batch, batched: bool) -> Any:
        """``value`` with its perturbed part replaced by ``part`` ``[B, *S]``; type, dtype and shape as they came in."""
        if self.paths is None:
            if batched:
                return part
            return np.asarray(part[0]) if isinstance(value, np.ndarray) else _single(value, part[0])
        # each leaf gets its own part of the vector back
        start = 0
        for path, leaf in zip(self.paths, self.leaves, strict=True):
            piece: Any = part
            if self.joined:
                size = int(np.prod(leaf.shape or ()))
                piece = part[:, start : start + size].reshape(len(part), *(leaf.shape or ()))
                start += size
            value = with_leaf(value, path, piece if batched else _single(leaf_at(value, path), piece[0]))
        return value

    def exactly(self, part: Batch) -> Tensor:
        """A fresh tensor of the part in the dtype that it is projected in, on its own device."""
        exact = self._exact.get(part.dtype) or self.exact_for(part.dtype)
        if isinstance(part, Tensor):
            return part.to(exact, copy=True)
        return torch.from_numpy(np.array(part, dtype=ARRAYS[exact], order="C"))

    def check_finite(self, values: Batch, threat: Labelled) -> None:
        """Raise :class:`ValueRangeError` unless values on the host are finite.

        Actions that are choices must be among those of the space. ``threat`` is the one that they came to.
        """
        # choices have to be among those of the space, floats finite; the sum tells at once, and all are looked at if it
        # does
        if self.discrete and self.what == "action":
            array = np.asarray(values)
            if ((array < self.low) | (array > self.high)).any():
                got = f"the action {array.astype(int).tolist()!s:.80}"
                raise ValueRangeError(
                    f"{threat.label} got {got}, expected one of {self.leaves[0]}. Agents of Stable-Baselines3 "
                    "number actions from 0 whatever start is: give the layer the agent, as in "
                    "PerturbAction(env, threat, victim=agent), or wrap the environment in "
                    f"gymnasium.wrappers.TransformAction(env, lambda action: action, {from_zero(self.leaves[0])})"
                )
        if not self.grid:
            tensor = torch.as_tensor(values)
            if not math.isfinite(float(tensor.sum())) and not finite(tensor):
                raise ValueRangeError(f"{threat.label} got an {self.what} that is not finite: {values}")

    def native(self, y: Any, like: Batch) -> Batch:
        """``y`` (already on the grid of an integer space) in the kind and dtype of ``like``.

        Where ``like`` holds integers in a space of floats, the dtype is that of ``y``.
        """
        if isinstance(like, Tensor):
            tensor: Tensor = y.to(like.device, like.dtype if self.grid or like.dtype.is_floating_point else y.dtype)
            return tensor
        y = y.detach().cpu().numpy() if isinstance(y, Tensor) else y
        array: Array = y.astype(like.dtype, copy=False) if self.grid or like.dtype.kind == "f" else y
        return array


def children(space: Space) -> list[tuple[Key, Space]]:
    """The keys or indices of a Dict or Tuple, with the spaces there; none of any other space."""
    if isinstance(space, spaces.Dict):
        return [*space.spaces.items()]
    return [*enumerate(space.spaces)] if isinstance(space, spaces.Tuple) else []


def _places(space: Space, key: Key | None = None) -> Iterator[tuple[Key, Space]]:
    """The leaves beneath a space, by the keys that name them."""
    for one, child in children(space):
        place = one if key is None else f"{key}/{one}"
        yield from _places(child, place) if children(child) else [(place, child)]


def _unfit(what: str, leaf: Space, key: Key | None) -> SpaceError:
    """The error of a space that cannot be perturbed; says what can be done about it."""
    inside = [*_places(leaf, key)]
    fit = [one for one, child in inside if isinstance(child, _KINDS)]
    # a part of it that would do, or a wrapper that makes one
    if fit:
        cure = f"pick a key, at={fit[0]!r} (it has {', '.join(str(one) for one, _ in inside)})"
    elif not _flattens(leaf):
        cure = "nothing in Gymnasium makes one of it"
    elif what == "observation":
        cure = "gymnasium.wrappers.FlattenObservation makes one of it"
    else:
        cure = "flatten it in a wrapper of your own"
    where = f"the {what} space" if key is None else f"the key {key!r} of the {what} space"
    return SpaceError(f"cannot perturb {where}, {leaf}: expected a Box, Discrete, MultiDiscrete or MultiBinary; {cure}")


def _flattens(space: Space) -> bool:
    try:
        return space.is_np_flattenable
    except NotImplementedError:  # a space of a user's own
        return False


def _row(part: Batch) -> Batch:
    """One row as a batch of one."""
    return part[None] if isinstance(part, Tensor) else _array(part)[None]


def _array(part: Batch) -> Array:
    try:
        return np.asarray(part)
    except ValueError as error:
        raise SpaceError(f"expected an array, got {part!r:.80}") from error


def _single(like: Any, value: Batch) -> Any:
    """One row in the Python type that came in: integers stay integers, numpy scalars numpy scalars."""
    if isinstance(like, Tensor):
        return value
    if isinstance(like, np.ndarray):
        return np.asarray(value)
    if isinstance(value, np.generic) and value.dtype.kind == "f" and isinstance(like, (int, np.integer, np.bool_)):
        return value  # an integer that stood for a float
    if not isinstance(like, (int, np.generic)) and hasattr(like, "__array_namespace__"):  # an array of JAX
        return like.__array_namespace__().asarray(value)
    return type(like)(value)


def to_victim(
    obs: Any,
    dtype: torch.dtype,
    device: torch.device,
    batched: bool,
    lift: Callable[[Array], Tensor] = lambda array: torch.from_numpy(np.array(array, order="C")),
    space: Space | None = None,
) -> Any:
    """An observation (or a Dict or Tuple of them) as tensors ``[B, *S]`` in a victim's dtype and on its device.

    Where ``space`` is given, its Discrete, MultiDiscrete and MultiBinary leaves are integers. Texts become arrays of
    objects ``[B]``.
    """
    # leaf by leaf; texts stay what they are
    if isinstance(obs, dict):
        leaves = space.spaces if isinstance(space, spaces.Dict) else {}
        return {key: to_victim(value, dtype, device, batched, lift, leaves.get(key)) for key, value in obs.items()}
    if isinstance(space, spaces.Tuple):
        parts = zip(obs, space.spaces, strict=True)
        return tuple(to_victim(value, dtype, device, batched, lift, leaf) for value, leaf in parts)
    if not batched and isinstance(obs, str):
        return np.array([obs], dtype=object)
    if is_text(obs):
        return np.array(list(obs), dtype=object)
    tensor = obs if isinstance(obs, Tensor) else lift(obs)
    if isinstance(space, CHOICES):  # an attack computes in floats
        dtype = getattr(torch, np.dtype(space.dtype).name)
    # at once torch would convert first, and send bytes as floats
    tensor = tensor.to(device).to(dtype)
    return tensor if batched else tensor[None]


def size_difference(wanted: int, has: int) -> str:
    """What a policy may take that an observation does not have, to be put behind a message; "" for equal sizes.

    >>> size_difference(12, 4)
    '. It takes 12 numbers, 3 times the 4 of an observation, such as a history: FrameStackObservation(env, 3)'
    >>> size_difference(33, 30)
    '. It takes 33 numbers, an observation has 30: 3 are missing, such as a command, a clock or the last action'
    >>> size_difference(30, 33)
    '. It takes 30 numbers, an observation has 33: 3 are too many, such as those that only a critic sees'
    """
    if wanted == has:
        return ""
    if wanted > has > 0 and wanted % has == 0:
        times = wanted // has
        return (
            f". It takes {wanted} numbers, {times} times the {has} of an observation, such as a history: "
            f"FrameStackObservation(env, {times})"
        )
    missing = f"{wanted - has} are missing, such as a command, a clock or the last action"
    more = f"{has - wanted} are too many, such as those that only a critic sees"
    return f". It takes {wanted} numbers, an observation has {has}: {missing if wanted > has else more}"


def finite(x: Tensor) -> bool:
    """Whether all of ``x`` is finite; its sum tells at once, unless it overflows."""
    return math.isfinite(float(x.sum())) or bool(torch.isfinite(x).all())
