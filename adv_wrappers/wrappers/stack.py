"""Several layers in one call."""

from __future__ import annotations

from typing import Any

from adv_wrappers.core.perturbation import Perturbation
from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.presets import as_threat
from adv_wrappers.wrappers.action import PerturbAction
from adv_wrappers.wrappers.observation import PerturbObservation
from adv_wrappers.wrappers.order import check_order


def wrap(
    env: Any, *threats: ThreatModel | Perturbation | str | dict[str, Any], victim: Any = None, **options: Any
) -> Any:
    """The environment under several threats, left to right: the last is outermost, nearest the agent.

    The last acts last on observations and first on actions. Each budget is relative to what its layer receives.

    Args:
        env: a Gymnasium ``Env`` or ``VectorEnv``, or an SB3 ``VecEnv``.
        *threats: threat models, perturbations that bring a budget, texts or dictionaries.
        victim: fills in threats that were left open.
        **options: ``quantize`` and ``keep_true`` of the layers.

    Raises:
        AdvWrappersError: one of its kinds, for a threat that cannot work here; :class:`OrderError` for one that could
            never reach the agent.

    >>> import gymnasium as gym
    >>> env = wrap(gym.make("CartPole-v1"), "noise:eps=0.01", "action-flip:p=0.1")
    """
    for item in threats:
        threat = as_threat(item)
        threat = threat.against(victim) if victim is not None else threat
        env = (PerturbObservation if threat.on == "observation" else PerturbAction)(env, threat, **options)
    check_order(env)
    return env
