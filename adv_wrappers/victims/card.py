"""Cards: folders with ``card.json`` and ``weights.safetensors`` that hold a victim, written and read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, cast, get_args

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from adv_wrappers.errors import CardError, VictimError
from adv_wrappers.networks.card import TRUNK, Card, Layers, Section, describe, kinds, output_shape, section
from adv_wrappers.networks.graph import flattened
from adv_wrappers.networks.policy_layers import ActionValue, MinimumCritic, Normalize, dtype_to_normalize
from adv_wrappers.networks.recurrent import RecurrentActor, RecurrentValue
from adv_wrappers.networks.tracing import layers_in_order
from adv_wrappers.utils.checks import check_choice
from adv_wrappers.utils.reading import decoding, most_numbers
from adv_wrappers.victims.modules.module import ModuleVictim, VictimNetworks, from_module
from adv_wrappers.victims.modules.probe import random_rows
from adv_wrappers.victims.victim import OutputKind, Select, Victim

# ----------------------------------------------------------------------------------------------------------------------
# Reading a victim from its card; ``docs/cards.rst`` describes the format.
#
# The observation rule is part of the victim: raw observations enter, ``clip((o - mean) / (std + epsilon))`` is its
# first layer. One unit of ``Linf(eps, scale="victim")`` is the card's ``attack.scale`` if it has one (an author who
# attacks in standard deviations of the state), else the divisor ``std + epsilon``, so that eps counts normalised
# observations.
# ----------------------------------------------------------------------------------------------------------------------


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
        CardError: for a file that is missing, truncated, too large or malformed, an unknown layer, a missing, extra or
            misshapen weight, values that are not finite, and a network that does not answer with finite numbers to an
            observation of zeros.
    """
    card = Card.read(folder, "victim", max_bytes)
    how: dict[str, Any] = {"select": select, "device": device, "dtype": dtype, "ref": ref or f"card:{folder}"}
    with decoding(folder):
        return victim_of(card, most=most_numbers(max_bytes), **how)


def victim_of(
    card: Card,
    *,
    select: Select | None = None,
    device: torch.device | str = "cpu",
    dtype: torch.dtype | None = None,
    ref: str | None = None,
    most: int = most_numbers(None),
) -> Victim:
    """The victim that a card describes; see :func:`load_card`.

    Args:
        card: the card.
        most: limit on the numbers in an observation, and in what a layer answers.
    """
    about = card.about
    environment_of(about)
    observation, action = section(about, "observation"), section(about, "action", {})
    # float64 until the end: in float32 a tiny std would round before its epsilon is added
    mean, std = _normaliser(observation)
    dtype = dtype or (torch.float32 if mean is None or std is None else dtype_to_normalize(mean, std))
    rule: nn.Module = nn.Identity()
    if mean is not None and std is not None:
        clip = observation.get("clip")
        rule = Normalize(mean.to(dtype), std.to(dtype), None if clip is None else float(_numbers(clip)))
    # the networks, whose weights have to be all that the file holds
    parts = {name: net.to(dtype) for name, net in card.networks().items()}
    card.weights.finish()
    # the spaces: sizes are compared with the limit before anything of them is made
    shape = tuple(cast(list[int], _entry(about, "observation").get("shape", ())))
    if not 0 < math.prod(shape) <= most:
        raise CardError(f"observations {shape} have more than {most} numbers (max_bytes= raises that), or none")
    output: Any = card.network.get("output")
    check_choice("output", output, get_args(OutputKind), error=CardError)
    observed, acted = _spaces(about, shape, output, _actions(parts, output, shape, most))
    nets = _networks_behind(rule, parts, output, acted)
    # an attacker's unit is the normaliser's divisor, unless the card says another one
    scale = section(about, "attack", {}).get("scale")
    unit = std if scale is None else _numbers(scale)
    if unit is not None:
        unit = unit.expand(observed.shape).clone().to(device)
    # the victim takes the networks, and has to answer with as many finite numbers as it says
    victim = ModuleVictim(
        observed,
        acted,
        nets.kind,
        select=select or cast(Select, action.get("select", "mode")),
        device=device,
        dtype=dtype,
        ref=ref,
        scale=unit,
    )
    victim.clip, nets.squash = bool(action.get("clip", False)), _squash(action, acted)
    victim.from_zero = action.get("from_zero", False) is True
    victim.take(nets)
    _check_answers(victim)
    victim.card = about
    return victim


