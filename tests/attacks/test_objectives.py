"""Gradients in closed form against autograd, and what each objective is there for."""

from __future__ import annotations

import pytest
import torch
from gymnasium import spaces

from adv_wrappers.attacks.objectives import (
    CriticOfMode,
    CrossEntropy,
    Divergence,
    ExpectedQ,
    LeadOver,
    LogitRatio,
    Margin,
    MarginOfQ,
    SquaredDistance,
    classifier,
    leave_best,
)
from adv_wrappers.core.perturbation import need_discrete
from adv_wrappers.errors import VictimError
from adv_wrappers.victims import from_module
from tests.core.helpers import actor, box, chooser, linear, randn
from tests.every_case import every_case

TARGET = torch.tensor([0, 2, 1, 4, 3, 2])


def space(kind: str):
    """A victim of every family, whose parameters are 6 numbers a row."""
    net = linear(randn(6, 4))
    if kind == "multi-binary":
        return from_module(net, box(4), spaces.MultiBinary(3), "logits")
    if kind == "multi-categorical":
        return from_module(net, box(4), spaces.MultiDiscrete([2, 4]), "logits")
    if kind == "categorical":
        return chooser(net, actions=6)
    return actor(net, kind, actions=3 if kind == "gaussian" else 6)


FAMILIES = ["categorical", "multi-categorical", "multi-binary", "gaussian", "mean"]
MADE = [
    *(pytest.param(lambda v, t=t: CrossEntropy(TARGET, t), id=f"cross-entropy-{t}") for t in (False, True)),
    *(pytest.param(lambda v, t=t: Margin(TARGET, t), id=f"margin-{t}") for t in (False, True)),
    pytest.param(lambda v: ExpectedQ(randn(6, 6, seed=8)), id="expected-q"),
    pytest.param(lambda v: ExpectedQ(randn(6, 6, seed=8), 1 + randn(6, seed=9).abs()), id="expected-q-tempered"),
    pytest.param(lambda v: MarginOfQ(randn(6, 6, seed=8)), id="margin-of-q"),
    pytest.param(lambda v: LeadOver(TARGET, (TARGET + 1) % 6), id="lead-over"),
    pytest.param(lambda v: LogitRatio(TARGET, 6), id="logit-ratio"),
]


def compare(objective, params) -> None:
    leaf = params.clone().requires_grad_()
    loss = objective(leaf)
    assert loss.shape == (len(params),)
    (expected,) = torch.autograd.grad(loss.sum(), leaf)
    torch.testing.assert_close(objective.gradient(params), expected, rtol=1e-12, atol=1e-13)
    one = objective.gradient(params)
    assert torch.equal(objective.gradient(params), one), "and nothing is written to"


@pytest.mark.parametrize("make", MADE)
@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_gradients_of_discrete_objectives(make, scale):
    compare(make(None), scale * randn(6, 6, seed=3))


@every_case("family", FAMILIES)
def test_gradient_of_the_divergence(family):
    victim = space(family)
    clean, here = victim.params(randn(6, 4, seed=1)), victim.params(randn(6, 4, seed=2))
    objective = Divergence(victim, clean)
    compare(objective, here)
    assert (objective(here) > 0).all() and objective(clean).abs().max() < 1e-12
    assert objective.gradient(clean).abs().max() < 1e-12, "which is why a random start is not optional"


def test_gradient_of_the_tempered_divergence():
    victim = space("categorical")
    clean, here = victim.params(randn(6, 4, seed=1)), victim.params(randn(6, 4, seed=2))
    compare(Divergence(victim, clean, temperature=1 + randn(6, seed=9).abs()), here)


@pytest.mark.parametrize("family", ["gaussian", "mean"])
def test_gradient_of_the_squared_distance(family):
    victim = space(family)
    clean, here = victim.params(randn(6, 4, seed=1)), victim.params(randn(6, 4, seed=2))
    size = 3 if family == "gaussian" else 6
    distance = SquaredDistance(victim, clean[:, :size])
    compare(distance, here)
    torch.testing.assert_close(distance(here), (here - clean)[:, :size].square().sum(-1))


@pytest.mark.parametrize("family", ["gaussian", "mean"])
def test_the_critic_of_the_mode(family):
    weight = randn(6, seed=5)
    victim = space(family)
    params = victim.params(randn(6, 4)).requires_grad_()
    size = 3 if family == "gaussian" else 6
    objective = CriticOfMode(victim, lambda obs, act: (act * weight[:size]).sum(-1, keepdim=True) + obs, 2.0)
    (g,) = torch.autograd.grad(objective(params).sum(), params)
    assert torch.allclose(objective(params), -(params[:, :size] * weight[:size]).sum(-1) - 2)
    assert torch.allclose(g[:, :size], -weight[:size].expand(6, -1)) and not g[:, size:].any()


def test_a_margin_has_a_gradient_where_cross_entropy_underflows():
    q = torch.tensor([[200.0, 0.0, 50.0]])
    best = q.argmax(-1)
    assert not CrossEntropy(best).gradient(q).any()
    assert Margin(best).gradient(q).tolist() == [[-1.0, 0.0, 1.0]]


def test_towards_a_target_is_the_opposite():
    params = randn(6, 6)
    for kind in (CrossEntropy, Margin):
        away, toward = kind(TARGET), kind(TARGET, toward=True)
        assert torch.equal(away(params), -toward(params))
        assert torch.equal(away.gradient(params), -toward.gradient(params))


def test_signs():
    params = torch.tensor([[1.0, 3.0, 2.0]])
    assert Margin(torch.tensor([1]))(params).item() == -1.0, "the right action leads by one"
    assert CrossEntropy(torch.tensor([1]))(params) < CrossEntropy(torch.tensor([0]))(params)
    assert ExpectedQ(torch.tensor([[0.0, 1.0, 0.0]]))(params) == -params.softmax(-1)[0, 1]


def test_modes_of_several_choices_honour_their_start():
    victim = from_module(linear(randn(6, 4)), box(4), spaces.MultiDiscrete([2, 4], start=[3, -1]), "logits")
    params = torch.tensor([[0.0, 1.0, 0.0, 0.0, 2.0, 0.0]], dtype=torch.float64)
    assert victim.mode(params).tolist() == [[4, 1]]


def test_classifier():
    assert classifier(None, "q") is Margin and classifier(None, "logits") is CrossEntropy
    assert classifier("margin", "logits") is Margin and classifier("cross-entropy", "q") is CrossEntropy
    assert (
        leave_best(None, chooser(linear(randn(3, 4)), "q"), randn(5, 3)).target.tolist()
        == randn(5, 3).argmax(-1).tolist()
    )


@every_case("family", FAMILIES[1:])
def test_one_discrete_action_is_asked_for(family):
    with pytest.raises(VictimError, match="one discrete action"):
        need_discrete("an attack", space(family), "use another")
    need_discrete("an attack", space("categorical"), "use another")
    need_discrete("an attack", None, "use another")
