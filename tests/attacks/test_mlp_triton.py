"""Attacks on small networks in one kernel: against autograd, and compiled for a GPU."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import nn

from adv_wrappers.core.budgets import Linf
from adv_wrappers.networks.input_gradient import Normalize
from tests.core.helpers import randn
from tests.triton_tools import compiled, compiling, interpreted, needs_triton, resources

OBJECTIVES = ("cross-entropy", "margin")


def network(widths, curve=nn.Tanh, clip=None, bias=True, scalar=False, gain=1.5):
    linears = [nn.Linear(a, b, bias=bias) for a, b in itertools.pairwise(widths)]
    for i, parameter in enumerate(p for linear in linears for p in linear.parameters()):
        parameter.data = randn(*parameter.shape, seed=i, dtype=torch.float32) * gain / parameter.shape[-1] ** 0.5
    size = () if scalar else (widths[0],)
    first = [Normalize(torch.full(size, 0.3), torch.full(size, 0.7), clip or None)] if clip is not None else []
    return [*first, *[layer for linear in linears for layer in (linear, curve())][:-1]]


def batch(layers, rows, inputs, actions, eps=0.1):
    x = randn(rows, inputs, seed=7, dtype=torch.float32).clamp(-1.5, 1.5)
    return x, torch.arange(rows) % actions, Linf(eps).box(x, torch.tensor(-1.5), torch.tensor(1.5))


def compare(widths, rows, curve=nn.Tanh, clip=None, bias=True, scalar=False, scale=None, grid=False, toward=False):
    """The same points as autograd, all but one element in 200; and the same objective where they end."""
    from adv_wrappers.attacks import mlp_triton

    layers = network(widths, curve, clip, bias, scalar)
    x, labels, (low, high) = batch(layers, rows, widths[0], widths[-1], 3.0 if grid else 0.1)
    if grid:
        x, low, high = x.mul(5).round(), x.mul(5).round() - 3, x.mul(5).round() + 3
    length, budget = 1.0 if grid else 0.03, Linf(0.1, scale)
    for objective in OBJECTIVES:
        asked = objective, labels, x, low, high, 6, length
        expected, value = mlp_triton.plainly(nn.Sequential(*layers), *asked, budget, grid, toward)
        got = mlp_triton.pgd(layers, *asked, budget.units(x), grid, toward)
        assert got.shape == x.shape and not torch.equal(got, x)
        assert (got - expected).abs().gt(1e-5).float().mean() <= 0.005, (widths, objective)
        _, reached = mlp_triton.plainly(nn.Sequential(*layers), objective, labels, got, low, high, 0, 0.0, budget,
                                        toward=toward)  # fmt: skip
        torch.testing.assert_close(reached, value, rtol=1e-3, atol=1e-3)


def check_networks():
    for widths, curve in itertools.product(((4, 16, 2), (17, 64, 64, 6), (9, 40, 33, 70, 18)), (nn.Tanh, nn.ReLU)):
        compare(widths, 18, curve)
    compare((128, 128, 128, 32), 3)
    compare((5, 20, 3), 1, bias=False)
    print("close")


def check_rules():
    """Normalising with and without clip, by numbers or by one; scales; grids; towards a label."""
    compare((6, 20, 3), 17, clip=0.0)
    compare((40, 20, 3), 17, clip=1.0)
    compare((6, 20, 3), 17, clip=1.0, scalar=True)
    compare((6, 20, 20, 3), 17, scale=2.0)
    compare((6, 20, 20, 3), 17, scale=(1.0, 0.0, 2.0, 0.5, 1.0, 1.0), toward=True)
    compare((6, 20, 3), 17, grid=True)
    compare((6, 20, 3), 17, grid=True, scale=2.0, clip=0.0)
    print("close")


def check_edges():
    """Where a gradient is zero nothing moves; a start is not projected before the first step; pictures are flat."""
    from adv_wrappers.attacks import mlp_triton

    layers = network((6, 20, 3), nn.ReLU, gain=200.0)  # logits so far apart that the cross-entropy has no slope left
    x, _, (low, high) = batch(layers, 20, 6, 3)
    params = nn.Sequential(*layers)(x)
    sure = params.topk(2).values.diff().abs()[:, 0] > 150
    assert sure.any()
    got = mlp_triton.pgd(layers, "cross-entropy", params.argmax(1), x, low, high, 3, 0.03)
    assert torch.equal(got[sure], x[sure])
    got = mlp_triton.pgd(layers, "margin", params.argmax(1), x, low, high, 3, 0.03)
    assert got.ne(x)[sure].any(1).all()
    labels, start = params.argmax(1), low
    one = mlp_triton.pgd(layers, "margin", labels, start, low, high, 1, 0.03)
    asked = "margin", labels, start, low, high, 1, 0.03
    expected = mlp_triton.plainly(nn.Sequential(*layers), *asked, Linf(0.1))[0]
    torch.testing.assert_close(one, expected, rtol=0, atol=1e-6)
    flat = mlp_triton.pgd(
        [nn.Flatten(), *layers], "margin", labels, *(t.view(20, 2, 3) for t in (x, low, high)), 3, 0.03
    )
    assert torch.equal(flat.view(20, 6), got)
    print("right")


def check_what_it_leaves():
    from adv_wrappers.attacks import mlp_triton

    def taken(layers, inputs=6, rows=4, dtype=torch.float32, labels=torch.int64, shape=None):
        x = torch.zeros(rows, *(shape or (inputs,)), dtype=dtype)
        answer = mlp_triton.supported(layers, torch.zeros(rows, dtype=labels), x)
        done = mlp_triton.pgd(layers, "margin", torch.zeros(rows, dtype=labels), x, x - 1, x + 1, 1, 0.1)
        assert answer == (done is not None)
        return answer

    known = network((6, 20, 3))
    first = Normalize(torch.zeros(6), torch.ones(6))
    assert taken(known) and taken([first, *known]) and taken([nn.Flatten(), first, *known])
    assert not taken(known, dtype=torch.float64) and not taken(known, labels=torch.int32)
    assert not taken(known, rows=0) and not taken(known, shape=(2, 3)) and not taken(known, inputs=7)
    assert not taken([first, first, *known]) and not taken(known[:1]) and not taken([*known, nn.Tanh()])
    assert not taken(network((6, 129, 3))) and not taken(network((6, 20, 33))) and not taken(network((6, *[8] * 4, 3)))
    assert not taken([*network((6, 20, 20)), nn.ReLU(), nn.Linear(20, 3)])
    assert not taken([nn.Conv2d(1, 1, 1), *known]) and not taken([layer.double() for layer in network((6, 20, 3))])
    print("left")


def check_trial():
    from adv_wrappers.attacks import mlp_triton

    mlp_triton.trial(torch.device("cpu"))
    plainly = Linf.plainly
    Linf.plainly = lambda *a, **k: plainly(*a, **k) + 1e-3
    with pytest.raises(AssertionError, match="off by"):
        mlp_triton.trial(torch.device("cpu"))
    print("tried")


@needs_triton
@pytest.mark.parametrize("check", [check_networks, check_rules, check_edges, check_what_it_leaves, check_trial])
def test_interpreted(check):
    assert interpreted(f"from {__name__} import {check.__name__}; {check.__name__}()")


def check_machine_code():
    """Bytes of stack: what ptxas could not keep in 255 registers. Whole layers as operands took up to 20 000."""
    from adv_wrappers.attacks import mlp_triton

    made = compiling()
    for layers, rows, objective, options in (
        (network((17, 64, 64, 6)), 1, "cross-entropy", {}),
        (network((17, 64, 64, 6), nn.ReLU, clip=1.0), 1, "margin", {"scale": 2.0, "toward": True}),
        (network((17, 64, 64, 6)), 5000, "cross-entropy", {}),
        (network((4, 64, 2), nn.ReLU), 1, "margin", {"grid": True}),
        (network((8, 32, 32, 32, 4)), 1, "margin", {"scale": torch.ones(8)}),
        (network((128, 128, 128, 18)), 1, "cross-entropy", {}),
    ):
        inputs, actions = next(m for m in layers if isinstance(m, nn.Linear)).in_features, layers[-1].out_features
        x, labels = torch.zeros(rows, inputs), torch.arange(rows) % actions
        assert mlp_triton.pgd(layers, objective, labels, x, x, x, 10, 0.1, **options) is not None
    for kernel in made.values():
        _, stack = resources(kernel)
        assert stack <= 512 and kernel.metadata.shared <= 227 * 1024, (stack, kernel.metadata.shared)
    print(len(made))


@needs_triton
def test_compiled_for_a_gpu():
    assert int(compiled(f"from {__name__} import check_machine_code; check_machine_code()")) == 6
