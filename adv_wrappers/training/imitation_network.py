"""The network that imitates: its layers, its training on observations and chosen actions, and how well it agrees.

Discrete actions are learned by their cross-entropy, continuous ones by their squared error. Labels are actions, which
say nothing of how sure the victim was, so a network that fits them grows ever surer, and its divergence flat: its slope
falls below the noise that :class:`adv_wrappers.MaxDiff` adds to gradients. So logits are divided afterwards, which
changes no action, until the best one leads by at most :data:`LEAD` at nine of ten of the observations that were asked
about. Without that, ``docs/results/imitation.md`` has what becomes of attacks on CartPole's PPO agent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.nn import functional

from adv_wrappers.core.types import Array, Space
from adv_wrappers.errors import ValueRangeError
from adv_wrappers.networks.layers import Normalize
from adv_wrappers.victims.module import from_module
from adv_wrappers.victims.victim import Victim

LEAD = 3.0  # nats; at 90% of the states
_Loss = Callable[[Tensor], Tensor]
_RATE, _LEAST_STD = 1e-2, 1e-6


@dataclass(frozen=True)
class Labels:
    """What was asked, and what the victim answered.

    Attributes:
        observations: ``[n, features]``, in the dtype of the environment.
        actions: native actions, ``[n]`` or ``[n, D]``.
        sources: where each observation came from, an index into ``SOURCES``, uint8 ``[n]``.
    """

    observations: Array
    actions: Array
    sources: Array

    def __len__(self) -> int:
        return len(self.observations)

    def joined(self, other: Labels) -> Labels:
        """These and then the others."""
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return Labels(*(np.concatenate(pair) for pair in pairs))


def fit(
    labels: Labels,
    observed: Space,
    acted: Space,
    hidden: Sequence[int],
    epochs: int,
    seed: int,
    scale: Tensor | None = None,
) -> Victim:
    """A surrogate trained from scratch on all labels; the same labels and seed make the same weights.

    Args:
        labels: at least one.
        observed, acted: the spaces; actions are Discrete, or a Box of one dimension.
        hidden: widths of the layers, tanh between them.
        epochs: passes through the labels.
        seed: seeds the weights and the order.
        scale: the unit of ``scale="victim"``, ``[features]``; None for the observations' standard deviations.

    Raises:
        ValueRangeError: for labels that the training diverges on.
    """
    x = torch.as_tensor(labels.observations, dtype=torch.float64)
    std = x.std(0, correction=0)
    std = torch.where(std > _LEAST_STD, std, torch.ones_like(std))
    normalise = Normalize(x.mean(0).float(), std.float())
    inputs = normalise(x.float())
    draws = torch.Generator().manual_seed(seed)
    if isinstance(acted, spaces.Discrete):
        chosen = torch.as_tensor(labels.actions, dtype=torch.int64) - int(acted.start)
        net = _mlp(inputs.shape[1], hidden, int(acted.n), draws)
        _train(net, inputs, lambda rows: functional.cross_entropy(net(inputs[rows]), chosen[rows]), epochs, draws)
        _temper(net, inputs)
    else:
        net = _regression(inputs, labels.actions, acted, hidden, epochs, draws)
    victim = from_module(
        nn.Sequential(normalise, *net),
        observed,
        acted,
        "logits" if isinstance(acted, spaces.Discrete) else "mean",
        clip=_all_inside(labels.actions, acted),
        scale=std if scale is None else scale,
    )
    return victim


def _mlp(inputs: int, hidden: Sequence[int], outputs: int, draws: torch.Generator) -> nn.Sequential:
    """Linear layers, orthogonal and with tanh between them; the global random state is not touched."""
    layers: list[nn.Module] = []
    for width in hidden:
        layers += [_linear(inputs, width, 2**0.5, draws), nn.Tanh()]
        inputs = width
    return nn.Sequential(*layers, _linear(inputs, outputs, 0.1, draws))


def _linear(inputs: int, outputs: int, gain: float, draws: torch.Generator) -> nn.Linear:
    layer: nn.Linear = nn.utils.skip_init(nn.Linear, inputs, outputs)
    nn.init.orthogonal_(layer.weight, gain, generator=draws)
    nn.init.zeros_(layer.bias)
    return layer


def _train(net: nn.Sequential, inputs: Tensor, loss_of: _Loss, epochs: int, draws: torch.Generator) -> None:
    """Adam on minibatches, some eighty in every pass, its rate falling to zero."""
    adam = torch.optim.Adam(net.parameters(), _RATE)
    batch = min(max(len(inputs) // 80, 32), 256)
    steps, done = epochs * math.ceil(len(inputs) / batch), 0
    for _ in range(epochs):
        for rows in torch.randperm(len(inputs), generator=draws).split(batch):
            adam.param_groups[0]["lr"] = _RATE * (1 - done / steps)
            loss = loss_of(rows)
            adam.zero_grad()
            loss.backward()
            adam.step()
            done += 1
    if not all(bool(p.isfinite().all()) for p in net.parameters()):
        raise ValueRangeError("the training of the surrogate diverged: are the observations or actions very large?")


@torch.no_grad()
def _temper(net: nn.Sequential, inputs: Tensor) -> None:
    """Divide the logits until the best one leads by at most :data:`LEAD` at nine states of ten."""
    logits = net(inputs)
    if logits.shape[1] == 1:
        return
    top = logits.topk(2, -1).values
    lead = float((top[:, 0] - top[:, 1]).quantile(0.9))
    for parameter in net[-1].parameters() if lead > LEAD else ():
        parameter.mul_(LEAD / lead)


def _regression(
    inputs: Tensor, actions: Array, space: Space, hidden: Sequence[int], epochs: int, draws: torch.Generator
) -> nn.Sequential:
    """A network whose clipped outputs are the actions, in their units.

    Actions at a bound were clipped there: an output beyond it is as good, and costs nothing.
    """
    assert isinstance(space, spaces.Box)
    y = torch.as_tensor(actions, dtype=torch.float32)
    mean, std = y.mean(0), y.std(0, correction=0)
    std = torch.where(std > _LEAST_STD, std, torch.ones_like(std))
    low, high = (torch.as_tensor(bound, dtype=torch.float32) for bound in (space.low, space.high))
    clipped = _all_inside(actions, space)
    at_low, at_high = (y <= low) & clipped, (y >= high) & clipped
    net = _mlp(inputs.shape[1], hidden, y.shape[1], draws)

    def loss_of(rows: Tensor) -> Tensor:
        over = net(inputs[rows]) - (y[rows] - mean) / std
        over = torch.where(at_low[rows], over.clamp(min=0), torch.where(at_high[rows], over.clamp(max=0), over))
        return over.square().mean()

    _train(net, inputs, loss_of, epochs, draws)
    last = net[-1]
    assert isinstance(last, nn.Linear)
    with torch.no_grad():
        last.weight.mul_(std[:, None])
        last.bias.mul_(std).add_(mean)
    return net


def _all_inside(actions: Array, space: Space) -> bool:
    """Whether continuous actions all lie in a bounded box, as those of agents do that clip them."""
    if not isinstance(space, spaces.Box) or not space.is_bounded():
        return False
    return bool(((actions >= space.low) & (actions <= space.high)).all())


def agreement(own: Array, victims: Array, space: Space) -> float:
    """How well the actions of a surrogate agree with the victim's at the same observations.

    Args:
        own, victims: native actions, ``[n]`` or ``[n, D]``.
        space: of the actions.

    Returns:
        For discrete actions the share of equal ones; for continuous ones R2, the mean over their dimensions, and of a
        dimension that the victim never changes 1 where the surrogate does neither, else 0.
    """
    if isinstance(space, spaces.Discrete):
        return float((own == victims).mean())
    error = np.square(own.astype(float) - victims).sum(0)
    spread = np.square(victims.astype(float) - victims.mean(0)).sum(0)
    constant = spread <= _LEAST_STD**2 * len(victims)
    ratio = error / np.where(constant, 1.0, spread)
    return float(np.where(constant, error <= _LEAST_STD**2 * len(victims), 1 - ratio).mean())
