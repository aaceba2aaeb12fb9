"""Splitting on ReLUs: the truth of all activation patterns of tiny networks, and never above any point."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from torch import nn

from adv_wrappers.bounds import crown
from adv_wrappers.bounds.branch_and_bound import _NeuronCases, _NeuronSearch, decide, split_neurons
from adv_wrappers.bounds.crown_bounds import RelaxedNetwork
from adv_wrappers.bounds.interval_bounds import nodes_in
from adv_wrappers.errors import ValueRangeError, VictimError
from tests.core.helpers import linear, randn

ROUNDING = 1e-9


def tiny(seed: int, inputs: int = 3, hidden: int = 4, outputs: int = 2) -> nn.Sequential:
    first, second, last = (
        linear(randn(*size, seed=seed + i), randn(size[0], seed=seed + 10 + i) / 2)
        for i, size in enumerate([(hidden, inputs), (hidden, hidden), (outputs, hidden)])
    )
    return nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), last).requires_grad_(False)


def pictures() -> nn.Sequential:
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(1, 3, 3, 2), nn.ReLU(), nn.Conv2d(3, 4, 2), nn.ReLU(), nn.Flatten(), nn.Linear(36, 8), nn.ReLU(),
        nn.Linear(8, 3),
    )  # fmt: skip
    return net.double().requires_grad_(False)


class Skip(nn.Module):
    """What a layer takes is added to what it answers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = (
            linear(randn(*size, seed=i), randn(size[0])) for i, size in enumerate([(8, 5), (8, 8), (3, 8)])
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x).relu()
        return self.last(x + self.second(x).relu())


