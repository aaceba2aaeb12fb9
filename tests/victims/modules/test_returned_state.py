"""Recurrent modules in the forms that libraries write them: each row and episode has its own state."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

import adv_wrappers as adv
from adv_wrappers.errors import VictimError
from adv_wrappers.victims.policy_runner import PolicyRunner
from tests.core.helpers import randn
from tests.every_case import every_case

SEEN, TWO = spaces.Box(-np.inf, np.inf, (4,), np.float32), spaces.Discrete(2)
X = randn(6, 3, 4).float() * 3


class Lstm(nn.Module):
    """Torch's layout of a state, which may be left out."""

    def __init__(self, layers: int = 2) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.lstm, self.head, self.value = nn.LSTM(4, 8, layers), nn.Linear(8, 2), nn.Linear(8, 1)

    def forward(self, x, hidden=None):
        out, hidden = self.lstm(x[None], hidden)
        return self.head(out[0]), hidden


class Between(Lstm):
    """It returns a value between the output and the state, as torch-ac's models do, and asks for a state."""

    def forward(self, x, memory):
        out, memory = self.lstm(x[None], memory)
        return torch.distributions.Categorical(logits=self.head(out[0])), self.value(out[0]), memory


class Spread(Lstm):
    """Two arguments and two values, as exported networks have them."""

    def forward(self, x, h, c):
        out, state = self.lstm(x[None], (h, c))
        return self.head(out[0]), *state


class Tianshou(Lstm):
    """A dictionary with rows first."""

    def forward(self, obs, state=None, info=None):
        state = None if state is None else tuple(state[key].transpose(0, 1).contiguous() for key in ("h", "c"))
        logits, (h, c) = super().forward(obs, state)
        return logits, {"h": h.transpose(0, 1), "c": c.transpose(0, 1)}


def zeros(rows):
    return torch.zeros(2, rows, 8), torch.zeros(2, rows, 8)


def lists(rows):
    return [*zeros(rows)]


def on_arrays(x, state):
    logits, state = Lstm()(torch.as_tensor(x), tuple(map(torch.as_tensor, state)))
    return logits.detach().numpy(), tuple(part.detach().numpy() for part in state)


def wanted():
    """Logits ``[T, B, A]``, where the second row's episode ends after three steps."""
    net, logits, state = Lstm(), [], zeros(3)
    for t, x in enumerate(X):
        if t == 3:
            state = tuple(part * torch.tensor([1.0, 0.0, 1.0])[:, None] for part in state)
        out, state = net(x, state)
        logits.append(out.detach())
    return torch.stack(logits)


MAKERS = {
    "left out": lambda: (Lstm(), {}),
    "torch's layout": lambda: (Lstm(), {"initial_state": zeros}),
    "a list": lambda: (lambda x, state: Lstm()(x, tuple(state)), {"initial_state": lists}),
    "values between": lambda: (Between(), {"initial_state": zeros}),
    "several arguments": lambda: (Spread(), {"initial_state": zeros}),
    "dictionary": lambda: (Tianshou(), {}),
    "arrays": lambda: (on_arrays, {"initial_state": lambda rows: tuple(part.numpy() for part in zeros(rows))}),
}


@every_case("name", MAKERS)
def test_rows_and_episodes_have_their_own_state(name):
    module, arguments = MAKERS[name]()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        victim = adv.from_module(module, SEEN, TWO, None if name == "values between" else "logits", **arguments)
    assert victim.recurrent
    runner, logits = PolicyRunner(victim, 3), []
    for t, x in enumerate(X.numpy()):
        if t == 3:
            runner.reset(np.array([False, True, False]))
        logits.append(runner.params(x))
        torch.testing.assert_close(runner.params(x, np.array([2])), logits[-1][2:])
        runner.act(x)
    torch.testing.assert_close(torch.stack(logits).log_softmax(-1), wanted().log_softmax(-1))
    if name not in ("a list", "arrays"):  # of functions that are written here
        torch.testing.assert_close(pickle.loads(pickle.dumps(victim)).params(X[0], victim.initial_state(3)), logits[0])


