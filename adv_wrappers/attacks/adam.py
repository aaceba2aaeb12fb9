"""Adam (Kingma and Ba 2015), by which attacks descend that search in a space without a budget's geometry."""

from __future__ import annotations

import torch
from torch import Tensor

_FIRST = 0.9
_SECOND = 0.999
_EPSILON = 1e-8
_NEW_FIRST, _NEW_SECOND = 0.1, 0.001  # the shares of a new gradient; in float64 one minus the above is another number


class Adam:
    """The steps of one descent.

    Args:
        like: a batch of the shape, dtype and device of what moves.
        lr: the learning rate.
    """

    def __init__(self, like: Tensor, lr: float) -> None:
        self.mean = torch.zeros_like(like)
        self.square = torch.zeros_like(like)
        self.lr = lr
        self.steps = 0

    def step(self, gradient: Tensor) -> Tensor:
        """What is taken from the point that has this gradient."""
        self.steps += 1
        self.mean.mul_(_FIRST).add_(gradient, alpha=_NEW_FIRST)
        self.square.mul_(_SECOND).addcmul_(gradient, gradient, value=_NEW_SECOND)
        size = (self.square / (1 - _SECOND**self.steps)).sqrt() + _EPSILON
        return self.lr * (self.mean / (1 - _FIRST**self.steps)) / size
