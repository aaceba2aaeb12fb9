"""Balls: the budget Linf, beside L2 and L0. :mod:`adv_wrappers.core.budgets` says what each function means."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from adv_wrappers.core import launch
from adv_wrappers.core.budgets import Budget, Draws, below_one_level, number
from adv_wrappers.core.errors import BudgetError
from adv_wrappers.core.euclidean import L2
from adv_wrappers.core.rounding import around, distance
from adv_wrappers.core.sparse import L0

__all__ = ["L0", "L2", "Linf"]

Scale = float | tuple[float, ...] | str | None


@functools.lru_cache(maxsize=256)
def _radius(eps: float, scale: Any, shape: tuple[int, ...], dtype: torch.dtype, device: Any) -> Tensor:
    """``eps * scale`` to the nearest number of a dtype: ``[]``, or ``shape``; arithmetic with tensors costs less."""
    return (torch.tensor(1.0 if scale is None else scale, dtype=torch.float64) * eps).view(shape).to(device, dtype)


@dataclass(frozen=True)
class Linf(Budget):
    """Every feature may move by ``eps`` times its scale.

    Args:
        eps: radius, at least 0, in the units of the space (grey levels for uint8 images) or of ``scale``.
        scale: None (one), a number, one number a feature in C order (0 freezes a feature), or ``"victim"``: the
            victim's own unit, the standard deviations of its normaliser.

    Raises:
        BudgetError: for a negative or non-finite radius or scale, and below one grey level on an integer space.

    >>> Linf(0.5).box(torch.zeros(1, 2), torch.tensor([-0.2, -1.0]), torch.tensor([1.0, 1.0]))
    (tensor([[-0.2000, -0.5000]]), tensor([[0.5000, 0.5000]]))
    """

    name: ClassVar[str] = "linf"
    eps: float
    scale: Scale = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "eps", number("eps", self.eps))
        scale = self.scale
        if isinstance(scale, (str, bytes)):
            if scale != "victim":
                raise BudgetError(f"scale must be None, a number, one number a feature or 'victim', got {scale!r}")
        elif isinstance(scale, (Sequence, np.ndarray, Tensor)):
            try:
                flat = np.asarray(scale, dtype=np.float64).reshape(-1).tolist()
            except (TypeError, ValueError, OverflowError, RuntimeError) as error:
                raise BudgetError(f"scale must be one number a feature, got {scale!r}") from error
            object.__setattr__(self, "scale", tuple(number("scale", s) for s in flat))
        elif scale is not None:
            object.__setattr__(self, "scale", number("scale", scale))

    def resolve(self, victim: Any) -> Linf:
        """Replace ``scale="victim"`` by the victim's own standard deviations."""
        if self.scale != "victim" or victim is None:
            return self
        if victim.scale is None:
            raise BudgetError("scale='victim' needs a victim with a unit of its own (a normaliser); this one has none")
        scale = victim.scale.double().reshape(-1)
        if bool((scale == scale[0]).all()):  # one number for all: images would carry tens of thousands
            return replace(self, scale=float(scale[0]))
        return replace(self, scale=tuple(scale.tolist()))

    def check(self, low: np.ndarray[Any, Any], high: np.ndarray[Any, Any], grid: bool) -> None:
        if self.scale == "victim":
            raise BudgetError("scale='victim' needs a victim: give one to the attack, or call threat.against(victim)")
        size = int(np.prod(low.shape))
        if isinstance(self.scale, tuple) and len(self.scale) != size:
            raise BudgetError(f"scale has {len(self.scale)} numbers for a space of {size} features {low.shape}")
        unit = (
            max(self.scale, default=0.0)
            if isinstance(self.scale, tuple)
            else float(1 if self.scale is None else self.scale)
        )
        if grid and 0 < self.eps * unit < 1:
            raise below_one_level(self.eps * unit)

    @property
    def elementwise(self) -> bool:
        return not isinstance(self.scale, tuple)

    def radius(self, x: Tensor) -> float | Tensor:
        """Largest change of every feature: a number, or ``[*S]``."""
        if isinstance(self.scale, tuple):
            return _radius(self.eps, self.scale, tuple(x.shape[1:]), x.dtype, x.device)
        return self.eps if self.scale is None else self.eps * float(self.scale)

    def box(self, x: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        lower, upper = around(x, self._distance(x, False))
        return torch.maximum(lower, low, out=lower), torch.minimum(upper, high, out=upper)

    def grid_box(self, x: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        whole = self._distance(x, True)
        lower, upper = x - whole, x + whole  # exact
        return torch.maximum(lower, low, out=lower), torch.minimum(upper, high, out=upper)

    def _distance(self, x: Tensor, whole: bool) -> Tensor:
        scale, *more = self._shape(x)
        return distance(self.eps, scale, whole, *more)

    def _shape(self, x: Tensor) -> Any:
        """Scale, shape, dtype and device of the radius as a tensor."""
        return self.scale, tuple(x.shape[1:]) if isinstance(self.scale, tuple) else (), x.dtype, x.device

    def direction(self, gradient: Tensor) -> Tensor:
        return self.in_units(gradient.sign())

    def units(self, x: Tensor) -> float | Tensor | None:
        """The scale of every feature: a number, ``[*S]`` like the rows of ``x``, or None for one."""
        if isinstance(self.scale, tuple):
            return _radius(1.0, self.scale, tuple(x.shape[1:]), x.dtype, x.device)
        return None if self.scale is None else float(self.scale)

    def in_units(self, gradient: Tensor) -> Tensor:
        units = self.units(gradient)
        return gradient if units is None else gradient * units

    def ascend(
        self, y: Tensor, gradient: Tensor, length: float | Tensor, x: Tensor, low: Tensor, high: Tensor, grid: bool,
        spend: bool = False,
    ) -> Tensor:  # fmt: skip
        if self.eps == 0:
            return x  # to the bit, -0.0 included
        if y.is_cuda and isinstance(length, float) and (kernels := launch.twin("core.balls", y)) is not None:
            into = gradient if spend else None
            done: Tensor | None = kernels.ascend(y, gradient, low, high, length, self.units(y), grid, into)
            if done is not None:
                return done
        return self.plainly(y, gradient, length, x, low, high, grid, spend)

    def plainly(
        self, y: Tensor, gradient: Tensor, length: float | Tensor, x: Tensor, low: Tensor, high: Tensor, grid: bool,
        spend: bool = False,
    ) -> Tensor:  # fmt: skip
        """:meth:`ascend` by torch alone, for a radius above zero."""
        move = self.in_units(gradient.sign_() if spend else gradient.sign())
        if grid and self.scale is not None:  # at least one level, also for features of a small scale
            move = (length * move).abs().clamp_(min=1).mul_(move.sign())
            length = 1.0
        # in the memory of the direction: on large batches fresh memory costs more than the arithmetic
        if isinstance(length, Tensor):
            move.mul_(length).add_(y)
        else:
            torch.add(y, move, alpha=length, out=move)
        torch.clamp(move, low, high, out=move)
        return move.round_() if grid else move

    def project(self, y: Tensor, x: Tensor, low: Tensor, high: Tensor, grid: bool = False) -> Tensor:
        return super().project(y, x, low, high, grid) if self.eps > 0 else x  # to the bit, -0.0 included

    def unit(self, low: Tensor, high: Tensor) -> float | Tensor:
        return self.eps

    def spread(self, x: Tensor, low: Tensor, high: Tensor) -> float | Tensor:
        return self.radius(x)

    def draw(self, x: Tensor, low: Tensor, high: Tensor, draws: Draws, grid: bool = False) -> Tensor:
        """Uniform in the ball (on the grid: over its integers), then met with the space, as the papers do."""
        u = draws.uniform()
        if not grid:
            radius, one = _radius(self.eps, *self._shape(x)), _radius(1.0, None, (), x.dtype, x.device)
            return torch.clamp(u.add_(u).sub_(one).mul_(radius).add_(x), low, high)
        whole = self._distance(x, True)
        return torch.clamp(u.mul_(2 * whole + 1).floor_().sub_(whole).add_(x), low, high)
