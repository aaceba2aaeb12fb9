"""certify: its figures beside attacks on the same seeds, its limits, and what it refuses before anything is played."""

from __future__ import annotations

import inspect
import json

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit
from torch import nn

import adv_wrappers as adv
from adv_wrappers import Linf, Newest, certify, evaluate, from_module, load_victim
from adv_wrappers.atari.env import atari
from adv_wrappers.certification import all_starts
from adv_wrappers.certification import certify as certify_module
from adv_wrappers.certification import possible_actions as possible_actions_module
from adv_wrappers.certification.all_starts import certify_all_starts
from adv_wrappers.certification.ranges import certified_ranges
from adv_wrappers.errors import BudgetError, ThreatError, ValueRangeError, VictimError
from adv_wrappers.evaluation.episodes import draw_seeds
from adv_wrappers.utils import deadline
from tests.certification.walks import STEPS, Walk, every_return, walker
from tests.core.helpers import box, linear, randn
from tests.every_case import every_case

EPS = 0.5


def certified(**changed):
    arguments = {"victim": walker(), "env": Walk, "eps": EPS, "episodes": 4, "method": "interval", "least_reward": 0.0}
    return certify(**{**arguments, **changed})


def test_the_figures_of_an_environment_that_is_followed_whole():
    found, seeds = certified(), draw_seeds(0, 4)
    worst = [min(every_return(Walk(), walker(), seed, EPS)) for seed in seeds]
    assert found.seeds == tuple(seeds) and found.finished_searches.all() and found.finished == 1
    assert found.awc_returns.tolist() == found.lower_returns.tolist() == found.lowest_found.tolist() == worst
    assert (found.gwc_returns >= found.awc_returns).all() and (found.clean_returns >= found.awc_returns).all()
    assert found.awc == found.lower == np.mean(worst) < found.gwc < found.clean
    assert 0 < found.acr < 1 and found.nodes == found.node_counts.mean() > STEPS and found.least_reward == 0


def test_all_of_a_certificate_is_computed_in_full_precision(monkeypatch):
    """Also where it fails, as all but the second one do, precision is as before."""
    cut, seen, linear_layer = {"max_episode_steps": 6}, [], nn.functional.linear
    victim = load_victim("zoo:cartpole-dqn")

    def noted(*arguments):
        cudnn = torch.backends.cudnn
        seen.append((cudnn.allow_tf32, torch.get_float32_matmul_precision(), torch.is_autocast_enabled("cpu")))
        return linear_layer(*arguments)

    monkeypatch.setattr(nn.functional, "linear", noted)
    least = 2.0  # of a step, which CartPole's are below
    certificates = [
        lambda: certify(victim, "CartPole-v1", 0.05, 1, max_nodes=20, env_kwargs=cut, least_reward=least),
        lambda: certify(victim, "CartPole-v1", 0.05, 1, max_nodes=0, env_kwargs=cut),
        lambda: certified_ranges(
            victim, "CartPole-v1", [0.05], 1, attacks=["pgd"], max_nodes=20, env_kwargs=cut, least_reward=least
        ),
        lambda: certify_all_starts(victim, gym.make("CartPole-v1", **cut), 0.05, max_boxes=100, budget_s=-1.0),
    ]
    torch.set_float32_matmul_precision("high")
    try:
        with torch.autocast("cpu", torch.bfloat16):
            for i, compute in enumerate(certificates):
                if i != 1:
                    with pytest.raises(ValueRangeError, match=r"least reward|least_reward|budget_s"):
                        compute()
                else:
                    compute()
                assert seen and set(seen) == {(False, "highest", False)}
                seen.clear()
                assert torch.backends.cudnn.allow_tf32 and torch.is_autocast_enabled("cpu")
                assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision("highest")


