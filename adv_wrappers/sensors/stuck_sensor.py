"""A sensor that sticks: it reads what it read when the fault began."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from adv_wrappers.core.budgets import Budget
from adv_wrappers.core.context import Context
from adv_wrappers.core.last_value import last_value, no_last_value, remember_value
from adv_wrappers.core.perturbation import NativePerturbation
from adv_wrappers.core.spaces import Field
from adv_wrappers.sensors.which_sensors import as_features, check_features, only
from adv_wrappers.utils.frozen_dataclasses import set_fields


@dataclass(frozen=True)
class StuckSensor(NativePerturbation):
    """Sensors read what they read at the first step of the episode that is attacked.

    That is the reset's observation, unless the timing begins later: ``when=window(100,200)`` sticks for a hundred steps
    at what was true in step 100.

    Args:
        features: the indices of the features; None for all.

    Raises:
        ValueRangeError: for what are no indices.
        SpaceError: at wrapping, for features that the observation lacks.
    """

    name: ClassVar[str] = "stuck-sensor"
    features: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        set_fields(self, features=as_features(self.features))

    def check(self, field: Field, within: Budget) -> None:
        super().check(field, within)
        check_features(self.name, self.features, field.shape)

    def initial_memory(self, x: Tensor) -> dict[str, Tensor]:
        """What is read, and whether the fault has begun."""
        return no_last_value(x)

    def __call__(self, x: Tensor, context: Context) -> Tensor:
        assert context.memory is not None
        read = last_value(context.memory, x)
        remember_value(context.memory, read)
        return only(self.features, read, x)
