"""Gradients of a loss with respect to a network's input, written out layer by layer, without autograd.

An attack computes K times the gradient of one loss at inputs of one shape. No graph is built for that, no gradient of
a weight is considered, and what one step wrote, the next writes over: activations and inner gradients are allocated
once an attack, and of a small network whose weights never change once and for all. Small networks spend half the time
(``benchmarks/attacks.py``). How each layer is computed is in :mod:`.layer_gradients`, and the layout that convolutions
prefer in :mod:`.strided_convolution`.

Passes one after the other are one segment. Where a value is taken by several layers, the gradient with respect to it is
the sum of theirs. What writes over what is settled once, before the first run.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import is_in_torch_dispatch_mode

from adv_wrappers.networks.graph import Join, Node, chain, changed, does_nothing, flattened
from adv_wrappers.networks.layer_gradients import (
    FROM_OUTPUT,
    ChannelsLastFlattenPass,
    ConvPass,
    JoinPass,
    LinearPass,
    Make,
    Pass,
    has_gradient,
    pass_of,
)
from adv_wrappers.networks.strided_convolution import SpaceToDepth, picture_layout
from adv_wrappers.networks.tracing import OutputForm, UnknownCall, nearly_equal, trace

OutputGradient = Callable[[Tensor], Tensor]  # of a loss: the network's output [B, K] to the gradient there, [B, K]
MOST_HELD = 2**20  # bytes of the memory that a victim holds between two attacks, for each of two at a time


class _Segment:
    """Passes one after the other; what they begin with is a value, or made of several.

    Attributes:
        sources: numbers of the values.
        join: makes one of several; None for one value.
        passes: the passes.
        target: the number of the value that they give.
    """

    def __init__(self, sources: tuple[int, ...], join: JoinPass | None, passes: list[Pass], target: int) -> None:
        self.sources, self.join, self.passes, self.target = sources, join, passes, target
        self.reversed = passes[::-1]


class Passes:
    """The passes of a network, forward and back.

    Args:
        nodes, layout: as of :class:`InputGradient`.
        cached: takes a key and a function, and returns what the function makes of the weights.

    Attributes:
        chain, reversed: the passes, where each takes what the one before it gives, as in most networks. They are run
            without looking for values by their number. None for other networks.
        overwritable: whether the gradient with respect to the input is memory of its own.
        reusable: whether another attack may use them, too.
        rows: the number of rows, and the dtype, that the memory is made for.
    """

    reusable = False

    def __init__(self, nodes: Sequence[Node], layout: SpaceToDepth | None, cached: Make) -> None:
        self.segments = _segments_of(nodes, layout, cached)
        joins = [segment.join for segment in self.segments if segment.join is not None]
        self.all: list[Pass | JoinPass] = [*joins, *(each for segment in self.segments for each in segment.passes)]
        uses = [source for segment in self.segments for source in segment.sources]
        self.count = len(nodes) + 1
        self.shared = {value for value in uses if uses.count(value) > 1}  # gradients with respect to them are sums
        self.sums: dict[int, Tensor] = {}
        self.overwritable = self._own()
        self.exposed = self._freshen()  # values whose gradients may go out to the attack
        self.rows: tuple[int, torch.dtype] | None = None
        self._held: int | None = None
        self.chain = self.segments[0].passes if len(self.segments) == 1 and not joins else None
        self.reversed = None if self.chain is None else self.chain[::-1]
        if not self.segments:
            self.chain = self.reversed = []

    def _own(self) -> bool:
        """Tell passes which gradients they may write over; returns whether that of the input is one of them."""
        own = [False] * self.count
        for segment in reversed(self.segments):
            owned = own[segment.target]
            for each in segment.reversed:
                each.overwrites = owned
                # one that writes over what it may write over, or else into memory of its own, and a view of either
                owned = each.writes or (owned and each.forwards)
            for source in segment.sources:
                own[source] = source in self.shared or (owned and segment.join is None)
        return own[0]

    def _freshen(self) -> list[bool]:
        """Tell passes whose gradient goes out to the attack that it must not be memory which the next step uses."""
        out = [False] * self.count
        out[0] = True
        for segment in self.segments:
            fresh = any(out[source] and source not in self.shared for source in segment.sources)
            for each in segment.passes:
                each.fresh = fresh
                fresh = fresh and each.forwards
            out[segment.target] = fresh
        return out

    def forward(self, x: Tensor) -> Tensor:
        """The network's output."""
        values: list[Tensor] = [x] * self.count
        for segment in self.segments:
            sources = segment.sources
            x = values[sources[0]] if segment.join is None else segment.join.forward(*[values[i] for i in sources])
            for each in segment.passes:
                x = each.forward(x)
            values[segment.target] = x
        return x

    def backward(self, g: Tensor) -> Tensor:
        """From the gradient with respect to the output of the last :meth:`forward` that with respect to its input."""
        gradients: list[Tensor | None] = [None] * self.count
        gradients[self.segments[-1].target] = g
        for segment in reversed(self.segments):
            found = gradients[segment.target]
            assert found is not None
            for each in segment.reversed:
                found = each.backward(found)
            if segment.join is None:
                self._add(gradients, segment.sources[0], found)
            else:
                for source, part in zip(segment.sources, segment.join.backward(found), strict=True):
                    self._add(gradients, source, part)
        found = gradients[0]
        assert found is not None
        return found

    def _add(self, gradients: list[Tensor | None], number: int, g: Tensor) -> None:
        before = gradients[number]
        if before is None:
            gradients[number] = g
        elif self.exposed[number]:
            gradients[number] = before + g
        else:
            if number not in self.sums:
                self.sums[number] = torch.empty_like(before)
            gradients[number] = torch.add(before, g, out=self.sums[number])

    def resize(self, x: Tensor | None = None) -> None:
        """Give up all memory: inputs like ``x`` come next."""
        self.rows, self._held = None if x is None else (len(x), x.dtype), None
        self.sums.clear()
        for each in self.all:
            each.resize()

    def release(self, most: int) -> None:
        """Hold no tensor of the attack any longer, and no more than ``most`` bytes."""
        if self._held is None:
            held = sum(each.memory() for each in self.all) + sum(each.nbytes for each in self.sums.values())
            self._held = held
        if self._held > most:
            self.resize()
        for each in self.all:
            each.kept = ()


