"""The graph of layers that a module computes, found by running its ``forward`` with a stand-in for the input.

``torch.fx`` records the calls; every function that is known here has its layer or operation, and what has none ends
with :class:`UnknownCall`. What is found are the module's own layers, so that their weights are those of the module.

A trace is of one run, so it holds only for a ``forward`` that does the same at every input. What depends on values, or
on anything that is not known, has no graph: its gradient is left to autograd. Who computes with what was found compares
it with the module itself, since a trace says nothing of ``no_grad``, of ``autocast``, or of what runs outside torch.
Calls that write over their input are taken for those that make new memory, where nothing else uses that input.
"""

from __future__ import annotations

import copy
import inspect
import operator
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeGuard

import torch
from torch import Tensor, fx, nn
from torch.nn import functional

from adv_wrappers.networks.card import kind_of
from adv_wrappers.networks.graph import Node, layers_of, needed
from adv_wrappers.networks.operations.arithmetic import Arithmetic, Join
from adv_wrappers.networks.operations.lookup import does_nothing
from adv_wrappers.networks.operations.operation import CALLS, NodeLayer, Operation, changed
from adv_wrappers.networks.operations.shapes import SAME_ROWS, Mean, Permute, Reshape, Slice
from adv_wrappers.networks.policy_layers import AppendLogStd
from adv_wrappers.utils.checks import is_integer, is_number

OutputForm = Literal["tensor", "pair", "first"]
Arguments = Sequence[object]


class UnknownCall(Exception):
    """What was recorded is not written out."""


def is_written(layer: nn.Module) -> bool:
    """Whether a layer can be written down."""
    return kind_of(layer) is not None


def layers_in_order(module: nn.Module, pairs: bool = False) -> list[nn.Module] | None:
    """The layers of a module one after the other, each of a kind that can be written down (see :mod:`.card`).

    The module is not changed. Its ``forward`` runs if it is no ``Sequential``, with a copy of the module around the
    same weights. Nobody has compared what the layers compute with what the module does.

    Args:
        module: one that takes one tensor; further arguments are left at their defaults.
        pairs: take a pair ``(mean, log_std)`` as the two side by side, as a victim's parameters are.

    Returns:
        None for what is no sequence of such layers: branches, residual connections, layers of other kinds, hooks,
        Python that depends on values.
    """
    if (layers := layers_of(module, is_written)) is not None:
        return layers
    # a forward of its own is traced, and has to be a chain of layers that can be written down
    try:
        nodes = trace(module, is_written, "pair" if pairs else "tensor")
    except UnknownCall:
        return None
    found = [node.operation.as_layer() for i, node in enumerate(nodes) if node.inputs == (i,)]
    written = [layer for layer in found if layer is not None]
    return written if len(written) == len(nodes) else None


def trace(
    module: nn.Module,
    is_layer: Callable[[nn.Module], bool],
    answer: OutputForm = "pair",
    follows: bool = False,
) -> list[Node]:
    """The graph of a module.

    Args:
        module: takes one tensor; further arguments are left at their defaults. It is not changed.
        is_layer: whether a layer may be a node, and is not looked into.
        answer: what it returns: a ``"tensor"``; that, or a ``"pair"`` of a mean and a log-std, which are put side by
            side; or a tensor ``"first"``, and beside it what is ignored.
        follows: whether weights may be trained while the graph is used: nodes hold the parameters themselves, and what
            is computed from those that are trained is not known.

    Raises:
        UnknownCall: for a module that has none, naming what is not known.
    """
    if any(changed(each) for each in module.modules()):
        raise UnknownCall("a hook, or a forward that was replaced")
    try:
        own = _copy_around(module, is_layer)
        # twice, since a forward may depend on what it did before, and without using up random numbers
        with torch.random.fork_rng(devices=[]), torch.enable_grad():
            graphs = [_GraphTracer(is_layer).trace(own, _defaults(own)) for _ in range(2)]
        if _listing(graphs[0]) != _listing(graphs[1]):
            raise UnknownCall("a forward that depends on what it did before")
        return GraphBuilder(own, graphs[0], is_layer, follows).build(answer)
    except UnknownCall:
        raise
    except Exception as error:  # a forward may raise anything when its input is no tensor
        raise UnknownCall(f"a forward that does not run with a stand-in for its input ({error!s:.200})") from error


