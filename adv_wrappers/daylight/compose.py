"""Several transforms one after the other: on CUDA in as few kernel passes as possible, elsewhere step by step."""

from __future__ import annotations

import functools
from itertools import groupby

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from adv_wrappers.accel import load_triton_kernels
from adv_wrappers.core.spaces import layout_of
from adv_wrappers.daylight.base_transform import Transform
from adv_wrappers.daylight.fused_transforms import KernelPass, MedianWindow, kernel_passes
from adv_wrappers.daylight.observations_as_images import Limits, batched, limits_of, split
from adv_wrappers.errors import ValueRangeError


def compose(x: Tensor, *steps: Transform, layout: str | None = None, limits: Limits | None = None) -> Tensor:
    """``x`` after all steps, in their order: equal to the bit to one call after the other.

    On CUDA neighbouring steps on uint8 share a kernel, which reads every image once and writes it once: any number of
    brightnesses, shifts and warps to the nearest pixel, around one bilinear rotation or perspective; or before one
    median blur, and brightnesses after it. Steps that do not fit start another kernel. JPEG stands alone, and so does
    every step on floats and on other devices.

    Args:
        x: uint8 or float images ``[B, *S]``, or one image with a given layout.
        steps: transforms such as ``Brightness(1.2, 40)`` and ``Rotation(3)``, all parameters numbers: ranges are drawn
            for episodes and steps, which a function has none of.
        layout: which axis is what, for the steps that do not say it themselves; None infers.
        limits: darkest and brightest value of float images, by default 0 and 1.

    Returns:
        New images of the same shape and dtype.

    Raises:
        ValueRangeError: for a step that is no transform, or whose parameters have to be drawn.
        SpaceError: for a shape that is no image.

    >>> from adv_wrappers.daylight import Brightness, Shift
    >>> compose(torch.tensor([[[1, 2, 3]]], dtype=torch.uint8), Brightness(2, 0), Shift(1), layout="HW")
    tensor([[[2, 2, 4]]], dtype=torch.uint8)
    """
    for step in steps:
        if not isinstance(step, Transform):
            raise ValueRangeError(f"steps must be transforms such as Rotation(3), got {step!r}")
    steps = tuple(step.without_ranges() for step in steps)
    x, layout, single = batched(x, layout or next((step.layout for step in steps if step.layout), None))
    limits_of(x, limits)
    y = x
    kernels = x.dtype == torch.uint8 and load_triton_kernels.twin("daylight.kernels.brightness", x) is not None
    for (fusible, where), run in groupby(steps, lambda step: (step.fusible, step.layout or layout)):
        together, where = tuple(run), layout_of(tuple(x.shape[1:]), where)
        done = _together(y, together, where) if kernels and fusible else None
        if done is None:
            for step in together:
                y = step.change(y, where, limits, **step.numbers())
        else:
            y = done
    y = y.clone() if y is x else y
    return y[0] if single else y


def _together(x: Tensor, steps: tuple[Transform, ...], layout: str) -> Tensor | None:
    """The steps by kernels; None where one is not to be trusted."""
    images, back = split(x, layout)
    calls = _calls(steps, *images.shape[1:3], x.device)
    if not calls:
        return x
    for name, function, arguments in calls:
        fast = load_triton_kernels.twin(f"daylight.kernels.{name}", x)
        if fast is None:
            return None
        images = getattr(fast, function)(images, *arguments)
    return back(images)


@functools.lru_cache(maxsize=64)
def _calls(
    steps: tuple[Transform, ...], height: int, width: int, device: torch.device
) -> list[tuple[str, str, tuple[object, ...]]]:
    """The kernels that make the passes, and what they take besides images."""
    found = kernel_passes([one for step in steps for one in step.kernel_steps(height, width)])
    return [_call(one, device) for one in found]


def _call(one: KernelPass, device: torch.device) -> tuple[str, str, tuple[object, ...]]:
    def on(array: NDArray[np.generic] | None) -> Tensor | None:
        return None if array is None else torch.from_numpy(np.ascontiguousarray(array)).to(device)

    codes, before, after = one.before.codes, on(one.before.table), on(one.after.table)
    if isinstance(one.wide, MedianWindow):
        return "blur", "median", (one.wide.k, on(None if codes is None else codes.astype(np.int32)), before, after)
    if one.wide is None and codes is None:
        return "brightness", "look_up", (before,)
    return "warp", "gather", (*map(on, one.gathered()), before, after)