def test_no_attack_falls_below():
    victim = load_victim("zoo:cartpole-dqn")
    short = {"env_kwargs": {"max_episode_steps": 20}}
    found = certify(victim, "CartPole-v1", 0.1, 1, 1, "crown", max_nodes=20, **short)
    report = evaluate(victim, "CartPole-v1", ["pgd:eps=0.1"], 1, 1, **short)
    assert report.episode_seeds == found.seeds and report.threats[0]["returns"] == found.clean_returns.tolist()
    for row in report.threats:
        assert (np.array(row["returns"]) >= found.lower_returns).all()
    assert not found.finished_searches.any() and np.isnan(found.awc) and found.finished == 0
    assert (found.lower_returns > 1).all() and (found.node_counts <= 20).all() and found.gwc <= 20


def test_boxes_of_states_are_a_second_bound(monkeypatch):
    arguments = {
        "victim": "zoo:cartpole-dqn",
        "env": "CartPole-v1",
        "eps": 1e-3,
        "method": "crown",
        "episodes": 1,
        "least_reward": None,
        "env_kwargs": {"max_episode_steps": 15},
        "budget_s": None,
        "max_nodes": 10,
    }
    found = certified(**arguments)
    monkeypatch.setattr(certify_module, "has_dynamics", lambda env: False)
    without = certified(**arguments)
    assert np.isnan(without.state_box_returns).all() and without.lower < 15 and without.finished == 0
    by_boxes = found.state_box_returns
    assert 5 < by_boxes[0] <= 15 and found.gwc == 15
    assert found.lower == max(by_boxes[0], without.lower) and found.finished == (found.lower == 15)


def test_limits():
    victim, worst = walker(3), certified(victim=walker(3), env=lambda: Walk(3)).awc_returns
    few = {"victim": victim, "env": lambda: Walk(3), "order": "depth-first"}
    some = certified(**few, max_nodes=20)
    assert (some.node_counts <= 20).all() and (some.lower_returns <= worst).all() and some.finished < 1
    assert np.isnan(some.awc_returns[~some.finished_searches]).all()
    assert certified(**few).awc_returns.tolist() == worst.tolist()
    assert (certified(**few, max_sequences=1).sequence_counts < some.sequence_counts.max() + 20).all()
    again = certified(**few, max_nodes=20)
    assert again.to_dict() == some.to_dict()


class Clock:
    """A clock that moves on with every box whose bounds are computed, and by little with every plain answer."""

    def __init__(self, monkeypatch, a_box=1.0):
        self.now, self.a_box, self.boxes = 0.0, a_box, 0
        monkeypatch.setattr(deadline, "clock", lambda: self.now)
        for module in (possible_actions_module, all_starts):
            monkeypatch.setattr(module, "possible_actions", self.bounded(module.possible_actions))

    def bounded(self, possible_actions):
        def counted(victim, low, *rest):
            self.now += self.a_box * len(low)
            self.boxes += len(low)
            return possible_actions(victim, low, *rest)

        return counted


@pytest.mark.parametrize(
    ("case", "budget_s", "episodes"),
    [("walk", 1e-3, 2), ("walk", 2.0, 1), ("walk", 100.0, 1), ("boxes", 20.0, 1)],
)
def test_a_call_takes_no_longer_than_its_budget_and_one_step(case, budget_s, episodes, monkeypatch):
    own = {
        "walk": {},
        "boxes": {
            "victim": "zoo:cartpole-dqn",
            "env": "CartPole-v1",
            "eps": 0.05,
            "least_reward": None,
            "env_kwargs": {"max_episode_steps": 25},
        },
    }[case]
    unlimited = certified(**own, episodes=episodes, budget_s=None, max_nodes=100, max_boxes=100) if own else None
    clock = Clock(monkeypatch)
    found = certified(**own, episodes=episodes, budget_s=budget_s)
    assert clock.now <= 1.1 * budget_s * episodes + episodes + 2  # boxes: of a step, of the look at bounds, of a search
    assert np.isfinite(found.lower_returns).all()
    if case == "walk":
        worst = [min(every_return(Walk(), walker(), seed, EPS)) for seed in found.seeds]
        assert (found.lower_returns <= worst).all()
    else:
        attacked = evaluate(own["victim"], own["env"], ["min-best:eps=0.05"], episodes, env_kwargs=own["env_kwargs"])
        assert (found.lower_returns <= np.min([row["returns"] for row in attacked.threats], 0)).all()
        assert np.fmin(found.clean_returns, 25).tolist() == unlimited.clean_returns.tolist() or budget_s < 0.1
    for i, names in enumerate(found.cut):
        values = {"clean": found.clean_returns, "acr": found.clean_acr, "gwc": found.gwc_returns}
        assert {name for name in names if name != "search"} == {name for name in values if np.isnan(values[name][i])}
        assert ("search" in names) <= (not found.finished_searches[i])
    if budget_s == 1e-3:
        assert all(names == ("clean", "acr", "gwc", "search") for names in found.cut) and not found.node_counts.any()
        assert f"cut by budget_s: clean in {episodes} of {episodes} episodes, acr in {episodes}" in repr(found)
        assert found.to_dict()["cut"] == [["clean", "acr", "gwc", "search"]] * episodes
    if case == "walk" and budget_s == 100:
        assert found.finished == 1 and not any(found.cut) and "cut" not in repr(found)


