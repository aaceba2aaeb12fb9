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
import importlib
from typing import TYPE_CHECKING, Any

from adv_wrappers import all_attacks
from adv_wrappers.adversaries import PAAD, SARL, ActionPAAD, Actor, Director, Hybrid
from adv_wrappers.all_attacks import *  # noqa: F403 - every attack
from adv_wrappers.atari.daylight_ids import register_daylight
from adv_wrappers.atari.preprocessing import atari, atari_vec
from adv_wrappers.atari.screens import RawFrames, ShrinkFrames, VectorShrinkFrames
from adv_wrappers.attacks.critic import Critic
from adv_wrappers.core.budgets import L0, L2, Budget, Linf, Valid
from adv_wrappers.core.newest import Newest
from adv_wrappers.core.perturbation import Perturbation
from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.daylight import JPEG, Brightness, Daylight, MedianBlur, Perspective, Rotation, Shift
from adv_wrappers.errors import (
    AdvWrappersError,
    BudgetError,
    CardError,
    OrderError,
    OutputError,
    SpaceError,
    ThreatError,
    TrustError,
    ValueRangeError,
    VictimError,
)
from adv_wrappers.evaluation.evaluate import evaluate
from adv_wrappers.evaluation.report import Report
from adv_wrappers.presets import presets, threat
from adv_wrappers.registration import register, register_presets
from adv_wrappers.rendering.attack_view import AttackView
from adv_wrappers.timing import Always, AtMost, Bernoulli, Every, Never, Strategic, Window
from adv_wrappers.training.critic_scan import scan_critics
from adv_wrappers.training.train_critic import train_critic
from adv_wrappers.victims import Victim, from_module, from_sb3, load_victim, save_card
from adv_wrappers.wrappers.action import PerturbAction, VectorPerturbAction
from adv_wrappers.wrappers.adversary_env import AdversaryEnv, VectorAdversaryEnv
from adv_wrappers.wrappers.gate import ProbabilisticTiming, VectorProbabilisticTiming
from adv_wrappers.wrappers.observation import PerturbObservation, VectorPerturbObservation
from adv_wrappers.wrappers.order import check_order
from adv_wrappers.wrappers.stack import wrap

if TYPE_CHECKING:
    from adv_wrappers.training.train_adversary import train_adversary
    from adv_wrappers.training.train_agent import Hardened, train_agent
    from adv_wrappers.wrappers.sb3 import VecPerturbAction, VecPerturbObservation, VecProbabilisticTiming
    from adv_wrappers.wrappers.sb3_adversary_env import VecAdversaryEnv

__version__ = "0.1.0"

_SB3 = {  # imported when they are asked for: Stable-Baselines3 is an extra
    "VecAdversaryEnv": "wrappers.sb3_adversary_env", "VecPerturbAction": "wrappers.sb3",
    "VecPerturbObservation": "wrappers.sb3", "VecProbabilisticTiming": "wrappers.sb3",
    "Hardened": "training.train_agent", "train_adversary": "training.train_adversary",
    "train_agent": "training.train_agent",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    """What needs Stable-Baselines3."""
    if name in _SB3:
        try:
            return getattr(importlib.import_module(f"adv_wrappers.{_SB3[name]}"), name)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] != "stable_baselines3":
                raise
            raise ImportError(f"{name} needs Stable-Baselines3: pip install 'adv_wrappers[sb3]'") from error
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
    "JPEG", "L0", "L2", "PAAD", "SARL", "ActionPAAD", "Actor", "AdvWrappersError", "AdversaryEnv", "Always",
    "AtMost", "AttackView", "Bernoulli", "Brightness", "Budget", "BudgetError", "CardError", "Critic", "Daylight",
    "Director", "Every", "Hardened", "Hybrid", "Linf", "MedianBlur", "Never", "Newest", "OrderError",
    "OutputError", "Perspective", "PerturbAction", "PerturbObservation", "Perturbation", "ProbabilisticTiming",
    "RawFrames", "Report", "Rotation", "Shift", "ShrinkFrames", "SpaceError", "Strategic", "ThreatError",
    "ThreatModel", "TrustError", "Valid", "ValueRangeError", "VecAdversaryEnv", "VecPerturbAction",
    "VecPerturbObservation", "VecProbabilisticTiming", "VectorAdversaryEnv", "VectorPerturbAction",
    "VectorPerturbObservation", "VectorProbabilisticTiming", "VectorShrinkFrames", "Victim", "VictimError",
    "Window", "atari", "atari_vec", "check_order", "evaluate", "from_module", "from_sb3", "load_victim", "presets",
    "register", "save_card", "scan_critics", "threat", "train_adversary", "train_agent", "train_critic", "wrap",
    *(name for name, kind in vars(all_attacks).items() if isinstance(kind, type)),
]  # fmt: skip
