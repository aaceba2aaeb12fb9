"""Gradients through ``torch.compile``, for networks that are not walked by hand: one compiled function a victim.

What is compiled is the gradient, not the network: that a forward and a backward pass become one piece of code is where
small networks gain (``benchmarks/options.py``). It takes a C++ compiler on a processor, Triton on a GPU; without one,
or where tracing fails, a warning is given once and the gradient is computed as usual.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Gradient = Callable[[Tensor], Tensor]


def compiled(victim: Any, loss: Any, plain: Gradient) -> Gradient:
    """``x -> d loss(params(x)).sum() / dx`` by the victim's compiled function; ``plain`` is what it falls back to."""
    if "_compiled" not in vars(victim):
        victim._compiled = torch.compile(_gradient_of(victim), fullgraph=True)

    def gradient(x: Tensor) -> Tensor:
        if victim._compiled is None:
            return plain(x)
        try:
            return victim._compiled(x, loss)  # type: ignore[no-any-return]
        except Exception as error:  # whatever a tracer, a compiler or a linker raises
            victim._compiled = None
            warnings.warn(f"{victim!r} is not compiled: {type(error).__name__}: {error}", RuntimeWarning, stacklevel=2)
            return plain(x)

    return gradient


def _gradient_of(victim: Any) -> Callable[[Tensor, Any], Tensor]:
    def gradient(x: Tensor, loss: Any) -> Tensor:
        return torch.func.grad(lambda y: loss(victim.params(y)).sum())(x)  # type: ignore[no-any-return]

    return gradient
