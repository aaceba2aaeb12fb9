"""Balls: the budgets Linf, L2 and L0. See :mod:`adv_wrappers.core.budgets` for what each function means."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from adv_wrappers.core.budgets import Budget, Draws
from adv_wrappers.core.errors import BudgetError

Scale = float | tuple[float, ...] | str | None


def _norms(x: Tensor) -> Tensor:
    """l2 norm of each row, ``[B, 1, ...]``, to be broadcast."""
    return torch.linalg.vector_norm(x, dim=tuple(range(1, x.dim())) or None, keepdim=True) if x.dim() > 1 else x.abs()


@functools.lru_cache(maxsize=256)
def _radius(eps: float, scale: tuple[float, ...], shape: tuple[int, ...], dtype: torch.dtype, device: Any) -> Tensor:
    return (torch.tensor(scale, dtype=torch.float64) * eps).view(shape).to(dtype=dtype, device=device)


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise BudgetError(f"{name} must be a number, got {value!r}")
    value = float(value)
    if not math.isfinite(value) or value < 0:
        raise BudgetError(f"{name} must be finite and at least 0, got {value}")
    return value


def _below_one_level(eps: float) -> BudgetError:
    return BudgetError(
        f"eps={eps:g} is below one grey level on an integer space, so nothing could change: eps is in the units of the "
        f"observation (1/255 of the range of uint8 is eps=1). Raise eps, or make the space float with quantize=False"
    )


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
        object.__setattr__(self, "eps", _number("eps", self.eps))
        scale = self.scale
        if isinstance(scale, str):
            if scale != "victim":
                raise BudgetError(f"scale must be None, a number, one number a feature or 'victim', got {scale!r}")
        elif isinstance(scale, (Sequence, np.ndarray, Tensor)):
            flat = np.asarray(scale, dtype=np.float64).reshape(-1).tolist()
            object.__setattr__(self, "scale", tuple(_number("scale", s) for s in flat))
        elif scale is not None:
            object.__setattr__(self, "scale", _number("scale", scale))

    def resolve(self, victim: Any) -> Linf:
        """Replace ``scale="victim"`` by the victim's own standard deviations."""
        if self.scale != "victim" or victim is None:
            return self
        if victim.scale is None:
            raise BudgetError("scale='victim' needs a victim with a unit of its own (a normaliser); this one has none")
        return replace(self, scale=tuple(victim.scale.double().reshape(-1).tolist()))

    def check(self, low: np.ndarray[Any, Any], high: np.ndarray[Any, Any], grid: bool) -> None:
        if self.scale == "victim":
            raise BudgetError("scale='victim' needs a victim: give one to the attack, or call threat.against(victim)")
        size = int(np.prod(low.shape))
        if isinstance(self.scale, tuple) and len(self.scale) != size:
            raise BudgetError(f"scale has {len(self.scale)} numbers for a space of {size} features {low.shape}")
        unit = max(self.scale, default=0.0) if isinstance(self.scale, tuple) else float(self.scale or 1.0)
        if grid and 0 < self.eps * unit < 1:
            raise _below_one_level(self.eps * unit)

    def radius(self, x: Tensor) -> float | Tensor:
        """Largest change of every feature: a number, or ``[*S]``."""
        if isinstance(self.scale, tuple):
            return _radius(self.eps, self.scale, tuple(x.shape[1:]), x.dtype, x.device)
        return self.eps if self.scale is None else self.eps * float(self.scale)

    def box(self, x: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        radius = self.radius(x)
        return torch.maximum(x - radius, low), torch.minimum(x + radius, high)

    def direction(self, gradient: Tensor) -> Tensor:
        sign = gradient.sign_()
        if self.scale is None:
            return sign
        if isinstance(self.scale, tuple):
            return sign.mul_(_radius(1.0, self.scale, tuple(sign.shape[1:]), sign.dtype, sign.device))
        return sign.mul_(float(self.scale))

    def unit(self, low: Tensor, high: Tensor) -> float | Tensor:
        return self.eps

    def draw(self, x: Tensor, low: Tensor, high: Tensor, draws: Draws, grid: bool = False) -> Tensor:
        """Uniform in the ball (on the grid: over its integers), then met with the space, as the papers do."""
        u, radius = draws.uniform(), self.radius(x)
        if not grid:
            return torch.clamp(u.mul_(2).sub_(1).mul_(radius).add_(x), low, high)
        whole = radius.floor() if isinstance(radius, Tensor) else math.floor(radius)
        return torch.clamp(u.mul_(2 * whole + 1).floor_().sub_(whole).add_(x), low, high)


@dataclass(frozen=True)
class L2(Budget):
    """The whole row may move by ``eps`` in the Euclidean norm.

    A row outside the ball is drawn back along the line to the true value, which stays in the box since boxes are
    convex: feasible, and the nearest point wherever the box is not active. On an integer grid a row that rounding
    pushed out of the ball is rounded towards the true value.

    Raises:
        BudgetError: for a negative or non-finite radius, and below one grey level on an integer space.
    """

    name: ClassVar[str] = "l2"
    eps: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "eps", _number("eps", self.eps))

    def check(self, low: np.ndarray[Any, Any], high: np.ndarray[Any, Any], grid: bool) -> None:
        if grid and 0 < self.eps < 1:
            raise _below_one_level(self.eps)

    def box(self, x: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        return torch.maximum(x - self.eps, low), torch.minimum(x + self.eps, high)

    def project(self, y: Tensor, x: Tensor, low: Tensor, high: Tensor, grid: bool = False) -> Tensor:
        delta = torch.clamp(y, low, high) - x
        delta = delta * (self.eps / _norms(delta).clamp(min=1e-300 if y.dtype == torch.float64 else 1e-30)).clamp(max=1)
        if not grid:
            return torch.clamp(x + delta, low, high)
        nearest = delta.round()
        return x + torch.where(_norms(nearest) > self.eps, delta.trunc(), nearest)

    def direction(self, gradient: Tensor) -> Tensor:
        return gradient / _norms(gradient).clamp(min=1e-30)

    def unit(self, low: Tensor, high: Tensor) -> float | Tensor:
        return self.eps

    def draw(self, x: Tensor, low: Tensor, high: Tensor, draws: Draws, grid: bool = False) -> Tensor:
        """Uniform in the ball: a Gaussian direction at radius ``eps * u ** (1 / n)``, then met with the space."""
        direction, size = self.direction(draws.normal()), max(x[0].numel(), 1)
        radius = draws.uniform().flatten(1)[:, :1] if x.dim() > 1 else draws.uniform()
        radius = radius.pow(1 / size).view(-1, *[1] * (x.dim() - 1))
        return self.project(x + self.eps * radius * direction, x, low, high, grid)


@dataclass(frozen=True)
class L0(Budget):
    """At most ``k`` elements of a row may change, each within the space's own bounds.

    Raises:
        BudgetError: if ``k`` is not an integer of at least 0.
    """

    name: ClassVar[str] = "l0"
    bounded: ClassVar[bool] = False
    k: int

    def __post_init__(self) -> None:
        if isinstance(self.k, bool) or int(_number("k", self.k)) != self.k:
            raise BudgetError(f"k must be a whole number of elements, got {self.k!r}")
        object.__setattr__(self, "k", int(self.k))

    def box(self, x: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        return torch.minimum(x, low), torch.maximum(x, high)

    def project(self, y: Tensor, x: Tensor, low: Tensor, high: Tensor, grid: bool = False) -> Tensor:
        y = super().project(y, x, low, high, grid)
        change = (y - x).abs().flatten(1)
        if self.k >= change.shape[1]:
            return y
        keep = torch.zeros_like(change, dtype=torch.bool)
        keep.scatter_(1, change.topk(self.k, dim=1).indices, True)
        return torch.where(keep.view(y.shape), y, x)

    def direction(self, gradient: Tensor) -> Tensor:
        """The gradient itself, its largest element one: so the projection keeps the elements that matter most."""
        return gradient / gradient.abs().flatten(1).amax(1).clamp(min=1e-30).view(-1, *[1] * (gradient.dim() - 1))

    def draw(self, x: Tensor, low: Tensor, high: Tensor, draws: Draws, grid: bool = False) -> Tensor:
        """``k`` elements chosen evenly, each uniform over the space."""
        y, order = super().draw(x, low, high, draws, grid), draws.uniform().flatten(1)
        if self.k >= order.shape[1]:
            return y
        keep = torch.zeros_like(order, dtype=torch.bool).scatter_(1, order.topk(self.k, dim=1).indices, True)
        return torch.where(keep.view(y.shape), y, x)
