"""Distances between images: how far a perturbed observation is from the true one, in pixels and as seen.

Every function takes two batches ``[B, *S]`` of one shape and dtype, uint8 or float, tensors or numpy arrays, and
returns one float64 number a row, ``[B]``, on the device of the first. What a row holds (see
:func:`adv_wrappers.core.image_layouts.layout_of`) may be a stack of frames: ``l2``, ``linf`` and ``psnr`` take all its
pixels together, as budgets do, and ``ssim`` is the mean over its frames and colours.

The learned distance is :class:`Lpips`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from adv_wrappers.core.arrays import flat_rows
from adv_wrappers.core.image_layouts import layout_of
from adv_wrappers.daylight.images import Limits, as_images, limits_of, split
from adv_wrappers.errors import SpaceError, ValueRangeError

WINDOW, SIGMA = 11, 1.5  # pixels; the window of SSIM and the standard deviation of its weights
K1, K2 = 0.01, 0.03  # SSIM's constants, as shares of the range of the values

ObservationBatch = Tensor | NDArray[np.generic]  # [B, *S], uint8 or floats


def pair(x: ObservationBatch, y: ObservationBatch) -> tuple[Tensor, Tensor]:
    """Two batches as tensors on one device.

    Raises:
        SpaceError: for shapes or dtypes that differ, batches without a value, and dtypes other than uint8 and floats.
        ValueRangeError: for values that are not finite.
    """
    a, b = as_images(x), as_images(y)
    if a.shape != b.shape or a.dtype != b.dtype:
        raise SpaceError(
            f"expected two batches of one shape and dtype, got {tuple(a.shape)} of {a.dtype} and {tuple(b.shape)} of "
            f"{b.dtype}"
        )
    return a, b.to(a.device)


def planes(x: Tensor, layout: str) -> Tensor:
    """Every frame and colour of a batch as a grey picture of its own: ``[B, P, H, W]`` in the batch's dtype."""
    images, _ = split(x, layout)
    return images.permute(0, 3, 1, 2).reshape(len(x), -1, *images.shape[1:3])


def l2(x: ObservationBatch, y: ObservationBatch) -> Tensor:
    """Euclidean distance over all pixels of a row, in the units of the pixels: float64 ``[B]``.

    Raises:
        SpaceError, ValueRangeError: as :func:`pair`.

    >>> from adv_wrappers.evaluation.image_distances import l2
    >>> l2(np.zeros((1, 2, 2), np.uint8), np.full((1, 2, 2), 3, np.uint8))
    tensor([6.], dtype=torch.float64)
    """
    a, b = pair(x, y)
    return flat_rows(a.double() - b.double()).square().sum(1).sqrt()


def linf(x: ObservationBatch, y: ObservationBatch) -> Tensor:
    """The largest change of a pixel of a row, in the units of the pixels: float64 ``[B]``.

    Raises:
        SpaceError, ValueRangeError: as :func:`pair`.
    """
    a, b = pair(x, y)
    return flat_rows(a.double() - b.double()).abs().amax(1)


def psnr(x: ObservationBatch, y: ObservationBatch, limits: Limits | None = None) -> Tensor:
    """Peak signal-to-noise ratio in dB, ``10 log10(range^2 / MSE)``: float64 ``[B]``, infinite for equal rows.

    The mean squared error is that of all pixels of a row, so one frame of a stack that did not change does not make
    the ratio infinite.

    Args:
        x, y: ``[B, *S]``.
        limits: darkest and brightest value of floats, by default 0 and 1; uint8 has 0 and 255.

    Raises:
        SpaceError, ValueRangeError: as :func:`pair`, and for limits that are no range.
    """
    a, b = pair(x, y)
    low, high = limits_of(a, limits)
    error = flat_rows(a.double() - b.double()).square().mean(1)
    return 10 * torch.log10((high - low) ** 2 / error)


def ssim(x: ObservationBatch, y: ObservationBatch, layout: str | None = None, limits: Limits | None = None) -> Tensor:
    """Structural similarity (Wang et al. 2004, equation 13), 1 for equal images: float64 ``[B]``.

    Means, variances and the covariance are weighted by an 11 x 11 Gaussian window with a standard deviation of 1.5
    pixels, at every place where the whole window lies inside the picture; C1 = (0.01 range)^2, C2 = (0.03 range)^2.
    Every frame and colour is a grey picture of its own, and a row's number is the mean over them.

    Args:
        x, y: ``[B, *S]``.
        layout: which axis is what (see :func:`adv_wrappers.core.image_layouts.layout_of`); None infers it.
        limits: darkest and brightest value of floats, by default 0 and 1; uint8 has 0 and 255. Values count from the
            darkest, or the luminance term would divide by nothing on a range such as -1 to 1.

    Raises:
        SpaceError, ValueRangeError: as :func:`pair`; for shapes that are no image, or smaller than the window.
    """
    a, b = pair(x, y)
    low, high = limits_of(a, limits)
    found = layout_of(tuple(a.shape[1:]), layout)
    a, b = planes(a, found).double() - low, planes(b, found).double() - low
    if min(a.shape[2:]) < WINDOW:
        raise SpaceError(f"ssim needs pictures of at least {WINDOW} x {WINDOW} pixels, got {tuple(a.shape[2:])}")
    rows, columns = (_band(size, a.device) for size in a.shape[2:])

    def mean(z: Tensor) -> Tensor:
        return rows @ z @ columns.T

    ma, mb = mean(a), mean(b)
    va, vb, cov = mean(a * a) - ma * ma, mean(b * b) - mb * mb, mean(a * b) - ma * mb
    c1, c2 = (K1 * (high - low)) ** 2, (K2 * (high - low)) ** 2
    values = (2 * ma * mb + c1) * (2 * cov + c2) / ((ma * ma + mb * mb + c1) * (va + vb + c2))
    return flat_rows(values).mean(1)


