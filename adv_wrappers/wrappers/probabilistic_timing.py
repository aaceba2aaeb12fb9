"""One coin a step for a whole stack of layers (the daylight paper's Table 7: an adversary that is there or is not)."""

from __future__ import annotations

from typing import Any

from adv_wrappers.wrappers.layer import EnvWrapper, ForAnyEnv, gate


class Gate:
    """Mixin of the gates of one environment and of a vector."""

    def __init__(self, env: Any, p: float) -> None:
        self._wrap_one(env, p=p)  # type: ignore[attr-defined]
        self.metadata = {**(env.metadata or {}), **gate(env, p)}


class ProbabilisticTiming(ForAnyEnv, Gate, EnvWrapper):
    """All layers beneath attack together with probability ``p`` a step, and else none of them does.

    The draw for observation t also rules action t. Steps that are gated off cost and spend nothing. Every row has its
    own coin; two gates in one stack have different ones. Outside a frame stack the frames of the past stay as they
    were shown, so an ungated step may still show perturbed history.

    Args:
        env: a Gymnasium ``Env`` or ``VectorEnv``, or an SB3 ``VecEnv``, already wrapped in layers.
        p: probability in [0, 1].

    Raises:
        ValueRangeError: unless p is a probability.
        OrderError: where there is nothing to gate, or layers hide inside ``AsyncVectorEnv`` workers.

    >>> import gymnasium as gym
    >>> from adv_wrappers import Linf, Noise, PerturbObservation
    >>> env = PerturbObservation(gym.make("CartPole-v1"), Noise(), within=Linf(0.1))
    >>> env = ProbabilisticTiming(env, 0.25)
    """


VectorProbabilisticTiming = ProbabilisticTiming.of_vector
