"""How well a backdoor works: what an agent earns without its trigger and with it, and how often it plays the target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np

from adv_wrappers.core.perturbation import Perturbation
from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.core.types import Info
from adv_wrappers.environments.environment import AnyEnvironment, Environment, EnvKwargs, MakeEnv
from adv_wrappers.errors import ThreatError, ValueRangeError
from adv_wrappers.evaluation.evaluate import evaluate
from adv_wrappers.evaluation.statistics.confidence_intervals import mean_interval
from adv_wrappers.threats.presets import as_threat
from adv_wrappers.utils.number_text import interval_text, number_text
from adv_wrappers.utils.validation import EpisodeCount, Seed, checked
from adv_wrappers.victims import Victim, load_victim

_PLAYED = "played the target"  # in the info of a step


@dataclass(frozen=True)
class BackdoorRate:
    """What :func:`backdoor_rate` measured.

    Attributes:
        target: the action.
        clean_returns, triggered_returns: of every episode without and with the trigger, float64 ``[episodes]``.
        clean_share, triggered_share: of all steps, at which the target was played, without and with the trigger.
    """

    target: int
    clean_returns: np.ndarray
    triggered_returns: np.ndarray
    clean_share: float
    triggered_share: float

    def __str__(self) -> str:
        lines = []
        for name, returns, share in (
            ("without the trigger", self.clean_returns, self.clean_share),
            ("with the trigger", self.triggered_returns, self.triggered_share),
        ):
            mean, ends = number_text(returns.mean()), interval_text(*mean_interval(returns))
            lines.append(f"{name}: return {mean} ({ends}), action {self.target} {share:.1%}")
        return "\n".join(lines)


@checked
def backdoor_rate(
    victim: Victim | str,
    env: AnyEnvironment,
    trigger: ThreatModel | Perturbation | str | Info,
    target: int,
    episodes: EpisodeCount = 10,
    seed: Seed = 0,
    *,
    env_kwargs: EnvKwargs | None = None,
    make: MakeEnv | None = None,
) -> BackdoorRate:
    """Play the same episodes without a trigger, and with it at every step.

    Args:
        victim: an agent of discrete actions, or its reference.
        env, env_kwargs, make: as for :func:`adv_wrappers.evaluate`.
        trigger: as for :class:`adv_wrappers.PlantBackdoor`.
        target: the action that the trigger is to call.
        episodes: how many.
        seed: seeds them.

    Raises:
        ValueRangeError: for a target that is no action, and less than one episode.
        ThreatError: for a trigger that is no threat to observations.
    """
    agent = load_victim(victim)
    environment = Environment.of(env, agent, env_kwargs, make)
    environment.spaces_for(agent)
    threat = as_threat(trigger).against(agent)
    if threat.on != "observation":
        raise ThreatError(f"a trigger is a threat to observations, got {threat}")
    if not agent.discrete or not agent.action_space.contains(np.int64(target)):
        raise ValueRangeError(f"target must be an action of {agent.action_space}, got {target!r:.80}")
    # both runs count how often the target is played
    report = evaluate(
        agent, lambda: _TargetSteps(environment(), target), [threat], episodes, seed, metrics=[f"sum:{_PLAYED}"]
    )
    clean, triggered = (np.array(row.returns) for row in report.threats)
    usual, share = (sum(row.metrics[f"sum:{_PLAYED}"]) / sum(row.lengths) for row in report.threats)
    return BackdoorRate(int(target), clean, triggered, usual, share)


class _TargetSteps(gym.Wrapper[Any, Any, Any, Any]):
    """Says of every step whether the target was played."""

    def __init__(self, env: gym.Env[Any, Any], target: int) -> None:
        super().__init__(env)
        self._target = target

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, Info]:
        """Step, and say it."""
        *answer, info = self.env.step(action)
        return *answer, {**info, _PLAYED: float(action == self._target)}
