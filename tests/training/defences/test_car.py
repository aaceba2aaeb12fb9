"""The loss of CAR-DQN: by hand, above every Bellman error in the box, and in a training."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("stable_baselines3")

from adv_wrappers.training.agent import train_agent
from adv_wrappers.training.defences.car import CarDQN, largest_error
from adv_wrappers.training.sb3.prioritized_dqn import error
from tests.training.defences.dqn_toys import SMALL, lines, made, random_batch


def boxed(bounds):
    bounds.boxes = lambda observations, share: (observations - share, observations + share)
    return bounds


def test_the_loss_by_hand():
    """Q = (2x, 1 - x) at x = 0.5: (1, 0.5), in [0.8, 1.2] and [0.4, 0.6] where eps is 0.1."""
    bounds = boxed(lines([[2.0], [-1.0]], [0.0, 1.0]))
    x = torch.full((2, 1), 0.5)
    batch = made(bounds, x, [0, 1], [1.5, 0.3])
    worst = torch.tensor([(1.5 - 0.8) ** 2 / 2, (0.6 - 0.3) ** 2 / 2])
    torch.testing.assert_close(largest_error(bounds, batch, x - 0.1, x + 0.1), worst)
    weights = torch.softmax(worst / 0.2, 0)
    found = CarDQN(0.2, eps=0.1).losses(bounds, batch, 0.0)
    torch.testing.assert_close(found.mean(), (weights * worst).sum())  # what the algorithm takes is the mean
    mixed = CarDQN(0.2, kappa=0.25, eps=0.1).losses(bounds, batch, 0.0).mean()
    torch.testing.assert_close(mixed, 0.25 * error(batch.value, batch.target).mean() + 0.75 * (weights * worst).sum())


def test_softness_goes_from_the_largest_error_to_the_mean():
    bounds, batch = random_batch(0)
    x = batch.observations
    worst = largest_error(bounds, batch, x, x)
    torch.testing.assert_close(worst, error(batch.value, batch.target))
    boxed(bounds)
    hard, soft = (CarDQN(softness, eps=0.0).losses(bounds, batch, 1.0).mean() for softness in (1e-6, 1e9))
    torch.testing.assert_close(hard, worst.max())
    torch.testing.assert_close(soft, worst.mean())


def test_no_point_of_the_box_has_a_larger_error():
    bounds, batch = random_batch(0)
    x, rows = batch.observations, torch.arange(len(batch.observations))
    most = largest_error(bounds, batch, x - 0.1, x + 0.1)
    reached = torch.zeros(len(x)).double()
    for k in range(200):
        shift = torch.rand_like(x) * 2 - 1
        value = bounds.net(x + 0.1 * (shift.sign() if k % 2 else shift))[rows, batch.actions]
        reached = torch.maximum(reached, error(value, batch.target))
    assert (reached <= most + 1e-9).all() and (reached > error(batch.value, batch.target)).float().mean() > 0.9


def test_gradient_steps_reach_the_largest_error_where_values_are_linear():
    """Q = (2x, 1 - x): the largest error is at an end of the interval, as its bounds say."""
    torch.manual_seed(0)
    bounds = boxed(lines([[2.0], [-1.0]], [0.0, 1.0]))
    batch = made(bounds, torch.full((2, 1), 0.5), [0, 1], [1.5, 0.3])
    exact = CarDQN(0.2, eps=0.1).losses(bounds, batch, 0.0)
    found = CarDQN(0.2, eps=0.1, form="sgld", steps=1000).losses(bounds, batch, 0.0)
    torch.testing.assert_close(found, exact, rtol=0.01, atol=0.0)  # they may end a step before the end


def test_gradient_steps_stay_between_the_error_and_its_bound():
    bounds, batch = random_batch(0)
    boxed(bounds)
    torch.manual_seed(0)
    plain, found, most = (
        CarDQN(1e9, eps=eps, form=form).losses(bounds, batch, 0.0)
        for eps, form in ((0.0, "interval"), (0.1, "sgld"), (0.1, "interval"))
    )
    assert (found <= most + 1e-6).all() and (found > plain).float().mean() > 0.9


def test_weights_have_no_gradient():
    bounds = boxed(lines([[2.0], [-1.0]], [0.0, 1.0]))
    x = torch.full((2, 1), 0.5)
    batch = made(bounds, x, [0, 1], [1.5, 0.3])
    CarDQN(0.2, eps=0.0).losses(bounds, batch, 0.0).mean().backward()
    worst = torch.tensor([0.125, 0.02])
    weights = torch.softmax(worst / 0.2, 0).tolist()
    assert bounds.net[0].bias.grad.tolist() == pytest.approx([-0.5 * weights[0], 0.2 * weights[1]], rel=1e-4)


def test_it_trains_to_a_card(tmp_path):
    hardened = train_agent("CartPole-v1", None, 0.05, 64, "dqn", robust="car", out=tmp_path, **SMALL)
    assert hardened.victim.card["training"]["robust"]["type"] == "car-dqn"
    assert all("gwc" in row for row in hardened.record)
    other = train_agent("CartPole-v1", None, 0.05, 64, "dqn", **SMALL).victim
    assert hardened.victim.fingerprint() != other.fingerprint()
