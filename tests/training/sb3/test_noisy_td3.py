"""TD3 and DDPG with noise: equal to SB3's, in trainings, and what they refuse."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch

import adv_wrappers as adv
from adv_wrappers.errors import SpaceError, ThreatError, ValueRangeError, VictimError

pytest.importorskip("stable_baselines3")

import stable_baselines3 as sb3
from stable_baselines3.common.noise import NormalActionNoise

from adv_wrappers.training.agent import train_agent
from adv_wrappers.training.sb3.noisy_td3 import NoisyDDPG, NoisyTD3
from tests.every_case import every_case
from tests.training.defences.dqn_toys import SMALL
from tests.training.defences.toys import Pictures, Reach

BRIEF = {"env_kwargs": {"max_episode_steps": 20}}


@pytest.mark.parametrize(("algorithm", "own"), [("TD3", NoisyTD3), ("DDPG", NoisyDDPG)])
def test_it_learns_as_that_of_sb3(algorithm, own):
    given = {"learning_starts": 20, "batch_size": 8, "seed": 3, "device": "cpu", "policy_kwargs": {"net_arch": [8]}}
    noise = NormalActionNoise(np.zeros(1), np.full(1, 0.2))
    theirs = getattr(sb3, algorithm)("MlpPolicy", gym.make("Pendulum-v1"), action_noise=noise, **given).learn(40)
    ours = own("MlpPolicy", gym.make("Pendulum-v1"), exploration_noise=0.2, **given).learn(40)
    for name, weight in theirs.policy.state_dict().items():
        assert torch.equal(weight, ours.policy.state_dict()[name]), name


@pytest.mark.parametrize("algorithm", [pytest.param("ddpg", marks=pytest.mark.slow), "td3"])
def test_it_trains_to_a_card(algorithm, tmp_path):
    hardened = train_agent("Pendulum-v1", None, steps=64, algorithm=algorithm, out=tmp_path, **SMALL, **BRIEF)
    assert [row["steps"] for row in hardened.record] == [32, 64]
    card, x = adv.load_victim(f"card:{tmp_path}"), torch.randn(9, 3)
    assert torch.equal(card.act_on(x), hardened.victim.act_on(x)) and card.scale is None
    assert card.q(x, torch.zeros(9, 1)) is not None and card.act_on(x).abs().max() <= 2
    assert len(card.card["network"]["critics"]) == (2 if algorithm == "td3" else 1)


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
        (ThreatError, "robust= is for ppo, a2c and dqn, not for td3", Reach, {"robust": "sa"}),
        (ValueRangeError, "exploration_noise", Reach, {"settings": {"exploration_noise": -1.0}}),
    ],
)
def test_what_cannot_be_trained_is_refused(error, message, env, given):
    every = {"adversary": None, "eps": 0.1, "steps": 64, "algorithm": "td3", **SMALL, **given}
    with pytest.raises(error, match=message):
        train_agent(env, **every)
