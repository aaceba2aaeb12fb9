"""Combinations of outputs as combinations of inputs: the same numbers, for every layer that is known."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from adv_wrappers.networks.operations.lookup import operation_of
from adv_wrappers.networks.policy_layers import AppendLogStd, Normalize, QuantileMean, TwoLogits
from tests.core.helpers import linear, randn

VECTORS = {
    "linear": (lambda: linear(randn(4, 6), randn(4)), 4), "no bias": (lambda: nn.Linear(6, 4, bias=False).double(), 4),
    "quantiles": (lambda: QuantileMean(3), 2), "bits": (TwoLogits, 12), "log std": (lambda: AppendLogStd(randn(6)), 12),
}  # fmt: skip
PICTURES = {
    "conv": lambda: nn.Conv2d(2, 4, 3), "stride": lambda: nn.Conv2d(2, 4, 3, stride=2, padding=1, groups=2),
    "what no kernel reaches": lambda: nn.Conv2d(2, 3, 2, stride=4, bias=False),
    "valid": lambda: nn.Conv2d(2, 3, 2, padding="valid"), "wide padding": lambda: nn.Conv2d(2, 3, 2, padding=3),
    "same": lambda: nn.Conv2d(2, 3, (3, 2), dilation=(1, 2), padding="same"),
    "pooling": lambda: nn.AvgPool2d(2, 1, 1), "flat": nn.Flatten, "identity": nn.Identity,
    "normaliser": lambda: Normalize(randn(2, 9, 7), randn(2, 9, 7).exp()), "last axis": lambda: nn.Linear(7, 3),
}  # fmt: skip


@pytest.mark.parametrize("name", VECTORS)
@pytest.mark.parametrize("batched", [False, True])
def test_the_same_combination_of_what_goes_in(name, batched):
    torch.manual_seed(0)
    make, outputs = VECTORS[name]
    layer, x = make(), randn(5, 6)
    rows = randn(5 if batched else 1, 3, outputs, seed=1)
    (pulled,), offset = operation_of(layer).pull_back(rows, [(6,)])
    expected = (rows @ layer(x)[..., None]).squeeze(-1)
    torch.testing.assert_close((pulled @ x[..., None]).squeeze(-1) + offset, expected)


@pytest.mark.parametrize("name", PICTURES)
@pytest.mark.parametrize("batch", [1, 5])
def test_layers_of_pictures(name, batch):
    torch.manual_seed(0)
    layer, x = PICTURES[name]().double(), randn(5, 2, 9, 7)
    with torch.no_grad():
        answer = layer(x)
        rows = randn(batch, 3, *answer.shape[1:], seed=1)
        (pulled,), offset = operation_of(layer).pull_back(rows, [(2, 9, 7)])
    assert operation_of(layer).is_affine() and pulled.shape == (batch, 3, 2, 9, 7)
    torch.testing.assert_close(
        (pulled * x[:, None]).flatten(2).sum(-1) + offset, (rows * answer[:, None]).flatten(2).sum(-1)
    )


def test_other_layers():
    for layer in (nn.Tanh(), Normalize(randn(2), randn(2), 1.0)):
        assert not operation_of(layer).is_affine()
