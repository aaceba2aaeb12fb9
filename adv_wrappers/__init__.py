"""Attack and harden reinforcement-learning agents through Gymnasium wrappers.

A threat is a value: what is done to observations or actions, within which budget, and when. One engine applies it to
single environments, vectors and SB3 ``VecEnv``s alike::

    import gymnasium as gym
    import adv_wrappers as adv

    victim = adv.load_victim("zoo:hopper-ppo")
    env = adv.PerturbObservation(gym.make("Hopper-v5"), adv.MaxDiff(victim), within=adv.Linf(0.075, scale="victim"))
    report = adv.evaluate(victim, "Hopper-v5", ["noise:eps=0.075,scale=victim", "max-diff:eps=0.075,scale=victim"])
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

from adv_wrappers.actions.flip import ActionFlip
from adv_wrappers.actions.noise import ActionNoise
from adv_wrappers.actions.worst import WorstAction
from adv_wrappers.attacks.carlini_wagner import CarliniWagner
from adv_wrappers.attacks.max_diff import MaxDiff
from adv_wrappers.attacks.max_worst import MaxWorst
from adv_wrappers.attacks.min_best import MinBest
from adv_wrappers.attacks.min_q import MinQ
from adv_wrappers.attacks.momentum import Momentum
from adv_wrappers.attacks.noise import Noise
from adv_wrappers.attacks.robust_sarsa import RobustSarsa
from adv_wrappers.core.balls import L0, L2, Linf
from adv_wrappers.core.budgets import Budget, Valid
from adv_wrappers.core.errors import (
    AdvWrappersError,
    BudgetError,
    CardError,
    OrderError,
    SpaceError,
    ThreatError,
    TrustError,
    ValueRangeError,
    VictimError,
)
from adv_wrappers.core.frames import Newest
from adv_wrappers.core.perturbation import Perturbation
from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.daylight import JPEG, Brightness, Daylight, MedianBlur, Perspective, Rotation, Shift
from adv_wrappers.daylight_ids import register_daylight
from adv_wrappers.evaluation.episodes import evaluate
from adv_wrappers.evaluation.report import Report
from adv_wrappers.presets import presets, threat
from adv_wrappers.registration import register, register_presets
from adv_wrappers.strategic import Strategic
from adv_wrappers.timing import Always, AtMost, Bernoulli, Every, Never, Window
from adv_wrappers.victims import Victim, from_module, from_sb3, load_victim
from adv_wrappers.wrappers.action import PerturbAction, VectorPerturbAction
from adv_wrappers.wrappers.atari import atari, atari_vec
from adv_wrappers.wrappers.observation import PerturbObservation, VectorPerturbObservation
from adv_wrappers.wrappers.order import check_order
from adv_wrappers.wrappers.screens import RawFrames
from adv_wrappers.wrappers.shrink import ShrinkFrames, VectorShrinkFrames
from adv_wrappers.wrappers.stack import wrap
from adv_wrappers.wrappers.timing import ProbabilisticTiming, VectorProbabilisticTiming
from adv_wrappers.wrappers.view import AttackView

if TYPE_CHECKING:
    from adv_wrappers.wrappers.sb3 import VecPerturbAction, VecPerturbObservation, VecProbabilisticTiming

__version__ = "0.1.0"

_SB3 = ("VecPerturbAction", "VecPerturbObservation", "VecProbabilisticTiming")


def __getattr__(name: str) -> Any:
    """The SB3 shells, imported when they are asked for: Stable-Baselines3 is an extra."""
    if name in _SB3:
        from adv_wrappers.wrappers import sb3

        return getattr(sb3, name)
    word = name.lower().replace("_", "-")
    close = difflib.get_close_matches(word, [public.lower() for public in __all__], n=1)
    if word in presets:
        hint = f": {word} is a preset, threat({word!r}, victim, eps=...), of the class {presets[word].kind.__name__}"
    elif close:
        hint = f": did you mean {next(public for public in __all__ if public.lower() == close[0])}?"
    else:
        hint = ""
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}{hint}")


register_presets()
register_daylight()

__all__ = [
    "JPEG", "L0", "L2", "ActionFlip", "ActionNoise", "AdvWrappersError", "Always", "AtMost", "AttackView", "Bernoulli",
    "Brightness", "Budget", "BudgetError", "CardError", "CarliniWagner", "Daylight", "Every", "Linf", "MaxDiff",
    "MaxWorst", "MedianBlur", "MinBest", "MinQ", "Momentum", "Never", "Newest", "Noise", "OrderError", "Perspective",
    "PerturbAction", "PerturbObservation", "Perturbation", "ProbabilisticTiming", "RawFrames", "Report", "RobustSarsa",
    "Rotation", "Shift", "ShrinkFrames", "SpaceError", "Strategic", "ThreatError", "ThreatModel", "TrustError", "Valid",
    "ValueRangeError", "VecPerturbAction", "VecPerturbObservation", "VecProbabilisticTiming", "VectorPerturbAction",
    "VectorPerturbObservation", "VectorProbabilisticTiming", "VectorShrinkFrames", "Victim", "VictimError", "Window",
    "WorstAction", "atari", "atari_vec", "check_order", "evaluate", "from_module", "from_sb3", "load_victim", "presets",
    "register", "threat", "wrap",
]  # fmt: skip
