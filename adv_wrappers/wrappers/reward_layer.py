"""A layer on rewards: what the agent learns from is another reward than the environment's."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch

from adv_wrappers.core.perturbation import On
from adv_wrappers.utils.checks import number
from adv_wrappers.wrappers.layer import Layer


def checked_total(total: object) -> float | None:
    """A total of changes; raises :class:`ValueRangeError` for a negative one, and for no number."""
    return None if total is None else number("total", total, 0)


class RewardLayer(Layer):
    """Mixin of the wrappers that perturb rewards, of trainings alone.

    Attributes:
        total: how much all changes may add up to, over all rows and episodes; None for any.
        spent: what they have added up to.
        true_rewards: of the last step, as the environment gave them, one or ``[B]``.
    """

    on: ClassVar[On] = "reward"

    total: float | None
    spent: float = 0.0
    true_rewards: Any = None

    def __init__(self, env: Any, how: Any, *args: Any, total: float | None = None, **kwargs: Any) -> None:
        self.total = checked_total(total)
        super().__init__(env, how, *args, **{"keep_true": True, **kwargs})  # type: ignore[call-arg]  # of what is wrapped

    def _send(self, action: Any, mask: Any = None) -> Any:
        return action

    def _pay(self, rewards: Any) -> Any:
        """The rewards of a step as the agent gets them."""
        self.true_rewards = rewards
        single = not self.engine.batched
        given = np.array([rewards], np.float64) if single else rewards[:, None]
        paid = self.engine.act(given)
        self.engine.true = rewards  # without the axis of numbers
        if self.total is not None:
            paid = self._within_total(given, paid)
        return float(paid[0]) if single else paid[:, 0]

    def _within_total(self, given: Any, paid: Any) -> Any:
        """Changes as far as the total allows; where it does not reach for a step, all of its rows get a share."""
        asked = float(abs(paid - given).sum())
        left = max((self.total or 0.0) - self.spent, 0.0)
        if asked > left:
            share = left / asked
            paid = given + (paid - given) * share
            paid = paid.to(given.dtype) if isinstance(paid, torch.Tensor) else paid.astype(given.dtype)
        self.spent += min(asked, left)
        return paid
