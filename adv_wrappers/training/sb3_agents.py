"""Agents of Stable-Baselines3 from victims and back: their layers, the cards they are written to, and live victims."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor, nn

from adv_wrappers.errors import VictimError
from adv_wrappers.networks.input_gradient import sequence_of
from adv_wrappers.networks.layers import AppendLogStd, Normalize
from adv_wrappers.victims import Victim, from_sb3, save_card

_ACTIVATIONS: set[type[nn.Module]] = {nn.Tanh, nn.ReLU}


@dataclass
class Anatomy:
    """A plain agent: ``normalise``, linear layers with one activation between them, and a log standard deviation."""

    normalise: Normalize | None
    activation: type[nn.Module]
    policy: list[nn.Linear]
    value: list[nn.Linear]
    log_std: Tensor | None

    @staticmethod
    def sizes(layers: list[nn.Linear]) -> list[int]:
        """Widths of the hidden layers."""
        return [layer.out_features for layer in layers[:-1]]


def anatomy(victim: Victim) -> Anatomy:
    """The parts of a victim whose networks are plain.

    Raises:
        VictimError: for recurrent victims, images, and networks of other layers than Linear with tanh or ReLU between.
    """
    space, net = victim.observation_space, getattr(victim, "net", None)
    if victim.recurrent or not isinstance(space, spaces.Box) or len(space.shape) != 1 or not isinstance(net, nn.Module):
        what = "a recurrent victim" if victim.recurrent else f"one on {space}"
        raise VictimError(f"expected a feed-forward network on observations [n], got {what}")
    normalise, policy, activation, log_std = _sorted(net)
    valued = getattr(victim, "value_net", None)
    value = _sorted(valued)[1] if isinstance(valued, nn.Module) else []
    return Anatomy(normalise, activation, policy, value, log_std)


def _sorted(net: nn.Module) -> tuple[Normalize | None, list[nn.Linear], type[nn.Module], Tensor | None]:
    chain = sequence_of(net)
    layers = [] if chain is None else [layer for layer in chain.layers if not isinstance(layer, nn.Flatten)]
    first, last = (layers[0], layers[-1]) if layers else (None, None)
    normalise = first if isinstance(first, Normalize) else None
    log_std = last.log_std.detach() if isinstance(last, AppendLogStd) else None
    layers = [layer for layer in layers if not isinstance(layer, (Normalize, AppendLogStd))]
    between = {type(layer) for layer in layers[1::2]}
    linear = [layer for layer in layers[::2] if isinstance(layer, nn.Linear) and layer.bias is not None]
    if not linear or 2 * len(linear) - 1 != len(layers) or len(between) > 1 or not between <= _ACTIVATIONS:
        raise VictimError(f"expected linear layers with tanh or ReLU between them, got {net}")
    return normalise, linear, next(iter(between), nn.Tanh), log_std


def policy_kwargs_of(parts: Anatomy) -> dict[str, Any]:
    """What SB3's actor-critic policies take for networks of these sizes."""
    hidden = Anatomy.sizes(parts.policy)
    value = Anatomy.sizes(parts.value) if parts.value else hidden
    return {"net_arch": {"pi": hidden, "vf": value}, "activation_fn": parts.activation}


@torch.no_grad()
def fill(policy: Any, parts: Anatomy) -> None:
    """Write the weights of a victim into an SB3 actor-critic policy made with :func:`policy_kwargs_of`."""
    extractor = policy.mlp_extractor
    pairs = [(extractor.policy_net, policy.action_net, parts.policy)]
    if parts.value:
        pairs.append((extractor.value_net, policy.value_net, parts.value))
    for hidden, last, layers in pairs:
        own = [*(layer for layer in hidden if isinstance(layer, nn.Linear)), last]
        for mine, theirs in zip(own, layers, strict=True):
            mine.weight.copy_(theirs.weight)
            mine.bias.copy_(theirs.bias)
    if parts.log_std is not None:
        policy.log_std.copy_(parts.log_std.reshape(-1))


def follow(victim: Victim, normal: Any) -> None:
    """Take over the present statistics of a ``VecNormalize``; the weights of a live victim follow by themselves."""
    if not normal.norm_obs:
        return
    mean = torch.as_tensor(normal.obs_rms.mean).double()
    std = (torch.as_tensor(normal.obs_rms.var).double() + normal.epsilon).sqrt()
    for net in victim.modules():
        for layer in net.modules():
            if isinstance(layer, Normalize):
                layer.mean, layer.std = mean.to(victim.dtype), std.to(victim.dtype)
    victim.scale = std


def live(model: Any, select: Any) -> Victim:
    """A victim that is the model itself, now and later; :func:`follow` keeps its normaliser in step."""
    victim = from_sb3(model, select=select, live=True)
    follow(victim, model.get_vec_normalize_env())
    return victim


def save_agent(
    folder: str | Path, victim: Victim, environment: tuple[str, Mapping[str, Any]], **about: Any
) -> None:  # fmt: skip
    """Write a victim as a card: ``load_victim("card:FOLDER")`` is the same policy, to the bit.

    Args:
        victim: of PPO, A2C or DQN on observations ``[n]``, or any other whose networks are as plain.
        environment: its id and keyword arguments.
        **about: what else the card says, such as ``training`` and ``measured``.

    Raises:
        VictimError: for networks that a card cannot hold.
    """
    save_card(folder, victim, environment=(environment[0], environment[1]), **about)
