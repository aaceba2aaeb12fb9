"""The moment of a strike: everything that it is made of, gathered before anything is computed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from adv_wrappers.core.context import Context
from adv_wrappers.core.errors import SpaceError


@dataclass
class Moment:
    """What one strike is made of, for the rows that are struck.

    Attributes:
        part: true values ``[B, *S]`` as they came in, an array or a tensor.
        key, episode_key: make the layer's int64 keys ``[B]``.
        seen: what victims see, for an action layer and in a Dict; None where that is ``part``.
        states: hidden state of a recurrent victim.
        free: elements that may change, bool ``[B, *S]``; None for all.
        mask, t, spent, memory: as in :class:`Context`; a strike that is recorded has no t.
    """

    part: Any
    key: Callable[[], Tensor]
    episode_key: Callable[[], Tensor]
    seen: Any
    states: Callable[[Any], Any]
    free: Tensor | None = None
    mask: Tensor | None = None
    t: Any = None
    spent: Any = None
    memory: Any = None


class Timeless(Context):
    """A context to be recorded: what differs from step to step, and is no tensor, is not there."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        del self.t, self.spent, self.memory

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"a capturable perturbation must not look at context.{name}")


def expected(part: Any, shape: tuple[int, ...]) -> Any:
    """``part``, after checking its shape; :class:`SpaceError` for another."""
    if tuple(part.shape) != shape:
        raise SpaceError(f"expected a batch of shape {shape}, got {tuple(part.shape)}")
    return part


def place(part: Any) -> torch.device:
    """Where an array or a tensor is."""
    return part.device if isinstance(part, Tensor) else torch.device("cpu")


def tensor_of(part: Any, device: torch.device | None = None) -> Tensor:
    """An array (copied: it may be the environment's own memory) or a tensor, as a tensor; on ``device``, if any."""
    tensor = part if isinstance(part, Tensor) else torch.from_numpy(np.array(part, order="C"))
    return tensor if device is None else tensor.to(device)


def padded(rows: NDArray[np.intp], most: int) -> NDArray[np.intp]:
    """Rows with the first one repeated up to a power of two, or to ``most``: a handful of shapes for all counts."""
    size = min(1 << (len(rows) - 1).bit_length(), most)
    return np.concatenate([rows, np.full(size - len(rows), rows[0])])
