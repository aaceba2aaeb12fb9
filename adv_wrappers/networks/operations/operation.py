"""What networks compute, one class for each operation.

An :class:`Operation` has all that is asked of it: what it computes, how it is called in a traced graph and in a file of
ONNX, its gradient with respect to its input, the box of its outputs, its linear relaxation, its rounding errors, and
its written form in a card. Everything else in ``networks`` and ``bounds`` asks operations and knows none by name.

A layer of torch has an operation beside it, a :class:`LayerOperation`; a layer of this library is its own operation;
and what a ``forward`` does with values beside applying layers is an operation without a layer. :mod:`.lookup` finds
that of any of the three.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self, TypeVar

import torch
from torch import Tensor, nn

from adv_wrappers.errors import VictimError
from adv_wrappers.networks.operations.linear_bounds import MIXED, Bounds, BoundStep, Shape, Total, Values, flat
from adv_wrappers.networks.operations.stored_layer import LayerSetting, StoredLayer, WrittenLayer


class Memory:
    """What one use of an operation in a network keeps on the way forward for the way back.

    Attributes:
        in_place: whether its input is memory that nobody else reads, which it may write over.
        last: whether its output is the network's.
        inner: whether the gradient that it returns is not the memory that the attack gets.
        weights: what :meth:`Operation.prepared` made of weights.
        out, gradient: what the step before gave on either way, to be written over.
        kept: whatever the way back needs.
    """

    __slots__ = ("gradient", "in_place", "inner", "kept", "last", "out", "weights")

    def __init__(self, in_place: bool = False, last: bool = False, inner: bool = False, weights: Any = None) -> None:
        self.in_place = in_place
        self.last = last
        self.inner = inner
        self.weights = weights
        self.out: Tensor | None = None
        self.gradient: Tensor | None = None
        self.kept: Any = None


class Operation:
    """What a network computes; called with values, it returns the new one.

    Gradients: :meth:`run` computes the value and :meth:`backward` the gradient with respect to what it took, by
    autograd over the operation alone unless a subclass writes it out. The gradient that ``backward`` takes is memory of
    its own, to be written over as one likes.

    Bounds: a subclass says that it is ``monotone``, or writes :meth:`interval`, or that it is not ``bounded``. One that
    is affine says so, and has linear bounds; so has a :class:`.Relaxed`. Of another one, they end at its box.

    Attributes:
        layers: the types of the layers that it is the operation of; none where it is a layer itself.
        calls: the functions, and the names of methods, by which a ``forward`` applies it to its first argument.
        weighted_calls: the same for functions that take weights, with the names of their arguments.
        onnx: the ONNX operator whose only attribute, if any, is the argument of its layer; None where there is none, or
            where the two differ in more than their names (``victims/onnx/operations.py`` has those).
        frees_output: whether its output is memory that nothing else reads, :meth:`backward` neither.
        copies_gradient: whether what :meth:`backward` returns is new memory, and what it takes stays as it is.
        several: whether it takes any number of values, and then :meth:`run` and :meth:`backward` tuples.
        bounded: whether it has bounds.
        monotone: whether each output falls with none of the inputs, so that its bounds are its values at their ends.
        takes_rows: whether interval bounds multiply a specification into it.
        steepest: its slope at most, for errors that go through a function of every element.
        kind: its name in a card; None where there is none.
        defaults: settings in a card that are attributes under the names of its layer's arguments.
    """

    layers: ClassVar[tuple[type[nn.Module], ...]] = ()
    calls: ClassVar[tuple[object, ...]] = ()
    weighted_calls: ClassVar[Mapping[object, tuple[str, ...]]] = {}
    onnx: ClassVar[str | None] = None
    frees_output: ClassVar[bool] = False
    copies_gradient: ClassVar[bool] = False
    several: ClassVar[bool] = False
    bounded: ClassVar[bool] = True
    monotone: ClassVar[bool] = False
    takes_rows: ClassVar[bool] = False
    steepest: ClassVar[float] = 1.0
    kind: ClassVar[str | None] = None
    defaults: ClassVar[Mapping[str, LayerSetting]] = {}

    def __call__(self, *values: Tensor) -> Tensor:
        raise NotImplementedError

    @property
    def layer(self) -> Any:
        """What computes it: a layer, or the operation itself."""
        return self

    def with_tensors(self, change: Callable[[Tensor], Tensor]) -> Self:
        """The same around other constants; an operation that has a layer, or none, is itself."""
        return self

    def does_nothing(self) -> bool:
        """Whether it leaves its input as it is."""
        return False

    # ----------------------------------------------------------------------------------------- how it is called

    @classmethod
    def traced(cls, *arguments: Any, **settings: Any) -> nn.Module | None:
        """The layer that one of its ``calls`` applies; None for arguments that are not known."""
        return cls._layer_type()(*arguments, **settings)

    @classmethod
    def _layer_type(cls) -> Callable[..., nn.Module]:
        found: Any = cls.layers[0] if cls.layers else cls
        return found  # type: ignore[no-any-return]

    @classmethod
    def around(cls, weights: dict[str, Tensor], **settings: Any) -> nn.Module:
        """The layer that one of its ``weighted_calls`` applies, without the weights themselves."""
        raise NotImplementedError

    # ------------------------------------------------------------------------------------------------- gradient

    def has_gradient(self) -> bool:
        """Whether :meth:`backward` gives its gradient."""
        return self.bounded and not getattr(self.layer, "inplace", False)

    def prepared(self) -> Any:
        """What :meth:`run` and :meth:`backward` need of weights and settings, which is made once for many steps."""
        return None

    def run(self, x: Any, memory: Memory) -> Tensor:
        """Its value; what the way back needs is kept, by default the input."""
        memory.kept = x
        return self(x)

    def backward(self, g: Tensor, memory: Memory) -> Any:
        """From the gradient with respect to the value of the last :meth:`run` that with respect to its input."""
        with torch.inference_mode(False), torch.enable_grad():
            x = memory.kept.clone().requires_grad_()
            return torch.autograd.grad(self(x), x, g)[0]

    # --------------------------------------------------------------------------------------------------- bounds

    def interval(self, low: Any, high: Any) -> Bounds:
        """The box of its outputs for a box of inputs; ends are tuples where it takes several.

        Raises:
            NotImplementedError: for a subclass that neither writes this nor is ``monotone``.
        """
        if not self.monotone:
            name = type(self).__name__
            raise NotImplementedError(f"{name} has no bounds: expected interval(), monotone = True or bounded = False")
        return self.at_ends(low, high)

    def at_ends(self, low: Any, high: Any) -> Bounds:
        """Its values at both ends of a box."""
        if getattr(self.layer, "inplace", False):
            low, high = low.clone(), high.clone()
        return self(low), self(high)

    def is_affine(self) -> bool:
        """Whether its outputs are combinations of its inputs and constants, for :meth:`pull_back`."""
        return False

    def parts(self) -> list[nn.Module | Operation]:
        """What it does one after the other, for linear bounds."""
        return [self.layer]

    def pull_back(self, rows: Tensor, shapes: Sequence[Shape]) -> tuple[Sequence[Tensor], Tensor]:
        """``(pulled, offset)`` of rows ``[B, M, *K]``, so that ``rows @ y = pulled @ x + offset`` if it is affine.

        Args:
            rows: combinations of what it answers.
            shapes: ``S``, of a row of each value that it takes.

        Returns:
            ``[B, M, *S]`` for every input, and ``[B, M]`` (or a zero).
        """
        count = rows.shape[0] * rows.shape[1]
        with torch.inference_mode(False), torch.enable_grad():  # torch.func.vjp imports torch's compiler: two seconds
            zeros = [rows.new_zeros(1, *shape).expand(count, *shape).requires_grad_() for shape in shapes]
            at_zero = self.layer(*zeros)
            value = (rows.flatten(0, 1).clone() * at_zero).sum()  # a clone, as rows may be of inference mode
            back = torch.autograd.grad(value, zeros, create_graph=rows.requires_grad, materialize_grads=True)
        return [each.unflatten(0, rows.shape[:2]) for each in back], flat(rows * at_zero[:1].detach(), 2).sum(-1)

    def rows_of(self, chosen: Tensor | slice, shape: Shape) -> tuple[Tensor, Tensor] | None:
        """Some of its outputs as rows ``[1 or B, M, *S]`` and an offset of what it takes; None where it does not say.

        Args:
            chosen: numbers of outputs, int64 ``[B or 1, M]``, or a slice of them.
            shape: of a row of what it takes.
        """
        return None

    def relax(self, values: Values, sources: tuple[int, ...]) -> tuple[BoundStep | None, Bounds | None]:
        """A step of linear bounds, or None to end at its box; and its box, or None for that of :meth:`interval`.

        Args:
            values: the values before it.
            sources: the numbers of those that it takes.
        """
        if not self.is_affine():
            return None, None
        return AffineStep(self, sources, [tuple(values.box(source)[0].shape[1:]) for source in sources]), None

    def tight_at_end(self) -> bool:
        """Whether, as a network's last, it is bounded by the box of what it takes as tightly as by lines."""
        return False

    def rounding(self, variances: Sequence[Tensor], boxes: Sequence[Bounds], after: Tensor, eps: float) -> Tensor:
        """Variances of errors behind it, an estimate (see :mod:`adv_wrappers.bounds.rounding_error`).

        Args:
            variances: of what it takes, ``[B, *S]`` each.
            boxes: of the same.
            after: the largest absolute values of what it answers.
            eps: the machine epsilon.
        """
        (variance,), rounded = variances, (eps * after).square()
        if self.is_affine():  # moves numbers, or takes the mean of some
            return self(variance)
        if variance.shape != rounded.shape:
            return rounded * len(variance[0].flatten())
        return variance * self.steepest**2 + rounded

    # ---------------------------------------------------------------------------------------------------- cards

    def settings(self) -> WrittenLayer:
        """What a card says of it beside its kind; defaults are left out.

        Raises:
            CardError: for a layer that a card cannot describe.
        """
        stated = {name: getattr(self.layer, name) for name in self.defaults}
        return {name: value for name, value in stated.items() if value != self.defaults[name]}

    @classmethod
    def build(cls, stored: StoredLayer) -> nn.Module:
        """The layer that a card describes, whose settings are as :meth:`settings` gives them."""
        return cls._layer_type()(**stored.settings)

    def shape_after(self, shape: Shape) -> Shape:
        """The shape of a row of what it answers to a row of a shape, found without computing; of an LSTM, of one step.

        Raises:
            RuntimeError: where it does not take such a row.
        """
        raise NotImplementedError

    def as_layer(self) -> nn.Module | None:
        """A layer that can be written down and does the same; None where there is none."""
        return self.layer if isinstance(self.layer, nn.Module) else None


