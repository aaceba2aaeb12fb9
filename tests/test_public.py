"""The public face: these names and no others, each with a docstring."""

from __future__ import annotations

import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import adv_wrappers as adv
from adv_wrappers import errors, public
from adv_wrappers.errors import AdvWrappersError
from adv_wrappers.threats import all_attacks
from tests.every_case import every_case

BUDGETS = {"L0", "L2", "Linf", "Coupled", "Newest", "Plausible", "Sparse", "Valid"}
TIMING = {"Always", "AtMost", "Bernoulli", "Every", "Never", "Strategic", "Window"}
ATTACKS = {name for name, kind in vars(all_attacks).items() if isinstance(kind, type)}  # one line each, and no other
ACTORS = {"PAAD", "SARL", "ActionPAAD", "Forces", "Hybrid", "Induce", "Timed"}
THREATS = {"ThreatModel", "presets", "threat", "wrap"}
WRAPPERS = {
    "AdversaryEnv", "PerturbAction", "PerturbAgents", "PerturbDynamics", "PerturbObservation", "PerturbReward",
    "PlantBackdoor", "ProbabilisticTiming", "RecordAttackStatistics", "ScheduleBudget", "SingleAgentEnv",
}  # fmt: skip
SCHEDULES = {"LinearSchedule", "SmoothSchedule"}
CALLBACKS = {"RobustnessCallback", "ScheduleBudgetCallback"}
VICTIMS = {
    "Victim",
    "from_module",
    "from_onnx",
    "from_rllib",
    "from_sb3",
    "from_torchscript",
    "load_victim",
    "push_to_hub",
    "save_card",
}
RUNS = {
    "Environment", "Episodes", "Plan", "Report", "aggregate", "assert_robust", "backdoor_rate", "certify",
    "certify_smoothed",
    "evaluate", "imitate", "register", "report", "resilience", "robot_report", "run", "run_suite", "robustness",
    "train_adversary",
    "train_agent",
    "train_critic", "train_dynamics", "train_opponent", "worst_dynamics",
}  # fmt: skip
ERRORS = {"AdvWrappersError"}
PUBLIC = BUDGETS | TIMING | ATTACKS | ACTORS | THREATS | WRAPPERS | SCHEDULES | CALLBACKS | VICTIMS | RUNS | ERRORS


# where the other names that the documentation shows are imported from, the only path of each
ELSEWHERE = {
    "adv_wrappers.adversaries": {"Actor", "Director"},
    "adv_wrappers.atari": {"RawFrames", "ShrinkFrames", "atari", "atari_vec"},
    "adv_wrappers.victims.auxiliary_networks": {"Critic", "load_dynamics"},
    "adv_wrappers.certification.certificate": {"Certificate"},
    "adv_wrappers.certification.ranges": {"certified_ranges"},
    "adv_wrappers.core.budgets.budget": {"Budget"},
    "adv_wrappers.core.perturbation": {"Perturbation"},
    "adv_wrappers.daylight": {"Brightness", "Daylight", "JPEG", "MedianBlur", "Perspective", "Rotation", "Shift"},
    "adv_wrappers.evaluation.statistics.aggregates": {"Aggregates"},
    "adv_wrappers.evaluation.searches.beam": {"beam_search"},
    "adv_wrappers.evaluation.statistics.curves": {"Curves", "curves_of"},
    "adv_wrappers.errors": {kind.__name__ for kind in AdvWrappersError.__subclasses__()},
    "adv_wrappers.rendering.attack_view": {"AttackView"},
    "adv_wrappers.training.models.critic_scan": {"scan_critics"},
    "adv_wrappers.training.resilience.result": {"Resilience"},
    "adv_wrappers.training.agent": {"Hardened"},
    "adv_wrappers.evaluation.searches.fewest_perturbations": {"fewest_perturbations", "resilience_profile"},
    "adv_wrappers.wrappers.adversary_rewards": {"PerturbationCost"},
    "adv_wrappers.environments.dmc": {"dmc"},
    "adv_wrappers.studies": {"AttackSetting", "Entry", "Grid", "Store", "SuiteReport", "suite_cost"},
    "adv_wrappers.wrappers.perturb_action": {"VectorPerturbAction"},
    "adv_wrappers.wrappers.adversary_env": {"VectorAdversaryEnv"},
    "adv_wrappers.wrappers.probabilistic_timing": {"VectorProbabilisticTiming"},
    "adv_wrappers.wrappers.perturb_observation": {"VectorPerturbObservation"},
    "adv_wrappers.wrappers.record_attack_statistics": {"VectorRecordAttackStatistics"},
    "adv_wrappers.wrappers.schedule_budget": {"VectorScheduleBudget"},
    "adv_wrappers.wrappers.order": {"check_order"},
    "adv_wrappers.wrappers.sb3_vec_env": {
        "VecPerturbAction",
        "VecPerturbDynamics",
        "VecPerturbObservation",
        "VecPerturbReward",
        "VecProbabilisticTiming",
        "VecAdversaryEnv",
    },
    "adv_wrappers.wrappers.perturb_dynamics": {"VectorPerturbDynamics"},
    "adv_wrappers.wrappers.perturb_reward": {"VectorPerturbReward"},
}


