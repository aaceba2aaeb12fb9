"""The largest value of an objective in a box around an observation, as regularizers of robust training take it.

``"interval"`` is an upper bound of it, by interval bounds of the network; ``"sgld"`` a lower one, at the points that
stochastic gradient Langevin dynamics along signs find, as in SA-PPO's code (Zhang et al. 2020).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from adv_wrappers.errors import ValueRangeError
from adv_wrappers.utils.check_numbers import check_integer, check_number

InnerMaximization = Literal["interval", "sgld"]


def check_inner_maximization(form: object, steps: object, noise: object) -> None:
    """Raise :class:`ValueRangeError` for a form that is none, and for ``steps`` and ``noise`` of SGLD out of range."""
    check_integer("steps", steps, 1)
    check_number("noise", noise, 0)
    if form not in ("interval", "sgld"):
        raise ValueRangeError(f"form must be 'interval' or 'sgld', got {form!r:.80}")


def langevin_ascent(
    objective: Callable[[Tensor], Tensor], low: Tensor, high: Tensor, steps: int, noise: float
) -> Tensor:
    """Points of boxes ``[B, *S]`` at which an objective ``[B]`` is large, by SGLD along signs, as in SA-PPO's code.

    Args:
        objective: of points ``[B, *S]``, each row for itself.
        low, high: the boxes; the first points are a step from their middle.
        steps: of half a width of the box in all.
        noise: the standard deviation of the noise, for a gradient of length one.
    """
    step = (high - low) / (2 * steps)
    scale = noise * (2 / steps) ** 0.5
    y = torch.clamp((low + high) / 2 + torch.randn_like(low).sign() * step, low, high)
    for i in range(steps):
        y = y.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(objective(y).sum(), y)
        moved = y + (gradient + scale / (i + 2) * torch.randn_like(y)).sign() * step
        y = torch.clamp(moved, low, high)
    return y.detach()
