"""Families of action distributions, on their parameters ``[B, K]``: divergence in closed form, mode, sample.

A divergence on parameters is 1.8 times as fast as ``torch.distributions.kl_divergence`` and has a gradient in closed
form, which is what an attack spends its time on.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor
from torch.distributions import (
    Bernoulli,
    Beta,
    Categorical,
    Distribution,
    Independent,
    MultivariateNormal,
    Normal,
    OneHotCategorical,
    TanhTransform,
    TransformedDistribution,
    kl_divergence,
)

from adv_wrappers.core import rng


class Family:
    """A family of distributions; ``discrete`` says whether an action is one of ``n``."""

    discrete = False

    def policy(self, params: Tensor) -> Distribution:
        """The distribution itself."""
        raise NotImplementedError

    def kl(self, p: Tensor, q: Tensor) -> Tensor:
        """KL(p || q) of every row, ``[B]``."""
        raise NotImplementedError

    def kl_gradient(self, p: Tensor, q: Tensor) -> Tensor:
        """d KL(p || q) / dq, ``[B, K]``; where no float holds it, times a positive number a row."""
        return self.divergence(p).gradient(q)

    def divergence(self, p: Tensor, averaged: bool = False) -> KLDivergence:
        """KL(p || q) as a function of q, and its gradient: what depends on ``p`` alone is computed once.

        ``averaged`` is for families with a standard deviation: times twice the square of its average.
        """
        return KLDivergence(self, p)

    def mode(self, params: Tensor) -> Tensor:
        """Most likely action: int64 ``[B]`` (or ``[B, D]``) for discrete ones, else the mean ``[B, D]``."""
        raise NotImplementedError

    def sample(self, params: Tensor, key: Tensor) -> Tensor:
        """One action per row, drawn with the row's int64 key."""
        raise NotImplementedError

    def possible(self, params: Tensor, masks: bool = False) -> Tensor:
        """Whether the parameters of every row are those of a distribution, bool ``[B]``: finite numbers.

        ``masks`` allows logits of minus infinity, for choices that are ruled out, as long as one is left.
        """
        return torch.isfinite(params).all(-1)


def softmax(params: Tensor) -> Tensor:
    """``[B, A]`` over the actions; of many rows by the transpose, as a softmax over a last axis of six is slow."""
    return params.softmax(-1) if params.shape[0] == 1 else params.t().softmax(0).t()


class KLDivergence:
    """``KL(p || q)`` from one ``p`` ``[B, K]``, as a function of ``q``."""

    def __init__(self, family: Family, p: Tensor) -> None:
        self.family, self.p = family, p

    def __call__(self, q: Tensor) -> Tensor:
        """The divergence of every row, ``[B]``."""
        return self.family.kl(self.p, q)

    def gradient(self, q: Tensor) -> Tensor:
        """Its gradient with respect to ``q``, ``[B, K]``."""
        return self.family.kl_gradient(self.p, q)


class CategoricalKLDivergence(KLDivergence):
    """``KL(p || q)`` of policies over one of ``n`` actions."""

    def __init__(self, family: Family, p: Tensor) -> None:
        super().__init__(family, p)
        self.policy = softmax(p)

    def gradient(self, q: Tensor) -> Tensor:
        return softmax(q).sub_(self.policy)


class CategoricalFamily(Family):
    """Logits (or Q-values, read as logits) of one of ``n`` actions."""

    discrete = True

    def policy(self, params: Tensor) -> Distribution:
        return Categorical(logits=params, validate_args=False)

    def kl(self, p: Tensor, q: Tensor) -> Tensor:
        p, q = p.log_softmax(-1), q.log_softmax(-1)
        weight = p.exp()
        # 0 log 0 is 0: of choices that a mask rules out, and of such as underflow
        return (weight * (p - q).masked_fill(weight == 0, 0.0)).sum(-1).clamp(max=torch.finfo(p.dtype).max)

    def divergence(self, p: Tensor, averaged: bool = False) -> CategoricalKLDivergence:
        return CategoricalKLDivergence(self, p)

    def possible(self, params: Tensor, masks: bool = False) -> Tensor:
        # the largest is NaN where any is, plus infinity where any is, and minus infinity where all are
        return torch.isfinite(params.amax(-1)) if masks else super().possible(params)

    def mode(self, params: Tensor) -> Tensor:
        return params.argmax(-1)

    def sample(self, params: Tensor, key: Tensor) -> Tensor:
        below = params.softmax(-1).double().cumsum(-1)
        u: Tensor = rng.uniform_of(rng.fold(key, 0)) * below[..., -1]
        return (below <= u[..., None]).sum(-1).clamp_(max=params.shape[-1] - 1)


