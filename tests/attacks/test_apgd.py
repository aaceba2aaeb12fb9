"""Auto-PGD against a straightforward version of its algorithm, a row at a time."""

from __future__ import annotations

import math

import pytest
import torch

from adv_wrappers import APGD
from adv_wrappers.attacks.apgd import checkpoints
from adv_wrappers.attacks.objectives import Margin
from adv_wrappers.core.budgets.budget import L2, Linf
from tests.core.helpers import actor, chooser, context, mlp, randn

X, EPS, STEPS = randn(12, 4, seed=2), 0.5, 23


def net(outputs: int = 3):
    made = mlp(4, outputs)
    with torch.no_grad():
        made[0].weight.mul_(4)
    return made


VICTIM = chooser(net(), "q")


def of_paper(x, label):
    """Algorithm 1 of the paper, for one row ``[4]``, by plain Python; all points that it visits."""

    def f(y):
        leaf = y.clone().requires_grad_()
        params = VICTIM.params(leaf[None])[0]
        value = max(params[i] for i in range(3) if i != label) - params[label]
        (g,) = torch.autograd.grad(value, leaf)
        return float(value.detach()), g

    def project(y):
        return torch.minimum(torch.maximum(y, x - EPS), x + EPS)

    marks, eta = checkpoints(STEPS), 2.0
    old, (value, g) = x, f(x)
    y = x
    best, best_y, best_g = value, y, g
    rises, last_mark, last_eta, last_best = 0, 0, None, value
    for k in range(1, STEPS + 1):
        z = project(y + eta * EPS * g.sign())
        new = z if k == 1 else project(y + 0.75 * (z - y) + 0.25 * (y - old))
        old, y = y, new
        before, (value, g) = value, f(y)
        rises += value > before
        if value > best:
            best, best_y, best_g = value, y, g
        if k in marks:
            few = rises < 0.75 * (k - last_mark)
            stuck = last_eta == eta and best <= last_best
            last_eta, last_best = eta, best
            if few or stuck:
                eta /= 2
                y, g, value = best_y, best_g, best
            rises, last_mark = 0, k
    return best_y


def test_the_algorithm():
    with torch.enable_grad():
        labels = VICTIM.params(X).argmax(-1)
        expected = torch.stack([of_paper(x, int(label)) for x, label in zip(X, labels, strict=True)])
    y = APGD(VICTIM, loss="margin", steps=STEPS, restarts=1)(X, context(X, Linf(EPS)))
    objective = Margin(labels)
    reached, wanted = objective(VICTIM.params(y)), objective(VICTIM.params(expected))
    # one step of the full radius is offered beside the paper's points, and may be the best of them
    assert (reached >= wanted - 1e-12).all()
    same = (reached - wanted).abs() < 1e-12
    assert same.float().mean() > 0.7
    torch.testing.assert_close(y[same], expected[same], rtol=0, atol=1e-12)


def test_checkpoints():
    assert checkpoints(100) == [22, 41, 57, 70, 80, 87, 93, 99]
    for steps in (1, 2, 5, 20):
        found = checkpoints(steps)
        assert found == sorted({*found}) and found[0] >= 1 and found[-1] <= steps
        assert found[0] == math.ceil(0.22 * steps)


@pytest.mark.parametrize(("kind", "budget"), [("dlr", L2(0.8)), ("gaussian", Linf(EPS))], ids=repr)
def test_stays_in_the_budget_and_climbs(kind, budget):
    loss = "dlr" if kind == "dlr" else None
    victim = chooser(net(), "logits") if loss else actor(net(6), kind)
    how = APGD(victim, loss=loss)
    y = how(X, context(X, budget))
    length = (y - X).abs().amax(1) if isinstance(budget, Linf) else (y - X).norm(dim=1)
    assert (length <= budget.eps + 1e-12).all()
    objective = how.objective(X, context(X, budget).bind(victim))
    drawn = torch.stack([objective(victim.params(context(X, budget, seed=s).draw())) for s in range(20)])
    assert objective(victim.params(y)).mean() > drawn.amax(0).mean()


def test_on_a_grid_it_walks_the_grid():
    x = torch.randint(0, 256, (5, 4), generator=torch.Generator().manual_seed(0)).double()
    y = APGD(chooser(torch.nn.Sequential(_Scaled(), *net()), "q"))(x, context(x, Linf(3.0), 0, 255, grid=True))
    assert torch.equal(y, y.round()) and (y - x).abs().max() <= 3 and (y != x).any()


class _Scaled(torch.nn.Module):
    def forward(self, x):
        return x / 60
