"""Trees of arrays: a tensor or an array ``[B, *S]``, or dictionaries, tuples and lists of trees; None is an empty one.

Observations, hidden states of recurrent networks and the inputs of recorded functions all are such trees. Texts are
leaves as well: an array of objects, or the tuple of strings that vector environments make (see :func:`is_text`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

T = TypeVar("T")
RowIndex = NDArray[np.intp] | NDArray[np.bool_] | Tensor | int  # numbers of rows, or bool [B]


def leaves(tree: object) -> Iterator[Any]:
    """The leaves of a tree, in order: everything but dictionaries, tuples, lists and None."""
    if isinstance(tree, (dict, tuple, list)):
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
    if isinstance(tree, (tuple, list)):
        branches = [map_leaves(function, branch) for branch in tree]
        return type(tree)(*branches) if hasattr(tree, "_fields") else type(tree)(branches)  # a named tuple
    return None if tree is None else function(tree)


def clone(tree: T) -> T:
    """A tree with every tensor cloned; other leaves are what they were."""
    return map_leaves(lambda leaf: leaf.clone() if isinstance(leaf, Tensor) else leaf, tree)  # type: ignore[no-any-return]


def select(tree: Any, rows: RowIndex | None) -> Any:
    """Some rows of every leaf; ``rows=None`` for all."""
    if rows is None or tree is None:
        return tree
    if isinstance(tree, dict):
        return {key: select(value, rows) for key, value in tree.items()}
    if isinstance(tree, tuple):
        if is_text(tree) and tree:
            return np.array(tree, dtype=object)[rows]
        return tuple(select(value, rows) for value in tree)
    if isinstance(tree, Tensor):
        return tree[torch.as_tensor(rows, device=tree.device)]
    return tree[rows]


def repeat(tree: Any, copies: int) -> Any:
    """Every row of a batch so many times, one after the other."""

    def repeated(leaf: Any) -> Any:
        if isinstance(leaf, Tensor):
            return leaf.repeat_interleave(copies, 0)
        return np.repeat(leaf, copies, 0)

    return map_leaves(repeated, tree)


def merge(mask: Tensor | NDArray[np.bool_], new: Any, old: Any) -> Any:
    """Rows of ``new`` where ``mask`` (bool ``[B]``), of ``old`` elsewhere; never in place."""
    if isinstance(new, dict):
        return {key: merge(mask, new[key], old[key]) for key in new}
    if isinstance(new, tuple) and not (new and is_text(new)):
        return tuple(merge(mask, n, o) for n, o in zip(new, old, strict=True))
    if isinstance(new, Tensor):
        wide = torch.as_tensor(mask, device=new.device).view(-1, *[1] * (new.dim() - 1))
        return torch.where(wide, new, old)
    chosen = np.asarray(mask)
    if is_text(new):
        return np.where(chosen, np.array(new, dtype=object), np.array(old, dtype=object))
    return np.where(chosen.reshape(-1, *[1] * (new.ndim - 1)), new, old)


def row(tree: Any, i: int) -> Any:
    """One row of a batch."""
    if isinstance(tree, dict):
        return {key: row(value, i) for key, value in tree.items()}
    if isinstance(tree, tuple) and not is_text(tree):
        return tuple(row(value, i) for value in tree)
    return tree[i]


def put(tree: Any, i: int, value: Any) -> None:
    """Write ``value`` into a row, in place."""
    if isinstance(tree, (dict, tuple)):
        for key in tree if isinstance(tree, dict) else range(len(tree)):
            put(tree[key], i, value[key])
    else:
        tree[i] = value


def copy(tree: Any) -> Any:
    """A deep copy of a batch, or a dictionary or tuple of batches: tensors, and arrays of everything else."""
    if isinstance(tree, dict):
        return {key: copy(value) for key, value in tree.items()}
    if isinstance(tree, Tensor):
        return tree.clone()
    if isinstance(tree, tuple) and not is_text(tree):
        return tuple(copy(value) for value in tree)
    return np.array(tree, dtype=object if is_text(tree) else None)


def like(value: Any, before: Any) -> Any:
    """One row of a batch in the types of the row that it was made of: Python integers stay some."""
    if isinstance(value, dict):
        return {key: like(leaf, before[key]) for key, leaf in value.items()}
    if isinstance(value, tuple):
        return type(before)(like(leaf, old) for leaf, old in zip(value, before, strict=True))
    return type(before)(value) if isinstance(value, np.integer) and isinstance(before, (int, np.integer)) else value


def device(tree: object) -> torch.device | None:
    """Device of a tensor observation; None on the host."""
    leaf = next((leaf for leaf in leaves(tree) if not isinstance(leaf, str)), None)
    return leaf.device if isinstance(leaf, Tensor) else None


def is_text(leaf: object) -> bool:
    """Whether a leaf of a batch holds texts: an array of them, or the tuple that vector environments make."""
    if isinstance(leaf, (tuple, list)):
        return all(isinstance(text, str) for text in leaf)
    return isinstance(leaf, np.ndarray) and leaf.dtype.kind in "OU"