class MultiCategoricalFamily(Family):
    """Logits of several independent choices side by side, ``K = sum(nvec)``."""

    def __init__(self, nvec: tuple[int, ...]) -> None:
        self.nvec, self._one = nvec, CategoricalFamily()

    def _split(self, params: Tensor) -> tuple[Tensor, ...]:
        parts: tuple[Tensor, ...] = torch.split(params, list(self.nvec), -1)
        return parts

    def policy(self, params: Tensor) -> Distribution:
        widest = max(self.nvec)
        pad = [torch.nn.functional.pad(p, (0, widest - p.shape[-1]), value=-torch.inf) for p in self._split(params)]
        return Independent(Categorical(logits=torch.stack(pad, -2), validate_args=False), 1, validate_args=False)

    def kl(self, p: Tensor, q: Tensor) -> Tensor:
        pairs = zip(self._split(p), self._split(q), strict=True)
        return torch.stack([self._one.kl(a, b) for a, b in pairs]).sum(0)

    def kl_gradient(self, p: Tensor, q: Tensor) -> Tensor:
        pairs = zip(self._split(p), self._split(q), strict=True)
        return torch.cat([self._one.kl_gradient(a, b) for a, b in pairs], -1)

    def possible(self, params: Tensor, masks: bool = False) -> Tensor:
        return torch.stack([self._one.possible(p, masks) for p in self._split(params)]).all(0)

    def mode(self, params: Tensor) -> Tensor:
        return torch.stack([p.argmax(-1) for p in self._split(params)], -1)

    def sample(self, params: Tensor, key: Tensor) -> Tensor:
        drawn = [self._one.sample(p, rng.fold(key, i + 1)) for i, p in enumerate(self._split(params))]
        return torch.stack(drawn, -1)


class GaussianFamily(Family):
    """Mean and log standard deviation side by side, ``K = 2 D``."""

    def policy(self, params: Tensor) -> Distribution:
        mean, log_std = params.chunk(2, -1)
        return Independent(Normal(mean, log_std.exp(), validate_args=False), 1, validate_args=False)

    def kl(self, p: Tensor, q: Tensor) -> Tensor:
        (mean, log_std), (mean_q, log_std_q) = p.chunk(2, -1), q.chunk(2, -1)
        gap = log_std_q - log_std
        far = ((mean - mean_q) * (-log_std_q).exp()).nan_to_num(nan=0.0)  # of a mean that stays, and a std of zero
        terms = gap + ((-2 * gap).exp() + far.square() - 1) / 2
        return terms.sum(-1).clamp(max=torch.finfo(p.dtype).max)

    def divergence(self, p: Tensor, averaged: bool = False) -> GaussianKLDivergence:
        return GaussianKLDivergence(self, p, averaged)

    def mode(self, params: Tensor) -> Tensor:
        return params.chunk(2, -1)[0]

    def sample(self, params: Tensor, key: Tensor) -> Tensor:
        mean, log_std = params.chunk(2, -1)
        return mean + log_std.exp() * rng.normal(rng.fold(key, 0), tuple(mean.shape[1:]), mean.dtype)


# the largest finite values that are computed with
_NEAR, _FAR, _MOST = 20.0, 40.0, 24.0  # of exponents
_MOVE = 1e15  # of moved means
_STEEP = 1e30  # of slopes


