"""Ascents against straightforward versions of themselves."""

from __future__ import annotations

import math
from dataclasses import fields

import pytest
import torch
from gymnasium import spaces
from torch import nn

from adv_wrappers import MaxDiff, MinBest, Momentum, from_module
from adv_wrappers.attacks.gradient_attack import langevin, momentum, pgd
from adv_wrappers.attacks.layout import LaidOut, rearranged
from adv_wrappers.attacks.objectives import CrossEntropy, Margin
from adv_wrappers.core import rng
from adv_wrappers.core.budgets.budget import L2, Linf
from adv_wrappers.errors import VictimError
from adv_wrappers.victims import Victim
from tests.core.helpers import box, chooser, context, mlp, randn
from tests.every_case import every_case

NET = mlp(4, 1)
LOW, HIGH, EPS = -1.5, 1.5, 0.4


def gradient(y):
    with torch.enable_grad():
        leaf = y.detach().requires_grad_()
        return torch.autograd.grad(NET(leaf).sum(), leaf)[0]


def clip(y, x, eps=EPS):
    return y.clamp(x - eps, x + eps).clamp(LOW, HIGH)


def start(rows=6, budget=None):
    x = randn(rows, 4).clamp(LOW, HIGH)
    return x, context(x, budget or Linf(EPS), LOW, HIGH)


@pytest.mark.parametrize("random_start", [False, True])
def test_pgd(random_start):
    x, made = start()
    y = x
    if random_start:
        y = clip(x + EPS * (2 * rng.uniform(rng.fold(made.key, 1), (4,), x.dtype) - 1), x)
    for _ in range(7):
        y = clip(y + 0.3 * EPS * gradient(y).sign(), x)
    torch.testing.assert_close(pgd(made, gradient, 7, 0.3, random_start), y, rtol=0, atol=1e-14)


def test_pgd_in_l2():
    x, made = start(budget=L2(EPS))
    y = x
    for _ in range(7):
        g = gradient(y)
        delta = y + 0.3 * EPS * g / g.norm(dim=1, keepdim=True)
        delta = delta.clamp(LOW, HIGH) - x
        y = x + delta * (EPS / delta.norm(dim=1, keepdim=True)).clamp(max=1)
    torch.testing.assert_close(pgd(made, gradient, 7, 0.3), y, rtol=0, atol=1e-13)


@pytest.mark.parametrize("nesterov", [False, True])
def test_momentum(nesterov):
    x, made = start()
    y, total = x, torch.zeros_like(x)
    for _ in range(6):
        look = clip(y + 0.2 * 0.5 * EPS * total.sign(), x) if nesterov else y
        g = gradient(look)
        total = 0.5 * total + g / g.abs().sum(1, keepdim=True)
        y = clip(y + 0.2 * EPS * total.sign(), x)
    torch.testing.assert_close(momentum(made, gradient, 6, 0.2, 0.5, nesterov), y, rtol=0, atol=1e-14)


def test_without_decay_momentum_is_pgd():
    x, made = start()
    assert torch.equal(momentum(made, gradient, 6, 0.2, 0.0), pgd(start()[1], gradient, 6, 0.2)) and len(x) == 6


def test_momentum_survives_a_zero_gradient():
    x, made = start()
    assert torch.equal(momentum(made, torch.zeros_like, 3, 0.2, 0.5), x)


@pytest.mark.parametrize("noise", [0.0, 1.0])
def test_langevin(noise):
    x, made = start()
    y = clip(x + 0.2 * EPS * rng.signs(rng.fold(made.key, 1), (4,), x.dtype), x)
    jitters = rng.normal(rng.fold(made.key, 2), (5, 4), x.dtype)
    for i in range(5):
        y = clip(y + 0.2 * EPS * (gradient(y) + noise * math.sqrt(2 * 0.2 * EPS) / (i + 2) * jitters[:, i]).sign(), x)
    torch.testing.assert_close(langevin(made, gradient, 5, 0.2, noise), y, rtol=0, atol=1e-14)


@pytest.mark.parametrize("budget", [Linf(1.0), Linf(3.0), L2(3.0)], ids=repr)
def test_on_a_grid_every_iterate_is_a_point_of_it(budget):
    """At eps of one level a tenth of a step would be rounded away."""
    x = torch.randint(0, 256, (5, 4), generator=torch.Generator().manual_seed(0)).double()
    visited = []

    def steep(y):
        visited.append(y.clone())
        return gradient(y / 100)

    made = context(x, budget, 0, 255, grid=True)
    y = pgd(made, steep, 10, 0.1)
    assert len(visited) == 10 and all(torch.equal(v, v.round()) for v in [*visited, y])
    assert ((y != x).any(1)).all() and torch.equal(visited[0], x)
    expected = 1.0 if budget == Linf(1.0) else 3.0
    assert (y - x).abs().max() <= expected
    assert (NET(y / 100) > NET(x / 100)).all()


