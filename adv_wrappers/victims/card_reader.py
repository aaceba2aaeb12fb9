"""Reading a victim from its card; ``docs/cards.rst`` describes the format.

The observation rule is part of the victim: raw observations enter, ``clip((o - mean) / (std + epsilon))`` is its first
layer. One unit of ``Linf(eps, scale="victim")`` is the card's ``attack.scale`` if it has one (an author who attacks in
standard deviations of the state), else the divisor ``std + epsilon``, so that eps counts normalised observations.
"""

from __future__ import annotations

import functools
import math
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from adv_wrappers.errors import AdvWrappersError, CardError
from adv_wrappers.networks.card_format import Section, Weights, read_card, section
from adv_wrappers.networks.layers_torch_lacks import MinimumCritic, Normalize, dtype_to_normalize
from adv_wrappers.networks.serialization import clip_of
from adv_wrappers.utils.check_numbers import is_integer
from adv_wrappers.utils.untrusted_files import most_numbers
from adv_wrappers.victims.build_card_networks import VictimNetworks, networks_of
from adv_wrappers.victims.module import ModuleVictim, from_module
from adv_wrappers.victims.victim import Select, Victim

# action boxes of Gymnasium's environments that are not [-1, 1]
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
            extra or misshapen weight, values that are not finite, a scale below 0, and a network that does not answer
            with finite numbers to an observation of zeros.
    """
    card = read_card(folder, "victim", max_bytes)
    return victim_of(
        card.about,
        card.tensors,
        card.where,
        select=select,
        device=device,
        dtype=dtype,
        ref=ref or f"card:{folder}",
        most=most_numbers(max_bytes),
    )


def victim_of(
    card: Section,
    tensors: dict[str, Tensor],
    where: str,
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
        where: the folder, for error messages.
        most: limit on the numbers in an observation, and in what a layer answers.
    """
    environment_of(card, where)
    network, observation = (section(card, name, where) for name in ("network", "observation"))
    # float64 until the end: in float32 a tiny std would round before its epsilon is added
    mean, std = _normaliser(observation, where)
    dtype = dtype or (torch.float32 if mean is None or std is None else dtype_to_normalize(mean, std))
    weights = Weights({name: x.to(dtype) if x.is_floating_point() else x for name, x in tensors.items()}, where)
    stated_shape = _stated_shape(card, where, most)
    try:
        rule: nn.Module = nn.Identity()
        if mean is not None and std is not None:
            clip = clip_of(observation.get("clip"), where, "observation.clip")
            rule = Normalize(mean.to(dtype), std.to(dtype), clip)
        nets = networks_of(weights, network, rule, stated_shape, most)
        observed, acted = _spaces(card, nets, where)
        if mean is not None and mean.dim() and mean.shape != observed.shape:
            raise CardError(f"{where}: mean has shape {tuple(mean.shape)}, the network takes {observed.shape}")
        scale = section(card, "attack", where, {}).get("scale")
        unit = std if scale is None else _scale(scale, where)
        if unit is not None:
            unit = unit.expand(observed.shape).clone().to(device)
        action = section(card, "action", where, {})
        squash = _squash(action, acted, where)
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
        victim.squash = squash
        _check_answers(victim, where)
    except CardError:
        raise
    except (AdvWrappersError, RuntimeError, ValueError, TypeError, OverflowError, MemoryError) as error:
        raise CardError(f"{where}: {error!s:.500}") from error
    victim.card = card
    return victim


def _squash(action: Section, acted: spaces.Space[object], where: str) -> str | None:
    """What brings actions into their box; None where nothing but a clip does."""
    squash = action.get("squash")
    if squash is None:
        return None
    if squash not in ("scale", "tanh"):
        raise CardError(f"{where}: action.squash must be 'scale' or 'tanh', got {squash!r:.80}")
    if not isinstance(acted, spaces.Box) or not acted.is_bounded() or action.get("clip"):
        raise CardError(f"{where}: action.squash is for actions in a Box that is bounded, and that are not clipped")
    return str(squash)


@torch.no_grad()
def _check_answers(victim: ModuleVictim, where: str) -> None:
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
                f"{where}: the {name} network must answer with finite numbers, to an observation of zeros it answers "
                f"{answer.flatten().tolist()!s:.80}: are its weights or its normaliser damaged?"
            )


