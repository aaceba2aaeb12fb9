"""Victims from modules and functions."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn
from torch.distributions import Categorical, Independent, Normal

from adv_wrappers.core.errors import VictimError
from adv_wrappers.victims.module import from_module

OBS = spaces.Box(-np.inf, np.inf, (4,), np.float32)
TWO, BOX = spaces.Discrete(2), spaces.Box(-1, 1, (3,), np.float32)


def net(outputs: int) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, outputs))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell, self.head = nn.GRUCell(4, 5), nn.Linear(5, 2)

    def forward(self, obs, state):
        state = self.cell(obs, state)
        return self.head(state), state


def test_kinds_and_spaces():
    x = torch.randn(3, 4)
    q = from_module(net(2), OBS, spaces.Discrete(2, start=5), "q")
    params = q.params(x)
    assert torch.equal(q.act(params), params.argmax(-1) + 5)
    assert torch.equal(q.q(x), params)
    assert torch.equal(q.q(x, q.act(params)), params.amax(-1))
    assert torch.equal(q.value(x), params.amax(-1))
    logits = from_module(net(2), OBS, TWO, "logits", value=net(1))
    assert logits.q(x) is None
    torch.testing.assert_close(logits.value(x), net(1)(x)[:, 0])
    mean = from_module(lambda o: 5 * o[:, :3], OBS, BOX, "mean", clip=True, critic=lambda o, a: o.sum(1) + a.sum(1))
    assert torch.equal(mean.act(mean.params(x)), (5 * x[:, :3]).clamp(-1, 1))
    assert torch.equal(mean.q(x, x[:, :3]), x.sum(1) + x[:, :3].sum(1))
    assert mean.q(x) is None and mean.value(x) is None


def test_distributions_and_pairs():
    x = torch.randn(3, 4)
    policy = from_module(lambda o: Categorical(logits=o[:, :2]), OBS, TWO)
    assert policy.kind == "logits"
    torch.testing.assert_close(policy.policy(x).probs, x[:, :2].softmax(-1))
    normal = from_module(lambda o: Independent(Normal(o[:, :3], 2.0), 1), OBS, BOX)
    torch.testing.assert_close(normal.params(x)[:, 3:], torch.full((3, 3), 2.0).log())
    pair = from_module(lambda o: (o[:, :3], torch.zeros(3)), OBS, BOX)
    assert pair.kind == "gaussian" and pair.params(x).shape == (3, 6)


def test_a_sampling_victim_needs_a_key():
    victim = from_module(net(2), OBS, TWO, "logits", select="sample")
    params = victim.params(torch.zeros(3, 4))
    assert victim.act(params, torch.arange(3)).shape == (3,)
    with pytest.raises(VictimError, match="key"):
        victim.act(params)


@pytest.mark.parametrize("plain", [True, False])
def test_gradient_is_autograd_and_leaves_no_trace(plain):
    module = net(2).train()
    module = module if plain else nn.Sequential(module, nn.GELU())
    victim = from_module(module, OBS, TWO, "logits", live=True)
    assert (victim.chain() is not None) is plain
    weights = copy.deepcopy(module.state_dict())
    x, slope = torch.randn(5, 4), torch.randn(5, 2)
    with torch.no_grad():
        found = victim.gradient(lambda p: (p * slope).sum(-1))(x)
    y = x.clone().requires_grad_()
    (expected,) = torch.autograd.grad((module(y) * slope).sum(), y)
    torch.testing.assert_close(found, expected)
    assert module.training and all(p.grad is None and p.requires_grad for p in module.parameters())
    assert all(torch.equal(weights[k], v) for k, v in module.state_dict().items())


def test_a_closed_form_gradient_is_used():
    class Loss:
        def __call__(self, params):
            return params.sum(-1)

        def gradient(self, params):
            return torch.zeros_like(params)

    assert not from_module(net(2), OBS, TWO, "logits").gradient(Loss())(torch.randn(2, 4)).any()


def test_frozen_or_live():
    module = net(2)
    frozen, live = (from_module(module, OBS, TWO, "logits", live=flag) for flag in (False, True))
    x, first = torch.randn(3, 4), frozen.fingerprint()
    assert first == live.fingerprint()
    before = frozen.params(x)
    with torch.no_grad():
        module[0].weight.add_(1e-3)
    assert torch.equal(frozen.params(x), before) and not torch.equal(live.params(x), before)
    assert frozen.fingerprint() == first != live.fingerprint()
    assert not any(p.requires_grad for m in frozen.modules() for p in m.parameters())
    assert copy.deepcopy(frozen) is frozen


def test_recurrent():
    torch.manual_seed(0)
    module = Recurrent()
    victim = from_module(module, OBS, TWO, "logits", initial_state=lambda rows: torch.zeros(rows, 5))
    assert victim.recurrent and victim.chain() is None
    state, x = victim.initial_state(3), torch.randn(3, 4)
    first = victim.params(x, state)
    assert torch.equal(victim.params(x, state), first)
    new = victim.advance(x, state)
    assert not state.any() and torch.equal(new, module.cell(x, state))
    assert not torch.equal(victim.params(x, new), first)
    slope = victim.gradient(lambda p: p[:, 0], new)(x)
    y = x.clone().requires_grad_()
    torch.testing.assert_close(slope, torch.autograd.grad(victim.params(y, new)[:, 0].sum(), y)[0])


def test_dict_observations_and_fill():
    space = spaces.Dict(a=OBS, b=spaces.Box(-1, 1, (2,), np.float32))
    victim = from_module(lambda o: torch.cat([o["a"] ** 2, o["b"]], 1), space, spaces.Discrete(6), "q")
    rest, x = torch.randn(3, 2), torch.randn(3, 4)
    found = victim.gradient(lambda p: p.sum(-1), fill=lambda a: {"a": a, "b": rest})(x)
    torch.testing.assert_close(found, 2 * x)


def test_pickle():
    victim = from_module(net(2), OBS, TWO, "logits", value=net(1), ref="mine")
    again, x = pickle.loads(pickle.dumps(victim)), torch.randn(2, 4)
    assert torch.equal(again.params(x), victim.params(x)) and again.fingerprint() == victim.fingerprint()
    assert torch.equal(again.gradient(lambda p: p[:, 0])(x), victim.gradient(lambda p: p[:, 0])(x))


@pytest.mark.parametrize(
    ("module", "observation", "action", "arguments", "message"),
    [
        (net(2), OBS, TWO, {}, "say what the module returns"),
        (net(3), OBS, TWO, {"kind": "logits"}, "returns 3 numbers a row"),
        (net(3), OBS, BOX, {"kind": "gaussian"}, "needs 6"),
        (net(2), OBS, TWO, {"kind": "mean"}, "does not go with"),
        (net(2), OBS, TWO, {"kind": "wrong"}, "kind must be"),
        (net(2), OBS, TWO, {"kind": "q", "select": "best"}, "select must be"),
        (net(2), OBS, TWO, {"kind": "q", "dtype": torch.float16}, "float32 or float64"),
        (net(2), spaces.Box(-1, 1, (5,)), TWO, {"kind": "q"}, "does not take observations"),
        (net(2), spaces.Discrete(4), TWO, {"kind": "q"}, "expected Box observations"),
        (lambda o: o.sum(), OBS, TWO, {"kind": "q"}, r"must return \[B, K\]"),
        (lambda o: Categorical(logits=o[:, :2]), OBS, TWO, {"kind": "q"}, "returns a Distribution"),
        (None, OBS, TWO, {"kind": "q"}, "got None"),
        (nn.Sequential(nn.Dropout(), net(2)), OBS, TWO, {"kind": "q", "live": True}, "dropout"),
    ],
)
def test_errors(module, observation, action, arguments, message):
    with pytest.raises(VictimError, match=message):
        from_module(module, observation, action, **arguments)