def _segments_of(nodes: Sequence[Node], layout: SpaceToDepth | None, cached: Make) -> list[_Segment]:
    """The passes of nodes, those in one segment of which each alone takes what the one before it gives."""
    uses = [0] * (len(nodes) + 1)
    for node in nodes:
        for source in node.inputs:
            uses[source] += 1
    segments, done = list[_Segment](), set[int]()
    for i in range(len(nodes)):
        if i in done:
            continue
        run = [i]
        while (n := run[-1] + 1) and uses[n] == 1:  # the number of the value that the last one gives
            behind = next(j for j in range(run[-1] + 1, len(nodes)) if n in nodes[j].inputs)
            if isinstance(nodes[behind].layer, Join):
                break
            run.append(behind)
        done.update(run)
        layers = [nodes[j].layer for j in run]
        join = JoinPass(layers[0]) if isinstance(layers[0], Join) else None
        layers, last = layers[join is not None :], run[-1] + 1 == len(nodes)
        passes = _passes_of(layers, layout, nodes[i].inputs == (0,), cached, join is not None, last)
        segments.append(_Segment(nodes[i].inputs, join, passes, run[-1] + 1))
    return sorted(segments, key=lambda segment: segment.target)


def _passes_of(
    layers: Sequence[object],
    layout: SpaceToDepth | None,
    first: bool,
    cached: Make,
    given: bool,
    last: bool,
) -> list[Pass]:
    """The passes of layers one after the other.

    Args:
        layers: without joins.
        layout: how the network's input is rearranged.
        first: whether the first layer takes that.
        cached: as of :class:`Passes`.
        given: whether what the first one takes is memory that nobody else reads.
        last: whether what the last one gives is the network's output.
    """
    passes: list[Pass] = []
    for i, layer in enumerate(layers):
        behind = layers[i + 1] if i + 1 < len(layers) else None
        if isinstance(layer, nn.Linear):
            activation = behind if isinstance(behind, FROM_OUTPUT) else None
            linear = LinearPass(layer, cached, activation, last and behind is None)
            if layout is not None and i and isinstance(layers[i - 1], nn.Flatten):
                passes[-1] = ChannelsLastFlattenPass(linear)
            passes.append(linear)
        elif isinstance(layer, nn.Conv2d):
            squares = layout if first and layout is not None and layout.side > 1 else None
            passes.append(ConvPass(layer, cached, squares, layout is not None))
            first = False
        elif not (isinstance(layer, FROM_OUTPUT) and i and isinstance(layers[i - 1], nn.Linear)):
            passes.append(pass_of(layer, passes[-1].gives if passes else given))
    return passes


