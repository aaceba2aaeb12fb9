"""Pooling of pictures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from adv_wrappers.networks.operations.linear_bounds import Bounds, BoundStep, Shape, Total, Values, flat, with_opposite
from adv_wrappers.networks.operations.operation import LayerOperation, register


@register
class AveragePool(LayerOperation):
    """Means of windows."""

    monotone = True
    layers = (nn.AvgPool2d, nn.AdaptiveAvgPool2d)

    def is_affine(self) -> bool:
        return True


@register
class MaxPool(LayerOperation):
    """The largest of every window.

    Below the maximum of a window lies the element whose lower bound is largest. Above it lies the same, where no other
    element of the window can exceed that, and elsewhere the constant that none exceeds (as of Singh et al. 2019).
    """

    monotone = True
    layers = (nn.MaxPool2d,)
    calls = (functional.max_pool2d,)
    frees_output = True
    copies_gradient = True

    def has_gradient(self) -> bool:
        return not self.layer.return_indices

    @property
    def _settings(self) -> tuple[Any, ...]:
        layer = self.layer
        sizes = layer.kernel_size, layer.stride, layer.padding, layer.dilation
        return *([each, each] if isinstance(each, int) else list(each) for each in sizes), layer.ceil_mode

    def relax(self, values: Values, sources: tuple[int, ...]) -> tuple[BoundStep | None, Bounds | None]:
        low, high = values.box(sources[0], self.in_doubt)
        after = self.interval(low, high)
        return self.step(sources, low, high, after), after

    def step(self, sources: tuple[int, ...], low: Tensor, high: Tensor, after: Bounds) -> PoolStep:
        """Its step, from the boxes before and behind it."""
        least, place, _, _, others = self.windows(low, high)
        certain = others <= least
        most = torch.where(certain, 0.0, torch.maximum(others, high.flatten(2).gather(2, place)))
        return PoolStep(sources, tuple(low.shape[1:]), place[:, None], most[:, None], certain[:, None], after)

    def in_doubt(self, low: Tensor, high: Tensor) -> Tensor:
        """Which elements tighter bounds may make the largest of their window, or not, ``[B, C, H, W]``."""
        least, _, members, highs, others = self.windows(low, high)
        doubt = (others > least)[:, :, None] & (highs > least[:, :, None])
        found = low.new_zeros(*low.shape[:2], 1 + low[0, 0].numel())
        found.scatter_add_(2, (members + 1).expand_as(doubt).flatten(2), doubt.to(low.dtype).flatten(2))
        return (found[:, :, 1:] > 0).view_as(low)

    def windows(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Of windows the largest lower bound and whose it is, all elements, their upper bounds, the others' largest.

        Returns:
            ``[B, C, L]``, int64 ``[B, C, L]``, int64 ``[1, 1, K, L]`` (-1 for padding), ``[B, C, K, L]``,
            ``[B, C, L]``.
        """
        pooled, places = functional.max_pool2d(low, *self._settings, return_indices=True)
        least = pooled.flatten(2)
        place = places.flatten(2)
        sides = pooled.shape[2:]
        # which element of the picture stands where in every window; -1 is padding
        numbers = torch.arange(low[0, 0].numel(), dtype=low.dtype, device=low.device).view(1, 1, *low.shape[2:])
        members = self._unfolded(numbers, sides).clamp(min=-1).long()
        highs = self._unfolded(high, sides)
        others = highs.masked_fill(members == place[:, :, None], -torch.inf).amax(2)
        return least, place, members, highs, others

    def _unfolded(self, x: Tensor, sides: Sequence[int]) -> Tensor:
        """The elements of every window of pictures ``[B, C, H, W]``, ``[B, C, K, L]``, minus infinity for padding.

        Args:
            x: the pictures.
            sides: how many windows there are, downwards and along.
        """
        kernel, stride, padding, dilation, _ = self._settings
        # with ceil_mode, windows reach beyond the padding
        beyond = [s + d * (k - 1) for s, d, k in zip(stride, dilation, kernel, strict=True)]
        around = (padding[1], padding[1] + beyond[1], padding[0], padding[0] + beyond[0])
        found = functional.pad(x, around, value=-torch.inf)
        for axis in (0, 1):
            found = found.unfold(2 + axis, dilation[axis] * (kernel[axis] - 1) + 1, stride[axis])
        found = found[:, :, : sides[0], : sides[1], :: dilation[0], :: dilation[1]]
        return found.permute(0, 1, 4, 5, 2, 3).flatten(4).flatten(2, 3)

    def rounding(self, variances: Sequence[Tensor], boxes: Sequence[Bounds], after: Tensor, eps: float) -> Tensor:
        return self(variances[0])


@dataclass
class PoolStep(BoundStep):
    """Max pooling.

    Attributes:
        sources: the number of the value that it takes.
        shape: of a row of that.
        place: the element with the largest lower bound of every window, int64 ``[B, 1, C, H' W']``, as a number within
            its channel.
        most: what no element exceeds; 0 where that element is the largest for certain, ``[B, 1, C, H' W']``.
        certain: bool, where it is.
        after: the box of the value that it answers.
    """

    sources: tuple[int, ...]
    shape: Shape
    place: Tensor
    most: Tensor
    certain: Tensor
    after: Bounds | None

    def pull(self, rows: Tensor, both: bool, total: Total) -> tuple[Sequence[Tensor], bool]:
        windows = (rows if both else with_opposite(rows)).flatten(3)
        up, down = windows.clamp(min=0), windows.clamp(max=0)
        total.add(flat(down * self.most, 2).sum(-1), None, True)
        of_place = up + down * self.certain
        channels, *sides = self.shape
        place = self.place.expand(*of_place.shape)
        back = rows.new_zeros(*of_place.shape[:2], channels, math.prod(sides)).scatter_add(3, place, of_place)
        return [back.view(*back.shape[:3], *sides)], True
