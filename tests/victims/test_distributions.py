"""Closed forms of the families against torch.distributions and autograd."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch.distributions import (
    AffineTransform,
    Bernoulli,
    Beta,
    Categorical,
    Independent,
    Laplace,
    MixtureSameFamily,
    MultivariateNormal,
    Normal,
    OneHotCategorical,
    StudentT,
    TanhTransform,
    TransformedDistribution,
    Uniform,
    kl_divergence,
)

import adv_wrappers as adv
from adv_wrappers.core import rng
from adv_wrappers.errors import VictimError
from adv_wrappers.victims.distributions import (
    CategoricalFamily,
    DeterministicFamily,
    GaussianFamily,
    MultiCategoricalFamily,
    params_of,
)
from tests.core.helpers import randn
from tests.every_case import every_case

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
    return rng.fold(torch.arange(count), 7)


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
    mixed = MixtureSameFamily(Categorical(logits=torch.zeros(2, 3)), Normal(torch.zeros(2, 3), 1.0))
    with pytest.raises(TypeError, match="MixtureSameFamily has no mode"):
        params_of(mixed)


def plain_gradient(p, q, averaged):
    """The closed form as it is written down, which overflows."""
    (mean, log_std), (mean_q, log_std_q) = p.chunk(2, -1), q.chunk(2, -1)
    inverse, move = (-2 * log_std_q).exp(), mean_q - mean
    slope = torch.cat([move * inverse, 1 - ((2 * log_std).exp() + move.square()) * inverse], -1)
    return slope * (2 * log_std.exp().mean(-1).square())[:, None] if averaged else slope


@pytest.mark.parametrize("averaged", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_ordinary_gaussians_have_the_plain_gradient_to_the_bit(dtype, averaged):
    p, away = rows(6, 6).to(dtype), rows(6, 7).to(dtype)
    for spread, gap in ((1.0, 1.0), (4.0, 1e-3), (8.0, 1e-6)):
        p = torch.cat([p[:, :3], spread * away[:, :3].clamp(-1.5, 1.5)], -1)
        found = GaussianFamily().divergence(p, averaged).gradient(p + gap * away)
        assert torch.equal(found, plain_gradient(p, p + gap * away, averaged))
        kl = GaussianFamily().divergence(p)(p + gap * away)
        assert torch.equal(kl, GaussianFamily().kl(p, p + gap * away))


def exact(p, q):
    """Signs, and logarithms of sizes, of the gradient of one row, in numbers that do not overflow."""
    half, out = len(p) // 2, []
    for i in range(half):
        move = q[i] - p[i]
        out.append(((move > 0) - (move < 0), math.log(abs(move)) - 2 * q[half + i] if move else -math.inf))
    for i in range(half):
        move = abs(q[i] - p[i])
        up, far = 2 * (p[half + i] - q[half + i]), 2 * math.log(move) - 2 * q[half + i] if move else -math.inf
        above = max(up, far) + math.log1p(math.exp(-abs(up - far)))  # of what is taken from 1
        size = above if above > 40 else math.log(abs(math.expm1(above))) if above else -math.inf
        out.append(((above < 0) - (above > 0), size))
    return out


log_stds = st.floats(-1e4, 1e4, width=32)
means = st.floats(-(2.0**99), 2.0**99, width=32).filter(lambda x: x == 0 or abs(x) > 1e-6)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(means, means, log_stds, log_stds), min_size=1, max_size=3))
def test_gaussian_divergences_are_finite_for_all_finite_parameters(dims):
    mean, mean_q, log_std, log_std_q = (torch.tensor(part)[None] for part in zip(*dims, strict=True))
    p, q = torch.cat([mean, log_std], -1), torch.cat([mean_q, log_std_q], -1)
    family = GaussianFamily()
    for averaged in (False, True):
        made = family.divergence(p, averaged)
        assert made.gradient(q).isfinite().all() and made(q).isfinite().all()
    assert family.kl(p, q).isfinite().all() and (family.kl(p, q) >= -1e-3 * (1 + log_std.abs().max())).all()
    move = (mean_q - mean)[0]
    assert torch.equal(family.kl_gradient(p, q)[0, : len(move)].sign(), move.sign())


small = st.floats(-1e3, 1e3, width=32).filter(lambda x: x == 0 or abs(x) > 1e-6)
near = st.tuples(small, st.floats(-9, 9, width=32), st.floats(-9, 9, width=32))


@settings(max_examples=50, deadline=None)
@given(st.floats(-1e4, 1e4, width=32), st.lists(near, min_size=1, max_size=3))
def test_gaussian_gradients_have_the_true_direction(level, dims):
    """Wherever the standard deviations of a row lie, as long as they lie within a factor of e^18."""
    scale = math.exp(
        min(max(level, -20.0), 9.0)
    )  # means that differ by some standard deviations, where these are small
    p = torch.tensor([[0.0] * len(dims) + [level + d[1] for d in dims]])
    q = torch.tensor([[scale * d[0] for d in dims] + [level + d[2] for d in dims]])
    found = GaussianFamily().kl_gradient(p, q)[0].double()
    wanted = exact(p[0].double().tolist(), q[0].double().tolist())
    largest = max(size for _, size in wanted)
    assume(largest > -5)  # what is left of 1 - 1 beyond the rounding of floats
    direction = torch.tensor([sign * math.exp(size - largest) for sign, size in wanted], dtype=torch.float64)
    if found.abs().max() < 1e30:  # where it does not saturate
        torch.testing.assert_close(found / found.abs().max(), direction, rtol=1e-2, atol=1e-3)


def test_a_mean_that_stays_under_a_vanishing_deviation():
    p = torch.tensor([[0.5, -0.5, -1e4, -60.0]])
    assert GaussianFamily().kl(p, p).tolist() == [0.0] and GaussianFamily().kl_gradient(p, p).abs().max() < 1e-20


@given(st.lists(st.tuples(*[st.floats(-(2.0**126), 2.0**126, width=32)] * 2), min_size=2, max_size=4))
@settings(max_examples=50, deadline=None)
def test_categorical_divergences_are_finite_for_all_finite_logits(dims):
    p, q = (torch.tensor(part)[None] for part in zip(*dims, strict=True))
    family = CategoricalFamily()
    assert family.kl(p, q).isfinite().all() and (family.kl(p, q) >= -1e-5).all()
    assert family.kl_gradient(p, q).isfinite().all()
    torch.testing.assert_close(
        family.kl_gradient(p, q), q.double().softmax(-1).float() - p.double().softmax(-1).float()
    )


def test_choices_that_are_ruled_out_add_nothing():
    p, q = torch.tensor([[1.0, -torch.inf, 0.0]]), torch.tensor([[0.5, -torch.inf, 0.0]])
    assert torch.equal(CategoricalFamily().kl(p, q), CategoricalFamily().kl(p[:, ::2], q[:, ::2]))
    assert CategoricalFamily().kl_gradient(p, q).isfinite().all()
    assert CategoricalFamily().kl(q, torch.tensor([[0.5, 0.0, -torch.inf]])).isfinite().all()


SEEN = spaces.Box(-np.inf, np.inf, (3,), np.float32)
WEIGHTS = randn(3, 12).float() / 2
ACTIONS, UNIT = spaces.Box(-1, 1, (2,), np.float32), spaces.Box(0, 1, (2,), np.float32)


def _part(x, first, count):
    return (x @ WEIGHTS)[:, first : first + count]


def _tanh(base):
    return TransformedDistribution(base, [TanhTransform(cache_size=1), AffineTransform(0.1, 0.5)])


def _beta(x):
    return Beta(1 + _part(x, 0, 2).exp(), 1 + _part(x, 2, 2).exp())


class SquashedOfSb3:
    """As SB3's policies return it: an object around the distribution."""

    def __init__(self, x):
        self.distribution = Normal(_part(x, 0, 2), _part(x, 2, 2).exp())