class GaussianKLDivergence(KLDivergence):
    """``KL(p || q)`` of Gaussians and its gradient, finite for all finite parameters.

    A standard deviation of e^-45 squared is no float32 any more, and a policy that became deterministic in training has
    one. So both are computed in units in which the least standard deviation of ``p`` lies within e^-20 and e^20, which
    multiplies a row of them by one positive number (1 where it lies there already, where results are those of the plain
    formula to the bit). Where units differ too much within a row, or from ``q``, large numbers saturate.

    Args:
        family: the family.
        p: mean and log standard deviation ``[B, 2 D]``.
        averaged: times twice the square of the average standard deviation of ``p``, which makes of the divergence the
            loss that SA-PPO's code attacks (see :mod:`adv_wrappers.attacks.max_diff`). In this form units cancel, and
            no row is multiplied by anything.
    """

    def __init__(self, family: Family, p: Tensor, averaged: bool = False) -> None:
        super().__init__(family, p)
        self.mean, log_std = p.chunk(2, -1)
        least = log_std.amin(-1, keepdim=True)
        self.shift = least.clamp(-_NEAR, _NEAR) - least
        self.log_std = (log_std + self.shift).clamp(-_FAR, _FAR)
        self.one = (-2 * self.shift).clamp(-_FAR, _MOST).exp()
        self.variance = self.one * (2 * self.log_std).exp()
        self.weight = 2 * self.log_std.exp().mean(-1).square() if averaged else None

    def __call__(self, q: Tensor) -> Tensor:
        mean, log_std = q.chunk(2, -1)
        log_std = (log_std + self.shift).clamp(-_FAR, _FAR)
        gap, move = log_std - self.log_std, (self.mean - mean).clamp(-_MOVE, _MOVE)
        spread = self.one * (-2 * gap).clamp(max=2 * _MOST).exp()
        total = (self.one * gap + (spread + (move * (-log_std).exp()).square() - self.one) / 2).sum(-1)
        total = total if self.weight is None else total * self.weight
        return total.clamp(max=torch.finfo(q.dtype).max)

    def gradient(self, q: Tensor) -> Tensor:
        mean, log_std = q.chunk(2, -1)
        inverse = (log_std + self.shift).clamp_(-_FAR, _FAR).mul_(-2).exp_()
        move = (mean - self.mean).clamp_(-_MOVE, _MOVE)
        slope = torch.cat([move * inverse, self.one - move.square().add_(self.variance).mul_(inverse)], -1)
        slope = slope if self.weight is None else slope.mul_(self.weight[:, None])
        return slope.clamp_(-_STEEP, _STEEP)


class DeterministicFamily(Family):
    """An action itself, read as a Normal of unit variance: the divergence is half the squared distance of actions."""

    def policy(self, params: Tensor) -> Distribution:
        return Independent(Normal(params, torch.ones_like(params), validate_args=False), 1, validate_args=False)

    def kl(self, p: Tensor, q: Tensor) -> Tensor:
        return ((p - q).square().sum(-1) / 2).clamp(max=torch.finfo(p.dtype).max)

    def kl_gradient(self, p: Tensor, q: Tensor) -> Tensor:
        return q - p

    def mode(self, params: Tensor) -> Tensor:
        return params

    def sample(self, params: Tensor, key: Tensor) -> Tensor:
        return params


class DistributionFamily(Family):
    """Distributions of continuous actions that have no closed form here: Beta, tanh-Normal, of full covariance, ...

    Parameters are those of the distribution itself, side by side. Divergences are torch's, and where it has none how
    much less likely the mode of ``p`` is under ``q``; gradients are autograd's. Transforms are those of the example.

    Args:
        example: a distribution with a batch of any size.

    Attributes:
        width: how many parameters a row has.
    """

    def __init__(self, example: Distribution) -> None:
        self.example = example
        self.shapes = [part.shape[1:] for part in _parts(example)]
        self.width = sum(shape.numel() for shape in self.shapes)

    def params(self, distribution: Distribution) -> Tensor:
        """Its parameters, ``[B, K]``."""
        return torch.cat([part.flatten(1) if part.dim() > 1 else part[:, None] for part in _parts(distribution)], -1)

    def policy(self, params: Tensor) -> Distribution:
        sizes = [shape.numel() for shape in self.shapes]
        parts = zip(params.split(sizes, -1), self.shapes, strict=True)
        made = _rebuilt(self.example, [part.reshape(len(params), *shape) for part, shape in parts])
        dims = len(made.batch_shape) - 1
        return Independent(made, dims, validate_args=False) if dims > 0 else made

    def kl(self, p: Tensor, q: Tensor) -> Tensor:
        one, other = self.policy(p), self.policy(q)
        try:
            found = kl_divergence(one, other)
        except NotImplementedError:
            mode = mode_of(one).detach()
            found = one.log_prob(mode) - other.log_prob(mode)
        most = torch.finfo(found.dtype).max
        return found.nan_to_num(nan=0.0, posinf=most, neginf=-most)

    def kl_gradient(self, p: Tensor, q: Tensor) -> Tensor:
        with torch.enable_grad():
            q = q.detach().requires_grad_()
            slope: Tensor = torch.autograd.grad(self.kl(p.detach(), q).sum(), q)[0]
        return slope.nan_to_num(nan=0.0)

    def mode(self, params: Tensor) -> Tensor:
        return mode_of(self.policy(params)).reshape(len(params), -1)

    def sample(self, params: Tensor, key: Tensor) -> Tensor:
        drawn = []
        # torch.manual_seed also decides what other devices draw next
        seed_draws = torch.default_generator.manual_seed if params.device.type == "cpu" else torch.manual_seed
        with torch.random.fork_rng(devices=[params.device] if params.device.type == "cuda" else []):
            for row, seed in zip(params, key.tolist(), strict=True):  # draws of a row depend on its key alone
                seed_draws(seed % 2**63)
                drawn.append(self.policy(row[None]).sample().reshape(1, -1))
        return torch.cat(drawn)


