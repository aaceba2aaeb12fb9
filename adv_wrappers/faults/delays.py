"""Channels between environment and agent: observations and actions that come late, jittered, or not at all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from torch import Tensor

from adv_wrappers.core import rng
from adv_wrappers.core.arrays import broad
from adv_wrappers.core.engine.context import Context
from adv_wrappers.core.perturbation import ActionPerturbation, NativePerturbation
from adv_wrappers.utils.validation import Limits, PositiveShare

# ----------------------------------------------------------------------------------------------------------------------
# What a perturbation remembers of a row: the value of its last attacked step, and whether there was one.
# ----------------------------------------------------------------------------------------------------------------------


def no_last_value(x: Tensor) -> dict[str, Tensor]:
    """The memory before the first attacked step, for values of the shape and dtype of ``x [B, *S]``."""
    return {"last": x, "begun": torch.zeros(len(x), dtype=torch.bool, device=x.device)}


def last_value(memory: dict[str, Tensor], otherwise: Tensor) -> Tensor:
    """The last value of every row, ``[B, *S]``; in rows that have none, ``otherwise``, ``[B, *S]`` or ``[*S]``."""
    last = memory["last"].to(otherwise)
    return torch.where(broad(memory["begun"].to(last.device), last), last, otherwise)


def remember_value(memory: dict[str, Tensor], value: Tensor) -> None:
    """Keep the value of this step, ``[B, *S]``."""
    memory["last"], memory["begun"] = value.to(memory["last"]), torch.ones_like(memory["begun"])


# ----------------------------------------------------------------------------------------------------------------------
# What is under way in a channel: the values of a row's last attacked steps, oldest first.
# ----------------------------------------------------------------------------------------------------------------------


DelaySteps = Annotated[int, Limits(1, 1000)]  # what is under way is kept


def nothing_under_way(x: Tensor, steps: int) -> dict[str, Tensor]:
    """The memory of :func:`under_way` before anything has come in, for values ``x [B, *S]``."""
    past = x.unsqueeze(1).expand(-1, steps + 1, *x.shape[1:]).contiguous()
    return {"past": past, "begun": torch.zeros(len(x), dtype=torch.bool, device=x.device)}


def under_way(memory: dict[str, Tensor], x: Tensor, before: Tensor) -> Tensor:
    """The last values, of which ``x`` is the newest, oldest first, ``[B, steps + 1, *S]``; they are remembered.

    In a row that has not begun all that came earlier is ``before``, ``[B, *S]`` or ``[*S]``.
    """
    newest, past = x.unsqueeze(1), memory["past"].to(x)[:, 1:]
    begun = broad(memory["begun"].to(x.device), newest)
    past = torch.where(begun, past, before.expand_as(x).unsqueeze(1))
    found = torch.cat([past, newest], 1)
    memory["past"], memory["begun"] = found.to(memory["past"]), torch.ones_like(memory["begun"])
    return found


# ----------------------------------------------------------------------------------------------------------------------
# A channel on which values come late, or not at all.
# ----------------------------------------------------------------------------------------------------------------------


class Channel(NativePerturbation):
    """Passes values on, late or not all of them."""

    def before(self, x: Tensor, context: Context) -> Tensor:
        """What is there until a first value arrives, ``[B, *S]`` or ``[*S]``: the first one, unless overridden."""
        return x


@dataclass(frozen=True)
class Delay(Channel):
    """Every value arrives so many steps later.

    Args:
        steps: the delay.
    """

    steps: DelaySteps = 1

    def initial_memory(self, x: Tensor) -> dict[str, Tensor]:
        """The values under way."""
        return nothing_under_way(x, self.steps)

    def __call__(self, x: Tensor, context: Context) -> Tensor:
        assert context.memory is not None
        return under_way(context.memory, x, self.before(x, context))[:, 0]


@dataclass(frozen=True)
class Loss(Channel):
    """Values are lost with probability ``rate``, and the last that arrived stays in their place.

    Args:
        rate: the probability.
    """

    rate: PositiveShare = 0.1

    def initial_memory(self, x: Tensor) -> dict[str, Tensor]:
        """The last value that arrived, and whether one has."""
        return no_last_value(x)

    def __call__(self, x: Tensor, context: Context) -> Tensor:
        assert context.memory is not None
        lost = rng.uniform(context.key, (1,), torch.float32).to(x.device) < self.rate
        last = last_value(context.memory, self.before(x, context))
        arrived = torch.where(broad(lost, x), last, x)
        remember_value(context.memory, arrived)
        return arrived


# ----------------------------------------------------------------------------------------------------------------------
# What a channel does to observations: they come late by a fixed time, by one that varies, or not at all.
#
# What is remembered are the steps that are attacked, so these are meant for every step (the timing ``always``).
# Before an episode has begun nothing is under way: until a later observation arrives, that of the reset is shown.
# ----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ObservationDelay(Delay):
    """The agent is shown the observation of so many steps before; until there is one, that of the reset.

    Args:
        steps: the delay.
    """

    name: ClassVar[str] = "observation-delay"


@dataclass(frozen=True)
class ObservationJitter(NativePerturbation):
    """Every observation is delayed by 0 to ``most`` steps, drawn evenly; the newest that has arrived is shown.

    Args:
        most: the longest delay; that of the reset has none.
    """

    name: ClassVar[str] = "observation-jitter"
    most: DelaySteps = 3

    def initial_memory(self, x: Tensor) -> dict[str, Tensor]:
        """The observations under way, and how long each takes."""
        takes = torch.zeros(len(x), self.most + 1, dtype=torch.int64, device=x.device)
        return {**nothing_under_way(x, self.most), "takes": takes}

    def __call__(self, x: Tensor, context: Context) -> Tensor:
        memory, count = context.memory, self.most + 1
        assert memory is not None
        drawn = (rng.uniform(context.key, (1,), torch.float32).to(x.device) * count).floor().to(torch.int64)
        drawn = torch.where(memory["begun"].to(x.device)[:, None], drawn, 0)
        takes = torch.cat([memory["takes"].to(x.device)[:, 1:], drawn], 1)
        past, memory["takes"] = under_way(memory, x, x), takes.to(memory["takes"])
        places = torch.arange(count, device=x.device)
        newest = torch.where(takes <= self.most - places, places, -1).max(1).values  # the oldest has always arrived
        return past[torch.arange(len(x), device=x.device), newest]


@dataclass(frozen=True)
class ObservationLoss(Loss):
    """Whole observations are lost with probability ``rate``; the agent is shown the last that arrived.

    Args:
        rate: the probability; that of the reset always arrives.
    """

    name: ClassVar[str] = "observation-loss"


# ----------------------------------------------------------------------------------------------------------------------
# What a channel does to actions on their way to the actuators: they come late, or not at all.
#
# Until a first action arrives, the actuators do what they do without one: a continuous action of 0 (or the nearest
# bound), the first of discrete ones. What is remembered are the steps that are attacked, so these are meant for every
# step (the timing ``always``).
# ----------------------------------------------------------------------------------------------------------------------


def _idle(x: Tensor, context: Context) -> Tensor:
    """What actuators do without an action, ``[*S]``."""
    low, high = context.space
    return torch.zeros_like(low).clamp(low, high).to(x)


@dataclass(frozen=True)
class ActionDelay(ActionPerturbation, Delay):
    """The environment receives the action of so many steps before; until there is one, its actuators are idle.

    Args:
        steps: the delay.
    """

    name: ClassVar[str] = "action-delay"

    def before(self, x: Tensor, context: Context) -> Tensor:
        return _idle(x, context)


@dataclass(frozen=True)
class ActionLoss(ActionPerturbation, Loss):
    """Actions are lost with probability ``rate``; the actuators go on with the last that arrived.

    Args:
        rate: the probability.
    """

    name: ClassVar[str] = "action-loss"

    def before(self, x: Tensor, context: Context) -> Tensor:
        return _idle(x, context)
