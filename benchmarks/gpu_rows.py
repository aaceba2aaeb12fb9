"""What ``benchmarks/gpu.py`` times: attacks and transforms on batches that live on the device, here and elsewhere."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from attacks import STEPS, Labelled
from daylight_loops import ALPHA, BETA, DEGREES, DX, DY, NORM, QUALITY, projective
from gymnasium import spaces
from networks import ACTIONS, cnn, mlp
from peers import EPS, STEP, foolbox, torchattacks
from torch import Tensor, nn

from adv_wrappers import Linf, daylight, from_module
from adv_wrappers.accel.triton_loader import TRITON_VARIABLE
from adv_wrappers.core.engine.context import Context

OURS, TORCH = "adv_wrappers", "adv_wrappers, plain torch"
SIZES = (1, 64, 1024, 16384)
FRAME = 84 * 84 * 4
_KEY = torch.zeros(1, dtype=torch.int64)  # nothing is drawn here
Call = Callable[[], Any]


@dataclass(frozen=True)
class Row:
    """A line of the table: what an image costs at least."""

    name: str
    kind: str  # cnn, mlp, or the key of a transform
    precision: str | None = None
    flops: float = 0.0  # of an image
    bytes: float = 0.0  # read and written


_CNN, _MLP = 4 * 9_344_576.0 * STEPS, 4 * 5_568.0 * STEPS  # a product and a sum, there and back, every step
ROWS = (
    Row("PGD-10 Nature-CNN, fp32", "cnn", None, _CNN),
    Row("PGD-10 Nature-CNN, tf32", "cnn", "tf32", _CNN),
    Row("PGD-10 MLP 17-64-64-6", "mlp", None, _MLP),
    *(
        Row(kind, kind, bytes=2.0 * FRAME)
        for kind in ("brightness", "shift", "rotation", "perspective", "median 3", "median 5", "JPEG 30")
    ),
)

TRANSFORMS: dict[str, Callable[[Tensor], Tensor]] = {
    "brightness": lambda x: daylight.brightness(x, ALPHA, BETA),
    "shift": lambda x: daylight.shift(x, DX, DY, layout="HWF"),
    "rotation": lambda x: daylight.rotate(x, DEGREES, layout="HWF"),
    "perspective": lambda x: daylight.perspective(x, NORM, layout="HWF"),
    "median 3": lambda x: daylight.median_blur(x, 3, layout="HWF"),
    "median 5": lambda x: daylight.median_blur(x, 5, layout="HWF"),
    "JPEG 30": lambda x: daylight.jpeg(x, QUALITY, layout="HWF"),
}


def inputs(kind: str, size: int) -> tuple[Tensor, ...]:
    """A batch on the host: observations and labels for an attack, images for a transform."""
    rng = torch.Generator().manual_seed(0)
    if kind not in ("cnn", "mlp"):
        return (torch.randint(0, 256, (size, 84, 84, 4), dtype=torch.uint8, generator=rng),)
    x = torch.rand(size, *((4, 84, 84) if kind == "cnn" else (17,)), generator=rng)
    return x, torch.arange(size) % ACTIONS


def network(kind: str) -> nn.Module:
    """The network under attack."""
    torch.manual_seed(0)
    return {"cnn": cnn, "mlp": mlp}[kind]().eval().requires_grad_(False)


@contextmanager
def in_precision_of(row: Row) -> Iterator[None]:
    """Torch multiplies and convolves in the precision of a row inside; its own default lets convolutions round."""
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("high" if row.precision else "highest")
    torch.backends.cudnn.allow_tf32 = row.precision == "tf32"
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cudnn.allow_tf32 = before[1]


def ours(row: Row, given: tuple[Tensor, ...]) -> Call:
    """This library's call on a batch that lies where it is to be computed."""
    if row.kind in TRANSFORMS:
        return lambda: TRANSFORMS[row.kind](given[0])
    x, labels = given
    net, shape, budget = network(row.kind).to(x.device), tuple(x.shape[1:]), Linf(EPS)
    victim = from_module(net, spaces.Box(0.0, 1.0, shape, np.float32), spaces.Discrete(ACTIONS), "logits")
    how = Labelled(victim, steps=STEPS, step=STEP)
    object.__setattr__(how, "labels", labels)
    space = torch.zeros(shape, device=x.device), torch.ones(shape, device=x.device)

    @torch.no_grad()
    def call() -> Tensor:
        now = Context.around(x, budget, budget.box(x, *space), _KEY, space=space)
        return how(x, now)

    return call


def plain(call: Call) -> Call:
    """The same without Triton's kernels."""

    def without() -> Any:
        before = os.environ.get(TRITON_VARIABLE)
        os.environ[TRITON_VARIABLE] = "0"
        try:
            return call()
        finally:
            del os.environ[TRITON_VARIABLE]
            if before is not None:
                os.environ[TRITON_VARIABLE] = before

    return without


def kornia(kind: str, x: Tensor) -> Call:
    """kornia's functions, from uint8 to uint8; its JPEG knows colours alone, so a grey frame goes in three times."""
    from kornia.enhance import adjust_brightness, adjust_contrast, jpeg_codec_differentiable
    from kornia.filters import median_blur
    from kornia.geometry.transform import rotate, translate, warp_perspective

    angle, move = torch.tensor([DEGREES], device=x.device), torch.tensor([[float(DX), float(DY)]], device=x.device)
    matrix = torch.from_numpy(projective(84, 84)).float()[None].to(x.device)
    quality = torch.tensor([float(QUALITY)], device=x.device)

    def jpeg(planes: Tensor) -> Any:
        colours = planes.flatten(0, 1)[:, None].expand(-1, 3, -1, -1)
        return jpeg_codec_differentiable(colours, quality)[:, :1].reshape(planes.shape)

    call: Callable[[Tensor], Any] = {
        "brightness": lambda p: adjust_brightness(adjust_contrast(p, ALPHA), BETA / 255),
        "shift": lambda p: translate(p, move.expand(len(p), 2), padding_mode="border"),
        "rotation": lambda p: rotate(p, angle.expand(len(p)), padding_mode="border"),
        "perspective": lambda p: warp_perspective(p, matrix.expand(len(p), 3, 3), (84, 84), padding_mode="border"),
        "median 3": lambda p: median_blur(p, 3),
        "median 5": lambda p: median_blur(p, 5),
        "JPEG 30": jpeg,
    }[kind]

    def batch() -> Tensor:
        y = call(x.movedim(-1, 1).float() / 255).mul(255).round_().clamp_(0, 255).to(torch.uint8)
        return y.movedim(1, -1).contiguous()

    return batch


def peers(row: Row, given: tuple[Tensor, ...]) -> tuple[dict[str, Call], list[str]]:
    """Calls of other libraries, launched as they launch themselves, and those that are not installed."""
    builders: dict[str, Callable[[], Call]] = {}
    if row.kind in TRANSFORMS:
        builders["kornia"] = lambda: kornia(row.kind, given[0])
    elif row.precision is None:
        net = network(row.kind).to(given[0].device)
        builders["torchattacks"] = lambda: torchattacks(copy.deepcopy(net), *given, STEPS)
        builders["foolbox"] = lambda: foolbox(copy.deepcopy(net), *given, STEPS)
    calls, missing = {}, []
    for name, make in builders.items():
        try:
            calls[name] = make()
        except ImportError as error:
            missing.append(f"{name}: {error}")
    return calls, missing