def points(low, high, count=4000):
    share = torch.rand(count, *low.shape, dtype=low.dtype, generator=torch.Generator().manual_seed(1))
    share[: count // 4] = share[: count // 4].round()
    return low + share * (high - low)


def over_all_patterns(net: nn.Sequential, low: torch.Tensor, high: torch.Tensor, row: torch.Tensor) -> float:
    """The least value in one box: a linear program for every pattern of neurons that are on."""
    optimize = pytest.importorskip("scipy.optimize")
    first, second, last = (net[i] for i in (0, 2, 4))
    sizes, least = (len(first.bias), len(second.bias)), np.inf
    for on in itertools.product([0.0, 1.0], repeat=sum(sizes)):
        pattern = torch.tensor(on, dtype=torch.float64)
        outer, inner = torch.diag(pattern[: sizes[0]]), torch.diag(pattern[sizes[0] :])
        weight, bias = outer @ first.weight, outer @ first.bias
        weight2, bias2 = second.weight @ weight, second.weight @ bias + second.bias
        objective = row @ last.weight @ inner
        signs = torch.cat([1 - 2 * pattern[: sizes[0]], 1 - 2 * pattern[sizes[0] :]])  # sign * z <= 0
        matrix = signs[:, None] * torch.cat([first.weight, weight2])
        limits = -signs * torch.cat([first.bias, bias2])
        solved = optimize.linprog(
            (objective @ weight2).numpy(),
            matrix.numpy(),
            limits.numpy(),
            bounds=list(zip(low.tolist(), high.tolist(), strict=True)),
        )
        if solved.status == 0:
            least = min(least, solved.fun + float(objective @ bias2 + row @ last.bias))
    return least


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_with_all_cases_it_comes_to_the_truth_of_all_patterns(seed):
    net, x = tiny(seed), randn(2, 3, seed=seed)
    low, high, spec = x - 0.6, x + 0.6, torch.tensor([[1.0, -1.0], [-1.0, 0.0]], dtype=torch.float64)
    found, plain = split_neurons(net, low, high, spec, 2000, steps=60), crown(net, low, high, spec, "crown")[0]
    for box, row in itertools.product(range(2), range(2)):
        truth = over_all_patterns(net, low[box], high[box], spec[row])
        gap = truth - plain[box, row].item()
        assert found.lower[box, row] <= truth + ROUNDING
        assert truth - found.lower[box, row] <= 0.1 * gap + 1e-6
    assert (found.cases < 2**8).all()


@pytest.mark.parametrize("intermediate", ["interval", "crown"])
def test_no_looser_than_crown_and_below_every_point(intermediate):
    for net, x, radius in (
        (tiny(3, 5, 12, 3), randn(6, 5), 0.3),
        (pictures(), randn(3, 1, 10, 10), 0.15),
        (Skip().requires_grad_(False), randn(4, 5), 0.4),
    ):
        low, high, spec = x - radius, x + radius, torch.eye(3, dtype=torch.float64)
        plain = crown(net, low, high, spec, intermediate)[0]
        least = (net(points(low, high, 1000).flatten(0, 1)) @ spec.T).view(1000, len(x), -1).amin(0)
        before = plain
        for most in (1, 10):
            found = split_neurons(net, low, high, spec, most, intermediate=intermediate, steps=8)
            assert (found.lower >= before - ROUNDING).all() and (found.lower <= least + ROUNDING).all()
            assert (found.cases <= most).all()
            before = found.lower
        assert (before > plain + ROUNDING).any()


def test_any_multipliers_are_sound():
    """Of one case: no point where its assumption holds is below the bound, whatever beta and slopes Adam comes by."""
    net, x = tiny(5, 3, 8), randn(1, 3)
    low, high = x - 0.8, x + 0.8
    network = RelaxedNetwork(nodes_in(net, low), low, high, 0)
    at = points(low, high)[:, 0]
    hidden, values = net[:1](at), net(at)
    rows = torch.eye(2, dtype=torch.float64)[None]
    for neuron, sign in itertools.product(range(8), (1.0, -1.0)):
        if not (network.boxes[1][0][0, neuron] < 0 < network.boxes[1][1][0, neuron]):
            continue
        signs = {n: torch.zeros(2, 8, dtype=torch.float64) for n in (2, 4)}
        signs[2][:, neuron] = sign
        holds = hidden[:, neuron] * sign >= 0
        bounds = []
        for steps in (1, 5, 40):
            start = torch.full((2,), -torch.inf, dtype=torch.float64)
            case = _NeuronCases(torch.arange(2), signs, start, signs)
            with torch.no_grad():
                bounds.append(_NeuronSearch(network.steps, rows, 2, steps)._bounded(case, 64).bound)
            assert (bounds[-1] <= values[holds].amin(0) + ROUNDING).all()
        assert (bounds[0] <= bounds[1]).all() and (bounds[1] <= bounds[2]).all()


def test_it_decides_what_crown_cannot_and_inputs_do_not_in_more_boxes():
    net, x = pictures(), randn(6, 1, 10, 10)
    low, high = x - 0.2, x + 0.2
    by_neurons, by_inputs = (decide(net, low, high, most, split=s) for s, most in (("neurons", 60), ("inputs", 400)))
    assert by_neurons.undecided.sum() < by_inputs.undecided.sum()
    seen = nn.functional.one_hot(net(points(low, high).flatten(0, 1)).argmax(1), 3).view(-1, 6, 3).amax(0).bool()
    assert (by_neurons.possible | ~seen).all() and not (by_neurons.found & by_neurons.undecided).any()
    best = net(x).argmax(1)
    apart = torch.eye(3, dtype=torch.float64) - nn.functional.one_hot(best, 3).double()[:, None]
    by_crown = crown(net, low, high, apart, "crown", 20)[1] < 0
    excluded = ~by_neurons.possible
    assert (excluded | ~by_crown).all() and (excluded & ~by_crown).any()


def test_a_row_that_is_high_enough_is_left():
    net, x = tiny(0), randn(3, 3)
    low, high, spec = x - 0.5, x + 0.5, torch.eye(2, dtype=torch.float64)
    plain = crown(net, low, high, spec, "crown")[0]
    stop = torch.full_like(plain, torch.inf)
    stop[0], stop[1, 1] = -torch.inf, plain[1, 1]
    found = split_neurons(net, low, high, spec, 30, stop)
    assert torch.equal(found.lower[0], plain[0]) and found.lower[1, 1] == plain[1, 1]
    assert found.cases[0].tolist() == [0, 0] and found.cases[1, 1] == 0 and (found.cases[2] > 0).all()
    each = torch.stack([spec, -spec, spec])
    of_boxes = split_neurons(net, low, high, each, 30)
    assert of_boxes.lower[2] == pytest.approx(split_neurons(net, low[2:], high[2:], spec, 30).lower[0])
    assert torch.isfinite(of_boxes.lower).all()
    affine = split_neurons(net[:1], low, high, torch.eye(4, dtype=torch.float64))
    assert torch.equal(affine.lower, crown(net[:1], low, high, torch.eye(4, dtype=torch.float64))[0])


def test_what_is_refused():
    low, high, spec = -torch.ones(1, 3).double(), torch.ones(1, 3).double(), torch.eye(2).double()
    smooth = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    with pytest.raises(VictimError, match=r"networks of ReLUs.*Tanh"):
        split_neurons(smooth, low, high, spec)
    with pytest.raises(VictimError, match="networks of ReLUs"):
        decide(smooth, low, high, split="neurons")
    with pytest.raises(ValueRangeError, match="split must be"):
        decide(smooth, low, high, split="axes")
    for settings in ({"most_cases": 0}, {"steps": 0}, {"at_once": True}):
        with pytest.raises(ValueRangeError, match="at least 1"):
            split_neurons(tiny(0), low, high, spec, **settings)
