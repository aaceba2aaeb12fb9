"""kind="action": functions that answer with the action they chose, tensors and arrays alike."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

import adv_wrappers as adv
from adv_wrappers.errors import VictimError
from tests.core.helpers import randn
from tests.every_case import every_case

SEEN = spaces.Box(-np.inf, np.inf, (4,), np.float32)
X = randn(6, 4).float()


class Argmax(nn.Module):
    """A module that ends with the choice."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, obs):
        return self.linear(obs).argmax(-1)


def _scripted(obs):
    """A rule on arrays, with an answer ``[B, 1]``."""
    return (obs[:, :1] > 0).astype(np.int64) + 5


def test_a_module_that_chooses():
    net = Argmax()
    victim = adv.from_module(net, SEEN, spaces.Discrete(3), "action")
    assert victim.kind == "logits" and not victim.differentiable
    assert torch.equal(victim.act_on(X), net(X))
    other = adv.from_module(Argmax(), SEEN, spaces.Discrete(3), "action")
    assert victim.modules() and victim.fingerprint() != other.fingerprint()


def test_a_function_on_arrays_and_a_space_that_starts_elsewhere():
    victim = adv.from_module(_scripted, SEEN, spaces.Discrete(2, start=5), "action")
    assert victim.act_on(X.numpy()).tolist() == _scripted(X.numpy())[:, 0].tolist()


def test_an_action_beside_a_value_is_taken():
    victim = adv.from_module(lambda obs: (obs[:, 0].gt(0).long(), obs.sum(-1)), SEEN, spaces.Discrete(2), "action")
    assert torch.equal(victim.act_on(X), X[:, 0].gt(0).long())


@pytest.mark.parametrize("space", [spaces.MultiDiscrete([3, 2], start=[0, 4]), spaces.MultiBinary(2)])
def test_several_choices_at_once(space):
    start = np.array([0, 4]) if isinstance(space, spaces.MultiDiscrete) else 0
    victim = adv.from_module(lambda obs: (obs[:, :2] > 0).astype(int) + start, SEEN, space, "action")
    assert np.array_equal(victim.act_on(X.numpy()), (X[:, :2].numpy() > 0).astype(int) + start)


def test_a_continuous_action_is_a_mean_with_its_gradient():
    victim = adv.from_module(nn.Linear(4, 2), SEEN, spaces.Box(-1, 1, (2,)), "action")
    assert victim.kind == "mean" and victim.differentiable


@every_case("answer", [lambda o: o[:, :2], lambda o: o[:, 0].long() + 7, lambda o: o[:, :2].gt(0).long()])
def test_answers_that_are_no_actions(answer):
    with pytest.raises(VictimError, match=r"takes a module that returns actions of Discrete\(2\), got torch.*logits"):
        adv.from_module(answer, SEEN, spaces.Discrete(2), "action").act_on(X)


def test_a_recurrent_one_returns_its_state_last():
    cell, head = nn.GRUCell(4, 8), nn.Linear(8, 3)

    def act(obs, hidden):
        after = cell(obs, hidden)
        return head(after).argmax(1, keepdim=True), after[:, :1], after  # an action and a value

    victim = adv.from_module(act, SEEN, spaces.Discrete(3), "action", initial_state=lambda rows: torch.zeros(rows, 8))
    state = victim.advance(X, victim.initial_state(len(X)))
    own = cell(X, torch.zeros(len(X), 8))
    torch.testing.assert_close(victim.act_on(X, state), act(X, own)[0][:, 0])
    assert victim.recurrent and not victim.differentiable


def test_a_module_that_draws_its_actions_says_so():
    class Agent(Argmax):
        def get_action_and_value(self, obs):
            policy = torch.distributions.Categorical(logits=self.linear(obs))
            action = policy.sample()
            return action, policy.log_prob(action), policy.entropy(), obs[:, :1]

    with pytest.warns(UserWarning, match=r"answers by chance.*select='sample'"):
        victim = adv.from_module(Agent().get_action_and_value, SEEN, spaces.Discrete(3), "action")
    assert "actions as its module chooses them" in repr(victim) and "logits" not in repr(victim)
