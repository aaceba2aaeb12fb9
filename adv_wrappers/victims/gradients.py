"""What can be said of a victim from its networks alone: the gradient of a loss at an observation, a hash of weights."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from adv_wrappers.core.errors import VictimError
from adv_wrappers.victims.compiled import compiled
from adv_wrappers.victims.precision import lowered

Loss = Callable[[Tensor], Tensor]

_INSTEAD = "attack it by its scores alone with square, or by its decisions alone with hop-skip-jump"


def need_gradient(attack: str, victim: Any) -> None:
    """Raise :class:`VictimError` for a victim that is known to have no gradient; None is one that is still open."""
    if not getattr(victim, "differentiable", True):
        raise VictimError(
            f"{attack} needs the victim's gradient, and this victim has none: its function works on numpy arrays, "
            f"detaches or runs under no_grad; {_INSTEAD}"
        )


def gradient(victim: Any, loss: Loss, state: Any, fill: Any, precision: str | None) -> Callable[[Tensor], Tensor]:
    """``x -> d loss(params(x)).sum() / dx``; see :meth:`adv_wrappers.victims.victim.Victim.gradient`.

    A chain is walked by hand; anything else, and what is recurrent or part of a larger observation, is differentiated,
    by compiled code where the victim was made with ``compile=True``.

    Raises:
        VictimError: at once for a victim that has no gradient, or when the gradient is asked for.
    """
    need_gradient("this attack", victim)
    chain = victim.chain() if fill is None and state is None and precision != "tf32" else None
    if chain is not None:
        dtype = torch.bfloat16 if precision == "bf16" else None
        return chain.walk(getattr(loss, "gradient", None) or _slope(loss), dtype)  # type: ignore[no-any-return]

    def differentiate(x: Tensor) -> Tensor:
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            with lowered(precision, x.device):
                params = victim.params(x if fill is None else fill(x), state)
            total = loss(params if precision is None else params.to(x.dtype)).sum()
            if not total.requires_grad:
                raise VictimError(
                    "the victim's output carries no gradient to the observation: its module must not detach, run under "
                    f"no_grad, or choose actions itself; {_INSTEAD}"
                )
            with lowered(precision, x.device):
                return torch.autograd.grad(total, x)[0]

    # a loss that is a function of its own would be compiled anew at every attack
    if victim.compile and fill is None and state is None and precision is None and hasattr(loss, "gradient"):
        return compiled(victim, loss, differentiate)
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
            # contiguous() would leave any stride to a side of length 1
            array = tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
            found.update(f"{name}{tuple(array.shape)}{array.dtype}".encode())
            found.update(array.reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()
