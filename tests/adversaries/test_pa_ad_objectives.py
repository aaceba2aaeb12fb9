"""What PA-AD's actor climbs: closed gradients against autograd, and which way is up."""

from __future__ import annotations

import math

import pytest
import torch

import adv_wrappers as adv
from adv_wrappers.adversaries.actor import scale_to_range
from adv_wrappers.adversaries.pa_ad import ChangeAlong, ChangeAndCosine, TowardPolicy, zero_sum_basis
from adv_wrappers.attacks.objectives import Margin, SquaredDistance
from tests.core.helpers import actor, chooser, context, mlp, randn
from tests.every_case import every_case

ROWS, FEATURES, ACTIONS = 200, 4, 3
KINDS = ("q", "logits", "mean", "gaussian")


def victim_of(kind):
    net = mlp(FEATURES, ACTIONS * (2 if kind == "gaussian" else 1), seed=5)
    return chooser(net, kind, actions=ACTIONS) if kind in ("q", "logits") else actor(net, kind, actions=ACTIONS)


def unit(rows, size, seed):
    d = randn(rows, size, seed=seed)
    return d / d.norm(dim=-1, keepdim=True)


def policy_of(kind, params):
    """The policy that a direction lives in, written a second time: probabilities, or the mean."""
    if kind in ("q", "logits"):
        return torch.softmax(params, -1)
    return params[:, :ACTIONS]


def points(kind, size, seed):
    return size * randn(ROWS, ACTIONS * (2 if kind == "gaussian" else 1), seed=seed)


def compare(objective, value, params):
    """``objective`` is the function ``value`` of parameters ``[B, K] -> [B]``, and its gradient that of autograd."""
    leaf = params.clone().requires_grad_()
    loss = value(leaf)
    torch.testing.assert_close(objective(params), loss.detach(), rtol=1e-7, atol=1e-9)
    (expected,) = torch.autograd.grad(loss.sum(), leaf)
    before = params.clone()
    gradient = objective.gradient(params)
    torch.testing.assert_close(gradient, expected, rtol=1e-6, atol=1e-9)
    assert torch.equal(params, before) and torch.equal(objective.gradient(params), gradient)


def along(kind, own, wanted):
    """``d . delta``, written a second time."""
    return lambda params: ((policy_of(kind, params) - policy_of(kind, own)) * wanted).sum(-1)


def turned(kind, own, wanted, weight):
    """``||delta|| + weight cos(delta, d)``, written a second time."""

    def value(params):
        delta = policy_of(kind, params) - policy_of(kind, own)
        return delta.norm(dim=-1) + weight * torch.cosine_similarity(delta, wanted, -1)

    return value


@every_case("kind", KINDS)
@every_case("size", [0.3, 3.0])
def test_along(kind, size):
    own, wanted = points(kind, size, 1), unit(ROWS, ACTIONS, 2)
    compare(ChangeAlong(victim_of(kind), own, wanted), along(kind, own, wanted), points(kind, size, 3))


@every_case("kind", KINDS)
@every_case("weight", [0.0, 1.0, 7.5])
@every_case("size", [0.3, 3.0])
def test_turned(kind, weight, size):
    own, params, wanted = points(kind, size, 1), points(kind, size, 3), unit(ROWS, ACTIONS, 2)
    far = (policy_of(kind, params) - policy_of(kind, own)).norm(dim=-1) > 1e-2  # nearer, the root is rounded off
    assert far.sum() > 0.8 * ROWS
    own, params, wanted = own[far], params[far], wanted[far]
    compare(ChangeAndCosine(victim_of(kind), own, wanted, weight), turned(kind, own, wanted, weight), params)


@every_case("kind", KINDS)
def test_turned_is_finite_where_nothing_changed(kind):
    own = points(kind, 1.0, 1)
    objective = ChangeAndCosine(victim_of(kind), own, unit(ROWS, ACTIONS, 2), 1.0)
    assert objective(own).abs().max() < 1e-5 and torch.isfinite(objective.gradient(own)).all()


@pytest.mark.parametrize("kind", ["mean", "gaussian"])
def test_toward(kind):
    goal = randn(ROWS, ACTIONS, seed=4)
    objective = SquaredDistance(victim_of(kind), goal, toward=True)
    compare(objective, lambda params: -(policy_of(kind, params) - goal).norm(dim=-1).square(), points(kind, 2.0, 3))
    there = torch.cat([goal, goal], -1) if kind == "gaussian" else goal
    assert not objective(there).any() and not objective.gradient(there).any()


def toward_policy(goal):
    """Minus the divergence from the policy to the goal, by torch's own formula."""

    def value(params):
        one, other = (torch.distributions.Normal(p[:, :ACTIONS], p[:, ACTIONS:].exp()) for p in (params, goal))
        return -torch.distributions.kl_divergence(one, other).sum(-1)

    return value


def test_toward_policy():
    goal, params = points("gaussian", 0.7, 4), points("gaussian", 0.7, 3)
    objective = TowardPolicy(victim_of("gaussian"), goal)
    assert objective(goal).abs().max() < 1e-12 and (objective(params) < 0).all()
    compare(objective, toward_policy(goal), params)
    assert not objective.gradient(goal).any()


