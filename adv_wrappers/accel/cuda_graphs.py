"""Watching what a function does to tensors: whether its kernels could be recorded, and what memory they read.

Recorders: what makes a graph of the kernels that a function launches.

Graphs: a whole attack recorded once a shape and replayed, instead of launched kernel by kernel.

On CUDA a small network is done before the host has launched its next kernel, so an attack of K steps costs its
launches. Recorded as a CUDA graph it costs one. What is recorded reads static buffers: every replay is preceded by
copying its inputs into them, and its result is overwritten by the next. The kernels and all that a strike depends on
are the same, so results are those of the plain way at the same shape, to the bit.

A function is first watched: what waits for the device, copies from or to another, or writes to what it was given cannot
be recorded, and is cheaper to meet here than in a broken capture. What fails costs a warning, never a result. The
environment variable ``ADV_WRAPPERS_GRAPHS=0`` switches graphs off.
"""

from __future__ import annotations

import os
import warnings
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from adv_wrappers.errors import ThreatError
from adv_wrappers.utils.trees import leaves, map_leaves, tensors


class Watch(TorchDispatchMode):
    """Raises :class:`ThreatError` at kernels that cannot be replayed, and keeps what the others read from outside.

    These are kernels that wait for the device (``.item()``), whose shapes depend on data (``nonzero``, a mask as an
    index), that move data between devices, or that write to memory which was not made within.

    Attributes:
        seen: tensors that were read and not made within: inputs, weights, tables.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: list[Tensor] = []
        self._made: set[int] = set()  # addresses of storages; one that is freed comes again for another made within
        self._known: set[int] = set()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name, inputs = function.name().removeprefix("aten::"), list(tensors((args, kwargs)))
        if _waits(function, name, args):
            raise ThreatError(f"{name} waits for the device, or makes a shape from data")
        for tensor in _written(function, args, kwargs):
            if _storage(tensor) not in self._made:
                raise ThreatError(f"{name} writes to memory that was given to it")
        for tensor in inputs:
            if (key := _storage(tensor)) not in self._made and key not in self._known:
                self._known.add(key)
                self.seen.append(tensor)
        given = {_storage(tensor) for tensor in inputs}
        out = function(*args, **kwargs)
        outputs = list(tensors(out))
        self._made.update(key for key in map(_storage, outputs) if key not in given)
        # a number on the host may be an argument of a kernel elsewhere, but not be copied there
        places = {str(t.device) for t in inputs if t.dim() or "copy" in name} | {str(t.device) for t in outputs}
        if len(places) > 1:
            raise ThreatError(f"{name} moves data between {' and '.join(sorted(places))}")
        return out


class Unmoved(TorchFunctionMode):
    """Raises :class:`ThreatError` where a tensor on a device is made of numbers on the host.

    That is a copy which :class:`Watch` does not see.
    """

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
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


SWITCH = "ADV_WRAPPERS_GRAPHS"


class Recorder(Protocol):
    """What turns a function without arguments into one that does the same to the same memory, only faster."""

    def record(self, function: Callable[[], Any]) -> Callable[[], Any]:
        """A replay of ``function``, whose result is the same memory every time."""


class CudaRecorder:
    """CUDA graphs that share one pool of memory: they are replayed one after another, never side by side."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._stream: Any = None
        self._pool: Any = None

    def record(self, function: Callable[[], Any]) -> Callable[[], Any]:
        with torch.cuda.device(self.device):
            if self._stream is None:
                self._stream, self._pool = torch.cuda.Stream(), torch.cuda.graph_pool_handle()
            self._stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self._stream):
                for _ in range(3):  # libraries choose their kernels and take their workspaces
                    function()
            torch.cuda.current_stream().wait_stream(self._stream)
            graph = torch.cuda.CUDAGraph()
            # other threads of a training may well allocate meanwhile
            with torch.cuda.graph(graph, self._pool, self._stream, capture_error_mode="thread_local"):
                out = function()

        def replay() -> Any:
            graph.replay()
            return out

        return replay

    def __reduce__(self) -> Any:
        return CudaRecorder, (self.device,)  # streams and pools are of this process


def recorder_for(device: torch.device) -> Recorder | None:
    """What records on a device: CUDA graphs on CUDA, nothing elsewhere or where graphs are switched off."""
    return CudaRecorder(device) if device.type == "cuda" and os.environ.get(SWITCH) != "0" else None


_KINDS = ("cuda", "cpu")  # of devices that autocast knows

Tree = Any  # a tensor, a function that makes one when it is asked for, None, or dictionaries and tuples of them
Function = Callable[[Tree], Any]


