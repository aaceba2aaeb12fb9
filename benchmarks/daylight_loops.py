"""The daylight transforms as loops over OpenCV's calls and by this library, for ``benchmarks/daylight_speed.py``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cv2
import numpy as np
import torch
from numpy.typing import NDArray

from adv_wrappers import daylight

Images = NDArray[np.uint8]
Call = Callable[[Images], Any]

CALL, LOOP, STRICT = "OpenCV call", "OpenCV loop", "OpenCV loop, dst"
OURS, TORCH = "adv_wrappers", "adv_wrappers, torch"
ALPHA, BETA, DEGREES, DX, DY, NORM, QUALITY = 1.7, 40.0, 3.0, 2, 1, 3.0, 30


def affine(height: int, width: int, transform: str) -> Any:
    """The matrix of the rotation or the shift."""
    if transform == "shift":
        return np.array([[1, 0, DX], [0, 1, DY]], np.float64)
    return cv2.getRotationMatrix2D(((width - 1) / 2, (height - 1) / 2), DEGREES, 1)


def projective(height: int, width: int) -> Any:
    """The matrix of the perspective."""
    right, bottom = width - 1, height - 1
    source = np.array([(0, 0), (right, 0), (right, bottom), (0, bottom)], np.float32)
    moved = source + np.array([(NORM, 0), (-NORM, 0), (0, 0), (0, 0)], np.float32)
    return cv2.getPerspectiveTransform(source, moved)


def ours(transform: str, layout: str) -> Call:
    """This library's function."""
    d = daylight
    calls: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
        "brightness": lambda x: d.brightness(x, ALPHA, BETA, rule="abs"),
        "median 3": lambda x: d.median_blur(x, 3, layout=layout),
        "median 5": lambda x: d.median_blur(x, 5, layout=layout),
        "rotation": lambda x: d.rotate(x, DEGREES, layout=layout),
        "shift": lambda x: d.shift(x, DX, DY, layout=layout),
        "perspective": lambda x: d.perspective(x, NORM, layout=layout),
        "JPEG 30": lambda x: d.jpeg(x, QUALITY, layout=layout),
    }
    call = calls[transform]
    return lambda x: call(torch.from_numpy(x)).numpy()


def by_torch(transform: str, layout: str) -> Call:
    """The same where OpenCV is not taken."""
    call, host = ours(transform, layout), daylight.opencv.on_host

    def forced(x: Images) -> Any:
        daylight.opencv.on_host = lambda images: False
        try:
            return call(x)
        finally:
            daylight.opencv.on_host = host

    return forced


def opencv(transform: str, layout: str, shape: tuple[int, ...]) -> dict[str, Call]:
    """OpenCV's calls alone, the loop over them that returns a batch, and the one that hands them places."""
    height, width = shape[-2:] if layout == "FHW" else shape[:2]
    size, edge = (width, height), cv2.BORDER_REPLICATE
    matrix = projective(height, width) if transform == "perspective" else affine(height, width, transform)
    calls: dict[str, Any] = {
        "brightness": lambda image, out=None: cv2.convertScaleAbs(image, out, ALPHA, BETA),
        "median 3": lambda image, out=None: cv2.medianBlur(image, 3, out),
        "median 5": lambda image, out=None: cv2.medianBlur(image, 5, out),
        "rotation": lambda image, out=None: cv2.warpAffine(image, matrix, size, out, cv2.INTER_LINEAR, edge),
        "shift": lambda image, out=None: cv2.warpAffine(image, matrix, size, out, cv2.INTER_LINEAR, edge),
        "perspective": lambda image, out=None: cv2.warpPerspective(image, matrix, size, out, cv2.INTER_LINEAR, edge),
        "JPEG 30": {"HWC": colour_jpeg, "HWF": grey_jpegs, "FHW": grey_jpeg}[layout],
    }
    call = calls[transform]

    def pictures(x: Images) -> Images:
        return x.reshape(-1, height, width) if layout == "FHW" else x

    def loop(x: Images) -> Images:
        return np.stack([call(image) for image in pictures(x)]).reshape(x.shape)

    def strict(x: Images) -> Images:
        out = np.empty_like(x)
        for image, place in zip(pictures(x), pictures(out), strict=True):
            call(image, place)
        return out

    def alone(x: Images) -> list[Images]:
        return [call(image) for image in pictures(x)]

    found: dict[str, Call] = {CALL: alone, LOOP: loop}
    return found if transform == "JPEG 30" else {**found, STRICT: strict}


_SETTINGS = [cv2.IMWRITE_JPEG_QUALITY, QUALITY]


def grey_jpeg(image: Images) -> Any:
    """One grey frame."""
    return cv2.imdecode(cv2.imencode(".jpg", image, _SETTINGS)[1], cv2.IMREAD_GRAYSCALE)


def grey_jpegs(image: Images) -> Images:
    """Every frame of a stack."""
    return cv2.merge([grey_jpeg(plane) for plane in cv2.split(image)])  # type: ignore[return-value]


def colour_jpeg(image: Images) -> Any:
    """One RGB frame."""
    file = cv2.imencode(".jpg", cv2.cvtColor(image, cv2.COLOR_RGB2BGR), _SETTINGS)[1]
    return cv2.cvtColor(cv2.imdecode(file, cv2.IMREAD_COLOR), cv2.COLOR_BGR2RGB)
