"""CUDA graphs: a whole attack captured once for every shape and replayed, instead of launched kernel by kernel.

On CUDA a small network is done before the host has launched its next kernel, so an attack of K steps costs its
launches. Captured as a CUDA graph it costs one. A captured function reads static buffers: its inputs are copied into
them before every replay, and its result is overwritten by the next. The kernels and all that an attack depends on are
the same, so results equal those of the uncaptured function at the same shape, to the bit.

Before a function is captured it is checked: what waits for the device, copies from or to another, or writes to what it
was given cannot be captured, and is cheaper to meet here than in a broken capture. A failure costs a warning, never a
result. The environment variable ``ADV_WRAPPERS_GRAPHS=0`` switches graphs off.

:class:`GraphCache` holds the graphs of one function, a :class:`CapturedGraph` for each shape; a :class:`GraphRecorder`
captures; :class:`CaptureCheck` and :class:`HostCopyCheck` find what cannot be captured.
"""

from __future__ import annotations

import os
import warnings
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from adv_wrappers.errors import ThreatError
from adv_wrappers.utils.trees import clone, leaves, map_leaves, tensors

GRAPHS_VARIABLE = "ADV_WRAPPERS_GRAPHS"
_AUTOCAST = ("cuda", "cpu")  # the kinds of devices that autocast knows
# a tensor, a function that makes one when it is called, None, or dictionaries and tuples of these
Tree: TypeAlias = "Tensor | Callable[[], Tensor] | Mapping[str, Tree] | tuple[Tree, ...] | None"
Result = TypeVar("Result")  # a tensor, or a tuple of tensors and None


class GraphCache:
    """The graphs of one function of a tree of tensors, one for every shape; the least recently used is given up.

    Args:
        recorder: captures the function.
        label: the name of the function in warnings.
        victims: the victims whose weights it reads; where these move, it is captured again.
        most: the largest number of graphs.

    Attributes:
        fault: the reason why nothing is captured any more, or None.
        graphs: the graphs by shape and settings, the least recently used first.
    """

    def __init__(self, recorder: GraphRecorder, label: str, victims: Sequence[Any] = (), most: int = 16) -> None:
        self.recorder = recorder
        self.label = label
        self.victims = list(victims)
        self.most = most
        self.fault: str | None = None
        self.graphs: OrderedDict[Hashable, CapturedGraph] = OrderedDict()
        self._where: Hashable = None

    def __call__(
        self, function: Callable[[Any], Result], tree: Tree, plain: Callable[[], Result], keep: bool = True
    ) -> Result:
        """``function(tree)``, a tensor or a tuple of tensors and None.

        Args:
            function: the function, the same one at every call. It runs the same kernels at every call of one shape;
                what it reads beside the tree may change, but not move.
            tree: the inputs.
            plain: computes the same without a graph, for where there is none.
            keep: False allows the result to be memory that the next call overwrites.
        """
        if (
            self.fault is not None
            or torch.is_inference_mode_enabled()
            or any(map(torch.is_autocast_enabled, _AUTOCAST))
        ):
            return plain()
        # a graph reads weights where they lay when it was captured
        where = tuple(map(pointers, self.victims))
        if where != self._where:
            self.graphs.clear()
            self._where = where
        try:
            key = signature(tree), settings()
            graph = self.graphs.get(key)
            if graph is None or not graph.valid():
                self.graphs[key] = graph = self._capture(function, tree)
        except Exception as error:  # whatever a driver raises: the function works without a graph
            out = plain()  # or raises, if the error is the attack's own
            self._warn(error)
            return out
        # the graph that was not used for longest goes
        if len(self.graphs) > self.most:
            self.graphs.popitem(last=False)
        self.graphs.move_to_end(key)
        result: Result = graph(tree)
        return clone(result) if keep else result

    def _capture(self, function: Callable[[Any], object], tree: Tree) -> CapturedGraph:
        graph = CapturedGraph(tree)
        run = graph.over(function, tree)
        run()  # makes the tables that are made once
        with HostCopyCheck(), CaptureCheck() as check:
            run()
        graph.capture(self.recorder, run, check.read)
        return graph

    def _warn(self, error: Exception) -> None:
        self.fault = f"{type(error).__name__}: {error}"
        warnings.warn(
            f"{self.label} is not recorded as a graph, its kernels are launched one by one: {self.fault}",
            RuntimeWarning,
            stacklevel=3,
        )

    def __getstate__(self) -> dict[str, object]:
        return {**vars(self), "graphs": OrderedDict()}  # a graph is memory of this process


