"""Planning of perturbations through a model: the loss of plans, and its descent by Adam.

Equations 3 and 4 of Weng et al. 2020: of perturbations ``delta_1 .. delta_T`` within the budget, those are wanted that
minimise ``sum_i d(s_i, s_target)``, where the states follow from the model and the victim's own policy,

- of observations: ``a_i = pi(s_i + delta_i)``, ``s_{i+1} = f(s_i, a_i)``,
- of actions: ``a_i = pi(s_i) + delta_i``, within the bounds of the actions.

A plan counts perturbations in the budget's radius, and is drawn back into the budget after every step; the engine
projects what is applied of it once more.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from adv_wrappers.attacks.planning_target_losses import Target
from adv_wrappers.core.budgets import Budget
from adv_wrappers.core.context import Context
from adv_wrappers.core.perturbation import On
from adv_wrappers.core.simulator_protocols import SimulatorLike
from adv_wrappers.victims.victim import Victim

MOST_CORNERS = 64  # constant corners of the budget, where a search begins at all of them
DRAWN_CORNERS = 32  # where there are more, so many are drawn: 64 would cost as much as thirty steps of a descent
_BETAS, _EPSILON = (0.9, 0.999), 1e-8  # of Adam


class StepModel(Protocol):
    """A model of the environment (:class:`adv_wrappers.victims.saved_dynamics_model.Dynamics`)."""

    def predict(self, obs: Tensor, act: Tensor) -> tuple[Tensor, Tensor]: ...


@dataclass
class PlanningProblem:
    """What a plan is for, at one step of a layer: B rows, plans of T perturbations of d numbers.

    Attributes:
        model: predicts observations and rewards; None where a simulator is there.
        victim: who acts on what it is shown.
        target: the loss of a state.
        on: what is perturbed.
        obs: the true observations, ``[B, n]``.
        action: where actions are perturbed those of the agent at this step, ``[B, d]``; else None.
        budget: of every perturbation.
        space: bounds of what is perturbed, ``[d]`` twice.
        steps: T.
        attacked: whether a step of the plan is attacked at all, bool ``[T]``.
        simulator: plays plans in the environment itself, from the present state; it has no gradient.
    """

    model: StepModel | None
    victim: Victim
    target: Target
    on: On
    obs: Tensor
    action: Tensor | None
    budget: Budget
    space: tuple[Tensor, Tensor]
    steps: int
    attacked: Tensor
    simulator: SimulatorLike | None = None

    def __post_init__(self) -> None:
        self.value = self.obs if self.action is None else self.action
        far = torch.full_like(self.value, math.inf)
        low, high = self.budget.box(self.value, -far, far)
        radius = self.budget.spread(self.value, low, high)
        radius = radius.expand_as(self.value) if isinstance(radius, Tensor) else torch.full_like(self.value, radius)
        # without a radius of its own the space bounds a perturbation
        self.bounded = bool(radius.isfinite().all())
        self.radius = radius if self.bounded else (self.space[1] - self.space[0]).expand_as(self.value)
        act_low, act_high = _action_bounds(self.victim)
        self.act_low, self.act_high = act_low.to(self.obs), act_high.to(self.obs)

    @property
    def size(self) -> tuple[int, int, int]:
        """B, T and d."""
        return len(self.value), self.steps, self.value.shape[1]

    def feasible(self, plans: Tensor) -> Tensor:
        """Plans ``[..., B, T, d]`` in the budget's radius, drawn back into the budget."""
        plans = plans * self.attacked[:, None]
        if self.budget.elementwise or not self.bounded:
            return plans.clamp(-1, 1)
        x, radius = (
            part[:, None].expand(plans.shape).reshape(-1, plans.shape[-1]) for part in (self.value, self.radius)
        )
        far = torch.full_like(x, math.inf)
        low, high = self.budget.box(x, -far, far)
        y = self.budget.project(x + plans.reshape(x.shape) * radius, x, low, high)
        return ((y - x) / radius.clamp(min=torch.finfo(x.dtype).tiny)).view(plans.shape)

    def losses(self, plans: Tensor) -> Tensor:
        """The summed loss of plans ``[..., B, T, d]``, as ``[..., B]``; differentiable, but in a simulator."""
        if self.model is None:
            return self.simulated(plans)
        copies = plans.shape[:-2]
        moves = (plans * self.radius[:, None]).reshape(-1, *plans.shape[-2:])
        obs = self.obs.expand(*copies, -1).reshape(-1, self.obs.shape[1])
        total = torch.zeros(len(obs), dtype=obs.dtype, device=obs.device)
        for t in range(self.steps):
            obs, reward = self.model.predict(obs, self.acted(obs, moves[:, t], t, copies))
            total = total + self.target(obs, reward)
        return total.view(copies)

    @torch.no_grad()
    def simulated(self, plans: Tensor) -> Tensor:
        """The summed loss of plans, each of which is played; a row whose episode ends stays at its last state."""
        assert self.simulator is not None
        rows, dtype = len(self.obs), self.victim.action_space.dtype
        whole, found = plans.reshape(-1, *plans.shape[-3:]), []
        for part in whole.split(max(self.simulator.at_once // rows, 1)):
            copies = part.shape[:-2]
            moves = (part * self.radius[:, None]).reshape(-1, *part.shape[-2:])
            obs = self.obs.expand(*copies, -1).reshape(-1, self.obs.shape[1])
            total = torch.zeros(len(obs), dtype=obs.dtype)
            with self.simulator.rollout(len(part)) as rollout:
                for t in range(self.steps):
                    actions = self.acted(obs, moves[:, t], t, copies).numpy().astype(dtype)
                    then, reward, _ = rollout.step(actions)
                    obs = torch.from_numpy(then).to(obs)
                    total = total + self.target(obs, torch.from_numpy(reward).to(obs))
            found.append(total.view(copies))
        return torch.cat(found).view(plans.shape[:-2])

    def acted(self, obs: Tensor, move: Tensor, t: int, copies: torch.Size) -> Tensor:
        """The actions that the environment receives at step t, where the agent sees ``obs [C, n]``."""
        low, high = self.space
        if self.on == "observation":
            shown = (obs + move).clamp(torch.minimum(low, obs.detach()), torch.maximum(high, obs.detach()))
            return self.agent(shown)
        action = self.agent(obs)
        if t == 0 and self.action is not None:
            action = self.action.expand(*copies, -1).reshape(action.shape)
        return (action + move).clamp(torch.minimum(low, action.detach()), torch.maximum(high, action.detach()))

    def agent(self, obs: Tensor) -> Tensor:
        """What the agent does where it sees this: its mode, within the bounds of its actions."""
        return self.victim.mode(self.victim.params(obs)).clamp(self.act_low, self.act_high)


def _action_bounds(victim: Victim) -> tuple[Tensor, Tensor]:
    space = victim.action_space
    return torch.as_tensor(space.low), torch.as_tensor(space.high)  # type: ignore[attr-defined]


def starts(problem: PlanningProblem, context: Context, previous: Tensor | None) -> Tensor:
    """Where searches may begin, ``[P, B, T, d]``: the previous plan, no perturbation, and constant corners.

    Where the agent is doing well the loss may have no slope (the cosine of a pole that stands upright): a search that
    begins with no perturbation would never leave it. Of the corners of the budget all are tried where there are no more
    than 64, else a random 32.

    Args:
        problem: the problem.
        context: draws the corners.
        previous: the plan of an earlier step, ``[B, T, d]``, shifted to the present; None for none.
    """
    rows, steps, size = problem.size
    like = problem.value
    if 2**size <= MOST_CORNERS:
        signs = like.new_tensor(list(itertools.product((-1.0, 1.0), repeat=size)))[:, None].expand(-1, rows, -1)
    else:
        signs = context.numbers(DRAWN_CORNERS * size).view(rows, DRAWN_CORNERS, size).sub(0.5).sign().transpose(0, 1)
    corners = signs[:, :, None].expand(-1, -1, steps, -1)
    nothing = like.new_zeros(1, rows, steps, size)
    first = [nothing] if previous is None else [previous[None], nothing]
    return problem.feasible(torch.cat([*first, corners]))


def best_of(losses: Tensor, plans: Tensor, count: int = 1) -> tuple[Tensor, Tensor]:
    """The ``count`` plans of least loss in every row: losses ``[count, B]`` and plans ``[count, B, T, d]``."""
    least = losses.nan_to_num(nan=math.inf).argsort(dim=0, stable=True)[:count]
    rows = torch.arange(losses.shape[1], device=losses.device)
    return losses[least, rows], plans[least, rows]


def descend(problem: PlanningProblem, plans: Tensor, iterations: int, lr: float) -> tuple[Tensor, Tensor]:
    """Adam (Kingma and Ba 2015) from plans ``[P, B, T, d]``: the best iterate of each, and its loss ``[P, B]``.

    Args:
        problem: the problem.
        plans: where it begins, in the budget.
        iterations: gradient steps.
        lr: the learning rate, in the budget's radius.
    """
    plans = plans.clone()
    first, second = torch.zeros_like(plans), torch.zeros_like(plans)
    best, least = plans.clone(), torch.full(plans.shape[:-2], math.inf, dtype=plans.dtype, device=plans.device)

    def keep(losses: Tensor, plans: Tensor) -> None:
        better = losses < least
        torch.where(better, losses, least, out=least)
        torch.where(better[..., None, None], plans, best, out=best)

    for i in range(iterations):
        with torch.enable_grad():
            losses = problem.losses(plans.requires_grad_())
            (slope,) = torch.autograd.grad(losses.sum(), plans)
        keep(losses.detach(), plans.detach())
        first = first.lerp(slope, 1 - _BETAS[0])
        second = second.lerp(slope.square(), 1 - _BETAS[1])
        size = (second / (1 - _BETAS[1] ** (i + 1))).sqrt() + _EPSILON
        plans = problem.feasible(plans.detach() - lr * first / (1 - _BETAS[0] ** (i + 1)) / size)
    keep(problem.losses(plans), plans)
    return least, best
