"""Robust Sarsa's learner: its learning rate, and what it reports of an epoch."""

from __future__ import annotations

import pytest
import torch
from torch.overrides import TorchFunctionMode

from adv_wrappers.training.models.critic import CriticSettings, SarsaBatch, SarsaLearner
from adv_wrappers.training.models.networks import tanh_mlp
from tests.core.helpers import randn

ROWS = 32


def learner():
    how = CriticSettings(eps=0.1, weight=1.0, gamma=0.9, lr=0.1)
    return SarsaLearner(tanh_mlp((3, 4, 1), 1.0, torch.Generator().manual_seed(0), torch.float64), how, 2)


def epoch(one, done, part):
    ends = torch.zeros(ROWS, dtype=torch.bool)
    batch = SarsaBatch(x=randn(ROWS, 3), after=randn(ROWS, 3), reward=randn(ROWS), ended=ends, over=ends)
    return one.epoch(batch, 8, torch.Generator(), done, part)


@pytest.mark.parametrize("done", [1.0, 1.5])
def test_beyond_the_last_step_nothing_is_learned(done):
    """The last round plays whole steps of all environments, which may be more than were asked for."""
    one = learner()
    before = [param.clone() for param in one.params]
    epoch(one, done, 0.1)
    assert all(torch.equal(old, new) for old, new in zip(before, one.params, strict=True))
    epoch(one, 0.5, 0.1)
    assert not all(torch.equal(old, new) for old, new in zip(before, one.params, strict=True))


def test_losses_are_kept_where_they_were_computed():
    """A host tensor among a device's cannot be stacked with them; in here the dtype tells which it is."""

    class Stacks(TorchFunctionMode):
        seen = None

        def __torch_function__(self, func, types, args=(), kwargs=None):
            if func is torch.stack:
                self.seen = [*(self.seen or []), {(part.dtype, part.device.type) for part in args[0]}]
            return func(*args, **(kwargs or {}))

    with Stacks() as stacks:
        _, penalty = epoch(learner(), 0.3, 0.1)  # the box begins to grow within this epoch
    assert penalty > 0 and stacks.seen == [{(torch.float64, "cpu")}] * 2
