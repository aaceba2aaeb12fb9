"""SA-DDPG (Zhang et al. 2020): TD3 and DDPG whose actors answer alike anywhere in the budget.

``train_agent(..., algorithm="td3", robust="sa")``, or ``"ddpg"``, adds a regularizer to the loss of the actor::

    L = -Q(x, pi(x)) + weight R(x),   R(x) = max over y in the box of mean over j of (pi_j(y) - pi_j(x))**2

with actions in [-1, 1]. The paper has the norm of the difference; its authors' code (github.com/huanzhang12/SA_DDPG)
the mean of squares above. ``form="interval"`` bounds ``R`` by the interval bounds of every action, to which their
convex relaxation goes as well while eps rises; ``form="sgld"`` looks for the largest by gradient steps. Their
``actor_reg`` is the ``weight``: for InvertedPendulum 1 with bounds, for Hopper 1000 with SGLD, on rewards as they are;
eps rises between a half and three quarters of the training.

The critics learn as those of the algorithm do, from true observations: the paper changes the actor alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from stable_baselines3 import DDPG, TD3
from stable_baselines3.common.noise import ActionNoise, NormalActionNoise
from stable_baselines3.common.utils import polyak_update
from torch import Tensor
from torch.nn import functional

from adv_wrappers.bounds.interval_bounds import interval
from adv_wrappers.core.schedules import (
    LinearSchedule,
    ScheduledShare,
    ScheduledWeight,
    at,
)
from adv_wrappers.core.types import Array
from adv_wrappers.training.defences.losses import InnerMaximization
from adv_wrappers.training.defences.policy_bounds import BoundedPolicy
from adv_wrappers.training.method import TrainingMethod
from adv_wrappers.utils.checks import number


class RobustActorMethod(TrainingMethod):
    """How the loss of a deterministic actor is made robust."""

    images: ClassVar[bool] = False

    def regularizer(self, bounds: BoundedPolicy, observations: Tensor, done: float) -> Tensor:
        """What is added to the loss of the actor when ``done`` of the training, in [0, 1], is done, a number.

        Args:
            bounds: of the actor.
            observations: of a minibatch, as the algorithm sees them, ``[B, n]``.
            done: the share of the training.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class SADDPG(InnerMaximization, RobustActorMethod):
    """The regularizer of SA-DDPG (Zhang et al. 2020), for DDPG and TD3; see the head of this file.

    Args:
        weight: of the regularizer in the loss of the actor, a number or a schedule. It stands beside
            values, so it means more where rewards are small, as those that are normalised are.
        eps: the share of the budget that is used, a number or a schedule.
        form, steps, noise: as :class:`InnerMaximization <adv_wrappers.training.defences.losses.InnerMaximization>`
            has them: a bound of the distance, or what gradient steps find.
    """

    name: ClassVar[str] = "sa-ddpg"
    weight: ScheduledWeight = 1.0
    eps: ScheduledShare = field(default=LinearSchedule(0.0, 1.0, 0.5, 0.75))
    steps: int = field(default=5, kw_only=True)

    def regularizer(self, bounds: BoundedPolicy, observations: Tensor, done: float) -> Tensor:
        weight, share = at(self.weight, done), at(self.eps, done)
        if weight == 0 or share == 0:
            return torch.zeros(())
        actions = bounds.net(bounds.observed(observations))
        low, high = bounds.boxes(observations, share)
        if self.form == "interval":
            least, most = interval(bounds.net, low, high)
            off = torch.maximum((actions - least).abs(), (most - actions).abs())
        else:
            held = actions.detach()
            points = self.ascend(lambda y: (bounds.net(y) - held).square().mean(1), low, high)
            off = bounds.net(points) - actions
        return weight * off.square().mean()


