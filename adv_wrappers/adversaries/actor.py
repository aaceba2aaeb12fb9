"""Actors: what turns an adversary's action into a perturbation.

An adversary that learns does not choose pixels or joints one by one. At every step it chooses an element of a small
space, and its actor perturbs the observation (or the victim's action) accordingly, inside the budget. Two adversaries
differ in their actors and in nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from adv_wrappers.core.arrays import broad
from adv_wrappers.core.budgets.budget import Budget
from adv_wrappers.core.engine.context import Context
from adv_wrappers.core.perturbation import (
    DecliningPerturbation,
    Effect,
    On,
    Perturbation,
    check_bounded_set,
    discrete_observation,
)
from adv_wrappers.core.spaces import At, Field
from adv_wrappers.core.types import Space
from adv_wrappers.errors import ThreatError, ValueRangeError

ActorSpace = spaces.Box | spaces.Discrete


class Actor(Effect):
    """``(x [B, *S], action [B, *A], context) -> [B, *S]``; a subclass is a frozen dataclass with a ``name``.

    Attributes:
        victim: the victim whose policy the actor uses; None until it is filled in.
        direction: whether the adversary's action counts as a direction alone. One beyond [-1, 1] is then scaled back as
            a whole and keeps its direction; where the numbers themselves count, each is clipped.
    """

    victim: Any

    @property
    def at(self) -> At:
        """Of an actor on the dynamics the parameters that it changes, else None."""
        return None

    @property
    def parts(self) -> Mapping[On, tuple[Actor, Budget | None]]:
        """What acts in the layer on each, and its budget where that is not the threat's own."""
        return {self.on: (self, None)}

    @property
    def needs_victim(self) -> bool:
        """Whether it cannot work without a victim."""
        return True

    @property
    def direction(self) -> bool:
        """Whether the length of an action has no meaning."""
        return False

    @property
    def label(self) -> str:
        """What tables call it."""
        return self.name

    def action_space(self, shape: tuple[int, ...]) -> ActorSpace:
        """The adversary's action space: a box within [-1, 1], or a number of choices.

        Args:
            shape: of an observation, ``[*S]``; for an actor on the dynamics that of the parameters, ``[n]``.
        """
        raise NotImplementedError

    def open(self) -> Actor:
        """The same without its victim."""
        return replace(self, victim=None)  # type: ignore[type-var]

    def against(self, victim: Any) -> Actor:
        """The same with ``victim`` where none was filled in."""
        return self if self.victim is not None else replace(self, victim=victim)  # type: ignore[type-var]

    def check(self, field: Field, within: Budget) -> None:
        """On observations and the dynamics it reaches all of its budget, which must then be bounded."""
        if self.on != "action":
            if field.discrete:
                raise discrete_observation(self.name, field)
            check_bounded_set(self.name, field, within)

    def accepts(self, x: Tensor, action: Tensor, context: Context) -> Tensor:
        """Rows that the actions ``[B]`` attack, bool ``[B]``; the others are left alone (``declines``)."""
        return torch.ones(len(x), dtype=torch.bool, device=x.device)

    def __call__(self, x: Tensor, action: Tensor, context: Context) -> Tensor:
        """The perturbed batch; the engine projects it."""
        raise NotImplementedError


class ActionActor(Actor):
    """An actor on the actions of the victim."""

    @property
    def on(self) -> On:
        return "action"


ActorForm = Literal["direction", "target"]  # what an action names


def check_bounded(name: str, space: Space) -> None:
    """Raise :class:`ValueRangeError` for a range of actions without bounds, in which no target can be named."""
    if isinstance(space, spaces.Box) and not space.is_bounded():
        raise ValueRangeError(f"{name} with form='target' needs bounded actions, got {space}: take form='direction'")


def scale_to_range(space: spaces.Box, action: Tensor, stretch: float = 1.0) -> Tensor:
    """Numbers ``[B, D]`` in [-1, 1] as actions ``[B, D]`` of a space.

    Args:
        space: the space; 0 is the middle of its range.
        action: the adversary's action.
        stretch: the distance from the middle that 1 stands for, in half-ranges.
    """
    low, high = (torch.as_tensor(end, dtype=action.dtype, device=action.device) for end in (space.low, space.high))
    low, high = low.view(-1), high.view(-1)
    return (low + high) / 2 + stretch * action * (high - low) / 2


def unit_box(*shape: int) -> spaces.Box:
    """[-1, 1] of a shape, float32."""
    return spaces.Box(-1.0, 1.0, shape, np.float32)


def fit_unit_box(action: Tensor, direction: bool) -> Tensor:
    """Actions ``[B, *A]``, floats, brought into [-1, 1]; those that are already there come back to the bit.

    Args:
        action: the adversary's actions.
        direction: a row is divided by its largest absolute number, if that is above 1, and keeps its direction; else
            every number is clipped.
    """
    if not direction or not action.numel():
        return action.clamp(-1.0, 1.0)
    largest = action.flatten(1).abs().amax(-1).clamp(min=1.0)
    return action / broad(largest, action)


