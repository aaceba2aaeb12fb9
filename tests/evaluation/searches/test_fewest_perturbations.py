"""The best timing: beside all timings that there are, played by the layers themselves."""

from __future__ import annotations

import itertools
import json

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

from adv_wrappers import PerturbAction, Victim, WorstAction, from_module
from adv_wrappers.errors import SnapshotError, ValueRangeError, VictimError
from adv_wrappers.evaluation.searches import fewest_perturbations as fewest_perturbations_module
from adv_wrappers.evaluation.searches import search_tree
from adv_wrappers.evaluation.searches.fewest_perturbations import fewest_perturbations, resilience_profile
from adv_wrappers.victims.policy_runner import PolicyRunner
from tests.core.helpers import box, linear, randn
from tests.every_case import every_case


class Walk(gym.Env):
    """Eleven places in a circle; rewards and the end of an episode, after six steps at the latest, depend on them."""

    observation_space = box(3)
    action_space = spaces.Discrete(3, start=1)

    def __init__(self, masked=False, lost=0.0):
        self.masked, self.lost = masked, lost

    def answer(self):
        place = self.place * 2 * np.pi / 11
        mask = np.array([1, self.place % 3 != 0, self.place % 2], np.int8)
        return np.array([np.sin(place), np.cos(place), self.t]), {"action_mask": mask} if self.masked else {}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.t = int(self.np_random.integers(11)), 0
        return self.answer()

    def step(self, action):
        self.place, self.t = (3 * self.place + 2 * int(action) + self.t) % 11, self.t + 1
        obs, info = self.answer()
        return obs, (self.place * 5 + self.t) % 4 / 2 - self.lost, self.place == 7, self.t == 6, info


def agent(kind="q", **more):
    values = {"value": lambda obs: obs[:, 0] + obs[:, 1].abs()} if kind == "logits" else {}
    return from_module(
        linear(randn(3, 3, seed=4)), box(3), Walk.action_space, kind, dtype=torch.float64, **values, **more
    )


def played(env, victim, seed, timing, horizon=6, forced=None):
    """Return, that within the horizon, the perturbed steps, and whether it ended there; ``forced`` names actions."""
    runner = PolicyRunner(victim, 1)
    obs, _ = env.reset(seed=seed)
    total = then = 0.0
    ended, perturbed = False, []
    for t in itertools.count():
        own = runner.act(obs[None])[0]
        action = own if forced is None or t >= len(forced) else 1 + forced[t]
        if action != own or (forced is None and t in timing):
            perturbed.append(t)
        obs, reward, terminated, truncated, _ = env.step(action)
        total += reward
        if t < horizon:
            then = total
        if terminated or truncated:
            ended = t < horizon
            return total, then, perturbed, ended


def every_timing(victim, by, seed, cost, horizon=6, masked=False, lost=0.0):
    """``(total, perturbations)`` of every timing there is."""
    clean, clean_then, *_ = played(Walk(masked, lost), victim, seed, ())
    clean, clean_then, *_ = played(Walk(masked, lost), victim, seed, (), horizon)
    found = []
    if by == "any":
        env = Walk(masked, lost)
        runs = [
            played(env, victim, seed, (), horizon, forced) for forced in itertools.product(range(3), repeat=horizon)
        ]
    else:
        timing = set()
        when = lambda x, context: torch.tensor([context.t in timing])  # noqa: E731
        env = PerturbAction(Walk(masked, lost), WorstAction(victim, by, other=True), when=when)
        runs = []
        for chosen in itertools.product((False, True), repeat=horizon):
            timing.clear()
            timing.update(np.flatnonzero(chosen).tolist())
            runs.append(played(env, victim, seed, timing, horizon))
    for total, then, perturbed, ended in runs:
        total = total if ended else then + clean - clean_then
        found.append((total + cost * len(perturbed), len(perturbed)))
    return found, clean


