"""Targets: their losses, their texts, and what is refused."""

from __future__ import annotations

import math

import pytest
import torch
from gymnasium import spaces

import adv_wrappers as adv
from adv_wrappers.attacks.targets import (
    TARGETS,
    Fall,
    LossFunction,
    PredictedReward,
    Reach,
    VictimValue,
    as_target,
    target_of,
    target_text,
)
from adv_wrappers.core.serialization import decode
from adv_wrappers.environments.dmc import dmc
from adv_wrappers.errors import ThreatError, ValueRangeError, VictimError
from tests.every_case import every_case

OBS, REWARD = torch.tensor([[[1.0, -2.0, 3.0], [0.0, 0.5, -1.0]]]), torch.tensor([[0.25, 4.0]])
NAMES = ("height", "angle[0]", "angle[1]")


def test_distances_are_squared_and_weighted():
    assert Reach((0, 2), (0.0, 1.0))(OBS, REWARD).tolist() == [[1 + 4, 0 + 4]]
    assert Reach((0, 2), (0.0, 1.0), (2.0, 0.5))(OBS, REWARD).tolist() == [[2 + 2, 0 + 2]]


def test_other_losses():
    assert Fall(1)(OBS, REWARD).tolist() == [[-2.0, 0.5]]
    assert PredictedReward()(OBS, REWARD) is REWARD
    assert LossFunction(lambda obs: obs.sum(-1))(OBS, REWARD).tolist() == [[2.0, -0.5]]
    critic = torch.nn.Linear(3, 1)
    victim = adv.from_module(
        torch.nn.Linear(3, 1), spaces.Box(-9, 9, (3,)), spaces.Box(-1, 1, (1,)), "mean", value=critic
    )
    torch.testing.assert_close(VictimValue(victim)(OBS, REWARD), critic(OBS).squeeze(-1))


def test_names_become_numbers():
    assert Reach(("angle[1]", 0), (1.0, 2.0)).named(NAMES, 3) == Reach((2, 0), (1.0, 2.0))
    assert Fall(-1).named((), 3) == Fall(2)
    for wrong, words in (("width", "height, angle"), (3, "has 3 numbers"), (-4, "has 3 numbers")):
        with pytest.raises(ValueRangeError, match=words):
            Fall(wrong).named(NAMES, 3)


@every_case(
    ("text", "target"),
    [
        ("height=0", Reach(("height",), (0.0,))),
        (" 0 = 1.5 & angle[1]=-1", Reach((0, "angle[1]"), (1.5, -1.0))),
        ("height", Fall("height")),
        ("2", Fall(2)),
        (2, Fall(2)),
        ("reward", PredictedReward()),
        ("victim-value", VictimValue()),
    ],
)
def test_texts(text, target):
    assert as_target(text) == target
    assert as_target(target_text(target)) == target
    assert decode(target.to_dict()) == target


def test_what_has_no_text():
    function = as_target(lambda obs: obs.sum(-1))
    assert target_text(function) is None
    assert target_text(Reach((0,), (1.0,), (2.0,))) is None
    with pytest.raises(ThreatError, match="no JSON form"):
        function.to_dict()


@every_case("text", ["", "height=", "height=zero", "height=0&", "=1", "a=1=2", None, 1.5, True])
def test_other_texts_are_refused(text):
    with pytest.raises(ThreatError, match="target"):
        as_target(text)


@every_case(
    "arguments", [((), ()), ((0,), ()), ((0,), (math.nan,)), ((0,), (1.0,), (1.0, 2.0)), ((0,), (1.0,), (math.inf,))]
)
def test_reach_needs_a_value_a_feature(arguments):
    with pytest.raises(ValueRangeError, match=r"target|one value"):
        Reach(*arguments)


def test_functions_return_a_number_a_state():
    with pytest.raises(ThreatError, match=r"one number a state, \(1, 2\), got \(1, 2, 3\)"):
        LossFunction(lambda obs: obs)(OBS, REWARD)
    with pytest.raises(ThreatError, match="got float"):
        LossFunction(lambda obs: 1.0)(OBS, REWARD)


def test_a_value_needs_a_critic():
    victim = adv.from_module(torch.nn.Linear(3, 1), spaces.Box(-9, 9, (3,)), spaces.Box(-1, 1, (1,)), "mean")
    with pytest.raises(VictimError, match="state value"):
        VictimValue(victim)


def test_targets_of_environments_are_those_of_the_paper():
    assert target_of("dm_control/cartpole-balance-v0") is TARGETS["dm_control/cartpole"]
    assert target_of("Hopper-v5") == Fall(0) and target_of("CartPole-v1") is None and target_of(None) is None


@pytest.mark.slow
def test_targets_are_features_of_their_environments():
    pytest.importorskip("dm_control")
    for task, feature, upright in (("cartpole-balance", 1, 4.0), ("walker-stand", 0, None), ("fish-upright", 7, None)):
        env = dmc(f"dm_control/{task}-v0")
        obs, _ = env.reset(seed=0)
        target = target_of(f"dm_control/{task}-v0").named(env.get_wrapper_attr("feature_names"), len(obs))
        assert target.indices == (feature,)
        if upright is not None:
            assert float(target(torch.from_numpy(obs), torch.zeros(()))) == pytest.approx(upright, abs=0.01)