X, BUDGET = randn(40, FEATURES, seed=6), adv.Linf(0.07)


def climbed(victim, value, start, steps, step, sign=1.0):
    """Signed steps inside the box, every gradient by autograd through the victim."""
    y = start
    for _ in range(steps):
        leaf = y.clone().requires_grad_()
        (slope,) = torch.autograd.grad(value(victim.params(leaf)).sum(), leaf)
        y = torch.clamp(y + sign * step * BUDGET.eps * slope.sign(), X - BUDGET.eps, X + BUDGET.eps)
    return y


def random_start(around):
    drawn = around.draw()
    return around.x + 0.1 * (drawn - around.x)


def actions_of(kind, size, seed=8):
    return torch.rand(len(X), size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 2 - 1


def wanted_of(kind, action, released):
    """The direction that an action of the adversary stands for, as the head of the file has it."""
    if kind in ("mean", "gaussian"):
        d = action
    elif released:
        d = torch.cat([action, -action.sum(-1, keepdim=True)], -1)
    else:
        d = sum(action[:, i : i + 1] * zero_sum_basis(ACTIONS)[i] for i in range(ACTIONS - 1))
    return d / d.norm(dim=-1, keepdim=True)


@every_case("kind", KINDS)
@every_case("variant", ["linear-first", "literal", "released"])
def test_the_direction_form_climbs_its_objectives(kind, variant):
    victim, weight = victim_of(kind), 2.5
    pad = adv.PAAD(victim, form="direction", steps=3, step=0.4, weight=weight, variant=variant)
    action = actions_of(kind, ACTIONS - (kind in ("q", "logits")))
    assert pad.action_space((FEATURES,)).shape == action.shape[1:]
    own, wanted = victim.params(X), wanted_of(kind, action, variant == "released")
    goal = turned(kind, own, wanted, weight)
    if variant == "linear-first":
        expected = climbed(victim, along(kind, own, wanted), X, 1, 0.4)
        expected = climbed(victim, goal, expected, 2, 0.4)
    elif variant == "literal":
        expected = climbed(victim, goal, random_start(context(X, BUDGET)), 3, 0.4)
    else:  # one step, down
        expected = climbed(victim, goal, random_start(context(X, BUDGET)), 1, 1.0, sign=-1.0)
    torch.testing.assert_close(pad(X, action, context(X, BUDGET)), expected)


@pytest.mark.parametrize("kind", ["mean", "gaussian"])
@pytest.mark.parametrize("variant", ["linear-first", "literal"])
def test_the_target_form_of_continuous_actions_nears_its_goal(kind, variant):
    victim, action = victim_of(kind), actions_of(kind, ACTIONS)
    pad = adv.PAAD(victim, form="target", steps=3, step=0.4, stretch=2.0, variant=variant)
    goal = 2.0 * action  # the range of actions is [-1, 1]
    torch.testing.assert_close(scale_to_range(victim.action_space, action, 2.0), goal)
    start = X if variant == "linear-first" else random_start(context(X, BUDGET))
    expected = climbed(victim, lambda p: -(policy_of(kind, p) - goal).square().sum(-1), start, 3, 0.4)
    torch.testing.assert_close(pad(X, action, context(X, BUDGET)), expected)


def test_the_target_form_moves_deviations_too():
    victim, action = victim_of("gaussian"), actions_of("gaussian", 2 * ACTIONS)
    pad = adv.PAAD(victim, form="target", steps=3, step=0.4, stretch=2.0, variance=True)
    assert pad.action_space((FEATURES,)).shape == (2 * ACTIONS,)
    goal = torch.cat([2.0 * action[:, :ACTIONS], action[:, ACTIONS:]], -1)
    expected = climbed(victim, toward_policy(goal), X, 3, 0.4)
    torch.testing.assert_close(pad(X, action, context(X, BUDGET)), expected)


@pytest.mark.parametrize("kind", ["q", "logits"])
def test_the_target_form_of_discrete_actions_gives_the_target_the_lead(kind):
    victim, choice = victim_of(kind), torch.arange(len(X)) % ACTIONS
    pad = adv.PAAD(victim, form="target", steps=3, step=0.4, restarts=1, keep="last")

    def lead(params):
        others = params.masked_fill(torch.nn.functional.one_hot(choice, ACTIONS).bool(), -math.inf)
        return params.gather(1, choice[:, None])[:, 0] - others.amax(-1)

    torch.testing.assert_close(Margin(choice, toward=True)(victim.params(X)), lead(victim.params(X)))
    expected = climbed(victim, lead, X, 3, 0.4)
    found = pad(X, choice, context(X, BUDGET))
    torch.testing.assert_close(found, expected)
    assert (lead(victim.params(found)) >= lead(victim.params(X)) - 1e-12).float().mean() > 0.9


@pytest.mark.parametrize("n", [2, 3, 7])
def test_the_plane_is_an_orthonormal_basis_of_the_changes_of_a_policy(n):
    basis = zero_sum_basis(n)
    torch.testing.assert_close(basis @ basis.T, torch.eye(n - 1, dtype=torch.float64))
    assert basis.sum(-1).abs().max() < 1e-12