class LayerGraph:
    """A network whose input gradient is written out; weights are read when an :class:`InputGradient` is made.

    Args:
        nodes: the layers, each after those whose output it takes.
        frozen: promises that weights never change, so that what is made of them is made once.

    Attributes:
        nodes: the layers.
    """

    def __init__(self, nodes: Sequence[Node], frozen: bool = False) -> None:
        self.nodes, self.frozen = list(nodes), frozen
        self._cache: dict[Hashable, Tensor] = {}
        self._idle: dict[Hashable, list[Passes]] = {}
        layers = [node.layer for node in self.nodes if isinstance(node.layer, nn.Module)]
        weights = [weight for layer in layers for weight in layer.parameters()]
        # what a CUDA graph writes to must be made within
        self._keeps = frozen and bool(weights) and all(weight.device.type == "cpu" for weight in weights)

    def __getstate__(self) -> dict[str, object]:
        return {**vars(self), "_cache": {}, "_idle": {}}

    def input_gradient(self, output_gradient: OutputGradient) -> InputGradient:
        """``x -> d loss(params(x)).sum() / dx`` from the gradient of the loss with respect to the parameters.

        Args:
            output_gradient: parameters ``[B, K]`` to the gradient of the loss there.
        """
        return InputGradient(self, output_gradient)

    def take(self, layout: SpaceToDepth | None) -> Passes:
        """Passes that nobody else uses; see :meth:`give_back`."""
        reuses = self._reuses()
        if reuses:
            try:
                return self._idle[layout].pop()
            except (KeyError, IndexError):
                pass
        passes = Passes(self.nodes, layout, self._cached)
        passes.reusable = reuses
        return passes

    def give_back(self, passes: Passes, layout: SpaceToDepth | None) -> None:
        """Keep passes for the next attack, and the memory of a small network."""
        if not passes.reusable or not self._reuses():
            return
        idle = self._idle.setdefault(layout, [])
        if len(idle) < 2:
            passes.release(MOST_HELD)
            idle.append(passes)

    def _reuses(self) -> bool:
        # modes watch what an attack allocates, and tensors made in inference mode are of no use outside
        return self._keeps and not torch.is_inference_mode_enabled() and not is_in_torch_dispatch_mode()

    def _cached(self, key: Hashable, make: Callable[[], Tensor]) -> Tensor:
        """What ``make`` makes of the weights; of frozen ones once."""
        if not self.frozen:
            return make()
        if key not in self._cache:
            self._cache[key] = make()
        return self._cache[key]


def graph_of(module: nn.Module, frozen: bool = False) -> LayerGraph | None:
    """The graph of a network, or None if it holds what is not written out here.

    Args:
        module: takes one tensor.
        frozen: promises that neither its weights nor its layers ever change.
    """
    layers = _chain_of(module)
    return None if layers is None else LayerGraph(chain(layers), frozen)


def _chain_of(module: nn.Module) -> list[nn.Module] | None:
    """The layers of a ``Sequential`` whose gradients are all written out, without those that do nothing; or None."""
    if any(changed(each) for each in module.modules()):
        return None
    layers = [layer for layer in flattened(module) if not does_nothing(layer)]
    return layers if all(map(has_gradient, layers)) else None


def traced_graph(
    module: nn.Module, answer: OutputForm, params: Callable[[Tensor], Tensor], inputs: Callable[[int], Tensor]
) -> LayerGraph | None:
    """The graph of a frozen class, or None where it holds what is not written out, or does not agree with the class.

    Args:
        module: takes one tensor, and never changes.
        answer: what it returns.
        params: observations ``[B, *S]`` to the parameters ``[B, K]`` that are made of what it returns.
        inputs: a number of rows to random observations.
    """
    try:
        nodes = trace(module, has_gradient, answer)
    except UnknownCall:
        return None
    return LayerGraph(nodes, frozen=True) if agrees(LayerGraph(nodes), params, inputs) else None


