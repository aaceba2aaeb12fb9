"""Learned: the budget of a hybrid's parts, what tells two adversaries apart, and directors of one's own."""

from __future__ import annotations

import gymnasium as gym
import pytest
import torch

import adv_wrappers as adv
from tests.core.helpers import context, randn

A2C = adv.load_victim("zoo:cartpole-a2c")
DQN = adv.load_victim("zoo:cartpole-dqn")
X = randn(5, 4, seed=3).float()


def test_the_action_part_of_a_hybrid_has_its_own_budget(tmp_path):
    hopper = adv.load_victim("zoo:hopper-ppo")
    hybrid = adv.Hybrid(adv.PAAD(), adv.ActionPAAD(), reach=adv.Linf(0.1)).against(hopper)
    director = adv.Director(torch.nn.Sequential(torch.nn.Linear(11, 3)), discrete=False)
    adv.Learned(director, hybrid).save(tmp_path, within=adv.Linf(0.5, scale="victim"))
    parts = {part: adv.Learned(card=str(tmp_path), part=part).within for part in ("action", "observation")}
    assert parts == {"action": adv.Linf(0.1), "observation": adv.Linf(0.5, scale="victim")}
    env = adv.PerturbAction(gym.make("Hopper-v5"), f"learned:card={tmp_path},part=action")
    assert env.threat.budget == adv.Linf(0.1)


def test_a_report_names_the_folder(tmp_path):
    director = adv.Director(torch.nn.Sequential(torch.nn.Linear(4, 1)), discrete=False)
    both = [adv.Learned(director, adv.PAAD(A2C)).save(tmp_path / name, adv.Linf(0.05)) for name in ("a", "b")]
    report = adv.evaluate(A2C, "CartPole-v1", both, episodes=1)
    assert [row["threat"] for row in report.threats[1:]] == ["learned pa-ad a:eps=0.05", "learned pa-ad b:eps=0.05"]


@pytest.mark.parametrize(
    ("victim", "steer", "match"),
    [
        (A2C, torch.zeros(5, 7), r"steers of shape \(5, 1\), got \(5, 7\)"),
        (A2C, torch.full((5, 1), torch.nan), "finite steers"),
        (DQN, torch.zeros(5), "whole numbers below 2"),
        (DQN, torch.full((5,), 9), "whole numbers below 2"),
        (DQN, torch.zeros(3, dtype=torch.int64), r"shape \(5,\), got \(3,\)"),
    ],
)
def test_directors_of_ones_own_are_checked(victim, steer, match):
    learned = adv.Learned(lambda x: steer, adv.PAAD(victim))
    with pytest.raises(adv.ValueRangeError, match=match):
        learned(X, context(X, adv.Linf(0.1)))


def test_steers_beyond_their_box_are_clipped():
    far, near = (adv.Learned(lambda x, s=s: torch.full((5, 4), s), adv.SARL()) for s in (7.0, 1.0))
    assert torch.equal(far(X, context(X, adv.Linf(0.1))), near(X, context(X, adv.Linf(0.1))))
