"""Trees of arrays: a tensor or an array ``[B, *S]``, or dictionaries and sequences of trees; None is an empty one.

Observations, hidden states of recurrent networks and the inputs of recorded functions all are such trees. Texts are
leaves as well: an array of objects, or the tuple of strings that vector environments make (see :func:`is_text`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

T = TypeVar("T")
RowIndex = NDArray[np.intp] | NDArray[np.bool_] | Tensor | int  # numbers of rows, or bool [B]


def leaves(tree: object) -> Iterator[Any]:
    """The leaves of a tree, in order: everything but dictionaries, tuples, lists, deques and None; a shape is one."""
    if isinstance(tree, (dict, tuple, list, deque)) and not isinstance(tree, torch.Size):
        for branch in tree.values() if isinstance(tree, dict) else tree:
            yield from leaves(branch)
    elif tree is not None:
        yield tree


def tensors(tree: object) -> Iterator[Tensor]:
    """The leaves of a tree that are tensors."""
    return (leaf for leaf in leaves(tree) if isinstance(leaf, Tensor))


def map_leaves(function: Callable[[Any], object], tree: object) -> Any:
    """A tree of the same form with ``function`` of every leaf."""
    if isinstance(tree, dict):
        return {key: map_leaves(function, branch) for key, branch in tree.items()}
    if isinstance(tree, deque):
        return deque((map_leaves(function, branch) for branch in tree), tree.maxlen)
    if isinstance(tree, (tuple, list)) and not isinstance(tree, torch.Size):
        branches = [map_leaves(function, branch) for branch in tree]
        return type(tree)(*branches) if hasattr(tree, "_fields") else type(tree)(branches)  # a named tuple
    return None if tree is None else function(tree)


def clone(tree: T) -> T:
    """A tree with every tensor cloned; other leaves are what they were."""
    return map_leaves(lambda leaf: leaf.clone() if isinstance(leaf, Tensor) else leaf, tree)  # type: ignore[no-any-return]


def _by_leaves(function: Callable[..., object], *trees: Any) -> Any:
    """A tree with ``function`` of the leaves of batches of one form; texts are one leaf."""
    first = trees[0]
    if isinstance(first, dict):
        return {key: _by_leaves(function, *(tree[key] for tree in trees)) for key in first}
    if isinstance(first, tuple) and not (first and is_text(first)):
        return tuple(_by_leaves(function, *parts) for parts in zip(*trees, strict=True))
    return None if first is None else function(*trees)


def select(tree: Any, rows: RowIndex | None) -> Any:
    """Some rows of every leaf; ``rows=None`` for all."""

    def selected(leaf: Any) -> Any:
        if isinstance(leaf, Tensor):
            return leaf[torch.as_tensor(rows, device=leaf.device)]
        return (np.array(leaf, dtype=object) if isinstance(leaf, tuple) else leaf)[rows]

    return tree if rows is None else _by_leaves(selected, tree)


def repeat(tree: Any, copies: int) -> Any:
    """Every row of a batch so many times, one after the other."""

    def repeated(leaf: Any) -> Any:
        if isinstance(leaf, Tensor):
            return leaf.repeat_interleave(copies, 0)
        return np.repeat(leaf, copies, 0)

    return map_leaves(repeated, tree)


def merge(mask: Tensor | NDArray[np.bool_], new: Any, old: Any) -> Any:
    """Rows of ``new`` where ``mask`` (bool ``[B]``), of ``old`` elsewhere; never in place."""

    def merged(one: Any, other: Any) -> Any:
        if isinstance(one, Tensor):
            return torch.where(torch.as_tensor(mask, device=one.device).view(-1, *[1] * (one.dim() - 1)), one, other)
        dtype = object if is_text(one) else None
        one, other = np.asarray(one, dtype), np.asarray(other, dtype)
        return np.where(np.asarray(mask).reshape(-1, *[1] * (one.ndim - 1)), one, other)

    return _by_leaves(merged, new, old)


def row(tree: Any, i: int) -> Any:
    """One row of a batch."""
    return _by_leaves(lambda leaf: leaf[i], tree)


def put(tree: Any, i: int, value: Any) -> None:
    """Write ``value`` into a row, in place."""
    _by_leaves(lambda leaf, one: leaf.__setitem__(i, one), tree, value)


def copy(tree: Any) -> Any:
    """A deep copy of a batch, or a dictionary or tuple of batches: tensors, and arrays of everything else."""

    def copied(leaf: Any) -> Any:
        return leaf.clone() if isinstance(leaf, Tensor) else np.array(leaf, dtype=object if is_text(leaf) else None)

    return _by_leaves(copied, tree)


def like(value: Any, before: Any) -> Any:
    """One row of a batch in the types of the row that it was made of: Python integers stay some."""

    def typed(leaf: Any, old: Any) -> Any:
        return type(old)(leaf) if isinstance(leaf, np.integer) and isinstance(old, (int, np.integer)) else leaf

    return _by_leaves(typed, value, before)


def device(tree: object) -> torch.device | None:
    """Device of a tensor observation; None on the host."""
    leaf = next((leaf for leaf in leaves(tree) if not isinstance(leaf, str)), None)
    return leaf.device if isinstance(leaf, Tensor) else None


def is_text(leaf: object) -> bool:
    """Whether a leaf of a batch holds texts: an array of them, or the tuple that vector environments make."""
    if isinstance(leaf, (tuple, list)):
        return all(isinstance(text, str) for text in leaf)
    return isinstance(leaf, np.ndarray) and leaf.dtype.kind in "OU"