@every_case(
    ("make", "space", "mode"),
    [
        (_beta, UNIT, lambda x: _beta(x).mode),
        (lambda x: Independent(_beta(x), 1), UNIT, lambda x: _beta(x).mode),
        (
            lambda x: TransformedDistribution(_beta(x), [AffineTransform(-1.0, 2.0)]),
            ACTIONS,
            lambda x: 2 * _beta(x).mode - 1,
        ),
        (
            lambda x: _tanh(Independent(Normal(_part(x, 0, 2), _part(x, 2, 2).exp()), 1)),
            ACTIONS,
            lambda x: _part(x, 0, 2).tanh() / 2 + 0.1,
        ),
        (
            lambda x: Independent(_tanh(Normal(_part(x, 0, 2), 0.5)), 1),
            ACTIONS,
            lambda x: _part(x, 0, 2).tanh() / 2 + 0.1,
        ),
        (
            lambda x: MultivariateNormal(_part(x, 0, 2), scale_tril=torch.tensor([[1.0, 0.0], [0.5, 0.7]])),
            ACTIONS,
            lambda x: _part(x, 0, 2),
        ),
        (
            lambda x: MultivariateNormal(_part(x, 0, 2), torch.eye(2) + 0.3),
            ACTIONS,
            lambda x: _part(x, 0, 2),
        ),
        (lambda x: Independent(Laplace(_part(x, 0, 2), 0.4), 1), ACTIONS, lambda x: _part(x, 0, 2)),
        (lambda x: Independent(StudentT(3.0, _part(x, 0, 2), 0.4), 1), ACTIONS, lambda x: _part(x, 0, 2)),
    ],
)
def test_other_continuous_distributions(make, space, mode):
    victim, x = adv.from_module(make, SEEN, space), randn(4, 3).float()
    torch.testing.assert_close(victim.act_on(x), mode(x))
    action = 0.8 * mode(x) + 0.02
    wanted = make(x).log_prob(action)
    torch.testing.assert_close(victim.policy(x).log_prob(action), wanted if wanted.dim() == 1 else wanted.sum(1))
    params = victim.params(x)
    assert torch.allclose(victim.kl(params, params), torch.zeros(4), atol=1e-5)
    slope = victim.gradient(victim.family.divergence(victim.params(x + 0.2)))(x)
    assert torch.isfinite(slope).all() and slope.abs().sum(1).min() > 0
    sampler, keys = adv.from_module(make, SEEN, space, select="sample"), torch.arange(4)
    drawn = sampler.act_on(x, key=keys)
    torch.testing.assert_close(drawn[2:], sampler.act_on(x[2:], key=keys[2:]))
    assert (drawn - victim.act_on(x)).abs().min() > 1e-4