def check_actions(action: Tensor, space: ActorSpace, rows: int, direction: bool = False) -> Tensor:
    """The adversary's actions ``[rows, *A]`` as an actor takes them: int64 choices, or floats in [-1, 1].

    Floats keep their dtype; integers in place of a box's floats become float32. Values are checked on the CPU only: on
    other devices the check would hold up every attack.

    Args:
        action: the adversary's actions.
        space: the actor's action space.
        rows: the number of rows that is expected.
        direction: how floats beyond [-1, 1] are brought there, see :func:`fit_unit_box`.

    Raises:
        ValueRangeError: for another shape or kind of number, choices out of range, and numbers that are not
            finite.
    """
    shape, host = (rows, *(space.shape or ())), action.device.type == "cpu"
    if tuple(action.shape) != shape:
        raise ValueRangeError(f"expected actions of shape {shape}, got {tuple(action.shape)}")
    # choices: whole numbers, and on the host also in their range
    if isinstance(space, spaces.Discrete):
        whole = not (action.is_floating_point() or action.is_complex() or action.dtype == torch.bool)
        choice = action.to(torch.int64) if whole else None  # comparisons know no unsigned 64 bits
        if choice is None or (host and bool(((choice < 0) | (choice >= int(space.n))).any())):
            raise ValueRangeError(f"expected integers below {space.n} as actions, got {action!r:.80}")
        return choice
    # floats of a box
    if action.is_complex() or (host and not bool(torch.isfinite(action).all())):
        raise ValueRangeError(f"expected finite actions, within [-1, 1], got {action!r:.80}")
    return fit_unit_box(action if action.is_floating_point() else action.float(), direction)


class ActorPerturbation(DecliningPerturbation):
    """A perturbation by an actor, which says for it what it attacks and how; a subclass chooses the actor's actions.

    Attributes:
        actor: turns an action into a perturbation, a field of the subclass.
    """

    actor: Any

    @property
    def within(self) -> Budget | None:
        return self.actor.within  # type: ignore[no-any-return]

    @property
    def on(self) -> On:
        return self.actor.on  # type: ignore[no-any-return]

    @property
    def at(self) -> At:
        """Of an actor on the dynamics the parameters that it changes, else None."""
        return self.actor.at  # type: ignore[no-any-return]

    @property
    def needs_victim(self) -> bool:
        return self.actor.needs_victim  # type: ignore[no-any-return]

    @property
    def declines(self) -> bool:
        return self.actor.declines  # type: ignore[no-any-return]

    @property
    def native(self) -> bool:
        return self.actor.native  # type: ignore[no-any-return]

    @property
    def simulates(self) -> bool:
        return self.actor.simulates  # type: ignore[no-any-return]

    @property
    def victim(self) -> Any:
        """The actor's victim."""
        return self.actor.victim

    def check(self, field: Field, within: Budget) -> None:
        self.actor.check(field, within)

    def accepts(self, x: Tensor, context: Context) -> Tensor:
        return self.actor.accepts(x, self._action(x, context), context)  # type: ignore[no-any-return]

    def __call__(self, x: Tensor, context: Context) -> Tensor:
        return self.actor(x, self._action(x, context), context)  # type: ignore[no-any-return]

    def _action(self, x: Tensor, context: Context) -> Tensor:
        """The actor's actions ``[B, *A]``; the same ones whenever they are asked for at one step."""
        raise NotImplementedError


@dataclass(frozen=True)
class ActionsFromOutside(ActorPerturbation):
    """An actor whose actions come from outside: the perturbation of an adversary environment.

    The actions are written to the layer's memory, under ``action``, where each row finds its own.

    Args:
        actor: turns an action into a perturbation.
        shape: as for :meth:`Actor.action_space`.
    """

    name: ClassVar[str] = "adversary"
    actor: Any
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.actor, Actor):
            raise ThreatError(f"expected an actor such as SARL() or PAAD(victim), got {self.actor!r}")

    def initial_memory(self, x: Tensor) -> dict[str, Tensor]:
        space = self.actor.action_space(self.shape)
        if isinstance(space, spaces.Discrete):
            return {"action": torch.zeros(len(x), dtype=torch.int64)}
        return {"action": torch.zeros(len(x), *space.shape)}

    def _action(self, x: Tensor, context: Context) -> Tensor:
        assert context.memory is not None
        return context.memory["action"].to(x.device)


@dataclass(frozen=True)
class Unperturbed(Perturbation):
    """The identity: the observations of an adversary that perturbs actions alone."""

    name: ClassVar[str] = "unperturbed"

    def __call__(self, x: Tensor, context: Context) -> Tensor:
        return x
