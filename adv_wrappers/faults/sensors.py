"""Faults of sensors: bias, drift, quantization, saturation, stuck and missing values, swapped sensors, occlusion."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from adv_wrappers.core import rng
from adv_wrappers.core.arrays import broad, flat_rows
from adv_wrappers.core.budgets.budget import Budget
from adv_wrappers.core.engine.context import Context
from adv_wrappers.core.image_layouts import layout_of
from adv_wrappers.core.perturbation import BoundedPerturbation, NativePerturbation, discrete_observation
from adv_wrappers.core.spaces import Field
from adv_wrappers.errors import SpaceError, ValueRangeError
from adv_wrappers.faults.delays import last_value, no_last_value, remember_value
from adv_wrappers.utils.checks import is_number
from adv_wrappers.utils.frozen import set_fields
from adv_wrappers.utils.validation import Finite, Positive, PositiveShare

# ----------------------------------------------------------------------------------------------------------------------
# Which numbers of an observation a faulty sensor gives: all of them, or those at some indices.
# ----------------------------------------------------------------------------------------------------------------------


Features = tuple[int, ...] | None


def as_features(features: object) -> Features:
    """Indices of an observation's numbers, counted as it is flattened; a single one, a sequence, or None for all.

    Raises:
        ValueRangeError: for anything else, and for an index that is named twice.
    """
    if features is None:
        return None
    found = tuple(features) if isinstance(features, (list, tuple)) else (features,)
    whole = all(is_number(i) and (isinstance(i, int) or i.is_integer()) and i >= 0 for i in found)
    if not found or not whole or len({*found}) < len(found):
        raise ValueRangeError(f"features are different indices from 0 on (0;2 in a text), got {features!r:.80}")
    return tuple(int(i) for i in found)


class SensorFault(NativePerturbation):
    """A fault of some of the sensors; a subclass is a dataclass with their indices, ``features``.

    Raises:
        ValueRangeError: for what are no indices.
        SpaceError: at wrapping, for features that the observation lacks.
    """

    features: Features

    def __post_init__(self) -> None:
        super().__post_init__()
        set_fields(self, features=as_features(self.features))

    def check(self, field: Field, within: Budget) -> None:
        super().check(field, within)
        size = math.prod(field.shape)
        if self.features is not None and (last := max(self.features)) >= size:
            raise SpaceError(
                f"{self.name} is for feature {last}, but an observation {field.shape} has {size}, from 0 on"
            )

    def only(self, faulty: Tensor, x: Tensor) -> Tensor:
        """``faulty`` at the indices, and ``x`` elsewhere, both ``[B, *S]``."""
        if self.features is None:
            return faulty
        y = flat_rows(x.clone())
        at = torch.as_tensor(self.features, device=x.device)
        y[:, at] = flat_rows(faulty)[:, at]
        return y.view(x.shape)


# ----------------------------------------------------------------------------------------------------------------------
# Offsets of sensors: a bias that stays the same throughout an episode, and a drift that grows with its steps.
#
# Directions are drawn once an episode, a fair sign for every feature (under l2 a direction on the sphere), and are as
# large as the budget allows: real sensors are specified by the largest offset that they may have.
# ----------------------------------------------------------------------------------------------------------------------


def _offset(x: Tensor, context: Context, fraction: float | Tensor) -> Tensor:
    direction = rng.normal(context.episode_key, context.shape, context.dtype).to(x.device)
    return context.ascend(x, direction, fraction)


@dataclass(frozen=True)
class SensorBias(BoundedPerturbation):
    """Every sensor is off by the budget's radius, in a direction that is drawn for the episode."""

    name: ClassVar[str] = "sensor-bias"

    def __call__(self, x: Tensor, context: Context) -> Tensor:
        return _offset(x, context, 1.0)


@dataclass(frozen=True)
class SensorDrift(BoundedPerturbation):
    """Sensors drift: the offset grows evenly from 0 at the reset to the budget's radius, and stays there.

    Args:
        steps: of the episode, after which the whole radius is reached.
    """

    name: ClassVar[str] = "sensor-drift"
    steps: Positive = 500

    def __call__(self, x: Tensor, context: Context) -> Tensor:
        done = torch.as_tensor(context.t, device=x.device).expand(len(x)).to(context.dtype) / self.steps
        done = broad(done.clamp(max=1.0), x)
        return torch.where(done > 0, _offset(x, context, done), x)