class RobustTD3(TD3):
    """TD3 of Stable-Baselines3 with noise on actions from the beginning, and a regularizer of the actor.

    SB3 makes its loss inside of ``train``, so that is what this writes anew: the same steps in the same order.

    Args:
        policy, env, **settings: as TD3 takes them.
        exploration_noise: the standard deviation of Gaussian noise on actions in [-1, 1] while the agent learns, at
            least 0; ``action_noise`` takes its place.

    Attributes:
        method: makes the regularizer; None for the algorithm as it is.
        bounds: of what the actor answers in boxes.

    Raises:
        ValueRangeError: for noise below 0.
    """

    method: RobustActorMethod | None = None
    bounds: BoundedPolicy | None = None

    def __init__(self, policy: Any, env: Any, *, exploration_noise: float = 0.1, **settings: Any) -> None:
        number("exploration_noise", exploration_noise, 0)
        super().__init__(policy, env, **settings)
        if self.action_noise is None:
            shape = self.action_space.shape or ()
            self.action_noise = NormalActionNoise(np.zeros(shape), np.full(shape, exploration_noise))

    def learn_by(self, method: TrainingMethod, bounds: BoundedPolicy) -> None:
        """Learn by a method from now on."""
        assert isinstance(method, RobustActorMethod)
        self.method, self.bounds = method, bounds

    def _sample_action(
        self, learning_starts: int, action_noise: ActionNoise | None = None, n_envs: int = 1
    ) -> tuple[Array, Array]:
        # no random actions where it fills its buffer again
        return super()._sample_action(0 if self._n_updates else learning_starts, action_noise, n_envs)

    def train(self, gradient_steps: int, batch_size: int = 100) -> None:
        self.policy.set_training_mode(True)
        self._update_learning_rate([self.actor.optimizer, self.critic.optimizer])
        assert self.replay_buffer is not None
        losses: dict[str, list[float]] = {"critic_loss": [], "actor_loss": [], "regularizer": []}
        for _ in range(gradient_steps):
            self._n_updates += 1
            data = self.replay_buffer.sample(batch_size, env=self._vec_normalize_env)
            with torch.no_grad():
                noise = data.actions.clone().normal_(0, self.target_policy_noise)
                noise = noise.clamp(-self.target_noise_clip, self.target_noise_clip)
                later = (self.actor_target(data.next_observations) + noise).clamp(-1, 1)
                values = torch.cat(self.critic_target(data.next_observations, later), 1).amin(1, keepdim=True)
                discounts = self.gamma if data.discounts is None else data.discounts
                target = data.rewards + (1 - data.dones) * discounts * values
            found = self.critic(data.observations, data.actions)
            critic_loss = torch.stack([functional.mse_loss(value, target) for value in found]).sum()
            self.critic.optimizer.zero_grad()
            critic_loss.backward()
            self.critic.optimizer.step()
            losses["critic_loss"].append(critic_loss.item())
            if self._n_updates % self.policy_delay == 0:
                loss = -self.critic.q1_forward(data.observations, self.actor(data.observations)).mean()
                losses["actor_loss"].append(loss.item())
                if self.method is not None and self.bounds is not None:
                    extra = self.method.regularizer(
                        self.bounds, data.observations, 1 - self._current_progress_remaining
                    )
                    losses["regularizer"].append(extra.item())
                    loss = loss + extra
                self.actor.optimizer.zero_grad()
                loss.backward()
                self.actor.optimizer.step()
                self._follow()
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")
        for name, rows in losses.items():
            if rows:
                self.logger.record(f"train/{name}", np.mean(rows))

    def _follow(self) -> None:
        """Let the target networks follow."""
        for mine, theirs in ((self.critic, self.critic_target), (self.actor, self.actor_target)):
            polyak_update(mine.parameters(), theirs.parameters(), self.tau)
        polyak_update(self.critic_batch_norm_stats, self.critic_batch_norm_stats_target, 1.0)
        polyak_update(self.actor_batch_norm_stats, self.actor_batch_norm_stats_target, 1.0)

    def _excluded_save_params(self) -> list[str]:
        return [*super()._excluded_save_params(), "method", "bounds"]


class RobustDDPG(RobustTD3, DDPG):
    """DDPG, the same with one critic, an update of the actor for each of the critic's, and no noise on targets."""