def test_the_squashed_distribution_of_sb3():
    victim, x = adv.from_module(SquashedOfSb3, SEEN, ACTIONS), randn(4, 3).float()
    torch.testing.assert_close(victim.act_on(x), _part(x, 0, 2).tanh())


@pytest.mark.parametrize(
    ("make", "space", "mode"),
    [
        (lambda x: OneHotCategorical(logits=_part(x, 0, 4)), spaces.Discrete(4), lambda x: _part(x, 0, 4).argmax(1)),
        (lambda x: Bernoulli(logits=_part(x, 0, 1)), spaces.Discrete(2), lambda x: _part(x, 0, 1)[:, 0] > 0),
        (
            lambda x: Independent(Bernoulli(logits=_part(x, 0, 3)), 1),
            spaces.MultiBinary(3),
            lambda x: _part(x, 0, 3) > 0,
        ),
        (
            lambda x: Independent(Categorical(logits=_part(x, 0, 6).view(-1, 2, 3)), 1),
            spaces.MultiDiscrete([3, 3]),
            lambda x: _part(x, 0, 6).view(-1, 2, 3).argmax(-1),
        ),
    ],
)
def test_other_discrete_distributions(make, space, mode):
    victim, x = adv.from_module(make, SEEN, space), randn(6, 3).float()
    assert victim.act_on(x).tolist() == mode(x).long().tolist()
    own = make(x)
    if not isinstance(own, OneHotCategorical):
        played = victim.act_on(x)
        value = played[:, None].float() if own.batch_shape == (6, 1) else played.float()
        wanted = own.log_prob(value)
        torch.testing.assert_close(victim.policy(x).log_prob(played), wanted.reshape(6))
    assert victim.gradient(victim.family.divergence(victim.params(x + 0.2)))(x).abs().sum(1).min() > 0


def test_distributions_that_no_victim_is_made_of():
    def mixture(x):
        mixed = Independent(Normal(_part(x, 0, 4).view(-1, 2, 2), 1.0), 1)
        return MixtureSameFamily(Categorical(logits=_part(x, 4, 2)), mixed)

    with pytest.raises(VictimError, match=r"MixtureSameFamily has no mode, .*as 'mean'"):
        adv.from_module(mixture, SEEN, ACTIONS)
    with pytest.raises(VictimError, match=r"Uniform has no mode"):
        adv.from_module(lambda x: Uniform(_part(x, 0, 2) - 1, _part(x, 0, 2) + 1), SEEN, ACTIONS)
    with pytest.raises(VictimError, match=r"returns a Beta over 2 numbers, and actions are Box"):
        adv.from_module(_beta, SEEN, spaces.Box(0, 1, (3,)))
    with pytest.warns(UserWarning, match=r"actions of a Beta distribution lie in \[0, 1\].*AffineTransform"):
        adv.from_module(_beta, SEEN, ACTIONS)


def test_an_attack_on_a_squashed_policy_lowers_its_return():
    game = adv.from_module(
        lambda x: TransformedDistribution(
            Independent(Normal(-(x[:, 1:2] * 4 + x[:, 2:]), 0.3), 1), [TanhTransform(), AffineTransform(0.0, 2.0)]
        ),
        spaces.Box(-np.array([1, 1, 8], np.float32), np.array([1, 1, 8], np.float32)),
        spaces.Box(-2, 2, (1,)),
    )
    report = adv.evaluate(
        game, "Pendulum-v1", ["max-diff:eps=0.3"], episodes=1, num_envs=1, env_kwargs={"max_episode_steps": 8}
    )
    assert (
        np.isfinite([row["mean_return"] for row in report.threats]).all() and report.threats[1]["action_change"] > 0.1
    )