@functools.lru_cache(maxsize=32)
def _band(size: int, device: torch.device) -> Tensor:
    """The Gaussian mean along one axis as a matrix ``[size - 10, size]``: one product is faster than a convolution."""
    offsets = torch.arange(WINDOW, dtype=torch.float64, device=device) - WINDOW // 2
    weights = torch.exp(-0.5 * (offsets / SIGMA) ** 2)
    weights = weights / weights.sum()
    band = torch.zeros(size - WINDOW + 1, size, dtype=torch.float64, device=device)
    for place in range(len(band)):
        band[place, place : place + WINDOW] = weights
    return band


DISTANCES: dict[str, Callable[..., Tensor]] = {"l2": l2, "linf": linf, "ssim": ssim, "psnr": psnr}


# ----------------------------------------------------------------------------------------------------------------------
# LPIPS, the learned perceptual distance (Zhang et al. 2018), on a backbone that the user brings.
#
# The paper's distance is a property of trained weights, which are another project's to give out, so none are shipped
# and none are downloaded. A network with random weights would return numbers that look alike and mean nothing: there
# is no default.
# ----------------------------------------------------------------------------------------------------------------------


# ImageNet's mean and standard deviation for inputs in [-1, 1]: the scaling layer of the authors' code
SHIFT, SCALE = (-0.030, -0.088, -0.188), (0.458, 0.448, 0.450)
TINY = 1e-10  # added to the length of a feature vector that may be zero, as the authors' code does
BATCH = 32  # pictures that pass the backbone at once

Backbone = Callable[[Tensor], Sequence[Tensor] | Mapping[str, Tensor]]