def nearly_equal(found: Tensor, expected: Tensor, most: float | None = None) -> bool:
    """Whether two computations of the same numbers agree; those that are not finite have to be the same.

    Args:
        found, expected: of one shape and dtype.
        most: how far they may be apart, as a share of the largest number; None allows for their rounding alone.
    """
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return False
    finite = expected.isfinite()
    if not torch.allclose(found[~finite], expected[~finite], equal_nan=True):
        return False
    if most is None:
        most = 1e-5 if expected.dtype == torch.float32 else 1e-10  # ten times what rounding was seen to do
    apart, size = (found - expected)[finite].abs(), expected[finite].abs()
    return not len(size) or bool(apart.max() <= most * size.max())


class _GraphTracer(fx.Tracer):
    """Looks into every module but those that may be nodes, and those of torch.

    It records what the thread does that traces; torch's own one breaks modules that other threads run meanwhile.
    """

    proxy_buffer_attributes = True

    def __init__(self, is_layer: Callable[[nn.Module], bool]) -> None:
        super().__init__()
        self._is_layer = is_layer
        self._thread = threading.get_ident()

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return changed(m) or self._is_layer(m) or does_nothing(m) or super().is_leaf_module(m, module_qualified_name)

    def call_module(
        self, m: nn.Module, forward: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, object]
    ) -> object:
        if threading.get_ident() != self._thread:
            return forward(*args, **kwargs)
        return super().call_module(m, forward, args, kwargs)

    def getattr(self, attr: str, attr_val: object, parameter_proxy_cache: dict[str, fx.Proxy]) -> object:
        if threading.get_ident() != self._thread:
            return attr_val
        return super().getattr(attr, attr_val, parameter_proxy_cache)


def _defaults(module: nn.Module) -> dict[str, object] | None:
    """The arguments of a forward beside the first, which are left at their defaults."""
    parameters = list(inspect.signature(module.forward).parameters.values())[1:]
    if any(p.default is p.empty and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY) for p in parameters):
        raise UnknownCall("several inputs")
    found = {p.name: p.default for p in parameters if p.default is not p.empty}
    return found or None


def _listing(graph: fx.Graph) -> list[str]:
    return [str((node.op, str(node.target), node.args, node.kwargs)) for node in graph.nodes]


def _copy_around(module: nn.Module, is_layer: Callable[[nn.Module], bool]) -> nn.Module:
    """A copy of a module around the same layers and weights, to be traced: a forward may write to its module."""
    shared = [*filter(is_layer, module.modules()), *module.parameters(), *module.buffers()]
    return copy.deepcopy(module, {id(part): part for part in shared})  # what is in the memo is not copied


