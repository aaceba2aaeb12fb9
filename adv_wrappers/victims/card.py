"""Cards: folders with ``card.json`` and ``weights.safetensors`` that hold a victim, written and read."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from adv_wrappers.errors import CardError, VictimError
from adv_wrappers.networks.card_format import Section, Weights, as_json, read_card, section, write_card
from adv_wrappers.networks.layers import ActionValue, AppendLogStd, MinimumCritic, Normalize, dtype_to_normalize
from adv_wrappers.networks.operations.operation import WrittenLayer
from adv_wrappers.networks.recurrent import GaussianLSTM, LSTMPath, RecurrentActor, RecurrentValue
from adv_wrappers.networks.serialization import describe, kinds
from adv_wrappers.networks.tracing import layers_in_order
from adv_wrappers.utils.reading import decoding, most_numbers
from adv_wrappers.victims.card_networks import STRIDES, VictimNetworks, mlp_of, networks_of
from adv_wrappers.victims.module import ModuleVictim, from_module
from adv_wrappers.victims.victim import OutputKind, Select, Victim

# ----------------------------------------------------------------------------------------------------------------------
# Reading a victim from its card; ``docs/cards.rst`` describes the format.
#
# The observation rule is part of the victim: raw observations enter, ``clip((o - mean) / (std + epsilon))`` is its
# first layer. One unit of ``Linf(eps, scale="victim")`` is the card's ``attack.scale`` if it has one (an author who
# attacks in standard deviations of the state), else the divisor ``std + epsilon``, so that eps counts normalised
# observations.
# ----------------------------------------------------------------------------------------------------------------------


# action boxes of Gymnasium's environments that are not [-1, 1]
_SHAPE = (4, 84, 84)  # of images, where a card says nothing
_REACH = {"InvertedPendulum": 3.0, "Pendulum": 2.0, "Pusher": 2.0, "Humanoid": 0.4, "HumanoidStandup": 0.4}


def load_card(
    folder: str | Path,
    *,
    select: Select | None = None,
    device: torch.device | str = "cpu",
    dtype: torch.dtype | None = None,
    ref: str | None = None,
    max_bytes: int | None = None,
) -> Victim:
    """The victim of a card; ``victim.card`` is the parsed ``card.json``.

    Args:
        folder: holds ``card.json`` and ``weights.safetensors`` (float16 weights are widened to ``dtype``).
        select: play the mode or a sample; None does as the card says.
        dtype: what the victim computes in; None is float32, or float64 where observations lie so far from zero that
            float32 would round normalised ones by more than 1e-5.
        ref: what :func:`load_victim` would take; None for ``card:FOLDER``.
        max_bytes: how long either file may be; None is 256 MiB.

    Raises:
        CardError: for a file that is missing, truncated, too large or malformed, an unknown kind of network, a missing,
            extra or misshapen weight, values that are not finite, and a network that does not answer with finite
            numbers to an observation of zeros.
    """
    card = read_card(folder, "victim", max_bytes)
    how: dict[str, Any] = {"select": select, "device": device, "dtype": dtype, "ref": ref or f"card:{folder}"}
    with decoding(folder):
        return victim_of(card.about, card.tensors, most=most_numbers(max_bytes), **how)


def victim_of(
    card: Section,
    tensors: dict[str, Tensor],
    *,
    select: Select | None = None,
    device: torch.device | str = "cpu",
    dtype: torch.dtype | None = None,
    ref: str | None = None,
    most: int = 2**22,
) -> Victim:
    """The victim that a card and its weights describe; see :func:`load_card`.

    Args:
        card: the parsed ``card.json``.
        tensors: the weights by name.
        most: limit on the numbers in an observation, and in what a layer answers.
    """
    environment_of(card)
    network, observation, action = section(card, "network"), section(card, "observation"), section(card, "action", {})
    # float64 until the end: in float32 a tiny std would round before its epsilon is added
    mean, std = _normaliser(observation)
    dtype = dtype or (torch.float32 if mean is None or std is None else dtype_to_normalize(mean, std))
    weights = Weights({name: x.to(dtype) if x.is_floating_point() else x for name, x in tensors.items()})
    rule: nn.Module = nn.Identity()
    if mean is not None and std is not None:
        clip = observation.get("clip")
        rule = Normalize(mean.to(dtype), std.to(dtype), None if clip is None else float(_numbers(clip)))
    shape = tuple(cast(list[int], _entry(card, "observation").get("shape", _SHAPE)))
    nets = networks_of(weights, network, rule, shape, most)
    if not 0 < math.prod(nets.shape) <= most:
        raise CardError(f"observations {nets.shape} have more than {most} numbers (max_bytes= raises that), or none")
    observed, acted = _spaces(card, nets)
    scale = section(card, "attack", {}).get("scale")
    unit = std if scale is None else _numbers(scale)
    if unit is not None:
        unit = unit.expand(observed.shape).clone().to(device)
    if nets.critics and isinstance(acted, spaces.Box):
        nets.critic = MinimumCritic(rule, nets.critics, *map(torch.as_tensor, (acted.low, acted.high)))
    start = nets.initial_state and functools.partial(nets.initial_state, device=torch.device(device), dtype=dtype)
    victim = from_module(
        nets.net,
        observed,
        acted,
        nets.kind,
        value=nets.value,
        critic=nets.critic,
        robust_sarsa=nets.robust_sarsa,
        initial_state=start,
        select=select or cast(Select, action.get("select", "mode")),
        clip=bool(action.get("clip", False)),
        scale=unit,
        device=device,
        dtype=dtype,
        ref=ref,
    )
    victim.squash = _squash(action, acted)
    _check_answers(victim)
    victim.card = card
    return victim


def _squash(action: Section, acted: spaces.Space[object]) -> str | None:
    """What brings actions into their box; None where nothing but a clip does."""
    squash = action.get("squash")
    fits = isinstance(acted, spaces.Box) and acted.is_bounded() and not action.get("clip")
    if squash is None or (squash in ("scale", "tanh") and fits):
        return squash
    raise CardError(f"action.squash is 'scale' or 'tanh', of actions in a bounded Box, not clipped, got {squash!r:.80}")


@torch.no_grad()
def _check_answers(victim: ModuleVictim) -> None:
    """Raise :class:`CardError` unless every network answers with finite numbers to an observation of zeros."""
    shape, state = victim.observation_space.shape or (), victim.initial_state(1)
    zeros = torch.zeros(1, *shape, dtype=victim.dtype, device=victim.device)
    answers: dict[str, Tensor | None] = {"policy": victim.params(zeros, state), "value": victim.value(zeros, state)}
    for name, critic in (("critic", victim.critic), ("robust_sarsa", victim.robust_sarsa)):
        if critic is not None:
            answers[name] = critic(zeros, zeros.new_zeros(1, *(victim.action_space.shape or ())))
    for name, answer in answers.items():
        if answer is not None and not bool(torch.isfinite(answer).all()):
            raise CardError(
                f"the {name} network must answer with finite numbers, to an observation of zeros it answers "
                f"{answer.flatten().tolist()!s:.80}: are its weights or its normaliser damaged?"
            )


def environment_of(card: Section) -> tuple[str, dict[str, Any]]:
    """Id and keyword arguments of the card's environment, as ``gym.make`` takes them."""
    environment = section(card, "environment")
    name, kwargs = environment.get("id"), environment.get("kwargs", {})
    if not isinstance(name, str) or not isinstance(kwargs, dict):
        raise CardError(f"environment needs a text id and a dictionary kwargs, got {name!r:.80} and {kwargs!r:.80}")
    return name, dict(kwargs)


