"""Saturation: a sensor that reads no less and no more than its ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from adv_wrappers.core.budgets import Budget
from adv_wrappers.core.context import Context
from adv_wrappers.core.perturbation import NativePerturbation, discrete_observation
from adv_wrappers.core.spaces import Field
from adv_wrappers.errors import SpaceError, ValueRangeError
from adv_wrappers.sensors.which_sensors import as_features, check_features, only
from adv_wrappers.utils.check_numbers import check_number
from adv_wrappers.utils.frozen_dataclasses import set_fields


@dataclass(frozen=True)
class Saturation(NativePerturbation):
    """Sensors read no less than ``low`` and no more than ``high``.

    Args:
        low, high: the ends, in the unit of the observation, a number or one for every feature; None for none.
        features: the indices of the features; None for all.

    Raises:
        ValueRangeError: without an end, and for ends that are not finite or not in this order.
        SpaceError: at wrapping, for features that the observation lacks, and ends for as many as it has not.
    """

    name: ClassVar[str] = "saturation"
    low: float | tuple[float, ...] | None = -1.0
    high: float | tuple[float, ...] | None = 1.0
    features: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        for name in ("low", "high"):
            end = getattr(self, name)
            if isinstance(end, (list, tuple)):
                set_fields(self, **{name: tuple(end)})
            for number in [] if end is None else end if isinstance(end, (list, tuple)) else [end]:
                check_number(name, number)
        ends = [np.asarray(end) for end in (self.low, self.high) if end is not None]
        if not ends or (len(ends) == 2 and not (np.ndim(ends[0] < ends[1]) <= 1 and (ends[0] < ends[1]).all())):
            raise ValueRangeError(f"saturation needs low, high, or both with low < high, got {self.low}, {self.high}")
        set_fields(self, features=as_features(self.features))

    def check(self, field: Field, within: Budget) -> None:
        super().check(field, within)
        if field.discrete:
            raise discrete_observation(self.name, field)
        check_features(self.name, self.features, field.shape)
        for name, end in (("low", self.low), ("high", self.high)):
            if isinstance(end, tuple) and len(end) != field.low.size:
                raise SpaceError(f"{name} has {len(end)} numbers, an observation {field.shape} has {field.low.size}")

    def __call__(self, x: Tensor, context: Context) -> Tensor:
        low, high = self._end(self.low, x), self._end(self.high, x)
        return only(self.features, x.clamp(low, high).to(x.dtype), x)

    def _end(self, end: float | tuple[float, ...] | None, x: Tensor) -> Tensor | None:
        if end is None:
            return None
        made = torch.as_tensor(end, dtype=torch.float64, device=x.device).to(x.dtype)
        return made.view(x.shape[1:]) if made.dim() else made
