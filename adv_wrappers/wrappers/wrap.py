"""Several layers in one call."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from adv_wrappers.core.perturbation import On, Perturbation
from adv_wrappers.core.threat import ThreatModel, fits
from adv_wrappers.errors import ThreatError, VictimError, threat_in_errors
from adv_wrappers.threats.presets import as_threat, threat_layers
from adv_wrappers.utils.parsing import split_stack
from adv_wrappers.victims import Victim, load_victim
from adv_wrappers.wrappers.order import check_order
from adv_wrappers.wrappers.perturb_action import PerturbAction
from adv_wrappers.wrappers.perturb_dynamics import PerturbDynamics
from adv_wrappers.wrappers.perturb_observation import PerturbObservation
from adv_wrappers.wrappers.perturb_reward import PerturbReward


def wrap(
    env: Any,
    *threats: ThreatModel | Perturbation | str | dict[str, Any] | list[Any],
    victim: Any = None,
    **options: Any,
) -> Any:
    """The environment under several threats, left to right: the last is outermost, nearest the agent.

    The last acts last on observations and first on actions. Each budget is relative to what its layer receives.

    Args:
        env: a Gymnasium ``Env`` or ``VectorEnv``, or an SB3 ``VecEnv``.
        *threats: threat models, perturbations that bring a budget, texts (also with `` + `` between them) or
            dictionaries; and lists of these.
        victim: the agent that acts, which fills in threats that were left open; a reference such as
            ``"zoo:hopper-ppo"`` will do.
        **options: ``quantize`` and ``keep_true`` of the layers.

    Raises:
        AdvWrappersError: one of its kinds, for a threat that cannot work here; :class:`OrderError` for one that could
            never reach the agent.

    >>> import gymnasium as gym
    >>> env = wrap(gym.make("CartPole-v1"), "noise:eps=0.01", "action-flip:p=0.1")
    """
    victim = None if victim is None else load_victim(victim)
    # each threat in its layers, the first one innermost
    for item in _flat(threats):
        with threat_in_errors(item):
            threat = as_threat(item)
            threat = threat if victim is None else _against(threat, victim, env)
            for part in threat_layers(threat):
                more = options
                if part.on != "observation":  # quantize is about observations
                    more = {key: value for key, value in options.items() if key != "quantize"}
                env = _WRAPPERS[part.on](env, part, victim=victim, **more)
    check_order(env)
    return env


def _against(threat: ThreatModel, victim: Victim, env: Any) -> ThreatModel:
    """A threat against a victim; one of another environment is told that, and not what the threat needs."""
    try:
        return threat.against(victim)
    except VictimError:
        observed, acted = (
            getattr(env, f"single_{what}_space", None) or getattr(env, f"{what}_space")
            for what in ("observation", "action")
        )
        fits(victim, observed, acted, getattr(getattr(env, "spec", None), "id", None))
        raise


_WRAPPERS: dict[On, Any] = {
    "observation": PerturbObservation,
    "action": PerturbAction,
    "dynamics": PerturbDynamics,
    "reward": PerturbReward,
}


def _flat(threats: Iterable[Any]) -> Iterator[Any]:
    for item in threats:
        if isinstance(item, str):
            yield from split_stack(item)
        elif isinstance(item, (list, tuple)):
            if not item:
                raise ThreatError(f"a stack needs at least one threat, got {item!r}")
            yield from _flat(item)
        else:
            yield item
