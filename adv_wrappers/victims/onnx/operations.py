"""The operations of ONNX, as calls of torch."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from adv_wrappers.networks.operations.lookup import OPERATIONS as OF_LAYERS
from adv_wrappers.networks.policy_layers import Clip, Normalize
from adv_wrappers.victims.onnx.node_converter import (
    UNIT,
    Builder,
    GraphValue,
    Operator,
    Sizes,
    UnknownOperation,
    row_of,
)

Calls = Callable[[Builder, Operator], GraphValue | list[GraphValue]]  # of one node

# ----------------------------------------------------------------------------------------------------------------------
# Functions of several steps
# ----------------------------------------------------------------------------------------------------------------------


def _cast(x: Tensor, unit: Tensor) -> Tensor:
    return x.to(unit.dtype)


def _square(x: Tensor) -> Tensor:
    return x * x


def _beside(axis: int, *parts: Tensor) -> Tensor:
    return torch.cat(parts, axis)


def _expanded(x: Tensor, sizes: Sizes) -> Tensor:
    return x.expand(x.shape[0], *sizes)


def _norm(x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
    found: Tensor = torch.linalg.vector_norm(x, 2, axes, keep)
    return found


def _lstm(x: Tensor, h: Tensor, c: Tensor, *weights: Tensor) -> tuple[Tensor, ...]:
    """Steps ``[B, T, I]`` of a layer: ``[B, T, H]`` and the last states."""
    out = []
    for step in x.unbind(1):
        h, c = torch.lstm_cell(step, [h, c], *weights)
        out.append(h)
    return torch.stack(out, 1), h, c


def _gru(x: Tensor, h: Tensor, *weights: Tensor) -> tuple[Tensor, ...]:
    """Steps ``[B, T, I]`` of a layer: ``[B, T, H]`` and the last state."""
    out = []
    for step in x.unbind(1):
        h = torch.gru_cell(step, h, *weights)
        out.append(h)
    return torch.stack(out, 1), h


# ----------------------------------------------------------------------------------------------------------------------
# The operations of ONNX
# ----------------------------------------------------------------------------------------------------------------------


def _layer(make: Callable[..., nn.Module], b: Builder, op: Operator) -> GraphValue:
    """A layer without weights, whose only setting is the attribute of the node."""
    return b.call(make(*op.settings.values()), op.x)


def _function(function: Callable[..., Tensor], b: Builder, op: Operator) -> GraphValue:
    """A function of one value."""
    return b.call(function, op.x)


def _broadcast(function: Callable[..., Any], b: Builder, op: Operator) -> GraphValue:
    """A function of values and constants that broadcast."""
    return b.call(function, *b.aligned(op))


def _sum(b: Builder, op: Operator) -> GraphValue:
    found: GraphValue = reduce(lambda x, y: b.call(operator.add, x, y), b.aligned(op))
    return found


def _add(b: Builder, op: Operator) -> GraphValue:
    value, constant = op.value_and_constant()
    before = b.made(value) if value else None
    if value and before and isinstance(layer := before.function, nn.Linear):
        width = layer.out_features
        if constant.size == 1 or constant.size == constant.shape[-1] == width:
            old = 0 if layer.bias is None else layer.bias.numpy()
            return b.linear(before.arguments[0], layer.weight, np.broadcast_to(constant.reshape(-1), (width,)) + old)
    return _sum(b, op)


def _multiply(b: Builder, op: Operator) -> GraphValue:
    divides = op.kind == "Div"
    value, factor = op.value_and_constant(either=not divides)
    before = b.made(value) if value else None
    if value and before and before.function in (operator.add, operator.sub) and (factor > 0).all():
        # x less a mean, over a deviation: a normaliser
        x, mean = before.arguments
        mean = b.constants[str(mean.name)].numpy() if isinstance(mean, GraphValue) and mean.constant else mean
        if isinstance(x, GraphValue) and not isinstance(mean, GraphValue) and len(sizes := b.sizes(value)) == 1:
            std = np.broadcast_to(factor if divides else 1 / factor, (1, *sizes))[0]
            mean = np.broadcast_to(mean if before.function is operator.sub else -mean, sizes)
            return b.call(Normalize(b.weight(mean), b.weight(std)), x)
    return _broadcast(operator.truediv if divides else operator.mul, b, op)


def _pow(b: Builder, op: Operator) -> GraphValue:
    exponent = op.inputs[1]
    square = not isinstance(exponent, GraphValue) and exponent.size == 1 and exponent.item() == 2
    return b.call(_square, op.x) if square else _broadcast(operator.pow, b, op)


def _extreme(b: Builder, op: Operator) -> GraphValue:
    """The least or largest of several; of a value and a number a clip."""
    largest, given = op.kind == "Max", b.aligned(op)
    value, *values = [each for each in given if isinstance(each, GraphValue)]
    for each in values:
        value = b.call(torch.maximum if largest else torch.minimum, value, each)
    for number in [each for each in given if not isinstance(each, GraphValue)]:
        clip = Clip(number, None) if largest else Clip(None, number)
        value = b.call(nn.ReLU() if largest and number == 0 else clip, value)
    return value


def _clip(b: Builder, op: Operator) -> GraphValue:
    ends = [op.constant(1, "min"), op.constant(2, "max")]
    return b.call(Clip(*(None if end is None else float(end.item()) for end in ends)), op.x)


def _selu(b: Builder, op: Operator) -> GraphValue:
    alpha, gamma = op.settings.get("alpha", 1.6732632423543772), op.settings.get("gamma", 1.0507009873554805)
    return b.call(operator.mul, b.call(nn.ELU(alpha), op.x), gamma)


def _hard_sigmoid(b: Builder, op: Operator) -> GraphValue:
    scaled = b.call(operator.mul, op.x, op.settings.get("alpha", 0.2))
    return b.call(Clip(0.0, 1.0), b.call(operator.add, scaled, op.settings.get("beta", 0.5)))


def _to_dtype(b: Builder, op: Operator) -> GraphValue:
    """Numbers are all of one dtype here; that integers lose nothing shows where values are compared."""
    if op.found[0].dtype == np.bool_:
        return b.call(operator.ne, op.x, 0)
    return b.call(_cast, op.x, GraphValue(UNIT, True)) if b.examples[op.x.name].dtype == torch.bool else op.x


def _softmax(function: Callable[..., Tensor], b: Builder, op: Operator) -> GraphValue:
    x, (axis,) = b.along(op.x, op.sizes, [op.settings.get("axis", -1 if op.opset >= 13 else 1)])
    return b.call(function, x, axis)


def _reduce(function: Callable[..., Tensor], b: Builder, op: Operator) -> GraphValue:
    axes = op.constant(1, "axes")
    if axes is None and op.settings.get("noop_with_empty_axes"):
        return op.x
    x, found = b.along(op.x, op.sizes, range(len(op.sizes)) if axes is None else axes.reshape(-1))
    value = b.call(function, x, tuple(found), bool(op.settings.get("keepdims", 1)))
    if op.kind != "ReduceSum":
        return value
    return b.call(operator.mul, value, float(np.prod([b.sizes(x)[axis - 1] for axis in found])))


def _global_pool(function: Callable[..., Tensor], b: Builder, op: Operator) -> GraphValue:
    x, axes = b.along(op.x, op.sizes, range(2, len(op.sizes)))
    return b.call(function, x, tuple(axes), True)


def _transpose(b: Builder, op: Operator) -> GraphValue:
    sizes = op.sizes
    order = list(op.settings.get("perm", range(len(sizes))[::-1]))
    long = [axis for axis in order if sizes[axis] > 1]
    if long == sorted(long):
        return op.x
    x, axes = b.along(op.x, sizes, order)
    return b.call(torch.permute, x, (0, *axes))


def _slice(b: Builder, op: Operator) -> GraphValue:
    starts, ends = op.constant(1, "starts").tolist(), op.constant(2, "ends").tolist()
    axes, steps = op.constant(3, "axes", range(len(starts))), op.constant(4, default=[1] * len(starts)).tolist()
    x, found = b.along(op.x, op.sizes, axes)
    for axis, *ends_and_step in zip(found, starts, ends, steps, strict=True):
        x = b.chosen(x, axis, list(range(b.sizes(x)[axis - 1]))[slice(*ends_and_step)])
    return x


def _split(b: Builder, op: Operator) -> list[GraphValue]:
    axis = op.settings.get("axis", 0)
    x, (found,) = b.along(op.x, op.sizes, [axis])
    ends = itertools.accumulate((part.shape[axis] for part in op.found), initial=0)
    return [b.chosen(x, found, range(*pair)) for pair in itertools.pairwise(ends)]


def _gather(b: Builder, op: Operator) -> GraphValue:
    axis = op.settings.get("axis", 0)
    x, (found,) = b.along(op.x, op.sizes, [axis])
    return b.chosen(x, found, (op.constant(1).reshape(-1) % op.sizes[axis]).tolist())


def _concat(b: Builder, op: Operator) -> GraphValue:
    axis = op.settings["axis"]
    values = [b.along(x, known.shape, [axis]) if isinstance(x, GraphValue) else None for x, known in op.operands]
    like, (found,) = next(each for each in values if each)
    parts = [
        each[0] if each else b.repeated(x if found == axis % x.ndim else x[None], like)
        for each, x in zip(values, op.inputs, strict=True)
    ]
    return b.call(_beside, found, *parts)


def _expand(b: Builder, op: Operator) -> GraphValue:
    sizes, before = row_of(op.found[0].shape), b.sizes(op.x)
    return b.call(_expanded, b.shaped(op.x, (1,) * (len(sizes) - len(before)) + before), sizes)


def _gemm(b: Builder, op: Operator) -> GraphValue:
    weight = op.constant(1) * op.settings.get("alpha", 1.0)
    weight = weight if op.settings.get("transB") else weight.T
    if op.settings.get("transA"):
        raise UnknownOperation("Gemm with transA is not known")
    bias = op.constant(2)
    if bias is not None:
        bias = np.broadcast_to(bias * op.settings.get("beta", 1.0), (1, len(weight)))[0]
    return b.linear(b.shaped(op.x, _last(op)), weight, bias)


def _last(op: Operator) -> Sizes:
    """The sizes of a row of the first input, with its last axis."""
    return row_of(op.sizes) or op.sizes[-1:]


def _matmul(b: Builder, op: Operator) -> GraphValue:
    weight = op.inputs[1]
    if not isinstance(weight, GraphValue) and weight.size == np.prod(weight.shape[-2:]):
        weight = weight.reshape(weight.shape[-2:]) if weight.ndim > 1 else weight[:, None]
        return b.linear(b.shaped(op.x, _last(op)), weight.T)
    # two values, or a constant of several matrices, with as many axes each
    rank, given = max(2, *(known.ndim for known in op.known)), list[GraphValue]()
    for x, known in op.operands:
        sizes = known.shape if known.ndim > 1 or not given else (*known.shape, 1)
        sizes = (1,) * (rank - len(sizes)) + sizes
        given.append(b.shaped(x, sizes) if isinstance(x, GraphValue) else b.buffer(x.reshape(sizes)))
    return b.call(torch.matmul, *given)


def _windows(b: Builder, op: Operator, kernel: Sequence[int], outside: float) -> tuple[GraphValue, dict[str, Any]]:
    """The picture that windows move over, padded where torch does not, and how they move."""
    sizes, count = op.sizes, len(op.sizes) - 2
    if sizes[0] != 1:
        raise UnknownOperation(f"{op.kind} takes several pictures a row")
    # padding as written, or such that there are as many windows as the output has places
    stride, dilation = (list(op.settings.get(name) or [1] * count) for name in ("strides", "dilations"))
    pads = list(op.settings.get("pads") or [0] * (2 * count))
    if (auto := op.settings.get("auto_pad", "NOTSET")) in ("SAME_UPPER", "SAME_LOWER"):
        moves = zip(sizes[2:], op.found[0].shape[2:], kernel, stride, dilation, strict=True)
        around = [max((m - 1) * s + (k - 1) * d + 1 - n, 0) for n, m, k, s, d in moves]
        less, more = [n // 2 for n in around], [n - n // 2 for n in around]
        pads = less + more if auto == "SAME_UPPER" else more + less
    # torch pads both sides alike: anything else is padded beforehand
    x = op.x
    before, behind = pads[:count], pads[count:]
    if before != behind or any(2 * p > k for p, k in zip(before, kernel, strict=True) if outside):
        ends = [end for pair in zip(before[::-1], behind[::-1], strict=True) for end in pair]
        x = b.call(functional.pad, x, tuple(ends), "constant", outside)
        before = [0] * count
    return x, {"stride": tuple(stride), "padding": tuple(before), "dilation": tuple(dilation)}


def _conv(b: Builder, op: Operator) -> GraphValue:
    weight = op.constant(1)
    bias = op.constant(2)
    groups = op.settings.get("group", 1)
    x, how = _windows(b, op, weight.shape[2:], 0.0)
    how |= {"groups": groups, "bias": bias is not None, "device": "meta"}
    layer = getattr(nn, f"Conv{weight.ndim - 2}d")(weight.shape[1] * groups, len(weight), weight.shape[2:], **how)
    return b.call(b.filled(layer, weight=weight, bias=bias), x)


def _pool(b: Builder, op: Operator) -> GraphValue:
    kernel = tuple(op.settings["kernel_shape"])
    largest, rank = op.kind == "MaxPool", f"{len(kernel)}d"
    x, how = _windows(b, op, kernel, -np.inf if largest else 0.0)
    how["ceil_mode"] = bool(op.settings.get("ceil_mode"))
    if largest:
        return b.call(getattr(nn, f"MaxPool{rank}")(kernel, **how), x)
    # torch's AveragePool has no dilation
    if set(how.pop("dilation")) != {1}:
        raise UnknownOperation("AveragePool with dilations is not known")
    include = bool(op.settings.get("count_include_pad"))
    return b.call(getattr(nn, f"AvgPool{rank}")(kernel, count_include_pad=include, **how), x)


def _batch_norm(b: Builder, op: Operator) -> GraphValue:
    if op.sizes[0] != 1:
        raise UnknownOperation("BatchNormalization takes several rows")
    weight, bias, mean, var = (op.constant(i) for i in (1, 2, 3, 4))
    make = nn.BatchNorm1d if len(op.sizes) < 4 else nn.BatchNorm2d
    layer = b.filled(make(len(weight), op.settings.get("epsilon", 1e-5)), weight=weight, bias=bias)
    layer.running_mean, layer.running_var = b.weight(mean), b.weight(var)
    return b.call(layer, op.x)


def _layer_norm(b: Builder, op: Operator) -> GraphValue:
    x, (axis,) = b.along(op.x, op.sizes, [op.settings.get("axis", -1)])
    shape = b.sizes(x)[axis - 1 :]
    weight, bias = (None if (w := op.constant(i)) is None else np.broadcast_to(w, shape) for i in (1, 2))
    layer = nn.LayerNorm(shape, op.settings.get("epsilon", 1e-5), bias=bias is not None)
    return b.call(b.filled(layer, weight=weight, bias=bias), x)


_GATES = {"LSTM": [0, 2, 3, 1], "GRU": [1, 0, 2]}  # torch's by their places in ONNX


def _recurrent(b: Builder, op: Operator) -> list[GraphValue]:
    steps, _, width = op.sizes
    said = {name: op.settings[name] for name in ("activations", "clip", "input_forget") if op.settings.get(name)}
    if op.settings.get("direction", "forward") != "forward" or said or op.settings.get("layout") or op.constant(7):
        raise UnknownOperation(f"{op.kind} with {said or 'another direction, layout or peepholes'} is not known")
    if op.kind == "GRU" and not op.settings.get("linear_before_reset"):
        raise UnknownOperation("GRU with a reset before its linear layer is not known")
    # ONNX has the gates in another order than torch
    (weight,), (inner,) = op.constant(1), op.constant(2)
    bias = op.constant(3, default=np.zeros((1, 2 * len(weight))))[0].reshape(2, -1)
    gates = [np.concatenate([np.split(each, len(_GATES[op.kind]))[i] for i in _GATES[op.kind]])
             for each in (weight, inner, *bias)]  # fmt: skip
    x, hidden = b.shaped(op.x, (steps, width)), inner.shape[1]
    # first states: values of the graph, constants, or zeros
    states = []
    for place in (5, 6)[: 2 if op.kind == "LSTM" else 1]:
        given = op.inputs[place] if place < len(op.inputs) else None
        if isinstance(given, GraphValue):
            states.append(b.shaped(given, (hidden,)))
        else:
            states.append(b.repeated(np.zeros((1, hidden)) if given is None else given.reshape(1, hidden), x))
    found = b.call(_lstm if op.kind == "LSTM" else _gru, x, *states, *map(b.buffer, gates))
    return [b.call(operator.getitem, found, i) for i in range(1 + len(states))]


_ALIKE: dict[Callable[..., GraphValue], dict[str, Callable[..., Any]]] = {
    _layer: {
        "HardSwish": nn.Hardswish, "Mish": nn.Mish, "Softsign": nn.Softsign, "Celu": nn.CELU,
    },
    _function: {
        "Exp": torch.exp, "Log": torch.log, "Sqrt": torch.sqrt, "Abs": torch.abs, "Neg": operator.neg,
        "Reciprocal": torch.reciprocal, "Erf": torch.erf, "Sin": torch.sin, "Cos": torch.cos, "Floor": torch.floor,
        "Sign": torch.sign, "Not": torch.logical_not,
    },
    _broadcast: {
        "Sub": operator.sub, "Greater": operator.gt, "GreaterOrEqual": operator.ge, "Less": operator.lt,
        "LessOrEqual": operator.le, "Equal": operator.eq, "And": operator.and_, "Or": operator.or_,
        "Where": torch.where,
    },
    _softmax: {"Softmax": torch.softmax, "LogSoftmax": torch.log_softmax},
    _reduce: {
        "ReduceMean": torch.mean, "ReduceSum": torch.mean, "ReduceMax": torch.amax, "ReduceMin": torch.amin,
        "ReduceL2": _norm,
    },
    _global_pool: {"GlobalAveragePool": torch.mean, "GlobalMaxPool": torch.amax},
}  # fmt: skip
OPERATIONS: dict[str, Calls] = {
    # what leaves elements in their order: the sizes behind it are known
    **dict.fromkeys(("Identity", "Dropout", "Reshape", "Flatten", "Squeeze", "Unsqueeze"), lambda b, op: op.x),
    **{name: partial(how, function) for how, part in _ALIKE.items() for name, function in part.items()},
    "Selu": _selu, "HardSigmoid": _hard_sigmoid, "Clip": _clip, "Max": _extreme, "Min": _extreme, "Cast": _to_dtype,
    "Add": _add, "Sum": _sum, "Mul": _multiply, "Div": _multiply, "Pow": _pow, "Gemm": _gemm, "MatMul": _matmul,
    "Expand": _expand, "Transpose": _transpose, "Slice": _slice, "Split": _split, "Gather": _gather, "Concat": _concat,
    "Conv": _conv, "MaxPool": _pool, "AveragePool": _pool, "BatchNormalization": _batch_norm,
    "LayerNormalization": _layer_norm, "LSTM": _recurrent, "GRU": _recurrent,
}  # fmt: skip


def known_operations() -> dict[str, Calls]:
    """All of them by name, those of layers whose operation names one (:attr:`.Operation.onnx`) among them."""
    layers = {one.onnx: layer for layer, one in OF_LAYERS.items() if one.onnx is not None}
    return OPERATIONS | {name: partial(_layer, layer) for name, layer in layers.items()}
