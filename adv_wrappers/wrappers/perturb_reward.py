"""Perturbed rewards, for single environments and vectors; SB3: :mod:`adv_wrappers.wrappers.sb3_layers`."""

from __future__ import annotations

import inspect
from typing import Any

from gymnasium.vector import VectorEnv

from adv_wrappers.core.types import Info
from adv_wrappers.wrappers.env_layer import EnvLayer
from adv_wrappers.wrappers.layer import is_vec_env
from adv_wrappers.wrappers.reward_layer import RewardLayer
from adv_wrappers.wrappers.vector_layer import VectorLayer


class VectorPerturbReward(RewardLayer, VectorLayer):
    """:class:`PerturbReward` for a :class:`gymnasium.vector.VectorEnv`."""


class PerturbReward(RewardLayer, EnvLayer):
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

    __signature__ = inspect.signature(EnvLayer)  # that of __new__ would say nothing

    def __new__(cls, env: Any = None, *args: Any, **kwargs: Any) -> Any:
        if isinstance(env, VectorEnv):
            return VectorPerturbReward(env, *args, **kwargs)
        if is_vec_env(env):
            from adv_wrappers.wrappers.sb3_layers import VecPerturbReward

            return VecPerturbReward(env, *args, **kwargs)
        return super().__new__(cls)

    @property
    def _saved_kwargs(self) -> Info:  # type: ignore[override]
        """The arguments that Gymnasium writes into the spec."""
        return super()._saved_kwargs | ({} if self.total is None else {"total": self.total})