def _actions(parts: Mapping[str, nn.Sequential], output: OutputKind, shape: tuple[int, ...], most: int) -> int:
    """How many actions there are, or how many numbers one is, by what the policy answers to observations ``shape``.

    Raises:
        CardError: for networks that answer otherwise.
    """
    (numbers,) = output_shape(parts["policy"], shape, most)
    actions, left = divmod(numbers, 2 if output == "gaussian" else 1)
    both = {name: shape if name == "value" else (shape[0] + actions,) for name in parts}
    others = [name for name in parts if name not in ("policy", TRUNK)]
    if left or any(output_shape(parts[name], both[name], most) != (1,) for name in others):
        raise CardError("policy must answer with numbers for each action, and all other networks with one number")
    return actions


def _networks_behind(
    rule: nn.Module, parts: Mapping[str, nn.Sequential], output: OutputKind, acted: spaces.Space[object]
) -> VictimNetworks:
    """What a victim is made of: the networks of a card behind its observation rule."""
    nets = VictimNetworks(_behind(rule, parts["policy"]), output)
    if "value" in parts:
        nets.value = _behind(rule, parts["value"])
    if any(isinstance(layer, nn.LSTM) for part in parts.values() for layer in part):
        _make_recurrent(nets, rule, parts)
    # critics see normalised observations as well
    for name in {"critic", "robust_sarsa"} & parts.keys():
        setattr(nets, name, ActionValue(rule, parts[name]))
    critics = [part for name, part in parts.items() if name.startswith("critics.")]
    if critics and isinstance(acted, spaces.Box):
        nets.critic = MinimumCritic(rule, critics, *map(torch.as_tensor, (acted.low, acted.high)))
    return nets


def _behind(rule: nn.Module, net: nn.Sequential) -> nn.Sequential:
    """A network behind the rule; where it begins with the trunk, its layers follow that one by one."""
    return nn.Sequential(rule, *(net if isinstance(next(iter(net), None), nn.Sequential) else [net]))


def _make_recurrent(nets: VictimNetworks, rule: nn.Module, parts: Mapping[str, nn.Sequential]) -> None:
    """Give networks with an LSTM among their layers the state of one."""
    # each network in three: what comes before its LSTM, the LSTM, and what comes after
    split = dict[str, tuple[nn.Sequential, nn.LSTM | None, nn.Sequential]]()
    for name in {"policy", "value"} & parts.keys():
        layers = list(parts[name])
        found = [(i, layer) for i, layer in enumerate(layers) if isinstance(layer, nn.LSTM)]
        if len(found) > 1:
            raise CardError(f"policy and value may have one lstm among their layers, {name} has {len(found)}")
        at, only = found[0] if found else (-1, None)
        split[name] = nn.Sequential(rule, *layers[: max(at, 0)]), only, nn.Sequential(*layers[at + 1 :])
    features, lstm, head = split["policy"]
    if lstm is None:
        raise CardError("value has an lstm among its layers, and policy has none")
    # a state value has an LSTM of its own, or none
    before, own, valued = split.get("value", (None, None, None))
    nets.net = RecurrentActor(features, lstm, head, None if before is None or own is None else (before, own))
    if before is not None and valued is not None:
        nets.value = RecurrentValue(before, own, None, valued, own is not None)


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
    # critics are asked about an action of zeros
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


def _spaces(
    card: Section, shape: tuple[int, ...], output: OutputKind, actions: int
) -> tuple[spaces.Box, spaces.Space[object]]:
    """Spaces of one row: from the sizes of the networks, with bounds from the entry ``spaces``."""
    observed: spaces.Box = spaces.Box(0, 255, shape, np.uint8)
    if len(shape) != 3:
        unbounded: Section = {"low": -np.inf, "high": np.inf}
        observed = _box(unbounded | _entry(card, "observation"), shape, np.dtype(np.float64))
    if output in ("q", "logits"):
        return observed, spaces.Discrete(actions)
    return observed, _box(_entry(card, "action"), (actions,), np.dtype(np.float32))


def _box(entry: Section, shape: tuple[int, ...], dtype: np.dtype[Any]) -> spaces.Box:
    """A box with the bounds of an entry, in which null says that there is none."""
    low, high = (np.broadcast_to(np.asarray(entry[end], dtype), shape) for end in ("low", "high"))
    low, high = np.where(np.isnan(low), -np.inf, low), np.where(np.isnan(high), np.inf, high)
    return spaces.Box(low, high, dtype=dtype.type)


# ----------------------------------------------------------------------------------------------------------------------
# Writing a victim as a card, for what the format can say; ``docs/cards.rst`` is its description.
#
# A card is read back before it is written: its victim must answer as the one that is saved, to the bit.
# ----------------------------------------------------------------------------------------------------------------------


