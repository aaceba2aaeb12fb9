"""What a victim may do where states are anywhere in boxes, and what it is shown is perturbed within a budget."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from torch import Tensor, nn

from adv_wrappers.certification.interval_dynamics import IntervalDynamics
from adv_wrappers.certification.perturbed_victim import ObservationBoxes
from adv_wrappers.core.budgets import Budget, Linf
from adv_wrappers.core.types import Floats
from adv_wrappers.errors import VictimError
from adv_wrappers.networks.graph import GraphNetwork, Node
from adv_wrappers.utils.deadline import Deadline, OutOfTimeError, TimedBatches
from adv_wrappers.victims import Victim, from_module
from adv_wrappers.victims.possible import Method, action_bounds, params_network, possible_actions
from adv_wrappers.wrappers.base import AnyEnv

ROWS = 1024  # boxes whose bounds are computed at once
_ROUNDING = 2.0**-20  # relatively, more than float32 is off when it changes coordinates


class ShownBoxes:
    """A victim where states are anywhere in boxes, and observations are perturbed within a budget.

    Where the boxes' axes are not those of observations, the victim's network is asked for them as they are: a linear
    layer in front of it adds perturbations to states. Their hull would be larger.

    Args:
        victim: the agent, which plays its mode.
        env: the environment.
        budget: ``Linf`` or ``Valid``.
        dynamics: of the environment.
        method: as for :func:`adv_wrappers.victims.possible.possible_actions`.

    Attributes:
        batches: of how many boxes :meth:`possible` computes at once, and when it stops.

    Attributes:
        count: the number of actions; 0 for continuous ones.
        start: the first action.
    """

    def __init__(self, victim: Victim, env: AnyEnv, budget: Budget, dynamics: IntervalDynamics, method: Method) -> None:
        space, actions = env.observation_space, env.action_space
        if victim.observation_space.shape != space.shape or type(victim.action_space) is not type(actions):
            raise VictimError(f"expected a victim for {space} -> {actions}, got {victim!r}")
        self.count = int(actions.n) if isinstance(actions, spaces.Discrete) else 0
        self.start = int(actions.start) if isinstance(actions, spaces.Discrete) else 0
        self._boxes, self._dynamics, self._method, self._victim = (
            ObservationBoxes(space, budget),
            dynamics,
            method,
            victim,
        )
        self.batches = TimedBatches(Deadline(None), ROWS)
        self._eps: Floats | None = None
        net = params_network(victim)  # before anything is computed
        if isinstance(budget, Linf) and not (dynamics.coordinates == np.eye(len(dynamics.coordinates))).all():
            scale = np.asarray(1.0 if budget.scale is None else budget.scale, np.float64)
            self._eps = budget.eps * scale * np.ones(len(dynamics.coordinates))
            self._victim = _with_axes(victim, net, np.linalg.inv(dynamics.coordinates).astype(np.float64))

    def possible(self, low: Floats, high: Floats) -> NDArray[np.bool_]:
        """Which actions are possible in boxes ``[N, D]``, ``[N, A]``; raises :class:`OutOfTimeError`."""
        parts, start = list[NDArray[np.bool_]](), 0
        while start < len(low):
            rows = self.batches.next(len(low) - start)
            if not rows:
                raise OutOfTimeError
            parts.append(self._possible(low[start : start + rows], high[start : start + rows]))
            self.batches.done(rows)
            start += rows
        return np.concatenate(parts)

    def _possible(self, low: Floats, high: Floats) -> NDArray[np.bool_]:
        parts = list[Tensor]()
        for first, last in self._inputs(low, high):
            hull = first.amin(0, keepdim=True), last.amax(0, keepdim=True)
            found = possible_actions(self._victim, first, last, "interval", hull)
            unsure = found.sum(1) > 1  # the rest is decided by the cheapest bounds
            if self._method != "interval" and unsure.any():
                found[unsure] &= possible_actions(self._victim, first[unsure], last[unsure], self._method, hull)
            parts.append(found)
        return torch.cat(parts).cpu().numpy()

    def bounds(self, low: Floats, high: Floats) -> tuple[Floats, Floats]:
        """Bounds on continuous actions in boxes ``[N, D]``, ``[N, 1]`` twice."""
        parts = [action_bounds(self._victim, *box, self._method) for box in self._inputs(low, high)]
        least, most = (torch.cat(ends).double().cpu().numpy() for ends in zip(*parts, strict=True))
        return least, most

    def effects(self, low: Floats, high: Floats) -> tuple[Floats, Floats]:
        """How far boxes, and the budget, move the difference of the two largest outputs, by their gradient.

        Returns:
            Of half of every side of the boxes, ``[N, D]``, and of the budget, ``[N]``.
        """
        sides, budgets = list[Floats](), list[Floats]()
        size = low.shape[1]
        for first, last in self._inputs(low, high):
            middle = ((first + last) / 2).requires_grad_()
            with torch.enable_grad():
                best = self._victim.params(middle).topk(2, -1).values
                (slopes,) = torch.autograd.grad((best[:, 0] - best[:, 1]).sum(), middle)
            moved = (slopes.abs() * (last - first) / 2).double().cpu().numpy()
            if self._eps is None:  # the sides of observations are those of boxes and the budget together
                rows = slice(len(sides) * ROWS, len(sides) * ROWS + len(first))
                own = slopes.abs().double().cpu().numpy() * (high[rows] - low[rows]) / 2
                sides.append(own)
                budgets.append((moved - own).sum(1))
            else:
                sides.append(moved[:, :size])
                budgets.append(moved[:, size:].sum(1))
        return np.concatenate(sides), np.concatenate(budgets)

    def _inputs(self, low: Floats, high: Floats) -> Iterator[tuple[Tensor, Tensor]]:
        """What the victim takes, for the boxes in parts."""
        victim = self._victim
        for start in range(0, len(low), ROWS):
            first, last = low[start : start + ROWS], high[start : start + ROWS]
            if self._eps is None:
                seen = [end.astype(np.float32) for end in self._dynamics.observe(first, last)]  # as the environment
                ends = self._boxes(seen[0])[0], self._boxes(seen[1])[1]
            else:
                states = self._dynamics.observe(first, last)
                room = self._eps + _ROUNDING * (1 + np.maximum(*np.abs(states)) + self._eps)
                ends = (
                    torch.from_numpy(np.concatenate([first, -room], 1)),
                    torch.from_numpy(np.concatenate([last, room], 1)),
                )
            least, most = (end.to(victim.device, victim.dtype) for end in ends)
            yield least, most


def _with_axes(victim: Victim, net: GraphNetwork, back: Floats) -> Victim:
    """The victim on points in other axes and perturbations beside them: on ``back @ point + perturbation``."""
    size, nodes = len(back), net.nodes
    mix = torch.from_numpy(np.concatenate([back, np.eye(size)], 1))
    first = nn.Linear(2 * size, size, bias=False, dtype=torch.float64)
    takers = [node for node in nodes if 0 in node.inputs]
    inner = takers[0].layer if len(takers) == 1 else None
    if isinstance(inner, nn.Linear) and type(inner) is nn.Linear:  # one layer of both has tighter interval bounds
        first = nn.Linear(2 * size, inner.out_features, inner.bias is not None, dtype=torch.float64)
        mix = inner.weight.detach().cpu().double() @ mix
        if inner.bias is not None:
            first.bias.data = inner.bias.detach().cpu().double()
        nodes = [Node(first, (0,)) if node is takers[0] else node for node in nodes]
    else:
        nodes = [Node(first, (0,)), *(Node(node.layer, tuple(i + 1 for i in node.inputs)) for node in nodes)]
    first.weight.data = mix
    space = spaces.Box(-np.inf, np.inf, (2 * size,), np.float32)
    kind = victim.kind
    return from_module(GraphNetwork(nodes), space, victim.action_space, kind, dtype=victim.dtype, device=victim.device)
