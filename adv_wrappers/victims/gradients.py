"""What can be said of a victim from its networks alone: the gradient of a loss at an observation, a hash of weights."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from adv_wrappers.core.errors import VictimError

Loss = Callable[[Tensor], Tensor]


def gradient(victim: Any, loss: Loss, state: Any, fill: Any) -> Callable[[Tensor], Tensor]:
    """``x -> d loss(params(x)).sum() / dx``; see :meth:`adv_wrappers.victims.victim.Victim.gradient`.

    A chain is walked by hand; anything else, and what is recurrent or part of a larger observation, is differentiated.
    """
    chain = victim.chain() if fill is None and state is None else None
    if chain is not None:
        return chain.walk(getattr(loss, "gradient", None) or _slope(loss))  # type: ignore[no-any-return]

    def differentiate(x: Tensor) -> Tensor:
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            total = loss(victim.params(x if fill is None else fill(x), state)).sum()
            if not total.requires_grad:
                raise VictimError(
                    "the victim's output carries no gradient to the observation: its module must not detach, run under "
                    "no_grad, or choose actions itself"
                )
            return torch.autograd.grad(total, x)[0]

    return differentiate


def _slope(loss: Loss) -> Callable[[Tensor], Tensor]:
    """Gradient of a loss with respect to parameters, by autograd over the parameters alone."""

    def slope(params: Tensor) -> Tensor:
        with torch.enable_grad():
            params = params.detach().requires_grad_()
            return torch.autograd.grad(loss(params).sum(), params)[0]

    return slope


def digest(modules: Iterable[nn.Module]) -> str:
    """sha256 over names, shapes, dtypes and bytes of all weights and buffers (hexadecimal)."""
    found = hashlib.sha256()
    for module in modules:
        for name, tensor in sorted(module.state_dict().items()):
            array = tensor.detach().cpu().contiguous()
            found.update(f"{name}{tuple(array.shape)}{array.dtype}".encode())
            found.update(array.reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()
