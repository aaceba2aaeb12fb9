"""What lower precision does to a victim is part of the report."""

from __future__ import annotations

import numpy as np
import torch
from gymnasium import spaces
from torch import nn

from adv_wrappers import evaluate, from_module


def test_flipped_actions_are_reported():
    net = nn.Linear(4, 2)
    with torch.no_grad():
        net.weight.copy_(torch.tensor([[0.0, 0, 1, 0.2], [0, 0, -1, -0.2]]))
        net.bias.fill_(300.0)  # so large that bfloat16 sees no difference and takes the first action
    victim = from_module(net, spaces.Box(-np.inf, np.inf, (4,), np.float32), spaces.Discrete(2), "q")
    threats = ["pgd:eps=0.01", "pgd:eps=0.01,precision=bf16", "noise:eps=0.01"]
    report = evaluate(victim, "CartPole-v1", threats, episodes=3)
    full, low, noise = report.threats[1:]
    assert full["flipped_actions"] is noise["flipped_actions"] is None
    assert 0.03 < low["flipped_actions"] < 0.8
    assert [w for w in report.warnings if "in the precision of the attack the victim acts otherwise at" in w]


def test_flips_differ_between_agents():
    """Q-values of 100 that differ by 0.1 are ties in bfloat16; logits are not."""
    threats = ["min-best:eps=0.1,steps=10,step=0.25,random_start=true,precision=bf16"]
    q, logits = (evaluate(f"zoo:cartpole-{name}", "CartPole-v1", threats, episodes=2) for name in ("dqn", "ppo"))
    assert q.threats[1]["flipped_actions"] > 0.5 and any("in the precision" in w for w in q.warnings)
    assert logits.threats[1]["flipped_actions"] < 0.05
    assert any("in the precision" in w for w in logits.warnings) is (logits.threats[1]["flipped_actions"] > 0.01)
