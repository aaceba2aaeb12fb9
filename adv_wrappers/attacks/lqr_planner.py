"""The linear quadratic regulator as a planner, iterated where the system is not linear.

Weng et al. 2020 (footnote 1) name LQR and i-LQR as other ways to solve equations 3 and 4. Where the model and the
victim are linear and the loss is quadratic, these are a linear quadratic control problem, and a Riccati recursion
solves it. Elsewhere the system is linearised and the loss expanded to second order around a plan, again and again: the
iterative LQR of Li and Todorov (2004), with the line search of Tassa et al. (2012). The budget is no part of the
recursion: plans are drawn back into it, so that where it binds a descent may do better.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from adv_wrappers.attacks.planning_loss_and_adam import PlanningProblem, best_of

STEPS = (1.0, 0.5, 0.25, 0.1, 0.03)  # of the line search
_RIDGE = 1e-8  # of the largest entry of a curvature: smaller eigenvalues are raised to it


def lqr(problem: PlanningProblem, plans: Tensor, iterations: int) -> tuple[Tensor, Tensor]:
    """Iterative LQR from plans ``[P, B, T, d]``: the best plan that each led to, and its loss ``[P, B]``.

    One iteration solves a linear system with a quadratic loss, within a budget that does not bind.

    Args:
        problem: the problem, with a model and a victim that have gradients.
        plans: where it begins, in the budget.
        iterations: how often the system is linearised.
    """
    least, best = problem.losses(plans).detach(), plans
    for _ in range(iterations):
        offered = problem.feasible(_improved(problem, best))  # [S, P, B, T, d]
        losses = torch.cat([least[None], problem.losses(offered).detach()])
        tried = torch.cat([best[None], offered])
        flat, moves = losses.flatten(1), tried.flatten(1, 2)
        found, kept = best_of(flat, moves)
        least, best = found[0].view_as(least), kept[0].view_as(best)
    return least, best


def _improved(problem: PlanningProblem, plans: Tensor) -> Tensor:
    """Plans after one backward and one forward pass, for every step of the line search: ``[S, P, B, T, d]``."""
    copies, (steps, size) = plans.shape[:-2], plans.shape[-2:]
    plan, count = plans.reshape(-1, steps, size), math.prod(copies)
    obs = problem.obs.expand(*copies, -1).reshape(count, -1)
    states, pieces = [obs], []
    for t in range(steps):
        piece = _expanded(problem, states[-1], plan[:, t], t, copies)
        pieces.append(piece)
        states.append(piece[0])
    n = obs.shape[1]
    slope, curve = obs.new_zeros(count, n), obs.new_zeros(count, n, n)  # of the loss to go
    gains: list[tuple[Tensor, Tensor]] = []
    for _, jacobian, gradient, hessian in reversed(pieces):
        first = gradient + (jacobian.mT @ slope[..., None])[..., 0]
        second = hessian + jacobian.mT @ curve @ jacobian
        inverse = _inverse(second[:, n:, n:])
        open_loop = -(inverse @ first[:, n:, None])[..., 0].nan_to_num(0.0)
        feedback = (-inverse @ second[:, n:, :n]).nan_to_num(0.0)
        gains.append((open_loop, feedback))
        slope = first[:, :n] + (second[:, :n, n:] @ open_loop[..., None])[..., 0]
        curve = second[:, :n, :n] + second[:, :n, n:] @ feedback
        slope, curve = (part.nan_to_num(0.0, 0.0, 0.0) for part in (slope, (curve + curve.mT) / 2))
    gains.reverse()
    scale = torch.tensor(STEPS, dtype=plan.dtype, device=plan.device)[:, None, None]
    now = obs.expand(len(STEPS), -1, -1)
    found = []
    many = torch.Size((len(STEPS), *copies))
    for t, (open_loop, feedback) in enumerate(gains):
        correction = (feedback @ (now - states[t])[..., None])[..., 0].nan_to_num(0.0)
        move = (plan[:, t] + scale * open_loop + correction).clamp(-1, 1) * problem.attacked[t]
        found.append(move)
        with torch.no_grad():
            flat = now.reshape(-1, n)
            now = _stepped(problem, flat, move.reshape(-1, size), t, many)[0].view(now.shape)
    return torch.stack(found, -2).view(*many, steps, size)


def _stepped(problem: PlanningProblem, obs: Tensor, move: Tensor, t: int, copies: torch.Size) -> tuple[Tensor, Tensor]:
    """The next observations and the losses, for moves in the budget's radius."""
    radius = problem.radius.expand(*copies, -1).reshape(move.shape)
    assert problem.model is not None
    then, reward = problem.model.predict(obs, problem.acted(obs, move * radius, t, copies))
    return then, problem.target(then, reward)


def _expanded(
    problem: PlanningProblem, obs: Tensor, move: Tensor, t: int, copies: torch.Size
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """One step around a state and a move: the next state, its Jacobian, and gradient and Hessian of the loss.

    Derivatives are in the state and the move together, ``[C, n, n + d]``, ``[C, n + d]`` and ``[C, n + d, n + d]``.
    """
    n = obs.shape[1]
    with torch.enable_grad():
        z = torch.cat([obs, move], -1).detach().requires_grad_()
        then, loss = _stepped(problem, z[:, :n], z[:, n:] * problem.attacked[t], t, copies)
        rows = [torch.autograd.grad(then[:, i].sum(), z, retain_graph=True)[0] for i in range(n)]
        (gradient,) = torch.autograd.grad(loss.sum(), z, create_graph=True)
        second = [_or_zero(gradient[:, i].sum(), z) for i in range(z.shape[1])]
    hessian = torch.stack(second, 1)
    return then.detach(), torch.stack(rows, 1), gradient.detach(), (hessian + hessian.mT) / 2


def _or_zero(value: Tensor, z: Tensor) -> Tensor:
    """The gradient of a value that may not depend on ``z`` at all."""
    if not value.requires_grad:
        return torch.zeros_like(z)
    (found,) = torch.autograd.grad(value, z, retain_graph=True, allow_unused=True)
    return torch.zeros_like(z) if found is None else found


def _inverse(curve: Tensor) -> Tensor:
    """The inverse of symmetric matrices ``[C, d, d]``, whose eigenvalues are raised above zero before.

    Zero for matrices that are not finite: a model that runs away over a plan has no second order there.
    """
    known = curve.isfinite().all(-1, keepdim=True).all(-2, keepdim=True)
    size = curve.abs().amax((-2, -1), keepdim=True).clamp(min=torch.finfo(curve.dtype).tiny ** 0.5)
    scaled = torch.where(known, (curve + curve.mT) / 2 / size, torch.eye(curve.shape[-1]).to(curve))
    values, vectors = torch.linalg.eigh(scaled)
    inverse = vectors @ torch.diag_embed(1 / values.clamp(min=_RIDGE)) @ vectors.mT / size
    return torch.where(known, inverse, 0.0)