@pytest.mark.parametrize("call", [certify, certified_ranges, certify_all_starts])
def test_seconds_are_for_those_who_ask(call):
    assert inspect.signature(call).parameters["budget_s"].default is None


def test_the_clean_path_is_played_on_without_bounds(monkeypatch):
    clock, short = Clock(monkeypatch), {"env_kwargs": {"max_episode_steps": 90}}
    found = certify("zoo:cartpole-dqn", "CartPole-v1", 0.05, 2, 0, "interval", 40.0, **short)
    assert found.clean_returns.tolist() == [90, 90] and np.isnan(found.clean_acr).all() and clock.now >= 60
    assert all("acr" in names and "clean" not in names for names in found.cut)
    assert (found.lower_returns > 1).all() and found.node_counts.all()  # which searches had the rest of the time for


def test_without_a_search():
    found = certified(max_nodes=0, least_reward=None)
    assert np.isnan(found.lower) and np.isnan(found.awc) and found.finished == found.nodes == 0
    assert found.gwc == certified().gwc and found.least_reward is None


def test_negative_rewards_are_bounded_by_the_limit_of_steps():
    limited = lambda: TimeLimit(Walk(lost=2.0), 5)  # noqa: E731
    found = certified(env=limited, least_reward=-2.0)
    worst = [min(every_return(limited(), walker(), seed, EPS)) for seed in found.seeds]
    assert found.awc_returns.tolist() == worst and found.finished == 1
    assert (certified(env=limited, least_reward=-2.0, max_nodes=4).lower_returns <= worst).all()
    by_rules = certified(env=lambda: Walk(lost=2.0), least_reward=None, least_return=-14.0, max_nodes=6)
    assert (by_rules.lower_returns >= -14).all() and by_rules.least_return == -14


def test_images_under_newest():
    space = spaces.Box(0, 255, (2, 6, 6), np.uint8)

    class Frames(Walk):
        def __init__(self):
            super().__init__()
            self.observation_space = space

        def seen(self):
            return np.random.default_rng(self.place).integers(0, 256, space.shape, np.uint8)

    net = torch.nn.Sequential(torch.nn.Flatten(), linear(randn(2, 72, dtype=torch.float32)))
    victim = from_module(net, space, spaces.Discrete(2, start=1), "q")
    found = certified(victim=victim, env=Frames, eps=None, within=Newest(Linf(3), axis=0))
    assert found.finished == 1 and (found.lower_returns <= found.clean_returns).all()
    less = certified(victim=victim, env=Frames, eps=0.5, quantize=False)
    assert less.acr >= found.acr and less.lower >= found.lower


def test_atari():
    shortened = lambda: TimeLimit(atari("PongNoFrameskip-v4"), 2)  # noqa: E731
    found = certified(
        victim="zoo:pong-ppo",
        env=shortened,
        eps=None,
        within=Newest(Linf(1)),
        episodes=1,
        least_reward=-1.0,
        max_nodes=8,
        budget_s=None,
    )
    assert found.clean == found.gwc == 0 and -2 < found.lower <= 0 and found.node_counts <= 8