class GraphBuilder:
    """Nodes from a traced graph.

    Args:
        module: what was traced.
        graph: its calls.
        is_layer, follows: as of :func:`trace`.

    Attributes:
        nodes: the nodes so far.
        values: the number of the value that a call gives.
        constants: tensors that do not depend on the input.
        expanded: the same, with as many rows as the input, to be put beside a value.
    """

    def __init__(
        self, module: nn.Module, graph: fx.Graph, is_layer: Callable[[nn.Module], bool], follows: bool
    ) -> None:
        self.module = module
        self.graph = graph
        self.is_layer = is_layer
        self.follows = follows
        self.nodes: list[Node] = []
        self.values: dict[fx.Node, int] = {}
        self.constants: dict[fx.Node, Tensor] = {}
        self.expanded: dict[fx.Node, Tensor] = {}

    def build(self, answer: OutputForm) -> list[Node]:
        """The nodes that the answer depends on.

        Args:
            answer: what the module returns, see :func:`trace`.

        Raises:
            UnknownCall: for a call that is not known.
        """
        unused = set[fx.Node]()  # arguments beside the observation, and the checks of their defaults
        for node in self.graph.nodes:
            if node.op == "placeholder" and not self.values:
                self.values[node] = 0
            elif node.op == "placeholder" or (node.all_input_nodes and set(node.all_input_nodes) <= unused):
                unused.add(node)
            elif node.op == "get_attr":
                self.constants[node] = self._attribute(str(node.target))
            elif node.op == "output":
                return needed(self.nodes, self._result(node.args[0], answer))
            elif node.op == "call_module":
                if node.kwargs or len(node.args) != 1:
                    raise UnknownCall(str(node.target))
                self._layer(node, self.module.get_submodule(str(node.target)))
            elif not _is_shape(node):
                self._call(node)
        raise UnknownCall("no answer")

    def _attribute(self, target: str) -> Tensor:
        if target.startswith("_tensor_constant"):  # it may be another one next time
            raise UnknownCall("a tensor that was made while tracing")
        found: object = self.module
        for name in target.split("."):
            found = getattr(found, name)
        if not isinstance(found, Tensor):
            raise UnknownCall(target)
        return found if self.follows else found.detach()

    def _result(self, answer: object, form: OutputForm) -> int:
        if not isinstance(answer, (tuple, list)):
            return self._value(answer)
        if form == "first":
            return self._value(answer[0])
        if form != "pair" or len(answer) != 2:
            raise UnknownCall(f"the answer {answer}")
        mean, beside = answer
        if beside in self.constants:  # the victim expands it
            self._expand(beside, self.constants[beside])
        return self._concatenated([mean, beside], -1)

    def _value(self, argument: object) -> int:
        """The number of the value that an argument is."""
        if not isinstance(argument, fx.Node) or argument not in self.values:
            raise UnknownCall(f"{argument} is no value")
        return self.values[argument]

    def _is_value(self, argument: object) -> TypeGuard[fx.Node]:
        return isinstance(argument, fx.Node) and argument in self.values

    def _add(self, node: fx.Node, layer: NodeLayer, *inputs: int) -> None:
        self.nodes.append(Node(layer, inputs))
        self.values[node] = len(self.nodes)

    def _layer(self, node: fx.Node, layer: nn.Module) -> None:
        x = self._value(node.args[0])
        if does_nothing(layer):
            self.values[node] = x
        elif not self.is_layer(layer):
            raise UnknownCall(f"layer {node.target} ({layer})" if node.op == "call_module" else str(layer))
        elif getattr(layer, "inplace", False):
            _check_alone(node)
            apart = copy.copy(layer)
            apart.inplace = False  # type: ignore[assignment]
            self._add(node, apart, x)
        else:
            self._add(node, layer, x)

    def _call(self, node: fx.Node) -> None:
        """A function or a method."""
        # what depends on weights alone is computed here and now
        if node.all_input_nodes and all(each in self.constants for each in node.all_input_nodes):
            self.constants[node] = self._folded(node)
            return
        # a call that writes over its input is one that does not, if nothing else takes that input
        arguments = list(node.args)
        target = _in_new_memory(node.target)
        operation = CALLS.get(target)
        flagged = operation is not None and any(each is True for each in arguments[1:])
        if target is not node.target or node.kwargs.get("inplace") or flagged:
            _check_alone(node)
        kwargs: dict[str, object] = {name: value for name, value in node.kwargs.items() if name != "inplace"}
        # sums, means, views and layers called as functions have operations of their own
        if target in _ARITHMETIC:
            _expect(kwargs)
            self._arithmetic(node, _ARITHMETIC[target], *arguments)
        elif target in _NEGATIVE:
            self._add(node, Arithmetic("multiply", -1.0), self._value(arguments[0]))
        elif target in _CONCATENATE:
            values, axis = _given(("tensors", "dim"), arguments, kwargs, dim=0)
            self.values[node] = self._concatenated(values, axis)
        elif target in _MEAN:
            x, axes, keep = _given(("input", "dim", "keepdim"), arguments, kwargs, keepdim=False)
            found = _integers(axes if isinstance(axes, (tuple, list)) else [axes])
            self._add(node, Mean(found, bool(keep)), self._value(x))
        elif target in _VIEWS:
            self._view(node, _VIEWS[target], arguments[0], arguments[1:], kwargs)
        elif operation is not None and (names := operation.weighted_calls.get(target)) is not None:
            # a function with the weights of a layer among its arguments
            given = dict(zip(names, arguments, strict=False)) | kwargs
            self._add(node, self._weighted(operation, given), self._value(given["input"]))
        elif operation is not None:
            # a function that stands for a layer, whose settings are numbers
            tensors = any(isinstance(each, fx.Node) for each in (*arguments[1:], *kwargs.values()))
            layer = None if tensors else operation.traced(*arguments[1:], **kwargs)
            if layer is None:
                raise UnknownCall(str(node))
            self._layer(node, layer)
        else:
            raise UnknownCall(str(node))

    def _folded(self, node: fx.Node) -> Tensor:
        """What a call makes of constants."""
        if node.target not in _FOLDED:
            raise UnknownCall(str(node))
        if self.follows and any(self.constants[each].requires_grad for each in node.all_input_nodes):
            raise UnknownCall(f"{node}, which is computed from weights that are trained")
        # a method or a function, on the constants themselves
        arguments, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda each: self.constants[each])
        with torch.no_grad():
            if isinstance(node.target, str):
                found = getattr(arguments[0], node.target)(*arguments[1:], **kwargs)
            else:
                found = node.target(*arguments, **kwargs)
        if not isinstance(found, Tensor):
            raise UnknownCall(str(node))
        return found

    def _arithmetic(self, node: fx.Node, how: str, x: object, y: object) -> None:
        # two values of the network
        if self._is_value(x) and self._is_value(y):
            joins: dict[str, Literal["sum", "difference", "product"]] = {
                "add": "sum",
                "subtract": "difference",
                "multiply": "product",
            }
            if how not in joins:
                raise UnknownCall(str(node))
            self._add(node, Join(joins[how]), self._value(x), self._value(y))
        elif how == "divide":
            # a value and a number
            self._add(node, Arithmetic("divide", self._number(y)), self._value(x))
        elif how == "add" or how == "multiply":
            x, y = (x, y) if self._is_value(x) else (y, x)
            self._add(node, Arithmetic(how, self._number(y)), self._value(x))
        elif self._is_value(x):
            self._add(node, Arithmetic("add", -self._number(y)), self._value(x))
        else:
            self._add(node, Arithmetic("multiply", -1.0), self._value(y))
            self._add(node, Arithmetic("add", self._number(x)), self.values[node])

    def _number(self, argument: object) -> Tensor | float:
        if isinstance(argument, fx.Node) and argument in self.constants:
            return self.constants[argument]
        if not is_number(argument):
            raise UnknownCall(str(argument))
        return float(argument)

    def _concatenated(self, parts: object, axis: object) -> int:
        if not isinstance(parts, (tuple, list)) or not isinstance(axis, int) or axis == 0:
            raise UnknownCall("values below one another")
        if len(parts) == 2 and parts[1] in self.expanded and axis in (-1, 1):
            self.nodes.append(Node(AppendLogStd(self.expanded[parts[1]]), (self._value(parts[0]),)))
        else:
            self.nodes.append(Node(Join("concatenate", axis), tuple(map(self._value, parts))))
        return len(self.nodes)

    def _weighted(self, operation: type[Operation], given: dict[str, object]) -> nn.Module:
        """A layer whose weights are arguments of a function."""
        weights = {
            name: self.constants[value]
            for name in ("weight", "bias")
            if isinstance(value := given.get(name), fx.Node) and value in self.constants
        }
        settings: dict[str, Any] = {k: v for k, v in given.items() if k not in ("input", "weight", "bias")}
        # the weights have to be constants of the module
        if any(given.get(name) is not None and name not in weights for name in ("weight", "bias")):
            raise UnknownCall("weights that depend on the input")
        # a layer without memory of its own, around the module's own weights
        layer = operation.around(weights, **settings, bias="bias" in weights, device="meta")
        for name, weight in weights.items():
            shared = weight if isinstance(weight, nn.Parameter) else nn.Parameter(weight, requires_grad=False)
            setattr(layer, name, shared)
        if not self.is_layer(layer):
            raise UnknownCall(str(layer))
        return layer

    def _view(self, node: fx.Node, name: str, x: object, sizes: Arguments, kwargs: Mapping[str, object]) -> None:
        """A call whose result is a view of its input."""
        # by its name: what takes a part, and what gives another shape
        if name in ("expand_as", "expand"):
            self._expand_as(node, x, sizes, kwargs)
        elif name == "getitem":
            self._item(node, x, sizes[0])
        elif name == "chunk" or name == "split":
            count, axis = _given(("count", "dim"), sizes, kwargs, dim=0)
            self._parts(node, Slice(name, _integers([count, axis]), 0), self._value(x))
        elif name in ("contiguous", "float"):
            _expect(kwargs)
            # elsewhere a cast is of what the layers would leave
            if sizes or (name == "float" and {p.dtype for p in self.module.parameters()} != {torch.float32}):
                raise UnknownCall(str(node))
            self.values[node] = self._value(x)
        elif name == "permute":
            _expect(kwargs)
            self._add(node, Permute(_integers(_one_by_one(sizes))), self._value(x))
        elif name == "flatten":
            # changes of shape, the batch's axis apart
            ends = _integers(_given(("start_dim", "end_dim"), sizes, kwargs, start_dim=0, end_dim=-1))
            layer = nn.Flatten() if ends == (1, -1) else Reshape("flatten", ends)
            self._add(node, layer, self._value(x))
        elif name == "unsqueeze" or name == "squeeze":
            self._add(node, Reshape(name, _integers(_given(("dim",), sizes, kwargs))), self._value(x))
        else:
            _expect(kwargs)
            self._add(node, self._reshaped(name, _one_by_one(sizes)), self._value(x))

    def _reshaped(self, name: str, sizes: Arguments) -> NodeLayer:
        found = _integers(SAME_ROWS if isinstance(size, fx.Node) and _is_row_count(size) else size for size in sizes)
        if len(found) == 2 and found[0] in (SAME_ROWS, -1) and found != (-1, -1):
            return nn.Flatten()  # whether a row has as many numbers shows where graph and module are compared
        return Reshape("view" if name == "view" else "reshape", found)

    def _expand_as(self, node: fx.Node, x: object, sizes: Arguments, kwargs: Mapping[str, object]) -> None:
        """A constant with the shape of a value."""
        like = sizes[0] if len(sizes) == 1 and not kwargs else None
        if isinstance(like, fx.Node) and _is_shape(like) and like.target is not operator.getitem:
            like = like.args[0] if len(like.args) == 1 or like.target is getattr else None
        if not self._is_value(like) or not isinstance(x, fx.Node) or x not in self.constants:
            raise UnknownCall(str(node))
        self._expand(node, self.constants[x])

    def _expand(self, node: fx.Node, constant: Tensor) -> None:
        if constant.dim() not in (1, 2) or constant.numel() != constant.shape[-1]:
            raise UnknownCall("a constant of several rows")
        self.expanded[node] = constant.detach().reshape(1, -1)  # the same memory

    def _parts(self, node: fx.Node, part: Slice, number: int) -> None:
        """A chunk or a split: every part that is used becomes a value."""
        for user in node.users:
            index = user.args[1] if user.target is operator.getitem else None
            if not isinstance(index, int) or part.arguments[1] == 0:
                raise UnknownCall(str(node))
            self._add(user, Slice(part.method, part.arguments, index), number)

    def _item(self, node: fx.Node, x: object, index: object) -> None:
        if node in self.values:  # part of a chunk
            return
        found = index if isinstance(index, tuple) else (index,)
        if found[0] not in (Ellipsis, slice(None)):
            raise UnknownCall("some of the rows")
        for each in found:
            ends = (each.start, each.stop, each.step) if isinstance(each, slice) else (each,)
            if not all(end is None or end is Ellipsis or type(end) is int for end in ends) or each is None:
                raise UnknownCall(f"the index {index}")
        self._add(node, Slice("", (), found), self._value(x))