def _numbers(value: object) -> Tensor:
    """A number or list of finite numbers as a float64 tensor."""
    array = np.asarray(value, dtype=np.float64)
    if not np.isfinite(array).all() or array.ndim > 1:
        raise CardError(f"expected a number or a list of numbers, all finite, got {value!r:.80}")
    return torch.from_numpy(array)


def _normaliser(observation: Section) -> tuple[Tensor | None, Tensor | None]:
    if observation.get("mean") is None and observation.get("std") is None:
        return None, None
    mean, std = (_numbers(observation.get(name)) for name in ("mean", "std"))
    std = std + _numbers(observation.get("epsilon", 0.0))
    if mean.shape != std.shape or not bool((std > 0).all()):
        raise CardError(f"observation.std must be as long as mean ({mean.numel()}), and above 0 with epsilon")
    return mean, std


def _entry(card: Section, what: str) -> Section:
    return section(section(card, "spaces", {}), what, {})


def _spaces(card: Section, nets: VictimNetworks) -> tuple[spaces.Box, spaces.Space[object]]:
    """Spaces of one row: from the sizes of the network, with bounds from the optional entry ``spaces``."""
    observed: spaces.Box = spaces.Box(0, 255, nets.shape, np.uint8)
    if len(nets.shape) != 3:
        observed = _box(_entry(card, "observation"), np.inf, nets.shape, np.dtype(np.float64))
    if nets.kind in ("q", "logits"):
        return observed, spaces.Discrete(nets.actions)
    reach = _REACH.get(environment_of(card)[0].split("/")[-1].split("-v")[0], 1.0)
    return observed, _box(_entry(card, "action"), reach, (nets.actions,), np.dtype(np.float32))


