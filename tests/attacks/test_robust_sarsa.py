"""Robust Sarsa with a critic of one's own, and with the victim's."""

from __future__ import annotations

import pytest
import torch

from adv_wrappers import RobustSarsa
from adv_wrappers.core.budgets.budget import L2, Linf
from tests.core.helpers import actor, context, linear, mlp, randn

X = randn(8, 4, seed=2)
WEIGHT, PRICE = randn(3, 4), randn(3, seed=7)


def critic(obs, act):
    """The price of an action turns with the sign of the clean state's first feature."""
    return (act @ PRICE) * obs[:, 0].sign()


@pytest.mark.parametrize("kind", ["mean", "gaussian"])
@pytest.mark.parametrize("given", [True, False])
def test_the_clean_state_stays_in_the_critic(kind, given):
    weight = WEIGHT if kind == "mean" else torch.cat([WEIGHT, randn(3, 4, seed=9)])
    victim = actor(linear(weight), kind, **({} if given else {"robust_sarsa": critic}))
    how = RobustSarsa(victim, critic=critic if given else None, steps=20)
    slope = (PRICE @ WEIGHT) * X[:, :1].sign()
    torch.testing.assert_close(how(X, context(X, Linf(0.9))), X - 0.9 * slope.sign())
    one = RobustSarsa(victim, critic=critic if given else None, steps=1, step=1.0)(X, context(X, L2(0.9)))
    torch.testing.assert_close(one, X - 0.9 * slope / slope.norm(dim=1, keepdim=True))


def test_the_given_critic_goes_first():
    victim = actor(mlp(4, 3), robust_sarsa=critic)
    other = RobustSarsa(victim, critic=lambda obs, act: -critic(obs, act))(X, context(X, Linf(0.3)))
    own = RobustSarsa(victim)(X, context(X, Linf(0.3)))
    values = [critic(X, victim.params(y)) for y in (own, X, other)]
    assert (values[0] < values[1]).all() and (values[1] < values[2]).all()
