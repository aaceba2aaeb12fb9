"""The public face: these names and no others, each with a docstring."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

import adv_wrappers as adv
from adv_wrappers import all_attacks

BUDGETS = {"Budget", "L0", "L2", "Linf", "Newest", "Valid"}
TIMING = {"Always", "AtMost", "Bernoulli", "Every", "Never", "Strategic", "Window"}
ATTACKS = {name for name, kind in vars(all_attacks).items() if isinstance(kind, type)}  # one line each, and no other
DAYLIGHT = {"Brightness", "Daylight", "JPEG", "MedianBlur", "Perspective", "Rotation", "Shift"}
THREATS = {"Perturbation", "ThreatModel", "presets", "threat", "wrap", "check_order"}
ACTORS = {"PAAD", "SARL", "ActionPAAD", "Actor", "Director", "Hybrid"}
TRAINING = {"Critic", "Hardened", "scan_critics", "train_adversary", "train_agent", "train_critic"}
SHELLS = {
    f"{v}{n}"
    for v in ("", "Vector", "Vec")
    for n in ("AdversaryEnv", "PerturbAction", "PerturbObservation", "ProbabilisticTiming")
}
ATARI = {"RawFrames", "ShrinkFrames", "VectorShrinkFrames", "atari", "atari_vec"}
VIEWS = {"AttackView"}
VICTIMS = {"Victim", "from_module", "from_sb3", "load_victim", "save_card"}
RUNS = {"Report", "evaluate", "register"}
ERRORS = {
    "AdvWrappersError",
    "BudgetError",
    "CardError",
    "OrderError",
    "OutputError",
    "SpaceError",
    "ThreatError",
    "TrustError",
    "ValueRangeError",
    "VictimError",
}
PUBLIC = (
    BUDGETS
    | TIMING
    | ATTACKS
    | DAYLIGHT
    | THREATS
    | SHELLS
    | ATARI
    | VIEWS
    | VICTIMS
    | RUNS
    | ERRORS
    | ACTORS
    | TRAINING
)


def test_the_list():
    assert set(adv.__all__) == PUBLIC
    assert len(adv.__all__) == len(set(adv.__all__))


@pytest.mark.parametrize("name", sorted(PUBLIC))
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


def test_errors_have_one_root():
    for name in ERRORS:
        assert issubclass(getattr(adv, name), adv.AdvWrappersError)


def test_unknown_names():
    with pytest.raises(AttributeError, match="nothing"):
        adv.nothing  # noqa: B018


def test_sb3_is_imported_only_when_asked_for():
    """An extra: importing the package must not need it."""
    code = (
        "import sys, adv_wrappers; sys.exit(any(m.split('.')[0] in ('stable_baselines3', 'ray') for m in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
