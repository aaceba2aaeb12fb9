"""Brightness and contrast: ``s * alpha + beta``, clipped (daylight paper, section 3.1, equation 3, table 1).

The paper does not say what happens beyond white and black; here values are clipped. OpenCV's ``convertScaleAbs``, which
code that claims to do the same often calls, takes the ABSOLUTE value first and so folds negatives: ``rule="abs"``.
Either is one table of 256 entries.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from adv_wrappers.accel import triton_loader
from adv_wrappers.core.engine.context import Context
from adv_wrappers.daylight.images import Limits, check_images, limits_of
from adv_wrappers.daylight.opencv import HostImages, by_arrays
from adv_wrappers.daylight.transform import Range, Transform
from adv_wrappers.utils.checks import check_choice, number

Rule = Literal["clip", "abs"]
_MOST = 1e30  # far from where float32 ends


@functools.lru_cache(maxsize=256)
def table(alpha: float, beta: float, rule: str) -> NDArray[np.uint8]:
    """What becomes of each grey level, uint8 ``[256]``: one rounding (half to even), as a fused multiply-add has it.

    ``float32(s * alpha + beta)`` with float32 parameters, exact before the rounding: float64 holds the products whole.
    """
    values = np.arange(256, dtype=np.float64) * np.float64(np.float32(alpha)) + np.float64(np.float32(beta))
    values = values.astype(np.float32)
    values = np.abs(values) if rule == "abs" else values
    return np.clip(np.rint(values), 0, 255).astype(np.uint8)


@functools.lru_cache(maxsize=64)
def _on(alpha: float, beta: float, rule: str, device: torch.device) -> Tensor:
    return torch.from_numpy(table(alpha, beta, rule)).to(device)


def tables(alpha: Tensor, beta: Tensor, rule: str) -> Tensor:
    """The same tables, uint8 ``[B, 256]``, of parameters float64 ``[B]``, on their device."""
    levels = torch.arange(256, dtype=torch.float64, device=alpha.device)
    values = (levels * alpha.float().double()[:, None] + beta.float().double()[:, None]).float()
    return (values.abs() if rule == "abs" else values).round().clamp(0, 255).to(torch.uint8)


@functools.lru_cache(maxsize=256)
def _is_one_call(alpha: float, beta: float, rule: str) -> bool:
    """Whether OpenCV's ``convertScaleAbs`` makes the table, nine times as fast as looking it up.

    It folds negatives; on processors without fused multiply-adds it rounds otherwise.
    """
    levels = np.arange(256, dtype=np.uint8)[None]
    return np.array_equal(cv2.convertScaleAbs(levels, None, alpha, beta)[0], table(alpha, beta, rule))


def brightness(x: Tensor, alpha: float, beta: float, *, rule: Rule = "clip", limits: Limits | None = None) -> Tensor:
    """``x * alpha + beta``, clipped to what the images can hold.

    Args:
        x: uint8 or float images of any shape.
        alpha: contrast, a factor.
        beta: brightness, in grey levels of 1/255 of the range.
        rule: ``clip``; or ``abs``, which folds negatives first, equal to ``cv2.convertScaleAbs``.
        limits: darkest and brightest value of float images, by default 0 and 1.

    Returns:
        Images of the same shape and dtype. uint8 are rounded half to even.

    Raises:
        ValueRangeError: for parameters that are not finite, or beyond 1e30.

    >>> brightness(torch.tensor([[[0, 10, 250]]], dtype=torch.uint8), 2.0, -15.0)
    tensor([[[  0,   5, 255]]], dtype=torch.uint8)
    """
    alpha, beta = number("alpha", alpha, -_MOST, _MOST), number("beta", beta, -_MOST, _MOST)
    check_choice("rule", rule, get_args(Rule))
    check_images(x)
    y: Tensor = _brightened(x, alpha, beta, rule, limits_of(x, limits))
    return y


def _brightened(x: Any, alpha: float, beta: float, rule: str, limits: Limits) -> Any:
    """A batch, an array or a tensor, brightened; limits are of floats."""
    y = by_arrays(lambda host: _by_opencv(host, alpha, beta, rule), x)
    if y is not None:
        return y
    # floats by the formula, uint8 by a table of its 256 levels
    if x.dtype != torch.uint8:
        low, high = limits
        y = (x - low) * alpha + beta * (high - low) / 255
        return ((y.abs() if rule == "abs" else y) + low).clamp_(low, high)
    levels, fast = _on(alpha, beta, rule, x.device), triton_loader.twin("daylight.kernels.brightness", x)
    return levels[x.long()] if fast is None else fast.look_up(x, levels)


def _by_opencv(x: HostImages, alpha: float, beta: float, rule: str) -> HostImages:
    """The same of uint8 of any shape in host memory."""
    if not x.size:
        return x.copy()
    source = np.ascontiguousarray(x).reshape(1, -1)
    if _is_one_call(alpha, beta, rule):
        made = cv2.convertScaleAbs(source, None, alpha, beta)
    else:
        made = cv2.LUT(source, table(alpha, beta, rule))
    return made.reshape(x.shape)  # type: ignore[return-value]


@dataclass(frozen=True)
class Brightness(Transform):
    """Brightness and contrast, s * alpha + beta, clipped.

    Args:
        alpha: contrast, a factor, or a range of it.
        beta: brightness in grey levels, or a range of it.
        rule: ``clip`` or ``abs`` (see :func:`brightness`).
    """

    name: ClassVar[str] = "brightness"
    ranged: ClassVar[tuple[str, ...]] = ("alpha", "beta")
    arrays: ClassVar[bool] = True
    alpha: Range = 1.0
    beta: Range = 40.0
    rule: Rule = "clip"

    def validate(self, **parameter: object) -> None:
        for name, value in parameter.items():
            number(name, value, -_MOST, _MOST)

    def change(self, x: Any, layout: str, limits: Limits | None, **parameters: float) -> Any:
        return _brightened(x, float(parameters["alpha"]), float(parameters["beta"]), self.rule, limits or (0.0, 255.0))

    def by_row(self, x: Tensor, layout: str, context: Context) -> Tensor | None:
        fast = triton_loader.twin("daylight.kernels.brightness", x) if self.drawn else None
        if fast is None:
            return None
        key = self.draw_keys(context).to(x.device)
        alpha, beta = (torch.zeros(len(x), dtype=torch.float64, device=x.device) + c for c in self.columns(key))
        return fast.look_up(x, tables(alpha, beta, self.rule))  # type: ignore[no-any-return]
