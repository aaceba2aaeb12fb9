"""The minimum distance on a linear victim is known: the lead over the length of the difference of the weights."""

from __future__ import annotations

import pytest
import torch

from adv_wrappers import CarliniWagner
from adv_wrappers.attacks.carlini_wagner import CappedMargin
from adv_wrappers.attacks.objectives import Margin
from adv_wrappers.core.budgets.budget import L2, Valid
from tests.core.helpers import chooser, context, linear, randn

WEIGHT = randn(3, 4)
VICTIM = chooser(linear(WEIGHT))
X = 0.5 * randn(8, 4, seed=2)


def distances(x) -> torch.Tensor:
    """l2 distance of every row to the nearest point of each other action, ``[B, A]``; inf at its own action."""
    logits = x @ WEIGHT.T
    best = logits.argmax(-1)
    lead = logits.gather(1, best[:, None]) - logits
    length = (WEIGHT[best][:, None] - WEIGHT[None]).norm(dim=-1)
    return torch.where(length > 0, lead / length, torch.inf)


def attack(x=X, budget=None, **arguments) -> torch.Tensor:
    how = CarliniWagner(VICTIM, **{"steps": 100, "step": 0.03, "searches": 5, **arguments})
    return how(x, context(x, budget or Valid(), -3, 3))


@pytest.mark.parametrize("confidence", [0.0, 0.5])
@pytest.mark.parametrize("toward", [False, True])
def test_the_gradient_of_the_capped_margin(toward, confidence):
    objective = CappedMargin(Margin(torch.arange(8) % 3, toward), confidence)
    leaf = randn(8, 3, seed=4).requires_grad_()
    loss = objective(leaf)
    (expected,) = torch.autograd.grad(loss.sum(), leaf)
    assert torch.equal(objective.gradient(leaf.detach()), expected)
    assert (loss == confidence).any() and (loss < confidence).any()


def test_untargeted_flips_the_action_close_to_the_minimum():
    y = attack()
    assert (VICTIM.params(y).argmax(-1) != VICTIM.params(X).argmax(-1)).all()
    found, least = (y - X).norm(dim=1), distances(X).amin(1)
    assert (found >= least - 1e-9).all() and (found <= 1.1 * least + 0.01).all()


def test_targeted_reaches_the_target():
    y = attack(target="worst")
    own, wanted = VICTIM.params(X).argmax(-1), VICTIM.params(X).argmin(-1)
    assert torch.equal(VICTIM.params(y).argmax(-1), wanted)
    assert (own != wanted).any() and ((y - X).norm(dim=1) >= distances(X).amin(1) - 1e-9)[own != wanted].all()


def test_confidence_is_a_lead():
    after, own = VICTIM.params(attack(confidence=0.5)), VICTIM.params(X).argmax(-1, keepdim=True)
    assert (after.amax(-1, keepdim=True) - after.gather(1, own) >= 0.5 - 1e-9).all()


def test_budgets_are_kept_and_the_lead_shrinks_where_it_cannot_flip():
    budget = L2(0.1)
    y = attack(budget=budget)
    made = context(X, budget, -3, 3)
    torch.testing.assert_close(made.project(y), y)
    before, after = VICTIM.params(X), VICTIM.params(y)
    best = before.argmax(-1, keepdim=True)
    stuck = after.argmax(-1, keepdim=True) == best
    gaps = [p.gather(1, best) - p.scatter(1, best, -torch.inf).amax(1, keepdim=True) for p in (before, after)]
    assert stuck.any() and (gaps[1] < gaps[0])[stuck].all()


def test_grids():
    x = torch.randint(0, 256, (4, 4), generator=torch.Generator().manual_seed(0)).double()
    how = CarliniWagner(VICTIM, steps=60, step=0.05)
    y = how(x, context(x, Valid(), 0, 255, grid=True))
    assert torch.equal(y, y.round()) and (y >= 0).all() and (y <= 255).all()
    assert (VICTIM.params(y).argmax(-1) != VICTIM.params(x).argmax(-1)).all()