def agrees(graph: LayerGraph, params: Callable[[Tensor], Tensor], inputs: Callable[[int], Tensor]) -> bool:
    """Whether a graph computes what a module does, and its gradient what autograd does, at random inputs.

    Rounding may move an element to the other side of a kink, where its gradient is another one. So gradients must be
    equal at one of three batches, and outputs at all.

    Args:
        graph: the graph of the module.
        params: the module's parameters ``[B, K]`` at inputs.
        inputs: a number of rows to as many inputs.
    """
    try:
        found = [_outputs_and_gradients_agree(graph, params, inputs(rows)) for rows in (2, 3)]
        if not any(gradients for _, gradients in found):
            found.append(_outputs_and_gradients_agree(graph, params, inputs(4)))
    except Exception:  # of a graph that is not that of the module
        return False
    return all(outputs for outputs, _ in found) and any(gradients for _, gradients in found)


def _outputs_and_gradients_agree(graph: LayerGraph, params: Callable[[Tensor], Tensor], x: Tensor) -> tuple[bool, bool]:
    with torch.enable_grad():
        leaf = x.clone().requires_grad_()
        expected = params(leaf)
        slope = torch.linspace(0, expected.numel(), expected.numel()).cos().to(expected).view_as(expected)
        (gradient,) = torch.autograd.grad(expected, leaf, slope)
    seen: list[Tensor] = []
    found = graph.input_gradient(lambda output: seen.append(output.clone()) or slope)(x.clone())  # type: ignore[func-returns-value]
    # gradients that are zero everywhere say nothing
    return nearly_equal(seen[0], expected.detach()), bool(gradient.any()) and nearly_equal(found, gradient)


def followed(module: nn.Module, graph: LayerGraph | None) -> LayerGraph | None:
    """The graph of a module that is trained elsewhere as it is now: ``graph`` if its layers are still the same."""
    layers = _chain_of(module)
    if layers is None:
        return None
    same = graph is not None and [node.layer for node in graph.nodes] == layers
    return graph if same else LayerGraph(chain(layers))


class InputGradient:
    """``x -> d loss(params(x)).sum() / dx``, for the steps of one attack.

    Args:
        graph: the network.
        output_gradient: parameters ``[B, K]`` to the gradient of the loss with respect to them.
        layout: how the input is rearranged; None where it is not.

    Attributes:
        overwritable: whether what a call returns is memory of its own, which the attack may write over.
    """

    def __init__(
        self,
        graph: LayerGraph,
        output_gradient: OutputGradient,
        layout: SpaceToDepth | None = None,
    ) -> None:
        self.graph, self.output_gradient, self.layout = graph, output_gradient, layout
        self.passes = graph.take(layout)
        self.overwritable = self.passes.overwritable

    def __del__(self) -> None:
        if (passes := vars(self).get("passes")) is not None:
            self.graph.give_back(passes, self.layout)

    def rearranged(self, x: Tensor) -> tuple[SpaceToDepth, InputGradient] | None:
        """How observations like ``x`` ``[B, *S]`` are rearranged, and their gradient so; None where it does not pay.

        On a processor it does. What convolutions cost on other devices nobody has measured.
        """
        image = x.dim() == 4 and x.device.type == "cpu"
        layout = picture_layout(self.graph.nodes, tuple(x.shape[1:]), len(x)) if image else None
        if layout is None:
            return None
        return layout, InputGradient(self.graph, self.output_gradient, layout)

    def __call__(self, x: Tensor) -> Tensor:
        if torch.is_grad_enabled():  # checked first, because leaving a context costs as much as a small layer
            with torch.no_grad():
                return self(x)
        passes, y = self.passes, x
        if (len(y), y.dtype) != passes.rows:
            passes.resize(y)
        if passes.chain is None:
            y = passes.forward(y)
        else:
            for each in passes.chain:
                y = each.forward(y)
        g = self.output_gradient(y)
        if passes.reversed is None:
            g = passes.backward(g)
        else:
            for each in passes.reversed:
                g = each.backward(g)
        return g
