"""Writing a victim as a card, for what the format can say; ``docs/cards.rst`` is its description.

A card is read back before it is written: its victim must answer as the one that is saved, to the bit.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from gymnasium import spaces
from safetensors.torch import save
from torch import Tensor, nn

from adv_wrappers.errors import CardError, VictimError
from adv_wrappers.networks.input_gradient import sequence_of
from adv_wrappers.networks.layers import ActionValue, AppendLogStd, Normalize
from adv_wrappers.networks.recurrent import GaussianLSTM, LSTMPath
from adv_wrappers.utils.files import write
from adv_wrappers.victims.card import load_card, victim_of
from adv_wrappers.victims.card_kinds import STRIDES
from adv_wrappers.victims.module import from_module
from adv_wrappers.victims.victim import Victim

_ACTIVATIONS: dict[type[nn.Module], str] = {nn.Tanh: "tanh", nn.ReLU: "relu"}
_KINDS = {"logits": "categorical-mlp", "gaussian": "gaussian-mlp", "q": "q-mlp", "mean": "tanh-mlp"}
_OWN = ("environment", "network", "observation", "action", "attack", "spaces")
_SHAPE = (4, 84, 84)  # of images, where a card says nothing


def save_card(
    folder: str | Path, victim: Victim | nn.Module, observation_space: spaces.Space[Any] | None = None,
    action_space: spaces.Space[Any] | None = None, kind: Any = None, *,
    environment: str | tuple[str, Mapping[str, Any]], observation: Mapping[str, Any] | None = None, select: Any = None,
    clip: bool = False, value: nn.Module | None = None, **about: Any,
) -> Victim:  # fmt: skip
    """Write a victim as a card, and return it as ``load_victim("card:FOLDER")`` reads it: the same, to the bit.

    Args:
        folder: for ``card.json`` and ``weights.safetensors``, each written at once or not at all.
        victim: a victim; or a module, with ``observation_space``, ``action_space`` and ``kind`` as
            :func:`from_module` takes them. Cards hold linear layers with ReLU or tanh between them on observations
            ``[n]``, the convolutions of Mnih et al. (2015) on images, and the recurrent networks of other cards.
        environment: id, or id and keyword arguments, as ``gym.make`` takes them.
        observation: of a module that takes normalised observations: ``mean`` and ``std`` (numbers or lists), and
            optionally ``epsilon`` (added to ``std``) and ``clip``. A victim's own are part of it.
        select, clip, value: of a module, as :func:`from_module` takes them.
        **about: what else the card says, such as ``name``, ``measured``, ``source`` and ``licence``; JSON values.

    Raises:
        VictimError: for networks and spaces that a card cannot hold.
        CardError: for values that JSON cannot hold, and names that belong to the format.
    """
    taken = sorted(set(about) & set(_OWN))
    if taken:
        raise CardError(f"{', '.join(taken)} of a card follows from the victim, and cannot be given")
    if not isinstance(victim, Victim):
        victim = _victim(victim, observation_space, action_space, kind, observation, select, clip, value)
    elif any(given is not None for given in (observation_space, action_space, kind, observation, select, value)):
        raise VictimError("spaces, kind, observation, select and value go with a module: a victim has its own")
    name, kwargs = (environment, {}) if isinstance(environment, str) else environment
    parts, weights = _parts(victim)
    card = {"environment": {"id": name, "kwargs": dict(kwargs)}, **parts, **about}
    weights = {key: tensor.detach().cpu().contiguous().clone() for key, tensor in weights.items()}
    try:
        text = json.dumps(card, indent=1, allow_nan=False) + "\n"
    except (TypeError, ValueError, RecursionError) as error:
        raise CardError(f"a card holds JSON values only: {error}") from error
    _compare(victim, victim_of(json.loads(text), dict(weights), "the card", dtype=victim.dtype))
    folder = Path(folder)
    write(folder / "weights.safetensors", save(weights))
    write(folder / "card.json", text.encode())
    return load_card(folder, dtype=victim.dtype)


def _victim(
    module: Any, observed: Any, acted: Any, kind: Any, observation: Mapping[str, Any] | None, select: Any, clip: bool,
    value: Any,
) -> Victim:  # fmt: skip
    if not isinstance(module, nn.Module) or observed is None or acted is None:
        raise VictimError(f"expected a victim, or a module and its spaces, got {module!r:.80}")
    scale = None
    if observation is not None:
        unknown = sorted(set(observation) - {"mean", "std", "epsilon", "clip", "rule"})
        if unknown or "mean" not in observation or "std" not in observation:
            raise CardError(f"observation needs mean and std, and takes epsilon and clip, got {observation!r:.200}")
        try:
            mean, std = (torch.as_tensor(observation[key], dtype=torch.float64) for key in ("mean", "std"))
            std = std + float(observation.get("epsilon", 0.0))
            scale = std.expand(observed.shape).clone()
        except (TypeError, ValueError, RuntimeError, OverflowError) as error:
            raise CardError(f"observation: {error}") from error
        dtype = next((p.dtype for p in module.parameters()), torch.float32)
        rule = Normalize(mean.to(dtype), std.to(dtype), observation.get("clip"))
        module, value = nn.Sequential(rule, module), None if value is None else nn.Sequential(rule, value)
    return from_module(
        module, observed, acted, kind, value=value, select=select or "mode", clip=clip, scale=scale
    )  # fmt: skip


def _parts(victim: Victim) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The sections ``network``, ``observation``, ``action``, ``spaces`` and ``attack``, and the weights by name."""
    space, acted = victim.observation_space, victim.action_space
    if not isinstance(space, spaces.Box) or len(space.shape) not in (1, 3):
        raise VictimError(f"a card holds victims of observations [n] and of images, this one takes {space}")
    if not isinstance(acted, (spaces.Box, spaces.Discrete)) or getattr(acted, "start", 0) != 0:
        raise VictimError(f"a card holds actions of a Box, or of a Discrete that starts at 0, got {acted}")
    if getattr(victim, "squash", "") not in ("", "clip"):
        raise VictimError(
            "a card cannot say that actions are scaled from [-1, 1] to the box, as those of SAC and TD3 are"
        )
    net = getattr(victim, "net", None)
    if victim.recurrent:
        network, weights, rule = _recurrent(victim, net)
    elif len(space.shape) == 3:
        network, weights, rule = _convolutional(victim, net)
    else:
        network, weights, rule = _plain(victim, net)
    action: dict[str, Any] = {"select": victim.select}
    bounds: dict[str, Any] = {}
    if isinstance(acted, spaces.Box):
        action["clip"] = getattr(victim, "squash", "") == "clip" or bool(getattr(victim, "clip", False))
        bounds["action"] = {"low": acted.low.tolist(), "high": acted.high.tolist()}
    if len(space.shape) == 3 and space.shape != _SHAPE:
        bounds["observation"] = {"shape": list(space.shape)}
    observation, attack = _observation(victim, rule)
    stated = ({"spaces": bounds} if bounds else {}) | ({"attack": attack} if attack else {})
    return {"network": network, "observation": observation, "action": action, **stated}, weights


