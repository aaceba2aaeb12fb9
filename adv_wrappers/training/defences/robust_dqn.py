"""DQN with a robust loss."""

from __future__ import annotations

from stable_baselines3.dqn.policies import QNetwork
from torch import Tensor

from adv_wrappers.training.defences.base import LearnsByMethod, RobustQMethod
from adv_wrappers.training.sb3.prioritized_dqn import PrioritizedDQN, QBatch


class RobustDQN(LearnsByMethod, PrioritizedDQN):
    """:class:`PrioritizedDQN` with a robust loss."""

    method: RobustQMethod | None = None

    def q_values(self, net: QNetwork, observations: Tensor) -> Tensor:
        return super().q_values(net, observations) if self.method is None else self.method.q_values(net, observations)

    def losses(self, batch: QBatch) -> Tensor:
        if self.method is None or self.bounds is None:
            return super().losses(batch)
        return self.method.losses(self.bounds, batch, self.done)