RULES = [("q", None), ("logits", "policy"), ("q", "successor"), ("logits", "successor")]
CASES = [(kind, by, turn % 2 == 0) for turn, (kind, by) in enumerate(RULES)]


@pytest.mark.parametrize(("kind", "by", "masked"), [*CASES[:3], ("q", "any", False)])
def test_no_timing_is_better(kind, by, masked, seeds=(3,)):
    victim = agent(kind)
    for cost, horizon in ((0.4, 5), (1.5, 4)):
        found = fewest_perturbations(victim, lambda: Walk(masked), seeds, cost, by, horizon=horizon)
        profile = resilience_profile(victim, lambda: Walk(masked), seeds, range(7), horizon, by)
        assert found.finished.all() and profile.finished.all() and found.nodes.max() > 6
        for i, seed in enumerate(seeds):
            timings, clean = every_timing(victim, by, seed, cost, horizon, masked)
            assert found.objective[i] == pytest.approx(min(total for total, _ in timings), abs=1e-12)
            assert found.clean_returns[i] == clean and found.perturbations[i] == len(found.steps[i])
            assert found.objective[i] == pytest.approx(found.returns[i] + cost * found.perturbations[i])
            assert found.regret[i] == clean - found.returns[i] == pytest.approx(clean - found.returns[i])
            for k in range(7):
                lowest = min(total - cost * n for total, n in timings if n <= k)
                assert profile.returns[i, k] == pytest.approx(lowest, abs=1e-12)
                assert len(profile.steps[i][k]) <= k
    assert (profile.regret[:, 0] == 0).all() and (np.diff(profile.returns) <= 0).all()


class OneArray(Walk):
    """Writes every observation, and every mask, into the same array."""

    def answer(self):
        obs, info = super().answer()
        self.held = getattr(self, "held", (obs, info.get("action_mask")))
        self.held[0][:] = obs
        if info:
            self.held[1][:] = info["action_mask"]
        return self.held[0], {"action_mask": self.held[1]} if info else {}


@pytest.mark.parametrize("masked", [False, True])
def test_observations_in_the_memory_of_the_environment(masked):
    for by in (None, "successor"):
        one = fewest_perturbations(agent(), lambda: OneArray(masked), [1, 3], 0.4, by)
        many = fewest_perturbations(agent(), lambda: Walk(masked), [1, 3], 0.4, by)
        assert one.steps == many.steps and (one.objective == many.objective).all()


@every_case("mutant", ["a bound that is too high", "no way back"])
def test_a_search_that_misses_timings_is_found(mutant, monkeypatch):
    if mutant == "no way back":
        monkeypatch.setattr(search_tree.Snapshot, "restore", lambda snapshot, env: None)
        monkeypatch.setattr(search_tree, "check_repeats", lambda env, action, **more: None)
    else:
        monkeypatch.setattr(fewest_perturbations_module.TimingSearch, "_least_future", lambda search, t, rest: 1.0)
    with pytest.raises(AssertionError):
        test_no_timing_is_better("q", None, False, (1, 3))


def test_a_search_that_is_given_up():
    whole = fewest_perturbations(agent(), Walk, [0, 1], 0.4)
    short = fewest_perturbations(agent(), Walk, [0, 1], 0.4, max_nodes=5)
    assert not short.finished.any() and (short.nodes == 5).all() and (short.objective >= whole.objective).all()
    profile = resilience_profile(agent(), Walk, [0], [0, 1, 6], max_nodes=5)
    assert not profile.finished[0, 2] and (profile.returns[0] <= profile.clean_returns[0]).all()


def test_a_function_makes_the_environment():
    how = {"lowest_reward": -1.0, "horizon": 6}
    plain = resilience_profile(agent(), lambda: Walk(lost=0.5), [0], [1], **how)
    made = resilience_profile(
        agent(), "Some-v0", [0], [1], env_kwargs={"lost": 0.5}, make=lambda _, lost: Walk(lost=lost), **how
    )
    assert made.env == "Some-v0" and (made.returns == plain.returns).all() and (made.regret == plain.regret).all()


