"""All attacks, a line each: a class that is imported here is a preset under its ``name``.

Presets, the names of ``adv_wrappers`` itself, the pages of the documentation and the laws that test every attack are
made from this list; the daylight transforms are listed in :mod:`adv_wrappers.daylight`. Tables keep its order.
"""

# ruff: noqa: I001

from adv_wrappers.attacks.noise import Noise as Noise
from adv_wrappers.attacks.noise import Flip as Flip
from adv_wrappers.attacks.min_best import MinBest as MinBest
from adv_wrappers.attacks.apgd import APGD as APGD
from adv_wrappers.attacks.multi_targeted import MultiTargeted as MultiTargeted
from adv_wrappers.attacks.raise_probability_of_worst_action import MaxWorst as MaxWorst
from adv_wrappers.attacks.momentum import Momentum as Momentum
from adv_wrappers.attacks.min_q import MinQ as MinQ
from adv_wrappers.attacks.critic_value_attack import MinValue as MinValue
from adv_wrappers.attacks.max_diff import MaxDiff as MaxDiff
from adv_wrappers.attacks.robust_sarsa import RobustSarsa as RobustSarsa
from adv_wrappers.attacks.carlini_wagner import CarliniWagner as CarliniWagner
from adv_wrappers.attacks.square import Square as Square
from adv_wrappers.attacks.hop_skip_jump import HopSkipJump as HopSkipJump
from adv_wrappers.attacks.discrete_search import DiscreteSearch as DiscreteSearch
from adv_wrappers.attacks.model_based import ModelBased as ModelBased
from adv_wrappers.sensors.bias_and_drift import SensorBias as SensorBias
from adv_wrappers.sensors.bias_and_drift import SensorDrift as SensorDrift
from adv_wrappers.sensors.quantization import Quantization as Quantization
from adv_wrappers.sensors.saturation import Saturation as Saturation
from adv_wrappers.sensors.stuck_sensor import StuckSensor as StuckSensor
from adv_wrappers.sensors.sensor_dropout import SensorDropout as SensorDropout
from adv_wrappers.sensors.swapped_sensors import SwappedSensors as SwappedSensors
from adv_wrappers.sensors.delayed_and_lost_observations import ObservationDelay as ObservationDelay
from adv_wrappers.sensors.delayed_and_lost_observations import ObservationJitter as ObservationJitter
from adv_wrappers.sensors.delayed_and_lost_observations import ObservationLoss as ObservationLoss
from adv_wrappers.sensors.occlusion import Occlusion as Occlusion
from adv_wrappers.sensors.trigger import Trigger as Trigger
from adv_wrappers.adversaries.learned_attack import Learned as Learned
from adv_wrappers.actions.noise import ActionNoise as ActionNoise
from adv_wrappers.actions.action_flip_baseline import ActionFlip as ActionFlip
from adv_wrappers.actions.least_valued_action import WorstAction as WorstAction
from adv_wrappers.actions.delayed_and_lost_actions import ActionDelay as ActionDelay
from adv_wrappers.actions.delayed_and_lost_actions import ActionLoss as ActionLoss
from adv_wrappers.attacks.model_based import ActionModelBased as ActionModelBased
from adv_wrappers.dynamics.noise import DynamicsNoise as DynamicsNoise
from adv_wrappers.dynamics.fixed_parameters import FixedDynamics as FixedDynamics
from adv_wrappers.rewards.noise import RewardNoise as RewardNoise
from adv_wrappers.rewards.flipped_clipped_and_delayed_rewards import RewardFlip as RewardFlip
from adv_wrappers.rewards.flipped_clipped_and_delayed_rewards import RewardClip as RewardClip
from adv_wrappers.rewards.flipped_clipped_and_delayed_rewards import RewardDelay as RewardDelay
