"""Victims that are functions on numpy arrays: found out by asking them, attacked without a gradient."""

from __future__ import annotations

import copy
import pickle

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

import adv_wrappers as adv
from adv_wrappers.errors import VictimError
from adv_wrappers.victims import from_module
from adv_wrappers.victims.policy_runner import PolicyRunner
from tests.core.helpers import randn

OBS = spaces.Box(-np.inf, np.inf, (4,), np.float32)
TWO, BOX = spaces.Discrete(2), spaces.Box(-1, 1, (3,), np.float32)
WEIGHT = randn(4, 2).numpy()
X = randn(5, 4, seed=1).float()


def _methods(obs):
    return obs.astype(np.float64) @ WEIGHT


def _asking(obs):
    return np.asarray(obs) @ WEIGHT


def _ufuncs(obs):
    """numpy's own functions take tensors, and hand back tensors without a gradient."""
    return np.tanh(obs)[:, :2]


def _writing(obs):
    obs *= 2
    return obs[:, :2]


@pytest.mark.parametrize("function", [_methods, _asking, _ufuncs])
def test_a_function_on_arrays_is_found_out(function):
    victim = from_module(function, OBS, TWO, "q")
    assert not victim.differentiable
    found = victim.params(X)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, torch.tensor(function(X.numpy().copy()), dtype=torch.float32))
    assert torch.equal(victim.act(found), found.argmax(-1))
    assert victim.policy(X).probs.shape == (5, 2) and torch.equal(victim.value(X), found.amax(-1))


def test_what_it_is_handed_is_its_own():
    """A function that writes into its observations changes nothing of the attack's."""

    def writing(obs):
        assert isinstance(obs, np.ndarray)
        return _writing(obs)

    x = X.clone()
    torch.testing.assert_close(from_module(writing, OBS, TWO, "q").params(x), 2 * X[:, :2])
    assert torch.equal(x, X)


def test_functions_on_tensors_stay_what_they_are():
    assert from_module(lambda o: o[:, :2] * 3, OBS, TWO, "q").differentiable
    assert from_module(_writing, OBS, TWO, "q").differentiable
    assert from_module(nn.Linear(4, 2), OBS, TWO, "q").differentiable
    inward = from_module(lambda o: torch.from_numpy(np.tanh(o.numpy()))[:, :2], OBS, TWO, "q")
    assert not inward.differentiable and inward.params(X).shape == (5, 2)


def test_a_gradient_of_weights_alone_is_none_of_observations():
    """As of a function that normalises under no_grad, and whose weights are still trained."""
    net = nn.Linear(4, 2)
    victim = from_module(lambda obs: net((obs / 2).detach()), OBS, TWO, "q")
    assert not victim.differentiable
    with pytest.raises(VictimError, match=r"max-diff needs the victim's gradient.*detaches"):
        adv.MaxDiff(victim)


def test_a_module_that_answers_arrays():
    class Session(nn.Module):
        def forward(self, obs):
            return np.asarray(obs) @ WEIGHT

    victim = from_module(Session(), OBS, TWO, "logits")
    assert not victim.differentiable and victim.params(X).shape == (5, 2)


def test_continuous_actions_and_their_critics():
    mean = from_module(lambda o: o.astype(float)[:, :3], OBS, BOX, "mean", critic=lambda o, a: o.sum(1) + a.sum(1))
    torch.testing.assert_close(mean.q(X, X[:, :3]), X.sum(1) + X[:, :3].sum(1))
    for by in (None, "q"):
        with pytest.raises(VictimError, match="by='policy'"):
            adv.WorstAction(mean, by=by)
    assert adv.WorstAction(mean, by="policy").victim is mean
    pair = from_module(lambda o: (np.array(o)[:, :3], np.zeros((len(o), 3))), OBS, BOX)
    assert pair.kind == "gaussian" and pair.params(X).shape == (5, 6)


def test_dict_observations():
    space = spaces.Dict({"a": OBS, "b": OBS})
    victim = from_module(lambda o: np.concatenate([o["a"], o["b"]], 1), space, spaces.Discrete(8), "q")
    assert not victim.differentiable and victim.params({"a": X, "b": X}).shape == (5, 8)


class Counter:
    """A recurrent function on arrays: the state counts the steps and sums the observations."""

    def __call__(self, obs, state):
        steps, total = state
        total = total + obs[:, :2]
        return total * steps[:, None], (steps + 1, total)


def _counts(rows):
    return np.ones(rows, np.int64), np.zeros((rows, 2), np.float32)


def test_recurrent_functions():
    victim = from_module(Counter(), OBS, TWO, "logits", initial_state=_counts, dtype=torch.float32)
    state = victim.initial_state(5)
    assert state[0].dtype == torch.int64
    after = victim.advance(X, state)
    torch.testing.assert_close(victim.params(X, after), 4 * X[:, :2])


def test_a_function_that_takes_nothing_says_both_reasons():
    def broken(obs):
        return obs.astype(float) @ np.zeros((3, 2))

    with pytest.raises(VictimError, match=r"(?s)as tensors .*astype.*as numpy arrays .*matmul"):
        from_module(broken, OBS, TWO, "q")
    with pytest.raises(VictimError, match="needs 2"):
        from_module(lambda o: np.zeros((len(o), 3)), OBS, TWO, "q")


