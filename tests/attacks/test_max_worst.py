"""MaxWorst: what counts as the worst, and that it becomes likely."""

from __future__ import annotations

import pytest

from adv_wrappers import MaxWorst
from adv_wrappers.core.budgets.budget import Linf
from tests.core.helpers import chooser, context, mlp, randn

X = randn(8, 4, seed=2)


@pytest.mark.parametrize("loss", ["margin", "cross-entropy"])
def test_the_worst_action_becomes_likely(loss):
    victim = chooser(mlp(4, 3), select="sample")
    y = MaxWorst(victim, loss=loss)(X, context(X, Linf(1.0)))
    worst = victim.params(X).argmin(-1, keepdim=True)
    before, after = (victim.params(x).softmax(-1).gather(1, worst) for x in (X, y))
    assert (after > before).all() and (victim.params(y).argmax(-1) == worst[:, 0]).any()
