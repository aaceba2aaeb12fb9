"""Steps of boxes: no state of a box leads out of the stepped one, and small boxes stay about as small as they can."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.wrappers import TimeLimit, TransformReward

from adv_wrappers.certification.interval_dynamics import dynamics_of, has_dynamics
from adv_wrappers.errors import ValueRangeError

# an environment, states from which boxes begin, and the sides of the boxes
CASES = {
    "CartPole-v1": ({}, [2.3, 2, 0.2, 2], [0.1, 0.3, 0.05, 0.5]),
    "CartPole sutton": ({"sutton_barto_reward": True}, [2.5, 2, 0.22, 2], [1e-6, 1e-6, 1e-6, 1e-6]),
    "MountainCar-v0": ({}, [1.2, 0.07], [0.1, 0.02]),
    "MountainCar goal": ({"goal_velocity": 0.03}, [0.1, 0.07], [0.05, 0.03]),
    "Pendulum-v1": ({"g": 9.81}, [7.0, 8.0], [0.5, 0.8]),
}
IDS = {"CartPole": "CartPole-v1", "MountainCar": "MountainCar-v0", "Pendulum": "Pendulum-v1"}


def known(case):
    kwargs, spread, sides = CASES[case]
    env = gym.make(IDS[case.split("-")[0].split()[0]], **kwargs)
    env.reset(seed=0)
    return env, dynamics_of(env), np.array(spread), np.array(sides)


def drawn(case, boxes, seed=0):
    """Boxes in the axes of the dynamics, actions, and the environment."""
    env, dynamics, spread, sides = known(case)
    random = np.random.default_rng(seed)
    middle = random.uniform(-1, 1, (boxes, len(spread))) * spread
    if case == "MountainCar-v0":
        middle[:, 0] -= 0.3
        middle[:, 0] = middle[:, 0].clip(-1.2, 0.6)
    if case == "MountainCar goal":
        middle[:, 0] += 0.45
    half = sides / 2 * 10.0 ** random.uniform(-3, 0, (boxes, 1)) * random.integers(0, 2, (boxes, len(sides)))
    centre = middle @ dynamics.coordinates.T
    low, high = centre - half, centre + half
    if isinstance(env.action_space, gym.spaces.Discrete):
        action = random.integers(env.action_space.n, size=boxes).astype(float)
    else:
        action = np.sort(random.uniform(-2.5, 2.5, (boxes, 2, 1)), 1)
    return env, dynamics, low, high, action, random


@pytest.mark.parametrize("case", CASES)
def test_no_state_leads_out(case):
    points = 40
    env, dynamics, low, high, action, random = drawn(case, 100 if case != "CartPole-v1" else 300)
    after, inner = dynamics.step(low, high, action), env.unwrapped
    back = np.linalg.inv(dynamics.coordinates)
    ends = inner.steps_beyond_terminated if hasattr(inner, "steps_beyond_terminated") else None
    assert ends is None
    ended = 0
    for row in range(len(low)):
        share = random.uniform(size=(points, low.shape[1]))
        share[: points // 2] = share[: points // 2].round()  # corners
        for point in (low[row] + share * (high[row] - low[row])) @ back.T:
            inner.state = point.copy() if "Mountain" not in case else tuple(point)
            inner.steps_beyond_terminated = None
            if action.ndim == 1:
                act = int(action[row])
            else:
                act = np.array([random.choice([*action[row, :, 0], random.uniform(*action[row, :, 0])])], np.float32)
                act = act.clip(*action[row].astype(np.float32).reshape(2, 1))
            _, reward, terminated, _, _ = inner.step(act)
            ended += terminated
            assert reward >= (after.last_reward if terminated else after.reward)[row]
            assert not terminated or after.may_end[row]
            assert terminated or not after.surely_ends[row]
            if not terminated:
                to = dynamics.coordinates @ np.array(inner.state, float)
                assert (after.low[row] <= to).all() and (to <= after.high[row]).all()
    assert (ended > 50) == (not case.startswith("Pendulum"))


@pytest.mark.parametrize("case", ["CartPole-v1", "Pendulum-v1"])
def test_observations_are_held(case):
    _, dynamics, low, high, _, random = drawn(case, 300)
    first, last = dynamics.observe(low, high)
    for _ in range(20):
        states = (low + random.uniform(size=low.shape) * (high - low)) @ np.linalg.inv(dynamics.coordinates).T
        for row, state in enumerate(states):
            seen = state if "Cart" in case else np.array([np.cos(state[0]), np.sin(state[0]), state[1]])
            assert (first[row] <= seen).all() and (seen <= last[row]).all()


@pytest.mark.parametrize("case", ["CartPole-v1", "MountainCar-v0", "Pendulum-v1"])
def test_small_boxes_grow_as_their_states_spread(case):
    """Boxes are hardly larger than what is reached from them; the axes of CartPole keep them apart."""
    _, dynamics, spread, _ = known(case)
    middle = dynamics.coordinates @ np.array([0.1, 0.2, 0.05, 0.3])[: len(spread)]
    half = np.array([0.01, 0.01, 0.005, 0.01])[: len(spread)]
    low, high = (middle - half)[None], (middle + half)[None]
    discrete = case != "Pendulum-v1"
    action = np.ones(1) if discrete else np.full((1, 2, 1), 0.5)
    after = dynamics.step(low, high, action)
    random = np.random.default_rng(0)
    points = low + random.uniform(size=(2000, len(half))).round() * (high - low)
    to = dynamics.step(points, points, np.repeat(action, len(points), 0))
    reached = to.high.max(0) - to.low.min(0)
    assert (after.high - after.low <= 1.02 * reached + 1e-6).all()


def test_the_least_rest_is_earned():
    for case, steps, least in [("CartPole-v1", 3, 1), ("CartPole sutton", 3, -1), ("MountainCar-v0", 3, -3)]:
        assert known(case)[1].least_rest(steps) == least and known(case)[1].least_rest(0) == 0
    env, dynamics, *_ = known("Pendulum-v1")
    env.unwrapped.state = np.array([np.pi, 8.0])
    assert dynamics.least_rest(1) <= env.step(np.array([2.0], np.float32))[1] < dynamics.least_rest(1) + 1e-3
    assert dynamics.least_rest(2) == 2 * dynamics.least_rest(1)


def test_starts_are_those_of_resets():
    for case in ("CartPole-v1", "MountainCar-v0", "Pendulum-v1"):
        env, dynamics, *_ = known(case)
        states = []
        for seed in range(300):
            env.reset(seed=seed)
            states.append(dynamics.state())
        low, high = np.min(states, 0), np.max(states, 0)
        sides = dynamics.start_high - dynamics.start_low
        assert (dynamics.start_low <= low).all() and (high <= dynamics.start_high).all()
        assert (high - low >= 0.95 * sides).all()


def test_constants_are_those_of_the_environment():
    env = gym.make("CartPole-v1")
    env.unwrapped.gravity, env.unwrapped.force_mag = 3.0, 2.0
    env.reset(seed=0)
    dynamics, state = dynamics_of(env), np.array([0.1, 0.2, 0.1, -0.3])
    env.unwrapped.state = state.copy()
    env.step(1)
    point = (dynamics.coordinates @ state)[None]
    after = dynamics.step(point, point, np.ones(1))
    to = dynamics.coordinates @ env.unwrapped.state
    assert np.abs(after.low[0] - to).max() < 1e-9 and np.abs(after.high[0] - to).max() < 1e-9


def test_other_environments_are_refused():
    cases = [
        (gym.make("Acrobot-v1"), "CartPole, MountainCar and Pendulum, got"),
        (TransformReward(gym.make("CartPole-v1"), float), "change what is seen, done or earned, got TransformReward"),
        (gym.make("CartPole-v1").unwrapped, "a limit of steps"),
    ]
    for env, words in cases:
        assert not has_dynamics(env)
        with pytest.raises(ValueRangeError, match=words):
            dynamics_of(env)
    assert (
        has_dynamics(TimeLimit(gym.make("CartPole-v1"), 20))
        and dynamics_of(TimeLimit(gym.make("CartPole-v1"), 20)).limit == 20
    )
    semi = gym.make("CartPole-v1")
    semi.unwrapped.kinematics_integrator = "semi-implicit euler"
    assert not has_dynamics(semi)
    with pytest.raises(ValueRangeError, match="kinematics_integrator='euler', got 'semi"):
        dynamics_of(semi)
