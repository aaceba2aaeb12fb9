"""Graphs: a whole attack recorded once a shape and replayed, instead of launched kernel by kernel.

On CUDA a small network is done before the host has launched its next kernel, so an attack of K steps costs its
launches. Recorded as a CUDA graph it costs one. What is recorded reads static buffers: every replay is preceded by
copying its inputs into them, and its result is overwritten by the next. The kernels and all that a strike depends on
are the same, so results are those of the plain way at the same shape, to the bit.

A function is first watched: what waits for the device, copies from or to another, or writes to what it was given cannot
be recorded, and is cheaper to meet here than in a broken capture. What fails costs a warning, never a result. The
environment variable ``ADV_WRAPPERS_GRAPHS=0`` switches graphs off.
"""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from typing import Any

import torch
from torch import Tensor

from adv_wrappers.core.recorder import Recorder
from adv_wrappers.core.watch import Unmoved, Watch

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
        return map_tree(torch.clone, out) if keep else out

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

        static = map_tree(place, tree)
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


def leaves(tree: Tree) -> Iterator[Any]:
    """Tensors and functions of a tree, in order."""
    if isinstance(tree, Tensor) or callable(tree):
        yield tree
    elif isinstance(tree, (dict, tuple)):
        for branch in tree.values() if isinstance(tree, dict) else tree:
            yield from leaves(branch)


def map_tree(function: Callable[[Any], Any], tree: Tree) -> Tree:
    """The tree with ``function`` of every leaf."""
    if isinstance(tree, dict):
        return {key: map_tree(function, branch) for key, branch in tree.items()}
    if isinstance(tree, tuple):
        return tuple(map_tree(function, branch) for branch in tree)
    return function(tree) if isinstance(tree, Tensor) or callable(tree) else tree


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
