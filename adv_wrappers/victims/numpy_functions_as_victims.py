"""Functions on numpy arrays as victims: tensors are copied to arrays on the way in, and what they answer to tensors.

Such a victim has outputs and no gradients, so it is attacked by its outputs alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from adv_wrappers.utils.trees import map_leaves


def is_array(value: object) -> bool:
    """Whether this is a numpy array, or what turns into one, and no tensor."""
    objects = getattr(value, "dtype", None) == np.dtype(object)  # a state that a function keeps itself
    return not isinstance(value, Tensor) and hasattr(value, "__array__") and not objects


def answers_arrays(answer: object) -> bool:
    """Whether an answer is an array, or a tuple that begins with one: a mean, or an output beside a state."""
    return is_array(answer[0] if isinstance(answer, tuple) and answer else answer)


def to_arrays(tree: object) -> Any:
    """Tensors of a tree as arrays of their own memory, which may be written to."""
    return map_leaves(lambda leaf: leaf.detach().cpu().numpy().copy() if isinstance(leaf, Tensor) else leaf, tree)


def to_tensors(tree: object, device: torch.device, dtype: torch.dtype | None = None) -> Any:
    """Arrays of a tree as tensors of ``dtype``, by default their own."""

    def tensor(leaf: object) -> Any:
        return torch.tensor(np.asarray(leaf), dtype=dtype, device=device) if is_array(leaf) else leaf

    return map_leaves(tensor, tree)


class ArrayFunction:
    """A function on numpy arrays, as a function on tensors without gradients.

    Args:
        function: takes and returns arrays; a recurrent one takes ``(obs, state)`` and returns ``(output, state)``.
        recurrent: whether it does.
        device, dtype: of the output. The leaves of a state keep their own dtype.
        takes_tensors: whether the function is given tensors, and only returns arrays.
    """

    def __init__(
        self,
        function: Callable[..., object],
        recurrent: bool,
        device: torch.device,
        dtype: torch.dtype,
        takes_tensors: bool = False,
    ) -> None:
        self.function, self.recurrent, self.device, self.dtype = function, recurrent, device, dtype
        self.takes_tensors = takes_tensors

    def __call__(self, *inputs: object) -> Any:
        if self.takes_tensors:
            with torch.no_grad():
                answer = self.function(*inputs)
        else:
            answer = self.function(*map(to_arrays, inputs))
        if self.recurrent and isinstance(answer, tuple) and len(answer) == 2:
            return to_tensors(answer[0], self.device, self.dtype), to_tensors(answer[1], self.device)
        return to_tensors(answer, self.device, self.dtype)


class ArrayStart:
    """The initial state of a recurrent function on arrays, as tensors."""

    def __init__(self, start: Callable[[int], object], device: torch.device) -> None:
        self.start, self.device = start, device

    def __call__(self, rows: int) -> Any:
        return to_tensors(self.start(rows), self.device)
