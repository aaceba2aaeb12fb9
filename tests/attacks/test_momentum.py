"""Momentum: MinBest's objective on another way up."""

from __future__ import annotations

import torch

from adv_wrappers import MinBest, Momentum
from adv_wrappers.core.budgets.budget import Linf
from tests.core.helpers import chooser, context, mlp, randn

X = randn(8, 4, seed=2)


def test_decay_is_what_sets_it_apart_from_min_best():
    victim = chooser(mlp(4, 3))
    plain = MinBest(victim, steps=10, step=0.1)(X, context(X, Linf(1.0)))
    assert torch.equal(Momentum(victim, decay=0.0)(X, context(X, Linf(1.0))), plain)
    heavy = Momentum(victim, decay=1.0)(X, context(X, Linf(1.0)))
    assert not torch.equal(heavy, plain)
    best = victim.params(X).argmax(-1, keepdim=True)
    assert (victim.params(heavy).softmax(-1).gather(1, best) < victim.params(X).softmax(-1).gather(1, best)).all()
