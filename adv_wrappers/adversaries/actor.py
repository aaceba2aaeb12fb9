"""Actors: what turns an adversary's decision, the steer, into a perturbation.

An adversary that learns does not choose pixels or joints one by one. At every step it chooses a steer, an element of a
small space, and its actor moves the observation accordingly inside the budget. Two adversaries differ in their actors
and in nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from adv_wrappers.core.context import Context
from adv_wrappers.core.perturbation import On, Perturbation
from adv_wrappers.core.values import Value
from adv_wrappers.errors import ThreatError, ValueRangeError

Steers = spaces.Box | spaces.Discrete


class Actor(Value):
    """``(x [B, *S], steer [B, *A], context) -> [B, *S]``; a subclass is a frozen dataclass with a ``name``.

    Attributes:
        victim: whose policy the actor looks at; None until it is filled in.
        direction: whether a steer counts as a direction alone. One that leaves [-1, 1] is then drawn back as a whole,
            and points where it did; where the numbers themselves count, each is clipped.
    """

    on: ClassVar[On] = "observation"
    needs_victim: ClassVar[bool] = True
    victim: Any

    @property
    def direction(self) -> bool:
        """Whether the length of a steer says nothing."""
        return False

    def steer_space(self, shape: tuple[int, ...]) -> Steers:
        """The steers for observations ``[*S]``: a box within [-1, 1], or a number of choices."""
        raise NotImplementedError

    def open(self) -> Actor:
        """The same without its victim."""
        return replace(self, victim=None)  # type: ignore[type-var]

    def against(self, victim: Any) -> Actor:
        """The same with ``victim`` where none was filled in."""
        return self if self.victim is not None else replace(self, victim=victim)  # type: ignore[type-var]

    def __call__(self, x: Tensor, steer: Tensor, context: Context) -> Tensor:
        """The perturbed batch; the engine projects it."""
        raise NotImplementedError


def check_form(form: Any) -> None:
    """Raise :class:`ValueRangeError` unless this is ``direction``, ``target``, or None for an actor's default."""
    if form not in (None, "direction", "target"):
        raise ValueRangeError(f"form must be 'direction' or 'target', got {form!r}")


def check_bounded(name: str, space: spaces.Space[Any]) -> None:
    """Raise :class:`ValueRangeError` for a range of actions without bounds, in which no target can be named."""
    if isinstance(space, spaces.Box) and not space.is_bounded():
        raise ValueRangeError(f"{name} with form='target' needs bounded actions, got {space}: take form='direction'")


def goal_of(space: spaces.Box, steer: Tensor, stretch: float = 1.0) -> Tensor:
    """Steers ``[B, D]`` in [-1, 1] as actions ``[B, D]``: 1 is the end of the range, or ``stretch`` half-ranges."""
    low, high = (torch.as_tensor(end, dtype=steer.dtype, device=steer.device) for end in (space.low, space.high))
    low, high = low.view(-1), high.view(-1)
    return (low + high) / 2 + stretch * steer * (high - low) / 2


def unit_box(*shape: int) -> spaces.Box:
    """[-1, 1] of a shape, float32."""
    return spaces.Box(-1.0, 1.0, shape, np.float32)


def within_box(steer: Tensor, direction: bool) -> Tensor:
    """Steers ``[B, *A]``, floats, within [-1, 1]; those that are already there come back to the bit.

    Args:
        direction: a row is divided by its largest absolute number, if that is above 1, and keeps its direction; else
            every number is clipped.
    """
    if not direction or not steer.numel():
        return steer.clamp(-1.0, 1.0)
    largest = steer.flatten(1).abs().amax(-1).clamp(min=1.0)
    return steer / largest.view(-1, *[1] * (steer.dim() - 1))


def check_steers(steer: Tensor, space: Steers, rows: int, direction: bool = False) -> Tensor:
    """Steers ``[rows, *A]`` as an actor takes them: int64 choices, or floats in [-1, 1] in their own dtype.

    Floats beyond are brought there by :func:`within_box`, which ``direction`` is meant for. Whole numbers in place of a
    box's floats become float32. Values are looked at on the processor only: on other devices that would hold up every
    strike.

    Raises:
        ValueRangeError: for another shape or kind of number, choices that there are not, and numbers that are not
            finite.
    """
    shape, host = (rows, *(space.shape or ())), steer.device.type == "cpu"
    if tuple(steer.shape) != shape:
        raise ValueRangeError(f"expected steers of shape {shape}, got {tuple(steer.shape)}")
    if isinstance(space, spaces.Discrete):
        whole = not (steer.is_floating_point() or steer.is_complex() or steer.dtype == torch.bool)
        choice = steer.to(torch.int64) if whole else None  # comparisons know no unsigned 64 bits
        if choice is None or (host and bool(((choice < 0) | (choice >= int(space.n))).any())):
            raise ValueRangeError(f"expected whole numbers below {space.n} as steers, got {steer!r:.80}")
        return choice
    if steer.is_complex() or (host and not bool(torch.isfinite(steer).all())):
        raise ValueRangeError(f"expected finite steers, within [-1, 1], got {steer!r:.80}")
    return within_box(steer if steer.is_floating_point() else steer.float(), direction)


@dataclass(frozen=True)
class Steered(Perturbation):
    """An actor whose steers come from outside, a row at a time: what an adversary's environment strikes with.

    They wait in the layer's memory, under ``steer``, so that each row finds its own.

    Args:
        actor: what turns a steer into a perturbation.
        shape: of the observations, ``[*S]``.
    """

    name: ClassVar[str] = "steered"
    actor: Any
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.actor, Actor):
            raise ThreatError(f"expected an actor such as SARL() or PAAD(victim), got {self.actor!r}")
        object.__setattr__(self, "on", self.actor.on)
        object.__setattr__(self, "search", self.actor.on == "observation")  # every action may be taken

    @property
    def victim(self) -> Any:
        """The actor's."""
        return self.actor.victim

    def initial_memory(self, rows: int) -> dict[str, Tensor]:
        space = self.actor.steer_space(self.shape)
        if isinstance(space, spaces.Discrete):
            return {"steer": torch.zeros(rows, dtype=torch.int64)}
        return {"steer": torch.zeros(rows, *space.shape)}

    def __call__(self, x: Tensor, context: Context) -> Tensor:
        assert context.memory is not None
        return self.actor(x, context.memory["steer"].to(x.device), context)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Unmoved(Perturbation):
    """Nothing: what stands for the observations of an adversary that acts on actions alone."""

    name: ClassVar[str] = "unmoved"

    def __call__(self, x: Tensor, context: Context) -> Tensor:
        return x
