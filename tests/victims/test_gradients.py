"""Gradients by autograd: those of the whole loss, of which no graph is built where its own gradient is known."""

from __future__ import annotations

import pytest
import torch
from gymnasium import spaces
from torch import nn

from adv_wrappers import from_module
from adv_wrappers.attacks.objectives import CrossEntropy, Divergence, Margin, SquaredDistance
from adv_wrappers.errors import VictimError
from adv_wrappers.victims.gradients import by_autograd
from tests.core.helpers import actor, box, chooser, randn

X = randn(5, 4)


class Recurrent(nn.Module):
    """An LSTM cell and a head; nothing of it is written out."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.cell, self.head = nn.LSTMCell(4, 6).double(), nn.Linear(6, 3).double()

    def forward(self, x, state=None):
        state = self.cell(x, state)
        return self.head(state[0]), state


class Untaped(nn.Module):
    """The cell on one observation, from a state of ones."""

    def __init__(self, width: int = 3) -> None:
        super().__init__()
        self.net, self.width = Recurrent(), width

    def forward(self, x):
        start = x.new_ones(len(x), 6)
        out = self.net(x, (start, start))[0]
        return torch.cat([out, out.square()], -1)[:, : self.width]


def whole(victim, loss, x, state=None, fill=None):
    """The gradient through victim and loss together."""
    leaf = x.clone().requires_grad_()
    params = victim.params(leaf if fill is None else fill(leaf), state)
    return torch.autograd.grad(loss(params).sum(), leaf)[0]


class Quiet:
    """A loss that gives its gradient alone."""

    def __init__(self, loss) -> None:
        self.gradient = loss.gradient

    def __call__(self, params):
        raise AssertionError("the loss itself is not asked for")


LABELS = torch.tensor([0, 1, 2, 1, 0])
CHOOSER, ACTOR = chooser(Untaped()), actor(Untaped(6), "gaussian")
CASES = {
    "cross-entropy": (CHOOSER, CrossEntropy(LABELS)),
    "margin": (CHOOSER, Margin(LABELS)),
    "divergence": (CHOOSER, Divergence(CHOOSER, CHOOSER.params(X + 1))),
    "gaussian": (ACTOR, Divergence(ACTOR, ACTOR.params(X + 1), averaged=True)),
    "distance": (ACTOR, SquaredDistance(ACTOR, ACTOR.mode(ACTOR.params(X + 1)))),
}


@pytest.mark.parametrize("case", CASES)
def test_the_graph_of_a_loss_is_not_built(case):
    victim, loss = CASES[case]
    assert victim.layer_graph() is None
    expected, written = whole(victim, loss, X), torch.zeros_like(X)
    for given in (Quiet(loss), lambda params: loss(params)):  # in closed form, and by autograd over parameters
        torch.testing.assert_close(victim.gradient(given)(X), expected, rtol=1e-10, atol=1e-12)
    assert expected.abs().amax(1).gt(0).all()
    with torch.no_grad():  # as under a wrapper
        written += victim.gradient(Quiet(loss))(X)
    torch.testing.assert_close(written, expected, rtol=1e-10, atol=1e-12)
    assert all(p.grad is None for p in victim.net.parameters()) and X.grad is None and not X.requires_grad


def test_with_a_hidden_state():
    victim = from_module(
        Recurrent(),
        box(4),
        spaces.Discrete(3),
        "logits",
        initial_state=lambda rows: (torch.zeros(rows, 6).double(), torch.zeros(rows, 6).double()),
    )
    state, loss = victim.advance(X + 2, victim.initial_state(5)), CrossEntropy(LABELS)
    found = victim.gradient(Quiet(loss), state)(X)
    torch.testing.assert_close(found, whole(victim, loss, X, state), rtol=1e-10, atol=1e-12)
    assert not torch.allclose(found, victim.gradient(Quiet(loss), victim.initial_state(5))(X))


def test_part_of_a_larger_observation():
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = Untaped()

        def forward(self, obs):
            return self.net(obs["a"]) + obs["b"].sum(-1, keepdim=True) * self.net(obs["a"].tanh())

    victim = from_module(
        Both(), spaces.Dict({"a": box(4), "b": box(2)}), spaces.Discrete(3), "logits", dtype=torch.float64
    )
    rest, loss = randn(5, 2, seed=3), CrossEntropy(LABELS)

    def fill(x):
        return {"a": x, "b": rest}

    found = victim.gradient(Quiet(loss), None, fill)(X)
    torch.testing.assert_close(found, whole(victim, loss, X, None, fill), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("cast", [False, True])
@pytest.mark.parametrize("activation", [nn.Softplus, nn.Tanh])  # of which the gradient of one is written out
def test_the_loss_is_computed_in_the_victims_dtype(cast, activation):
    torch.manual_seed(1)
    victim, seen = chooser(nn.Sequential(nn.Linear(4, 8), activation(), nn.Linear(8, 3))), []

    class Watched(CrossEntropy):
        def gradient(self, params):
            seen.append((params.dtype, torch.is_grad_enabled()))
            return super().gradient(params)

    x = X.float()
    with torch.autocast("cpu", torch.bfloat16, enabled=cast):
        g = victim.gradient(Watched(LABELS))(x)
    assert seen == [(torch.float32, False)] and g.dtype == torch.float32
    torch.testing.assert_close(g, whole(victim, CrossEntropy(LABELS), x), rtol=0.05, atol=2e-3)


def test_what_carries_no_gradient_says_so():
    gradient = by_autograd(lambda x: x.detach(), CrossEntropy(LABELS), "nothing comes back")
    with pytest.raises(VictimError, match="nothing comes back"):
        gradient(X)
