"""What a channel does to actions on their way to the actuators: they come late, or not at all.

Until a first action arrives, the actuators do what they do without one: a continuous action of 0 (or the nearest
bound), the first of discrete ones. What is remembered are the steps that are attacked, so these are meant for every
step (the timing ``always``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from adv_wrappers.core import rng
from adv_wrappers.core.context import Context
from adv_wrappers.core.last_value import last_value, no_last_value, remember_value
from adv_wrappers.core.perturbation import ActionPerturbation, NativePerturbation
from adv_wrappers.errors import ValueRangeError
from adv_wrappers.utils.check_numbers import check_integer, check_number

MOST_DELAY = 1000  # steps


def _idle(x: Tensor, context: Context) -> Tensor:
    """What actuators do without an action, ``[*S]``."""
    low, high = context.space
    return torch.zeros_like(low).clamp(low, high).to(x)


@dataclass(frozen=True)
class ActionDelay(ActionPerturbation, NativePerturbation):
    """The environment receives the action of so many steps before; until there is one, its actuators are idle.

    Args:
        steps: the delay, 1 to 1000.

    Raises:
        ValueRangeError: for any other number.
    """

    name: ClassVar[str] = "action-delay"
    steps: int = 1

    def __post_init__(self) -> None:
        check_integer("steps", self.steps, 1, MOST_DELAY)

    def initial_memory(self, x: Tensor) -> dict[str, Tensor]:
        """The actions under way, oldest first, and how many there are."""
        past = x.unsqueeze(1).expand(-1, self.steps, *x.shape[1:]).contiguous()
        return {"past": past, "count": torch.zeros(len(x), dtype=torch.int64, device=x.device)}

    def __call__(self, x: Tensor, context: Context) -> Tensor:
        memory = context.memory
        assert memory is not None
        past, count = memory["past"].to(x), memory["count"]
        there = (count >= self.steps).to(x.device).view(-1, *(1 for _ in context.shape))
        received = torch.where(there, past[:, 0], _idle(x, context))
        memory["past"] = torch.cat([past[:, 1:], x.unsqueeze(1)], 1).to(memory["past"])
        memory["count"] = (count + 1).clamp(max=self.steps)
        return received


@dataclass(frozen=True)
class ActionLoss(ActionPerturbation, NativePerturbation):
    """Actions are lost with probability ``rate``; the actuators go on with the last that arrived.

    Args:
        rate: the probability, in (0, 1].

    Raises:
        ValueRangeError: for any other rate.
    """

    name: ClassVar[str] = "action-loss"
    rate: float = 0.1

    def __post_init__(self) -> None:
        check_number("rate", self.rate, 0, 1)
        if self.rate == 0:
            raise ValueRangeError("rate must be above 0, got 0: nothing would ever be lost")

    def initial_memory(self, x: Tensor) -> dict[str, Tensor]:
        """The last action that arrived, and whether one has."""
        return no_last_value(x)

    def __call__(self, x: Tensor, context: Context) -> Tensor:
        assert context.memory is not None
        lost = rng.uniform(context.key, (1,), torch.float32).to(x.device) < self.rate
        last = last_value(context.memory, _idle(x, context))
        received = torch.where(lost.view(-1, *(1 for _ in context.shape)), last, x)
        remember_value(context.memory, received)
        return received