def _box(entry: Section, reach: float, shape: tuple[int, ...], dtype: np.dtype[Any]) -> spaces.Box:
    low, high = (
        np.broadcast_to(np.asarray(entry.get(k, d), dtype), shape) for k, d in (("low", -reach), ("high", reach))
    )
    return spaces.Box(low, high, dtype=dtype.type)


# ----------------------------------------------------------------------------------------------------------------------
# Writing a victim as a card, for what the format can say; ``docs/cards.rst`` is its description.
#
# A card is read back before it is written: its victim must answer as the one that is saved, to the bit.
# ----------------------------------------------------------------------------------------------------------------------


_KINDS = {"logits": "categorical-mlp", "gaussian": "gaussian-mlp", "q": "q-mlp", "mean": "tanh-mlp"}
_OWN = ("format", "environment", "network", "observation", "action", "attack", "spaces", "weights_sha256")


def save_card(
    folder: str | Path,
    victim: Victim | nn.Module,
    observation_space: spaces.Space[object] | None = None,
    action_space: spaces.Space[object] | None = None,
    kind: OutputKind | Literal["distribution"] | None = None,
    *,
    environment: str | tuple[str, Mapping[str, object]],
    observation: Mapping[str, Any] | None = None,
    select: Select | None = None,
    clip: bool = False,
    value: nn.Module | None = None,
    stored: torch.dtype | None = None,
    **about: object,
) -> Victim:
    """Write a victim as a card, and return it as ``load_victim("card:FOLDER")`` reads it: the same, to the bit.

    Args:
        folder: for ``card.json`` and ``weights.safetensors``, each written at once or not at all.
        victim: a victim; or a module, with ``observation_space``, ``action_space`` and ``kind`` as
            :func:`from_module` takes them. Cards hold layers in a row, of a ``Sequential`` or of a class whose
            ``forward`` applies them one after the other; and of recurrent victims those of RecurrentPPO, and of cards.
        environment: id, or id and keyword arguments, as ``gym.make`` takes them.
        observation: of a module that takes normalised observations: ``mean`` and ``std`` (numbers or lists), and
            optionally ``epsilon`` (added to ``std``) and ``clip``. A victim's own are part of it.
        select, clip, value: of a module, as :func:`from_module` takes them.
        stored: the dtype of weights in the file, where it is not the victim's: ``torch.float16`` takes half of the
            space of float32. The weights must be numbers of this dtype: round them first.
        **about: what else the card says, such as ``name``, ``measured``, ``source`` and ``licence``; JSON values.

    Raises:
        VictimError: for networks and spaces that a card cannot hold, and weights that ``stored`` would change.
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
    weights = {key: _stored(key, tensor.detach().cpu(), stored) for key, tensor in weights.items()}
    read = as_json(card)
    _compare(victim, victim_of(read, dict(weights), dtype=victim.dtype))
    write_card(folder, "victim", read, weights)
    return load_card(folder, dtype=victim.dtype)


def _stored(name: str, tensor: Tensor, dtype: torch.dtype | None) -> Tensor:
    """A weight as the file holds it."""
    found = tensor.to(dtype or tensor.dtype).contiguous().clone()
    if not torch.equal(found.to(tensor.dtype), tensor):
        raise VictimError(
            f"{name} holds numbers that {dtype} would round: round the victim's weights before it is saved"
        )
    return found


def _victim(
    module: object,
    observed: spaces.Space[object] | None,
    acted: spaces.Space[object] | None,
    kind: OutputKind | Literal["distribution"] | None,
    observation: Mapping[str, Any] | None,
    select: Select | None,
    clip: bool,
    value: nn.Module | None,
) -> Victim:
    if not isinstance(module, nn.Module) or observed is None or acted is None:
        raise VictimError(f"expected a victim, or a module and its spaces, got {module!r:.80}")
    scale, dtype = None, None
    if observation is not None:
        unknown = sorted(set(observation) - {"mean", "std", "epsilon", "clip", "rule"})
        with decoding("observation"):
            mean, std = _normaliser(dict(observation))
            if mean is None or std is None or unknown:
                raise CardError(f"it needs mean and std, and takes epsilon and clip, got {observation!r:.200}")
            scale = std.expand(observed.shape or ()).clone()
        own = next((p.dtype for p in module.parameters()), torch.float32)
        dtype = torch.float64 if own == torch.float64 else dtype_to_normalize(mean, std)
        rule = Normalize(mean.to(dtype), std.to(dtype), observation.get("clip"))
        module, value = nn.Sequential(rule, module), None if value is None else nn.Sequential(rule, value)
    how = select or "mode"
    return from_module(module, observed, acted, kind, value=value, select=how, clip=clip, scale=scale, dtype=dtype)


def _parts(victim: Victim) -> tuple[Section, dict[str, Tensor]]:
    """The sections ``network``, ``observation``, ``action``, ``spaces`` and ``attack``, and the weights by name."""
    space, acted = victim.observation_space, victim.action_space
    if not isinstance(space, spaces.Box) or len(space.shape) not in (1, 3):
        raise VictimError(
            f"a card holds victims of observations [n] and of images, this one takes {space}: "
            f"its own file, such as sb3:FILE.zip, is a reference that evaluate and report take as it is"
        )
    if not isinstance(acted, (spaces.Box, spaces.Discrete)) or getattr(acted, "start", 0) != 0:
        raise VictimError(f"a card holds actions of a Box, or of a Discrete that starts at 0, got {acted}")
    squash = getattr(victim, "squash", None)
    if squash not in (None, "", "clip", "scale", "tanh"):
        raise VictimError(f"a card cannot say that actions are brought into their box by {squash!r}")
    of_paths = isinstance(getattr(victim, "net", None), GaussianLSTM)
    network, weights, rule = _gaussian_lstm(victim) if of_paths else _layers_or_kind(victim)
    action: Section = {"select": victim.select}
    bounds: Section = {}
    if isinstance(acted, spaces.Box):
        action["clip"] = squash == "clip" or bool(getattr(victim, "clip", False))
        action |= {"squash": squash} if squash in ("scale", "tanh") else {}
        bounds["action"] = {"low": acted.low.tolist(), "high": acted.high.tolist()}
    if network["kind"] == "layers" or (len(space.shape) == 3 and space.shape != _SHAPE):
        bounds["observation"] = {"shape": list(space.shape)}
    observation, attack = _observation(victim, rule)
    stated = ({"spaces": bounds} if bounds else {}) | ({"attack": attack} if attack else {})
    return {"network": network, "observation": observation, "action": action, **stated}, weights


def _observation(victim: Victim, rule: Normalize | None) -> tuple[Section, Section]:
    """The rule in float64, and the attacker's unit where it is not its divisor."""
    unit: Tensor | None = None if victim.scale is None else victim.scale.detach().double().cpu()
    observation: Section = {"mean": None, "std": None, "clip": None, "rule": "raw"}
    if rule is not None:
        mean, std = (part.detach().double().cpu() for part in (rule.mean, rule.std))
        if unit is not None and unit.shape == std.shape and torch.equal(unit.float(), std.float()):
            std, unit = unit, None  # the same before it was rounded
        elif unit is not None and std.dim() == 0 and bool((unit.float() == std.float()).all()):
            unit = None
        observation = {
            "mean": mean.tolist(),
            "std": std.tolist(),
            "epsilon": 0.0,
            "clip": rule.clip if math.isfinite(rule.clip or math.inf) else None,
            "rule": "clip((o - mean) / std, -clip, clip)",
        }
    if unit is not None and unit.dim() > 1:
        if not bool((unit == unit.flatten()[0]).all()):
            raise VictimError("a card holds one unit for all pixels of an image")
        unit = unit.flatten()[0]
    return observation, {} if unit is None else {"scale": unit.tolist()}


