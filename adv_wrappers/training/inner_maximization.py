"""The largest value of an objective in a box around an observation, as losses of robust training take it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from adv_wrappers.errors import ValueRangeError
from adv_wrappers.utils.checks import check_integer, check_number


@dataclass(frozen=True, kw_only=True)
class InnerMaximization:
    """A loss that takes the largest value of an objective in a box, by a bound or by a search.

    Args:
        form: ``"interval"``, an upper bound of it, by interval bounds of the network; or ``"sgld"``, a lower one, at
            points that stochastic gradient Langevin dynamics along signs find, as in SA-PPO's code (Zhang et al. 2020).
        steps: of ``"sgld"``.
        noise: the standard deviation of its noise, for a gradient of length one.

    Raises:
        ValueRangeError: for another form, and numbers out of range.
    """

    form: Literal["interval", "sgld"] = "interval"
    steps: int = 10
    noise: float = 1e-5

    def __post_init__(self) -> None:
        check_integer("steps", self.steps, 1)
        check_number("noise", self.noise, 0)
        if self.form not in ("interval", "sgld"):
            raise ValueRangeError(f"form must be 'interval' or 'sgld', got {self.form!r:.80}")

    def ascend(self, objective: Callable[[Tensor], Tensor], low: Tensor, high: Tensor) -> Tensor:
        """Points of boxes at which an objective is large, as :func:`langevin_ascent` finds them."""
        return langevin_ascent(objective, low, high, self.steps, self.noise)


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