class Counted(nn.Module):
    """Counts its forward passes; its gradient is not written out."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net, self.passes = net, 0

    def forward(self, x):
        self.passes += 1
        return self.net(x).clone()


X = randn(6, 4).clamp(LOW, HIGH)


def counted(kind="logits", **more):
    victim = chooser(Counted(mlp(4, 3, seed=3)), kind, **more)
    victim.net.passes = 0
    return victim


def labelled(attack, victim, x=X, **more):
    """The attack with a label that was found beforehand, by a pass of its own."""
    loss = attack.loss or ("margin" if victim.kind == "q" else "cross-entropy")
    objective = (Margin if loss == "margin" else CrossEntropy)(victim.params(x).argmax(-1))

    class Given(type(attack)):
        def objective(self, x, bound):
            return objective

    return Given(**{each.name: getattr(attack, each.name) for each in fields(attack)})(x, context(x, Linf(EPS), **more))


@pytest.mark.parametrize(("make", "kind"), [
    (lambda v: MinBest(v), "logits"), (lambda v: MinBest(v, steps=4, step=0.4, loss="margin"), "q"),
    (lambda v: Momentum(v, steps=3), "logits"),
])  # fmt: skip
def test_the_label_is_that_of_the_first_pass(make, kind):
    victim = counted(kind)
    how = make(victim)
    y = how(X, context(X, Linf(EPS)))
    assert victim.net.passes == how.steps, "and no other pass is made"
    assert torch.equal(y, labelled(how, victim)) and not torch.equal(y, X)
    walked = chooser(victim.net.net, kind)
    assert walked.layer_graph() is not None
    torch.testing.assert_close(make(walked)(X, context(X, Linf(EPS))), y, rtol=0, atol=1e-14)


class Elsewhere(MinBest):
    """Somebody's own ascent, which begins at a point of its own."""

    def run_once(self, context, gradient, start):
        return pgd(context, gradient, self.steps, self.step, start=context.low)


class Surrogate(MinBest):
    """Somebody's own gradient, through another network."""

    def gradient(self, bound, loss):
        return chooser(mlp(4, 3, seed=8)).gradient(loss)


class Noisy(Victim):
    """A victim whose gradient is that of a smoothed policy."""

    def params(self, obs, state=None):
        return obs[:, :3] * 2 + obs[:, 1:]

    def gradient(self, loss, state=None, fill=None):
        return lambda x: super(Noisy, self).gradient(loss)(-x)


def test_an_ascent_that_sees_other_parameters_first_makes_a_pass_for_the_label():
    noisy = Noisy(box(4), spaces.Discrete(3), "logits", dtype=torch.float64)
    more = {"steps": 3, "step": 0.4}
    for how in (
        MinBest(counted(), random_start=True, **more),
        Momentum(counted(), nesterov=True, **more),
        Elsewhere(counted(), **more),
        Surrogate(counted(), **more),
        MinBest(noisy, **more),
    ):
        y = how(X, context(X, Linf(EPS)))
        assert torch.equal(y, labelled(how, how.victim)) and not torch.equal(y, X)
    victim = counted()
    MinBest(victim, random_start=True, **more)(X, context(X, Linf(EPS)))
    assert victim.net.passes == 4


@pytest.mark.parametrize("more", [{"restarts": 2}, {"keep": "best"}, {"random_start": True}])
def test_the_label_is_that_of_the_exact_network_at_the_true_observation(more):
    victim, asked = counted(), []
    inner = victim.net.forward
    victim.net.forward = lambda x: asked.append((x, torch.is_autocast_enabled("cpu"))) or inner(x)
    MinBest(victim, steps=2, step=0.4, **more)(X, context(X, Linf(EPS)))
    assert asked[0][0] is X and not asked[0][1]
    assert len(asked) > 2


def test_at_another_point_than_that_of_the_context():
    victim = counted()
    MinBest(victim)(X.clone(), context(X, Linf(EPS)))
    assert victim.net.passes == 2


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("walked", [False, True])
def test_an_answer_that_is_not_finite_is_told_from_the_first_pass(walked, steps):
    net = mlp(4, 3)
    with torch.no_grad():
        net[-1].bias[1] = torch.nan
    victim = chooser(net if walked else Counted(net))
    assert (victim.layer_graph() is not None) is walked
    with pytest.raises(VictimError, match="not finite"):
        MinBest(victim, steps=steps)(X, context(X, Linf(EPS), look=True))


def test_with_a_hidden_state():
    class Cell(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.head = mlp(8, 4, seed=1), mlp(4, 3, seed=2)

        def forward(self, x, state):
            new = self.inner(torch.cat([x, state], -1)).tanh()
            return self.head(new), new

    victim = from_module(Cell(), box(4), spaces.Discrete(3), "logits", initial_state=lambda rows: randn(rows, 4))
    state = randn(6, 4, seed=9)
    how, more = MinBest(victim, steps=2, step=0.5), {"state": lambda victim: state}
    best = victim.params(X, state).argmax(-1)
    assert (best != victim.params(X, victim.initial_state(6)).argmax(-1)).any()
    y, loss = how(X, context(X, Linf(EPS), **more)), CrossEntropy(best)
    expected = pgd(context(X, Linf(EPS)), victim.gradient(loss, state), 2, 0.5)
    assert torch.equal(y, expected)


@every_case("make", [
    lambda v: MinBest(v), lambda v: MinBest(v, random_start=True), lambda v: MaxDiff(v, steps=1, noise=1.0),
    lambda v: Momentum(v, steps=1, step=1.0), lambda v: MinBest(v, steps=2, step=0.7),
])  # fmt: skip
def test_one_step_in_either_layout_is_the_same(make):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 5, 4, 2), nn.Tanh(), nn.Flatten(), nn.Linear(5 * 9, 3)).double()
    space = spaces.Box(-1.0, 1.0, (3, 8, 8))
    how = make(from_module(net, space, spaces.Discrete(3), "logits"))
    x = randn(4, 3, 8, 8).clamp(-1, 1)
    y, made = how(x, context(x, Linf(0.1), -1, 1)), context(x, Linf(0.1), -1, 1)
    bound = made.bind(how.victim)
    layout, gradient = rearranged(how.gradient(bound, how.objective(x, bound)), x, made)
    there = how.run_once(LaidOut(made, layout), gradient, None)
    assert there.shape == (4, 12, 4, 4) and torch.equal(y, layout.inverse(there)) and not torch.equal(x, y)
