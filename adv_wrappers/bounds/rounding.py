"""How far a network's own arithmetic may be off: an estimate of rounding errors over a box, for decisions near a tie.

Bounds hold in exact arithmetic, and a network computes in rounded. An error analysis that is certain adds up absolute
values in every layer, and of a deep network says nothing. Here errors are taken as independent of each other (Higham
and Mary 2019): every sum of a layer errs by one machine epsilon of the absolute values that it adds up, errors go
through the next layer by the squares of its weights, and activation functions do not make them larger (GELU and SiLU by
less than an eighth). Layer normalisation divides them by the least deviation of its box.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from adv_wrappers.bounds.affine import check_width, is_affine, runs
from adv_wrappers.bounds.interval_bounds import Bounds, boxes_of, nodes_in, rule_of
from adv_wrappers.bounds.layer_norm import Standardized, parts_of
from adv_wrappers.networks.graph import Arithmetic, Join, NodeLayer, factor_and_offset
from adv_wrappers.networks.layers import AppendLogStd, Normalize, QuantileMean


def rounding(module: nn.Module, low: Tensor, high: Tensor, spec: Tensor, eps: float) -> Tensor:
    """The size ``[B, M]`` of rounding errors of combinations of a network's outputs, anywhere in boxes.

    Args:
        module: as :func:`adv_wrappers.bounds.interval_bounds` takes it, of one input.
        low, high: float tensors ``[B, *S]``.
        spec: rows of linear combinations of the outputs, ``[M, K]``.
        eps: the machine epsilon that the network computes with.
    """
    nodes = nodes_in(module, low)
    boxes = boxes_of(nodes, low, high, range(len(nodes) + 1))
    variances = [torch.zeros_like(low)]
    for number, node in enumerate(nodes, 1):
        taken = [boxes[i] for i in node.inputs]
        variances.append(_behind(node.layer, [variances[i] for i in node.inputs], taken, _size(*boxes[number]), eps))
    check_width(spec, variances[-1].shape[1])
    return (variances[-1] @ spec.square().T).sqrt()


def _size(low: Tensor, high: Tensor) -> Tensor:
    """The largest absolute values in a box."""
    return torch.maximum(-low, high).clamp(min=0)


def _behind(
    layer: NodeLayer, variances: Sequence[Tensor], boxes: Sequence[Bounds], after: Tensor, eps: float
) -> Tensor:
    """Variances behind a layer that takes values in boxes, and answers with numbers of at most ``after``."""
    if isinstance(layer, Join):
        return _behind_join(layer, variances, [_size(*box) for box in boxes], (eps * after).square())
    (variance,), (box,) = variances, boxes
    size = _size(*box)
    if isinstance(layer, (nn.Linear, nn.Conv2d)) and (runs(layer, nn.Linear) or runs(layer, nn.Conv2d)):
        sums = _with(layer, torch.abs)(size)
        squares = _with(layer, torch.square, bias=False)(variance)
        return squares + (eps * sums).square()
    if isinstance(layer, Normalize) and runs(layer, Normalize):
        return variance / layer.std.square() + (eps * (size + layer.mean.abs()) / layer.std).square()
    if isinstance(layer, AppendLogStd) and runs(layer, AppendLogStd):
        return torch.cat([variance, torch.zeros_like(variance)], -1)
    rounded = (eps * after).square()
    if isinstance(layer, Arithmetic):
        if layer.how == "add":
            return variance + rounded
        by = torch.as_tensor(layer.by, dtype=size.dtype, device=size.device).square()
        return (variance * by if layer.how == "multiply" else variance / by) + rounded
    if isinstance(layer, (nn.BatchNorm1d, nn.BatchNorm2d)):
        factor, offset = factor_and_offset(layer, size.dim())
        return variance * factor.square() + (eps * (size * factor.abs() + offset.abs())).square()
    if isinstance(layer, nn.LayerNorm) and runs(layer, nn.LayerNorm):
        return _behind_layer_norm(layer, variance, box, eps)
    if is_affine(layer) or isinstance(layer, nn.MaxPool2d):  # moves numbers, or takes the mean or the largest of some
        behind: Tensor = layer(variance)
        if isinstance(layer, QuantileMean):
            behind = behind / layer.quantiles + rounded
        return behind
    if variance.shape != rounded.shape:
        return rounded * len(variance[0].flatten())
    return variance * (_STEEPEST if isinstance(layer, (nn.GELU, nn.SiLU)) else 1) + rounded


_STEEPEST = 1.13**2  # of the slopes of GELU and SiLU, squared


def _behind_join(join: Join, variances: Sequence[Tensor], sizes: Sequence[Tensor], rounded: Tensor) -> Tensor:
    if join.how == "concatenate":
        zeros = tuple((at, torch.zeros_like(each)) for at, each in join.constants)
        return Join("concatenate", join.axis, zeros)(*variances)
    first, second = variances
    if join.how == "product":
        first, second = first * sizes[1].square(), second * sizes[0].square()
    return first + second + rounded


def _behind_layer_norm(layer: nn.LayerNorm, variance: Tensor, box: Bounds, eps: float) -> Tensor:
    """What a mean takes away, and what a deviation divides by, err as well, by less than what is taken and divided."""
    size = _size(*box)
    for part in parts_of(layer):
        before = box
        box = rule_of(part)(part, *box)
        after = _size(*box)
        if isinstance(part, Arithmetic):
            variance = _behind(part, [variance], [before], after, eps)
        elif isinstance(part, Standardized):
            variance = variance / part.least_variance(*before) + (eps * after).square()
        else:
            dims = tuple(range(-len(layer.normalized_shape), 0))
            variance = variance + variance.mean(dims, True) + (eps * size).square()
    return variance


def _with(layer: nn.Module, change: Callable[[Tensor], Tensor], bias: bool = True) -> Callable[[Tensor], Tensor]:
    """A linear layer or convolution with other weights."""
    assert isinstance(layer, (nn.Linear, nn.Conv2d))
    weight = change(layer.weight)
    beside = None if layer.bias is None or not bias else change(layer.bias)
    if isinstance(layer, nn.Linear):
        return lambda x: functional.linear(x, weight, beside)
    conv = layer
    return lambda x: functional.conv2d(x, weight, beside, conv.stride, conv.padding, conv.dilation, conv.groups)
