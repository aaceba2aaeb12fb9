"""Planners that sample: for models, victims and simulators without gradients.

The cross-entropy method (Rubinstein and Kroese 2004) draws plans around a mean, and moves mean and deviation to the
best of them. Model predictive path integral control (Williams et al. 2017) moves the mean to all of them, weighted by
``exp(-loss / temperature)``. Both keep the best plan that was ever drawn.
"""

from __future__ import annotations

import torch
from torch import Tensor

from adv_wrappers.attacks.planning_loss_and_adam import PlanningProblem, best_of
from adv_wrappers.core.context import Context

ELITES = 0.125  # share of the samples that the cross-entropy method moves to
SPREAD, LEAST_SPREAD = 0.5, 0.05  # standard deviation of the first samples and of the last, in the budget's radius
TEMPERATURE = 0.25  # in standard deviations of the sampled losses


def cem(problem: PlanningProblem, plans: Tensor, iterations: int, samples: int, context: Context) -> Tensor:
    """The cross-entropy method from the best of some plans.

    Args:
        problem: the problem.
        plans: where it may begin, ``[P, B, T, d]``.
        iterations: how often it samples.
        samples: plans that are drawn each time in every row.
        context: draws them.

    Returns:
        The best plan of every row, ``[B, T, d]``.
    """
    few = max(round(ELITES * samples), 1)
    least, best = best_of(problem.losses(plans), plans)
    mean, std = best[0], torch.full_like(best[0], SPREAD)
    for _ in range(iterations):
        drawn = _drawn(problem, mean, std, samples, context)
        losses, elites = best_of(problem.losses(drawn), drawn, few)
        least, best = best_of(torch.cat([least, losses[:1]]), torch.cat([best, elites[:1]]))
        mean, std = elites.mean(0), elites.std(0, unbiased=False).clamp(min=LEAST_SPREAD)
    return best[0]


def mppi(problem: PlanningProblem, plans: Tensor, iterations: int, samples: int, context: Context) -> Tensor:
    """Model predictive path integral control from the best of some plans; arguments as of :func:`cem`."""
    least, best = best_of(problem.losses(plans), plans)
    mean = best[0]
    std = torch.full_like(mean, SPREAD)
    for _ in range(iterations):
        drawn = _drawn(problem, mean, std, samples, context)
        losses = problem.losses(drawn)
        first, plan = best_of(losses, drawn)
        least, best = best_of(torch.cat([least, first]), torch.cat([best, plan]))
        scale = TEMPERATURE * losses.std(0, unbiased=False).clamp(min=torch.finfo(losses.dtype).tiny)
        weights = torch.softmax(-(losses - losses.amin(0)) / scale, 0)
        mean = (weights[..., None, None] * drawn).sum(0)
    return best_of(torch.cat([least, problem.losses(mean[None])]), torch.cat([best, mean[None]]))[1][0]


def _drawn(problem: PlanningProblem, mean: Tensor, std: Tensor, samples: int, context: Context) -> Tensor:
    """Plans around a mean, the mean itself first, ``[samples, B, T, d]``."""
    rows, steps, size = mean.shape
    uniform = context.numbers(samples * steps * size).view(rows, samples, steps, size).transpose(0, 1)
    bits = torch.finfo(uniform.dtype).eps
    normal = torch.special.ndtri(uniform.clamp(bits, 1 - bits)).to(mean)
    normal[0] = 0.0
    return problem.feasible(mean + std * normal)
