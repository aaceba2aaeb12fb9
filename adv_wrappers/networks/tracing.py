"""The layers that a module consists of, in the order in which they are applied.

A ``Sequential`` says so itself. A class is traced by ``torch.fx``, which calls its ``forward`` with a stand-in for the
input and records what is done to it: ``F.relu(self.fc1(x))`` becomes a layer and ``nn.ReLU()``. What is found are the
module's own layers, so that their weights are those of the module.
"""

from __future__ import annotations

import copy
import operator
import threading
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, fx, nn
from torch.nn import functional

from adv_wrappers.networks.layers import AppendLogStd, Clip, Normalize
from adv_wrappers.networks.spec import hooked, kind_of


def layers_of(module: nn.Module, pairs: bool = False) -> list[nn.Module] | None:
    """The layers of a module one after the other, each of a kind that can be written down (see :mod:`.spec`).

    The module is not changed. Its ``forward`` runs once if it is no ``Sequential``, with a copy of the module around
    the same weights.

    Args:
        module: one that takes one tensor.
        pairs: take a pair ``(mean, log_std)`` as the two side by side, as a victim's parameters are.

    Returns:
        None for what is no sequence of such layers: branches, residual connections, several inputs, layers of other
        kinds, hooks, Python that depends on values.
    """
    layers = list(flattened(module))
    if all(kind_of(layer) or isinstance(layer, nn.Identity) for layer in layers):
        return [layer for layer in layers if not isinstance(layer, nn.Identity)]
    found: list[nn.Module] = []
    for layer in layers:
        inner = [layer] if kind_of(layer) else _traced(layer, pairs and layer is layers[-1])
        if inner is None:
            return None
        found += inner
    return found


def flattened(module: nn.Module) -> Iterator[nn.Module]:
    """The modules in a ``Sequential``, nested as one likes, in order; any other module is one itself."""
    # iterating a Sequential and not its children(), which leave out the second use of one shared activation
    if type(module) is nn.Sequential and not hooked(module):
        for child in module:
            yield from flattened(child)
    else:
        yield module


def copy_around(module: nn.Module, is_layer: Callable[[nn.Module], bool]) -> nn.Module:
    """A copy of a module around the same layers and weights, to be traced: a forward may write to its module."""
    shared = [*filter(is_layer, module.modules()), *module.parameters(), *module.buffers()]
    return copy.deepcopy(module, {id(part): part for part in shared})  # what is in the memo is not copied


class OneThreadTracer(fx.Tracer):
    """Records what the thread does that traces; torch's own one breaks modules that other threads run meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self._thread = threading.get_ident()

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


class _Tracer(OneThreadTracer):
    """Looks into every module but those that can be written down, and those of torch."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return hooked(m) or kind_of(m) is not None or super().is_leaf_module(m, module_qualified_name)


def _traced(module: nn.Module, pairs: bool) -> list[nn.Module] | None:
    if isinstance(module, nn.Identity) and not hooked(module):
        return []
    if hooked(module):
        return None
    try:
        own = copy_around(module, lambda layer: kind_of(layer) is not None)
        graph = _Tracer().trace(own)
    except Exception:  # a forward may raise anything when its input is no tensor
        return None
    return _Sequence(own, graph).layers(pairs)


