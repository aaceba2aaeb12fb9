"""Sets of reached states: no attack leads out of them, and where everything is linear they are the smallest boxes."""

from __future__ import annotations

import itertools
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

import adv_wrappers as adv
from adv_wrappers.certification.reached_sets import reached_sets
from adv_wrappers.errors import AdvWrappersError, BudgetError, CardError, ThreatError, ValueRangeError, VictimError
from adv_wrappers.training.networks import relu_mlp
from adv_wrappers.victims import Victim
from adv_wrappers.victims.saved_networks import Dynamics, TransitionModel

SEEN, ACTED = spaces.Box(-np.inf, np.inf, (3,), np.float64), spaces.Box(-2.0, 1.0, (2,), np.float32)
N, K = 3, 2


def actor(kind: str = "mean", squash: str | None = None, hidden: tuple[int, ...] = (8,), seed: int = 0) -> Any:
    layers = relu_mlp((N, *hidden, K if kind == "mean" else 2 * K), (seed,))
    victim: Any = adv.from_module(layers, SEEN, ACTED, kind)
    victim.squash = squash
    return victim


def model(hidden: tuple[int, ...] = (8,), ensemble: int = 1, seed: int = 0) -> Dynamics:
    torch.manual_seed(seed)
    nets = [relu_mlp((N + K, *hidden, N + 1), (seed, i)) for i in range(ensemble)]
    parts = {"obs": N, "act": K, "change": N + 1}
    statistics = {name: (torch.randn(size) * 0.1, torch.rand(size) + 0.5) for name, size in parts.items()}
    network = {"features": N, "actions": K}
    errors = {"victim": {"one_step": [0.01] * N, "quantiles": {"0.9": [0.2] * N, "0.99": [0.3] * N, "0.999": None}}}
    return Dynamics.of(TransitionModel(nets, **statistics), {"network": network, "errors": errors})


def walked(victim: Victim, of: Dynamics, start: torch.Tensor, seen: torch.Tensor, off: torch.Tensor) -> torch.Tensor:
    """The states ``[steps, B, N]`` that follow where these are added to observations and to states."""
    net, state, found = of.net.double(), start, []
    for at in range(len(seen)):
        action = victim.mode(victim.params((state + seen[at]).float())).double()
        state = net(state, action)[0] + off[at]
        found.append(state)
    net.float()
    return torch.stack(found)


@pytest.mark.parametrize(
    ("kind", "squash", "ensemble"),
    [("mean", None, 1), ("gaussian", "clip", 2), ("mean", "scale", 2), ("gaussian", "tanh", 1)],
)
def test_no_attack_leads_out(kind: str, squash: str | None, ensemble: int) -> None:
    victim, of, steps, eps, error = actor(kind, squash), model(ensemble=ensemble), 4, 0.2, 0.03
    start = torch.randn(3, N, dtype=torch.float64)
    found = reached_sets(victim, of, start, eps, steps=steps, error=error)
    assert found.low.shape == (3, steps + 1, N)
    assert (found.high[:, 1:] > found.low[:, 1:]).all()
    np.testing.assert_array_equal(found.low[:, 0], start)
    for corners, b in itertools.product((False, True), range(3)):
        draws = torch.rand(2, steps, 2000, N, dtype=torch.float64) * 2 - 1
        seen, off = (draws.sign() if corners else draws).unbind(0)
        with torch.no_grad():
            states = walked(victim, of, start[b].expand(2000, -1), eps * seen, error * off).numpy()
        for t in range(steps):
            assert (states[t] >= found.low[b, t + 1] - 1e-5).all() and (states[t] <= found.high[b, t + 1] + 1e-5).all()


def test_of_what_is_linear_the_boxes_are_the_smallest() -> None:
    victim, of, eps, error, steps = actor(hidden=()), model(hidden=()), 0.2, 0.05, 4
    start = torch.zeros(N, dtype=torch.float64)
    found = reached_sets(victim, of, start.numpy(), eps, steps=steps, error=error)

    def last(added: torch.Tensor) -> torch.Tensor:
        seen, off = (part.reshape(steps, 1, N) for part in added.split(steps * N))
        # the network itself, without the rounding of the victim's float32
        state, net, policy = start[None], of.net.double(), victim.net.double()
        for at in range(steps):
            state = net(state, policy(state + seen[at]))[0] + off[at]
        return state[0]

    at_zero = torch.zeros(2 * steps * N, dtype=torch.float64)
    jacobian = torch.autograd.functional.jacobian(last, at_zero)
    room = torch.tensor([eps, error], dtype=torch.float64).repeat_interleave(steps * N)
    reach = (jacobian.abs() * room).sum(1)
    np.testing.assert_allclose(found.high[0, -1], last(at_zero).detach() + reach, rtol=1e-9)
    np.testing.assert_allclose(found.low[0, -1], last(at_zero).detach() - reach, rtol=1e-9)