# ----------------------------------------------------------------------------------------------------------------------
# Quantization: a sensor that reads whole multiples of a step, as a coarse encoder or converter does.
# ----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Quantization(BoundedPerturbation):
    """Every feature is rounded to the nearest multiple of twice the budget's radius, and so is off by it at most."""

    name: ClassVar[str] = "quantization"

    def __call__(self, x: Tensor, context: Context) -> Tensor:
        radius = context.budget.spread(x, *context.box)  # of every feature
        step = 2 * torch.as_tensor(radius, dtype=context.dtype, device=x.device)
        return torch.where(step > 0, torch.round(x / step) * step, x)


# ----------------------------------------------------------------------------------------------------------------------
# Saturation: a sensor that reads no less and no more than its ends.
# ----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Saturation(SensorFault):
    """Sensors read no less than ``low`` and no more than ``high``.

    Args:
        low, high: the ends, in the unit of the observation, a number or one for every feature; None for none.
        features: the indices of the features; None for all.

    Raises:
        ValueRangeError: without an end, and for ends that are not in this order.
        SpaceError: at wrapping, for features that the observation lacks, and ends for as many as it has not.
    """

    name: ClassVar[str] = "saturation"
    low: Finite | tuple[Finite, ...] | None = -1.0
    high: Finite | tuple[Finite, ...] | None = 1.0
    features: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        ends = [np.asarray(end) for end in (self.low, self.high) if end is not None]
        if not ends or (len(ends) == 2 and not (np.ndim(ends[0] < ends[1]) <= 1 and (ends[0] < ends[1]).all())):
            raise ValueRangeError(f"saturation needs low, high, or both with low < high, got {self.low}, {self.high}")

    def check(self, field: Field, within: Budget) -> None:
        super().check(field, within)
        if field.discrete:
            raise discrete_observation(self.name, field)
        for name, end in (("low", self.low), ("high", self.high)):
            if isinstance(end, tuple) and len(end) != field.low.size:
                raise SpaceError(f"{name} has {len(end)} numbers, an observation {field.shape} has {field.low.size}")

    def __call__(self, x: Tensor, context: Context) -> Tensor:
        low, high = self._end(self.low, x), self._end(self.high, x)
        return self.only(x.clamp(low, high).to(x.dtype), x)

    def _end(self, end: float | tuple[float, ...] | None, x: Tensor) -> Tensor | None:
        if end is None:
            return None
        made = torch.as_tensor(end, dtype=torch.float64, device=x.device).to(x.dtype)
        return made.view(x.shape[1:]) if made.dim() else made


# ----------------------------------------------------------------------------------------------------------------------
# A sensor that sticks: it reads what it read when the fault began.
# ----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StuckSensor(SensorFault):
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

    def initial_memory(self, x: Tensor) -> dict[str, Tensor]:
        """What is read, and whether the fault has begun."""
        return no_last_value(x)

    def __call__(self, x: Tensor, context: Context) -> Tensor:
        assert context.memory is not None
        read = last_value(context.memory, x)
        remember_value(context.memory, read)
        return self.only(read, x)


