"""The search over discrete observations: the best there is where all is tried, and greedy steps where it is not."""

from __future__ import annotations

import itertools

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

import adv_wrappers as adv
from adv_wrappers.attacks.discrete_search import DiscreteSearch, all_changes, more_than
from adv_wrappers.attacks.objectives import CrossEntropy, Divergence, Margin, MarginOfQ, score_of
from adv_wrappers.core.budgets.budget import L0, Valid
from adv_wrappers.errors import BudgetError, SpaceError, ValueRangeError, VictimError
from tests.core.helpers import box, chooser, context, mlp, randn
from tests.every_case import every_case

COUNTS = (3, 2, 4)
SPACE = spaces.MultiDiscrete(COUNTS)
X = torch.cartesian_prod(*(torch.arange(n) for n in COUNTS)).double()


class Table(nn.Module):
    """A value of every action for every observation there is, from a seed."""

    def __init__(self, counts, outputs, seed=0):
        super().__init__()
        self.values, self.counts = nn.Parameter(randn(int(np.prod(counts)), outputs, seed=seed)), counts

    def forward(self, obs):
        place = torch.zeros(len(obs), dtype=torch.long)
        for count, entry in zip(self.counts, obs.reshape(len(obs), -1).unbind(1), strict=True):
            place = place * count + entry
        return self.values[place]


def victim(kind="logits", counts=COUNTS, actions=3, seed=0, space=None, **more):
    space = spaces.MultiDiscrete(counts) if space is None else space
    acted = spaces.Discrete(actions) if kind in ("logits", "q") else spaces.Box(-1, 1, (actions,))
    return adv.from_module(Table(counts, actions, seed), space, acted, kind, **more)


def around(x, budget, counts=COUNTS):
    found = context(x, budget, 0, 0, grid=True, choices=counts)
    found.space = torch.zeros(len(counts)).to(x), torch.tensor(counts).to(x) - 1
    return found


def rank(attack, x, y):
    """(success, loss) of observations by the attack's own score."""
    bound = around(x, Valid()).bind(attack.victim)
    loss = score_of(attack.loss, attack.victim, bound.params(x))
    params = bound.params(y)
    played = loss.success(params) if hasattr(loss, "success") else torch.zeros(len(x))
    return list(zip(played.tolist(), loss(params).tolist(), strict=True))


@pytest.mark.parametrize("budget", [L0(0), L0(2), Valid()], ids=str)
@pytest.mark.parametrize(
    ("kind", "loss"),
    [("logits", None), ("logits", "cross-entropy"), ("logits", "divergence"), ("q", None), ("q", "q"), ("mean", None)],
)
def test_it_is_the_best_of_all_observations_within_the_budget(kind, loss, budget):
    attack = DiscreteSearch(victim(kind), loss)
    found = attack(X, around(X, budget))
    most = budget.k if isinstance(budget, L0) else 3
    assert ((found != X).sum(1) <= most).all()
    ranks = [rank(attack, X, other.expand_as(X)) for other in X]
    for row, x in enumerate(X):
        allowed = [ranks[i][row] for i, other in enumerate(X) if int((other != x).sum()) <= most]
        assert rank(attack, X, found)[row] == max(allowed)


def test_losses_are_those_of_the_gradient_attacks():
    kinds = {"margin": Margin, "cross-entropy": CrossEntropy, "divergence": Divergence, "q": MarginOfQ}
    q, logits, mean = (victim(kind) for kind in ("q", "logits", "mean"))
    for loss, kind in kinds.items():
        assert type(score_of(loss, q, q.params(X))) is kind
    assert type(score_of(None, logits, logits.params(X))) is Margin
    assert type(score_of(None, mean, mean.params(X))) is Divergence


def test_what_cannot_be_tried_at_once_is_searched_greedily():
    """First the best single change, and then the best beside it."""
    own, other = victim(), (2, 1, 3)  # 6 changes of one entry, 17 of two
    assert more_than(12, other, 2) and not more_than(17, other, 2)
    once, twice = (DiscreteSearch(own, queries=12)(X, around(X, L0(k))) for k in (1, 2))
    exhaustive = DiscreteSearch(own)
    best = exhaustive(X, around(X, L0(2)))
    assert ((twice != X).sum(1) <= 2).all()
    one, two, three = (
        torch.tensor([loss for _, loss in rank(exhaustive, X, y)], dtype=X.dtype) for y in (once, twice, best)
    )
    assert (one <= two).all() and (two <= three).all() and (one < two).any() and (two < three).any()
    target = own.params(X).argmax(-1)
    for row, (first, second) in enumerate(zip(once, twice, strict=True)):
        near = X[(first != X).sum(1) <= 1]  # what the second step can reach
        assert float(two[row]) == float(Margin(target[row].expand(len(near)))(own.params(near)).max())
        assert (second != first).sum() <= 1


def test_what_is_too_much_even_for_greedy_steps_is_drawn():
    counts = (5,) * 12
    own = adv.from_module(nn.Sequential(_Float(), mlp(12, 3)), spaces.MultiDiscrete(counts), spaces.Discrete(3), "q")
    x = torch.randint(5, (64, 12), generator=torch.Generator().manual_seed(0)).double()
    reached = []
    for queries in (4, 40, 400, 4000):
        attack = DiscreteSearch(own, queries=queries)
        y = attack(x, around(x, L0(4), counts))
        assert ((y != x).sum(1) <= 4).all() and (y >= 0).all() and (y < 5).all()
        reached.append(score_of(None, own, own.params(x))(own.params(y)).mean())
    assert reached == sorted(reached) and reached[0] < reached[-1]


