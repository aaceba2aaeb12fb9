"""The robust losses that ``train_agent(robust=...)`` knows by name."""

from __future__ import annotations

from adv_wrappers.training.defences.base import RobustPolicyMethod, RobustQMethod
from adv_wrappers.training.defences.car import CarDQN
from adv_wrappers.training.defences.radial import Radial, RadialDQN
from adv_wrappers.training.defences.sa import SADQN, SARegularizer
from adv_wrappers.training.defences.smoothed import SmoothedDQN, SmoothedPolicy
from adv_wrappers.training.defences.wocar import Wocar

POLICY_METHODS: dict[str, type[RobustPolicyMethod]] = {
    method.loss: method for method in (Radial, SARegularizer, Wocar, SmoothedPolicy)
}
"""Those of PPO and A2C."""

Q_METHODS: dict[str, type[RobustQMethod]] = {method.loss: method for method in (RadialDQN, SADQN, CarDQN, SmoothedDQN)}
"""Those of DQN."""
