"""Frames of stacks as pictures of their own and back, on the host: OpenCV transposes six times as fast as torch."""

from __future__ import annotations

import cv2
import numpy as np
import torch
from torch import Tensor


def unstacked(x: Tensor) -> Tensor:
    """Frames ``[B * F, H, W, 1]`` of stacks ``[B, H, W, F]``."""
    stacks = x.contiguous().numpy()
    rows, height, width, frames = stacks.shape
    out = np.empty((rows, frames, height, width), np.uint8)
    for one, into in zip(stacks, out, strict=True):
        cv2.split(one, list(into))
    return torch.from_numpy(out).view(-1, height, width, 1)


def stacked(y: Tensor, frames: int) -> Tensor:
    """Stacks ``[B, H, W, F]`` of frames ``[B * F, H, W, 1]``."""
    planes = y.contiguous().view(-1, frames, *y.shape[1:3]).numpy()
    out = np.empty((len(planes), *y.shape[1:3], frames), np.uint8)
    for one, into in zip(planes, out, strict=True):
        cv2.merge(list(one), into)
    return torch.from_numpy(out)