class CapturedGraph:
    """The graph of one shape: static copies of the inputs, and the replay that reads them."""

    def __init__(self, tree: Tree) -> None:
        self._static: list[Tensor | None] = [None if callable(leaf) else leaf.clone() for leaf in leaves(tree)]
        self._held: list[tuple[Tensor, int]] = []

    def over(self, function: Callable[[Any], object], tree: Tree) -> Callable[[], object]:
        """``function`` of the static copies.

        An input that is made when it is called for is copied only if the function ever calls for it.
        """
        sources, numbers = tuple(leaves(tree)), iter(range(len(self._static)))

        def made(number: int) -> Tensor:
            found = self._static[number]
            if found is None:
                self._static[number] = found = sources[number]().clone()
            return found

        def place(leaf: Tensor | Callable[[], Tensor]) -> object:
            number = next(numbers)
            return self._static[number] if isinstance(leaf, Tensor) else lambda: made(number)

        # the function is called with static copies, and with functions of those that are made when called for
        static = map_leaves(place, tree)
        return lambda: function(static)

    def capture(self, recorder: GraphRecorder, run: Callable[[], object], read: Iterable[Tensor]) -> None:
        """Capture ``run``, which reads the tensors ``read``; those that are no inputs are held, so that they stay."""
        own = {leaf.data_ptr() for leaf in self._static if leaf is not None}
        self._held = [(tensor, tensor.data_ptr()) for tensor in read if tensor.data_ptr() not in own]
        self._replay = recorder.record(run)

    def valid(self) -> bool:
        """Whether every tensor that is read is where it was."""
        return all(tensor.data_ptr() == pointer for tensor, pointer in self._held)

    def __call__(self, tree: Tree) -> Any:
        for static, leaf in zip(self._static, leaves(tree), strict=True):
            if static is not None:
                static.copy_(leaf() if callable(leaf) else leaf, non_blocking=True)
        return self._replay()


def signature(tree: Tree) -> Hashable:
    """What trees that share one graph have in common: structure, shapes, strides, dtypes and devices."""
    if isinstance(tree, Tensor):
        return tuple(tree.shape), tree.stride(), tree.dtype, tree.device
    if isinstance(tree, dict):
        return tuple((key, signature(branch)) for key, branch in tree.items())
    if isinstance(tree, tuple):
        return tuple(signature(branch) for branch in tree)
    if tree is not None and not callable(tree):
        # its value would be that of the capture for ever
        raise TypeError(f"expected tensors, got {type(tree).__name__}")
    return tree is None


def padded(rows: NDArray[np.intp], most: int) -> NDArray[np.intp]:
    """Rows with the first one repeated up to a power of two, or to ``most``: a handful of shapes for all counts."""
    size = min(1 << (len(rows) - 1).bit_length(), most)
    return np.concatenate([rows, np.full(size - len(rows), rows[0])])


def settings() -> Hashable:
    """The settings that choose the kernels of a product or a convolution, beside its shape."""
    cudnn = torch.backends.cudnn
    try:
        products: tuple[object, object] = torch.get_float32_matmul_precision(), cudnn.allow_tf32
    except RuntimeError:  # torch's newer switches are in use, and do not mix with these
        products = torch.backends.cuda.matmul.fp32_precision, cudnn.conv.fp32_precision  # type: ignore[attr-defined]
    return products, cudnn.deterministic, torch.are_deterministic_algorithms_enabled()


def pointers(victim: Any) -> Hashable:
    """The addresses of a victim's weights, if it follows networks that are trained elsewhere."""
    if not getattr(victim, "live", True):
        return ()
    nets = victim.modules()
    return tuple(tensor.data_ptr() for net in nets for tensor in (*net.parameters(), *net.buffers()))


class GraphRecorder(Protocol):
    """Turns a function without arguments into one that does the same to the same memory, only faster."""

    def record(self, function: Callable[[], object]) -> Callable[[], object]:
        """A replay of ``function``, whose result is the same memory every time."""