def _is_shape(node: fx.Node) -> bool:
    """Whether a node is a tensor's shape, or one number of it."""
    if node.target is operator.getitem and isinstance(node.args[0], fx.Node):
        return _is_shape(node.args[0])
    return node.target == "size" or (node.target is getattr and node.args[1] == "shape")


def _check_alone(node: fx.Node) -> None:
    """What a call writes over, and what that is a view of, must be of no use to another one: a relu may show nothing.

    Raises:
        UnknownCall: where it is.
    """
    while isinstance(before := node.args[0], fx.Node):
        if any(user is not node and not _is_shape(user) for user in before.users):
            raise UnknownCall(f"{node} writes over what is used elsewhere")
        if before.target not in _VIEWS:
            return
        node = before


def _is_row_count(node: fx.Node) -> bool:
    """Whether a call is ``x.size(0)``, ``x.size()[0]`` or ``x.shape[0]``."""
    return _is_shape(node) and node.target in ("size", operator.getitem) and node.args[1:] == (0,)


def _integers(values: Iterable[object]) -> tuple[int, ...]:
    given = list(values)
    found = tuple(each for each in given if is_integer(each))
    if not found or len(found) < len(given):
        raise UnknownCall(f"{given} are no integers")
    return found


def _one_by_one(sizes: Arguments) -> Arguments:
    """Sizes that are given one by one, or as one tuple."""
    first = sizes[0] if len(sizes) == 1 else None
    return first if isinstance(first, (tuple, list)) else sizes


