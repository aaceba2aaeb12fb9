"""Which attacks run in one kernel: projected gradient ascent on small networks, on CUDA."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from adv_wrappers.accel import triton_loader
from adv_wrappers.attacks.objectives import CrossEntropy, Margin
from adv_wrappers.core.budgets import Linf
from adv_wrappers.core.context import Bound, Context


def fused(
    context: Context, bound: Bound, objective: Any, steps: int, step: float, random_start: bool = False
) -> Tensor | None:
    """:func:`adv_wrappers.attacks.gradient_attack.pgd` in one kernel, ``[B, *S]``; None where it takes the plain way.

    It does for observations on CUDA within Linf, a victim that is a chain of small linear layers, and CrossEntropy or
    Margin. Nothing is drawn from the context before that is settled, so the plain way draws the same random start.
    """
    x, budget = context.x, context.budget
    if type(objective) not in (CrossEntropy, Margin) or type(budget) is not Linf or budget.eps == 0:
        return None
    kernels = triton_loader.twin("attacks.mlp", x)
    chain = None if kernels is None else bound.chain()
    if kernels is None or chain is None or not kernels.supported(chain.layers, objective.target, x):
        return None
    length = max(step * budget.eps, 1.0) if context.grid else step * budget.eps
    done: Tensor | None = kernels.pgd(
        chain.layers, "margin" if type(objective) is Margin else "cross-entropy", objective.target,
        context.draw() if random_start else x, context.low, context.high, steps, length, budget.units(x),
        context.grid, objective.sign < 0,
    )  # fmt: skip
    return done