_OWN = ("format", "role", "environment", "network", "observation", "action", "attack", "spaces", "weights_sha256")


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
    # a victim says all of this itself, a module is made one by what is given
    taken = sorted(set(about) & set(_OWN))
    if taken:
        raise CardError(f"{', '.join(taken)} of a card follows from the victim, and cannot be given")
    if not isinstance(victim, Victim):
        victim = _victim(victim, observation_space, action_space, kind, observation, select, clip, value)
    elif any(given is not None for given in (observation_space, action_space, kind, observation, select, value)):
        raise VictimError("spaces, kind, observation, select and value go with a module: a victim has its own")
    # what was written is read back and compared before anything is on disk
    name, kwargs = (environment, {}) if isinstance(environment, str) else environment
    parts, networks = _parts(victim)
    card = Card.of("victim", {"environment": {"id": name, "kwargs": dict(kwargs)}, **parts, **about}, networks, {})
    card = replace(card, tensors={key: _stored(key, x.detach().cpu(), stored) for key, x in card.tensors.items()})
    _compare(victim, victim_of(card, dtype=victim.dtype))
    card.write(folder)
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
        # the rule of normalised observations becomes the first layer of both networks
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


def _parts(victim: Victim) -> tuple[Section, Mapping[str, Layers]]:
    """The sections ``network``, ``observation``, ``action``, ``spaces`` and ``attack``, and the networks by name."""
    space, acted = victim.observation_space, victim.action_space
    # what a card has no words for is refused
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
    # the sections, of which those at their defaults are left out
    networks, rule = _networks(victim)
    action: Section = {"select": victim.select}
    bounds: Section = {"observation": {"shape": list(space.shape)}}
    if victim.from_zero and not isinstance(acted, spaces.Box):
        action["from_zero"] = True
    if isinstance(acted, spaces.Box):
        action["clip"] = squash == "clip" or bool(getattr(victim, "clip", False))
        action |= {"squash": squash} if squash in ("scale", "tanh") else {}
        bounds["action"] = {
            end: [bound if math.isfinite(bound) else None for bound in getattr(acted, end).tolist()]
            for end in ("low", "high")
        }
    observation, attack = _observation(victim, rule)
    about: Section = {"network": {"output": victim.kind}, "observation": observation, "action": action}
    about |= {"spaces": bounds} | ({"attack": attack} if attack else {})
    return about, networks if victim.recurrent else _with_trunk(networks, cast(nn.Module, getattr(victim, "net", None)))


def _observation(victim: Victim, rule: Normalize | None) -> tuple[Section, Section]:
    """The rule in float64, and the attacker's unit where it is not its divisor."""
    unit: Tensor | None = None if victim.scale is None else victim.scale.detach().double().cpu()
    observation: Section = {"mean": None, "std": None, "clip": None, "rule": "raw"}
    if rule is not None:
        # the attacker's unit is not written a second time where it is the divisor
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


def _networks(victim: Victim) -> tuple[dict[str, list[nn.Module]], Normalize | None]:
    """The layers of every network by its name in a card, without the observation rule that they have in common."""
    flat = len(victim.observation_space.shape or ()) == 1
    found = dict[str, tuple[Normalize | None, list[nn.Module]]]()
    # policy and value: layers in a row, the first of which may be the observation rule
    for name, net in (("policy", getattr(victim, "net", None)), ("value", getattr(victim, "value_net", None))):
        if net is not None or name == "policy":
            first, *rest = _layers_of(net, flat, victim.recurrent, name == "policy")
            ruled = isinstance(first, Normalize) and first.mean.dim() <= 1
            found[name] = (cast(Normalize, first), rest) if ruled else (None, [first, *rest])
    # critics: one list of layers, or several of which the least counts
    for name, critic in (("critic", victim.critic), ("robust_sarsa", victim.robust_sarsa)):
        if isinstance(critic, MinimumCritic):
            rule = _rule_of(critic.features)
            found |= {f"critics.{i}": (rule, _layers_of(head, flat)) for i, head in enumerate(critic.heads)}
        elif isinstance(critic, ActionValue):
            found[name] = _rule_of(critic.normalise), _layers_of(critic.net, flat)
        elif critic is not None:
            raise VictimError(
                f"a card holds critics of layers in a row on observation and action, got {critic!s:.300}: "
                f"victim.{name} = None leaves it out, and with it the attacks that need it"
            )
    # a rule that all have in common is written once, in the section of observations
    rules = [rule for rule, _ in found.values()]
    if rules[0] is not None and all(rule is not None and _same(rule, rules[0]) for rule in rules):
        return {name: layers for name, (_, layers) in found.items()}, rules[0]
    if found.keys() - {"policy", "value"} and any(rule is not None for rule in rules):
        raise VictimError("a card holds one observation rule for all of its networks")
    return {name: layers if rule is None else [rule, *layers] for name, (rule, layers) in found.items()}, None


