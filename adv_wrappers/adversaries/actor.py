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
from adv_wrappers.core.errors import ThreatError, ValueRangeError
from adv_wrappers.core.perturbation import On, Perturbation
from adv_wrappers.core.values import Value

Steers = spaces.Box | spaces.Discrete


class Actor(Value):
    """``(x [B, *S], steer [B, *A], context) -> [B, *S]``; a subclass is a frozen dataclass with a ``name``.

    Attributes:
        victim: whose policy the actor looks at; None until it is filled in.
    """

    on: ClassVar[On] = "observation"
    needs_victim: ClassVar[bool] = True
    victim: Any

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


def goal_of(space: spaces.Box, steer: Tensor, stretch: float = 1.0) -> Tensor:
    """Steers ``[B, D]`` in [-1, 1] as actions ``[B, D]``: 1 is the end of the range, or ``stretch`` half-ranges."""
    low, high = (torch.as_tensor(end, dtype=steer.dtype, device=steer.device) for end in (space.low, space.high))
    low, high = low.view(-1), high.view(-1)
    return (low + high) / 2 + stretch * steer * (high - low) / 2


def unit_box(*shape: int) -> spaces.Box:
    """[-1, 1] of a shape, float32."""
    return spaces.Box(-1.0, 1.0, shape, np.float32)


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
