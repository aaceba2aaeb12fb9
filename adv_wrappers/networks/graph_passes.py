"""The passes of a whole network: forward from its input, back from the gradient of a loss at its output.

Passes one after the other are one segment. Where a value is taken by several layers, the gradient with respect to it is
the sum of theirs. What writes over what is settled once, before the first run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from adv_wrappers.networks.graph import FROM_OUTPUT, Arithmetic, Join, Mean, Node, Part, Permute, Reshape
from adv_wrappers.networks.layer_passes import (
    ArithmeticPass,
    BatchNormPass,
    ConvPass,
    InputActivationPass,
    LayerNormPass,
    LinearPass,
    Make,
    MaxPoolPass,
    NormalizePass,
    OutputActivationPass,
    Pass,
)
from adv_wrappers.networks.layers import AppendLogStd, Normalize, QuantileMean, TwoLogits
from adv_wrappers.networks.shape_passes import (
    AppendLogStdPass,
    ChannelsLastFlattenPass,
    FlattenPass,
    JoinPass,
    MeanPass,
    PartPass,
    QuantileMeanPass,
    TwoLogitsPass,
    ViewPass,
)
from adv_wrappers.networks.space_to_depth import SpaceToDepth


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
        nodes, layout, dtype: as of :class:`InputGradient`.
        cached: takes a key and a function, and returns what the function makes of the weights.

    Attributes:
        chain, reversed: the passes, where each takes what the one before it gives, as in most networks. They are run
            without looking for values by their number. None for other networks.
        overwritable: whether the gradient with respect to the input is memory of its own.
        reusable: whether another attack may use them, too.
        rows: the number of rows, and the dtype, that the memory is made for.
    """

    reusable = False

    def __init__(
        self, nodes: Sequence[Node], layout: SpaceToDepth | None, dtype: torch.dtype | None, cached: Make
    ) -> None:
        self.segments = _segments_of(nodes, layout, dtype, cached)
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


def _segments_of(
    nodes: Sequence[Node], layout: SpaceToDepth | None, dtype: torch.dtype | None, cached: Make
) -> list[_Segment]:
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
        passes = _passes_of(layers, layout, nodes[i].inputs == (0,), dtype, cached, join is not None, last)
        segments.append(_Segment(nodes[i].inputs, join, passes, run[-1] + 1))
    return sorted(segments, key=lambda segment: segment.target)


def _passes_of(
    layers: Sequence[object],
    layout: SpaceToDepth | None,
    first: bool,
    dtype: torch.dtype | None,
    cached: Make,
    given: bool,
    last: bool,
) -> list[Pass]:
    """The passes of layers one after the other.

    Args:
        layers: without joins.
        layout: how the network's input is rearranged.
        first: whether the first layer takes that.
        dtype, cached: as of :class:`Passes`.
        given: whether what the first one takes is memory that nobody else reads.
        last: whether what the last one gives is the network's output.
    """
    passes: list[Pass] = []
    for i, layer in enumerate(layers):
        behind = layers[i + 1] if i + 1 < len(layers) else None
        if isinstance(layer, nn.Linear):
            activation = behind if isinstance(behind, FROM_OUTPUT) else None
            linear = LinearPass(layer, dtype or layer.weight.dtype, cached, activation, last and behind is None)
            if layout is not None and i and isinstance(layers[i - 1], nn.Flatten):
                passes[-1] = ChannelsLastFlattenPass(linear)
            passes.append(linear)
        elif isinstance(layer, nn.Conv2d):
            squares = layout if first and layout is not None and layout.side > 1 else None
            passes.append(ConvPass(layer, dtype or layer.weight.dtype, cached, squares, layout is not None))
            first = False
        elif not (isinstance(layer, FROM_OUTPUT) and i and isinstance(layers[i - 1], nn.Linear)):
            passes.append(_pass_of(layer, dtype, cached, passes[-1].gives if passes else given))
    return passes


def _pass_of(layer: object, dtype: torch.dtype | None, cached: Make, in_place: bool) -> Pass:
    """The pass of a layer that has no place of its own in a network.

    Args:
        layer: of one value, any but a linear layer and a convolution.
        dtype: what the layers compute in, by default that of their weights.
        in_place: whether the layer's input is memory that nobody else reads.
    """
    if isinstance(layer, FROM_OUTPUT):
        return OutputActivationPass(layer, in_place)
    if isinstance(layer, nn.LayerNorm):
        weight = layer.weight
        return LayerNormPass(layer, dtype or (torch.float32 if weight is None else weight.dtype))
    makers: dict[type, Callable[..., Pass]] = {
        nn.Flatten: lambda layer: FlattenPass(),
        nn.MaxPool2d: MaxPoolPass,
        AppendLogStd: AppendLogStdPass,
        QuantileMean: QuantileMeanPass,
        TwoLogits: TwoLogitsPass,
        Mean: MeanPass,
        Part: PartPass,
        Reshape: ViewPass,
        Permute: ViewPass,
        Arithmetic: partial(ArithmeticPass, dtype=dtype),
        Normalize: partial(NormalizePass, dtype=dtype),
        nn.BatchNorm1d: partial(BatchNormPass, dtype=dtype),
        nn.BatchNorm2d: partial(BatchNormPass, dtype=dtype),
    }
    return makers.get(type(layer), InputActivationPass)(layer)
