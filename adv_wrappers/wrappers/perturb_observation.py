"""Perturbed observations, for single environments and vectors; SB3: :mod:`adv_wrappers.wrappers.sb3_vec_env`."""

from __future__ import annotations

from typing import ClassVar

from adv_wrappers.core.perturbation import On
from adv_wrappers.wrappers.layer import EnvLayer, ForAnyEnv


class PerturbObservation(ForAnyEnv, EnvLayer):
    """Perturbs the observations that the agent gets.

    Args:
        env: a Gymnasium ``Env`` or ``VectorEnv``, or an SB3 ``VecEnv``; the wrapper that fits is returned.
        how: a perturbation, a :class:`ThreatModel`, a text such as ``"noise:eps=0.1"``, a threat's dictionary, or any
            function ``(x, context) -> x'`` on float tensors ``[B, *S]``.
        within: the budget, relative to what this layer receives.
        when: the timing; None attacks at every step.
        at: key, or tuple of keys under one budget, of a Dict observation space.
        quantize: False makes an integer observation space float32, so that less than one grey level can be added.
        victim: fills in a victim that ``how`` leaves open; a reference such as ``"zoo:hopper-ppo"`` will do.
        eps, norm, scale: the budget in words, instead of ``within``, as for :func:`adv_wrappers.threat`.
        keep_true: put the true observation into ``info["adv_wrappers"][layer]["true"]``.

    ``info["adv_wrappers"]`` holds a dictionary a layer, ``{"attacked": bool}``. t = 0 is the reset observation.

    Raises:
        AdvWrappersError: one of its kinds, for a threat that cannot work on this environment, before anything is spent.

    >>> import gymnasium as gym
    >>> env = PerturbObservation(gym.make("CartPole-v1"), "noise:eps=0.05")
    >>> obs, info = env.reset(seed=0)
    >>> info["adv_wrappers"]
    {'0:noise': {'attacked': True}}
    """

    on: ClassVar[On] = "observation"


VectorPerturbObservation = PerturbObservation.of_vector
