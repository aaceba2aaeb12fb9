"""Watching what a function does to tensors: whether its kernels could be recorded, and what memory they read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from adv_wrappers.core.errors import ThreatError


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


def tensors(tree: Any) -> Iterator[Tensor]:
    """Tensors of nested tuples, lists and dictionaries."""
    if isinstance(tree, Tensor):
        yield tree
    elif isinstance(tree, (tuple, list)):
        for branch in tree:
            yield from tensors(branch)
    elif isinstance(tree, dict):
        for branch in tree.values():
            yield from tensors(branch)