def test_attacks_by_gradients_point_to_those_without():
    """Adversaries too, before they are trained."""
    victim = from_module(_methods, OBS, TWO, "q")
    for attack in ("min-best", "max-worst", "momentum", "max-diff", "carlini-wagner", "min-q"):
        with pytest.raises(VictimError, match=rf"{attack} needs .*gradient.*square.*hop-skip-jump"):
            adv.threat(attack, victim, eps=0.1)
    with pytest.raises(VictimError, match=r"gradient.*square.*hop-skip-jump"):
        victim.gradient(lambda params: params.sum(-1))
    for make in (lambda: adv.PAAD(victim), lambda: adv.PAAD().against(victim)):
        with pytest.raises(VictimError, match=r"pa-ad needs .*square"):
            make()


def test_copies_and_evaluation():
    victim = from_module(_methods, OBS, TWO, "q")
    assert copy.deepcopy(victim) is victim
    again = pickle.loads(pickle.dumps(victim))
    assert torch.equal(again.params(X), victim.params(X)) and not again.differentiable
    threats = ["noise:eps=0.1", "square:eps=0.1,queries=8", "hop-skip-jump:eps=0.1,queries=16"]
    report = adv.evaluate(victim, lambda: gym.make("CartPole-v1"), threats, episodes=2, seed=0)
    assert all(threat in str(report) for threat in threats)
    with pytest.raises(VictimError, match="square"):
        adv.evaluate(victim, lambda: gym.make("CartPole-v1"), ["pgd:eps=0.1"], episodes=1)


@pytest.mark.parametrize(
    ("played", "space", "kind"),
    [
        (lambda net, x: torch.tanh(net(x)).detach().numpy(), BOX, "mean"),
        (lambda net, x: net(x).argmax(-1).numpy(), spaces.Discrete(3), "action"),
        (lambda net, x: (net(x).argmax(-1).numpy(), None), spaces.Discrete(3), "action"),
    ],
)
def test_a_function_on_tensors_may_return_arrays(played, space, kind):
    """As ``act`` of Spinning Up."""
    net = nn.Linear(4, 3)
    victim = from_module(lambda x: played(net, x), OBS, space, kind)
    expected = played(net, X)
    expected = torch.as_tensor(expected[0] if isinstance(expected, tuple) else expected)
    torch.testing.assert_close(victim.mode(victim.params(X)), expected)
    assert not victim.differentiable


THREE = spaces.Box(-np.inf, np.inf, (3,), np.float32)


def _leans(obs):
    return int(obs[2] + obs[0] > 0)


def _likeliest(obs):
    return np.argmax(obs @ WEIGHT, axis=0)


def _one_row(obs):
    with torch.no_grad():
        return (torch.tensor(np.array(obs))[None] @ torch.as_tensor(WEIGHT).float()).argmax(1).item()


def _pid(obs):
    return [-2 * obs[1] - 0.5 * obs[2]]


def _unpacks(obs):
    _cosine, sine, speed = obs
    return np.array([sine - speed])


class _Integrates:
    def __init__(self):
        self.sum = 0.0

    def act(self, obs):
        self.sum += float(obs[0])
        return int(self.sum > 0)


@pytest.mark.parametrize(
    ("function", "space", "action"),
    [(_leans, OBS, TWO), (_likeliest, OBS, TWO), (_one_row, OBS, TWO), (_pid, THREE, BOX), (_unpacks, THREE, BOX)],
)
def test_a_function_of_one_observation_is_asked_row_by_row(function, space, action):
    if action is BOX:
        action = spaces.Box(-9, 9, (1,), np.float32)
    x = X[:, : space.shape[0]].numpy()
    victim = from_module(function, space, action, "action")
    wanted = np.array([function(row) for row in x], action.dtype)
    np.testing.assert_allclose(victim.act_on(x), wanted, rtol=1e-5)
    assert not victim.differentiable and not victim.recurrent


def test_one_of_one_observation_keeps_its_state_and_its_keys():
    policy, runner = _Integrates(), PolicyRunner(from_module(_Integrates().act, OBS, TWO, "action"), 2)
    played = [runner.act(X[[t, 0]].numpy()).tolist() for t in range(5)]
    assert [row[0] for row in played] == [policy.act(row) for row in X.numpy()]
    seen = spaces.Dict(a=OBS, b=spaces.Discrete(3))
    both = from_module(lambda obs: int(obs["a"][0] > 0) * int(obs["b"] > 1), seen, TWO, "action")
    assert both.act_on({"a": X.numpy(), "b": np.arange(5) % 3}).tolist() == [
        int(x > 0 and i % 3 > 1) for i, x in enumerate(X[:, 0])
    ]


def test_arrays_may_become_tensors_within():
    victim = from_module(lambda obs: torch.from_numpy(obs).double() @ torch.as_tensor(WEIGHT), OBS, TWO, "q")
    torch.testing.assert_close(victim.params(X), X @ torch.as_tensor(WEIGHT).float())


def test_an_object_that_predicts_is_told_what_to_give():
    class Tree:
        def predict(self, obs):
            return (obs[:, 0] > 0).astype(int)

    with pytest.raises(
        VictimError, match=r"Its predict may be what to give: from_module\(net\.predict, \.\.\., 'action'\)"
    ):
        from_module(Tree(), OBS, TWO, "action")
    assert from_module(Tree().predict, OBS, TWO, "action").act_on(X.numpy()).tolist() == (X[:, 0] > 0).int().tolist()