Written = tuple[Section, dict[str, Tensor]]  # the section ``network``, and the weights by name


def _layers_or_kind(victim: Victim) -> tuple[Section, dict[str, Tensor], Normalize | None]:
    parts, rule = _networks(victim)
    written = _mlps(victim, parts) or _nature_cnn(victim, parts) or _lists_of_layers(victim, parts)
    return *written, rule


def _networks(victim: Victim) -> tuple[dict[str, list[nn.Module]], Normalize | None]:
    """The layers of every network by its name in a card, without the observation rule that they have in common."""
    parts, rules = dict[str, list[nn.Module]](), list[nn.Module | None]()
    for name, net in (
        ("policy", getattr(victim, "net", None)),
        ("value", getattr(victim, "value_net", None)),
        ("critic", victim.critic),
        ("robust_sarsa", victim.robust_sarsa),
    ):
        if net is None and name != "policy":
            continue
        if isinstance(net, MinimumCritic):
            found, rule = _critics(net)
            parts |= found
            rules += [rule] * len(found)
            continue
        of_actions = isinstance(net, ActionValue)
        inner = net.net if isinstance(net, ActionValue) else net
        beside = of_actions or name in ("policy", "value")
        layers = _layers_of(inner, victim.recurrent, name == "policy") if beside else None
        if not layers:
            remember = ", of a recurrent victim with one LSTM among them" if victim.recurrent else ""
            raise VictimError(
                f"a card holds networks of layers in a row ({', '.join(kinds())}){remember}, and critics of those on "
                f"observation and action side by side, got {net!s:.300}"
            )
        first = net.normalise if isinstance(net, ActionValue) else layers[0]
        rules.append(first if isinstance(first, Normalize) and first.mean.dim() <= 1 else None)
        parts[name] = layers
    rule = rules[0]
    shared = isinstance(rule, Normalize) and all(other is not None and _same(other, rule) for other in rules)
    critics = any(isinstance(net, (ActionValue, MinimumCritic)) for net in (victim.critic, victim.robust_sarsa))
    if critics and not shared and any(other is not None for other in rules):
        raise VictimError("a card holds one observation rule for all of its networks")
    if not shared or not isinstance(rule, Normalize):
        return parts, None
    return {
        name: layers if layers[0] is not other else layers[1:]
        for (name, layers), other in zip(parts.items(), rules, strict=True)
    }, rule


