"""Interval bound propagation (Gowal et al. 2018, section 3): a box in, a box around every possible output out.

A box is a pair of tensors ``low <= high`` of one shape, batch first. Linear layers and convolutions take its centre
and radius, ``W c + b`` and ``|W| r``: two passes where the four products of positive and negative parts are the same
bound. Layers that rise in every input take the two ends. All of it is differentiable with respect to weights and box.

Bounds hold in exact arithmetic: nothing is rounded outwards, so an output may leave its box by the rounding of the
pass itself. A point (``low == high``) gives the forward pass to the bit.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from adv_wrappers.errors import ValueRangeError, VictimError
from adv_wrappers.networks.layers import ActionValue, AppendLogStd, Clip, Normalize, QuantileMean, TwoLogits
from adv_wrappers.networks.tracing import layers_of

Box = tuple[Tensor, Tensor]
Ends = Tensor | tuple[Tensor, ...]  # of a box, for a module of one input or of several
Rule = Callable[[Any, Any, Any], Box]  # a layer of its own type, and both ends
R = TypeVar("R", bound=Rule)

_RULES: dict[type[nn.Module], Rule] = {}


def interval(module: nn.Module, low: Ends, high: Ends) -> Box:
    """Bounds ``(low, high)`` on ``module(x)`` for every ``x`` with ``low <= x <= high``.

    Args:
        module: a layer of :func:`known`, a ``Sequential`` of them, nested as you like, or a class whose ``forward``
            applies them one after the other (see :func:`adv_wrappers.networks.tracing.layers_of`).
        low, high: float tensors ``[B, *S]``, finite; for a module of several inputs, tuples of them.

    Raises:
        VictimError: for a layer without a rule, naming it and the layers that have one.
        ValueRangeError: for ends of different shapes or dtypes, and, where they are on the host, for low above high.

    >>> layer = nn.Linear(2, 1, bias=False)
    >>> with torch.no_grad():
    ...     _ = layer.weight.copy_(torch.tensor([[1.0, -2.0]]))
    >>> low, high = interval(layer, torch.tensor([[0.0, 0.0]]), torch.tensor([[1.0, 1.0]]))
    >>> low.item(), high.item()
    (-2.0, 1.0)
    """
    _check(low, high)
    return _through(module, low, high, "")


def rule(*kinds: type[nn.Module]) -> Callable[[R], R]:
    """Give layers of these types a rule ``(layer, low, high) -> (low, high)``; also for subclasses with their forward.

    Raises:
        ValueRangeError: for a type that has a rule.
    """

    def add(function: R) -> R:
        for kind in kinds:
            if kind in _RULES:
                raise ValueRangeError(f"{kind.__name__} has a rule already: {_RULES[kind]}")
            _RULES[kind] = function
        return function

    return add


def monotone(*kinds: type[nn.Module]) -> None:
    """Register layers each of whose outputs falls with none of the inputs: their bounds are their values at the ends.

    Clamps, activations, pooling, normalisers that divide by something positive, putting a constant beside the input.
    """
    rule(*kinds)(_ends)


def known() -> tuple[str, ...]:
    """Names of the layers that have a rule, sorted."""
    return tuple(sorted(kind.__name__ for kind in (*_RULES, nn.Sequential)))


def joined(*parts: Box | Tensor) -> Box:
    """Boxes ``(low, high)`` and fixed tensors side by side along the last axis, as one box.

    >>> low, high = joined(torch.zeros(1, 2), (torch.zeros(1, 1), torch.ones(1, 1)))
    >>> low.tolist(), high.tolist()
    ([[0.0, 0.0, 0.0]], [[0.0, 0.0, 1.0]])
    """
    pairs = [(part, part) if isinstance(part, Tensor) else part for part in parts]
    return torch.cat([low for low, _ in pairs], -1), torch.cat([high for _, high in pairs], -1)


def _check(low: object, high: object) -> None:
    if isinstance(low, tuple) and isinstance(high, tuple) and len(low) == len(high):
        for pair in zip(low, high, strict=True):
            _check(*pair)
        return
    low, high = _float_tensor(low), _float_tensor(high)
    if low.shape != high.shape or low.dtype != high.dtype:
        shapes = f"{low.dtype} {tuple(low.shape)} and {high.dtype} {tuple(high.shape)}"
        raise ValueRangeError(f"the ends of a box have one shape and dtype, got {shapes}")
    if low.device.type == "cpu" and not (low <= high).all():  # elsewhere, looking would wait for the device
        raise ValueRangeError("a box has low <= high everywhere, and no NaN")


def _float_tensor(end: object) -> Tensor:
    if not isinstance(end, Tensor) or not end.is_floating_point():
        raise ValueRangeError(f"a box has two float tensors as ends, got {getattr(end, 'dtype', type(end))}")
    return end


def _through(module: nn.Module, low: Ends, high: Ends, path: str) -> Box:
    plain = not (module._forward_hooks or module._forward_pre_hooks)
    if plain and _is(module, nn.Sequential):
        for name, child in module._modules.items():  # children() leaves out the second use of a shared layer
            assert child is not None
            low, high = _through(child, low, high, f"{path}.{name}" if path else name)
        return cast(Box, (low, high))  # a Sequential takes one tensor
    kind = next((kind for kind in type(module).__mro__ if kind in _RULES and _is(module, kind)), None)
    layers = layers_of(module) if kind is None and plain and isinstance(low, Tensor) else None
    if layers is not None and layers != [module]:
        for i, layer in enumerate(layers):
            low, high = _through(layer, low, high, f"{path}[{i}]")
        return cast(Box, (low, high))
    if kind is None or not plain:
        what = f"layer {path} ({module})" if path else str(module)
        why = f"known: {', '.join(known())}" if plain else "a hook may change what it answers"
        raise VictimError(f"interval bounds have no rule for {what}: {why}; bounds.rule adds one")
    return _RULES[kind](module, low, high)


def _is(module: nn.Module, kind: type[nn.Module]) -> bool:
    """Whether a module runs the forward of ``kind``, as subclasses do that add nothing to it."""
    return isinstance(module, kind) and getattr(module.forward, "__func__", None) is kind.forward


def _ends(layer: nn.Module, low: Tensor, high: Tensor) -> Box:
    if getattr(layer, "inplace", False):
        low, high = low.clone(), high.clone()
    return layer(low), layer(high)


monotone(
    nn.Tanh, nn.ReLU, nn.Sigmoid, nn.Hardtanh, nn.Identity, nn.Flatten, nn.AvgPool2d, nn.MaxPool2d, Normalize, Clip,
    AppendLogStd, TwoLogits, QuantileMean,
)  # fmt: skip


@rule(nn.LeakyReLU, nn.ELU)
def _bent(layer: nn.LeakyReLU | nn.ELU, low: Tensor, high: Tensor) -> Box:
    slope = layer.negative_slope if isinstance(layer, nn.LeakyReLU) else layer.alpha
    if slope < 0:
        raise VictimError(f"interval bounds have no rule for {layer}: it falls below 0, expected a slope of at least 0")
    return _ends(layer, low, high)


@rule(nn.Softplus)
def _softplus(layer: nn.Softplus, low: Tensor, high: Tensor) -> Box:
    """Torch goes over to the identity where ``beta x > threshold``, which is a step down, and large for a small one."""
    beta, threshold = layer.beta, layer.threshold
    if beta <= 0:
        raise VictimError(f"interval bounds have no rule for {layer}: expected beta above 0")
    crosses = (low * beta <= threshold) & (high * beta > threshold)
    step = threshold / beta
    before = math.log1p(math.exp(-abs(threshold))) / beta + max(step, 0.0)
    least, most = layer(low), layer(high)
    return torch.where(crosses, least.clamp(max=step), least), torch.where(crosses, most.clamp(min=before), most)


@rule(nn.Linear)
def _linear(layer: nn.Linear, low: Tensor, high: Tensor) -> Box:
    centre = functional.linear((low + high) / 2, layer.weight, layer.bias)
    radius = functional.linear((high - low) / 2, layer.weight.abs())
    return centre - radius, centre + radius


@rule(nn.Conv2d)
def _conv2d(layer: nn.Conv2d, low: Tensor, high: Tensor) -> Box:
    if layer.padding_mode != "zeros":
        raise VictimError(f"interval bounds have no rule for {layer}: expected padding_mode='zeros'")
    conv = functools.partial(
        functional.conv2d, stride=layer.stride, padding=layer.padding, dilation=layer.dilation, groups=layer.groups
    )
    centre = conv((low + high) / 2, layer.weight, layer.bias)
    radius = conv((high - low) / 2, layer.weight.abs())
    return centre - radius, centre + radius


@rule(ActionValue)
def _action_value(layer: ActionValue, low: tuple[Tensor, Tensor], high: tuple[Tensor, Tensor]) -> Box:
    """``(obs, act)`` at both ends; a fixed part has the same ends."""
    seen = interval(layer.normalise, low[0], high[0])
    least, most = interval(layer.net, *joined(seen, (low[1], high[1])))
    return least.squeeze(-1), most.squeeze(-1)
