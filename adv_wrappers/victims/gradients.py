"""The gradient of a loss with respect to a victim's observation: written out, or by autograd.

Where the victim's network is a graph of known layers, its gradient is written out
(:mod:`adv_wrappers.networks.input_gradient`); anything else is differentiated by autograd.

Inside ``torch.autocast`` networks are differentiated by autograd, in the dtype that autocast chooses; losses, steps and
projections are computed in the victim's own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from adv_wrappers.errors import VictimError

Loss = Callable[[Tensor], Tensor]
Gradient = Callable[[Tensor], Tensor]
Fill = Callable[[Tensor], object]  # what an attack perturbs to a whole observation
_INSTEAD = "attack it by its scores alone with square, or by its decisions alone with hop-skip-jump"


def need_gradient(attack: str, victim: object) -> None:
    """Raise :class:`VictimError` for a victim that is known to have no gradient; None is one that is still open."""
    if not getattr(victim, "differentiable", True):
        why = getattr(victim, "without_gradient", "it works on arrays")
        raise VictimError(f"{attack} needs the victim's gradient, and this victim has none: {why}; {_INSTEAD}")


def gradient(victim: Any, loss: Loss, state: object, fill: Fill | None) -> Callable[[Tensor], Tensor]:
    """``x -> d loss(params(x)).sum() / dx``; see :meth:`adv_wrappers.victims.victim.Victim.gradient`.

    What is recurrent, or part of a larger observation, is differentiated by autograd.

    Raises:
        VictimError: at once for a victim that has no gradient, or when the gradient is computed.
    """
    need_gradient("this attack", victim)
    # written out where the network is a graph of known layers, and else by autograd
    kind = victim.device.type
    cast = torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)  # raises where it does not exist
    graph = victim.layer_graph() if fill is None and state is None and not cast else None
    if graph is not None:
        return graph.input_gradient(output_gradient(loss))  # type: ignore[no-any-return]

    def params(x: Tensor) -> Tensor:
        return victim.params(x if fill is None else fill(x), state)  # type: ignore[no-any-return]

    return by_autograd(
        params,
        loss,
        "the victim's output carries no gradient to the observation: its module must not detach, run under "
        f"no_grad, or choose actions itself, and must use what is attacked; {_INSTEAD}",
    )


def by_autograd(outputs: Callable[[Tensor], Tensor], loss: Loss, without: str) -> Gradient:
    """``x -> d loss(outputs(x)).sum() / dx`` by autograd over ``outputs`` alone: the loss has its gradient beside it.

    Args:
        outputs: observations ``[B, *S]`` to the input of the loss, ``[B, ...]``.
        loss: with a method ``gradient`` in closed form, or else differentiated by itself.
        without: the message of the :class:`VictimError` where no gradient reaches the observation.
    """
    slope = output_gradient(loss)

    def differentiate(x: Tensor) -> Tensor:
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            y = outputs(x)
        if not y.requires_grad:
            raise VictimError(without)
        # the loss has its own gradient with respect to the outputs, so autograd goes through the network alone
        g = slope(y.detach().to(x.dtype)).to(y.dtype)
        return torch.autograd.grad(y, x, g)[0]

    def without_graph(x: Tensor) -> Tensor:
        if torch.is_grad_enabled():  # checked first, because leaving a context costs as much as a small layer
            with torch.no_grad():
                return differentiate(x)
        return differentiate(x)

    return without_graph


def output_gradient(loss: Loss) -> Gradient:
    """The gradient of a loss with respect to its input: its own, or by autograd over that input alone."""

    def differentiate(params: Tensor) -> Tensor:
        with torch.enable_grad():
            params = params.detach().requires_grad_()
            return torch.autograd.grad(loss(params).sum(), params)[0]

    return getattr(loss, "gradient", None) or differentiate