def _observation(victim: Victim, rule: Normalize | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """The rule in float64, and the attacker's unit where it is not its divisor."""
    unit: Tensor | None = None if victim.scale is None else victim.scale.detach().double().cpu()
    observation: dict[str, Any] = {"mean": None, "std": None, "clip": None, "rule": "raw"}
    if rule is not None:
        mean, std = (part.detach().double().cpu() for part in (rule.mean, rule.std))
        if unit is not None and unit.shape == std.shape and torch.equal(unit.float(), std.float()):
            std, unit = unit, None  # the same before it was rounded
        elif unit is not None and std.dim() == 0 and bool((unit.float() == std.float()).all()):
            unit = None
        observation = {
            "mean": mean.tolist(), "std": std.tolist(), "epsilon": 0.0,
            "clip": rule.clip if math.isfinite(rule.clip or math.inf) else None,
            "rule": "clip((o - mean) / std, -clip, clip)",
        }  # fmt: skip
    if unit is not None and unit.dim() > 1:
        if not bool((unit == unit.flatten()[0]).all()):
            raise VictimError("a card holds one unit for all pixels of an image")
        unit = unit.flatten()[0]
    return observation, {} if unit is None else {"scale": unit.tolist()}


def _layers(net: Any) -> tuple[Normalize | None, list[nn.Module]]:
    """The observation rule and what follows it."""
    chain = sequence_of(net) if isinstance(net, nn.Module) else None
    if chain is None or not chain.layers:
        raise VictimError(f"expected linear layers with tanh or ReLU between them, got {net!s:.300}")
    layers = list(chain.layers)
    rule = layers.pop(0) if isinstance(layers[0], Normalize) else None
    return rule if isinstance(rule, Normalize) else None, layers  # the second time for the type


def _plain(victim: Victim, net: Any) -> tuple[dict[str, Any], dict[str, Tensor], Normalize | None]:
    rule, layers = _layers(net)
    weights: dict[str, Tensor] = {}
    if isinstance(layers[-1], AppendLogStd):
        weights["log_std"] = layers.pop().log_std.detach().reshape(-1)  # type: ignore[operator]
    if victim.kind == "gaussian" and not weights:
        raise VictimError("a card holds a standard deviation that is the same at every observation, this one is not")
    if victim.kind == "mean":
        if not isinstance(layers[-1], nn.Tanh):
            raise VictimError("a card holds deterministic actions that a last tanh gives, this one has none")
        layers.pop()
    nets = {"policy": _mlp(layers)}
    for name, other in (("value", getattr(victim, "value_net", None)), ("critic", victim.critic),
                        ("robust_sarsa", victim.robust_sarsa)):  # fmt: skip
        if other is not None:
            allowed = ("critic", "robust_sarsa") if victim.kind == "mean" else ("value",)
            if name not in allowed or victim.kind == "q":
                raise VictimError(f"a card of kind {_KINDS[victim.kind]} holds no {name}")
            nets[name] = _mlp(_beside(other, rule))
    activations = {type(layer) for linear, between in nets.values() for layer in between}
    if len(activations) > 1:
        raise VictimError("a card holds one activation for all of its networks: tanh or ReLU")
    for name, (linear, _) in nets.items():
        weights |= {f"{name}.{2 * i}.{key}": p for i, layer in enumerate(linear) for key, p in layer.named_parameters()}
    hidden = [layer.out_features for layer in nets["policy"][0][:-1]]
    network: dict[str, Any] = {
        "kind": _KINDS[victim.kind],
        "activation": _ACTIVATIONS[next(iter(activations), nn.Tanh)],
    }
    if all([layer.out_features for layer in linear[:-1]] == hidden for linear, _ in nets.values()):
        network |= {"hidden": hidden}  # a card that says nothing of its sizes takes them from the weights
    return network, weights, rule


def _mlp(layers: list[nn.Module]) -> tuple[list[nn.Linear], list[nn.Module]]:
    """Linear layers, and what is between them."""
    layers = [layer for layer in layers if not isinstance(layer, nn.Flatten)]
    linear = [layer for layer in layers[::2] if isinstance(layer, nn.Linear) and layer.bias is not None]
    between = layers[1::2]
    if (
        not linear
        or 2 * len(linear) - 1 != len(layers)
        or not {type(layer) for layer in between} <= _ACTIVATIONS.keys()
    ):
        names = ", ".join(type(layer).__name__ for layer in layers)
        raise VictimError(f"expected linear layers with tanh or ReLU between them, and with biases, got {names:.300}")
    return linear, between


def _beside(net: Any, rule: Normalize | None) -> list[nn.Module]:
    """The layers of a value function or critic, whose observations must be normalised as the policy's."""
    own, layers = (net.normalise, [*_layers(net.net)[1]]) if isinstance(net, ActionValue) else _layers(net)
    own = None if isinstance(own, nn.Identity) else own
    if (own is None) != (rule is None) or (own is not None and rule is not None and not _same(own, rule)):
        raise VictimError("a card holds one observation rule for all of its networks")
    return layers


def _same(a: nn.Module, b: nn.Module) -> bool:
    first, second = a.state_dict(), b.state_dict()
    return first.keys() == second.keys() and all(torch.equal(first[key], second[key]) for key in first)


def _convolutional(victim: Victim, net: Any) -> tuple[dict[str, Any], dict[str, Tensor], Normalize | None]:
    rule, layers = _layers(net)
    order = [nn.Conv2d, nn.ReLU] * 3 + [nn.Flatten, nn.Linear, nn.ReLU, nn.Linear]
    plain = [type(layer) for layer in layers] == order and victim.kind == "logits"
    convolutions = [layer for layer in layers[:6:2] if isinstance(layer, nn.Conv2d)]
    about = [(conv.stride, conv.padding, conv.dilation, conv.groups) for conv in convolutions]
    plain = plain and about == [((stride, stride), (0, 0), (1, 1), 1) for stride in STRIDES]
    if not plain or any(getattr(layer, "bias", 0) is None for layer in layers):
        names = ", ".join(type(layer).__name__ for layer in layers)
        raise VictimError(
            "of images a card holds logits of three convolutions without padding, of strides 4, 2 and 1, and two "
            f"linear layers, with ReLU between, got {victim.kind} of {names:.300}"
        )
    trunk = {f"trunk.{i}.{key}": p for i, layer in enumerate(layers[:-1]) for key, p in layer.named_parameters()}
    weights: dict[str, Tensor] = {**trunk, **{f"policy.{key}": p for key, p in layers[-1].named_parameters()}}
    valued = getattr(victim, "value_net", None)
    if valued is not None:
        other = _beside(valued, rule)
        if not all(_same(a, b) for a, b in zip(other[:-1], layers[:-1], strict=False)) or len(other) != len(layers):
            raise VictimError(
                "of images a card holds a value function on the policy's own features, this one has others"
            )
        weights |= {f"value.{key}": p for key, p in other[-1].named_parameters()}
    return {"kind": "categorical-cnn", "activation": "relu"}, weights, rule


def _recurrent(victim: Victim, net: Any) -> tuple[dict[str, Any], dict[str, Tensor], Normalize | None]:
    if not isinstance(net, GaussianLSTM):
        raise VictimError("of recurrent victims a card holds those that came from a card")
    weights: dict[str, Tensor] = {"log_std": net.tail.log_std.detach().reshape(-1)}
    for name, path in (("policy", net.policy), ("value", net.value)):
        weights |= {} if path is None else _path(name, path)
    rule = net.normalise if isinstance(net.normalise, Normalize) else None
    return {"kind": "gaussian-lstm"}, weights, rule


def _path(name: str, path: LSTMPath) -> dict[str, Tensor]:
    ends = {f"{name}.{part}.{k}": p for part in ("embed", "head") for k, p in getattr(path, part).named_parameters()}
    return ends | {f"{name}.lstm.{key}_l0": p for key, p in path.cell.named_parameters()}


@torch.no_grad()
def _compare(victim: Victim, read: Victim) -> None:
    """Raise :class:`VictimError` unless both answer the same, without drawing a random number."""
    if read.action_space != victim.action_space or read.observation_space.shape != victim.observation_space.shape:
        raise VictimError(f"a card would hold {read!r}, this is {victim!r}")
    if victim.device.type != "cpu":
        return  # other devices round differently
    shape = victim.observation_space.shape or ()
    wave = torch.linspace(-50, 50, 3 * math.prod(shape), dtype=torch.float64).sin() * 3
    x = (wave if len(shape) == 1 else (wave + 3) * 42).to(victim.dtype).reshape(3, *shape)
    for scale in (1.0, 100.0 if len(shape) == 1 else 1.0):  # so that actions are clipped, too
        states = victim.initial_state(3), read.initial_state(3)
        ours, theirs = victim.params(x * scale, states[0]), read.params(x * scale, states[1])
        if not torch.equal(ours, theirs) or not torch.equal(victim.mode(ours), read.mode(theirs)):
            raise VictimError(f"a card cannot say what {victim!r} computes: what it says answers otherwise")
