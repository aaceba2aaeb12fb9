"""Combinations of outputs as combinations of inputs: the same numbers, for every layer that is known."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from adv_wrappers.bounds.affine import pull_back
from adv_wrappers.networks.layers import AppendLogStd, QuantileMean, TwoLogits
from tests.core.helpers import randn

LAYERS = {
    "linear": (lambda: nn.Linear(6, 4).double(), 4), "no bias": (lambda: nn.Linear(6, 4, bias=False).double(), 4),
    "quantiles": (lambda: QuantileMean(3), 2), "bits": (TwoLogits, 12), "log std": (lambda: AppendLogStd(randn(6)), 12),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("batched", [False, True])
def test_the_same_combination_of_what_goes_in(name, batched):
    torch.manual_seed(0)
    make, outputs = LAYERS[name]
    layer, x = make(), randn(5, 6)
    rows = randn(5, 3, outputs, seed=1) if batched else randn(3, outputs, seed=1)
    pulled, offset = pull_back(layer, rows)
    expected = (rows @ layer(x)[..., None]).squeeze(-1)
    torch.testing.assert_close((pulled @ x[..., None]).squeeze(-1) + offset, expected)
    largest = pull_back(layer, rows.abs(), magnitudes=True)
    assert (largest[0] >= pulled.abs()).all() and (largest[1] >= offset.abs()).all()


def test_other_layers_are_none():
    assert pull_back(nn.Tanh(), randn(2, 3)) is None
