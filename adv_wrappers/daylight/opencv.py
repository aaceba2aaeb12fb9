"""OpenCV's functions on uint8 batches in host memory, picture by picture: arrays in, new arrays out.

A single observation takes few microseconds here, so nothing is a tensor, and what follows from a shape is looked up.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, Literal

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from adv_wrappers.core.types import Array

HostImages = NDArray[np.uint8]
Call = Callable[[HostImages, HostImages], Array]
"""``(source, place)``, pictures ``[H, W]`` or ``[H, W, K]``: the result, written to ``place`` or in new memory."""

Order = Literal["as they are", "frames last", "colours first"]

_MOST = 128  # channels that every version of OpenCV splits and merges


def on_host(images: Tensor) -> bool:
    """Whether OpenCV can be called: uint8 in host memory."""
    return images.is_cpu and images.dtype == torch.uint8


def by_arrays(call: Callable[[HostImages], HostImages], x: Any) -> Any:
    """What a function of arrays makes of uint8 in host memory, an array or a tensor; None for all else."""
    if isinstance(x, np.ndarray):
        return call(x)
    return torch.from_numpy(call(x.numpy())) if on_host(x) else None


@functools.lru_cache(maxsize=256)
def _pictures(
    shape: tuple[int, ...], layout: str, channels: tuple[int, ...], coloured: bool
) -> tuple[Order, tuple[int, ...]]:
    """How the pictures of an observation lie in it, and the shape of one as the function takes it."""
    rows = layout.index("H")
    size, last = shape[rows : rows + 2], math.prod(shape[rows + 2 :])
    if coloured and "C" in layout and shape[layout.index("C")] == 3:
        return "as they are" if layout[-1] == "C" else "colours first", (*size, 3)
    if last == 1 or (last in channels and not coloured):
        return "as they are", size if last == 1 else (*size, last)
    return "frames last", size


def each(
    x: HostImages,
    layout: str,
    call: Call,
    *,
    channels: tuple[int, ...] = (1, 2, 3, 4),
    coloured: bool = False,
    by_fours: bool = False,
) -> HostImages:
    """The results of ``call`` on every picture of a batch, in new memory.

    Args:
        x: batch ``[B, *S]``, not written to.
        layout: of one observation.
        call: is handed what comes after the columns, frames or colours, as channels of one picture.
        channels: numbers of channels that it takes; other stacks it gets frame by frame.
        coloured: it mixes channels: the three colours of a picture are handed over together, wherever their axis is,
            and frames one by one.
        by_fours: it treats every channel alike, so four pictures of one channel are handed over as one of four, which
            takes half the time.
    """
    order, shape = _pictures(x.shape[1:], layout, channels, coloured)
    x = np.ascontiguousarray(x)
    out = np.empty(x.shape, np.uint8)
    if order == "as they are":
        _one_by_one(x.reshape(-1, *shape), out.reshape(-1, *shape), call, by_fours)
    elif order == "colours first":
        # colours behind the pixels for the call, and in front again
        whole = np.empty((2, *shape), np.uint8)
        source, places = x.reshape(-1, 3, *shape[:2]), out.reshape(-1, 3, *shape[:2])
        for i in range(len(source)):  # zip(source, places) takes five times as long for one picture
            cv2.merge(list(source[i]), whole[0])
            cv2.split(call(*whole), list(places[i]))
    else:
        frames = np.empty((2, x.shape[-1], *shape), np.uint8)
        source, places = x.reshape(-1, *shape, x.shape[-1]), out.reshape(-1, *shape, x.shape[-1])
        # frames one by one, or four at once
        planes, spare = list(frames[0]), list(frames[1])
        for i in range(len(source)):
            _separate(source[i], planes)
            if by_fours:
                _one_by_one(frames[0], frames[1], call, True)
                _join(spare, places[i])
            else:
                _join([call(*pair) for pair in zip(planes, spare, strict=True)], places[i])
    return out


def _one_by_one(source: HostImages, out: HostImages, call: Call, by_fours: bool) -> None:
    """The call on pictures ``[N, H, W]`` or ``[N, H, W, K]``."""
    done = 0
    if by_fours and source.ndim == 3 and len(source) > 3:
        done = len(source) // 4 * 4
        four = np.empty((2, *source.shape[1:], 4), np.uint8)
        for i in range(0, done, 4):
            cv2.merge(list(source[i : i + 4]), four[0])
            cv2.split(call(*four), list(out[i : i + 4]))
    # what is left, one picture after the other
    for i in range(done, len(source)):
        place = out[i]
        result = call(source[i], place)
        if result is not place:
            place[...] = result


def _separate(stack: HostImages, frames: list[HostImages]) -> None:
    """Frames ``[H, W]`` of a stack ``[H, W, F]``, written in their places."""
    if len(frames) > _MOST:
        for i, frame in enumerate(frames):
            frame[...] = stack[..., i]
    else:
        cv2.split(stack, frames)


def _join(frames: list[Array], stack: HostImages) -> None:
    """The other way."""
    if len(frames) > _MOST:
        np.stack(frames, -1, out=stack)
    else:
        cv2.merge(frames, stack)
