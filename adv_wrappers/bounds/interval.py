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
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from adv_wrappers.bounds.affine import check_width, pull_back_vectors, runs, times
from adv_wrappers.errors import ValueRangeError, VictimError
from adv_wrappers.networks.layers import ActionValue, AppendLogStd, Clip, Normalize, QuantileMean, TwoLogits
from adv_wrappers.networks.tracing import layers_of

Box = tuple[Tensor, Tensor]
Ends = Tensor | tuple[Tensor, ...]  # of a box, for a module of one input or of several
Rule = Callable[[Any, Any, Any], Box]  # a layer of its own type, and both ends
R = TypeVar("R", bound=Rule)

_RULES: dict[type[nn.Module], Rule] = {}


def interval(module: nn.Module, low: Ends, high: Ends, spec: Tensor | None = None) -> Box:
    """Bounds ``(low, high)`` on ``module(x)`` for every ``x`` with ``low <= x <= high``.

    Args:
        module: a layer of :func:`known`, a ``Sequential`` of them, nested as you like, or a class whose ``forward``
            applies them one after the other (see :func:`adv_wrappers.networks.tracing.layers_of`).
        low, high: float tensors ``[B, *S]``, finite; for a module of several inputs, tuples of them.
        spec: rows of linear combinations of the outputs ``[B, K]`` to bound in their place, ``[M, K]``, or
            ``[B, M, K]`` for other ones in every box; bounds are then ``[B, M]``. They are multiplied into the last
            linear layer, which bounds a difference of outputs more tightly than the difference of their bounds does.

    Raises:
        VictimError: for a layer without a rule, naming it and the layers that have one.
        ValueRangeError: for ends of different shapes or dtypes, a specification that does not fit the outputs, and,
            where they are on the host, for low above high.

    >>> import torch
    >>> from torch import nn
    >>> from adv_wrappers.bounds import interval
    >>> layer = nn.Linear(2, 1, bias=False)
    >>> with torch.no_grad():
    ...     _ = layer.weight.copy_(torch.tensor([[1.0, -2.0]]))
    >>> low, high = interval(layer, torch.tensor([[0.0, 0.0]]), torch.tensor([[1.0, 1.0]]))
    >>> low.item(), high.item()
    (-2.0, 1.0)
    >>> twice = nn.Sequential(layer, nn.Linear(1, 2))  # two outputs that rise and fall together
    >>> with torch.no_grad():
    ...     _ = twice[1].weight.fill_(1.0), twice[1].bias.zero_()
    >>> low, high = interval(twice, torch.zeros(1, 2), torch.ones(1, 2), spec=torch.tensor([[1.0, -1.0]]))
    >>> low.item(), high.item()
    (0.0, 0.0)
    """
    check_box(low, high)
    layers = layers_in(module, single=isinstance(low, Tensor))
    if spec is None:
        return through(layers, low, high)
    rows = check_spec(spec, low)
    offset = rows.new_zeros(())
    while layers and (pulled := pull_back_vectors(layers[-1].layer, rows)) is not None:
        rows, offset = pulled[0], offset + pulled[1]
        layers.pop()
    return combined(rows, offset, *through(layers, low, high))


class PlacedLayer(NamedTuple):
    """A layer, and where in its module it is: ``2.0``, or ``2[1]`` for what a traced ``forward`` does second."""

    path: str
    layer: nn.Module


def layers_in(module: nn.Module, single: bool = True) -> list[PlacedLayer]:
    """The layers that a module applies one after the other, each with a rule.

    Args:
        module: as :func:`interval` takes it.
        single: whether its input is one tensor; a module of several inputs has a rule of its own.

    Raises:
        VictimError: for a layer without a rule.
    """
    return list(_layers_in(module, single, ""))


def through(layers: Iterable[PlacedLayer], low: Ends, high: Ends) -> Box:
    """The box behind these layers."""
    for _, layer in layers:
        low, high = _rule_of(layer)(layer, low, high)
    return cast(Box, (low, high))  # a layer answers with one tensor


def combined(rows: Tensor, offset: Tensor, low: Tensor, high: Tensor) -> Box:
    """Bounds ``[B, M]`` on ``rows @ x + offset`` in boxes ``[B, *S]``, for rows ``[M, N]`` or ``[B, M, N]``."""
    low, high = low.flatten(1), high.flatten(1)
    check_width(rows, low.shape[1])
    middle, spread = _centre_and_radius(low, high)
    centre, radius = times(rows, middle) + offset, times(rows.abs(), spread)
    return centre - radius, centre + radius


