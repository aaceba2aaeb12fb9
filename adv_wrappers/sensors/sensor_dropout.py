"""Dropout of sensors: single numbers of an observation are lost, each by itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from adv_wrappers.core import rng
from adv_wrappers.core.budgets import Budget
from adv_wrappers.core.context import Context
from adv_wrappers.core.last_value import last_value, no_last_value, remember_value
from adv_wrappers.core.perturbation import NativePerturbation
from adv_wrappers.core.spaces import Field
from adv_wrappers.errors import ValueRangeError
from adv_wrappers.sensors.which_sensors import as_features, check_features, only
from adv_wrappers.utils.check_numbers import check_number, is_number
from adv_wrappers.utils.frozen_dataclasses import set_fields


@dataclass(frozen=True)
class SensorDropout(NativePerturbation):
    """At every step each sensor is lost with probability ``rate``, and something else is read in its place.

    Args:
        rate: the probability, in (0, 1].
        fill: what is read in place of what is lost: ``last``, what this sensor read at the last attacked step; or a
            number, or one for every feature (such as the mean of each), drawn into the space.
        features: the indices of the features; None for all.

    Raises:
        ValueRangeError: for a rate out of its range, a fill that is none of these, and what are no indices.
        SpaceError: at wrapping, for features that the observation lacks, and a fill for as many as it has not.
    """

    name: ClassVar[str] = "sensor-dropout"
    rate: float = 0.1
    fill: str | float | tuple[float, ...] = 0.0
    features: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        check_number("rate", self.rate, 0, 1)
        if self.rate == 0:
            raise ValueRangeError("rate must be above 0, got 0: nothing would ever be lost")
        fill = tuple(self.fill) if isinstance(self.fill, (list, tuple)) else self.fill
        numbers = fill if isinstance(fill, tuple) else (fill,)
        if fill != "last" and not (numbers and all(is_number(one) for one in numbers)):
            raise ValueRangeError(f"fill must be 'last', a number or one for every feature, got {self.fill!r:.80}")
        set_fields(self, fill=fill, features=as_features(self.features))

    def check(self, field: Field, within: Budget) -> None:
        super().check(field, within)
        check_features(self.name, self.features, field.shape)
        if isinstance(self.fill, tuple):
            check_features(f"fill of {self.name}", tuple(range(len(self.fill))), field.shape)
            if len(self.fill) < field.low.size:
                raise ValueRangeError(f"fill has {len(self.fill)} numbers, an observation {field.shape} has more")

    def initial_memory(self, x: Tensor) -> dict[str, Tensor] | None:
        """What every sensor read last, and whether there was a step before."""
        return no_last_value(x) if self.fill == "last" else None

    def __call__(self, x: Tensor, context: Context) -> Tensor:
        lost = rng.uniform(context.key, context.shape, torch.float32).to(x.device) < self.rate
        if self.fill != "last":
            return only(self.features, torch.where(lost, self._filled(context).to(x), x), x)
        assert context.memory is not None
        y = only(self.features, torch.where(lost, last_value(context.memory, x), x), x)
        remember_value(context.memory, y)
        return y

    def _filled(self, context: Context) -> Tensor:
        """What is read in place of what is lost, ``[*S]``."""
        low, high = context.space
        numbers = torch.as_tensor(self.fill, dtype=low.dtype, device=low.device)
        return (numbers.view(low.shape) if numbers.dim() else numbers.expand_as(low)).clamp(low, high)
