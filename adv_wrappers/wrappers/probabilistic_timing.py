"""One coin a step for a whole stack of layers (the daylight paper's Table 7: an adversary that is there or is not)."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
from gymnasium.utils import RecordConstructorArgs
from gymnasium.vector import VectorWrapper

from adv_wrappers.errors import SpaceError
from adv_wrappers.wrappers.layer import AnyEnv, AnyVectorEnv, ForAnyEnv, gate


class VectorProbabilisticTiming(VectorWrapper):
    """:class:`ProbabilisticTiming` for a :class:`gymnasium.vector.VectorEnv`."""

    def __init__(self, env: AnyVectorEnv, p: float) -> None:
        VectorWrapper.__init__(self, env)
        self.metadata = {**(env.metadata or {}), **gate(env, p)}


class ProbabilisticTiming(ForAnyEnv, gym.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
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

    of_vector = VectorProbabilisticTiming
    of_vec_env = "VecProbabilisticTiming"

    def __init__(self, env: AnyEnv, p: float) -> None:
        if not isinstance(env, gym.Env):
            raise SpaceError(f"expected a gymnasium Env, VectorEnv or an SB3 VecEnv, got {type(env).__name__}")
        RecordConstructorArgs.__init__(self, p=p)
        gym.Wrapper.__init__(self, env)
        self.metadata = {**(env.metadata or {}), **gate(env, p)}
        self.whole_spec = False

    @property
    def spec(self) -> Any:  # type: ignore[override]
        """Spec of the wrapped environment with this gate added; a registered id's own spec is left as it is."""
        self._cached_spec = None  # a layer's budget may have changed
        return self.env.unwrapped.spec if self.whole_spec else super().spec
