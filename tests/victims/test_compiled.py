"""Compiled gradients: equal to autograd's, made once a victim, and done without where there is no compiler."""

from __future__ import annotations

import functools
import pickle
import shutil

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from adv_wrappers import Linf, MaxDiff, MinBest, from_module
from adv_wrappers.victims import gradients
from tests.core.helpers import context

BOX = spaces.Box(-1, 1, (5,), np.float64)


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 8), nn.LayerNorm(8), nn.Mish(), nn.Linear(8, 3)).double()


def victim(**more):
    return from_module(net(), BOX, spaces.Discrete(3), "logits", **more)


# what the compiler itself deprecates is not ours
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
@pytest.mark.skipif(shutil.which("g++") is None and shutil.which("clang++") is None, reason="no C++ compiler")
@pytest.mark.slow
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled_is_autograd(backend, monkeypatch):
    """The C++ compiler takes half a minute; the graph that it is given is the same, and is executed here."""
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend=backend))
    made = []
    plain = gradients._gradient_of
    monkeypatch.setattr(gradients, "_gradient_of", lambda v: made.append(v) or plain(v))
    fast, slow = victim(compile=True), victim()
    weights = {k: v.clone() for k, v in fast.net.state_dict().items()}
    assert fast.layer_graph() is None
    for attack, rows in ((MinBest, 4), (MaxDiff, 4), (MinBest, 6)):
        x = torch.rand(rows, 5, dtype=torch.float64)
        ends = [attack(v, steps=3, step=0.3)(x, context(x, Linf(0.2), -1, 1)) for v in (fast, slow)]
        torch.testing.assert_close(*ends, rtol=0, atol=1e-9)
        assert not torch.equal(ends[0], x)
    assert made == [fast] and fast._compiled is not None
    assert all(torch.equal(v, weights[k]) for k, v in fast.net.state_dict().items())
    assert all(p.grad is None for p in fast.net.parameters())
    assert "_compiled" not in vars(pickle.loads(pickle.dumps(fast)))


def test_without_a_compiler(monkeypatch):
    def refuses(*args, **kwargs):
        raise OSError("no compiler here")

    monkeypatch.setattr(torch, "compile", lambda function, **more: refuses)
    fast, slow = victim(compile=True), victim()
    x = torch.rand(4, 5, dtype=torch.float64)
    with pytest.warns(RuntimeWarning, match="is not compiled: OSError: no compiler here") as seen:
        ends = [MinBest(v, steps=3, step=0.3)(x, context(x, Linf(0.2), -1, 1)) for v in (fast, slow)]
    assert len(seen) == 1 and torch.equal(*ends)


def test_losses_without_a_closed_form_are_not_compiled(monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda *args, **more: pytest.fail("compiled"))
    x = torch.rand(4, 5, dtype=torch.float64)
    assert victim(compile=True).gradient(lambda params: params[:, 0])(x).shape == x.shape
