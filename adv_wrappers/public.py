"""The public names of the package, which ``adv_wrappers`` itself has: importing this module imports everything."""

from __future__ import annotations

import difflib
import importlib
from typing import TYPE_CHECKING, Any

from adv_wrappers.adversaries import PAAD, SARL, ActionPAAD, Forces, Hybrid, Induce, Timed
from adv_wrappers.certification.certify import certify
from adv_wrappers.certification.smoothing import certify_smoothed
from adv_wrappers.core.budgets.budget import L0, L2, Linf, Sparse, Valid
from adv_wrappers.core.budgets.frame_stack import Newest
from adv_wrappers.core.budgets.plausible_transitions import Plausible
from adv_wrappers.core.budgets.temporal_coupling import Coupled
from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.core.timing import Always, AtMost, Bernoulli, Every, Never, Strategic, Window
from adv_wrappers.core.training_schedules import LinearSchedule, SmoothSchedule
from adv_wrappers.environments.environment import Environment
from adv_wrappers.environments.registration import register
from adv_wrappers.errors import AdvWrappersError
from adv_wrappers.evaluation.backdoor_rate import backdoor_rate
from adv_wrappers.evaluation.episodes import Episodes
from adv_wrappers.evaluation.evaluate import evaluate
from adv_wrappers.evaluation.rows.report import Report
from adv_wrappers.evaluation.searches.worst_dynamics import worst_dynamics
from adv_wrappers.evaluation.statistics.aggregates import aggregate
from adv_wrappers.studies import Plan, run, run_suite
from adv_wrappers.studies.gate import assert_robust
from adv_wrappers.studies.report.report import report
from adv_wrappers.studies.robot.report import robot_report
from adv_wrappers.threats import all_attacks
from adv_wrappers.threats.all_attacks import *  # noqa: F403 - every attack
from adv_wrappers.threats.presets import presets, threat
from adv_wrappers.training.models.critic_scan import train_critic
from adv_wrappers.training.models.dynamics_model import train_dynamics
from adv_wrappers.training.models.imitation import imitate
from adv_wrappers.victims import (
    Victim,
    from_module,
    from_onnx,
    from_rllib,
    from_sb3,
    from_torchscript,
    load_victim,
    save_card,
)
from adv_wrappers.victims.hub import push_to_hub
from adv_wrappers.wrappers.adversary_env import AdversaryEnv
from adv_wrappers.wrappers.perturb_action import PerturbAction
from adv_wrappers.wrappers.perturb_dynamics import PerturbDynamics
from adv_wrappers.wrappers.perturb_observation import PerturbObservation
from adv_wrappers.wrappers.perturb_reward import PerturbReward
from adv_wrappers.wrappers.plant_backdoor import PlantBackdoor
from adv_wrappers.wrappers.probabilistic_timing import ProbabilisticTiming
from adv_wrappers.wrappers.record_attack_statistics import RecordAttackStatistics
from adv_wrappers.wrappers.schedule_budget import ScheduleBudget
from adv_wrappers.wrappers.single_agent_env import SingleAgentEnv
from adv_wrappers.wrappers.wrap import wrap

if TYPE_CHECKING:
    from adv_wrappers.training.adversary import train_adversary
    from adv_wrappers.training.agent import train_agent
    from adv_wrappers.training.opponent import train_opponent
    from adv_wrappers.training.resilience.resilience import resilience, robustness
    from adv_wrappers.training.sb3.callbacks import RobustnessCallback, ScheduleBudgetCallback
    from adv_wrappers.wrappers.perturb_agents import PerturbAgents

# names and their modules, imported when they are asked for: Stable-Baselines3 and PettingZoo are extras
_LATER = {
    "PerturbAgents": "wrappers.perturb_agents",
    "RobustnessCallback": "training.sb3.callbacks",
    "ScheduleBudgetCallback": "training.sb3.callbacks",
    "resilience": "training.resilience.resilience",
    "robustness": "training.resilience.resilience",
    "train_adversary": "training.adversary",
    "train_agent": "training.agent",
    "train_opponent": "training.opponent",
}


def __getattr__(name: str) -> Any:
    """What needs an extra, and for any other name where it is or what comes close."""
    if name in _LATER:
        try:
            return getattr(importlib.import_module(f"adv_wrappers.{_LATER[name]}"), name)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] != "stable_baselines3":
                raise
            raise ImportError(f"{name} needs Stable-Baselines3: pip install 'adv_wrappers[sb3]'") from error
    raise AttributeError(f"module {__package__!r} has no attribute {name!r}{_hint(name)}")