def _critics(net: MinimumCritic) -> tuple[dict[str, list[nn.Module]], nn.Module | None]:
    """The layers of several critics by their names in a card, and the observation rule before them."""
    seen = [layer for layer in layers_in_order(net.features) or [net.features] if not isinstance(layer, nn.Flatten)]
    heads = [layers_in_order(head) for head in net.heads]
    if len(seen) > 1 or not all(isinstance(layer, (Normalize, nn.Identity)) for layer in seen) or None in heads:
        raise VictimError(f"a card holds critics of layers in a row on observation and action, got {net!s:.300}")
    rule = next((layer for layer in seen if isinstance(layer, Normalize)), None)
    return {f"critics.{i}": layers for i, layers in enumerate(heads) if layers is not None}, rule


def _layers_of(net: object, recurrent: bool, pairs: bool) -> list[nn.Module] | None:
    """The layers of a network one after the other; None where it is no sequence of layers that can be written."""
    if isinstance(net, (RecurrentActor, RecurrentValue)):
        parts = net.parts
    else:  # another network with a state is no sequence, whatever a trace without a state would find
        parts = [net] if isinstance(net, nn.Module) and not recurrent else []
    found = [layers_in_order(part, pairs) for part in parts]
    return None if None in found else [layer for layers in found if layers is not None for layer in layers]


def _same(a: nn.Module, b: nn.Module) -> bool:
    first, second = a.state_dict(), b.state_dict()
    shapes = {key: value.shape for key, value in first.items()} == {key: value.shape for key, value in second.items()}
    equal = shapes and all(bool((first[key] == second[key]).all()) for key in first)
    return equal and getattr(a, "clip", None) == getattr(b, "clip", None)


