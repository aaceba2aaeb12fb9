"""Squares of pixels as channels: a convolution with a stride becomes one without.

A kernel of 8 x 8 that moves by 4 over ``[C, 84, 84]`` is one of 2 x 2 that moves by 1 over ``[16 C, 21, 21]``, where
every square of 4 x 4 pixels has become 16 channels. Sums and their terms are the same, but the way back to the input,
which scatters over few channels and many pixels, is several times as fast on a processor: in the Atari network it is
two thirds of a step. Other networks of convolutions take pictures whose channels are last in memory. The steps of an
attack do not mind how elements are laid out, so an attack is rearranged once, and back once.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from adv_wrappers.networks.graph import Node
from adv_wrappers.networks.operations.operation import Elementwise


@dataclass(frozen=True)
class SpaceToDepth:
    """Squares of ``side`` x ``side`` pixels as channels: ``[N, C, H, W]`` to ``[N, C side^2, H / side, W / side]``.

    In memory channels are last, which convolutions prefer.
    """

    side: int

    def __call__(self, x: Tensor) -> Tensor:
        n, c, h, w = x.shape
        s = self.side
        squares = x.view(n, c, h // s, s, w // s, s).permute(0, 2, 4, 1, 3, 5)
        return squares.reshape(n, h // s, w // s, c * s * s).permute(0, 3, 1, 2)

    def inverse(self, y: Tensor) -> Tensor:
        """From channels back to squares of pixels."""
        n, c, h, w = y.shape
        s = self.side
        squares = y.permute(0, 2, 3, 1).reshape(n, h, w, c // (s * s), s, s).permute(0, 3, 1, 4, 2, 5)
        return squares.reshape(n, c // (s * s), h * s, w * s)


def picture_layout(nodes: Sequence[Node], shape: tuple[int, ...]) -> SpaceToDepth | None:
    """How pictures ``[*S]`` are laid out for a network on a processor; None where that does not pay.

    Squares of one pixel leave the shape as it is: pictures whose channels are last in memory. Of such ones max pooling
    takes a tenth of the time; without it, and without a stride, pictures are faster as they are.
    """
    conv, uniform = _first_convolution(nodes)
    if conv is None or len(shape) != 3:
        return None
    squares = _squares_of(conv, shape) if uniform else None
    pays = conv.stride != (1, 1) or any(isinstance(node.layer, nn.MaxPool2d) for node in nodes)
    return squares or (SpaceToDepth(1) if pays else None)


def _first_convolution(nodes: Sequence[Node]) -> tuple[nn.Conv2d | None, bool]:
    """The convolution that a network begins with, and whether all that is before it is the same for every element.

    None where something else comes first than functions of every element.
    """
    value, uniform = 0, True
    while True:
        # a chain of functions of every element, as long as nothing else takes a value
        takers = [i for i, node in enumerate(nodes) if value in node.inputs]
        if len(takers) != 1:
            return None, False
        node, value = nodes[takers[0]], takers[0] + 1
        if isinstance(node.layer, nn.Conv2d):
            return node.layer, uniform
        if not isinstance(node.operation, Elementwise):
            return None, False
        uniform = uniform and node.operation.is_uniform()


def rearranged(nodes: Sequence[Node], layout: SpaceToDepth) -> list[Node]:
    """The nodes of a network for pictures that are laid out so: with the weights of its convolutions laid out, too."""
    found, first = list[Node](), True
    for node in nodes:
        layer = node.layer
        if isinstance(layer, nn.Conv2d):
            weight, conv = layer.weight.detach(), copy.copy(layer)  # to make another one takes longer
            if first and layout.side > 1:
                weight, conv.stride = layout(weight), (1, 1)
            weight = weight.to(memory_format=torch.channels_last)
            conv._parameters = {**layer._parameters, "weight": nn.Parameter(weight, requires_grad=False)}
            layer, first = conv, False
        found.append(Node(layer, node.inputs))
    return found


def _squares_of(conv: nn.Conv2d, shape: tuple[int, ...]) -> SpaceToDepth | None:
    """How pictures ``[*S]`` are rearranged for a first convolution; None where that is not the same, or does not pay.

    It takes one without padding whose stride divides its kernel and the picture, and few channels.
    """
    side = conv.stride[0]
    plain = conv.stride == (side, side) and conv.padding == (0, 0) and conv.dilation == (1, 1) and conv.groups == 1
    sizes = (*conv.kernel_size, *shape[1:])
    if not plain or side < 2 or shape[0] > 8 or any(size % side for size in sizes):
        return None
    return SpaceToDepth(side)
