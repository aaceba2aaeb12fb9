"""What an adversary sees of a step."""

from __future__ import annotations

import pytest
import torch
from gymnasium import spaces

from adv_wrappers.core import rng
from adv_wrappers.core.budgets.budget import L0, L2, Linf, Sparse, Valid
from adv_wrappers.core.engine import context as context_module
from adv_wrappers.core.engine.context import AttackedStep, Context
from adv_wrappers.core.engine.engine import Engine, Wrapped
from adv_wrappers.core.threat import ThreatModel
from tests.core.helpers import box, chooser, context, linear, mlp, randn


def test_every_draw_is_new_and_none_needs_the_others():
    x = randn(2, 3)
    made = context(x, Linf(1))
    draws = [made.uniform(), made.uniform(), made.normal(), made.signs()]
    assert all(d.shape == x.shape and d.dtype == x.dtype for d in draws) and not torch.equal(draws[0], draws[1])
    assert torch.equal(draws[1], rng.uniform(rng.fold(made.key, 2), (3,), x.dtype))
    many = list(made.normals(4))
    assert len(many) == 4 and many[0].shape == x.shape and not torch.equal(many[0], many[1])


def test_several_draws_do_not_depend_on_how_many_are_made_together(monkeypatch):
    x = randn(2, 3)
    together = torch.stack(list(context(x, Linf(1)).normals(4)))
    monkeypatch.setattr(context_module, "_ALL", 0)
    assert torch.equal(torch.stack(list(context(x, Linf(1)).normals(4))), together)


def test_the_key_is_made_when_asked_for():
    threat = ThreatModel("observation", lambda x, context: x, Linf(1))
    engine = Engine(threat, Wrapped(box(3), spaces.Discrete(2), 2))
    x = randn(2, 3).numpy()
    made = Context(AttackedStep(engine.applied, engine.state, x, x))
    made.project(made.x)
    assert "key" not in vars(made)
    made.signs()
    key = made.key
    made.draw()
    assert made.key is key


@pytest.mark.parametrize(
    "budget", [Linf(0.5), Linf(0.5, (1.0, 0.0, 2.0)), L2(0.5), L0(2), Sparse(2, Linf(0.5)), Valid()], ids=repr
)
@pytest.mark.parametrize("kind", ["uniform", "sign", "gaussian"])
def test_noise_lies_in_the_budget(budget, kind):
    x = randn(50, 3)
    made = context(x, budget, -4, 4)
    y = made.noise(kind)
    torch.testing.assert_close(made.project(y), y)
    assert not torch.equal(y, x) and not torch.equal(made.noise(kind), y)


def test_sign_noise_moves_every_feature_by_its_radius():
    x = randn(50, 3)
    delta = context(x, Linf(0.5, (1.0, 0.0, 2.0))).noise("sign") - x
    torch.testing.assert_close(delta.abs(), torch.tensor([0.5, 0.0, 1.0], dtype=x.dtype).expand(50, 3))


def test_gaussian_noise_has_a_deviation_of_one_radius():
    x = torch.zeros(20000, 1, dtype=torch.float64)
    delta = context(x, Linf(0.5)).noise("gaussian") / 0.5
    assert abs((delta.abs() < 1).double().mean() - 0.6827) < 0.02 and delta.abs().max() <= 1  # the rest is drawn back
    high = context(x + 0.9, Linf(0.5), -1, 1).noise("gaussian") - 0.9  # a bound of the space does not make it smaller
    assert abs((high > -0.5).double().mean() - 0.8413) < 0.02


def test_steps_on_a_grid_are_at_least_one_level():
    x = torch.full((1, 2), 8.0)
    g = torch.tensor([[1.0, -2.0]])
    for budget in (Linf(4.0), Valid()):
        made = context(x, budget, 0, 16, grid=True)
        assert made.ascend(x, g, 0.01).tolist() == [[9.0, 7.0]]
        assert made.ascend(x, g, 0.5).tolist() == ([[10.0, 6.0]] if budget == Linf(4.0) else [[12.0, 4.0]])
    assert torch.allclose(context(x, Linf(4.0), 0, 16).ascend(x, g, 0.01), torch.tensor([[8.04, 7.96]]))


def test_ascending_writes_to_nothing():
    x, g = randn(2, 3), randn(2, 3, seed=1)
    for budget in (Linf(0.5), Linf(0.5, 2.0), L2(0.5), L0(2), Sparse(2, Linf(0.5)), Valid()):
        kept = x.clone(), g.clone()
        context(x, budget, -3, 3).ascend(x, g, 0.3)
        assert torch.equal(x, kept[0]) and torch.equal(g, kept[1])


def test_bound_fills_in_state_and_the_other_leaves():
    class Echo:
        def params(self, obs, state=None):
            return obs, state

        q = value = policy = params

    made = context(
        randn(2, 3), Linf(1), observation="all", state=lambda victim: "state", fill=lambda x: {"a": x, "b": 1}
    )
    bound = made.bind(Echo())
    assert bound.params() == ("all", "state") and bound.params("x") == ({"a": "x", "b": 1}, "state")
    assert bound.policy("x") == ({"a": "x", "b": 1}, "state") and bound.value() == ("all", "state")


def test_bound_is_the_victim():
    x = randn(5, 4)
    victim = chooser(mlp(4, 3), "q")
    bound = context(x, Linf(1)).bind(victim)
    assert torch.equal(bound.params(), victim.params(x)) and torch.equal(bound.q(x), victim.q(x))
    assert torch.equal(bound.value(), victim.params(x).amax(-1)) and bound.policy().probs.shape == (5, 3)
    weight = randn(1, 4)
    straight = context(x, Linf(1)).bind(chooser(linear(weight.expand(3, 4)))).gradient(lambda p: p[:, 0])
    assert torch.equal(straight(x), weight.expand(5, 4)) and box(4).shape == (4,)