class _Float(nn.Module):
    def forward(self, x):
        return x.double()


def test_many_candidates_are_tried_in_parts(monkeypatch):
    attack = DiscreteSearch(victim())
    whole = attack(X, around(X, L0(2)))
    monkeypatch.setattr("adv_wrappers.attacks.discrete_search._TOGETHER", 5 * X.numel())
    assert torch.equal(attack(X, around(X, L0(2))), whole)


def test_entries_with_one_value_stay():
    own = victim(counts=(1, 1))
    x = torch.zeros(2, 2, dtype=torch.float64)
    for queries in (1, 100):
        assert torch.equal(DiscreteSearch(own, queries=queries)(x, around(x, Valid(), (1, 1))), x)


def test_all_changes():
    others = (2, 1, 3)
    for most in range(1, 4):
        rows = all_changes(others, most).tolist()
        every = itertools.product(*(range(-1, count) for count in others))
        assert sorted(map(tuple, rows)) == [row for row in every if 1 <= sum(j >= 0 for j in row) <= most]
        assert more_than(len(rows) - 1, others, most) and not more_than(len(rows), others, most)
    assert all_changes(others, 0).shape == (0, 3) and not more_than(0, others, 0)
    assert more_than(10**6, (1,) * 10**5, 10**5)


@pytest.mark.parametrize("mode", ["single", "vector"])
def test_discrete_observations_of_a_recurrent_victim_within_a_dict(mode):
    """Hidden states and the other leaves are those of the row that a change is of."""
    space = spaces.Dict({"at": spaces.Discrete(6, start=3), "gain": spaces.Box(-1, 1, (1,), np.float64)})

    class Net(nn.Module):
        def forward(self, obs, state):
            value = torch.nn.functional.one_hot(obs["at"] - 3, 6).double() @ randn(6, 3) * obs["gain"] + state[0]
            return value, (state[0] + 0.3 * value,)

    own = adv.from_module(
        Net(),
        space,
        spaces.Discrete(3),
        "logits",
        dtype=torch.float64,
        initial_state=lambda n: (torch.zeros(n, 3).double(),),
    )
    assert own.recurrent

    class Env(gym.Env):
        observation_space, action_space = space, spaces.Discrete(3)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return self.step(0)[0], {}

        def step(self, action):
            at = np.int64(self.np_random.integers(3, 9))
            return {"at": at, "gain": self.np_random.uniform(-1, 1, 1)}, 0.0, False, False, {}

    env = Env() if mode == "single" else gym.vector.SyncVectorEnv([Env] * 3)
    env = adv.PerturbObservation(env, "discrete-search", at="at", victim=own, keep_true=True)
    obs, info = env.reset(seed=5)
    state = own.initial_state(1 if mode == "single" else 3)
    for _ in range(4):
        true = info["adv_wrappers"]["0:discrete-search"]["true"]
        batched = {k: np.asarray(v)[None] if mode == "single" else v for k, v in obs.items()}
        clean = {k: np.asarray(v)[None] if mode == "single" else v for k, v in true.items()}
        best = own.params(clean, state).argmax(-1)
        lead = Margin(best)(own.params(batched, state))
        others = [Margin(best)(own.params({**clean, "at": np.full(len(best), at)}, state)) for at in range(3, 9)]
        assert torch.equal(lead, torch.stack(others).amax(0))
        state = own.advance(batched, state)
        obs, _, _, _, info = env.step(0 if mode == "single" else np.zeros(3, int))


@every_case(
    ("make", "error", "words"),
    [
        (lambda: DiscreteSearch(victim(), "wrong"), ValueRangeError, "loss must be"),
        (lambda: DiscreteSearch(victim(), queries=0), ValueRangeError, "queries"),
        (lambda: DiscreteSearch(victim(), "q"), VictimError, "Q-values"),
        (lambda: DiscreteSearch(victim("mean"), "margin"), VictimError, "loss='divergence'"),
        (lambda: adv.threat("discrete-search", victim(), eps=1).check(SPACE, spaces.Discrete(3)), BudgetError, "L0"),
        (
            lambda: adv.threat("discrete-search", chooser(mlp(2, 3), size=2)).check(box(2), spaces.Discrete(3)),
            SpaceError,
            "square searches a Box",
        ),
        (lambda: adv.threat("discrete-search").check(SPACE, spaces.Discrete(3)), VictimError, "needs a victim"),
    ],
)
def test_errors(make, error, words):
    with pytest.raises(error, match=words):
        make()


@every_case(
    "text", ["pgd", "square", "hop-skip-jump", "flip", "max-diff", "sensor-bias", "saturation:low=0,high=1", "min-q"]
)
def test_what_follows_distances_is_refused_by_name(text):
    env, name = gym.make("FrozenLake-v1"), text.partition(":")[0]
    own = victim("q", (16,), 4, space=env.observation_space)
    with pytest.raises(SpaceError, match=f"{name}.* moves values by distances.*discrete-search"):
        adv.PerturbObservation(env, text, within=Valid(), victim=own)