def test_the_json_form_and_the_text():
    found = certified(max_nodes=8)
    data = json.loads(json.dumps(found.to_dict()))
    assert data["lower"] == found.lower and data["seeds"] == list(found.seeds) and data["awc"] is None
    assert data["within"] == {"type": "linf", "eps": EPS} and data["clean_returns"] == found.clean_returns.tolist()
    assert repr(found).startswith("<Certificate of <ModuleVictim") and "4 episodes: clean" in repr(found)


def test_what_is_told_of_the_progress():
    told = list[tuple[str, int, int]]()
    certified(episodes=2, progress=lambda *what: told.append(what))
    assert told == [(what, done, 2) for what in ("clean", "gwc", "search") for done in (1, 2)]


class Handle(Walk):
    """Draws a number in every step, and holds what cannot be copied."""

    def reset(self, *, seed=None, options=None):
        self.handle = (i for i in range(99))
        return super().reset(seed=seed)

    def step(self, action):
        self.np_random.random(next(self.handle))
        return super().step(action)


def test_an_environment_that_draws_and_is_replayed():
    with pytest.warns(RuntimeWarning) as warned:
        found = certified(env=Handle)
    assert found.awc_returns.tolist() == certified().awc_returns.tolist() and found.finished == 1
    said = [str(one.message) for one in warned]
    assert "draws random numbers" in said[0] and "replaying its episode" in said[1]


@every_case(
    ("changed", "error", "words"),
    [
        ({"victim": walker(select="sample")}, VictimError, "needs a victim that plays its mode"),
        ({"victim": from_module(lambda x: x[:, :2], box(3), spaces.Discrete(2, start=1), "q")}, VictimError, "around"),
        ({"victim": from_module(linear(randn(2, 3)), box(3), box(2), "mean")}, VictimError, "is for action space Box"),
        ({"victim": walker(3)}, VictimError, "is for action space"),
        ({"env": "ALE/Pong-v5"}, VictimError, "is for observation space"),
        ({"eps": None}, ThreatError, "a certificate needs a budget: give eps="),
        ({"within": Linf(0.1)}, ThreatError, "give either eps=, with scale= if need be, or within=, got both"),
        ({"eps": None, "within": Linf(0.1), "scale": 2.0}, ThreatError, "give either eps"),
        ({"eps": None, "within": 0.1}, BudgetError, "within must be a budget such as Linf"),
        ({"eps": None, "within": adv.L2(0.1)}, BudgetError, "needs a budget that is a box"),
        ({"eps": 0.1, "scale": "victim"}, BudgetError, "scale='victim' needs a victim with a unit of its own"),
        ({"method": "crow"}, ValueRangeError, "method must be 'interval', 'crown'"),
        ({"budget_s": -1.0}, ValueRangeError, "budget_s must be a finite number"),
        ({"least_reward": None}, ValueRangeError, "needs the least reward of a step of Walk, which is not known"),
        ({"least_reward": -1.0}, ValueRangeError, "rewards of -1 without a limit of steps"),
        ({"least_reward": 0.5}, ValueRangeError, "expected rewards of at least least_reward=0.5"),
        ({"least_return": 50.0}, ValueRangeError, "expected returns of at least least_return=50, got"),
    ],
)  # fmt: skip
def test_what_cannot_be_certified(changed, error, words):
    with pytest.raises(error, match=words):
        certified(**changed)


def test_nothing_is_played_before_everything_is_checked():
    stepped = list[int]()

    class Counting(Walk):
        def step(self, action):
            stepped.append(1)
            return super().step(action)

    for changed in ({"within": Linf(1)}, {"method": "crow"}, {"least_reward": None}, {"max_nodes": -1}):
        with pytest.raises((ThreatError, ValueRangeError), match=r"eps|method|least|max_nodes"):
            certified(env=Counting, **changed)
    assert not stepped
