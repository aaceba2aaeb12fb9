"""Which attacks go through one kernel, and that they are the same attacks."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import nn

from adv_wrappers.accel import triton_loader
from adv_wrappers.attacks.fused import fused
from adv_wrappers.attacks.max_worst import MaxWorst
from adv_wrappers.attacks.min_best import MinBest
from adv_wrappers.attacks.objectives import Divergence
from adv_wrappers.core.budgets import L2, Linf
from tests.core.helpers import chooser, context, mlp, randn
from tests.triton_tools import interpreted, needs_triton

X = randn(9, 4).float().clamp(-1, 1)


def through(attack, made):
    """The attack by :func:`fused`, None where it takes the plain way."""
    bound = made.bind(attack.victim)
    start = getattr(attack, "random_start", False)
    return fused(made, bound, attack.objective(made.x, bound), attack.steps, attack.lengths[0], start)


def small(kind="logits"):
    return chooser(mlp(4, 3).float(), kind, dtype=torch.float32)


def test_on_a_processor_it_takes_the_plain_way():
    assert through(MinBest(small()), context(X, Linf(0.1))) is None


def check_attacks():
    triton_loader.twin = launch_anyway
    for attack in (
        MinBest(small(), 6, 0.25), MinBest(small("q"), 6, 0.25), MinBest(small(), 4, 0.3, random_start=True),
        MaxWorst(small("q"), steps=5), MinBest(small("q"), 6, 0.25, loss="cross-entropy"),
    ):  # fmt: skip
        for budget, grid in (
            (Linf(0.2), False),
            (Linf(0.1, 2.0), False),
            (Linf(0.2, (1, 0, 2, 1)), False),
            (Linf(1), True),
        ):
            x = X.mul(2).round() if grid else X
            made = [context(x, budget, -2 if grid else -1, 2 if grid else 1, grid) for _ in range(2)]
            got = through(attack, made[0])
            torch.testing.assert_close(got, attack(x, made[1]), rtol=0, atol=1e-5)
            assert not torch.equal(got, x)
    print("the same")


def check_who_takes_the_plain_way():
    triton_loader.twin = launch_anyway
    attack = MinBest(small(), 2)
    made, bound = context(X, Linf(0.1)), context(X, Linf(0.1)).bind(attack.victim)
    assert through(attack, made) is not None
    assert through(attack, context(X, Linf(0.0))) is None and through(attack, context(X, L2(0.1))) is None
    double = replace(attack, victim=chooser(mlp(4, 3)), random_start=True)
    before = context(X.double(), Linf(0.1))
    assert through(double, before) is None and before._draws == 0
    assert fused(made, bound, Divergence(attack.victim, bound.params(X)), 2, 0.1) is None
    assert through(attack, context(X, Linf(0.1), fill=lambda x: x)) is None
    assert through(attack, context(X, Linf(0.1), states=lambda victim: X)) is None
    opaque = chooser(nn.Sequential(nn.Linear(4, 3), nn.Softplus()), dtype=torch.float32)
    assert through(replace(attack, victim=opaque), made) is None
    print("plain")


def launch_anyway(name, x):
    assert name == "attacks.mlp"
    from adv_wrappers.attacks import mlp_triton

    return mlp_triton


@needs_triton
def test_attacks():
    assert interpreted(f"from {__name__} import check_attacks; check_attacks()")


@needs_triton
def test_who_takes_the_plain_way():
    assert interpreted(f"from {__name__} import check_who_takes_the_plain_way as check; check()")