class Lpips:
    """Learned perceptual image patch similarity (Zhang et al. 2018, equation 1): 0 for equal images.

    The backbone's feature maps are scaled to unit length over channels; the squared differences of the two images are
    weighted a channel, averaged over places and added up over layers. A grey frame is repeated to three colours; a
    stack's number is the mean over its frames.

    Args:
        backbone: a module or a function with trained weights, from images ``[N, 3, H, W]`` to a list, tuple or
            dictionary of maps ``[N, C_l, H_l, W_l]``, the layers that are compared. It is called without gradients,
            in the dtype and on the device of its first parameter (float32 where the images are, if it has none).
        weights: non-negative numbers ``[C_l]`` (or ``[1, C_l, 1, 1]``, as the authors store them) a layer, in the
            order of the maps. None weighs all channels by one, which is the authors' "baseline" variant.
        mean, std: a channel, of images in [-1, 1]: what the backbone expects to be subtracted and divided by.
        layout, limits: of the images, as for :func:`adv_wrappers.evaluation.image_distances.ssim`.
        name: in reports; None takes ``lpips``, or ``lpips-baseline`` without weights.

    Attributes:
        kind: ``"lin"``, with weights, or ``"baseline"``, without.

    Raises:
        ValueRangeError: without a backbone, for weights that are negative or not finite, and for a backbone with
            batch normalisation or dropout that is in training mode (also at every call).

    >>> from adv_wrappers.evaluation.image_distances import Lpips
    >>> pixels = Lpips(lambda images: [images])  # the colours themselves in the place of features
    >>> pixels
    Lpips(backbone=function, kind='baseline': unweighted, not 'lin')
    >>> pixels(torch.zeros(2, 8, 8), torch.zeros(2, 8, 8))
    tensor([0., 0.], dtype=torch.float64)
    """

    def __init__(
        self,
        backbone: Backbone | None = None,
        weights: Sequence[ArrayLike | Tensor] | None = None,
        *,
        mean: Sequence[float] = SHIFT,
        std: Sequence[float] = SCALE,
        layout: str | None = None,
        limits: Limits | None = None,
        name: str | None = None,
    ) -> None:
        if not callable(backbone) or isinstance(backbone, type):
            raise ValueRangeError(
                f"Lpips needs a backbone: a module or a function with trained weights from images [N, 3, H, W] to a "
                f"list of feature maps [N, C, H, W], such as the trunk of a torchvision or timm classifier; none is "
                f"shipped; got {backbone!r:.80}"
            )
        self.backbone, self.layout, self.limits = backbone, layout, limits
        self.weights = None if weights is None else [_weights(each, layer) for layer, each in enumerate(weights)]
        self.mean, self.std = (torch.as_tensor(each, dtype=torch.float64).view(-1, 1, 1) for each in (mean, std))
        if len(self.mean) != 3 or len(self.std) != 3 or not (self.std > 0).all():
            raise ValueRangeError(f"expected a mean and a std above zero for each of 3 colours, got {mean!r}, {std!r}")
        self.kind = "baseline" if weights is None else "lin"
        self.name = name or ("lpips" if self.kind == "lin" else "lpips-baseline")
        self._check_mode()

    def __repr__(self) -> str:
        about = "" if self.kind == "lin" else ": unweighted, not 'lin'"
        return f"Lpips(backbone={type(self.backbone).__name__}, kind={self.kind!r}{about})"

    def __call__(self, x: ObservationBatch, y: ObservationBatch) -> Tensor:
        """Distances of two batches ``[B, *S]``: float64 ``[B]``, on the device of the first.

        Raises:
            SpaceError: for batches that differ in shape or dtype, shapes that are no image, and a backbone whose
                output is not a sequence of maps, or does not match the weights.
            ValueRangeError: as the constructor.
        """
        self._check_mode()
        a, b = pair(x, y)
        found, (low, high) = layout_of(tuple(a.shape[1:]), self.layout), limits_of(a, self.limits)
        frames = [split(z, found, colours=True)[0] for z in (a, b)]
        chunks = zip(*(((z.double() - low) * (2 / (high - low)) - 1).split(BATCH) for z in frames), strict=True)
        distances = [self._compare(*chunk) for chunk in chunks]
        return torch.cat(distances).view(len(a), -1).mean(1).to(a.device)

    def _compare(self, a: Tensor, b: Tensor) -> Tensor:
        """Float64 ``[N]`` of pictures ``[N, H, W, K]`` in [-1, 1]."""
        both = torch.cat([a, b]).permute(0, 3, 1, 2)
        both = (both.expand(-1, 3, -1, -1) - self.mean.to(both.device)) / self.std.to(both.device)
        first = next(self.backbone.parameters(), None) if isinstance(self.backbone, nn.Module) else None
        device, dtype = (both.device, torch.float32) if first is None else (first.device, first.dtype)
        with torch.no_grad():
            output = self.backbone(both.to(device, dtype))
        maps: Any = [*output.values()] if isinstance(output, Mapping) else output
        fit = isinstance(maps, (list, tuple)) and all(
            isinstance(m, Tensor) and m.dim() == 4 and len(m) == len(both) and m.is_floating_point() for m in maps
        )
        if not fit or not maps:
            raise SpaceError(
                f"the backbone must return a list, tuple or dictionary of float maps [{len(both)}, C, H, W], got "
                f"{output!r:.80}"
            )
        weights = [torch.ones(m.shape[1], dtype=torch.float64) for m in maps] if self.weights is None else self.weights
        if [m.shape[1] for m in maps] != [len(w) for w in weights]:
            raise SpaceError(
                f"the weights are for maps of {[len(w) for w in weights]} channels, the backbone returned "
                f"{[m.shape[1] for m in maps]}"
            )
        total = torch.zeros(len(a), dtype=torch.float64, device=device)
        for features, weight in zip(maps, weights, strict=True):
            unit = features / (features.square().sum(1, keepdim=True).sqrt() + TINY)  # ten times as fast as norm()
            squares = (unit[: len(a)] - unit[len(a) :]).square().double().mean((2, 3))
            total += squares @ weight.to(device)
        return total

    def _check_mode(self) -> None:
        """Raise unless the backbone answers the same for the same image."""
        for part in self.backbone.modules() if isinstance(self.backbone, nn.Module) else ():
            if part.training and isinstance(part, (_BatchNorm, _DropoutNd)):
                raise ValueRangeError(
                    f"the backbone is in training mode and has {type(part).__name__}, so its features depend on the "
                    f"rest of the batch or on chance: call backbone.eval()"
                )


def _weights(values: ArrayLike | Tensor, layer: int) -> Tensor:
    """The weights of a layer, ``[C]``."""
    given = torch.as_tensor(values, dtype=torch.float64).detach().cpu()
    flat = given.reshape(-1)
    if not torch.isfinite(flat).all() or (flat < 0).any() or given.shape not in ((len(flat),), (1, len(flat), 1, 1)):
        raise ValueRangeError(
            f"expected weights [C] or [1, C, 1, 1] of a layer, finite and at least 0, got {given} for layer {layer}"
        )
    return flat
