"""Deciding by splitting: the truth of a grid in the plane, limits that leave the rest undecided."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.functional import one_hot

from adv_wrappers.bounds.branch_and_bound import decide
from adv_wrappers.errors import ValueRangeError, VictimError
from tests.core.helpers import linear, randn


def net_of(seed: int, curve: type[nn.Module], inputs: int = 2) -> nn.Sequential:
    """A random float64 net that changes its mind often."""
    sizes = [(24, inputs), (24, 24), (4, 24)]
    first, second, last = (linear(randn(*s, seed=seed + i) / s[1] ** 0.5 * 2, randn(s[0])) for i, s in enumerate(sizes))
    return nn.Sequential(first, curve(), second, nn.ReLU(), last).requires_grad_(False)


def boxes(seed: int, inputs: int = 2) -> tuple[torch.Tensor, torch.Tensor]:
    """Thirty boxes of all sizes up to 1."""
    centre, radius = randn(30, inputs, seed=seed), torch.rand(30, 1, dtype=torch.float64) / 2
    return centre - radius, centre + radius


def test_it_equals_the_truth_on_a_grid():
    several = 0
    for seed in range(2):
        torch.manual_seed(seed)
        net, (low, high) = net_of(seed, nn.ReLU), boxes(seed)
        decided = decide(net, low, high)
        side = torch.linspace(0, 1, 60, dtype=torch.float64)
        points = low[:, None] + torch.cartesian_prod(side, side) * (high - low)[:, None]
        truth = one_hot(net(points.flatten(0, 1)).argmax(1), 4).bool().view(30, -1, 4).any(1)
        assert torch.equal(decided.possible, truth) and not decided.undecided.any()
        several += int((truth.sum(1) > 1).sum())
    assert 10 < several < 60


def test_a_limit_leaves_the_rest_undecided():
    torch.manual_seed(0)
    net, (low, high) = net_of(3, nn.Tanh, 5), boxes(0, 5)
    whole = decide(net, low, high, most_boxes=100_000)
    assert not whole.undecided.any()
    for most in (1, 5, 30):
        part = decide(net, low, high, most_boxes=most)
        assert part.boxes.max() <= most and (part.possible | ~whole.possible).all()
        assert not (part.found & part.undecided).any() and (whole.found | ~part.found).all()
    assert decide(net, low, high, most_boxes=1).undecided.any()


def test_margins_keep_what_is_nearly_the_largest():
    net = linear(torch.zeros(3, 2, dtype=torch.float64), torch.tensor([1.0, 1.0 - 1e-9, 0.0], dtype=torch.float64))
    low, high = torch.zeros(2, 2, dtype=torch.float64), torch.ones(2, 2, dtype=torch.float64)
    assert decide(net, low, high).possible.tolist() == [[True, False, False]] * 2
    margin = torch.tensor([[1e-9, 1e-9, 1e-9], [0.0, 0.0, 0.0]])
    near = decide(net, low, high, most_boxes=50, margin=margin)
    assert near.undecided.tolist() == [[False, True, False], [False, False, False]]


def test_points_and_one_output():
    net, x = net_of(0, nn.ReLU), randn(5, 2)
    decided = decide(net, x, x)
    assert torch.equal(decided.possible, one_hot(net(x).argmax(1), 4).bool()) and decided.boxes.tolist() == [1] * 5
    assert decide(linear(randn(1, 2)), x, x + 1).possible.all()
    assert decide(net, x[:0], x[:0]).possible.shape == (0, 4)


def test_a_network_that_writes_to_its_input():
    torch.manual_seed(0)
    net, (low, high) = nn.Sequential(nn.ReLU(inplace=True), *net_of(2, nn.Tanh)), boxes(2)
    before = low.clone(), high.clone()
    with torch.inference_mode():
        writes = decide(net, low, high)
    plain = decide(nn.Sequential(nn.ReLU(), *net_of(2, nn.Tanh)), low, high)
    assert torch.equal(writes.possible, plain.possible)
    assert torch.equal(low, before[0]) and torch.equal(high, before[1])


def test_refusals():
    x = torch.zeros(1, 2)
    for name in ("most_boxes", "at_once"):
        for value in (0, 1.5, True):
            with pytest.raises(ValueRangeError, match=f"{name} must be an integer of at least 1"):
                decide(nn.Linear(2, 2), x, x, **{name: value})
    with pytest.raises(ValueRangeError, match="low <= high"):
        decide(nn.Linear(2, 2), x + 1, x)
    with pytest.raises(VictimError, match=r"Mish.*known"):
        decide(nn.Sequential(nn.Linear(2, 2), nn.Mish()), x, x)


def test_a_network_that_takes_no_empty_batch():
    """Where all is decided by the first bounds, nothing is left to ascend from."""

    class Reshaped(nn.Sequential):
        def forward(self, x):
            return super().forward(x.reshape(x.size(0), -1))

    net, x = Reshaped(*net_of(2, nn.ReLU)), randn(4, 2)
    with pytest.raises(RuntimeError, match="0 elements"):
        net(x[:0])
    low, high = x - 1e-9, x + 1e-9
    assert decide(net, low, high).possible.tolist() == decide(net_of(2, nn.ReLU), low, high).possible.tolist()