def _hint(name: str) -> str:
    """Where a name is that the documentation shows, or which public name comes close."""
    word = name.lower().replace("_", "-")
    if name in _PLACES:
        return f": import it from {_PLACES[name]}"
    if word in presets:
        return f": {word} is a preset, threat({word!r}, victim, eps=...), of the class {presets[word].kind.__name__}"
    # the nearest of presets, names in modules and public names
    known = {preset: f"threat({preset!r}, victim, eps=...)" for preset in presets}
    known |= {place.lower(): f"{place}, of {_PLACES[place]}" for place in _PLACES}
    known |= {public.lower(): public for public in __all__}
    close = difflib.get_close_matches(word, known, n=1)
    return f": did you mean {known[close[0]]}?" if close else ""


__all__ = [
    "L0", "L2", "PAAD", "SARL", "ActionPAAD", "AdvWrappersError", "AdversaryEnv", "Always", "AtMost", "Bernoulli",
    "Coupled", "Environment", "Episodes", "Every", "Forces", "Hybrid", "Induce", "LinearSchedule", "Linf", "Never",
    "Newest", "PerturbAction", "PerturbAgents", "PerturbDynamics", "PerturbObservation", "PerturbReward", "Plan",
    "PlantBackdoor", "Plausible", "ProbabilisticTiming", "RecordAttackStatistics", "Report", "RobustnessCallback",
    "ScheduleBudget", "ScheduleBudgetCallback", "SingleAgentEnv", "SmoothSchedule", "Sparse", "Strategic",
    "ThreatModel", "Timed", "Valid", "Victim", "Window", "aggregate", "assert_robust", "backdoor_rate", "certify",
    "certify_smoothed", "evaluate", "from_module", "from_onnx", "from_rllib", "from_sb3", "from_torchscript",
    "imitate", "load_victim", "presets", "push_to_hub", "register", "report", "resilience", "robot_report",
    "robustness", "run", "run_suite",
    "save_card", "threat", "train_adversary", "train_agent", "train_critic", "train_dynamics", "train_opponent",
    "worst_dynamics", "wrap",
    *(name for name, kind in vars(all_attacks).items() if isinstance(kind, type)),
]  # fmt: skip

_ELSEWHERE = {  # where the other names that the documentation shows are imported from
    "adv_wrappers.adversaries": ("Actor", "Director"),
    "adv_wrappers.atari": ("RawFrames", "ShrinkFrames", "atari", "atari_vec"),
    "adv_wrappers.victims.auxiliary_networks": ("Critic", "load_dynamics"),
    "adv_wrappers.studies": ("AttackSetting", "Entry", "Grid", "Store", "SuiteReport", "suite_cost"),
    "adv_wrappers.certification.certificate": ("Certificate",),
    "adv_wrappers.certification.ranges": ("certified_ranges",),
    "adv_wrappers.core.budgets.budget": ("Budget",),
    "adv_wrappers.core.perturbation": ("Perturbation",),
    "adv_wrappers.daylight": ("Brightness", "Daylight", "JPEG", "MedianBlur", "Perspective", "Rotation", "Shift"),
    "adv_wrappers.errors": tuple(kind.__name__ for kind in AdvWrappersError.__subclasses__()),
    "adv_wrappers.evaluation.statistics.aggregates": ("Aggregates",),
    "adv_wrappers.evaluation.searches.beam": ("beam_search",),
    "adv_wrappers.evaluation.statistics.curves": ("Curves", "curves_of"),
    "adv_wrappers.evaluation.searches.fewest_perturbations": ("fewest_perturbations", "resilience_profile"),
    "adv_wrappers.rendering.attack_view": ("AttackView",),
    "adv_wrappers.training.resilience.result": ("Resilience",),
    "adv_wrappers.training.agent": ("Hardened",),
    "adv_wrappers.training.models.critic_scan": ("scan_critics",),
    "adv_wrappers.wrappers.perturb_action": ("VectorPerturbAction",),
    "adv_wrappers.wrappers.perturb_dynamics": ("VectorPerturbDynamics",),
    "adv_wrappers.wrappers.perturb_reward": ("VectorPerturbReward",),
    "adv_wrappers.wrappers.adversary_env": ("VectorAdversaryEnv",),
    "adv_wrappers.wrappers.adversary_rewards": ("PerturbationCost",),
    "adv_wrappers.environments.dmc": ("dmc",),
    "adv_wrappers.wrappers.perturb_observation": ("VectorPerturbObservation",),
    "adv_wrappers.wrappers.record_attack_statistics": ("VectorRecordAttackStatistics",),
    "adv_wrappers.wrappers.schedule_budget": ("VectorScheduleBudget",),
    "adv_wrappers.wrappers.order": ("check_order",),
    "adv_wrappers.wrappers.probabilistic_timing": ("VectorProbabilisticTiming",),
    "adv_wrappers.wrappers.sb3_vec_env": (
        "VecPerturbAction",
        "VecPerturbDynamics",
        "VecPerturbObservation",
        "VecPerturbReward",
        "VecProbabilisticTiming",
        "VecAdversaryEnv",
    ),
}
_PLACES = {name: place for place, names in _ELSEWHERE.items() for name in names}