def _mlps(victim: Victim, parts: Mapping[str, list[nn.Module]]) -> Written | None:
    """Networks that have a kind of their own: linear layers with one activation between them in all of them."""
    found = {name: mlp_of(layers) for name, layers in parts.items()}
    mlps = {name: mlp for name, mlp in found.items() if mlp is not None and mlp.normalize is None}
    activations = {mlp.activation for mlp in mlps.values()} - {None}
    allowed = {"logits": {"value"}, "gaussian": {"value"}, "q": set[str](), "mean": {"critic", "robust_sarsa"}}
    if len(mlps) < len(parts) or len(activations) > 1 or not parts.keys() - {"policy"} <= allowed[victim.kind]:
        return None
    end = {"mean": nn.Tanh, "gaussian": AppendLogStd}.get(victim.kind, type(None))
    ends = all(isinstance(mlp.end, end if name == "policy" else type(None)) for name, mlp in mlps.items())
    if not ends or len(victim.observation_space.shape or ()) != 1:
        return None
    weights = {
        f"{name}.{2 * i}.{key}": p
        for name, mlp in mlps.items()
        for i, layer in enumerate(mlp.linear)
        for key, p in layer.named_parameters()
    }
    last = mlps["policy"].end
    if isinstance(last, AppendLogStd):
        weights["log_std"] = last.log_std.detach().reshape(-1)  # type: ignore[assignment]
    network: Section = {"kind": _KINDS[victim.kind], "activation": next(iter(activations), "tanh")}
    hidden = mlps["policy"].hidden
    if all(mlp.hidden == hidden for mlp in mlps.values()):
        network["hidden"] = hidden  # a card that says nothing of its sizes takes them from the weights
    return network, dict(weights)


def _nature_cnn(victim: Victim, parts: Mapping[str, list[nn.Module]]) -> Written | None:
    """The network of Mnih et al. 2015, and a value function on its features."""
    layers, value = parts["policy"], parts.get("value")
    order = [nn.Conv2d, nn.ReLU] * 3 + [nn.Flatten, nn.Linear, nn.ReLU, nn.Linear]
    convolutions = [layer for layer in layers[:6:2] if isinstance(layer, nn.Conv2d)]
    about = [(conv.stride, conv.padding, conv.dilation, conv.groups) for conv in convolutions]
    plain = about == [((stride, stride), (0, 0), (1, 1), 1) for stride in STRIDES]
    biases = all(getattr(layer, "bias", 0) is not None for layer in [*layers, *(value or [])])
    if [type(layer) for layer in layers] != order or not plain or not biases or victim.kind != "logits":
        return None
    weights = {f"trunk.{i}.{key}": p for i, layer in enumerate(layers[:-1]) for key, p in layer.named_parameters()}
    weights |= {f"policy.{key}": p for key, p in layers[-1].named_parameters()}
    if value is not None:
        alike = len(value) == len(layers) and isinstance(value[-1], nn.Linear)
        if not alike or not all(_same(a, b) for a, b in zip(value[:-1], layers[:-1], strict=True)):
            return None
        weights |= {f"value.{key}": p for key, p in value[-1].named_parameters()}
    return {"kind": "categorical-cnn", "activation": "relu"}, dict(weights)


def _lists_of_layers(victim: Victim, parts: Mapping[str, list[nn.Module]]) -> Written:
    """Every other network, layer by layer."""
    network: Section = {"kind": "layers", "output": victim.kind}
    weights = dict[str, Tensor]()
    critics = list[list[WrittenLayer]]()
    for name, layers in parts.items():
        written, tensors = describe(layers, name)
        weights |= tensors
        if name.startswith("critics."):
            critics.append(written)
        else:
            network[name] = written
    return network | ({"critics": critics} if critics else {}), weights


def _gaussian_lstm(victim: Victim) -> tuple[Section, dict[str, Tensor], Normalize | None]:
    net = getattr(victim, "net", None)
    assert isinstance(net, GaussianLSTM)
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
        states = [each.initial_state(3) for each in (victim, read)]
        for _ in range(2 if victim.recurrent else 1):  # at the second step the state is no longer that of the start
            ours, theirs = (each.params(x * scale, at) for each, at in zip((victim, read), states, strict=True))
            if not torch.equal(ours, theirs) or not torch.equal(victim.mode(ours), read.mode(theirs)):
                raise VictimError(f"a card cannot say what {victim!r} computes: what it says answers otherwise")
            states = [each.advance(x * scale, at) for each, at in zip((victim, read), states, strict=True)]
