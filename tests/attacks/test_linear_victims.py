"""Gradient attacks on a linear victim with two actions: the best point of every budget is known.

The gradient is the difference of the actions' weights wherever one looks, so its signs are the answer within Linf, and
its direction is within L2.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from adv_wrappers import MaxWorst, MinBest, MinQ, Momentum
from adv_wrappers.core.budgets.budget import L2, Linf
from tests.core.helpers import chooser, context, linear, randn
from tests.every_case import every_case

WEIGHT = randn(2, 4)
X = randn(8, 4, seed=2)
FIVE = {"steps": 5, "step": 0.5}
ANY = (  # another action than the best is the worst
    MinBest(), MinBest(**FIVE), MinBest(**FIVE, loss="margin"), MinBest(**FIVE, loss="cross-entropy"),
    MinBest(steps=9, step=0.5, random_start=True), Momentum(), Momentum(nesterov=True),
    MaxWorst(), MaxWorst(by="policy"), MaxWorst(loss="cross-entropy"),
)  # fmt: skip


@every_case(("how", "kind"), [*((how, kind) for how in ANY for kind in ("logits", "q")), (MinQ(), "q")])
def test_two_actions(how, kind):
    victim = chooser(linear(WEIGHT), kind, actions=2)
    best = victim.params(X).argmax(-1)
    difference = WEIGHT[1 - best] - WEIGHT[best]
    y = replace(how, victim=victim)(X, context(X, Linf(0.3)))
    torch.testing.assert_close(y, X + 0.3 * difference.sign())
    if how == MinBest():
        y = MinBest(victim)(X, context(X, L2(0.3)))
        torch.testing.assert_close(y, X + 0.3 * difference / difference.norm(dim=1, keepdim=True))
