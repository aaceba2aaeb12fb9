"""Perturbed actions, for single environments and vectors; SB3: :mod:`adv_wrappers.wrappers.sb3_vec_env`."""

from __future__ import annotations

from typing import ClassVar

from adv_wrappers.core.perturbation import On
from adv_wrappers.wrappers.layer import EnvLayer, ForAnyEnv


class PerturbAction(ForAnyEnv, EnvLayer):
    """Perturbs the actions that the environment gets.

    Args:
        env: a Gymnasium ``Env`` or ``VectorEnv``, or an SB3 ``VecEnv``; the wrapper that fits is returned.
        how: a perturbation of actions, a :class:`ThreatModel`, a text such as ``"action-noise:eps=0.1"``, a threat's
            dictionary, or any function ``(a, context) -> a'`` on float tensors ``[B, *A]``.
        within: the budget; discrete actions take ``Valid()`` (or ``L0(k)`` for several of them).
        when: the timing; None attacks at every step. The t of an action is that of the observation it answers.
        at: key, or tuple of keys, of a Dict action space.
        victim: fills in a victim that ``how`` leaves open; a reference such as ``"zoo:hopper-ppo"`` will do.
        eps, norm, scale: the budget in words, instead of ``within``, as for :func:`adv_wrappers.threat`.
        keep_true: put the agent's own action into ``info["adv_wrappers"][layer]["true"]``.

    Raises:
        AdvWrappersError: one of its kinds, for a threat that cannot work on this environment, before anything is spent.

    >>> import gymnasium as gym
    >>> env = PerturbAction(gym.make("CartPole-v1"), "action-flip:p=0.5")
    >>> obs, info = env.reset(seed=0)
    """

    on: ClassVar[On] = "action"


VectorPerturbAction = PerturbAction.of_vector
