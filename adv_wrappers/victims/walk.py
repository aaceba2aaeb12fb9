"""A walk through a chain: the gradient of a loss with respect to the input, written out, on memory used again.

An attack takes K steps of one shape, so what one step wrote, the next writes over: activations and inner gradients are
allocated once an attack. The kernels are those of autograd, but for the last linear layer, whose output is computed as
its transpose ``[K, B]``: a softmax over the first axis of that is ten times as fast as one over a last axis of six.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from adv_wrappers.victims.fold import Fold, fold_of
from adv_wrappers.victims.links import Make, links_of


class Walk:
    """``x -> d loss(params(x)).sum() / dx``, for one attack.

    Args:
        layers: of the chain.
        slope: parameters ``[B, K]`` to the gradient of the loss with respect to them.
        fold: how the input is laid out, where it is folded.
        dtype: what the layers compute in, by default that of their weights. Input and result keep theirs.
        make: key and function to a tensor that is made of weights (see :meth:`adv_wrappers.victims.chain.Chain.make`).

    Attributes:
        spendable: what a call returns is memory of its own, for the attack to write over.
    """

    def __init__(
        self, layers: list[nn.Module], slope: Callable[[Tensor], Tensor], fold: Fold | None = None,
        dtype: torch.dtype | None = None, make: Make = lambda key, function: function(),
    ) -> None:  # fmt: skip
        self.layers, self.slope, self.dtype, self.make = layers, slope, dtype, make
        self.links = links_of(layers, fold, dtype, make)
        self._back = self.links[::-1]
        self.spendable = any(link.spendable for link in self.links)

    def fold(self, x: Tensor) -> tuple[Fold, Walk] | None:
        """How observations like ``x`` ``[B, *S]`` are folded, and the walk for such ones; None where it does not pay.

        On a processor it does. What convolutions cost on other devices nobody has measured.
        """
        fold = fold_of(self.layers, tuple(x.shape[1:])) if x.device.type == "cpu" else None
        return None if fold is None else (fold, Walk(self.layers, self.slope, fold, self.dtype, self.make))

    def __call__(self, x: Tensor) -> Tensor:
        if torch.is_grad_enabled():  # asked, because leaving a context costs as much as a small layer
            with torch.no_grad():
                return self(x)
        y = x if self.dtype is None else x.to(self.dtype)
        for link in self.links:
            y = link.forward(y)
        # the loss itself is always computed exactly
        g = self.slope(y) if self.dtype is None else self.slope(y.to(x.dtype)).to(self.dtype)
        for link in self._back:
            g = link.backward(g)
        return g if self.dtype is None else g.to(x.dtype)
