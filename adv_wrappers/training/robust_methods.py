"""The robust losses that ``train_agent(robust=...)`` knows by name."""

from __future__ import annotations

from adv_wrappers.training.car_dqn import CarDQN
from adv_wrappers.training.robust_dqn import SADQN, RadialDQN, RobustQMethod
from adv_wrappers.training.robust_policy_losses import Radial, RobustMethod, SARegularizer
from adv_wrappers.training.robust_td3 import SADDPG, RobustActorMethod
from adv_wrappers.training.smoothed_training import SmoothedDQN, SmoothedPolicy
from adv_wrappers.training.wocar import Wocar

POLICY_METHODS: dict[str, type[RobustMethod]] = {
    "radial": Radial, "sa": SARegularizer, "wocar": Wocar, "smoothed": SmoothedPolicy,
}  # fmt: skip
"""Those of PPO and A2C."""

Q_METHODS: dict[str, type[RobustQMethod]] = {
    "radial": RadialDQN, "sa": SADQN, "car": CarDQN, "smoothed": SmoothedDQN,
}  # fmt: skip
"""Those of DQN."""

ACTOR_METHODS: dict[str, type[RobustActorMethod]] = {"sa": SADDPG}
"""Those of TD3 and DDPG."""
