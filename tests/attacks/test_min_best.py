"""MinBest on linear victims, where the best step is known."""

from __future__ import annotations

import torch

from adv_wrappers import MinBest, threat
from adv_wrappers.core.budgets.budget import Linf
from tests.core.helpers import chooser, context, linear, mlp, randn

WEIGHT = randn(2, 4)
X = randn(8, 4, seed=2)


def test_sampled_victims_lose_probability():
    victim = chooser(mlp(4, 3), select="sample")
    y = MinBest(victim, steps=10, step=0.2)(X, context(X, Linf(0.3)))
    best = victim.params(X).argmax(-1, keepdim=True)
    before, after = (victim.params(x).softmax(-1).gather(1, best) for x in (X, y))
    assert (after < before).all()


def test_q_values_far_apart_still_have_a_gradient():
    victim = chooser(linear(1000 * WEIGHT), "q", actions=2)
    x = 5 * X
    assert not torch.equal(MinBest(victim)(x, context(x, Linf(0.3))), x)
    underflown = MinBest(victim, loss="cross-entropy")(x, context(x, Linf(0.3)))
    gaps = victim.params(x).diff(dim=1).abs().flatten() > 800
    assert gaps.any() and torch.equal(underflown[gaps], x[gaps])


def test_presets():
    victim = chooser(mlp(4, 3))
    assert threat("fgsm", victim, eps=1).how == MinBest(victim)
    assert threat("pgd", victim, eps=1).how == MinBest(
        victim, steps=10, step=0.5, restarts=3, keep="best", schedule="linear"
    )
