"""The daylight transforms by other libraries, as functions of uint8 batches, for ``benchmarks/daylight_speed.py``."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import cv2
import numpy as np
import torch
from daylight_loops import ALPHA, BETA, DEGREES, DX, DY, QUALITY, Call, Images, projective


def kornia(transform: str, layout: str, shape: tuple[int, ...]) -> Call:
    """kornia's functions; its JPEG knows colours alone, so a grey frame goes in three times."""
    from kornia.enhance import adjust_brightness, adjust_contrast, jpeg_codec_differentiable
    from kornia.filters import median_blur
    from kornia.geometry.transform import rotate, translate, warp_perspective

    height, width = shape[-2:] if layout == "FHW" else shape[:2]
    angle, move = torch.tensor([DEGREES]), torch.tensor([[float(DX), float(DY)]])
    matrix, quality = torch.from_numpy(projective(height, width)).float()[None], torch.tensor([float(QUALITY)])

    def jpeg(x: torch.Tensor) -> Any:
        if layout == "HWC":
            return jpeg_codec_differentiable(x, quality)
        colours = x.flatten(0, 1)[:, None].expand(-1, 3, -1, -1)
        return jpeg_codec_differentiable(colours, quality)[:, :1].reshape(x.shape)

    calls: dict[str, Any] = {
        "brightness": lambda x: adjust_brightness(adjust_contrast(x, ALPHA), BETA / 255),
        "median 3": lambda x: median_blur(x, 3),
        "median 5": lambda x: median_blur(x, 5),
        "rotation": lambda x: rotate(x, angle.expand(len(x)), padding_mode="border"),
        "shift": lambda x: translate(x, move.expand(len(x), 2), padding_mode="border"),
        "perspective": lambda x: warp_perspective(
            x, matrix.expand(len(x), 3, 3), (height, width), padding_mode="border"
        ),
        "JPEG 30": jpeg,
    }
    call = calls[transform]

    def batch(x: Images) -> Any:
        planes = torch.from_numpy(x) if layout == "FHW" else torch.from_numpy(x).movedim(-1, 1)
        y = call(planes.float() / 255).mul(255).round_().clamp_(0, 255).to(torch.uint8)
        return (y if layout == "FHW" else y.movedim(1, -1)).contiguous()

    return batch


def albumentations(transform: str, layout: str, shape: tuple[int, ...]) -> Call | None:
    """Albumentations' transforms with their ranges shut; it knows no perspective that is given."""
    import albumentations as a

    edge, grey = {"border_mode": cv2.BORDER_REPLICATE}, layout != "HWC"
    calls: dict[str, Callable[[], Any]] = {
        "brightness": lambda: a.RandomBrightnessContrast((BETA / 255,) * 2, (ALPHA - 1,) * 2, p=1),
        "median 3": lambda: a.MedianBlur((3, 3), p=1),
        "median 5": lambda: a.MedianBlur((5, 5), p=1),
        "rotation": lambda: a.Affine(rotate=(DEGREES, DEGREES), p=1, **edge),
        "shift": lambda: a.Affine(translate_px={"x": (DX, DX), "y": (DY, DY)}, p=1, **edge),
        "JPEG 30": lambda: a.ImageCompression("jpeg", (QUALITY, QUALITY), p=1),
    }
    if transform not in calls:
        return None
    apply = calls[transform]()
    one = lambda image: apply(image=image)["image"]  # noqa: E731
    if layout == "FHW":
        return lambda x: np.stack([one(f[..., None]) for f in x.reshape(-1, *shape[1:])]).reshape(x.shape)
    if transform == "JPEG 30" and grey:
        return lambda x: np.stack([np.concatenate([one(f[..., None]) for f in cv2.split(i)], -1) for i in x])
    return lambda x: np.stack([one(image) for image in x])


def pillow(transform: str, layout: str, shape: tuple[int, ...]) -> Call:
    """Pillow; a stack of four frames is an image of four bands, whose JPEG takes band by band."""
    from PIL import Image, ImageFilter

    height, width = shape[-2:] if layout == "FHW" else shape[:2]
    bilinear, levels = Image.Resampling.BILINEAR, [min(255, max(0, round(i * ALPHA + BETA))) for i in range(256)]
    inverse = np.linalg.inv(projective(height, width))
    eight = tuple((inverse / inverse[2, 2]).ravel()[:8])
    bands = 3 if layout == "HWC" else 4 if layout == "HWF" else 1

    def jpeg(image: Any) -> Any:
        if bands == 4:
            return Image.merge("CMYK", [jpeg_of(band) for band in image.split()])
        return jpeg_of(image)

    def jpeg_of(image: Any) -> Any:
        file = io.BytesIO()
        image.save(file, "JPEG", quality=QUALITY)
        return Image.open(file)

    affine_of, perspective_of = Image.Transform.AFFINE, Image.Transform.PERSPECTIVE
    calls: dict[str, Callable[[Any], Any]] = {
        "brightness": lambda image: image.point(levels * bands),
        "median 3": lambda image: image.filter(ImageFilter.MedianFilter(3)),
        "median 5": lambda image: image.filter(ImageFilter.MedianFilter(5)),
        "rotation": lambda image: image.rotate(DEGREES, bilinear),
        "shift": lambda image: image.transform(image.size, affine_of, (1, 0, -DX, 0, 1, -DY)),
        "perspective": lambda image: image.transform(image.size, perspective_of, eight, bilinear),
        "JPEG 30": jpeg,
    }
    call, mode = calls[transform], {1: "L", 3: "RGB", 4: "CMYK"}[bands]

    def one(image: Images) -> Any:
        return np.asarray(call(Image.frombuffer(mode, (width, height), image, "raw", mode, 0, 1)))

    return lambda x: np.stack([one(i) for i in (x.reshape(-1, height, width) if bands == 1 else x)]).reshape(x.shape)


PEERS = {"kornia": kornia, "albumentations": albumentations, "Pillow": pillow}
PACKAGES = ("opencv-python", "kornia", "albumentations", "pillow")
