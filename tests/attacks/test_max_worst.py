"""MaxWorst: what counts as the worst, and that it becomes likely."""

from __future__ import annotations

import pytest
import torch

from adv_wrappers import MaxWorst
from adv_wrappers.core.budgets.budget import Linf
from tests.core.helpers import chooser, context, linear, mlp, randn
from tests.every_case import every_case

X = randn(8, 4, seed=2)


@every_case("kind", ["logits", "q"])
@every_case("by", [None, "policy"])
@every_case("loss", [None, "cross-entropy"])
def test_two_actions_of_a_linear_victim(kind, by, loss):
    weight = randn(2, 4)
    victim = chooser(linear(weight), kind, actions=2)
    y = MaxWorst(victim, by=by, loss=loss)(X, context(X, Linf(0.3)))
    worst = victim.params(X).argmin(-1)
    torch.testing.assert_close(y, X + 0.3 * (weight[worst] - weight[1 - worst]).sign())


@pytest.mark.parametrize("loss", ["margin", "cross-entropy"])
def test_the_worst_action_becomes_likely(loss):
    victim = chooser(mlp(4, 3), select="sample")
    y = MaxWorst(victim, loss=loss)(X, context(X, Linf(1.0)))
    worst = victim.params(X).argmin(-1, keepdim=True)
    before, after = (victim.params(x).softmax(-1).gather(1, worst) for x in (X, y))
    assert (after > before).all() and (victim.params(y).argmax(-1) == worst[:, 0]).any()
