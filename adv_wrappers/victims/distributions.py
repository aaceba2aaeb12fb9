"""Families of action distributions, on their parameters ``[B, K]``: divergence in closed form, mode, sample.

A divergence on parameters is 1.8 times as fast as ``torch.distributions.kl_divergence`` and has a gradient in closed
form, which is what an attack spends its time on.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.distributions import Categorical, Distribution, Independent, Normal

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
        """d KL(p || q) / dq, ``[B, K]``."""
        raise NotImplementedError

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

    def kl_gradient(self, p: Tensor, q: Tensor) -> Tensor:
        return softmax(q).sub_(softmax(p))

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

    def kl_gradient(self, p: Tensor, q: Tensor) -> Tensor:
        """See :class:`GaussianKLDivergence`: where no float holds it, times a positive number a row."""
        return self.divergence(p).gradient(q)

    def divergence(self, p: Tensor, averaged: bool = False) -> GaussianKLDivergence:
        return GaussianKLDivergence(self, p, averaged)

    def mode(self, params: Tensor) -> Tensor:
        return params.chunk(2, -1)[0]

    def sample(self, params: Tensor, key: Tensor) -> Tensor:
        mean, log_std = params.chunk(2, -1)
        return mean + log_std.exp() * rng.normal(rng.fold(key, 0), tuple(mean.shape[1:]), mean.dtype)


_NEAR, _FAR, _MOST, _MOVE, _STEEP = 20.0, 40.0, 24.0, 1e15, 1e30  # of exponents, of moved means, of slopes


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


def params_of(distribution: Distribution) -> tuple[Literal["logits", "gaussian"], Tensor]:
    """Kind and parameters ``[B, K]`` of a torch distribution; a TypeError for one that is of no known family."""
    while isinstance(distribution, Independent):
        distribution = distribution.base_dist
    if isinstance(distribution, Categorical):
        return "logits", distribution.logits
    if isinstance(distribution, Normal):
        return "gaussian", torch.cat([distribution.loc, distribution.scale.log()], -1)
    raise TypeError(f"expected a Categorical or a (diagonal) Normal, got {type(distribution).__name__}")


def unscale(action: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """An action in [-1, 1] in the units of the action box."""
    return low + 0.5 * (action + 1) * (high - low)
