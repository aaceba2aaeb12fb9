"""Perturbed rewards, for single environments and vectors; SB3: :mod:`adv_wrappers.wrappers.sb3_vec_env`."""

from __future__ import annotations

import inspect
from typing import Any, ClassVar

import numpy as np
import torch

from adv_wrappers.core.perturbation import On
from adv_wrappers.core.types import Info
from adv_wrappers.utils.checks import number
from adv_wrappers.wrappers.layer import EnvLayer, ForAnyEnv, Layer


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
        super().__init__(env, how, *args, **{"keep_true": True, **kwargs})

    def _send(self, action: Any) -> Any:
        self.engine.session.begin_step(self.engine)
        return action

    def _pay(self, rewards: Any, *ends: Any) -> Any:
        """The rewards of a step as the agent gets them."""
        self.true_rewards = rewards
        single = not self.engine.batched
        given = np.array([rewards], np.float64) if single else rewards[:, None]
        paid = self.engine.perturb(given)
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


class PerturbReward(ForAnyEnv, RewardLayer, EnvLayer):
    """For trainings alone: changes the rewards that an agent learns from.

    The environment's own reward is in ``info["adv_wrappers"][layer]["true"]``. An evaluation counts the environment's
    own rewards, whatever layers of this kind its environment has, and refuses threats to rewards.

    Args:
        env: a Gymnasium ``Env`` or ``VectorEnv``, or an SB3 ``VecEnv``; the wrapper that fits is returned.
        how: a perturbation of rewards, a :class:`ThreatModel`, a text such as ``"reward-noise:eps=0.5"``, a threat's
            dictionary, or any function ``(x, context) -> x'`` on float tensors ``[B, 1]``.
        within: the budget, around the environment's own reward.
        when: the timing; None perturbs every step. ``p=0.1`` in a text is a tenth of them.
        victim: fills in a victim that a timing leaves open; a reference such as ``"zoo:hopper-ppo"`` will do.
        eps, norm, scale: the budget in words, instead of ``within``, as for :func:`adv_wrappers.threat`.
        keep_true: whether ``info`` has the environment's own reward.
        total: how much all changes of a training may add up to, over all rows and episodes, in units of the reward: an
            attacker who can pay for so much and no more. None is any.

    Raises:
        AdvWrappersError: one of its kinds, for a threat to something else, and a total below 0.

    >>> import gymnasium as gym
    >>> env = PerturbReward(gym.make("CartPole-v1"), "reward-flip:p=0.2")
    >>> obs, info = env.reset(seed=0)
    """

    __signature__ = inspect.signature(Layer)  # and ``total``

    @property
    def _saved_kwargs(self) -> Info:  # type: ignore[override]
        """The arguments that Gymnasium writes into the spec."""
        return super()._saved_kwargs | ({} if self.total is None else {"total": self.total})


VectorPerturbReward = PerturbReward.of_vector