class _Sequence:
    """A traced graph as layers in a row, if that is what it is."""

    def __init__(self, module: nn.Module, graph: fx.Graph) -> None:
        self.module, self.nodes, self.used = module, list(graph.nodes), set[fx.Node]()

    def layers(self, pairs: bool) -> list[nn.Module] | None:
        """The layers; None where a node takes anything but the answer of the one before, and constants."""
        inputs = [node for node in self.nodes if node.op == "placeholder"]
        (output,) = (node for node in self.nodes if node.op == "output")
        if len(inputs) != 1:
            return None
        end, log_std, used = self._end(output.args[0], pairs)
        used |= {inputs[0], output}
        self.used = used
        found, last = list[nn.Module](), inputs[0]
        while last is not end:
            node = next((n for n in self.nodes if n.args[:1] == (last,) and n not in used and not is_shape(n)), None)
            layers = None if node is None else self._layers(node)
            if node is None or layers is None:
                return None
            found += layers
            used.add(node)
            last = node
        # what is left over is a branch, whose result went into a layer or is thrown away
        if any(node not in used and node.op != "get_attr" and not is_shape(node) for node in self.nodes):
            return None
        return found if log_std is None else [*found, AppendLogStd(log_std.detach())]

    def _end(self, answer: object, pairs: bool) -> tuple[object, Tensor | None, set[fx.Node]]:
        """The last layer's node; of ``cat([mean, log_std.expand_as(mean)], -1)``, or such a pair, the mean's.

        Beside it the log standard deviation, and the nodes that put it there.
        """
        used, parts = set[fx.Node](), answer if pairs else None
        if isinstance(answer, fx.Node) and answer.target is torch.cat:
            axis = answer.kwargs.get("dim", answer.args[1] if len(answer.args) > 1 else 0)
            used, parts = {answer}, answer.args[0] if axis in (-1, 1) else None
        if isinstance(parts, (list, tuple)) and len(parts) == 2:
            mean, beside = parts
            if isinstance(beside, fx.Node) and beside.target == "expand_as" and beside.args[1] is mean:
                used.add(beside)
                beside = beside.args[0]
            log_std = self._constant(beside)
            if log_std is not None and log_std.dim() in (1, 2) and log_std.numel() == log_std.shape[-1]:
                return mean, log_std, used
        return answer, None, set()

    def _constant(self, value: object) -> Tensor | None:
        """The tensor of the module that a node is, or None."""
        if not isinstance(value, fx.Node) or value.op != "get_attr":
            return None
        found: object = self.module
        for name in str(value.target).split("."):
            found = getattr(found, name)
        return found if isinstance(found, Tensor) else None

    def _layers(self, node: fx.Node) -> list[nn.Module] | None:
        """What a node does to the answer before it: a layer, or none where it leaves it as it is."""
        arguments = node.args[1:]
        if node.op == "call_module":
            layer = self.module.get_submodule(str(node.target))
            if isinstance(layer, nn.Identity) and not hooked(layer):
                return []
            return [layer] if kind_of(layer) and not arguments and not node.kwargs else None
        if node.target in ("view", "reshape", torch.reshape):
            rows = arguments[0] if len(arguments) == 2 and arguments[1] == -1 else None
            return [nn.Flatten()] if isinstance(rows, fx.Node) and self._is_row_count(rows) else None
        if node.target == "float" and not arguments:
            # elsewhere it casts what the layers would leave
            return [] if {p.dtype for p in self.module.parameters()} == {torch.float32} else None
        call = CALLS.get(node.target)
        if call is None or any(isinstance(value, fx.Node) for value in (*arguments, *node.kwargs.values())):
            return None
        try:
            made = call(*arguments, **node.kwargs)
        except TypeError:  # arguments that the layer does not have
            return None
        return None if made is None else [made]

    def _is_row_count(self, node: fx.Node) -> bool:
        """Whether a node is ``x.size(0)``, ``x.size()[0]`` or ``x.shape[0]``, of any x: no layer changes it."""
        index = node.args[1:] if node.target in ("size", operator.getitem) else ()
        whole = node.args[0] if node.target is operator.getitem else node
        if index != (0,) or not isinstance(whole, fx.Node) or not is_shape(whole):
            return False
        return whole.args[0] in self.used and (whole is node or whole.args[1:] != (0,))


def is_shape(node: fx.Node) -> bool:
    """Whether a node is a tensor's shape, or one number of it."""
    if node.target is operator.getitem and isinstance(node.args[0], fx.Node):
        return is_shape(node.args[0])
    return node.target == "size" or (node.target is getattr and node.args[1] == "shape")


def _flatten(start_dim: int = 0, end_dim: int = -1) -> nn.Module | None:
    return nn.Flatten() if (start_dim, end_dim) == (1, -1) else None


def _relu(inplace: bool = False) -> nn.Module:
    return nn.ReLU()  # whether it writes over its input makes no difference


def _clip(min: float | None = None, max: float | None = None) -> nn.Module | None:
    numbers = all(value is None or isinstance(value, (int, float)) for value in (min, max))
    return Clip(min, max) if numbers else None


def _divide(by: object) -> nn.Module | None:
    if isinstance(by, bool) or not isinstance(by, (int, float)) or by <= 0:
        return None
    # of no dimensions, and so of no dtype that would be taken on
    return Normalize(torch.tensor(0.0, dtype=torch.float64), torch.tensor(float(by), dtype=torch.float64))


_Call = Callable[..., nn.Module | None]
CALLS: dict[object, _Call] = {
    **dict.fromkeys((functional.relu, torch.relu, "relu"), _relu),
    **dict.fromkeys((functional.tanh, torch.tanh, "tanh"), nn.Tanh),
    **dict.fromkeys((functional.sigmoid, torch.sigmoid, "sigmoid"), nn.Sigmoid),
    **dict.fromkeys((torch.flatten, "flatten"), _flatten),
    **dict.fromkeys((torch.clamp, "clamp", torch.clip, "clip"), _clip),
    **dict.fromkeys((operator.truediv, torch.div, "div"), _divide),
    functional.elu: nn.ELU, functional.leaky_relu: nn.LeakyReLU, functional.softplus: nn.Softplus,
    functional.gelu: nn.GELU, functional.silu: nn.SiLU,
}  # fmt: skip
