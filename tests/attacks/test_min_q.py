"""MinQ through Q-values and through a critic."""

from __future__ import annotations

import pytest
import torch

from adv_wrappers import MinQ
from adv_wrappers.core.budgets.budget import Linf
from tests.core.helpers import actor, chooser, context, linear, mlp, randn

X = randn(8, 4, seed=2)
WEIGHT, PRICE = randn(3, 4), randn(3, seed=7)


def critic(obs, act):
    """Q(s, a) = price . a + s_0."""
    return act @ PRICE + obs[:, 0]


@pytest.mark.parametrize("random_start", [False, True])
@pytest.mark.parametrize("kind", ["mean", "gaussian"])
def test_a_linear_actor_under_a_linear_critic(kind, random_start):
    weight = WEIGHT if kind == "mean" else torch.cat([WEIGHT, randn(3, 4, seed=9)])
    victim = actor(linear(weight), kind, critic=critic)
    y = MinQ(victim, steps=20, random_start=random_start)(X, context(X, Linf(0.3)))
    torch.testing.assert_close(y, X - 0.3 * (PRICE @ WEIGHT).sign().expand(8, -1))


def test_the_value_at_the_true_state_falls():
    victim = chooser(mlp(4, 3), "q")
    y = MinQ(victim)(X, context(X, Linf(0.5)))
    q = victim.params(X)
    assert ((victim.params(y).softmax(-1) * q).sum(-1) < (q.softmax(-1) * q).sum(-1)).all()
