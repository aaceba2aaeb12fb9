"""The trigger of a backdoor: what an attacker who poisoned a training shows an agent to have his action played.

Kiourti et al. 2020, "TrojDRL: Evaluation of Backdoor Attacks on Deep Reinforcement Learning": a small patch of a
picture, or single numbers of other observations, at a fixed value. :class:`adv_wrappers.PlantBackdoor` is the training.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from adv_wrappers.core.budgets.budget import Budget
from adv_wrappers.core.engine.context import Context
from adv_wrappers.core.image_layouts import layout_of
from adv_wrappers.core.spaces import Field
from adv_wrappers.errors import SpaceError
from adv_wrappers.faults.sensors import SensorFault
from adv_wrappers.utils.validation import Finite, Positive


@dataclass(frozen=True)
class Trigger(SensorFault):
    """Single features, or a square patch in the upper left corner of every picture, are of a fixed value.

    Args:
        value: the value, in the unit of the observation, drawn into the space.
        features: the indices of the features; None for a patch.
        patch: of pictures, the side of the square in pixels; not used with ``features``.
        layout: of pictures, which axis is what (see :func:`adv_wrappers.core.image_layouts.layout_of`); None infers it.

    Raises:
        ValueRangeError: for what are no indices.
        SpaceError: at wrapping, for features that the observation lacks, and a patch of what is no picture, or too
            small a one.
    """

    name: ClassVar[str] = "trigger"
    value: Finite = 1.0
    features: tuple[int, ...] | None = None
    patch: Positive = 3
    layout: str | None = None

    def check(self, field: Field, within: Budget) -> None:
        super().check(field, within)
        if self.features is None:
            layout = layout_of(field.shape, self.layout)
            if min(field.shape[layout.index("H")], field.shape[layout.index("W")]) < self.patch:
                raise SpaceError(f"a patch of {self.patch} pixels does not fit a picture {field.shape}")

    def __call__(self, x: Tensor, context: Context) -> Tensor:
        low, high = context.space
        value = torch.full_like(low, self.value).clamp(low, high).to(x).expand_as(x)
        if self.features is not None:
            return self.only(value, x)
        # a patch in the first corner of the image
        y, corner = x.clone(), value
        part, layout = y, layout_of(context.shape, self.layout)
        for side in "HW":
            part, corner = (one.narrow(1 + layout.index(side), 0, self.patch) for one in (part, corner))
        part.copy_(corner)
        return y
