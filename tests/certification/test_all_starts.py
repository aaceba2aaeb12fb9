"""Searches over boxes of states: every attacked episode stays inside, no return falls below, and what is refused."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.wrappers import RescaleAction
from torch import nn

from adv_wrappers import L2, Linf, Valid, evaluate, from_module, load_victim
from adv_wrappers.certification import all_starts
from adv_wrappers.certification.all_starts import (
    CellGrid,
    RoundSettings,
    SearchRound,
    StateBoxSearch,
    certify_all_starts,
)
from adv_wrappers.errors import BudgetError, ThreatError, ValueRangeError, VictimError
from adv_wrappers.utils.deadline import Deadline
from tests.core.helpers import randn


def upright(kind="logits", dtype=torch.float32):
    """A CartPole agent that holds the pole up, of which every observation within 0.05 makes little difference."""
    env = gym.make("CartPole-v1")
    return from_module(balance(), env.observation_space, env.action_space, kind, dtype=dtype)


def balance():
    """Two layers that compute ``+-(gains @ observation)``."""
    gains = torch.tensor([[1.0, 2.0, 20.0, 5.0]])
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    net[0].weight.data, net[0].bias.data = torch.cat([gains, -gains, gains, -gains]), torch.tensor([0.0, 0, 3, 3])
    net[2].weight.data = torch.tensor([[-1.0, 1, 0, 0], [1, -1, 0, 0]])
    net[2].bias.data.zero_()
    return net


def swinger():
    """A Pendulum agent of random weights, with a bounded torque."""
    env = gym.make("Pendulum-v1")
    net = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
    net[0].weight.data, net[2].weight.data = randn(8, 3, seed=1).float(), randn(1, 8, seed=2).float()
    return from_module(net, env.observation_space, env.action_space, "mean", clip=True)


AGENTS = {
    "CartPole-v1": (upright, 0.05, 25),
    "MountainCar-v0": (lambda: load_victim("zoo:mountaincar-dqn"), 0.002, 25),
    "Pendulum-v1": (swinger, 0.05, 40),
}


def outside(name, episodes=24, **changes):
    """The number of states of attacked episodes that lie in no box, by step.

    Attacks are random: anywhere in the budget, at its corners, and towards other actions.
    """
    make, eps, steps = AGENTS[name]
    victim, random = make(), np.random.default_rng(0)
    envs = [gym.make(name) for _ in range(episodes)]
    search = StateBoxSearch(victim, envs[0], eps, method="interval")
    for owner, attribute, value in changes.get("broken", lambda search: [])(search):
        setattr(owner, attribute, value)
    dynamics = search.dynamics
    found = SearchRound(search, RoundSettings(1000, None), dynamics.start_low, dynamics.start_high, Deadline(None))
    seen = np.array([env.reset(seed=seed)[0] for seed, env in enumerate(envs)])
    playing, earned, counts = np.ones(episodes, bool), np.zeros(episodes), []
    toward = random.choice([-1, 1], (episodes, seen.shape[1]))
    space = envs[0].observation_space
    for _ in range(steps):
        moved = seen + eps * np.where(
            np.arange(episodes)[:, None] % 3 == 0,
            random.uniform(-1, 1, seen.shape),
            np.where(np.arange(episodes)[:, None] % 3 == 1, random.choice([-1, 1], seen.shape), toward),
        )
        actions = victim.act_on(moved.clip(space.low, space.high).astype(np.float32))
        found.step()
        out = 0
        for i in np.flatnonzero(playing):
            seen[i], reward, terminated, *_ = envs[i].step(actions[i])
            earned[i] += reward
            playing[i] = not terminated
            if terminated:
                assert earned[i] >= found.lower
                continue
            state = np.array(envs[i].unwrapped.state, float)
            turn = np.round(state[0] / dynamics.periods[0]) * dynamics.periods[0] if name == "Pendulum-v1" else 0.0
            for whole in (turn, turn + 2 * np.pi, turn - 2 * np.pi) if name == "Pendulum-v1" else (0.0,):
                place = dynamics.coordinates @ (state - np.eye(len(state))[0] * whole)
                held = ((found.low <= place) & (place <= found.high)).all(1)
                if held.any():
                    assert earned[i] >= found.values[held].min() - 1e-9
                    break
            else:
                out += 1
        counts.append(out)
        if not len(found.values):
            break
    assert len(counts) > 5
    return np.array(counts)


@pytest.mark.parametrize("name", ["CartPole-v1", pytest.param("MountainCar-v0", marks=pytest.mark.slow), "Pendulum-v1"])
def test_attacked_episodes_stay_inside(name):
    assert outside(name).sum() == 0


def test_a_search_without_the_budget_is_caught():
    assert outside("CartPole-v1", broken=lambda search: [(search.box_actions, "_eps", np.zeros(4))]).sum() > 0


def test_a_search_that_keeps_one_box_of_a_cell_is_caught(monkeypatch):
    def first_of(numbers, low, high, values):
        found, row = np.unique(numbers, return_index=True)
        return found, low[row], high[row], values[row]

    monkeypatch.setattr(all_starts, "_hulls_of", first_of)
    assert outside("CartPole-v1").sum() > 0


@pytest.mark.slow
def test_no_attack_falls_below():
    """One certificate for all starts, and one for each, beside attacks on the same episodes."""
    victim, eps = load_victim("zoo:cartpole-ppo"), 0.1
    cut = {"max_episode_steps": 100}
    env = gym.make("CartPole-v1", **cut)
    everywhere = certify_all_starts(victim, env, eps, budget_s=None, max_boxes=2000)
    report = evaluate(victim, "CartPole-v1", [f"fgsm:eps={eps}", f"noise:eps={eps}"], 2, 3, env_kwargs=cut)
    search = StateBoxSearch(victim, env, eps)
    assert 6 < everywhere.lower < 100 and everywhere.finished == 0 and 500 < everywhere.nodes < 2500
    for episode, seed in enumerate(report.episode_seeds):
        env.reset(seed=seed)
        alone = search.run(search.dynamics.state(), search.dynamics.state(), None, 400)
        assert alone.lower >= everywhere.lower - 2  # sets of one start are smaller
        for row in report.threats:
            assert row["returns"][episode] >= max(alone.lower, everywhere.lower)


def test_a_robust_agent_is_certified_for_whole_episodes():
    env = gym.make("CartPole-v1", max_episode_steps=30)
    found = certify_all_starts(upright(), env, 0.002, method="interval", budget_s=None, max_boxes=100_000)
    assert found.lower == 30 and found.finished == 1 and found.seeds == () and "all episodes: awc 30" in repr(found)


def test_what_was_followed_counts_wherever_a_search_stops():
    """One step at least is followed, and the step after those that were followed earns 1 too."""
    env = gym.make("CartPole-v1")
    search = StateBoxSearch(upright(), env, 0.01, method="interval")
    starts = search.dynamics.start_low, search.dynamics.start_high
    found = search.run(*starts, 0)
    assert found.lower == 2 and found.steps == 1 and search.rounds == 1 and not found.finished
    search = StateBoxSearch(upright(), env, 0.01, method="interval", most_at_once=3)
    few = search.run(*starts)
    assert 2 < few.lower < 30 and not few.finished and search.boxes < 100 * few.steps


@pytest.fixture
def rounds(monkeypatch):
    """What the rounds of searches were and certified: their bounds, how many boxes at once, and the return."""
    run, found = SearchRound.run, list[tuple[str, int, float]]()

    def noted(self):
        run(self)
        found.append((self.search.box_actions.method, self._most, self.lower))

    monkeypatch.setattr(SearchRound, "run", noted)
    return found


@pytest.mark.slow
def test_tighter_bounds_follow_where_more_boxes_raise_nothing(rounds):
    """Whatever the number of boxes, CROWN certifies 10 steps of this agent."""
    env = gym.make("CartPole-v1")
    env.reset(seed=0)
    plain, tighter = (StateBoxSearch("zoo:cartpole-dqn", env, 0.05, method=how) for how in ("crown", "bisect"))
    start = plain.dynamics.state()
    assert plain.run(start, start, None, 1000).lower == 10 and {how for how, *_ in rounds} == {"crown"}
    rounds.clear()
    assert tighter.run(start, start, None, 5000).lower > 10
    assert rounds[:3] == [("crown", 50, 10), ("crown", 200, 10), ("full-crown", 50, 10)]
    assert rounds[3][:2] == ("bisect", 50) and rounds[3][2] > 10
    rounds.clear()
    tighter.run(start, start, None, 100)
    assert rounds[0][0] == "crown"


def test_the_other_reward_of_cartpole():
    env = gym.make("CartPole-v1", sutton_barto_reward=True, max_episode_steps=20)
    assert certify_all_starts(upright(), env, 0.002, method="interval", budget_s=None, max_boxes=50_000).lower == 0
    assert certify_all_starts(upright(), env, 1.0, method="interval", budget_s=None, max_boxes=2000).lower == -1


def test_mountain_car_reaches_the_goal():
    """An agent whose push goes with its velocity, from a start from which it needs few steps."""
    env = gym.make("MountainCar-v0")
    net = nn.Linear(2, 3)
    net.weight.data, net.bias.data = torch.tensor([[0.0, -1.0], [0.0, 0.0], [0.0, 1.0]]), torch.tensor([0.0, -1.0, 0.0])
    victim = from_module(net, env.observation_space, env.action_space, "logits")
    search = StateBoxSearch(victim, env, 0.001)
    state = np.array([0.2, 0.045])
    found = search.run(state, state, None, 2000)
    env.reset(seed=0)
    env.unwrapped.state, observation, steps, over = tuple(state), state.astype(np.float32), 0, False
    while not over:
        observation, _, over, *_ = env.step(victim.act_on(observation[None])[0])
        steps += 1
    assert -steps - 2 <= found.lower <= -steps and found.finished
    assert search.run(np.array([-0.5, 0.0]), np.array([-0.5, 0.0]), None, 500).lower == -200


def test_budgets_by_feature_and_whole_spaces():
    env = gym.make("Pendulum-v1", max_episode_steps=5)
    small, large, all_ = (
        certify_all_starts(swinger(), env, within=budget, budget_s=None, max_boxes=1000).lower
        for budget in (Linf(0.01, (1, 1, 0)), Linf(0.5), Valid())
    )
    assert small >= large >= all_ > 5 * -16.3
    with pytest.raises(BudgetError, match="a budget that is a box"):
        certify_all_starts(swinger(), env, within=L2(0.1))
    frozen = [
        certify_all_starts(
            upright(), gym.make("CartPole-v1"), 0.1, scale=scale, method="interval", budget_s=None, max_boxes=1000
        )
        for scale in (None, (1, 0, 0, 0))
    ]
    assert frozen[0].lower < frozen[1].lower


@pytest.mark.parametrize("kind", ["plain", "behind another layer"])
def test_layers_in_front_are_kept(kind):
    """The layer that changes axes is joined with a first linear one, or stands before any other."""
    env = gym.make("CartPole-v1")
    net = nn.Sequential(nn.Identity(), balance()) if kind == "behind another layer" else balance()
    victim = from_module(net, env.observation_space, env.action_space, "q", dtype=torch.float64)
    search = StateBoxSearch(victim, env, 0.01)
    state = np.array([0.02, -0.3, 0.05, 0.2])
    place = (search.dynamics.coordinates @ state)[None]
    own = victim.act_on(state.astype(np.float32)[None])[0]
    assert search.box_actions.possible(place, place)[0].tolist() == [own == 0, own == 1]


def test_refusals():
    env, victim = gym.make("CartPole-v1"), upright()
    sampled = from_module(balance(), env.observation_space, env.action_space, "logits", select="sample")
    with pytest.raises(VictimError, match="plays its mode"):
        certify_all_starts(sampled, env, 0.01)
    broken = nn.Linear(4, 2)
    nn.init.constant_(broken.weight, float("nan"))
    with pytest.raises(VictimError, match="are its weights"):
        certify_all_starts(from_module(broken, env.observation_space, env.action_space, "q"), env, 0.01)
    with pytest.raises(VictimError, match="expected a victim for"):
        certify_all_starts(victim, gym.make("MountainCar-v0"), 0.01)
    with pytest.raises(ThreatError, match="a certificate needs a budget"):
        certify_all_starts(victim, env)
    with pytest.raises(ValueRangeError, match="got RescaleAction"):
        certify_all_starts(swinger(), RescaleAction(gym.make("Pendulum-v1"), -1, 1), 0.01)
    search = StateBoxSearch(victim, env, 0.01)
    with pytest.raises(ValueRangeError, match="two states"):
        search.run(np.zeros(4), np.full(4, -1.0))
    with pytest.raises(ValueRangeError, match="two states"):
        search.run(np.zeros(4), np.full(4, np.nan))


# grids of cells: cutting and joining lose nothing


def boxes(count=200, size=3, seed=0):
    random = np.random.default_rng(seed)
    low = random.normal(size=(count, size))
    return low, low + random.exponential(0.3, (count, size)), random.normal(size=count)


def test_hulls_hold_every_point(monkeypatch):
    monkeypatch.setattr(all_starts, "_CUT_AT_ONCE", 50)  # so that the boxes are cut in several parts
    low, high, values = boxes()
    grid = CellGrid(np.array([0.1, 0.0, -0.3]), np.array([0.2, 0.3, 0.5]), np.full(3, np.inf))
    numbers, first, last, least = grid.hulls(low, high, values)
    assert len(np.unique(numbers)) == len(numbers) < 3000 and (first <= last).all()
    random = np.random.default_rng(1)
    for row in range(len(low)):
        for point in low[row] + random.uniform(size=(20, 3)).round(1) * (high[row] - low[row]):
            held = ((first <= point) & (point <= last)).all(1)
            assert held.any() and least[held].min() <= values[row]
    corner, opposite = grid.cells(numbers)
    assert (corner <= first).all() and (last <= opposite).all() and (opposite - corner < grid.sides * 1.001).all()
    assert (first.min(0) == low.min(0)).all() and (last.max(0) == high.max(0)).all()


def test_axes_repeat():
    grid = CellGrid(np.array([-np.pi, 0.0]), np.array([2 * np.pi / 8, 1.0]), np.array([2 * np.pi, np.inf]))
    one, low, high, _ = grid.hulls(np.array([[3.0, 0.2]]), np.array([[3.3, 0.4]]), np.zeros(1))
    assert len(one) == 2 and low[:, 0].min() == pytest.approx(-np.pi) and high[:, 0].max() == pytest.approx(np.pi)
    assert sorted(high[:, 0])[0] == pytest.approx(3.3 - 2 * np.pi)
    far, *_ = grid.hulls(np.array([[3.0 - 6 * np.pi, 0.2]]), np.array([[3.3 - 6 * np.pi, 0.4]]), np.zeros(1))
    assert far.tolist() == one.tolist()


def test_cells_that_are_too_far_away_are_refused():
    grid = CellGrid(np.zeros(4), np.full(4, 1e-6), np.full(4, np.inf))
    with pytest.raises(ValueRangeError, match="within 16384 cells"):
        grid.hulls(np.ones((1, 4)), np.ones((1, 4)), np.zeros(1))
    assert grid.pieces(np.ones((1, 4)), np.ones((1, 4))) == np.inf


def test_pieces_are_counted_before_boxes_are_cut():
    grid = CellGrid(np.zeros(2), np.array([0.5, 2 * np.pi / 8]), np.array([np.inf, 2 * np.pi]))
    low, high = np.array([[0.1, 0.1], [10.2, 0.1]]), np.array([[1.1, 1.0], [10.3, 8 * np.pi + 0.1]])
    assert grid.pieces(low, high) == 3 * 2 + 1 * 33
    assert len(grid.hulls(low[:1], high[:1], np.zeros(1))[0]) == 6