class Bent(gym.Env[Any, Any]):
    """A state of three numbers that actions push, with a bend."""

    observation_space, action_space = SEEN, ACTED

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.state, self.t = self.np_random.uniform(-1, 1, N), 0
        return self.state, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        pushed = np.array([action[0], action[1], action[0] - action[1]], np.float64)
        self.state, self.t = 0.8 * self.state + 0.1 * np.sin(3 * self.state) + 0.1 * pushed, self.t + 1
        return self.state, 0.0, False, self.t == 20, {}


def test_attacked_episodes_of_the_environment_stay_inside() -> None:
    victim, steps, eps = actor(squash="clip"), 3, 0.1
    of = adv.train_dynamics(victim, Bent, 20_000, hidden=(32,), epochs=5, batch=64, lr=5e-3)
    starts, walks = [], []
    for attack, seed in itertools.product(("noise", "flip", "max-diff"), range(8)):
        env: Any = adv.wrap(Bent(), f"{attack}:eps={eps}", victim=victim)
        obs, _ = env.reset(seed=seed)
        starts.append(env.unwrapped.state)
        walks.append([])
        for _ in range(steps):
            obs, *_ = env.step(victim.act_on(obs[None])[0])
            walks[-1].append(env.unwrapped.state)
    found = reached_sets(victim, of, starts, eps, steps=steps, error=of.error_quantile(0.999))
    inside = (found.low[:, 1:] <= walks) & (walks <= found.high[:, 1:])
    assert inside.all()


def test_steps_within_limits_end_with_the_first_box_that_leaves_them() -> None:
    found = reached_sets(actor(), model(), np.zeros((2, N)), 0.1, steps=3, error=0.01)
    widest = np.abs(np.stack([found.low, found.high])).max((0, 3))
    for count in range(4):
        limit = widest[0, : count + 1].max()
        assert found.steps_within(-limit, limit)[0] >= count
    assert found.steps_within(1.0, 2.0).tolist() == [0, 0], "they start outside"
    assert found.steps_within(-np.inf, np.inf).tolist() == [3, 3]


def test_the_error_of_the_card_is_what_is_allowed_for() -> None:
    found = reached_sets(actor(), model(), np.zeros(N), 0.1, steps=1)
    assert found.error.tolist() == [0.3] * N


@pytest.mark.parametrize(
    "wrong, raised, said",
    [
        ({"eps": None}, ThreatError, "needs a budget"),
        ({"eps": -1.0}, BudgetError, "eps"),
        ({"eps": None, "within": adv.L2(0.1)}, BudgetError, r"needs Linf\(eps\)"),
        ({"scale": (1.0, 2.0)}, BudgetError, "scale has 2 numbers for a space of 3"),
        ({"scale": "victim"}, BudgetError, "a unit of its own"),
        ({"steps": 0}, ValueRangeError, "steps"),
        ({"start": [0.0, 1.0]}, ValueRangeError, r"start must be finite numbers of shape \(3,\)"),
        ({"start": [0.0, 1.0, np.nan]}, ValueRangeError, "not finite"),
        ({"start": "here"}, ValueRangeError, "start must be numbers"),
        ({"error": -0.1}, ValueRangeError, "error must be at least 0"),
        ({"error": [0.1, 0.1]}, ValueRangeError, "error must be finite numbers of shape a number or"),
        ({"victim": "zoo:cartpole-dqn"}, VictimError, "continuous actions"),
        ({"victim": "zoo:hopper-ppo"}, VictimError, "of shapes"),
        ({"model": Dynamics.of(model().net, {})}, CardError, "no quantiles"),
    ],
)
def test_what_does_not_fit_is_refused(wrong: dict[str, Any], raised: type[AdvWrappersError], said: str) -> None:
    given: dict[str, Any] = {"victim": actor(), "model": model(), "start": np.zeros(N), "eps": 0.1, **wrong}
    with pytest.raises(raised, match=said):
        reached_sets(given.pop("victim"), given.pop("model"), given.pop("start"), **given)


def test_quantiles_of_errors_are_those_that_were_kept() -> None:
    of = model()
    assert of.error_quantile(0.9).tolist() == [0.2] * N
    with pytest.raises(ValueRangeError, match="too few transitions were held out"):
        of.error_quantile(0.999)
    with pytest.raises(ValueRangeError, match="share must be"):
        of.error_quantile(0.5)
