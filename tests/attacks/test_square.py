"""Square: what it finds by scores alone, how it proposes, and what it never does."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

import adv_wrappers as adv
from adv_wrappers import MaxDiff, Noise, Square
from adv_wrappers.attacks.square import Features, Squares, image_layout, share_at
from adv_wrappers.core.budgets.budget import L0, L2, Linf, Sparse
from adv_wrappers.core.budgets.frame_stack import Newest
from adv_wrappers.victims import from_module
from tests.attacks.helpers import anywhere, flips
from tests.core.helpers import actor, box, chooser, context, mlp, randn
from tests.every_case import every_case

IMAGE = spaces.Box(0, 255, (3, 10, 12), np.uint8)
X = randn(64, 2)


def test_it_finds_what_an_exhaustive_grid_finds():
    eps = 0.3
    victim = chooser(mlp(2, 3), "q", size=2)
    there = anywhere(victim, X, eps)
    found = flips(victim, X, Square(victim, queries=200)(X, context(X, Linf(eps))))
    assert 0.1 < there.double().mean() < 1
    assert found[there].double().mean() > 0.95


def test_it_finds_what_lies_inside_of_the_box():
    """Another action is best in a disc that holds 0.8% of the box and none of its edges."""
    centre = torch.tensor([0.37, -0.52], dtype=X.dtype)
    victim = chooser(
        lambda y: torch.stack([torch.zeros_like(y[:, 0]), 0.01 - (y - centre).square().sum(1)], 1),
        "q",
        size=2,
        actions=2,
        dtype=X.dtype,
    )
    x = torch.zeros_like(X)
    assert flips(victim, x, Square(victim)(x, context(x, Linf(1.0)))).all()


@pytest.mark.parametrize("kind", ["mean", "gaussian", "multi"])
def test_where_an_action_is_not_one_of_n_it_diverges(kind):
    x = randn(16, 4)
    if kind == "multi":
        victim = from_module(mlp(4, 5), box(4), spaces.MultiDiscrete([2, 3]), "logits")
    else:
        victim = actor(mlp(4, 3 if kind == "mean" else 6), kind)
    clean = victim.params(x)

    def reached(how):
        return victim.kl(clean, victim.params(how(x, context(x, Linf(0.2))))).mean()

    found = reached(Square(victim, queries=150))
    assert found > 2 * reached(Noise("sign")) and found > 0.95 * reached(MaxDiff(victim))


def test_images_flip_by_squares():
    net = nn.Sequential(nn.Flatten(), mlp(360, 4))
    net[1][0].weight.data /= 2000  # or every pixel alone would saturate it
    victim = from_module(net, IMAGE, spaces.Discrete(4), "q")
    x = torch.randint(0, 256, (12, 3, 10, 12), generator=torch.Generator().manual_seed(0)).double()
    params = victim.params(x)

    def lead(y):
        own = victim.params(y).gather(1, params.argmax(-1, keepdim=True))[:, 0]
        return (victim.params(y).scatter(1, params.argmax(-1, keepdim=True), -torch.inf).amax(-1) - own).mean()

    for budget in (Linf(2.0), L2(20.0), L0(12), Sparse(12, Linf(20.0))):
        y = Square(victim, queries=100)(x, context(x, budget, 0, 255, True))
        adversary = max(lead(context(x, budget, 0, 255, True, seed).draw()) for seed in range(5))
        assert lead(y) > adversary and torch.equal(y, y.round()) and ((y >= 0) & (y <= 255)).all()
        assert torch.equal(y, budget.project(y, x, *budget.box(x, x * 0, x * 0 + 255), True))


def test_stripes_and_squares():
    x = torch.full((5, 3, 10, 12), 100.0)
    made = context(x, Linf(4.0), 0, 255, True)
    squares = Squares(made, image_layout((3, 10, 12)))
    start = squares.start()
    assert ((start - x).abs() == 4).all() and (start == start[:, :, :1]).all()
    assert (start != start[:, :, :, :1]).any() and (start != start[:, :1]).any()
    places = set()
    for i in range(8):
        changed = squares.propose(x, i, 20, 0.2) != x
        assert (changed.flatten(1).sum(1) == 3 * squares_side(i) ** 2).all() and (changed == changed[:, :1]).all()
        rows, columns = changed[:, 0].any(2), changed[:, 0].any(1)
        assert (rows.sum(1) * columns.sum(1) == changed[:, 0].flatten(1).sum(1)).all()
        places |= {
            (row.int().argmax().item(), col.int().argmax().item()) for row, col in zip(rows, columns, strict=True)
        }
    assert len(places) > 10


def squares_side(i):
    return max(round((share_at(i, 20, 0.2) * 120) ** 0.5), 1)


def test_the_schedule_is_the_papers():
    at = [0, 10, 11, 50, 51, 201, 501, 1001, 2001, 4001, 6001, 8001, 9999]
    halved = [0, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 9]
    assert [share_at(i, 10_000, 0.05) for i in at] == [0.05 / 2**n for n in halved]
    assert share_at(25, 500, 1.0) == share_at(500, 10_000, 1.0)


@every_case(
    ("shape", "layout"),
    [
        ((4, 84, 84), "FHW"),
        ((210, 160, 3), "HWC"),
        ((9, 10), "HW"),
        ((17,), None),
        ((4, 5), None),
        ((2, 3, 3), None),
        ((), None),
    ],
)
def test_what_is_an_image(shape, layout):
    assert image_layout(shape) == layout


def test_around_the_best_point_on_whole_numbers():
    x = torch.zeros(200, 30)
    made = context(x, Linf(3.0), -50, 50, True)
    late = Features(made).propose(x, 98, 100, 0.5)  # the window has closed: few features move, by one level
    assert late.abs().max() == 1 and 0 < late.abs().mean() < 0.1


def test_queries_are_counted():
    asked = []

    def counted(y):
        asked.append(len(y))
        return y[:, :3]

    victim = chooser(counted, "q", dtype=torch.float64)
    for queries in (2, 3, 17):
        asked.clear()
        Square(victim, queries=queries)(randn(5, 4), context(randn(5, 4), Linf(0.1)))
        assert asked == [5] * queries


def test_victims_without_a_gradient():
    """A function on numpy arrays with the same numbers is attacked in the same way, through the whole engine."""
    weight, bias = randn(4, 2).numpy(), np.zeros(2)
    space = spaces.Box(-9, 9, (4,), np.float64), spaces.Discrete(2)
    layer = nn.Linear(4, 2, dtype=torch.float64)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor(weight.T))
        layer.bias.copy_(torch.tensor(bias))
    plain = from_module(layer, *space, "q")
    arrays = from_module(lambda o: o.astype(np.float64) @ weight + bias, *space, "q", dtype=torch.float64)
    assert plain.differentiable and not arrays.differentiable
    x = randn(8, 4)
    y = Square(arrays, queries=60)(x, context(x, Linf(0.3)))
    torch.testing.assert_close(y, Square(plain, queries=60)(x, context(x, Linf(0.3))))
    best = plain.params(x).argmax(-1)
    rows = torch.tensor(weight).T
    torch.testing.assert_close(y, x + 0.3 * (rows[1 - best] - rows[best]).sign())


def test_the_past_of_a_stack_stays():
    net = nn.Sequential(nn.Flatten(), mlp(400, 3))
    space = spaces.Box(0, 255, (4, 10, 10), np.uint8)
    victim = from_module(net, space, spaces.Discrete(3), "q")
    made = adv.threat("square", victim, within=Newest(Linf(3)), queries=8)
    assert made.label == "square" and made.check(space, spaces.Discrete(3)) is not None