def _names(distribution: Distribution) -> list[str]:
    """The arguments that a distribution is made of."""
    if isinstance(distribution, MultivariateNormal):
        return ["loc", "scale_tril"]
    names = [name for name in distribution.arg_constraints if hasattr(distribution, name)]
    return [name for name in names if name != "probs" or "logits" not in names]


def _parts(distribution: Distribution) -> list[Tensor]:
    """The parameters of a distribution, ``[B, ...]`` each."""
    if isinstance(distribution, (Independent, TransformedDistribution)):
        return _parts(distribution.base_dist)
    shape = distribution.batch_shape
    found = []
    for name in _names(distribution):
        part = getattr(distribution, name)
        if part.dim() < len(shape):  # one number for all rows
            part = part.expand(shape)
        found.append(part)
    return found


def _rebuilt(example: Distribution, parts: list[Tensor]) -> Distribution:
    """A distribution as the example with other parameters."""
    if isinstance(example, Independent):
        dims = example.reinterpreted_batch_ndims
        return Independent(_rebuilt(example.base_dist, parts), dims, validate_args=False)
    if isinstance(example, TransformedDistribution):
        return TransformedDistribution(_rebuilt(example.base_dist, parts), example.transforms, validate_args=False)
    given: dict[str, Any] = dict(zip(_names(example), parts, strict=True))
    return type(example)(**given, validate_args=False)


def mode_of(distribution: Distribution) -> Tensor:
    """The action that an agent plays which does not sample: the mode, brought through the transforms around it.

    Raises:
        TypeError: for a distribution that has none.
    """
    if isinstance(distribution, Independent):
        return mode_of(distribution.base_dist)
    if isinstance(distribution, TransformedDistribution):
        mode = mode_of(distribution.base_dist)
        for transform in distribution.transforms:
            mode = transform(mode)
        return mode
    # torch has no mode of a Beta distribution: (a - 1) / (a + b - 2) where both are above 1, else an end
    if isinstance(distribution, Beta):
        one, other = distribution.concentration1, distribution.concentration0
        inner = (one > 1) & (other > 1)
        within = (one - 1) / torch.where(inner, one + other - 2, 1.0)
        ends = torch.where(one == other, 0.5, (one > other).to(one.dtype))  # it has a peak at an end, or at both
        return torch.where(inner, within, ends)
    try:
        return distribution.mode
    except NotImplementedError as error:
        raise TypeError(
            f"{type(distribution).__name__} has no mode, which an agent could play: give a function of the action that "
            f"it plays, as 'mean'"
        ) from error


def as_distribution(out: object) -> object:
    """The distribution within what SB3's policies return (``get_distribution``); anything else as it is."""
    inner = getattr(out, "distribution", None)
    if isinstance(out, (Distribution, torch.nn.Module)) or not isinstance(inner, Distribution):
        return out
    if "Squashed" in type(out).__name__:
        return TransformedDistribution(inner, [TanhTransform()], validate_args=False)
    return inner


def params_of(distribution: Distribution) -> tuple[Literal["logits", "gaussian", "distribution"], Tensor]:
    """Kind and parameters ``[B, K]`` of a torch distribution.

    Raises:
        TypeError: for one that has no mode.
    """
    if not hasattr(distribution, "_batch_shape"):  # as rlkit's
        name = type(distribution).__name__
        raise TypeError(f"no victim is made of {name}, a class of its own: give lambda x: net(x).mean, as 'mean'")
    whole = distribution
    while isinstance(distribution, Independent):
        distribution = distribution.base_dist
    # the kinds that a victim knows by name; any other one is taken by its own parameters
    if isinstance(distribution, (Categorical, OneHotCategorical)):
        return "logits", distribution.logits.flatten(1)
    if isinstance(distribution, Bernoulli):  # logits of 0 and of 1, for every bit
        one = distribution.logits if distribution.logits.dim() > 1 else distribution.logits[:, None]
        return "logits", torch.stack([torch.zeros_like(one), one], -1).flatten(1)
    if isinstance(distribution, Normal):
        return "gaussian", torch.cat([distribution.loc, distribution.scale.log()], -1)
    mode_of(whole)
    return "distribution", DistributionFamily(whole).params(whole)


def unscale(action: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """An action in [-1, 1] in the units of the action box."""
    return low + 0.5 * (action + 1) * (high - low)
