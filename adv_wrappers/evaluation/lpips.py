"""LPIPS, the learned perceptual distance (Zhang et al. 2018), on a backbone that the user brings.

The paper's distance is a property of trained weights, which are another project's to give out, so none are shipped and
none are downloaded. A network with random weights would return numbers that look alike and mean nothing: there is no
default.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from adv_wrappers.core.spaces import layout_of
from adv_wrappers.daylight.images import Limits, limits_of, split
from adv_wrappers.errors import SpaceError, ValueRangeError
from adv_wrappers.evaluation.image_distances import ObservationBatch, pair

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

    >>> from adv_wrappers.evaluation.lpips import Lpips
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
        self.weights = None if weights is None else [_weights(w, i) for i, w in enumerate(weights)]
        self.mean, self.std = _colours("mean", mean), _colours("std", std)
        if not (self.std > 0).all():
            raise ValueRangeError(f"std must be above zero, got {std!r}")
        self.kind = "baseline" if weights is None else "lin"
        self.name = name if name is not None else "lpips" if self.kind == "lin" else "lpips-baseline"
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
        distances = [
            self._compare(*((z.double() - low) * (2 / (high - low)) - 1 for z in chunks))
            for chunks in zip(*(z.split(BATCH) for z in frames), strict=True)
        ]
        return torch.cat(distances).view(len(a), -1).mean(1).to(a.device)

    def _compare(self, a: Tensor, b: Tensor) -> Tensor:
        """Float64 ``[N]`` of pictures ``[N, H, W, K]`` in [-1, 1]."""
        both = torch.cat([a, b]).permute(0, 3, 1, 2)
        both = (both.expand(-1, 3, -1, -1) - self.mean.to(both.device)) / self.std.to(both.device)
        first = next(self.backbone.parameters(), None) if isinstance(self.backbone, nn.Module) else None
        device, dtype = (both.device, torch.float32) if first is None else (first.device, first.dtype)
        with torch.no_grad():
            maps = _maps(self.backbone(both.to(device, dtype)), len(both))
        if self.weights is not None and [m.shape[1] for m in maps] != [len(w) for w in self.weights]:
            raise SpaceError(
                f"the weights are for maps of {[len(w) for w in self.weights]} channels, the backbone returned "
                f"{[m.shape[1] for m in maps]}"
            )
        total = torch.zeros(len(a), dtype=torch.float64, device=device)
        for layer, features in enumerate(maps):
            unit = features / (features.square().sum(1, keepdim=True).sqrt() + TINY)  # ten times as fast as norm()
            squares = (unit[: len(a)] - unit[len(a) :]).square().double().mean((2, 3))
            weights = None if self.weights is None else self.weights[layer].to(device)
            total += squares.sum(1) if weights is None else squares @ weights
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
    given = torch.as_tensor(values, dtype=torch.float64).detach().cpu()
    flat = given.reshape(-1)
    if not torch.isfinite(flat).all() or (flat < 0).any():
        raise ValueRangeError(f"weights must be finite and at least 0, those of layer {layer} are not: {given}")
    if given.shape not in ((len(flat),), (1, len(flat), 1, 1)):
        raise ValueRangeError(f"weights of a layer have the shape [C] or [1, C, 1, 1], got {tuple(given.shape)}")
    return flat


def _colours(name: str, values: Sequence[float]) -> Tensor:
    found = torch.as_tensor(values, dtype=torch.float64).detach().cpu()
    if found.shape != (3,) or not torch.isfinite(found).all():
        raise ValueRangeError(f"{name} must be three finite numbers, one a colour, got {values!r}")
    return found.view(3, 1, 1)


def _maps(output: object, count: int) -> list[Tensor]:
    maps = list(output.values()) if isinstance(output, Mapping) else output
    if not isinstance(maps, (list, tuple)) or not maps:
        raise SpaceError(f"the backbone must return a list, tuple or dictionary of maps, got {type(output).__name__}")
    for m in maps:
        if not isinstance(m, Tensor) or m.dim() != 4 or len(m) != count or not m.is_floating_point():
            shape = tuple(m.shape) if isinstance(m, Tensor) else type(m).__name__
            raise SpaceError(f"the backbone must return float maps [{count}, C, H, W], one of them is {shape}")
    return list(maps)
