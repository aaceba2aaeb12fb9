"""PPO and A2C of Stable-Baselines3 with a policy loss of one's own.

SB3 computes its loss inside of ``train``, so that is what these write anew: the same steps in the same order, with
``robust`` between the log-probabilities and the loss.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.type_aliases import RolloutBufferSamples
from torch import nn
from torch.nn import functional

from adv_wrappers.bounds.interval_bounds import interval
from adv_wrappers.training.defences.base import LearnsByMethod, PolicyBatch, RobustPolicyMethod
from adv_wrappers.training.defences.method import TrainingMethod
from adv_wrappers.training.defences.policy_bounds import BoundedPolicy
from adv_wrappers.training.sb3.vec_env import AgentVecEnv


class RobustUpdates(LearnsByMethod, OnPolicyAlgorithm):
    """What the updates of both algorithms share.

    Attributes:
        method: makes the policy's loss.
        bounds: what the policy can answer in boxes.
        method_critic: a critic of the method's own, or None.
    """

    method: RobustPolicyMethod
    bounds: BoundedPolicy
    method_critic: nn.Module | None = None
    normalize_advantage: bool

    def learn_by(self, method: TrainingMethod, bounds: BoundedPolicy) -> None:
        """Learn by a method from now on; raises :class:`ThreatError` for one that needs what is not there."""
        assert isinstance(method, RobustPolicyMethod)
        method.check(bounds)
        super().learn_by(method, bounds)
        bounds.critic = self.method_critic
        if not method.bounded:
            env = bounds.normal.venv
            assert isinstance(env, AgentVecEnv)
            env.add_noise = lambda obs: bounds.noisy(obs, method.noise_share(self.done))

    def _update(
        self,
        data: RolloutBufferSamples,
        clip: float | None = None,
        clip_values: float | None = None,
        most_divergence: float | None = None,
    ) -> dict[str, float] | None:
        """One step of the optimizer on a minibatch; what is logged of it, or None for a step that is not made.

        Args:
            data: the minibatch.
            clip, clip_values: PPO's limits on how far probabilities and values move; None for none.
            most_divergence: from the policy of the rollout, beyond which no step is made; None for any.
        """
        # loss of the policy, robust
        actions = data.actions.long().flatten() if self.bounds.count else data.actions
        values, log_prob, entropy = self.policy.evaluate_actions(data.observations, actions)
        advantages = data.advantages
        if self.normalize_advantage and len(advantages) > 1:
            advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        batch = PolicyBatch(data.observations, actions, advantages, log_prob, data.old_log_prob, clip)
        policy_loss = self.method.policy_loss(self.bounds, batch, self.done)

        # losses of the value and the entropy, as they are
        values = values.flatten()
        if clip_values is not None:
            values = data.old_values + (values - data.old_values).clamp(-clip_values, clip_values)
        value_loss = functional.mse_loss(data.returns, values)
        entropy_loss = (log_prob if entropy is None else -entropy).mean()
        loss = policy_loss + self.ent_coef * entropy_loss + self.vf_coef * value_loss

        # the step, unless the policy has moved too far already
        with torch.no_grad():
            log_ratio = log_prob - data.old_log_prob
            divergence = float((log_ratio.exp() - 1 - log_ratio).mean())
        if most_divergence is not None and divergence > most_divergence:
            return None
        self.policy.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.policy.parameters(), self.max_grad_norm)
        self.policy.optimizer.step()
        return {
            "policy_loss": policy_loss.item(),
            "standard_policy_loss": batch.surrogate(log_prob).mean().item(),
            "value_loss": value_loss.item(),
            "entropy_loss": entropy_loss.item(),
            "approx_kl": divergence,
        }

    def _begin_updates(self) -> None:
        """What comes before the minibatches of a rollout."""
        self.method.learn_from_rollout(self, self.bounds)
        self.policy.set_training_mode(True)
        self._update_learning_rate(self.policy.optimizer)

    def _log(self, rows: Sequence[Mapping[str, float]]) -> None:
        """Log the means of what :meth:`_update` returned."""
        for name in rows[0] if rows else ():
            self.logger.record(f"train/{name}", sum(row[name] for row in rows) / len(rows))
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")

    def _get_torch_save_params(self) -> tuple[list[str], list[str]]:
        states, tensors = super()._get_torch_save_params()
        own = [] if self.method_critic is None else ["method_critic", "method_critic.optimizer"]
        return [*states, *own], tensors

    def _excluded_save_params(self) -> list[str]:
        return [*super()._excluded_save_params(), "method_critic"]


class RobustPPO(RobustUpdates, PPO):
    """PPO with a robust loss of the policy."""

    def train(self) -> None:
        self._begin_updates()
        # the model has made schedules of numbers
        left, clips = self._current_progress_remaining, (self.clip_range, self.clip_range_vf)
        clip, clip_values = (each(left) if callable(each) else None for each in clips)
        most = None if self.target_kl is None else 1.5 * self.target_kl
        rows, goes_on = list[dict[str, float]](), True
        # epochs of minibatches, until the policy has moved too far from that of the rollout
        for _ in range(self.n_epochs):
            for data in self.rollout_buffer.get(self.batch_size):
                row = self._update(data, clip, clip_values, most)
                if row is None:
                    goes_on = False
                    break
                rows.append(row)
            self._n_updates += 1
            if not goes_on:
                break
        self._log(rows)


class RobustA2C(RobustUpdates, A2C):
    """A2C with a robust loss of the policy."""

    def train(self) -> None:
        self._begin_updates()
        rows = [row for data in self.rollout_buffer.get(batch_size=None) if (row := self._update(data)) is not None]
        self._n_updates += 1
        self._log(rows)


def make_robust(model: BaseAlgorithm, method: TrainingMethod, bounds: BoundedPolicy) -> None:
    """Let a model learn by a robust method from now on.

    Raises:
        VictimError: for a policy with a layer that has no bounds.
        ThreatError: for a method that needs what is not there.
    """
    space = bounds.space
    point = torch.as_tensor(np.clip(np.zeros(space.shape), space.low, space.high), dtype=torch.float32)[None]
    interval(bounds.net, point, point)
    assert isinstance(model, LearnsByMethod)
    model.learn_by(method, bounds)
