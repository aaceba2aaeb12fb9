"""A linear system, a linear agent, and what plans of perturbations lead to: losses that are known exactly."""

from __future__ import annotations

import numpy as np
import torch
from gymnasium import spaces

import adv_wrappers as adv
from adv_wrappers.attacks.model_based import PlanningProblem
from adv_wrappers.attacks.targets import Reach
from adv_wrappers.core import rng
from adv_wrappers.core.engine.context import Context
from tests.toys import Brief

A = torch.tensor([[1.0, 0.1], [-0.05, 0.98]], dtype=torch.float64)
B = torch.tensor([[0.02], [0.3]], dtype=torch.float64)
GAIN = torch.tensor([[-0.4, -0.7]], dtype=torch.float64)  # of the agent: a = GAIN s
LARGE = 1e3


class LinearSystem:
    """``s' = A s + B a``, exactly."""

    def predict(self, obs, act):
        return obs @ A.T + act @ B.T, obs.new_zeros(obs.shape[:-1])


class Cart(Brief):
    """The linear system as an environment."""

    observation_space = spaces.Box(-LARGE, LARGE, (2,), np.float64)
    action_space = spaces.Box(-LARGE, LARGE, (1,), np.float64)

    def __init__(self, steps=12, reward=lambda state: state[0]):
        self.steps, self.reward = steps, reward

    def begin(self):
        self.state = self.np_random.normal(size=2)

    def seen(self):
        return self.state.copy()

    def act(self, action):
        self.state = A.numpy() @ self.state + B.numpy() @ np.asarray(action, np.float64)
        return self.reward(self.state)


def agent(limit=LARGE):
    net = torch.nn.Linear(2, 1, bias=False).double()
    net.weight.data.copy_(GAIN)
    return adv.from_module(
        net,
        spaces.Box(-LARGE, LARGE, (2,), np.float64),
        spaces.Box(-limit, limit, (1,), np.float64),
        "mean",
        dtype=torch.float64,
    )


def problem(on="observation", rows=3, steps=6, budget=None, target=None, every=1, victim=None):
    torch.manual_seed(1)
    obs = torch.randn(rows, 2, dtype=torch.float64)
    victim = victim or agent()
    action = victim.mode(victim.params(obs)).detach() if on == "action" else None
    bounds = [torch.full((2 if on == "observation" else 1,), sign * LARGE, dtype=torch.float64) for sign in (-1, 1)]
    attacked = (torch.arange(steps) % every == 0).double()
    return PlanningProblem(
        LinearSystem(),
        victim,
        target or Reach((0, 1), (2.0, -1.0)),
        on,
        obs,
        action,
        budget or adv.Linf(50.0),
        tuple(bounds),
        steps,
        attacked,
    )


def context_of(x, budget, t=0, memory=None, **more):
    low, high = (torch.full((x.shape[1],), sign * LARGE, dtype=x.dtype) for sign in (-1, 1))
    box = budget.box(x, low.expand_as(x), high.expand_as(x))
    key = torch.stack([torch.as_tensor(rng.root(i)) for i in range(len(x))])
    return Context.around(x, budget, box, key, space=(low, high), t=t, memory=memory, **more)


def simulated(found, plans):
    """The summed loss of plans ``[B, T, d]``, written out row by row."""
    losses = []
    for row in range(len(plans)):
        s, total = found.obs[row], 0.0
        for t in range(found.steps):
            move = plans[row, t] * found.radius[row]
            acted = found.action[row] if found.on == "action" and t == 0 else GAIN @ s
            a = GAIN @ (s + move) if found.on == "observation" else acted + move
            s = A @ s + B @ a
            total += float(((s - torch.tensor([2.0, -1.0], dtype=torch.float64)) ** 2).sum())
        losses.append(total)
    return torch.tensor(losses, dtype=torch.float64)


def least_losses(found):
    """The least summed loss of every row where the budget does not bind: least squares, in closed form."""
    rows, steps, size = found.size
    exact = []
    for row in range(rows):
        one = PlanningProblem(
            found.model,
            found.victim,
            found.target,
            found.on,
            found.obs[row : row + 1],
            None if found.action is None else found.action[row : row + 1],
            found.budget,
            found.space,
            steps,
            found.attacked,
        )

        def loss(flat, one=one):
            return one.losses(flat.view(1, steps, size))[0]

        zero = torch.zeros(steps * size, dtype=torch.float64)
        slope = torch.autograd.functional.jacobian(loss, zero)
        curvature = torch.autograd.functional.hessian(loss, zero)
        exact.append(float(loss(-torch.linalg.pinv(curvature, rtol=1e-9, hermitian=True) @ slope)))
    return exact
