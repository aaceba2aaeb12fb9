"""The worst action: by Q, by the policy, by a critic."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces

from adv_wrappers import WorstAction
from adv_wrappers.core.budgets import L2, Linf, Valid
from adv_wrappers.core.engine import Engine
from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.errors import BudgetError, ValueRangeError, VictimError
from adv_wrappers.victims import from_module
from tests.core.helpers import box, linear, randn

X = randn(6, 4)
WEIGHT = randn(3, 4, seed=1)


def worst(victim, actions, budget=None, mask=None, **arguments):
    threat = ThreatModel("action", WorstAction(victim, **arguments), budget or Valid())
    made = Engine(threat, victim.observation_space, victim.action_space, len(actions))
    made.session.add(made, [victim], True)
    made.session.show(made, X[: len(actions)].numpy())
    return made.apply(np.asarray(actions, victim.action_space.dtype), True, mask=mask)


@pytest.mark.parametrize("start", [0, 7])
@pytest.mark.parametrize(
    ("kind", "by"), [("q", None), ("q", "q"), ("q", "policy"), ("logits", None), ("logits", "policy")]
)
def test_discrete_actions(kind, by, start):
    victim = from_module(linear(WEIGHT), box(4), spaces.Discrete(3, start=start), kind)
    scores = victim.params(X)
    assert worst(victim, np.full(6, start), by=by).tolist() == (start + scores.argmin(-1)).tolist()
    mask = torch.ones(6, 3, dtype=torch.int8).scatter_(
        1, scores.argmin(-1, keepdim=True), 0
    )  # the very worst is forbidden
    middle = start + scores.argsort(-1)[:, 1]
    assert worst(victim, np.full(6, start), by=by, mask=mask).tolist() == middle.tolist()


PRICE = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)


def test_a_linear_critic_has_its_minimum_in_a_corner():
    actions = spaces.Box(-1, 1, (3,), np.float64)
    victim = from_module(
        linear(WEIGHT), box(4), actions, "mean", critic=lambda obs, act: (act * PRICE).sum(-1) * obs[:, 0].sign()
    )
    sign = -(X[:, :1].sign() * PRICE.sign())
    played = np.full((6, 3), 0.2)
    assert np.allclose(worst(victim, played), sign)
    assert np.allclose(worst(victim, played, Linf(0.3)), 0.2 + 0.3 * sign)
    expected = 0.2 - 0.3 * X[:, :1].sign() * PRICE / PRICE.norm()
    assert np.allclose(worst(victim, played, L2(0.3)), expected)


@pytest.mark.parametrize("kind", ["mean", "gaussian"])
def test_without_a_critic_the_corner_farthest_from_the_mean(kind):
    weight = WEIGHT if kind == "mean" else torch.cat([WEIGHT, WEIGHT])
    victim = from_module(linear(weight), box(4), spaces.Box(-1, 1, (3,), np.float64), kind)
    mean = X @ WEIGHT.T
    played = np.zeros((6, 3))
    assert np.array_equal(worst(victim, played), torch.where(mean > 0, -1.0, 1.0))
    assert np.allclose(worst(victim, played, Linf(0.5)), torch.where(mean > 0, -0.5, 0.5))


def test_what_is_not_defined():
    several = from_module(linear(randn(5, 4)), box(4), spaces.MultiDiscrete([2, 3]), "logits")
    with pytest.raises(VictimError, match="one discrete action"):
        worst(several, np.zeros((2, 2)))
    free = from_module(linear(WEIGHT), box(4), box(3), "mean")
    with pytest.raises(BudgetError, match="unbounded"):
        worst(free, np.zeros((2, 3)))
    assert worst(free, np.zeros((2, 3)), Linf(0.5)).shape == (2, 3)
    with pytest.raises(VictimError, match="by='policy'"):
        WorstAction(free, by="q")
    for name, value in (("by", "value"), ("steps", 0), ("steps", True)):
        with pytest.raises(ValueRangeError, match=f"{name} must be .*{value}"):
            WorstAction(**{name: value})