def test_the_json_form():
    found = fewest_perturbations(agent(), Walk, [0, 1], 0.4)
    data = json.loads(json.dumps(found.to_dict()))
    assert data["objective"] == found.objective.tolist() and data["regret"] == found.regret.tolist()
    assert data["steps"] == [list(steps) for steps in found.steps] and data["finished"] == [True, True]
    data = json.loads(json.dumps(resilience_profile(agent(), Walk, [0], [2]).to_dict()))
    assert data["budgets"] == [2] and np.shape(data["regret"]) == (1, 1) and data["horizon"] == 60


PAIRS = spaces.MultiDiscrete([2, 2])


class Recurrent(Victim):
    recurrent = True


class Dice(Walk):
    """Draws a number in its last step, that counts for nothing."""

    def step(self, action):
        if self.t == 4:
            self.np_random.random()
        return super().step(action)


class Handle(Walk):
    """Holds what cannot be copied."""

    def reset(self, *, seed=None, options=None):
        self.handle = (i for i in range(9))
        return super().reset(seed=seed)

    def step(self, action):
        next(self.handle)
        return super().step(action)


class Drifting(Walk):
    """Counts its steps where no snapshot looks."""

    count = itertools.count()

    def step(self, action):
        answer = super().step(action)
        return answer[0] + next(Drifting.count), *answer[1:]


@every_case(
    ("changed", "error", "words"),
    [
        ({"victim": agent(select="sample")}, VictimError, "needs a victim that plays its mode, got <ModuleVictim"),
        ({"victim": Recurrent(box(3), Walk.action_space, "logits")}, VictimError, "without a hidden state, got"),
        ({"victim": from_module(linear(randn(2, 3)), box(3), box(2), "mean")}, VictimError, "is for action space Box"),
        ({"victim": from_module(linear(randn(4, 3)), box(3), PAIRS, "logits")}, VictimError, "MultiDiscrete"),
        ({"victim": agent("logits"), "by": "q"}, VictimError, "by='q' needs Q-values"),
        ({"seeds": []}, ValueRangeError, "at least one seed, got none"),
        ({"lowest_reward": -1.0}, ValueRangeError, "a lowest_reward= below 0 needs a horizon"),
        ({"lowest_reward": 0.1}, ValueRangeError, "expected rewards of at least lowest_reward=0.1, got 0.0"),
        ({"env": lambda: Walk(lost=1.0)}, ValueRangeError, "expected rewards of at least lowest_reward=0, got -"),
        ({"env": Drifting}, SnapshotError, "does not repeat: step 1"),
    ],
)  # fmt: skip
def test_what_cannot_be_searched(changed, error, words):
    arguments = {"victim": agent(), "env": Walk, "seeds": [0], **changed}
    with pytest.raises(error, match=words):
        fewest_perturbations(**arguments)
    if "cost" not in changed and words != "a lowest_reward= below 0 needs a horizon":
        with pytest.raises(error, match=words):
            resilience_profile(budgets=[1], **arguments)


@pytest.mark.parametrize(
    ("env", "words"),
    [
        (Dice, "draws random numbers in its steps: .* knows what will be"),
        (Handle, "is a generator, .* replaying"),
    ],
)
@pytest.mark.parametrize("by", ["any", "successor"])
def test_an_environment_that_draws_or_is_replayed_is_searched_as_any_other(env, words, by):
    victim = agent("logits")
    plain = fewest_perturbations(victim, Walk, [0, 1, 2], 0.4, by)
    with pytest.warns(RuntimeWarning, match=words):
        found = fewest_perturbations(victim, env, [0, 1, 2], 0.4, by)
    assert found.steps == plain.steps and (found.objective == plain.objective).all()
