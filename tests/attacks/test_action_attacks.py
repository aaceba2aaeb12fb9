"""The worst action: by Q, by the policy, by a critic, by the value of what it leads to."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv

from adv_wrappers import PerturbAction, Victim, WorstAction, load_victim, threat
from adv_wrappers.core.budgets.budget import L2, Linf, Valid
from adv_wrappers.core.engine.engine import Engine, Wrapped
from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.environments.snapshot import Snapshot
from adv_wrappers.errors import BudgetError, SnapshotError, ValueRangeError, VictimError
from adv_wrappers.threats.presets import parse_threat
from adv_wrappers.threats.text import text_of
from adv_wrappers.victims import from_module
from tests.core.helpers import box, linear, randn
from tests.every_case import every_case

X = randn(6, 4)
WEIGHT = randn(3, 4, seed=1)


def worst(victim, actions, budget=None, mask=None, **arguments):
    threat = ThreatModel("action", WorstAction(victim, **arguments), budget or Valid())
    made = Engine(threat, Wrapped(victim.observation_space, victim.action_space, len(actions)))
    made.session.add(made, [victim], True)
    made.session.show(made, X[: len(actions)].numpy())
    return made.apply(np.asarray(actions, victim.action_space.dtype), True, mask=mask)


@every_case("start", [0, 7])
@every_case(("kind", "by"), [("q", None), ("q", "q"), ("q", "policy"), ("logits", None), ("logits", "policy")])
def test_discrete_actions(kind, by, start):
    victim = from_module(linear(WEIGHT), box(4), spaces.Discrete(3, start=start), kind)
    scores = victim.params(X)
    assert worst(victim, np.full(6, start), by=by).tolist() == (start + scores.argmin(-1)).tolist()
    mask = torch.ones(6, 3, dtype=torch.int8).scatter_(
        1, scores.argmin(-1, keepdim=True), 0
    )  # the very worst is forbidden
    middle = start + scores.argsort(-1)[:, 1]
    assert worst(victim, np.full(6, start), by=by, mask=mask).tolist() == middle.tolist()


@pytest.mark.parametrize("start", [0, 7])
@pytest.mark.parametrize("by", ["q", "policy"])
def test_another_action_than_the_one_that_is_played(by, start):
    victim = from_module(linear(WEIGHT), box(4), spaces.Discrete(3, start=start), "q")
    scores = victim.params(X)
    least, middle = (start + scores.argsort(-1)[:, i] for i in (0, 1))
    assert worst(victim, least.numpy(), by=by, other=True).tolist() == middle.tolist()
    assert worst(victim, middle.numpy(), by=by, other=True).tolist() == least.tolist()
    mask = torch.ones(6, 3, dtype=torch.int8).scatter_(1, scores.argsort(-1)[:, 1:2], 0)
    assert (
        worst(victim, least.numpy(), by=by, other=True, mask=mask).tolist()
        == (start + scores.argsort(-1)[:, 2]).tolist()
    )
    alone = torch.zeros(6, 3, dtype=torch.int8).scatter_(1, scores.argsort(-1)[:, 1:2], 1)
    assert worst(victim, middle.numpy(), by=by, other=True, mask=alone).tolist() == middle.tolist()


def test_another_action_is_for_discrete_ones():
    victim = load_victim("zoo:hopper-ppo")
    with pytest.raises(VictimError, match="other=True is for one discrete action"):
        Engine(
            ThreatModel("action", WorstAction(victim, other=True), Linf(0.1)),
            Wrapped(victim.observation_space, victim.action_space, 1),
        )
    with pytest.raises(ValueRangeError, match="other must be true or false, got 1"):
        WorstAction(other=1)
    assert text_of(threat("worst-action", other=True)) == "worst-action:other=true"
    assert parse_threat("worst-action:other=true").how == WorstAction(other=True)


PRICE = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)


def test_a_linear_critic_has_its_minimum_in_a_corner():
    actions = spaces.Box(-1, 1, (3,), np.float64)
    victim = from_module(
        linear(WEIGHT), box(4), actions, "mean", critic=lambda obs, act: (act * PRICE).sum(-1) * obs[:, 0].sign()
    )
    sign = -(X[:, :1].sign() * PRICE.sign())
    played = np.full((6, 3), 0.2)
    assert np.allclose(worst(victim, played), sign)
    assert np.allclose(worst(victim, played, Linf(0.3)), 0.2 + 0.3 * sign)
    expected = 0.2 - 0.3 * X[:, :1].sign() * PRICE / PRICE.norm()
    assert np.allclose(worst(victim, played, L2(0.3)), expected)


@pytest.mark.parametrize("kind", ["mean", "gaussian"])
def test_without_a_critic_the_corner_farthest_from_the_mean(kind):
    weight = WEIGHT if kind == "mean" else torch.cat([WEIGHT, WEIGHT])
    victim = from_module(linear(weight), box(4), spaces.Box(-1, 1, (3,), np.float64), kind)
    mean = X @ WEIGHT.T
    played = np.zeros((6, 3))
    assert np.array_equal(worst(victim, played), torch.where(mean > 0, -1.0, 1.0))
    assert np.allclose(worst(victim, played, Linf(0.5)), torch.where(mean > 0, -0.5, 0.5))


def test_what_is_not_defined():
    several = from_module(linear(randn(5, 4)), box(4), spaces.MultiDiscrete([2, 3]), "logits")
    with pytest.raises(VictimError, match="one discrete action"):
        worst(several, np.zeros((2, 2)))
    free = from_module(linear(WEIGHT), box(4), box(3), "mean")
    with pytest.raises(BudgetError, match="unbounded"):
        worst(free, np.zeros((2, 3)))
    assert worst(free, np.zeros((2, 3)), Linf(0.5)).shape == (2, 3)
    with pytest.raises(VictimError, match="by='policy'"):
        WorstAction(free, by="q")
    for name, value in (("by", "value"), ("steps", 0), ("steps", True)):
        with pytest.raises(ValueRangeError, match=f"{name} must be .*{value}"):
            WorstAction(**{name: value})


class Doors(gym.Env):
    """A state in [0, 1, 2, ...]: action a leads to ``10 * state + a``, its reward is ``rewards[a]``, and 2 ends it."""

    observation_space = box(1)
    action_space = spaces.Discrete(3, start=4)
    rewards = (0.5, 0.0, 0.25)

    def __init__(self, allowed=(1, 1, 1)):
        self.allowed, self.state = allowed, 0

    def answer(self):
        return np.array([self.state], np.float64), {"action_mask": np.array(self.allowed, np.int8)}

    def reset(self, *, seed=None, options=None):
        self.state = 0
        return self.answer()

    def step(self, action):
        assert self.allowed[action - 4], "a forbidden action was tried"
        self.state = 10 * self.state + int(action) - 4
        return self.answer()[0], self.rewards[action - 4], action == 6, False, self.answer()[1]


def doors(value, allowed=(1, 1, 1), **arguments):
    """The action that is played in the first state, by a value function of the next."""
    net = linear(torch.zeros(3, 1))
    victim = from_module(
        net, box(1), Doors.action_space, "logits", value=lambda obs: value(obs[:, 0]), dtype=torch.float64
    )
    played = []
    for env in (Doors(allowed), SyncVectorEnv([lambda: Doors(allowed)] * 2)):
        env = PerturbAction(env, WorstAction(victim, "successor", **arguments), keep_true=True)
        env.reset(seed=0)
        env.step(4 if isinstance(env, Doors | PerturbAction) else np.array([4, 4]))
        base = env.unwrapped
        played += [base.state] if isinstance(base, Doors) else [row.unwrapped.state for row in base.envs]
    assert len(set(played)) == 1
    return played[0]


def test_by_the_value_of_what_an_action_leads_to():
    assert doors(lambda s: 0 * s) == 1  # rewards alone: 0.5, 0, 0.25
    assert doors(lambda s: (s == 1) * 10.0) == 2  # 0.5, 9.9, 0.25
    assert doors(lambda s: -10 * (s == 2.0) + (s == 1)) == 2  # 0.5, 0.99, 0.25: over, whatever it is worth
    assert doors(lambda s: -10.0 * s - 3) == 1  # 0.5 - 2.97, -12.87, 0.25
    assert doors(lambda s: -s, gamma=0.0) == 1
    assert doors(lambda s: (s == 1) * 0.4, gamma=0.5) == 1  # 0.5, 0.2, 0.25
    assert doors(lambda s: (s == 1) * 0.4) == 2  # 0.5, 0.396, 0.25


def test_the_successor_of_a_forbidden_action_is_not_tried():
    assert doors(lambda s: 0 * s, (1, 0, 1)) == 2
    assert doors(lambda s: 0 * s, (1, 0, 0)) == 0


def test_by_successor_in_a_game_is_by_the_critic():
    victim = load_victim("zoo:cartpole-a2c")
    env = PerturbAction(gym.make("CartPole-v1"), "worst-action:by=successor", victim=victim, when="every(2)")
    obs, _ = env.reset(seed=0)
    for t in range(8):
        values = []
        for action in range(2):
            before = Snapshot.of(env.env)
            after = env.env.step(action)[0]
            before.restore(env.env)
            values.append(float(victim.value(torch.as_tensor(after)[None])))
        state = Snapshot.of(env.env)
        obs, *_, info = env.step(0)
        got = obs
        state.restore(env.env)
        worst = int(np.argmin(values)) if t % 2 == 0 else 0
        expected = env.env.step(worst)[0]
        assert np.array_equal(got, expected) and info["adv_wrappers"]["0:worst-action"]["attacked"] == (t % 2 == 0)


def test_by_successor_a_recurrent_victim_has_acted_on_what_it_sees():
    class Counts(Victim):
        """Values a state by its hidden state: how many observations it has acted on, times the action."""

        recurrent = True
        has_value = True

        def __init__(self):
            super().__init__(box(1), Doors.action_space, "logits", dtype=torch.float64)
            self.seen = []

        def params(self, obs, state=None):
            return torch.zeros(len(obs), 3, dtype=torch.float64)

        def value(self, obs, state=None):
            self.seen.append(state.tolist())
            return state * 0

        def initial_state(self, rows):
            return torch.zeros(rows, dtype=torch.float64)

        def advance(self, obs, state):
            return state + 1

    victim = Counts()
    env = PerturbAction(Doors((1, 1, 0)), WorstAction(victim, "successor"))
    env.reset(seed=0)
    for _ in range(3):
        env.step(4)
    assert victim.seen == [[n] for n in (1, 1, 1, 2, 2, 2, 3, 3, 3)]


def test_what_by_successor_needs():
    values = {"value": lambda obs: obs[:, 0]}
    with pytest.raises(VictimError, match="needs state values, and this victim has neither these nor Q"):
        WorstAction(from_module(linear(WEIGHT), box(4), spaces.Discrete(3), "logits"), "successor")
    with pytest.raises(VictimError, match="tries every action, and this victim acts in Box"):
        WorstAction(from_module(linear(WEIGHT), box(4), box(3), "mean", **values), "successor")
    several = from_module(linear(randn(5, 4)), box(4), spaces.MultiDiscrete([2, 3]), "logits", **values)
    with pytest.raises(VictimError, match="tries every action, and this victim acts in MultiDiscrete"):
        WorstAction(several, "successor")
    for gamma in (-0.1, 1.5, "1", float("nan")):
        with pytest.raises(ValueRangeError, match="gamma must be"):
            WorstAction(gamma=gamma)
    one = from_module(linear(WEIGHT), box(4), spaces.Discrete(3), "q")  # the value of a state is its largest Q
    with pytest.raises(SnapshotError, match="worst-action needs a simulator"):
        worst(one, np.zeros(1), by="successor")


def test_the_text_form():
    text = "worst-action:by=successor,gamma=0.9,victim=zoo:cartpole-a2c"
    made = parse_threat(text)
    assert text_of(made) == text and parse_threat(text).to_dict() == made.to_dict() and made.how.simulates
    assert (made.how.by, made.how.gamma, threat("worst-action", by="q").how.simulates) == ("successor", 0.9, False)
    assert ThreatModel.from_dict(made.to_dict(), load_victim).to_dict() == made.to_dict()
