"""Closed forms of the families against torch.distributions and autograd."""

from __future__ import annotations

import pytest
import torch
from torch.distributions import Categorical, kl_divergence

from adv_wrappers.core import keys
from adv_wrappers.victims.families import (
    CategoricalFamily,
    DeterministicFamily,
    GaussianFamily,
    MultiCategoricalFamily,
    params_of,
)

FAMILIES = [
    (CategoricalFamily(), 5),
    (MultiCategoricalFamily((2, 3, 2)), 7),
    (GaussianFamily(), 6),
    (DeterministicFamily(), 4),
]


def rows(width: int, seed: int) -> torch.Tensor:
    return torch.randn(6, width, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def reference(family: object, p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    if isinstance(family, MultiCategoricalFamily):  # torch has no divergence of padded (-inf) logits
        parts = zip(p.split(list(family.nvec), -1), q.split(list(family.nvec), -1), strict=True)
        return sum(kl_divergence(Categorical(logits=a), Categorical(logits=b)) for a, b in parts)
    return kl_divergence(family.policy(p), family.policy(q))


@pytest.mark.parametrize(("family", "width"), FAMILIES, ids=lambda f: type(f).__name__)
def test_kl_is_torchs(family, width):
    p, q = rows(width, 0), rows(width, 1)
    torch.testing.assert_close(family.kl(p, q), reference(family, p, q))
    assert family.kl(p, p).abs().max() < 1e-12


@pytest.mark.parametrize(("family", "width"), FAMILIES, ids=lambda f: type(f).__name__)
def test_kl_gradient_is_autograds(family, width):
    p, q = rows(width, 2), rows(width, 3).requires_grad_()
    (expected,) = torch.autograd.grad(family.kl(p, q).sum(), q)
    torch.testing.assert_close(family.kl_gradient(p, q.detach()), expected)
    assert family.kl_gradient(p, p.clone()).abs().max() < 1e-12


def test_modes():
    assert CategoricalFamily().mode(torch.tensor([[0.0, 2.0, 1.0]])).tolist() == [1]
    assert MultiCategoricalFamily((2, 3)).mode(torch.tensor([[1.0, 0.0, 0.0, 0.0, 1.0]])).tolist() == [[0, 2]]
    assert GaussianFamily().mode(torch.tensor([[1.0, 2.0, -1.0, -1.0]])).tolist() == [[1.0, 2.0]]


def many(count: int) -> torch.Tensor:
    return keys.fold(torch.arange(count), 7)


def test_categorical_samples_have_the_probabilities():
    probabilities, count = torch.tensor([0.1, 0.0, 0.6, 0.3]), 20_000
    drawn = CategoricalFamily().sample(probabilities.log().expand(count, 4), many(count))
    seen = torch.bincount(drawn, minlength=4) / count
    assert seen[1] == 0
    assert (seen - probabilities).abs().max() < 4 * (0.25 / count) ** 0.5


def test_multi_categorical_samples_are_independent():
    count = 20_000
    drawn = MultiCategoricalFamily((2, 2)).sample(torch.zeros(count, 4), many(count))
    both = (drawn[:, 0] * drawn[:, 1]).double().mean()
    assert abs(both - 0.25) < 4 * (0.25 / count) ** 0.5


def test_gaussian_samples_have_mean_and_std():
    count, params = 20_000, torch.tensor([1.0, -2.0, 0.5, -1.0])
    drawn = GaussianFamily().sample(params.expand(count, 4), many(count))
    std = params[2:].exp()
    assert ((drawn.mean(0) - params[:2]).abs() < 4 * std / count**0.5).all()
    assert (drawn.std(0) / std - 1).abs().max() < 0.03
    assert abs(torch.corrcoef(drawn.T)[0, 1]) < 0.04


def test_a_row_draws_the_same_in_any_batch():
    params, key = rows(4, 4), many(6)
    assert torch.equal(GaussianFamily().sample(params, key)[3:4], GaussianFamily().sample(params[3:4], key[3:4]))


def test_params_of_inverts_policy():
    for family, width in (FAMILIES[0], FAMILIES[2]):
        params = rows(width, 5)
        kind, found = params_of(family.policy(params))
        assert kind == ("logits" if family.discrete else "gaussian")
        assert family.kl(params, found).abs().max() < 1e-12
    with pytest.raises(TypeError, match="Beta"):
        params_of(torch.distributions.Beta(torch.ones(2), torch.ones(2)))
