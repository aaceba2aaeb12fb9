"""The search attack over whole episodes: beside all perturbed episodes there are, and played by ordinary layers."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

from adv_wrappers import L2, Linf, Newest, Valid, evaluate, from_module, load_victim
from adv_wrappers.errors import BudgetError, SnapshotError, SpaceError, ThreatError, ValueRangeError, VictimError
from adv_wrappers.evaluation.episodes import draw_seeds
from adv_wrappers.evaluation.searches import beam
from adv_wrappers.evaluation.searches.beam import RankedStates, beam_search
from adv_wrappers.utils import deadline
from adv_wrappers.victims.policy_runner import PolicyRunner
from tests.core.helpers import box, linear, randn
from tests.evaluation.searches.test_fewest_perturbations import Drifting, Handle, Recurrent, Walk, agent
from tests.every_case import every_case

EPS = 1.0


def lowest_by_sampling(make_env, victim, seed, eps, points):
    """The lowest return of all episodes in which every observation is one of many in its box."""
    offsets = np.random.default_rng(0).uniform(-eps, eps, (points, 3))
    runner, low = PolicyRunner(victim, points + 1), [np.inf]

    def follow(actions):
        env, total = make_env(), 0.0
        obs, _ = env.reset(seed=seed)
        for action in actions:
            obs, reward, terminated, truncated, _ = env.step(action)
            total += reward
            if terminated or truncated:
                low[0] = min(low[0], total)
                return
        for action in set(runner.mode(np.concatenate([obs[None], obs + offsets])).tolist()):
            follow([*actions, action])

    follow([])
    return low[0]


@pytest.mark.parametrize(("kind", "lost"), [("logits", 0.0), ("q", 1.0)])
def test_a_wide_beam_is_no_weaker_than_all_episodes_that_sampling_finds(kind, lost):
    victim, make_env = agent(kind), lambda: Walk(lost=lost)
    found = beam_search(victim, make_env, EPS, episodes=6, seed=2, width=300)
    report = evaluate(victim, make_env, [found.threat], episodes=6, seed=2)
    assert report.threats[1]["returns"] == pytest.approx(found.returns.tolist(), abs=1e-12)
    assert found.returns.mean() < np.mean(report.threats[0]["returns"]) - 0.5 and (found.perturbed > 0).any()
    assert report.threats[1]["linf"] <= EPS and found.seeds == tuple(draw_seeds(2, 6))
    for seed, lowest in zip(found.seeds, found.returns, strict=True):
        assert lowest <= lowest_by_sampling(make_env, victim, seed, EPS, 300) + 1e-12


def test_the_narrowest_beam_follows_the_victim_and_keeps_what_it_passes():
    victim = agent()
    one, many = (beam_search(victim, Walk, EPS, episodes=8, width=width) for width in (1, 300))
    clean = np.array(evaluate(victim, Walk, episodes=8).threats[0]["returns"])
    assert (many.returns <= one.returns).all() and (one.returns <= clean).all() and one.nodes.sum() < many.nodes.sum()
    nothing = beam_search(victim, Walk, 0.0, episodes=8, width=4)
    assert (nothing.returns == clean).all() and not nothing.perturbed.any() and not nothing.threat.how.steps


@pytest.mark.slow
def test_cartpole_falls_where_an_attack_step_by_step_leaves_all():
    victim, make_env = load_victim("zoo:cartpole-a2c"), lambda: gym.make("CartPole-v1", max_episode_steps=90)
    found = beam_search(victim, make_env, 0.05, episodes=1, width=12)
    report = evaluate(victim, make_env, ["pgd:eps=0.05", found.threat], episodes=1)
    assert [row["returns"] for row in report.threats] == [[90], [90], found.returns.tolist()]
    assert found.returns[0] < 80 and 0 < found.perturbed[0] < found.returns[0]


class Grid(Walk):
    """Places as whole numbers."""

    observation_space = spaces.Box(0, 255, (3,), np.uint8)

    def answer(self):
        obs, info = super().answer()
        return np.array([20 + 10 * obs[0], 20 + 10 * obs[1], obs[2]]).astype(np.uint8), info


@pytest.mark.parametrize(("quantize", "eps"), [(True, 3), (False, 2.5)])
def test_integers(quantize, eps):
    weight = randn(3, 3, seed=4) / torch.tensor([10.0, 10.0, 1.0])
    net = linear(weight, -20 * weight[:, :2].sum(1))
    victim = from_module(net, Grid.observation_space, Walk.action_space, "q")
    found = beam_search(victim, Grid, eps, episodes=4, quantize=quantize)
    report = evaluate(victim, Grid, [found.threat], episodes=4, quantize=quantize, distances=())
    assert report.threats[1]["returns"] == found.returns.tolist() and found.perturbed.any()
    shown = np.concatenate([step.shown for step in found.threat.how.steps])
    assert (shown == shown.round()).all() == quantize


class Parts(gym.ObservationWrapper):
    """A walk whose place and time are parts of their own, beside a choice."""

    observation_space = spaces.Dict(
        east=box(1), north=box(1), time=box(1), room=spaces.Discrete(3), said=spaces.Text(9)
    )

    def observation(self, observation):
        return {**dict(zip(("east", "north", "time"), observation[:, None], strict=True)), "room": 2, "said": "on"}


def parts_net(kind):
    net = linear(randn(3, 3, seed=4))

    def whole(obs):
        return torch.cat([obs[key] for key in ("east", "north", "time")], 1)

    values = {"value": lambda obs: obs["east"][:, 0] + obs["north"][:, 0].abs()} if kind == "logits" else {}
    return from_module(
        lambda obs: net(whole(obs)), Parts.observation_space, Walk.action_space, kind, dtype=torch.float64, **values
    )


def test_parts_of_a_dict_under_one_budget_are_searched_as_one_box_is():
    kind = "logits"
    asked = {"episodes": 2, "width": 8}
    whole = beam_search(agent(kind), Walk, EPS, **asked)
    given = {"at": ("east", "north", "time"), **asked}
    found = beam_search(parts_net(kind), lambda: Parts(Walk()), EPS, **given)
    assert found.to_dict() == whole.to_dict() and found.threat.at == given["at"]
    report = evaluate(parts_net(kind), lambda: Parts(Walk()), [found.threat], episodes=2)
    assert report.threats[1]["returns"] == found.returns.tolist()
    one = beam_search(parts_net(kind), lambda: Parts(Walk()), EPS, **asked, at="east")
    assert (one.returns >= found.returns).all()
    assert {step.shown.shape for step in one.threat.how.steps} <= {(1,)}


def make_walk(id, **kwargs):
    return Walk(**kwargs)


def test_what_was_found_is_kept_in_a_folder(tmp_path, monkeypatch):
    told = []
    found = beam_search(agent(), Walk, EPS, episodes=3, out=tmp_path, progress=lambda *at: told.append(at))
    assert told == [("beam", done, 3) for done in range(4)]
    searched = []
    run = beam.BeamSearch.run
    monkeypatch.setattr(beam.BeamSearch, "run", lambda *args: searched.append(1) or run(*args))
    again = beam_search(agent(), Walk, EPS, episodes=3, out=tmp_path)
    assert not searched and again.to_dict() == found.to_dict()
    assert again.threat.how.to_dict() == found.threat.how.to_dict()
    given = {"victim": agent(), "env": Walk, "eps": EPS, "episodes": 1, "out": tmp_path}
    for other in ({"seed": 1}, {"env": "Walk-v0", "make": make_walk}, {"env": lambda: Walk(lost=1.0)}):
        searched.clear()
        for _ in range(2):
            beam_search(**{**given, **other})
        assert len(searched) == (1 if "make" in other or "seed" in other else 2), "functions are not told apart"
    (tmp_path / "perturbations.npz").write_bytes(b"PK")
    assert (beam_search(**{**given, "seed": 1}).nodes > 0).all()


def test_a_search_whose_time_is_over_keeps_the_episodes_that_it_came_to(tmp_path, monkeypatch):
    """Every step of the search takes a second. One that came further than another withstands longer, and counts."""
    now, steps = [0.0], [0]
    monkeypatch.setattr(deadline, "clock", lambda: now[0])

    def step(states):
        now[0] += 1
        steps[-1] += 1
        if not states:
            steps.append(0)

    given = {"episodes": 6, "seed": 3, "width": 4, "together": 1, "on_step": step}
    whole = beam_search(agent(), Walk, EPS, **given)
    which = next(i for i in range(1, 6) if steps[i] >= min(steps[:i]) + 2)
    before, least = sum(steps[:which]), min(steps[:which])
    for seconds, count in ((0, 1), (before, which), (before + least, which + 1)):
        found = beam_search(agent(), Walk, EPS, out=tmp_path, until=deadline.Deadline(seconds + 0.5), **given)
        assert found.seeds == whole.seeds[:count] and (found.returns >= whole.returns[:count]).all()
        report = evaluate(agent(), Walk, [found.threat], episodes=count, seed=3)
        assert report.threats[1]["returns"] == pytest.approx(found.returns.tolist(), abs=1e-12)
        assert seconds == 0 or (found.returns[:which] == whole.returns[:which]).all()
    found = beam_search(agent(), Walk, EPS, out=tmp_path, until=deadline.Deadline(0.5), **given)
    assert len(found.seeds) == which + 1, "more was found before"
    again = beam_search(agent(), Walk, EPS, out=tmp_path, **given)
    assert again.to_dict() == whole.to_dict(), "what was cut short is searched again"


def short_cartpole():
    return gym.make("CartPole-v1", max_episode_steps=50)


@pytest.mark.parametrize(
    ("victim", "make_env", "eps", "episodes"),
    [
        pytest.param("zoo:cartpole-ppo", short_cartpole, 0.05, 2, marks=pytest.mark.slow),
        (agent(), lambda: Walk(lost=1.0), EPS / 2, 8),
    ],
)
def test_no_episode_is_better_under_a_wider_beam(victim, make_env, eps, episodes):
    found = [beam_search(victim, make_env, eps, episodes=episodes, width=width) for width in (1, 2, 3, 4)]
    returns = np.stack([one.returns for one in found])
    assert (np.diff(returns, axis=0) <= 0).all() and (returns[0] > returns[-1] + 0.1).any()
    assert (returns[2] == returns[1]).all()  # of three, two
    assert (np.diff([one.nodes.sum() for one in found]) >= 0).all()


def test_places_go_in_turn_to_promising_outermost_and_distant_states():
    promise, places = np.array([3.0, 1.0, 1.0, 9.0, 4.0]), np.array([[0.0], [0.2], [0.2], [8.0], [-4.0]])
    all_ = np.ones(5, bool)
    ranked = RankedStates(promise, places)
    assert ranked.take(all_, all_, [1, 2, 3]) == [1, 3, 4]  # promise, outermost, apart
    assert ranked.take(all_, all_, [1, 5]) == [0]  # what equals a state that was taken is none of its own
    assert RankedStates(promise, places).take(places[:, 0] > 5, all_, [1, 2]) == [3]
    assert RankedStates(promise, places).take(~all_, all_, [1]) == []
    line = np.linspace(0, 1, 9)[:, None]
    extremes = RankedStates(np.zeros(9), line).take(np.ones(9, bool), np.ones(9, bool), [4, 24])
    assert set(extremes) == {0, 8}  # the boundary, on both sides


def test_places_at_the_boundary_lie_apart():
    """What is next to an extreme takes no place while another side is open, however far out it is."""
    corners = np.array([[0.0, 0.0], [0.0, 3.0], [3.0, 0.0], [10.0, 10.0]])
    inside = np.array([[9.4, 9.3], [8.8, 8.7], [8.0, 7.9], [1.0, 1.0]])
    places, all_ = np.concatenate([inside, corners]), np.ones(8, bool)
    assert set(RankedStates(np.zeros(8), places).take(all_, all_, [2, 4, 6, 8])) == {4, 5, 6, 7}


def test_of_states_in_one_place_the_lowest_promise_goes_on():
    promise, places, all_ = np.array([2.0, 1.0, 0.0]), np.array([[5.0], [5.0], [-1.0]]), np.ones(3, bool)
    ranked = RankedStates(promise, places)
    assert ranked.take(np.array([True, False, True]), all_, [1, 2]) == [2, 0]
    assert ranked.take(all_, all_, [2]) == [1], "one that promises less than what was taken there is another"
    assert RankedStates(promise, places).take(places[:, 0] > 0, all_, [2, 4]) == [1]


class Endless(Walk):
    """Rewards that are not finite."""

    def step(self, action):
        answer = super().step(action)
        return answer[0], np.nan, *answer[2:]


NO_GRADIENT = from_module(lambda x: np.asarray(x) @ np.eye(3), box(3), Walk.action_space, "q")
DICT = spaces.Dict({"a": box(3)})
SEES_DICT = from_module(lambda obs: obs["a"], DICT, Walk.action_space, "q")


class Named(gym.ObservationWrapper):
    observation_space = DICT

    def observation(self, observation):
        return {"a": observation}


def test_an_environment_that_is_replayed():
    plain = beam_search(agent(), Walk, 0.5, episodes=3, width=4)
    with pytest.warns(RuntimeWarning, match="replaying its episode"):
        found = beam_search(agent(), Handle, 0.5, episodes=3, width=4)
    assert found.to_dict() == plain.to_dict() and (found.perturbed > 0).any()


@every_case(
    ("changed", "error", "words"),
    [
        ({"victim": agent(select="sample")}, VictimError, "needs a victim that plays its mode, got <ModuleVictim"),
        ({"victim": Recurrent(box(3), Walk.action_space, "logits")}, VictimError, "without a hidden state, got"),
        ({"victim": NO_GRADIENT}, VictimError, "beam search"),
        ({"victim": from_module(linear(randn(2, 3)), box(3), box(2), "mean")}, VictimError, "is for action space Box"),
        ({"victim": SEES_DICT, "env": lambda: Named(Walk())}, SpaceError, "observation space"),
        ({"eps": None}, ThreatError, "needs a budget: give eps="),
        ({"within": L2(0.1)}, ThreatError, "give either eps"),
        ({"eps": None, "within": Valid()}, BudgetError, "unbounded"),
        ({"eps": None, "within": Newest(Linf(0.1))}, BudgetError, "the budget of a single step, and newest"),
        ({"env": Drifting}, SnapshotError, "does not repeat: step 1"),
        ({"env": Endless}, ValueRangeError, "a reward that is not finite: nan"),
    ],
)  # fmt: skip
def test_what_cannot_be_searched(changed, error, words):
    with pytest.raises(error, match=words):
        beam_search(**{"victim": agent(), "env": Walk, "eps": 0.1, **changed})


def test_ways_that_earned_too_much_are_left():
    """Whether a return below one can be had is known by then, in fewer steps; what is below is found all the same."""
    short = {"episodes": 1, "width": 4, "steps": 2, "restarts": 1, "env_kwargs": {"max_episode_steps": 20}}
    for eps, is_lost in ((0.001, False), (0.4, True)):
        whole = beam_search("zoo:cartpole-dqn", "CartPole-v1", eps, **short)
        found = beam_search("zoo:cartpole-dqn", "CartPole-v1", eps, below=15.0, **short)
        assert (found.nodes < whole.nodes).all() and ((found.returns < 15.0) == is_lost).all()
        if is_lost:
            assert found.returns.tolist() == whole.returns.tolist()
        else:
            assert found.returns.tolist() == [15.0] and not found.perturbed.any()
