"""ONNX graphs as modules of torch, with gradients and bounds, for batches of any size."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from adv_wrappers.utils.trees import leaves
from adv_wrappers.victims.onnx.node_converter import UNIT, Builder, Call, GraphValue, UnknownOperation, nearly, taken
from adv_wrappers.victims.onnx.operations import known_operations
from adv_wrappers.victims.onnx.session import FIRST, WHOLE, OnnxNet, open_session


class OnnxGraph(nn.Module):
    """What an :class:`OnnxNet` computes, on tensors.

    Args:
        net: what it was made from.
        calls: in order.
        constants: the buffers that they take.
        choices: the keys of observations that come as integers.
        outputs, later: the outputs, and the next hidden states by the names of the present ones.
    """

    file_sha256: Tensor
    unit: Tensor

    def __init__(
        self,
        net: OnnxNet,
        calls: Sequence[Call],
        constants: Mapping[str, Tensor],
        choices: Iterable[str],
        outputs: Sequence[GraphValue],
        later: Mapping[str, GraphValue],
    ) -> None:
        super().__init__()
        self.observed = net.observed
        self.states = net.states
        self.choices = frozenset(choices)
        self.outputs, self.later = list(outputs), dict(later)
        # calls that nothing needs any more were replaced by a layer
        self.calls, wanted = list[Call](), {GraphValue(UNIT, True), *self.outputs, *self.later.values()}
        for call in reversed(calls):
            if GraphValue(call.result) in wanted:
                wanted.update(each for each in call.arguments if isinstance(each, GraphValue))
                self.calls.insert(0, call)
        self.layers = nn.ModuleList(call.function for call in self.calls if isinstance(call.function, nn.Module))
        for name, tensor in constants.items():
            if GraphValue(name, True) in wanted:
                self.register_buffer(name, tensor)
        # weights do not say what is computed with them: the hash of the files is part of the fingerprint
        self.register_buffer("file_sha256", net.file_sha256)
        self.eval().requires_grad_(False)

    def forward(self, obs: Any, state: Mapping[str, Tensor] | None = None) -> Any:
        """The outputs ``[B, K]`` for observations ``[B, *S]``; with a state also the next one."""
        # the inputs of the graph by name, in its own form
        values = dict[str | int, Any]()
        for port in self.observed:
            x = obs if port.key == WHOLE else obs[port.key]
            values[port.name] = taken(x.to(self.unit.dtype) if port.key in self.choices else x, port)
        for port in self.states:
            x = (state or {})[port.name]
            x = x == 0 if port.name.lower() in FIRST else x
            values[port.name] = taken(x.to(self.unit.dtype), port)
        # its calls in their order, then the outputs among all the values
        for call in self.calls:
            call.run(values, self._constant)
        found = [self._constant(str(each.name)) if each.constant else values[each.name] for each in self.outputs]
        out = found[0] if len(found) == 1 else tuple(found)
        if state is None:
            return out
        # the next state: an output of the graph, or one step more
        new = {
            port.name: values[self.later[port.name].name] if port.next else state[port.name] + 1 for port in self.states
        }
        return out, new

    def _constant(self, name: str) -> Tensor:
        found: Tensor = getattr(self, name)
        return found


def torch_graph(net: OnnxNet, obs: Any, state: Any, dtype: torch.dtype, choices: Iterable[str] = ()) -> OnnxGraph:
    """The graph of a session as a module of torch, compared with it at two observations.

    Args:
        net: the session.
        obs, state: two observations, and hidden states or None, as the session takes them.
        dtype: of weights.
        choices: the keys of observations that come as integers.

    Raises:
        UnknownOperation: for a graph with an operation that is not known, or that torch computes differently.
    """
    try:
        import onnx
        from onnx import inliner
    except ImportError as error:
        raise UnknownOperation("the package onnx, which reads its graph, is not installed") from error
    # the graph without functions, and with one row wherever rows are counted
    data, beside, path = net.arguments[:3]
    try:
        model = inliner.inline_local_functions(onnx.load_model_from_string(data))
    except Exception as error:  # of ONNX Runtime's own format
        raise UnknownOperation(f"the package onnx cannot read it ({error!s:.200})") from error
    ports = {port.name: port for port in (*net.observed, *net.states)}
    for given in model.graph.input:
        if given.name in ports and (axis := ports[given.name].axis) is not None:
            given.type.tensor_type.shape.dim[axis].dim_value = 1

    # the nodes that the outputs need
    nodes, wanted = list[Any](), {*net.outputs, *(port.next for port in net.states)}
    for node in reversed(model.graph.node):
        if not wanted.isdisjoint(node.output):
            wanted.update(node.input)
            nodes.insert(0, node)

    # every value of the graph at either row
    names = [tensor.name for tensor in model.graph.initializer if tensor.name in wanted]
    names += [name for node in nodes for name in node.output if name]
    del model.graph.output[:], model.graph.value_info[:]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    feeds = net.feeds(obs, state)
    rows = [net.named([feed[i : i + 1] for feed in feeds]) for i in range(2)]
    try:
        session = open_session(model.SerializeToString(), beside, path)
        known = [row | dict(zip(names, session.run(names, row), strict=True)) for row in rows]
    except Exception as error:  # of a graph that takes no single rows, or ONNX Runtime's own
        raise UnknownOperation(f"it does not run with one row: {error!s:.200}") from error

    # node by node as calls of torch, each compared with the known values
    opset = next((each.version for each in model.opset_import if each.domain in ("", "ai.onnx")), 1)
    builder = Builder(known, dtype, opset, known_operations())
    for port, feed in zip(ports.values(), feeds, strict=True):
        builder.examples[port.name] = taken(torch.from_numpy(feed).to(dtype), port)
        builder.values[port.name] = GraphValue(port.name)
    for node in nodes:
        builder.add(node)
    outputs = [builder.output(name, net.observed[0].axis is None) for name in net.outputs]
    later = {port.name: builder.next_state(port) for port in net.states if port.next}
    return OnnxGraph(net, builder.calls, builder.constants, choices, outputs, later)


def agrees(graph: OnnxGraph, net: OnnxNet, observations: Any, states: Any) -> bool:
    """Whether a graph answers as ONNX Runtime does, to 1e-5 of the largest number, over four steps of hidden states.

    Args:
        graph, net: what is compared.
        observations: rows of random ones.
        states: the first hidden states, or None.
    """
    ours = theirs = states
    for _ in range(1 if states is None else 4):
        try:
            with torch.no_grad():
                found, expected = graph(observations, ours), net(observations, theirs)
            pairs = zip(leaves(found), leaves(expected), strict=True)
            if not all(nearly(mine, its, 1e-5) for mine, its in pairs):
                return False
        except Exception:  # of a graph that takes its rows together, which has other sizes then
            return False
        if states is not None:
            ours, theirs = found[1], expected[1]
    return True