def _rule_of(before: nn.Module) -> Normalize | None:
    """The observation rule before a critic."""
    layers = layers_in_order(before)
    found = None if layers is None else [layer for layer in layers if not isinstance(layer, nn.Flatten)]
    if found is None or len(found) > 1 or not all(isinstance(layer, Normalize) for layer in found):
        raise VictimError(f"a card holds critics of layers in a row behind an observation rule, got {before!s:.300}")
    return cast(Normalize, found[0]) if found else None


def _layers_of(net: object, flat: bool, recurrent: bool = False, pairs: bool = False) -> list[nn.Module]:
    """The layers of a network one after the other; on ``flat`` observations, a Flatten among them does nothing.

    Raises:
        VictimError: for a network that is no sequence of layers that can be written.
    """
    if isinstance(net, (RecurrentActor, RecurrentValue)):
        parts = net.parts
    else:  # another network with a state is no sequence, whatever a trace without a state would find
        parts = [net] if isinstance(net, nn.Module) and not recurrent else []
    found = [layers_in_order(part, pairs) for part in parts]
    layers = [layer for some in found for layer in some or [] if not (flat and isinstance(layer, nn.Flatten))]
    if not layers or None in found:
        remember = ", of a recurrent victim with one LSTM among them" if recurrent else ""
        raise VictimError(
            f"a card holds networks of layers in a row ({', '.join(kinds())}){remember}, got {net!s:.300}"
        )
    return layers


def _same(a: nn.Module, b: nn.Module) -> bool:
    """Whether two layers are written alike, and have equal weights."""
    (one, first), (other, second) = describe([a], ""), describe([b], "")
    return one == other and all(torch.equal(tensor, second[name]) for name, tensor in first.items())


def _with_trunk(networks: Mapping[str, list[nn.Module]], net: nn.Module) -> Mapping[str, Layers]:
    """The same networks, with what policy and value begin with written once, where it has weights.

    Where they share nothing, the trunk is the ``Sequential`` that the policy ``net`` begins with, if it does: so the
    victim of a card that is saved again has the same fingerprint.
    """
    policy, value = networks["policy"], networks.get("value", [])
    pairs = enumerate(zip(policy, value, strict=False))
    # the layers that policy and value have in common, from the first on
    shared = next((i for i, (a, b) in pairs if not _same(a, b)), min(len(policy), len(value)))
    if any(layer.state_dict() for layer in policy[:shared]):
        heads = ["policy", "value"]
    else:
        # layers without weights say nothing: then the trunk is a Sequential of its own that the policy begins with
        own = next((list(flattened(part)) for part in net.children() if type(part) is nn.Sequential), [])
        heads, shared = ["policy"], len(own)
        if not 0 < len(own) < len(policy) or any(a is not b for a, b in zip(own, policy, strict=False)):
            return networks
    return {TRUNK: policy[:shared], **networks, **{name: [TRUNK, *networks[name][shared:]] for name in heads}}


@torch.no_grad()
def _compare(victim: Victim, read: Victim) -> None:
    """Raise :class:`VictimError` unless both answer the same, without drawing a random number."""
    if read.action_space != victim.action_space or read.observation_space.shape != victim.observation_space.shape:
        raise VictimError(f"a card would hold {read!r}, this is {victim!r}")
    if victim.device.type != "cpu":
        return  # other devices round differently
    rows = random_rows(victim.observation_space, victim.device, victim.dtype)
    for scale in (1.0, 100.0):  # so that actions are clipped, too
        states = [each.initial_state(3) for each in (victim, read)]
        for seed in range(2 if victim.recurrent else 1):  # at the second step the state is no longer that of the start
            x = scale * rows(seed, 3)
            ours, theirs = (each.params(x, at) for each, at in zip((victim, read), states, strict=True))
            if not torch.equal(ours, theirs) or not torch.equal(victim.mode(ours), read.mode(theirs)):
                raise VictimError(f"a card cannot say what {victim!r} computes: what it says answers otherwise")
            states = [each.advance(x, at) for each, at in zip((victim, read), states, strict=True)]
