"""MinBest on linear victims, where the best step is known."""

from __future__ import annotations

import torch

from adv_wrappers import MinBest, threat
from adv_wrappers.core.budgets.budget import L2, Linf
from tests.core.helpers import chooser, context, linear, mlp, randn
from tests.every_case import every_case

WEIGHT = randn(2, 4)
X = randn(8, 4, seed=2)


@every_case("kind", ["logits", "q"])
@every_case("loss", [None, "margin", "cross-entropy"])
@every_case(
    "steps", [{"steps": 1, "step": 1.0}, {"steps": 5, "step": 0.5}, {"steps": 9, "step": 0.5, "random_start": True}]
)
def test_two_actions_of_a_linear_victim(kind, loss, steps):
    """The gradient is the difference of the weights wherever one looks: its signs are the answer."""
    victim = chooser(linear(WEIGHT), kind, actions=2)
    y = MinBest(victim, **steps, loss=loss)(X, context(X, Linf(0.3)))
    best = victim.params(X).argmax(-1)
    torch.testing.assert_close(y, X + 0.3 * (WEIGHT[1 - best] - WEIGHT[best]).sign())


def test_in_l2_along_the_difference():
    victim = chooser(linear(WEIGHT), actions=2)
    y = MinBest(victim)(X, context(X, L2(0.3)))
    best = victim.params(X).argmax(-1)
    difference = WEIGHT[1 - best] - WEIGHT[best]
    torch.testing.assert_close(y, X + 0.3 * difference / difference.norm(dim=1, keepdim=True))


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
