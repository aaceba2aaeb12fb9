"""The budget L2: how far a row may move in the Euclidean norm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from adv_wrappers.core.budgets import Budget, Draws, below_one_level, number
from adv_wrappers.core.rounding import around, distance

_ROUNDING = 1e-15  # of a sum of squares in float64, relatively: what lengths are known to
_FAR = 1e6  # length of a vector that stands for its direction alone


def _rows(x: Tensor) -> Tensor:
    """``[B, *S]`` as ``[B, n]``."""
    return x.reshape(len(x), x.shape[1:].numel())


def _broad(column: Tensor, x: Tensor) -> Tensor:
    """``[B, 1]`` to be broadcast over ``x`` ``[B, *S]``."""
    return column.view(-1, *[1] * (x.dim() - 1))


def _norms(x: Tensor) -> Tensor:
    return _broad(torch.linalg.vector_norm(_rows(x), dim=1, keepdim=True), x)


def _wide(x: Tensor) -> Tensor:
    """``x`` in float64, where its device has that."""
    return x if x.device.type == "mps" else x.double()


def _shrunk(delta: Tensor, length: float | Tensor, huge: bool) -> Tensor:
    """``delta`` with the rows that are longer than ``length`` drawn back to it.

    ``huge`` says that it may hold numbers whose squares are none.
    """
    if not huge:
        norms = _norms(delta)
        return delta * torch.where(norms > length, length / norms, 1.0)
    top = _broad(_rows(delta).abs().amax(1, keepdim=True), delta).clamp_(min=torch.finfo(delta.dtype).tiny)
    unit = delta / top
    norms = _norms(unit)
    return torch.where(norms * top > length, unit * (length / norms), delta)


def _whole(delta: Tensor, length: float | Tensor) -> Tensor:
    """The whole numbers near ``delta`` in rows of at most ``length``.

    Every element is first rounded towards zero at the length allowed, then, in the order of what that took away, one
    further while that comes nearer to ``delta`` and the row can pay for it. Plain rounding would lose a change that is
    spread over many elements: each would be less than half a level.
    """
    wide = _wide(delta)
    length = _wide(length) if isinstance(length, Tensor) else length
    shrunk = _shrunk(wide, length, delta.dtype == torch.float64)
    base = shrunk.trunc()
    more = wide.round().abs() > base.abs()
    order = _rows(torch.where(more, (shrunk - base).abs(), -1.0)).argsort(dim=1, descending=True, stable=True)
    price = _rows(torch.where(more, 2 * base.abs() + 1, 0.0)).gather(1, order)
    room = (length.reshape(-1, 1) if isinstance(length, Tensor) else length) ** 2 * (1 + _ROUNDING)
    paid = (price.cumsum(1) <= room - _rows(base).square().sum(1, keepdim=True)).to(wide.dtype)
    whole = base + wide.sign() * more * torch.zeros_like(paid).scatter_(1, order, paid).view(delta.shape)
    return whole.to(delta.dtype)


@dataclass(frozen=True)
class L2(Budget):
    """The whole row may move by ``eps`` in the Euclidean norm.

    A row is met with the space, and then drawn back along the line to the true value, which stays in the space since
    boxes are convex: feasible, and the nearest point wherever the space is not active. On an integer grid the elements
    that a row can pay for move by whole levels, those first that are nearest to the next one.

    Raises:
        BudgetError: for a negative or non-finite radius, and below one grey level on an integer space.
    """

    name: ClassVar[str] = "l2"
    eps: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "eps", number("eps", self.eps))

    def check(self, low: np.ndarray[Any, Any], high: np.ndarray[Any, Any], grid: bool) -> None:
        if grid and 0 < self.eps < 1:
            raise below_one_level(self.eps)

    def box(self, x: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        lower, upper = around(x, distance(self.eps, None, False, (), x.dtype, x.device))
        return torch.maximum(lower, low), torch.minimum(upper, high)

    def grid_box(self, x: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        whole = distance(self.eps, None, True, (), x.dtype, x.device)
        return torch.maximum(x - whole, low), torch.minimum(x + whole, high)

    def project(self, y: Tensor, x: Tensor, low: Tensor, high: Tensor, grid: bool = False) -> Tensor:
        if self.eps == 0:
            return x  # to the bit, -0.0 included
        inner = max(self.eps - 0.999, 0.0) if grid else 0.999 * self.eps
        # met with the space's bounds, not with the sides of the box around the ball: those would bend the way back
        y = torch.where((y < low) & (low > x - inner), low, y)
        y = torch.where((y > high) & (high < x + inner), high, y)
        if grid:
            return x + _whole(y - x, self.eps)
        true = _wide(x)
        delta = _shrunk(_wide(y) - true, self.eps, x.dtype == torch.float64)
        near = (true + delta).to(x.dtype)
        over = (_wide(near) - true).abs() > delta.abs_().mul_(1 + _ROUNDING)  # rounded away from the true value
        return torch.clamp(torch.where(over, torch.nextafter(near, x), near), low, high)

    def direction(self, gradient: Tensor) -> Tensor:
        top = _broad(_rows(gradient).abs().amax(1, keepdim=True), gradient)
        g = gradient / torch.where(top > 0, top, 1.0)  # the squares of a small gradient would underflow
        return g / _norms(g).clamp(min=1)

    def unit(self, low: Tensor, high: Tensor) -> float | Tensor:
        return self.eps

    def move(self, y: Tensor, gradient: Tensor, length: float | Tensor, grid: bool = False) -> Tensor:
        return y + _whole(_FAR * self.direction(gradient), length) if grid else super().move(y, gradient, length)

    def draw(self, x: Tensor, low: Tensor, high: Tensor, draws: Draws, grid: bool = False) -> Tensor:
        """Uniform in the ball: a Gaussian direction at radius ``eps * u ** (1 / n)``, then met with the space."""
        normal, size = draws.normal(), max(x.shape[1:].numel(), 1)
        radius = self.eps * _broad(_rows(draws.uniform())[:, :1].pow(1 / size), x)
        return self.project(self.move(x, normal, radius, grid), x, low, high, grid)
