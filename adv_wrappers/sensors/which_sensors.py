"""Which numbers of an observation a faulty sensor gives: all of them, or those at some indices."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from adv_wrappers.core.numpy_and_torch_arithmetic import flat_rows
from adv_wrappers.errors import SpaceError, ValueRangeError
from adv_wrappers.utils.check_numbers import is_number

Features = tuple[int, ...] | None


def as_features(features: object) -> Features:
    """Indices of an observation's numbers, counted as it is flattened; a single one, a sequence, or None for all.

    Raises:
        ValueRangeError: for anything else, and for an index that is named twice.
    """
    if features is None:
        return None
    found = tuple(features) if isinstance(features, (list, tuple)) else (features,)
    whole = all(is_number(i) and int(i) == i and i >= 0 for i in found)
    if not found or not whole or len({*found}) < len(found):
        raise ValueRangeError(f"features are different indices from 0 on (0;2 in a text), got {features!r:.80}")
    return tuple(int(i) for i in found)


def check_features(name: str, features: Features, shape: tuple[int, ...]) -> None:
    """Raise :class:`SpaceError` unless an observation of this shape has these numbers."""
    size = math.prod(shape)
    if features is not None and max(features) >= size:
        raise SpaceError(f"{name} is for feature {max(features)}, but an observation {shape} has {size}, from 0 on")


def only(features: Features, faulty: Tensor, x: Tensor) -> Tensor:
    """``faulty`` at these indices, and ``x`` elsewhere, both ``[B, *S]``."""
    if features is None:
        return faulty
    y = flat_rows(x.clone())
    at = torch.as_tensor(features, device=x.device)
    y[:, at] = flat_rows(faulty)[:, at]
    return y.view(x.shape)
