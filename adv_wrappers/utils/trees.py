"""Batches of observations: arrays or tensors ``[B, *S]``, or (nested) dictionaries of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch


def row(tree: Any, i: int) -> Any:
    """One row of a batch."""
    return {key: row(value, i) for key, value in tree.items()} if isinstance(tree, dict) else tree[i]


def put(tree: Any, i: int, value: Any) -> None:
    """Write ``value`` into a row, in place."""
    if isinstance(tree, dict):
        for key in tree:
            put(tree[key], i, value[key])
    else:
        tree[i] = value


def copy(tree: Any) -> Any:
    """A deep copy."""
    if isinstance(tree, dict):
        return {key: copy(value) for key, value in tree.items()}
    if isinstance(tree, torch.Tensor):
        return tree.clone()
    return np.array(tree, dtype=object if is_text(tree) else None)


def where(mask: Any, new: Any, old: Any) -> Any:
    """Rows of ``new`` where ``mask`` (bool ``[B]``), of ``old`` elsewhere."""
    if isinstance(new, dict):
        return {key: where(mask, new[key], old[key]) for key in new}
    if is_text(new):
        return np.where(mask, np.array(new, dtype=object), np.array(old, dtype=object))
    wide = mask.reshape(-1, *[1] * (len(new.shape) - 1))
    return torch.where(wide, new, old) if isinstance(new, torch.Tensor) else np.where(wide, new, old)


def device(tree: Any) -> torch.device | None:
    """Device of a tensor observation; None on the host."""
    leaf = next(iter(tree.values())) if isinstance(tree, dict) else tree
    return leaf.device if isinstance(leaf, torch.Tensor) else None


def is_text(leaf: Any) -> bool:
    """Whether a leaf of a batch holds texts: an array of them, or the tuple that vector environments make."""
    if isinstance(leaf, (tuple, list)):
        return all(isinstance(text, str) for text in leaf)
    return isinstance(leaf, np.ndarray) and leaf.dtype.kind in "OU"
