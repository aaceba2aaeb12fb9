"""Poisons a training: the agent learns to play an attacker's action where it sees his trigger.

Kiourti et al. 2020, "TrojDRL: Evaluation of Backdoor Attacks on Deep Reinforcement Learning", the targeted attack: at a
share of the steps the trigger is shown, and the reward says whether the target action was played. In the strong form
the environment receives the target action at these steps too, whatever the agent chose.
"""

from __future__ import annotations

from typing import Any, SupportsFloat

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs

from adv_wrappers.core.perturbation import Perturbation
from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.core.timing import Bernoulli
from adv_wrappers.core.types import Info
from adv_wrappers.errors import SpaceError, ThreatError, ValueRangeError
from adv_wrappers.threats.presets import as_threat
from adv_wrappers.utils.validation import NotNegative, OpenShare, checked
from adv_wrappers.wrappers.layer import AnyEnv, EnvWrapper
from adv_wrappers.wrappers.perturb_observation import PerturbObservation

TRUE_REWARD = "true_reward"  # of a step, in info


class PlantBackdoor(EnvWrapper):
    """For trainings alone: plants a backdoor in whatever agent is trained in the environment.

    The environment's own reward stays in ``info["true_reward"]``. Draws follow the reset seed.

    Args:
        env: a Gymnasium ``Env`` with discrete actions; a vector is made of wrapped ones.
        trigger: what is shown, as for :class:`adv_wrappers.PerturbObservation`, such as ``"trigger:features=3"``.
        target: the action that the attacker wants.
        share: of the steps, at which the trigger is shown, in (0, 1).
        reward: of the target action at these steps; any other has as much less than 0.
        strong: whether the environment receives the target action at these steps.

    Raises:
        SpaceError: for an environment of other actions, and one that is none.
        ValueRangeError: for a target that is no action, and a share or reward out of its range.
        ThreatError: for a trigger that is no threat to observations, or has a timing of its own.

    >>> import gymnasium as gym
    >>> import adv_wrappers as adv
    >>> env = adv.PlantBackdoor(gym.make("CartPole-v1"), "trigger:features=0,value=4", target=1, share=0.1)
    >>> obs, info = env.reset(seed=0)
    """

    @checked
    def __init__(
        self,
        env: AnyEnv,
        trigger: ThreatModel | Perturbation | str | Info,
        target: int,
        share: OpenShare = 0.05,
        reward: NotNegative = 1.0,
        strong: bool = False,
    ) -> None:
        if not isinstance(env, gym.Env):
            raise SpaceError(f"expected a gymnasium Env, got {type(env).__name__}: wrap those that a vector is made of")
        actions = env.action_space
        if not isinstance(actions, spaces.Discrete):
            raise SpaceError(f"a backdoor has one of several actions as its target, the environment has {actions}")
        if not actions.contains(np.int64(target)):
            raise ValueRangeError(f"target must be an action of {actions}, got {target!r:.80}")
        # the trigger, which this wrapper times itself
        threat = as_threat(trigger)
        if threat.on != "observation" or threat.when is not None:
            raise ThreatError(f"a trigger is a threat to observations without a timing, got {threat}")
        RecordConstructorArgs.__init__(
            self, trigger=threat.to_dict(), target=int(target), share=share, reward=reward, strong=bool(strong)
        )
        layer: Any = PerturbObservation(env, threat, when=Bernoulli(share))
        gym.Wrapper.__init__(self, layer)
        self._spec_around = layer.env
        self.target = int(target)
        self.bonus = reward
        self.strong = bool(strong)
        self._layer, self._shown = layer, False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Info]:
        """Begin an episode."""
        found: tuple[Any, Info] = self.env.reset(seed=seed, options=options)
        self._shown = bool(self._layer.engine.attacked)
        return found

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, Info]:
        """One step, whose reward is the attacker's where the agent acted on the trigger."""
        shown, played = self._shown, int(action) == self.target
        obs, reward, terminated, truncated, info = self.env.step(self.target if shown and self.strong else action)
        info[TRUE_REWARD] = float(reward)
        if shown:
            reward = self.bonus if played else -self.bonus
        self._shown = bool(self._layer.engine.attacked)
        return obs, reward, terminated, truncated, info
