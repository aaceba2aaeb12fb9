"""Swapped channels: two sensors that were plugged in the wrong way round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from adv_wrappers.core.budgets import Budget
from adv_wrappers.core.context import Context
from adv_wrappers.core.perturbation import NativePerturbation
from adv_wrappers.core.spaces import Field
from adv_wrappers.errors import ValueRangeError
from adv_wrappers.sensors.which_sensors import as_features, check_features
from adv_wrappers.utils.frozen_dataclasses import set_fields


@dataclass(frozen=True)
class SwappedSensors(NativePerturbation):
    """The features at the indices ``features`` are shown in each other's place, in a circle where there are several.

    Args:
        features: two indices or more: the first is shown where the second belongs, and so on.

    Raises:
        ValueRangeError: for fewer than two indices.
        SpaceError: at wrapping, for features that the observation lacks.
    """

    name: ClassVar[str] = "swapped-sensors"
    features: tuple[int, ...] | None = (0, 1)

    def __post_init__(self) -> None:
        found = as_features(self.features)
        if found is None or len(found) < 2:
            raise ValueRangeError(
                f"features to swap are two indices or more (0;1 in a text), got {self.features!r:.80}"
            )
        set_fields(self, features=found)

    def check(self, field: Field, within: Budget) -> None:
        super().check(field, within)
        check_features(self.name, self.features, field.shape)

    def __call__(self, x: Tensor, context: Context) -> Tensor:
        assert self.features is not None
        shown, y = list(self.features), x.clone().flatten(1)
        y[:, [*shown[1:], shown[0]]] = x.flatten(1)[:, shown]
        return y.view(x.shape)
