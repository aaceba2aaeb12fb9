"""MaxDiff on every family."""

from __future__ import annotations

import torch
from gymnasium import spaces
from torch import nn

from adv_wrappers import MaxDiff
from adv_wrappers.core.budgets.budget import Linf
from adv_wrappers.core.engine.victim_view import VictimView
from adv_wrappers.networks.policy_layers import AppendLogStd
from adv_wrappers.victims import from_module
from tests.core.helpers import actor, box, chooser, context, linear, mlp, randn
from tests.every_case import every_case

X = randn(8, 4, seed=2)
VICTIMS = {
    "logits": chooser(mlp(4, 3), select="sample"), "q": chooser(mlp(4, 3), "q"), "mean": actor(mlp(4, 3)),
    "gaussian": actor(nn.Sequential(mlp(4, 3), AppendLogStd(torch.tensor([-0.5, 0.0, 0.5]).double())), "gaussian"),
    "multi-discrete": from_module(mlp(4, 5), box(4), spaces.MultiDiscrete([2, 3]), "logits"),
}  # fmt: skip


def test_one_feature_that_counts():
    """A linear actor that looks at one feature: the farthest points are the two ends, the start picks which."""
    victim = actor(linear(torch.tensor([[0.0, 2.0, 0.0, 0.0]], dtype=torch.float64)), actions=1)
    y = MaxDiff(victim, noise=0.0)(X, context(X, Linf(0.3)))
    torch.testing.assert_close((y - X)[:, 1].abs(), torch.full((8,), 0.3, dtype=X.dtype))
    torch.testing.assert_close((y - X)[:, [0, 2, 3]].abs(), torch.full((8, 3), 0.03, dtype=X.dtype))


def test_the_start_and_the_jitter_are_random():
    victim = VICTIMS["mean"]
    a, b = (MaxDiff(victim)(X, context(X, Linf(0.3), seed=seed)) for seed in (0, 1))
    assert not torch.equal(a, b) and torch.equal(a, MaxDiff(victim)(X, context(X, Linf(0.3), seed=0)))


@every_case("noise", [0.0, None])
@every_case("log_std", [-1e4, -52.0, 52.0])
def test_an_agent_that_became_deterministic_is_attacked_as_any_other(log_std, noise):
    x = X.float()
    found = []
    for level in (0.0, log_std):
        net = nn.Sequential(mlp(4, 3).float(), AppendLogStd(torch.tensor([level, level, level])))
        victim = from_module(net, box(4), spaces.Box(-1, 1, (3,)), "gaussian")
        bound = VictimView(victim, None, None, x)
        slope = bound.gradient(MaxDiff(victim).objective(x, bound))(x + 0.1)
        assert slope.isfinite().all() and slope.any(1).all()
        found.append((slope, MaxDiff(victim, noise=noise)(x, context(x, Linf(0.3)))))
    torch.testing.assert_close(found[1][0], found[0][0], rtol=1e-4, atol=1e-6)  # in these units deviations cancel
    assert (found[1][1] != found[0][1]).float().mean() < 0.02  # a sign may turn where rounding decides
