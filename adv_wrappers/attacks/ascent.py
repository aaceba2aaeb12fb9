"""Ascents: ways up a gradient inside a budget. All steps are fractions of the budget's radius.

On an integer grid every iterate is a point of the grid: an attack that ends on the grid searches on it, since a
perturbation smaller than a grey level is lost when the observation is stored.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from adv_wrappers.attacks.fused import fused
from adv_wrappers.core.context import Context
from adv_wrappers.core.errors import ValueRangeError
from adv_wrappers.core.perturbation import Perturbation
from adv_wrappers.victims.gradients import need_gradient
from adv_wrappers.victims.precision import check_precision

Gradient = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Climb(Perturbation):
    """Base of the attacks that are an objective times an ascent: frozen dataclasses with a victim, steps and a step.

    Args:
        precision: what gradients are computed in: None for the victim's own, ``"bf16"`` or ``"tf32"`` for less
            (see :mod:`adv_wrappers.victims.precision`).
    """

    search: ClassVar[bool] = True
    needs_victim: ClassVar[bool] = True
    if TYPE_CHECKING:
        victim: Any
        steps: int
        step: float
    precision: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        check_steps(self.steps, self.step)
        for name in (each.name for each in fields(self) if isinstance(each.default, bool)):
            if not isinstance(value := getattr(self, name), bool):
                raise ValueRangeError(f"{name} must be true or false, got {value!r:.80}")
        check_precision(self.precision)
        need_gradient(getattr(self, "name", "this attack"), self.victim)

    def objective(self, x: Tensor, bound: Any) -> Any:
        """What is maximised, a loss on parameters ``[B, K] -> [B]``; ``bound`` is the victim at this step."""
        raise NotImplementedError

    def climb(self, context: Context, gradient: Gradient) -> Tensor:
        """The way up: projected gradient ascent, unless a subclass knows another."""
        return pgd(context, gradient, self.steps, self.step, getattr(self, "random_start", False))

    def __call__(self, x: Tensor, context: Context) -> Tensor:
        bound = context.bind(self.victim)
        objective = self.objective(x, bound)
        if x.is_cuda and self.precision is None and type(self).climb is Climb.climb:
            done = fused(context, bound, objective, self.steps, self.step, getattr(self, "random_start", False))
            if done is not None:
                return done
        gradient = bound.gradient(objective, self.precision)
        fold = getattr(gradient, "fold", None)  # some are faster on observations in another layout
        folded = fold(x) if fold is not None and context.budget.elementwise else None
        if folded is None:
            return self.climb(context, gradient)
        fold, gradient = folded
        y: Tensor = fold.back(self.climb(context.laid_out(fold), gradient))
        return y


def pgd(
    context: Context, gradient: Gradient, steps: int, step: float, random_start: bool = False,
    start: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Projected gradient ascent (Madry et al. 2018), ``[B, *S]``; one step of 1 is FGSM (Goodfellow et al. 2015).

    Starts at ``start``, a random point of the budget, or the true value.
    """
    y = start if start is not None else context.draw() if random_start else context.x
    del start
    _ = context.box  # made while there is no gradient beside it
    spend = getattr(gradient, "spendable", False)
    for _ in range(steps):
        y = context.ascend(y, gradient(y), step, spend)
    return y


def momentum(
    context: Context, gradient: Gradient, steps: int, step: float, decay: float, nesterov: bool = False
) -> Tensor:
    """MI-FGSM (Dong et al. 2018, algorithm 1): gradients of l1 length one, accumulated with ``decay``.

    ``nesterov`` looks one step ahead along the accumulated direction (NI-FGSM, Lin et al. 2020, algorithm 1).
    """
    _ = context.box
    y = context.x
    total = torch.zeros_like(y)
    for _ in range(steps):
        ahead = context.ascend(y, total, step * decay) if nesterov else y
        g = gradient(ahead)
        length = torch.linalg.vector_norm(g.flatten(1), 1, dim=1).clamp(min=torch.finfo(g.dtype).tiny)
        total.mul_(decay).addcdiv_(g, length.view(-1, *[1] * (g.dim() - 1)))
        del g
        y = context.ascend(y, total, step)
    return y


def langevin(context: Context, gradient: Gradient, steps: int, step: float, noise: float) -> Tensor:
    """Signed gradient Langevin ascent, as released with SA-PPO (Zhang et al. 2020).

    Starts one step away in a random sign direction; at step i Gaussian noise of standard deviation
    ``noise sqrt(2 length) / (i + 2)`` is added to the gradient before its sign is taken. Gradient and ``length`` of the
    step are in the budget's own unit (normalised observations, where ``scale`` says so), as they are there.
    """
    y = context.ascend(context.x, context.signs(), step)
    if noise == 0:
        return pgd(context, gradient, steps, step, start=y)
    factor = noise * math.sqrt(2 * step * getattr(context.budget, "eps", 1.0))
    spend = getattr(gradient, "spendable", False) and getattr(context.budget, "scale", None) is None
    for i, jitter in enumerate(context.normals(steps)):
        g = context.budget.in_units(gradient(y))
        g = (g.add_ if spend else g.add)(jitter, alpha=factor / (i + 2))
        del jitter
        y = context.ascend(y, g, step, spend=True)
    return y


def check_steps(steps: int, step: float) -> None:
    """Raise :class:`ValueRangeError` unless there is at least one step of positive finite length."""
    if isinstance(steps, bool) or not isinstance(steps, int) or not 1 <= steps <= 10**6:
        raise ValueRangeError(f"steps must be an integer from 1 to 1000000, got {steps!r:.80}")
    if isinstance(step, bool) or not isinstance(step, (int, float)) or not 0 < step <= 1e9:
        raise ValueRangeError(f"step is a positive fraction of the budget's radius, got {step!r:.80}")