def test_values_and_gradients_take_the_state_as_the_module_does():
    net = Lstm()
    value = lambda x, state: net.value(net.lstm(x[None], state)[0][0])  # noqa: E731
    victim = adv.from_module(net, SEEN, TWO, "logits", initial_state=zeros, value=value)
    state = victim.advance(X[0], victim.initial_state(3))
    _, own = net(X[0])
    torch.testing.assert_close(victim.value(X[1], state), value(X[1], own).reshape(-1))
    x = X[1].clone().requires_grad_()
    (expected,) = torch.autograd.grad(net(x, own)[0][:, 0].sum(), x)
    torch.testing.assert_close(victim.gradient(lambda p: p[:, 0], state)(X[1]), expected)
    auto = adv.from_module(net, SEEN, TWO, "logits", value=nn.Linear(4, 1))
    assert auto.value(X[0], auto.initial_state(3)).shape == (3,)


def test_a_module_that_advances_by_itself():
    class Advances(Lstm):
        def advance(self, x, hidden):
            return tuple(part + 1 for part in hidden)

    victim = adv.from_module(Advances(), SEEN, TWO, "logits", initial_state=zeros)
    assert all(bool((part == 1).all()) for part in victim.advance(X[0], victim.initial_state(3)))


def test_what_begins_elsewhere_is_asked_for_its_start():
    class Elsewhere(Lstm):
        def forward(self, x, state=None):
            return super().forward(x, tuple(part + 1 for part in zeros(len(x))) if state is None else state)

    with pytest.raises(VictimError, match=r"takes it as 'state', and begins elsewhere than at zeros: .*initial_state="):
        adv.from_module(Elsewhere(), SEEN, TWO, "logits")
    with pytest.raises(VictimError, match=r"'memory'; one that takes a hidden state needs initial_state="):
        adv.from_module(Between(), SEEN, TWO)
    with pytest.raises(VictimError, match=r"rows along an axis of every part, got shapes \[\(3,\)\] for 2"):
        adv.from_module(Lstm(), SEEN, TWO, "logits", initial_state=lambda rows: torch.zeros(3))


def test_another_argument_is_no_state():
    class Two(Lstm):
        def forward(self, x, temperature=1.0):
            return self.head(x.repeat(1, 2)) / temperature, self.value(x.repeat(1, 2)) + 2

    class Either(Lstm):
        def forward(self, x, state=None):
            out = self.head(x.repeat(1, 2)), self.value(x.repeat(1, 2))
            return out if state is None else (torch.cat(out, 1), state)

    assert not adv.from_module(Two(), SEEN, TWO, "logits").recurrent
    assert not adv.from_module(Either(), SEEN, TWO, "logits").recurrent


@every_case("layer", [nn.LSTM(4, 2), nn.GRU(4, 2, batch_first=True), nn.GRUCell(4, 2), nn.LSTMCell(4, 2)])
def test_a_state_that_is_left_behind_is_warned_of(layer):
    def step(x, state=None):
        if isinstance(layer, nn.RNNCellBase):
            after = layer(x, state)
            return after[0] if isinstance(after, tuple) else after, after
        out, after = layer(x[:, None] if layer.batch_first else x[None], state)
        return out.reshape(len(x), 2), after

    with pytest.warns(UserWarning, match=r"begins anew at every step.*initial_state=lambda rows: ") as found:
        adv.from_module(lambda x: step(x)[0], SEEN, TWO, "logits")
    start = eval(str(found[0].message).partition("initial_state=")[2][:-1])  # what it says works
    assert adv.from_module(step, SEEN, TWO, "logits", initial_state=start).recurrent


def test_a_sequence_within_an_observation_needs_no_state():
    layer = nn.GRU(2, 2, batch_first=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        adv.from_module(lambda x: layer(x.view(-1, 2, 2))[0][:, -1], SEEN, TWO, "logits")


@pytest.mark.parametrize("space", [spaces.Discrete(2), spaces.Box(-1, 1, (2,))])
def test_a_module_that_returns_its_action_and_its_state(space):
    class Memory(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.cell, self.head = nn.LSTM(4, 8), nn.Linear(8, 2)

        def forward(self, x, hidden=None):
            seen, hidden = self.cell(x[None], hidden)
            mean = self.head(seen[0])
            return (mean.argmax(-1) if isinstance(space, spaces.Discrete) else mean), hidden

    net, box = Memory(), spaces.Box(-9, 9, (4,), np.float32)
    victim = adv.from_module(net, box, space, "action")
    assert victim.recurrent
    state, hidden = victim.initial_state(1), None
    for obs in np.random.default_rng(0).uniform(-9, 9, (30, 1, 4)).astype(np.float32):
        with torch.no_grad():
            action, hidden = net(torch.from_numpy(obs), hidden)
        np.testing.assert_allclose(victim.act_on(obs, state), action.numpy(), atol=1e-6)
        state = victim.advance(torch.from_numpy(obs), state)