class CudaGraphRecorder:
    """CUDA graphs that share one pool of memory: they are replayed one after another, never side by side."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._stream: torch.cuda.Stream | None = None
        self._pool: Any = None  # torch's handle of a pool

    def record(self, function: Callable[[], object]) -> Callable[[], object]:
        with torch.cuda.device(self.device):
            if self._stream is None:
                self._stream, self._pool = torch.cuda.Stream(), torch.cuda.graph_pool_handle()
            # a stream of its own, on which everything runs a few times before it is captured
            self._stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self._stream):
                for _ in range(3):  # libraries choose their kernels and take their workspaces
                    function()
            torch.cuda.current_stream().wait_stream(self._stream)
            graph = torch.cuda.CUDAGraph()
            # other threads of a training may allocate at the same time
            with torch.cuda.graph(graph, self._pool, self._stream, capture_error_mode="thread_local"):
                out = function()

        def replay() -> object:
            graph.replay()
            return out

        return replay

    def __reduce__(self) -> tuple[type[CudaGraphRecorder], tuple[torch.device]]:
        return CudaGraphRecorder, (self.device,)  # streams and pools are of this process


def recorder_for(device: torch.device) -> GraphRecorder | None:
    """The recorder of a device: CUDA graphs on CUDA, None elsewhere and where graphs are switched off."""
    return CudaGraphRecorder(device) if device.type == "cuda" and os.environ.get(GRAPHS_VARIABLE) != "0" else None


class CaptureCheck(TorchDispatchMode):
    """Raises :class:`ThreatError` at kernels that cannot be captured, and collects what the others read from outside.

    These are kernels that wait for the device (``.item()``), whose shapes depend on data (``nonzero``, a mask as an
    index), that move data between devices, or that write to memory which was not made within.

    Attributes:
        read: tensors that were read and not made within: inputs, weights, tables.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.read: list[Tensor] = []
        self._made: set[int] = set()  # addresses of storages; one that is freed comes again for another made within
        self._known: set[int] = set()

    def __torch_dispatch__(self, function: Any, types: object, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name, inputs = function.name().removeprefix("aten::"), list(tensors((args, kwargs)))
        if _waits(function, name, args):
            raise ThreatError(f"{name} waits for the device, or makes a shape from data")
        for tensor in _written(function, args, kwargs):
            if _storage(tensor) not in self._made:
                raise ThreatError(f"{name} writes to memory that was given to it")
        # memory that it reads and has not made itself: a replay reads it where it lies now
        for tensor in inputs:
            if (key := _storage(tensor)) not in self._made and key not in self._known:
                self._known.add(key)
                self.read.append(tensor)
        given = {_storage(tensor) for tensor in inputs}
        out = function(*args, **kwargs)
        outputs = list(tensors(out))
        self._made.update(key for key in map(_storage, outputs) if key not in given)
        # a number on the host may be an argument of a kernel elsewhere, but not be copied there
        places = {str(t.device) for t in inputs if t.dim() or "copy" in name} | {str(t.device) for t in outputs}
        if len(places) > 1:
            raise ThreatError(f"{name} moves data between {' and '.join(sorted(places))}")
        return out


class HostCopyCheck(TorchFunctionMode):
    """Raises :class:`ThreatError` where a tensor on a device is made of numbers on the host.

    That is a copy which :class:`CaptureCheck` does not see.
    """

    def __torch_function__(self, function: Any, types: object, args: Any = (), kwargs: Any = None) -> Any:
        out = function(*args, **(kwargs or {}))
        if function in _MAKERS and out.device.type != "cpu" and not any(isinstance(a, Tensor) for a in args[-1:]):
            raise ThreatError(f"{function.__name__} moves numbers from the host to {out.device}")
        return out


_MAKERS = {torch.tensor, torch.as_tensor, torch.asarray, Tensor.new_tensor}


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata  # type: ignore[no-any-return]


def _waits(function: Any, name: str, args: Any) -> bool:
    if name.startswith("index"):  # only a mask makes a shape from data
        indices = args[1] if len(args) > 1 and isinstance(args[1], (list, tuple)) else ()
        return any(i is not None and i.dtype in (torch.bool, torch.uint8) for i in indices)
    tags = getattr(function, "tags", ())
    return torch.Tag.data_dependent_output in tags or torch.Tag.dynamic_output_shape in tags


def _written(function: Any, args: Any, kwargs: Any) -> Iterator[Tensor]:
    for number, argument in enumerate(function._schema.arguments if hasattr(function, "_schema") else ()):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = kwargs.get(argument.name) if argument.kwarg_only else args[number] if number < len(args) else None
            yield from tensors(value)
