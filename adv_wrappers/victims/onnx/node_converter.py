"""Calls of torch for the nodes of an ONNX graph.

A graph is read as a function of one row. ONNX Runtime computes every value of it at two rows, so that all sizes are
known, what does not depend on the input is a constant, and an operation that torch computes differently is found where
it stands. A value of sizes ``S`` of one row is a tensor ``[B, *T]`` of B rows, where T is S without a first axis of
one: a graph for ``[1, 48]`` and one for ``[48]`` both become one for ``[B, 48]``.

What exporters write out becomes one layer again: a bias that is added, a normaliser, an activation such as SiLU, a
layer normalisation, and rows of a linear layer that are cut out. Layers have closer bounds, and names in a card.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from adv_wrappers.core.types import Array
from adv_wrappers.networks.tracing import nearly_equal
from adv_wrappers.victims.onnx.session import GraphInput

Sizes = tuple[int, ...]
Values = dict[str | int, Any]  # tensors by the names of inputs, or the numbers of calls
UNIT = "unit"  # a buffer of the dtype that is computed in


class UnknownOperation(Exception):
    """Why a graph does not become a module of torch: the operation that is in the way."""


@dataclass(frozen=True)
class GraphValue:
    """A tensor among the arguments of a :class:`Call`: an input, the result of a call, or a buffer of the module."""

    name: str | int
    constant: bool = False


@dataclass(frozen=True)
class Call:
    """A layer, or a function of torch, with its arguments; results are numbered."""

    result: int
    function: Callable[..., Any]
    arguments: tuple[Any, ...]

    def run(self, values: Values, constant: Callable[[str], Tensor]) -> None:
        """Compute its result from those of earlier calls."""
        given = [
            (constant(str(each.name)) if each.constant else values[each.name]) if isinstance(each, GraphValue) else each
            for each in self.arguments
        ]
        values[self.result] = self.function(*given)


@dataclass(frozen=True)
class Operator:
    """A node of the graph.

    Attributes:
        kind: its name.
        inputs: a :class:`GraphValue` or an array each; None for those left out.
        known, found: its inputs and outputs at one row.
        settings: its attributes.
        opset: the version of the operators.
    """

    kind: str
    inputs: tuple[Any, ...]
    known: tuple[Array, ...]
    found: tuple[Array, ...]
    settings: Mapping[str, Any]
    opset: int

    @property
    def x(self) -> GraphValue:
        """The first input, which depends on the observation."""
        if not isinstance(self.inputs[0], GraphValue):
            raise UnknownOperation(f"the first input of {self.kind} is a constant")
        return self.inputs[0]

    @property
    def sizes(self) -> Sizes:
        """Of the first input."""
        return self.known[0].shape

    @property
    def operands(self) -> list[tuple[Any, Array]]:
        """The inputs, each with what it is at one row."""
        return list(zip(self.inputs, self.known, strict=True))

    def constant(self, place: int, name: str = "", default: Any = None) -> Any:
        """An input that is a constant, or in older versions an attribute, as an array."""
        found = self.inputs[place] if place < len(self.inputs) else None
        if isinstance(found, GraphValue):
            raise UnknownOperation(f"the input {place} of {self.kind} depends on the observation")
        found = self.settings.get(name, default) if found is None else found
        return None if found is None else np.asarray(found)

    def value_and_constant(self, either: bool = True) -> tuple[GraphValue | None, Array]:
        """Its two inputs if they are a value and a constant, in this order unless it may be either; else None."""
        for x, y in (self.inputs[:2], self.inputs[1::-1])[: 1 + either]:
            if len(self.inputs) == 2 and isinstance(x, GraphValue) and not isinstance(y, GraphValue):
                return x, y
        return None, np.zeros(0)


class Builder:
    """Calls of torch for the nodes of a graph.

    Args:
        known: every value of the graph by its name, as ONNX Runtime computes it; of two rows.
        dtype: of weights.
        opset: the version of the operators.
        operations: by the name of a node what makes its calls.

    Attributes:
        values: what depends on the input, by its name in the graph.
        examples: the same at the two rows, ``[2, *T]``.
        calls: so far.
        constants: buffers, by their names.
    """

    def __init__(
        self,
        known: Sequence[Mapping[str, Array]],
        dtype: torch.dtype,
        opset: int,
        operations: Mapping[str, Callable[[Builder, Operator], GraphValue | list[GraphValue]]],
    ) -> None:
        self.known = known
        self.dtype = dtype
        self.opset = opset
        self.operations = operations
        self.values = dict[str, GraphValue]()
        self.examples: Values = {}
        self.calls = list[Call]()
        self.constants = {UNIT: torch.ones((), dtype=dtype)}
        # by a value those that alone determine it, without weights, and the calls between
        self._sources = dict[GraphValue, dict[GraphValue, set[int]]]()

    def add(self, node: Any) -> None:
        """The calls of one node."""
        from onnx import AttributeProto, helper

        # what does not depend on the input is a constant, whose value is known already
        kind = node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}.{node.op_type}"
        depends = node.op_type not in ("Shape", "Size") and any(each in self.values for each in node.input)
        inner = any(each.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS) for each in node.attribute)
        if inner or kind in _RANDOM or (depends and kind not in self.operations):
            raise UnknownOperation(f"the operation {kind} is not known")
        if not depends:
            return
        try:
            # the node with its inputs and outputs as ONNX Runtime computed them
            one, nothing = self.known[0], np.zeros(0)
            op = Operator(
                kind,
                tuple(self.values.get(each, one[each]) if each else None for each in node.input),
                tuple(one[each] if each else nothing for each in node.input),
                tuple(one[each] if each else nothing for each in node.output),
                {each.name: _setting(helper.get_attribute_value(each)) for each in node.attribute},
                self.opset,
            )
            # its results by torch, which have to be the same numbers
            made = self.operations[kind](self, op)
            for name, value in zip(node.output, made if isinstance(made, list) else [made], strict=False):
                if name:
                    self.values[name] = self._layer_of(self.shaped(value, row_of(one[name].shape)))
                    if not nearly(self.examples[self.values[name].name], [row[name] for row in self.known], 1e-3):
                        raise UnknownOperation(f"torch computes its {kind} differently")
        except UnknownOperation:
            raise
        except Exception as error:  # whatever torch raises for settings that nobody has thought of
            raise UnknownOperation(f"torch does not compute its {kind} ({error!s:.200})") from error

    def output(self, name: str, one: bool) -> GraphValue:
        """An output of the graph as ``[B, K]``; one that does not depend on the input as ``[1, K]``.

        Args:
            name: of the output.
            one: whether the graph takes one observation without rows.
        """
        whole = self.known[0][name]
        if name not in self.values:
            return self.buffer(whole.reshape(1, -1))
        return self.shaped(self.values[name], whole.shape if one else whole.shape[1:])

    def next_state(self, port: GraphInput) -> GraphValue:
        """The hidden state after the one in an input."""
        if port.next not in self.values or not np.issubdtype(port.dtype, np.floating):
            raise UnknownOperation(f"its hidden state {port} is not computed in floats")
        return self.shaped(self.values[port.next], port.shape)

    # ------------------------------------------------------------------------------------------ values and constants

    def call(self, function: Callable[..., Any], *arguments: Any) -> GraphValue:
        """A call, whose result is a value."""
        call = Call(len(self.calls), function, arguments)
        with torch.no_grad():
            call.run(self.examples, self.constants.__getitem__)
        self.calls.append(call)
        # what this value was made of, as far as no weights are between: several calls may be one layer in the end
        value, given = GraphValue(call.result), [each for each in arguments if isinstance(each, GraphValue)]
        weights = isinstance(function, nn.Module) and any(True for _ in function.parameters())
        if given and not weights and not any(each.constant for each in given):
            before = [{each: set[int](), **self._sources.get(each, {})} for each in given]
            common = set(before[0]).intersection(*before[1:])
            calls = {each: {call.result}.union(*(part[each] for part in before)) for each in common}
            self._sources[value] = {each: between for each, between in calls.items() if len(between) <= _LONGEST}
        return value

    def made(self, value: GraphValue) -> Call | None:
        """The call whose result a value is; None for an input."""
        return self.calls[value.name] if isinstance(value.name, int) else None

    def sizes(self, value: GraphValue) -> Sizes:
        """Of one row of a value."""
        return tuple(self.examples[value.name].shape[1:])

    def weight(self, array: Any) -> Tensor:
        """An array in the dtype of weights; integers and booleans stay."""
        tensor = torch.from_numpy(np.array(array, order="C"))  # transposed ones are computed with other roundings
        return tensor.to(self.dtype) if tensor.is_floating_point() else tensor

    def buffer(self, array: Any) -> GraphValue:
        """A constant as a buffer."""
        name = f"constant{len(self.constants)}"
        self.constants[name] = self.weight(array)
        return GraphValue(name, True)

    def repeated(self, constant: Array, like: GraphValue) -> GraphValue:
        """A constant ``[1, *T]`` with as many rows as a value."""
        same = constant.shape[1:] == self.sizes(like)
        return self.call(_with_shape if same else _with_rows, self.buffer(constant), like)

    # ------------------------------------------------------------------------------------------------- sizes and axes

    def shaped(self, value: GraphValue, sizes: Sizes) -> GraphValue:
        """A value with rows of other sizes."""
        return value if self.sizes(value) == tuple(sizes) else self.call(reshaped, value, tuple(sizes))

    def aligned(self, op: Operator) -> list[Any]:
        """The inputs of a node as they broadcast: values, buffers, and numbers."""
        whole, found = op.found[0].shape, []
        rank = len(row_of(whole))
        one_is_whole = any(isinstance(x, GraphValue) and x_known.shape == whole for x, x_known in op.operands)
        for x, _ in op.operands:
            # values and constants with as many axes as the result, and one number where a constant has the same
            # everywhere
            if isinstance(x, GraphValue):
                sizes = self.sizes(x)
                found.append(self.shaped(x, (1,) * (rank - len(sizes)) + sizes))
            elif x.dtype != np.bool_ and (x.size == 1 or (one_is_whole and bool((x == x.flat[0]).all()))):
                found.append(_setting(x.flat[0].item()))
            else:
                found.append(self.buffer(x.reshape(x.shape[max(x.ndim - rank, 0) :])))
        return found

    def along(self, value: GraphValue, sizes: Sizes, axes: Iterable[int]) -> tuple[GraphValue, list[int]]:
        """A value, with its first axis of one if that is meant, and axes of the graph as those of its tensor."""
        found = [int(axis) % len(sizes) for axis in axes]
        if sizes[0] == 1 and 0 not in found:
            return value, found
        return self.shaped(value, sizes), [axis + 1 for axis in found]

    def chosen(self, value: GraphValue, axis: int, places: Iterable[int]) -> GraphValue:
        """The elements at some places along an axis; of a linear layer those of its rows."""
        before = self.made(value)
        index = list(places)
        sizes = self.sizes(value)
        if len(sizes) == 1 and before and isinstance(before.function, nn.Linear):
            weight, bias = before.function.weight, before.function.bias
            return self.linear(before.arguments[0], weight[index], None if bias is None else bias[index])
        if index == list(range(index[0], index[0] + len(index))):
            return self.call(operator.getitem, value, (slice(None),) * axis + (slice(index[0], index[-1] + 1),))
        if len(sizes) == 1:  # a linear layer has bounds
            return self.linear(value, np.eye(sizes[0])[index])
        return self.call(torch.index_select, value, axis, self.buffer(index))

    # --------------------------------------------------------------------------------------------------------- layers

    def linear(self, x: GraphValue, weight: Any, bias: Any = None) -> GraphValue:
        """A linear layer."""
        layer = nn.Linear(weight.shape[1], weight.shape[0], bias is not None, device="meta")
        return self.call(self.filled(layer, weight=weight, bias=bias), x)

    def filled(self, layer: nn.Module, **weights: Any) -> nn.Module:
        """A layer with other weights."""
        for name, weight in weights.items():
            if weight is not None:
                tensor = weight.detach() if isinstance(weight, Tensor) else self.weight(weight)
                setattr(layer, name, nn.Parameter(tensor, requires_grad=False))
        return layer.eval()

    def _layer_of(self, value: GraphValue) -> GraphValue:
        """A value, by one layer where several calls without weights compute the same at random inputs."""
        sizes = self.sizes(value)
        for first, between in self._sources.get(value, {}).items():
            example = self.examples[first.name]
            if len(between) == 1 or not isinstance(example, Tensor) or self.sizes(first) != sizes or not sizes:
                continue
            # rows of all sizes, so that an epsilon shows
            x = torch.randn(64, *sizes, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
            x *= torch.logspace(-3, 1, 64, dtype=torch.float64).view(-1, *[1] * len(sizes))
            # what the calls between compute for it, against every activation and a layer normalisation of their epsilon
            values, calls = {first.name: x}, [self.calls[i] for i in sorted(between)]
            for call in calls:
                call.run(values, self.constants.__getitem__)
            numbers = sorted({each for call in calls for each in call.arguments if isinstance(each, float)})
            norms = [nn.LayerNorm(sizes[-1:], each, elementwise_affine=False) for each in numbers if 0 < each < 0.1]
            for layer in (*(make() for make in _ACTIVATIONS), *norms):
                if nearly(layer(x), values[value.name], 1e-6):
                    return self.call(layer, first)
        return value


_ACTIVATIONS = (nn.SiLU, nn.GELU, partial(nn.GELU, "tanh"), nn.ELU, nn.Softplus, nn.Hardswish, nn.Mish)
_LONGEST = 12  # calls that are one layer written out
_RANDOM = {"RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Bernoulli", "Multinomial"}


def _setting(value: Any) -> Any:
    """An attribute as it is computed with: numbers were float64 before they were exported as float32."""
    if isinstance(value, float):
        with np.errstate(over="ignore"):
            short = np.float32(value)
        return float(str(short)) if short == value else value
    return value.decode() if isinstance(value, bytes) else value


def row_of(sizes: Sequence[int]) -> Sizes:
    """The sizes of a row of the tensor for a value of such sizes."""
    return tuple(sizes[1:] if len(sizes) and sizes[0] == 1 else sizes)


def taken(x: Any, port: GraphInput) -> Any:
    """Rows ``[B, *S]`` for an input of the graph as they are computed with."""
    x = x != 0 if port.dtype is np.bool_ else x
    sizes = row_of(port.one_row)
    return x if sizes == port.shape else reshaped(x, sizes)


def reshaped(x: Tensor, sizes: Sizes) -> Tensor:
    """The same elements in rows of other sizes."""
    return x.reshape(x.shape[0], *sizes)


def _with_shape(constant: Tensor, like: Tensor) -> Tensor:
    return constant.expand_as(like)


def _with_rows(constant: Tensor, like: Tensor) -> Tensor:
    return constant.expand(like.shape[0], *constant.shape[1:])


def nearly(found: Any, expected: Any, most: float) -> bool:
    """Whether numbers differ by at most a share of the largest; infinite ones must be the same."""
    x, y = (torch.as_tensor(np.asarray(each, np.float64)) for each in (found, expected))
    return nearly_equal(x.expand_as(y) if len(x) < len(y) else x.reshape(y.shape), y, most)