def _centre_and_radius(low: Tensor, high: Tensor) -> Box:
    centre = torch.lerp(low, high, 0.5)
    return centre, high - centre


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

    >>> import torch
    >>> from adv_wrappers.bounds import joined
    >>> low, high = joined(torch.zeros(1, 2), (torch.zeros(1, 1), torch.ones(1, 1)))
    >>> low.tolist(), high.tolist()
    ([[0.0, 0.0, 0.0]], [[0.0, 0.0, 1.0]])
    """
    pairs = [(part, part) if isinstance(part, Tensor) else part for part in parts]
    return torch.cat([low for low, _ in pairs], -1), torch.cat([high for _, high in pairs], -1)


def check_box(low: object, high: object) -> None:
    """Raise :class:`ValueRangeError` unless these are the ends of boxes, as :func:`interval` takes them."""
    if isinstance(low, tuple) and isinstance(high, tuple) and len(low) == len(high):
        for pair in zip(low, high, strict=True):
            check_box(*pair)
        return
    low, high = _float_tensor(low), _float_tensor(high)
    if low.shape != high.shape or low.dtype != high.dtype:
        shapes = f"{low.dtype} {tuple(low.shape)} and {high.dtype} {tuple(high.shape)}"
        raise ValueRangeError(f"the ends of a box have one shape and dtype, got {shapes}")
    if low.device.type == "cpu" and not (low <= high).all():  # elsewhere, looking would wait for the device
        raise ValueRangeError("a box has low <= high everywhere, and no NaN")


def check_spec(spec: object, low: Ends) -> Tensor:
    """A specification for boxes with these ends; :class:`ValueRangeError` for what is none."""
    first = low if isinstance(low, Tensor) else low[0]
    fits = isinstance(spec, Tensor) and (spec.dim() == 2 or (spec.dim() == 3 and len(spec) in (1, len(first))))
    if not isinstance(spec, Tensor) or not fits or spec.dtype != first.dtype:
        got = f"{spec.dtype} {tuple(spec.shape)}" if isinstance(spec, Tensor) else type(spec).__name__
        raise ValueRangeError(
            f"a specification is a tensor [M, K] or [{len(first)}, M, K] of {first.dtype}, as the box is, got {got}"
        )
    return spec


def _float_tensor(end: object) -> Tensor:
    if not isinstance(end, Tensor) or not end.is_floating_point():
        raise ValueRangeError(f"a box has two float tensors as ends, got {getattr(end, 'dtype', type(end))}")
    return end


def _layers_in(module: nn.Module, single: bool, path: str) -> Iterator[PlacedLayer]:
    plain = not (module._forward_hooks or module._forward_pre_hooks)
    if plain and runs(module, nn.Sequential):
        for name, child in module._modules.items():  # children() leaves out the second use of a shared layer
            assert child is not None
            yield from _layers_in(child, single, f"{path}.{name}" if path else name)
        return
    kind = _kind(module)
    layers = layers_of(module) if kind is None and plain and single else None
    if layers is not None and layers != [module]:
        for i, layer in enumerate(layers):
            yield from _layers_in(layer, single, f"{path}[{i}]")
        return
    if kind is None or not plain:
        what = f"layer {path} ({module})" if path else str(module)
        why = f"known: {', '.join(known())}" if plain else "a hook may change what it answers"
        raise VictimError(f"bounds have no rule for {what}: {why}; bounds.rule adds one")
    yield PlacedLayer(path, module)


def _kind(layer: nn.Module) -> type[nn.Module] | None:
    """The type whose rule holds for a layer."""
    return next((kind for kind in type(layer).__mro__ if kind in _RULES and runs(layer, kind)), None)


def _rule_of(layer: nn.Module) -> Rule:
    kind = _kind(layer)
    assert kind is not None  # layers_in has looked
    return _RULES[kind]


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
    middle, spread = _centre_and_radius(low, high)
    centre = functional.linear(middle, layer.weight, layer.bias)
    radius = functional.linear(spread, layer.weight.abs())
    return centre - radius, centre + radius


@rule(nn.Conv2d)
def _conv2d(layer: nn.Conv2d, low: Tensor, high: Tensor) -> Box:
    if layer.padding_mode != "zeros":
        raise VictimError(f"interval bounds have no rule for {layer}: expected padding_mode='zeros'")
    conv = functools.partial(
        functional.conv2d, stride=layer.stride, padding=layer.padding, dilation=layer.dilation, groups=layer.groups
    )
    middle, spread = _centre_and_radius(low, high)
    centre = conv(middle, layer.weight, layer.bias)
    radius = conv(spread, layer.weight.abs())
    return centre - radius, centre + radius


@rule(ActionValue)
def _action_value(layer: ActionValue, low: tuple[Tensor, Tensor], high: tuple[Tensor, Tensor]) -> Box:
    """``(obs, act)`` at both ends; a fixed part has the same ends."""
    seen = interval(layer.normalise, low[0], high[0])
    least, most = interval(layer.net, *joined(seen, (low[1], high[1])))
    return least.squeeze(-1), most.squeeze(-1)
