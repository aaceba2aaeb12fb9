"""What the policy of an agent in training can answer anywhere in boxes around its observations."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.running_mean_std import RunningMeanStd
from torch import Tensor, nn
from torch.nn import functional

from adv_wrappers.bounds.crown_bounds import crown
from adv_wrappers.bounds.interval_bounds import interval
from adv_wrappers.bounds.probabilities import difference_spec, log_probability
from adv_wrappers.core.budgets.budget import Budget, Linf
from adv_wrappers.core.types import Array
from adv_wrappers.errors import BudgetError
from adv_wrappers.networks.operations.linear_bounds import Bounds
from adv_wrappers.networks.policy_layers import Normalize
from adv_wrappers.training.sb3.image_policy import ImagePolicy
from adv_wrappers.victims import Victim
from adv_wrappers.victims.certified_actions import params_network


def image_bounds(layers: Sequence[nn.Module], x: Tensor, radius: float, spec: Tensor) -> Bounds:
    """Bounds ``[B, M]`` on linear combinations of the outputs in cubes of ``radius`` around pictures ``x``.

    They are those of :mod:`adv_wrappers.bounds.interval_bounds`, for a loss, in half of the time. What is
    carried from layer to layer is the centre of the box and its radius, and not its ends, of which bfloat16 would make
    one number where the box is small. The box is a cube around the picture that the ends of the grey scale do not cut:
    so the radius behind the first convolution, the largest layer, is one number a channel. It is wider at most.
    Convolutions compute
    in bfloat16: bounds are right to three digits, which does for a loss and not for a certificate.

    Args:
        layers: a :class:`Normalize` of one number, convolutions and linear layers with a ReLU between, a ``Flatten``.
        x: pictures ``[B, C, H, W]`` in the units of the space.
        radius: half of a side of the cube, in these units.
        spec: rows of linear combinations ``[M, K]`` or ``[B, M, K]``, multiplied into the last layer.
    """
    first, conv, *hidden, last = layers
    assert isinstance(first, Normalize) and isinstance(conv, nn.Conv2d) and isinstance(last, nn.Linear)
    dtype = torch.bfloat16
    # the first convolution: its centre, and one radius for all pixels of a channel
    pixels = first(x).to(dtype, memory_format=torch.channels_last)
    centre = _apply(conv, pixels, conv.weight, conv.bias)
    total = conv.weight.abs().sum((1, 2, 3)) * (radius / first.std)
    spread = total.view(1, -1, 1, 1)
    # centre and radius through every layer: W c + b and |W| r, and both ends through a ReLU
    for layer in hidden:
        if isinstance(layer, nn.ReLU):
            low, high = torch.relu(centre - spread), torch.relu(centre + spread)
            centre, spread = (low + high) / 2, (high - low) / 2
        elif isinstance(layer, nn.Flatten):
            centre, spread = centre.flatten(1), spread.flatten(1)
        else:
            assert isinstance(layer, (nn.Conv2d, nn.Linear))
            centre = _apply(layer, centre.to(dtype), layer.weight, layer.bias)
            spread = _apply(layer, spread.to(dtype), layer.weight.abs(), None)
    # the specification is multiplied into the last layer
    rows = spec @ last.weight  # [M, N] or [B, M, N]
    middle = (rows @ centre[..., None]).squeeze(-1) + spec @ last.bias
    half = (rows.abs() @ spread[..., None]).squeeze(-1)
    return middle - half, middle + half


def _apply(layer: nn.Conv2d | nn.Linear, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """A layer in the dtype of ``x``, with other weights; float32."""
    weight, bias = weight.to(x.dtype), None if bias is None else bias.to(x.dtype)
    if isinstance(layer, nn.Linear):
        return functional.linear(x, weight, bias).float()
    return functional.conv2d(x, weight, bias, layer.stride).float()


class BoundedPolicy:
    """The policy of an agent in training, and what it can answer in boxes around its observations.

    Args:
        model: a model on a ``VecNormalize``.
        victim: the model as a live victim.
        budget: an :class:`Linf`, or one within :class:`Newest`: a stack's older frames were new once, so each of its
            frames has the box of a new one.
        first: the victim that the training started from, or None.

    Attributes:
        within: the budget as it was given.
        budget: that of one frame. ``scale="victim"`` is resolved anew for every minibatch: the unit moves with the
            normaliser, which knows nothing before the first rollout.
        net: the live network, from observations as the environment gives them.
        critic: what the method of the training has learned of values, or None.

    Raises:
        BudgetError: for a budget that is no box, or does not fit the observations.
    """

    def __init__(self, model: BaseAlgorithm, victim: Victim, budget: Budget, first: Victim | None = None) -> None:
        normal = model.get_vec_normalize_env()
        assert normal is not None
        self.model = model
        self.victim = victim
        self.normal = normal
        self.within = budget
        self.first = first
        # what boxes are made of: the space's ends and the budget
        self.space = box_space(normal.venv.observation_space)
        self.budget = check_budget(budget, victim, self.space)
        self.low, self.high = (torch.as_tensor(end, dtype=torch.float32) for end in (self.space.low, self.space.high))
        self.count = int(model.action_space.n) if isinstance(model.action_space, spaces.Discrete) else 0
        self._pairs = _pairs(self.count)
        self.critic: nn.Module | None = None
        # the network that is bounded; images have bounds of their own
        self.net = params_network(victim)
        cube = not isinstance(self.budget.resolve(victim).scale, tuple)  # one radius for all pixels
        image = cube and isinstance(model.policy, ImagePolicy)
        layers = (node.layer for node in self.net.nodes)  # one after the other
        self.image_layers = [layer for layer in layers if isinstance(layer, nn.Module)] if image else None

    def observed(self, observations: Tensor) -> Tensor:
        """Observations ``[B, *S]`` of a rollout, which may be normalised, as the environment gave them."""
        x = observations.float()
        if not self.normal.norm_obs:
            return x
        statistics = self.normal.obs_rms
        assert isinstance(statistics, RunningMeanStd)
        mean = torch.as_tensor(statistics.mean, dtype=torch.float32)
        return x * torch.as_tensor(statistics.var + self.normal.epsilon, dtype=torch.float32).sqrt() + mean

    def boxes(self, observations: Tensor, share: float) -> Bounds:
        """Boxes of ``share`` of the budget around observations of a rollout, ``[B, *S]`` twice."""
        x = self.observed(observations)
        low, high = self.budget.resolve(self.victim).box(x, torch.minimum(self.low, x), torch.maximum(self.high, x))
        return (low, high) if share == 1 else (torch.lerp(x, low, share), torch.lerp(x, high, share))

    def radius(self, observations: Tensor) -> Tensor:
        """The radius of the budget at observations of a rollout, in their units, ``[n]`` or a number."""
        radius = torch.as_tensor(self.budget.resolve(self.victim).radius(self.observed(observations)))
        if not self.normal.norm_obs:
            return radius.float()
        statistics = self.normal.obs_rms
        assert isinstance(statistics, RunningMeanStd)
        return (radius / torch.as_tensor(statistics.var + self.normal.epsilon).sqrt()).float()

    def noisy(self, observations: Array, share: float) -> Array:
        """Observations ``[B, n]`` of the environment with Gaussian noise of ``share`` radii of the budget."""
        if share == 0:
            return observations
        x = torch.as_tensor(observations).float()
        found: Array = (x + share * self.budget.resolve(self.victim).radius(x) * torch.randn_like(x)).numpy()
        return found.astype(observations.dtype)

    def _differences(self, observations: Tensor, share: float, spec: Tensor) -> Bounds:
        """Bounds on differences of logits ``[B, M]`` in the boxes of :meth:`boxes`."""
        if self.image_layers is None:
            return interval(self.net, *self.boxes(observations, share), spec)
        x = self.observed(observations)
        radius = self.budget.resolve(self.victim).radius(x)
        assert isinstance(radius, float)
        return image_bounds(self.image_layers, x, share * radius, spec)

    @torch.no_grad()
    def first_probabilities(self, observations: Tensor, sharpness: float) -> Tensor:
        """Probabilities of actions ``[B, A]`` of the victim that the training started from, raised to a power."""
        assert self.first is not None
        with self._autocast(observations):
            logits = self.first.params(self.observed(observations))
        return torch.softmax(sharpness * logits.float(), -1)

    def log_policy(self, observations: Tensor) -> Tensor:
        """Log-probabilities of discrete actions at observations of a rollout, ``[B, A]``."""
        with self._autocast(observations):
            logits: Tensor = self.net(self.observed(observations))
        return torch.log_softmax(logits.float(), -1)

    def _autocast(self, observations: Tensor) -> torch.autocast:
        """Where images compute in bfloat16, as they do in :class:`ImagePolicy`."""
        return torch.autocast(observations.device.type, torch.bfloat16, enabled=self.image_layers is not None)

    def log_probabilities(self, observations: Tensor, share: float) -> Bounds:
        """Bounds on the log-probability of every discrete action anywhere in :meth:`boxes`, ``[B, A]`` twice."""
        rows, count = len(observations), self.count
        low, high = (end.reshape(rows * count, count) for end in self._differences(observations, share, self._pairs))
        low, high = log_probability(low, high, torch.arange(count).repeat(rows))
        return low.reshape(rows, count), high.reshape(rows, count)

    def log_probability(self, observations: Tensor, share: float, actions: Tensor) -> Bounds:
        """Bounds on the log-probability of actions anywhere in boxes around observations, ``[B]`` twice.

        Args:
            observations: of a rollout, ``[B, *S]``.
            share: of the budget that is used, in [0, 1].
            actions: int64 ``[B]``, or float ``[B, D]``.
        """
        if self.count:
            low, high = self.log_probabilities(observations, share)
            return low.gather(1, actions[:, None])[:, 0], high.gather(1, actions[:, None])[:, 0]
        (least, most), log_std = self._means(observations, share)
        # the Gaussian is lowest at the mean that lies farthest, and highest at the nearest one
        far = torch.maximum((actions - least).abs(), (actions - most).abs())
        near = torch.maximum(least - actions, actions - most).clamp(min=0)
        constant = log_std + 0.5 * math.log(2 * math.pi)
        least, most = (-0.5 * (off / log_std.exp()).square() - constant for off in (far, near))
        return least.sum(-1), most.sum(-1)

    def logits_above(self, observations: Tensor, share: float, actions: Tensor) -> Tensor:
        """The most that the logit of every action may be above that of given ones in :meth:`boxes`, ``[B, A]``.

        Args:
            observations: of a rollout, ``[B, *S]``.
            share: of the budget that is used, in [0, 1].
            actions: int64 ``[B]``.
        """
        return self._differences(observations, share, difference_spec(actions, self.count))[1]

    def divergence(self, observations: Tensor, share: float) -> Tensor:
        """An upper bound of :meth:`divergence_at` over all points of the boxes of :meth:`boxes`, ``[B]``."""
        clean = self.net(self.observed(observations))
        # KL(clean, any policy in the box), by the least log-probability of every action
        if self.count:
            own = torch.log_softmax(clean, -1)
            return (own.exp() * (own - self.log_probabilities(observations, share)[0])).sum(-1)
        (least, most), log_std = self._means(observations, share)
        # of means: the largest distance in the box, in standard deviations
        mean = clean[..., : least.shape[-1]]
        off = torch.maximum((mean - least).abs(), (mean - most).abs())
        return (0.5 * (off / log_std.exp()).square()).sum(-1)

    def divergence_at(self, points: Tensor, clean: Tensor) -> Tensor:
        """``KL(pi(x), pi(y))`` for points ``y`` ``[B, *S]`` and the network's answers ``clean`` at ``x``, ``[B]``.

        It is that of :meth:`.Family.kl`, in a form of its own: the standard deviation of a Gaussian is the policy's one
        parameter, through which the loss trains it, and its terms that cancel are left out.
        """
        other = self.net(points)
        if self.count:
            own = torch.log_softmax(clean, -1)
            divergence: Tensor = (own.exp() * (own - torch.log_softmax(other, -1))).sum(-1)
            return divergence
        half = clean.shape[-1] // 2
        log_std: Tensor = self.model.policy.log_std  # type: ignore[assignment]
        off: Tensor = (clean - other)[..., :half]
        return (0.5 * (off / log_std.exp()).square()).sum(-1)

    def possible_actions(self, observations: Tensor, share: float) -> Tensor:
        """Which discrete actions may be the most probable somewhere in :meth:`boxes`, bool ``[B, A]``, by CROWN."""
        ahead = crown(self.net, *self.boxes(observations, share), self._pairs)[0]  # of every action j before every i
        return (ahead.view(-1, self.count, self.count) <= 0).all(-1)

    def mean_actions(self, observations: Tensor, share: float) -> tuple[Tensor, Tensor, Tensor]:
        """A box of the mean actions anywhere in :meth:`boxes`, by CROWN, and those without a perturbation, ``[B, D]``.

        Returns:
            The two ends of the box, and the mean actions in it.
        """
        mean = self.mean(observations)
        spec = torch.eye(mean.shape[1], 2 * mean.shape[1])
        low, high = crown(self.net, *self.boxes(observations, share), spec)
        return torch.minimum(low, mean), torch.maximum(high, mean), mean

    def mean(self, observations: Tensor) -> Tensor:
        """Mean actions at observations of a rollout, ``[B, D]``."""
        out: Tensor = self.net(self.observed(observations))
        return out[:, : out.shape[1] // 2]

    @property
    def action_box(self) -> Bounds:
        """The ends of the space of actions, ``[D]`` each."""
        space = box_space(self.model.action_space)
        return torch.as_tensor(space.low), torch.as_tensor(space.high)

    def _means(self, observations: Tensor, share: float) -> tuple[Bounds, Tensor]:
        least, most = interval(self.net, *self.boxes(observations, share))
        log_std: Tensor = self.model.policy.log_std  # type: ignore[assignment]
        half = least.shape[-1] // 2  # beside them the log standard deviation, which does not depend on observations
        return (least[..., :half], most[..., :half]), log_std


def _pairs(count: int) -> Tensor:
    """Differences ``z_j - z_i`` for every action i, and in it for every j, as a specification ``[A A, A]``."""
    eye = torch.eye(count)
    return (eye[None] - eye[:, None]).flatten(0, 1)


def box_space(space: spaces.Space[object]) -> spaces.Box:
    """The space of observations, a Box: what bounds are taken over."""
    assert isinstance(space, spaces.Box)  # check_spaces has said so
    return space


def check_budget(budget: Budget, victim: Victim, space: spaces.Box) -> Linf:
    """The budget of one frame, if it is a box that fits the observations; ``scale="victim"`` stays open.

    Raises:
        BudgetError: for another, and for one below one grey level on integers, with which no attack can do anything.
    """
    frame = budget.frame
    if not isinstance(frame, Linf):
        raise BudgetError(f"bounds are taken over boxes, Linf or Newest(Linf): {budget!r:.80} is none")
    frame.resolve(victim).check(space.low, space.high, np.issubdtype(space.dtype, np.integer))
    return frame
