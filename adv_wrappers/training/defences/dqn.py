"""DQN with a robust loss."""

from __future__ import annotations

from stable_baselines3.dqn.policies import QNetwork
from torch import Tensor

from adv_wrappers.training.defences.base import RobustQMethod
from adv_wrappers.training.defences.policy_bounds import BoundedPolicy
from adv_wrappers.training.method import TrainingMethod
from adv_wrappers.training.resilience.dqn import PrioritizedDQN, QBatch


class RobustDQN(PrioritizedDQN):
    """:class:`PrioritizedDQN` with a robust loss.

    Attributes:
        method: makes the losses; None for the loss of DQN.
        bounds: of what the network answers in boxes.
    """

    method: RobustQMethod | None = None
    bounds: BoundedPolicy | None = None

    def learn_by(self, method: TrainingMethod, bounds: BoundedPolicy) -> None:
        """Learn by a method from now on."""
        assert isinstance(method, RobustQMethod)
        self.method, self.bounds = method, bounds

    def q_values(self, net: QNetwork, observations: Tensor) -> Tensor:
        return super().q_values(net, observations) if self.method is None else self.method.q_values(net, observations)

    def losses(self, batch: QBatch) -> Tensor:
        if self.method is None or self.bounds is None:
            return super().losses(batch)
        return self.method.losses(self.bounds, batch, 1 - self._current_progress_remaining)

    def _excluded_save_params(self) -> list[str]:
        return [*super()._excluded_save_params(), "method", "bounds"]