# ----------------------------------------------------------------------------------------------------------------------
# Dropout of sensors: single numbers of an observation are lost, each by itself.
# ----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SensorDropout(SensorFault):
    """At every step each sensor is lost with probability ``rate``, and something else is read in its place.

    Args:
        rate: the probability.
        fill: what is read in place of what is lost: ``last``, what this sensor read at the last attacked step; or a
            number, or one for every feature (such as the mean of each), drawn into the space.
        features: the indices of the features; None for all.

    Raises:
        ValueRangeError: for what are no indices.
        SpaceError: at wrapping, for features that the observation lacks, and a fill for as many as it has not.
    """

    name: ClassVar[str] = "sensor-dropout"
    rate: PositiveShare = 0.1
    fill: Literal["last"] | Finite | tuple[Finite, ...] = 0.0
    features: tuple[int, ...] | None = None

    def check(self, field: Field, within: Budget) -> None:
        super().check(field, within)
        if isinstance(self.fill, tuple) and len(self.fill) != field.low.size:
            count = len(self.fill)
            raise SpaceError(f"fill has {count} numbers, an observation {field.shape} has {field.low.size}")

    def initial_memory(self, x: Tensor) -> dict[str, Tensor] | None:
        """What every sensor read last, and whether there was a step before."""
        return no_last_value(x) if self.fill == "last" else None

    def __call__(self, x: Tensor, context: Context) -> Tensor:
        lost = rng.uniform(context.key, context.shape, torch.float32).to(x.device) < self.rate
        if self.fill != "last":
            return self.only(torch.where(lost, self._filled(context).to(x), x), x)
        assert context.memory is not None
        y = self.only(torch.where(lost, last_value(context.memory, x), x), x)
        remember_value(context.memory, y)
        return y

    def _filled(self, context: Context) -> Tensor:
        """What is read in place of what is lost, ``[*S]``."""
        low, high = context.space
        numbers = torch.as_tensor(self.fill, dtype=low.dtype, device=low.device)
        return (numbers.view(low.shape) if numbers.dim() else numbers.expand_as(low)).clamp(low, high)


# ----------------------------------------------------------------------------------------------------------------------
# Swapped channels: two sensors that were plugged in the wrong way round.
# ----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SwappedSensors(SensorFault):
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
        super().__post_init__()
        if self.features is None or len(self.features) < 2:
            raise ValueRangeError(
                f"features to swap are two indices or more (0;1 in a text), got {self.features!r:.80}"
            )

    def __call__(self, x: Tensor, context: Context) -> Tensor:
        assert self.features is not None
        shown, y = list(self.features), x.clone().flatten(1)
        y[:, [*shown[1:], shown[0]]] = x.flatten(1)[:, shown]
        return y.view(x.shape)


# ----------------------------------------------------------------------------------------------------------------------
# Occlusion: a rectangle of the picture that shows nothing, such as dirt on a lens or something in front of it.
# ----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Occlusion(NativePerturbation):
    """A rectangle of every picture is of one grey, at a place that is drawn for the episode or for every step.

    All frames of a stack and all colours are covered alike.

    Args:
        height, width: of the rectangle, pixels.
        value: the grey, in the unit of the observation, drawn into the space.
        per: ``episode`` or ``step``: how long it stays where it is.
        layout: which axis is what (see :func:`adv_wrappers.core.image_layouts.layout_of`); None infers it.

    Raises:
        SpaceError: at wrapping, for observations that are no pictures, or smaller than the rectangle.
    """

    name: ClassVar[str] = "occlusion"
    height: Positive = 8
    width: Positive = 8
    value: Finite = 0.0
    per: Literal["episode", "step"] = "episode"
    layout: str | None = None

    def _sides(self, shape: tuple[int, ...]) -> tuple[int, int]:
        """The axes of height and width in an observation of this shape."""
        layout = layout_of(shape, self.layout)
        return layout.index("H"), layout.index("W")

    def check(self, field: Field, within: Budget) -> None:
        super().check(field, within)
        rows, columns = (field.shape[axis] for axis in self._sides(field.shape))
        if self.height > rows or self.width > columns:
            size = f"{self.height}x{self.width}"
            raise SpaceError(f"{self.name} of {size} pixels does not fit a picture of {rows}x{columns}")

    def __call__(self, x: Tensor, context: Context) -> Tensor:
        key = context.key if self.per == "step" else context.episode_key
        # a rectangle at a place that is drawn for the step, or for the episode
        places = rng.uniform(rng.fold(key, 1), (2,), torch.float64).to(x.device).unbind(1)
        covered = torch.ones_like(x, dtype=torch.bool)
        for size, axis, place in zip((self.height, self.width), self._sides(context.shape), places, strict=True):
            length = context.shape[axis]
            first = torch.floor(place * (length - size + 1))[:, None]
            at = torch.arange(length, device=x.device)[None]
            sides = (length if other == axis else 1 for other in range(len(context.shape)))
            covered &= ((at >= first) & (at < first + size)).view(len(x), *sides)
        low, high = context.space
        # its grey, as far as the space has it
        grey = torch.full_like(low, self.value).clamp(low, high).to(x)
        return torch.where(covered, grey, x)
