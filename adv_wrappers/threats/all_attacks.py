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
from adv_wrappers.attacks.max_worst import MaxWorst as MaxWorst
from adv_wrappers.attacks.momentum import Momentum as Momentum
from adv_wrappers.attacks.min_q import MinQ as MinQ
from adv_wrappers.attacks.min_value import MinValue as MinValue
from adv_wrappers.attacks.max_diff import MaxDiff as MaxDiff
from adv_wrappers.attacks.robust_sarsa import RobustSarsa as RobustSarsa
from adv_wrappers.attacks.carlini_wagner import CarliniWagner as CarliniWagner
from adv_wrappers.attacks.square import Square as Square
from adv_wrappers.attacks.hop_skip_jump import HopSkipJump as HopSkipJump
from adv_wrappers.attacks.discrete_search import DiscreteSearch as DiscreteSearch
from adv_wrappers.attacks.model_based import ModelBased as ModelBased
from adv_wrappers.faults.sensors import SensorBias as SensorBias
from adv_wrappers.faults.sensors import SensorDrift as SensorDrift
from adv_wrappers.faults.sensors import Quantization as Quantization
from adv_wrappers.faults.sensors import Saturation as Saturation
from adv_wrappers.faults.sensors import StuckSensor as StuckSensor
from adv_wrappers.faults.sensors import SensorDropout as SensorDropout
from adv_wrappers.faults.sensors import SwappedSensors as SwappedSensors
from adv_wrappers.faults.delays import ObservationDelay as ObservationDelay
from adv_wrappers.faults.delays import ObservationJitter as ObservationJitter
from adv_wrappers.faults.delays import ObservationLoss as ObservationLoss
from adv_wrappers.faults.sensors import Occlusion as Occlusion
from adv_wrappers.faults.trigger import Trigger as Trigger
from adv_wrappers.adversaries.learned import Learned as Learned
from adv_wrappers.faults.actuators import ActionNoise as ActionNoise
from adv_wrappers.attacks.action_attacks import ActionFlip as ActionFlip
from adv_wrappers.attacks.action_attacks import WorstAction as WorstAction
from adv_wrappers.faults.delays import ActionDelay as ActionDelay
from adv_wrappers.faults.delays import ActionLoss as ActionLoss
from adv_wrappers.attacks.model_based import ActionModelBased as ActionModelBased
from adv_wrappers.faults.dynamics import DynamicsNoise as DynamicsNoise
from adv_wrappers.faults.dynamics import FixedDynamics as FixedDynamics
from adv_wrappers.faults.rewards import RewardNoise as RewardNoise
from adv_wrappers.faults.rewards import RewardFlip as RewardFlip
from adv_wrappers.faults.rewards import RewardClip as RewardClip
from adv_wrappers.faults.rewards import RewardDelay as RewardDelay