def _given(
    names: Sequence[str], arguments: Arguments, kwargs: Mapping[str, object], **defaults: object
) -> list[object]:
    """Arguments in the order of their names, however they were given."""
    found = {**defaults, **dict(zip(names, arguments, strict=False)), **kwargs}
    if set(found) != set(names) or len(arguments) > len(names):
        raise UnknownCall(f"expected {names}, got {arguments} and {kwargs}")
    return [found[name] for name in names]


def _expect(kwargs: Mapping[str, object]) -> None:
    if kwargs:
        raise UnknownCall(f"the arguments {kwargs}")


_ARITHMETIC: dict[object, str] = {
    **dict.fromkeys((operator.add, torch.add, "add"), "add"),
    **dict.fromkeys((operator.sub, torch.sub, "sub"), "subtract"),
    **dict.fromkeys((operator.mul, torch.mul, "mul"), "multiply"),
    **dict.fromkeys((operator.truediv, torch.div, "div"), "divide"),
}


def _in_new_memory(target: object) -> object:
    """The call that does the same as one that writes over its first argument; any other one itself."""
    name = target if isinstance(target, str) else getattr(target, "__name__", "")
    if not name.endswith("_"):
        return target
    found = [getattr(place, name[:-1], None) for place in (torch, functional)] if callable(target) else [name[:-1]]
    return next((each for each in found if each in CALLS or each in _ARITHMETIC), target)


_VIEWS: dict[object, str] = {
    operator.getitem: "getitem", torch.flatten: "flatten", torch.reshape: "reshape", torch.permute: "permute",
    torch.unsqueeze: "unsqueeze", torch.squeeze: "squeeze", torch.chunk: "chunk", torch.split: "split",
    **{name: name for name in (
        "view", "reshape", "flatten", "unsqueeze", "squeeze", "permute", "chunk", "split", "expand_as", "expand",
        "contiguous", "float",
    )},
}  # fmt: skip
_MEAN = (torch.mean, "mean")
_NEGATIVE = (operator.neg, torch.neg, "neg")
_CONCATENATE = (torch.cat, torch.concat, torch.concatenate)
# what may be made of weights before they are used: nothing random, and nothing that writes
_FOLDED = {
    *_ARITHMETIC, *_NEGATIVE, torch.exp, "exp", torch.sqrt, "sqrt", torch.rsqrt, "rsqrt",
    torch.clamp, "clamp", torch.tanh, "tanh", torch.sigmoid, "sigmoid", functional.softplus, "view", "reshape",
    "unsqueeze", torch.unsqueeze, "squeeze", "t", torch.abs, "abs",
}  # fmt: skip