def environment_of(card: Section, where: str = "card") -> tuple[str, dict[str, Any]]:
    """Id and keyword arguments of the card's environment, as ``gym.make`` takes them."""
    environment = section(card, "environment", where)
    name, kwargs = environment.get("id"), environment.get("kwargs", {})
    if not isinstance(name, str) or not isinstance(kwargs, dict):
        raise CardError(
            f"{where}: environment needs a text id and a dictionary kwargs, got {name!r:.80} and {kwargs!r:.80}"
        )
    return name, dict(kwargs)


def _numbers(value: object, name: str, where: str) -> Tensor:
    """A number or list of finite numbers as a float64 tensor."""
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise CardError(f"{where}: {name} must be a number or a list of numbers, got {value!r:.80}") from error
    if not np.isfinite(array).all() or array.ndim > 1:
        raise CardError(f"{where}: {name} must be a number or a list of numbers, all finite")
    return torch.from_numpy(array)


def _scale(value: object, where: str) -> Tensor:
    """The unit of ``scale="victim"``: 0 freezes a feature, and of several one at least may be perturbed."""
    unit = _numbers(value, "attack.scale", where)
    if bool((unit < 0).any()) or not bool((unit > 0).any()):
        raise CardError(f"{where}: attack.scale must be at least 0, and above 0 for some feature, got {value!r:.80}")
    return unit


def _normaliser(observation: Section, where: str) -> tuple[Tensor | None, Tensor | None]:
    mean, std = observation.get("mean"), observation.get("std")
    if (mean is None) != (std is None):
        raise CardError(f"{where}: observation needs both mean and std, or neither")
    if mean is None:
        return None, None
    center, spread = _numbers(mean, "observation.mean", where), _numbers(std, "observation.std", where)
    epsilon = _numbers(observation.get("epsilon", 0.0), "observation.epsilon", where)
    long = center.shape == spread.shape and epsilon.numel() in (1, spread.numel())
    if not long or bool((spread < 0).any()) or bool((spread + epsilon <= 0).any()):
        raise CardError(
            f"{where}: observation.std must be as long as mean ({center.numel()}), at least 0, and above 0 with "
            f"epsilon, one number or as many"
        )
    return center, spread + epsilon


def _entry(card: Section, what: str, where: str) -> Section:
    return section(section(card, "spaces", where, {}), what, where, {})


def _stated_shape(card: Section, where: str, most: int) -> tuple[int, ...]:
    """Shape of observations where it does not follow from the weights: four 84x84 frames unless the card says it."""
    shape = _entry(card, "observation", where).get("shape", [4, 84, 84])
    found = tuple(n for n in shape if is_integer(n) and n > 0) if isinstance(shape, list) else ()
    if not isinstance(shape, list) or len(found) != len(shape) or math.prod(found) > most:
        raise CardError(
            f"{where}: spaces.observation.shape must be a list of positive integers whose product is at most {most} "
            f"(max_bytes= of load_victim raises that), got {shape!r:.80}"
        )
    return found


def _spaces(card: Section, nets: VictimNetworks, where: str) -> tuple[spaces.Box, spaces.Space[object]]:
    """Spaces of one row: from the sizes of the network, with bounds from the optional entry ``spaces``."""
    pixels, entry = len(nets.shape) == 3, _entry(card, "observation", where)
    box: spaces.Box = spaces.Box(0, 255, nets.shape, np.uint8)
    observed = box if pixels else _box(entry, np.inf, nets.shape, np.dtype(np.float64))
    if nets.kind in ("q", "logits"):
        return observed, spaces.Discrete(nets.actions)
    reach = _REACH.get(environment_of(card, where)[0].split("/")[-1].split("-v")[0], 1.0)
    return observed, _box(_entry(card, "action", where), reach, (nets.actions,), np.dtype(np.float32))


def _box(entry: Section, reach: float, shape: tuple[int, ...], dtype: np.dtype[Any]) -> spaces.Box:
    low, high = (
        np.broadcast_to(np.asarray(entry.get(k, d), dtype), shape) for k, d in (("low", -reach), ("high", reach))
    )
    return spaces.Box(low, high, dtype=dtype.type)
