"""TD3 and DDPG of Stable-Baselines3 with a regularizer of the actor."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from stable_baselines3 import DDPG, TD3
from stable_baselines3.common.noise import ActionNoise, NormalActionNoise
from stable_baselines3.common.utils import polyak_update
from torch.nn import functional

from adv_wrappers.core.types import Array
from adv_wrappers.training.defences.base import LearnsByMethod, RobustActorMethod
from adv_wrappers.utils.checks import number


class RobustTD3(LearnsByMethod, TD3):
    """TD3 of Stable-Baselines3 with noise on actions from the beginning, and a regularizer of the actor.

    SB3 makes its loss inside of ``train``, so that is what this writes anew: the same steps in the same order.

    Args:
        policy, env, **settings: as TD3 takes them.
        exploration_noise: the standard deviation of Gaussian noise on actions in [-1, 1] while the agent learns, at
            least 0; ``action_noise`` takes its place.

    Raises:
        ValueRangeError: for noise below 0.
    """

    method: RobustActorMethod | None = None

    def __init__(self, policy: Any, env: Any, *, exploration_noise: float = 0.1, **settings: Any) -> None:
        number("exploration_noise", exploration_noise, 0)
        super().__init__(policy, env, **settings)
        if self.action_noise is None:
            shape = self.action_space.shape or ()
            self.action_noise = NormalActionNoise(np.zeros(shape), np.full(shape, exploration_noise))

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
            # the critics' target: the smaller of two values of the target networks, at a smoothed action
            with torch.no_grad():
                noise = data.actions.clone().normal_(0, self.target_policy_noise)
                noise = noise.clamp(-self.target_noise_clip, self.target_noise_clip)
                later = (self.actor_target(data.next_observations) + noise).clamp(-1, 1)
                values = torch.cat(self.critic_target(data.next_observations, later), 1).amin(1, keepdim=True)
                discounts = self.gamma if data.discounts is None else data.discounts
                target = data.rewards + (1 - data.dones) * discounts * values
            # a step of both critics
            found = self.critic(data.observations, data.actions)
            critic_loss = torch.stack([functional.mse_loss(value, target) for value in found]).sum()
            self.critic.optimizer.zero_grad()
            critic_loss.backward()
            self.critic.optimizer.step()
            losses["critic_loss"].append(critic_loss.item())
            # seldomer a step of the actor, whose loss the regularizer joins, and of the target networks
            if self._n_updates % self.policy_delay == 0:
                loss = -self.critic.q1_forward(data.observations, self.actor(data.observations)).mean()
                losses["actor_loss"].append(loss.item())
                if self.method is not None and self.bounds is not None:
                    extra = self.method.regularizer(self.bounds, data.observations, self.done)
                    losses["regularizer"].append(extra.item())
                    loss = loss + extra
                self.actor.optimizer.zero_grad()
                loss.backward()
                self.actor.optimizer.step()
                self._follow()
        # as the algorithm itself logs
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


class RobustDDPG(RobustTD3, DDPG):
    """DDPG, the same with one critic, an update of the actor for each of the critic's, and no noise on targets."""
