"""What networks are known by: a hash over their weights."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn


def digest(modules: Iterable[nn.Module]) -> str:
    """sha256 over names, shapes, dtypes and bytes of all weights and buffers (hexadecimal)."""
    found = hashlib.sha256()
    for module in modules:
        try:
            held = module.state_dict()
        except Exception:  # of a method of the module's own
            held = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        for name, value in sorted(held.items()):
            _digest(found, name, value)
    return found.hexdigest()


def _digest(found: Any, name: str, value: object) -> None:
    """Add a named weight; layers of quantised networks have tuples of weights, numbers and dtypes too."""
    if isinstance(value, (tuple, list)):
        for i, part in enumerate(value):
            _digest(found, f"{name}.{i}", part)
    elif not isinstance(value, Tensor):
        found.update(f"{name}{value!r}".encode())
    else:
        if value.is_quantized:
            found.update(f"{name}{value.qscheme()}".encode())
            value = value.dequantize()
        # contiguous() would leave any stride to a side of length 1
        array = value.detach().cpu().clone(memory_format=torch.contiguous_format)
        found.update(f"{name}{tuple(array.shape)}{array.dtype}".encode())
        found.update(array.reshape(-1).view(torch.uint8).numpy().tobytes())