class Graphs:
    """Graphs of one function of a tree of tensors: one for every shape, the least recently used given up.

    Args:
        record: what records.
        label: names the function in warnings.
        victims: whose weights it reads; where these move, it is recorded again.
        most: shapes that are kept.

    Attributes:
        fault: why nothing is recorded any more, or None.
    """

    def __init__(self, record: Recorder, label: str, victims: list[Any] | None = None, most: int = 16) -> None:
        self.recorder, self.label, self.victims, self.most = record, label, victims or [], most
        self.fault: str | None = None
        self.kept: OrderedDict[Hashable, Replay] = OrderedDict()
        self._where: Hashable = None

    def __call__(self, function: Function, tree: Tree, plain: Callable[[], Any], keep: bool = True) -> Any:
        """``function(tree)``, a tensor or a tuple of tensors and None.

        Args:
            function: always the same one. It runs the same kernels at every call of one shape; what it reads beside
                the tree may change, but not move.
            plain: gives the same without a graph, where there is none.
            keep: False allows the result to be memory that the next call overwrites.
        """
        if self.fault is not None or torch.is_inference_mode_enabled() or any(map(torch.is_autocast_enabled, _KINDS)):
            return plain()
        where = tuple(map(pointers, self.victims))
        if where != self._where:
            self.kept.clear()
            self._where = where
        try:
            key = signature(tree), settings()
            replay = self.kept.get(key)
            if replay is None or not replay.valid():
                self.kept[key] = replay = self._record(function, tree)
        except Exception as error:  # whatever a driver raises: the plain way is there
            out = plain()  # or raises, if the error is the attack's own
            self._warn(error)
            return out
        if len(self.kept) > self.most:
            self.kept.popitem(last=False)
        self.kept.move_to_end(key)
        out = replay(tree)
        return map_leaves(torch.clone, out) if keep else out

    def _record(self, function: Function, tree: Tree) -> Replay:
        replay = Replay(tree)
        run = replay.over(function, tree)
        run()  # tables that are made once are made
        with Unmoved(), Watch() as watch:
            run()
        replay.record(self.recorder, run, watch.seen)
        return replay

    def _warn(self, error: Exception) -> None:
        self.fault = f"{type(error).__name__}: {error}"
        warnings.warn(
            f"{self.label} is not recorded as a graph, its kernels are launched one by one: {self.fault}",
            RuntimeWarning,
            stacklevel=3,
        )

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "kept": OrderedDict()}  # a graph is memory of this process


class Replay:
    """One recorded shape: static copies of the inputs, and the replay that reads them."""

    def __init__(self, tree: Tree) -> None:
        self._static: list[Tensor | None] = [None if callable(leaf) else leaf.clone() for leaf in leaves(tree)]
        self._held: list[tuple[Tensor, int]] = []

    def over(self, function: Function, tree: Tree) -> Callable[[], Any]:
        """``function`` of the static copies.

        An input that is made when it is asked for is copied only if the function ever asks for it.
        """
        sources, numbers = tuple(leaves(tree)), iter(range(len(self._static)))

        def asked(number: int) -> Tensor:
            found = self._static[number]
            if found is None:
                self._static[number] = found = sources[number]().clone()
            return found

        def place(leaf: Any) -> Any:
            number = next(numbers)
            return self._static[number] if isinstance(leaf, Tensor) else lambda: asked(number)

        static = map_leaves(place, tree)
        return lambda: function(static)

    def record(self, record: Recorder, run: Callable[[], Any], seen: list[Tensor]) -> None:
        """``seen`` are the tensors that are read; those that are no inputs are kept alive and in view."""
        own = {leaf.data_ptr() for leaf in self._static if leaf is not None}
        self._held = [(tensor, tensor.data_ptr()) for tensor in seen if tensor.data_ptr() not in own]
        self._replay = record.record(run)

    def valid(self) -> bool:
        """Whether everything that is read is where it was."""
        return all(tensor.data_ptr() == pointer for tensor, pointer in self._held)

    def __call__(self, tree: Tree) -> Any:
        for static, leaf in zip(self._static, leaves(tree), strict=True):
            if static is not None:
                static.copy_(leaf() if callable(leaf) else leaf, non_blocking=True)
        return self._replay()


def signature(tree: Tree) -> Hashable:
    """What two trees have in common that one recording serves: structure, shapes, layouts, dtypes and devices."""
    if isinstance(tree, Tensor):
        return tuple(tree.shape), tree.stride(), tree.dtype, tree.device
    if isinstance(tree, dict):
        return tuple((key, signature(branch)) for key, branch in tree.items())
    if isinstance(tree, tuple):
        return tuple(signature(branch) for branch in tree)
    if tree is not None and not callable(tree):
        raise TypeError(f"expected tensors, got {type(tree).__name__}")  # it would stay what it was for ever
    return tree is None


def settings() -> Hashable:
    """What chooses the kernels of a product or a convolution, beside its shape."""
    cudnn = torch.backends.cudnn
    try:
        products: Any = torch.get_float32_matmul_precision(), cudnn.allow_tf32
    except RuntimeError:  # torch's newer switches are in use, and do not mix with these
        products = torch.backends.cuda.matmul.fp32_precision, cudnn.conv.fp32_precision  # type: ignore[attr-defined]
    return products, cudnn.deterministic, torch.are_deterministic_algorithms_enabled()


def pointers(victim: Any) -> Hashable:
    """Where the weights of a victim are, if it follows networks that are trained elsewhere."""
    if not getattr(victim, "live", True):
        return ()
    nets = victim.modules()
    return tuple(tensor.data_ptr() for net in nets for tensor in (*net.parameters(), *net.buffers()))