def test_the_list():
    assert set(adv.__all__) == PUBLIC
    assert len(adv.__all__) == len(set(adv.__all__))


@every_case("name", sorted(PUBLIC))
def test_each_is_there_and_documented(name):
    thing = getattr(adv, name)
    if name == "presets":
        assert all(preset.summary for preset in thing.values())
        return
    assert inspect.getdoc(thing), name
    if inspect.isclass(thing):
        assert thing.__doc__, f"{name} has no docstring of its own"
        own = [m for k, m in vars(thing).items() if inspect.isfunction(m) and not k.startswith("_")]
        assert all(inspect.getdoc(getattr(thing, m.__name__)) for m in own), name


@every_case(("place", "name"), [(place, name) for place, names in ELSEWHERE.items() for name in sorted(names)])
def test_other_names_have_one_place_and_whoever_looks_at_the_top_is_told(place, name):
    assert inspect.getdoc(getattr(importlib.import_module(place), name)), name
    if name == "atari":  # the folder itself
        return
    with pytest.raises(AttributeError, match=f"no attribute '{name}': import it from {re.escape(place)}$"):
        getattr(adv, name)


def test_there_is_no_other_place_than_these():
    assert {place: {*names} for place, names in public._ELSEWHERE.items()} == ELSEWHERE


def test_errors_have_one_root():
    found = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    assert len(found) > 8 and all(issubclass(kind, AdvWrappersError) for kind in found)


@every_case(
    ("name", "hint"),
    [
        ("nothing", "no attribute 'nothing'$"),
        ("Nois", "did you mean Noise"),
        ("FGMS", r"did you mean threat\('fgsm', victim, eps=...\)"),
        ("hop_skip_jmp", "did you mean HopSkipJump|did you mean threat\\('hop-skip-jump'"),
        ("Directr", "did you mean Director, of adv_wrappers.adversaries"),
        ("pgd", "pgd is a preset, threat\\('pgd', victim, eps=...\\), of the class MinBest"),
        ("__wrapped__", "no attribute '__wrapped__'$"),
    ],
)
def test_unknown_names(name, hint):
    with pytest.raises(AttributeError, match=hint):
        getattr(adv, name)


LAZY = """
import importlib.util
import sys
import gymnasium as gym
import adv_wrappers as adv

assert {"adv/fgsm-v0", "adv/rotation-v0", "adv-daylight/Pong-JPEG-v0"} <= {*gym.registry}
assert not hasattr(adv, "__wrapped__") and not hasattr(adv, "_repr_html_") and adv.__version__
assert adv.errors.AdvWrappersError and "torch" not in sys.modules  # a module of the package is imported alone
# a dictionary is read where its attack was not imported before
assert "adv_wrappers.attacks.max_diff" not in sys.modules
how = {"type": "max-diff", "steps": 3, "victim": {"victim": "zoo:cartpole-dqn"}}
threat = {"type": "threat", "on": "observation", "how": how, "within": {"type": "linf", "eps": 0.1}}
found = adv.ThreatModel.from_dict(threat, adv.load_victim)
assert found.how.steps == 3 and found.how.victim.ref == how["victim"]["victim"]
assert adv.presets["pgd"].kind is adv.MinBest and adv.atari.atari and adv.daylight.rotate
import adv_wrappers.public
assert not {"stable_baselines3", "ray", "pettingzoo"} & {name.partition(".")[0] for name in sys.modules}  # extras
adv.load_victim("zoo:pong-ppo")
import torch
from adv_wrappers.bounds.crown_bounds import crown
crown(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(2, 1)), torch.zeros(1, 2), torch.ones(1, 2))
# a compiler takes torch longer than all else, for every command and every worker; the client is for cards of the hub
assert not {"torch._dynamo", "torch._inductor", "huggingface_hub"} & {*sys.modules}
if importlib.util.find_spec("stable_baselines3"):
    adv.RobustnessCallback("noise", log=sys.argv[1])
    assert not {"wandb", "mlflow"} & {*sys.modules}  # where they are installed, and nobody has imported them
from adv_wrappers import *
assert PAAD is adv.PAAD and {"Linf", "Noise", "presets", "train_agent"} <= {*dir(adv)}
"""


def test_names_are_imported_when_they_are_asked_for(tmp_path):
    """And so are packages that take long, in one process: a fresh one takes seconds."""
    done = subprocess.run([sys.executable, "-c", LAZY, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_no_public_name_is_that_of_a_module_of_the_package():
    """Importing a module binds it in the package, where a public name of its own would be lost."""
    root = Path(adv.__file__).parent
    assert PUBLIC & {path.stem for path in (*root.glob("*.py"), *root.glob("*/"))} == set()
