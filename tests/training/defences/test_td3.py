"""TD3 and DDPG with a regularized actor: by hand, within its bounds, equal to SB3's without it, and in trainings."""

from __future__ import annotations

from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import nn

import adv_wrappers as adv
from adv_wrappers.errors import BudgetError, SpaceError, ThreatError, ValueRangeError, VictimError

pytest.importorskip("stable_baselines3")

import stable_baselines3 as sb3
from stable_baselines3.common.noise import NormalActionNoise

from adv_wrappers.training.agent import train_agent
from adv_wrappers.training.defences.methods import ACTOR_METHODS
from adv_wrappers.training.defences.sa import SADDPG, SARegularizer
from adv_wrappers.training.defences.td3 import RobustDDPG, RobustTD3
from tests.every_case import every_case
from tests.training.defences.dqn_toys import SMALL
from tests.training.defences.toys import Pictures, Reach

BRIEF = {"env_kwargs": {"max_episode_steps": 20}}


def boxed(*layers):
    """An actor as the regularizer sees it; a share of 1 is a radius of 1."""
    return SimpleNamespace(
        net=nn.Sequential(*layers), observed=lambda x: x, boxes=lambda x, share: (x - share, x + share)
    )


def test_the_regularizer_by_hand():
    """Actions (2 x, -x) move by 0.2 and 0.1 within 0.1 of any x."""
    layer = nn.Linear(1, 2, bias=False)
    layer.weight.data = torch.tensor([[2.0], [-1.0]])
    x = torch.randn(7, 1)
    most = 3 * (0.2**2 + 0.1**2) / 2
    found = SADDPG(3.0, 0.1).regularizer(boxed(layer), x, 1.0).detach()
    assert float(found) == pytest.approx(most, rel=1e-5)
    found = SADDPG(3.0, 0.1, form="sgld").regularizer(boxed(layer), x, 1.0).detach()  # whose first step is drawn
    assert 0.3 * most < float(found) < most * (1 + 1e-5)
    assert SADDPG(3.0).regularizer(boxed(layer), x, 0.4) == 0  # eps rises from the middle of the training


def test_no_point_of_the_box_is_further_off_than_the_bound():
    torch.manual_seed(0)
    bounds = boxed(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 3), nn.Tanh())
    x = torch.randn(50, 4)
    most = SADDPG(1.0, 0.2).regularizer(bounds, x, 1.0)
    found = SADDPG(1.0, 0.2, form="sgld").regularizer(bounds, x, 1.0)
    farthest = torch.zeros(50)
    for k in range(200):
        shift = 2 * torch.rand_like(x) - 1
        off = bounds.net(x + 0.2 * (shift.sign() if k % 2 else shift)) - bounds.net(x)
        farthest = torch.maximum(farthest, off.square().mean(1))
    assert 0.5 * farthest.mean() < found <= most and farthest.mean() <= most


@pytest.mark.parametrize(("algorithm", "own"), [("TD3", RobustTD3), ("DDPG", RobustDDPG)])
def test_without_a_regularizer_it_learns_as_that_of_sb3(algorithm, own):
    given = {"learning_starts": 20, "batch_size": 8, "seed": 3, "device": "cpu", "policy_kwargs": {"net_arch": [8]}}
    noise = NormalActionNoise(np.zeros(1), np.full(1, 0.2))
    theirs = getattr(sb3, algorithm)("MlpPolicy", gym.make("Pendulum-v1"), action_noise=noise, **given).learn(40)
    ours = own("MlpPolicy", gym.make("Pendulum-v1"), exploration_noise=0.2, **given).learn(40)
    for name, weight in theirs.policy.state_dict().items():
        assert torch.equal(weight, ours.policy.state_dict()[name]), name


@pytest.mark.parametrize(
    ("algorithm", "robust"),
    [pytest.param("ddpg", "sa", marks=pytest.mark.slow), ("td3", SADDPG(2.0, form="sgld", steps=2))],
)
def test_it_trains_to_a_card(algorithm, robust, tmp_path):
    hardened = train_agent(
        "Pendulum-v1", None, 0.05, 64, algorithm, robust=robust, scale=(1.0, 1.0, 8.0), out=tmp_path, **SMALL, **BRIEF
    )
    assert [row["steps"] for row in hardened.record] == [32, 64]
    assert all((row["attacked"] is None) is (robust is None) for row in hardened.record)
    card, x = adv.load_victim(f"card:{tmp_path}"), torch.randn(9, 3)
    assert torch.equal(card.act_on(x), hardened.victim.act_on(x)) and card.scale is None
    assert card.q(x, torch.zeros(9, 1)) is not None and card.act_on(x).abs().max() <= 2
    assert len(card.card["network"]["critics"]) == (2 if algorithm == "td3" else 1)
    if robust is not None:
        assert card.card["training"]["robust"]["type"] == "sa-ddpg"


def test_the_regularizer_is_what_is_learned_by():
    """With weight 0 the weights are those of plain training, to the bit."""
    few = {**SMALL, "checks": 1, "episodes": 1}
    ends = [
        train_agent("Pendulum-v1", None, 0.05, 64, "td3", robust=robust, **few, **BRIEF).victim.fingerprint()
        for robust in (None, SADDPG(0.0), SADDPG(1.0, 1.0))
    ]
    assert ends[0] == ends[1] != ends[2]


@pytest.mark.slow
def test_it_trains_against_an_adversary_that_learns():
    adversary = {"n_steps": 16, "n_epochs": 1, "batch_size": 32}
    hardened = train_agent(Reach, "pa-ad", 0.1, 128, "td3", phase=64, adversary_settings=adversary, **SMALL)
    assert hardened.threat is not None and all(row["adversary_steps"] >= 64 for row in hardened.record)


@every_case(
    ("error", "message", "env", "given"),
    [
        (SpaceError, "td3 is for actions in a Box", "CartPole-v1", {}),
        (SpaceError, r"ddpg takes observations of float \[n\]", Pictures, {"algorithm": "ddpg"}),
        (VictimError, "td3 begins from scratch", "Pendulum-v1", {"victim": "zoo:cartpole-dqn"}),
        (
            ThreatError,
            r"must be 'sa', or a value such as SADDPG\(\) for td3, got 'radial', of ppo and a2c and dqn",
            Reach,
            {"robust": "radial"},
        ),
        (ThreatError, "for td3, got SARegularizer", Reach, {"robust": SARegularizer()}),
        (ThreatError, "needs a budget", Reach, {"robust": "sa", "eps": None}),
        (BudgetError, "scale", Reach, {"robust": "sa", "scale": "victim"}),
        (ValueRangeError, "exploration_noise", Reach, {"settings": {"exploration_noise": -1.0}}),
    ],
)
def test_what_cannot_be_trained_is_refused(error, message, env, given):
    every = {"adversary": None, "eps": 0.1, "steps": 64, "algorithm": "td3", **SMALL, **given}
    with pytest.raises(error, match=message):
        train_agent(env, **every)


@every_case("wrong", [{"weight": -1.0}, {"eps": 1.5}, {"form": "pgd"}, {"steps": 0}, {"noise": -1.0}])
def test_numbers_out_of_range(wrong):
    with pytest.raises(ValueRangeError, match=next(iter(wrong))):
        SADDPG(**wrong)
    assert [*ACTOR_METHODS] == ["sa"]