class LayerOperation(Operation):
    """The operation of a layer of torch.

    Args:
        layer: the layer, whose type is one of ``layers``.
    """

    layer: Any = None

    def __init__(self, layer: nn.Module) -> None:
        self.layer = layer

    def __call__(self, *values: Tensor) -> Tensor:
        found: Tensor = self.layer(*values)
        return found


@dataclass
class AffineStep(BoundStep):
    """An affine operation, and the shapes of rows of what it takes."""

    operation: Operation
    sources: tuple[int, ...]
    shapes: list[Shape]

    def pull(self, rows: Tensor, both: bool, total: Total) -> tuple[Sequence[Tensor], bool]:
        pulled, offset = self.operation.pull_back(rows, self.shapes)
        if offset.dim():
            total.add(offset, None, both)
        return pulled, both


class Elementwise(Operation):
    """A function of every element by itself."""

    def shape_after(self, shape: Shape) -> Shape:
        return shape

    def is_uniform(self) -> bool:
        """Whether it is the same function for all of them."""
        return True


class RowsApart(Operation):
    """Moves or averages elements of one value, and must take every row by itself for bounds."""

    def mixes_rows(self, axes: int) -> bool:
        """Whether elements of several rows meet, in a value of so many axes."""
        return False

    def interval(self, low: Tensor, high: Tensor) -> Bounds:
        least, most = self(low), self(high)
        if self.mixes_rows(low.dim()) or least.shape[:1] != low.shape[:1]:
            raise VictimError(MIXED.format(self))
        return least, most

    def is_affine(self) -> bool:
        return True


O = TypeVar("O", bound=Operation)  # noqa: E741
NodeLayer = nn.Module | Operation
OPERATIONS: dict[type, type[Operation]] = {}  # by the type of a layer
KINDS: dict[str, type[Operation]] = {}  # by the name in a card
CALLS: dict[object, type[Operation]] = {}  # by the functions and methods that apply them


def register(operation: type[O]) -> type[O]:
    """Decorates an operation: it is that of its ``layers``, or of itself if it is a layer."""
    OPERATIONS.update(dict.fromkeys(operation.layers or (operation,), operation))
    CALLS.update(dict.fromkeys((*operation.calls, *operation.weighted_calls), operation))
    if operation.kind is not None:
        KINDS[operation.kind] = operation
    return operation


def hooked(layer: nn.Module) -> bool:
    """Whether a hook may change what a layer takes or answers."""
    return bool(layer._forward_hooks or layer._forward_pre_hooks)


def changed(layer: nn.Module) -> bool:
    """Whether a layer does something else than its type says: by hooks, or by a forward of its own."""
    return hooked(layer) or bool(layer._backward_hooks or layer._backward_pre_hooks) or "forward" in vars(layer)
