"""The game that an agent and its adversary play, seen from the agent's chair, and what holds the two together.

The agent sits outside of the layer that perturbs, and its normaliser outside of that::

    environments -> layer (true observations in, perturbed ones out) -> VecNormalize -> PPO or A2C

Its statistics are those of the true observations and move between rollouts only; then the budget (where it is counted
in them) and the live victim (whose first layer they are) move with them. So at every step the agent acts with the very
numbers that the adversary attacks and the budget is counted in.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from adv_wrappers.adversaries.director import Director
from adv_wrappers.core import keys
from adv_wrappers.core.budgets import Budget
from adv_wrappers.core.context import Context
from adv_wrappers.core.perturbation import Perturbation
from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.evaluation.rollout import Tap
from adv_wrappers.training.agents import follow
from adv_wrappers.training.chairs import Chairs
from adv_wrappers.training.networks import director_of
from adv_wrappers.victims import Victim
from adv_wrappers.wrappers.layer import layers
from adv_wrappers.wrappers.stack import wrap

_STEER = 1 << 30  # draws of steers, apart from those of the actor


class Seats(Chairs):
    """A SAME_STEP vector environment, under layers or not, as what SB3 trains an agent in.

    Attributes:
        true: the true observations ``[N, n]`` since they were last taken in, one batch a step.
    """

    def __init__(self, tap: Tap) -> None:
        self.env: Any = tap
        super(Chairs, self).__init__(tap.num_envs, tap.single_observation_space, tap.single_action_space)
        self.tap, self.true = tap, list[NDArray[Any]]()
        self._returns, self._lengths = np.zeros(tap.num_envs), np.zeros(tap.num_envs, np.int64)
        self._actions: Any = None

    def step_wait(self) -> Any:
        out = super().step_wait()
        self.true.append(self.tap.obs)
        return out


class Seat:
    """Who steers in the agent's phase: the director as its own phase left it.

    Args:
        sampled: whether it explores, as it does in its own phase.
    """

    def __init__(self, sampled: bool) -> None:
        self.sampled = sampled
        self.director: Director
        self.log_std: Tensor | None = None

    def take(self, model: Any) -> None:
        """Take over a copy of a model's policy."""
        self.director = director_of(model)
        self.log_std = None if self.director.discrete else model.policy.log_std.detach().clone()

    @torch.no_grad()
    def steer(self, x: Tensor, key: Tensor) -> Tensor:
        """Steers ``[B, *A]`` at true observations ``[B, n]``, drawn with the int64 keys ``[B]``."""
        if not self.sampled:
            return self.director(x)  # type: ignore[no-any-return]
        out: Tensor = self.director.net(x.float())
        if self.log_std is None:
            uniform = keys.uniform(key, tuple(out.shape[1:]), out.dtype).clamp(min=1e-20)
            return (out - (-uniform.log()).log()).argmax(-1)
        normal = keys.normal(key, tuple(out.shape[1:]), out.dtype)
        return (out + self.log_std.exp() * normal).clamp(-1, 1)


@dataclass(frozen=True)
class Opponent(Perturbation):
    """The adversary in training, at the agent's side of the table.

    Args:
        actor: what is steered.
        seat: who steers.
    """

    name: ClassVar[str] = "opponent"
    search: ClassVar[bool] = True
    actor: Any
    seat: Any

    @property
    def victim(self) -> Any:
        """The actor's."""
        return self.actor.victim

    def __call__(self, x: Tensor, context: Context) -> Tensor:
        return self.actor(x, self.seat.steer(x, keys.fold(context.key, _STEER)), context)  # type: ignore[no-any-return]


@dataclass
class Rival:
    """An adversary that learns.

    Attributes:
        model: the algorithm that trains it, on ``chairs``.
        seat: what it takes in the agent's phase.
        actor: as it is deployed, its victim open.
        opponent: the threat that it is in the agent's phase.
    """

    model: Any
    chairs: Chairs
    seat: Seat
    actor: Any
    opponent: ThreatModel


class Table:
    """What an agent in training, its live victim and the layers between it and its environments have in common.

    Args:
        model: the agent, made on ``VecNormalize(Seats(...))``.
        victim: the agent as a live victim.
    """

    def __init__(self, model: Any, victim: Victim) -> None:
        self.model, self.victim = model, victim
        self.within: Budget | None = None
        self.layers: list[Any] = []

    @property
    def normal(self) -> Any:
        """The agent's normaliser."""
        return self.model.get_vec_normalize_env()

    @property
    def seats(self) -> Seats:
        """The agent's environments."""
        return self.normal.venv  # type: ignore[no-any-return]

    def lay(self, threat: ThreatModel | None, rival: Rival | None) -> None:
        """Put the adversary between the environments and the agent; open victims are the agent itself."""
        threat = threat if rival is None else rival.opponent
        if threat is None:
            return
        self.within = threat.budget
        self.seats.env = wrap(self.seats.tap, threat, victim=self.victim)
        self.layers = [*layers(self.seats.env), *([] if rival is None else [rival.chairs.env])]

    def settle(self) -> None:
        """Between two rollouts: the normaliser moves, and with it the live victim and the budgets."""
        if self.normal.norm_obs:
            self.normal.obs_rms.settle(self.seats.true)
            follow(self.victim, self.normal)
        self.seats.true.clear()
        for layer in self.layers:
            assert self.within is not None
            within = self.within.resolve(next(iter(layer.threat.victims), self.victim))
            if within != layer.threat.budget:
                layer.set_budget(within)
