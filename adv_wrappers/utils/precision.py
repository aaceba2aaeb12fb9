"""In which precision float32 products and convolutions are computed, which torch has two sets of switches for.

On a GPU torch convolves in TF32 by default, whose factors have 10 bits of mantissa; products do so where a program asks
for it, and on some processors in bfloat16. The switches are those of the whole process: the older ones
(``torch.set_float32_matmul_precision`` and ``cudnn.allow_tf32``), and from torch 2.9 on ``fp32_precision`` of every
backend and operation. Reading an older one raises where the newer ones were set to something that it cannot express.
So the older ones are set where they can be read, which keeps both in agreement, and the newer ones where that is not
enough. What was set before is set again at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from operator import attrgetter

import torch

_AUTOCAST = ("cpu", "cuda")
# What has a newer switch, fp32_precision. What stands above others comes first: these follow it unless they were set
# themselves, and would not any more once they were.
_SWITCHES = (
    "backends", "backends.cudnn",
    "backends.cuda.matmul", "backends.cudnn.conv", "backends.cudnn.rnn",
    "backends.mkldnn.matmul", "backends.mkldnn.conv", "backends.mkldnn.rnn",
)  # fmt: skip
_FULL = ("ieee", "none")  # of the newer switches; none is the default of all but cudnn's


@contextmanager
def full_precision() -> Iterator[None]:
    """Float32 is computed in float32 inside: no TF32, no bfloat16, no autocast. It is a decorator too."""
    with ExitStack() as before:
        for kind in _AUTOCAST:
            if torch.is_autocast_enabled(kind):
                before.enter_context(torch.autocast(kind, enabled=False))
        _set_older(before)
        _set_newer(before)
        yield


def _set_older(before: ExitStack) -> None:
    switches: tuple[tuple[Callable[[], object], Callable[..., object], object], ...] = (
        (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, "highest"),
        (lambda: torch.backends.cudnn.allow_tf32, lambda on: setattr(torch.backends.cudnn, "allow_tf32", on), False),
    )
    for read, write, value in switches:
        try:
            found = read()
        except RuntimeError:  # the newer switches are in use
            continue
        if found != value:
            before.callback(write, found)
            write(value)


def _set_newer(before: ExitStack) -> None:
    for name in _SWITCHES:
        try:
            switch = attrgetter(name)(torch)
            found = switch.fp32_precision
        except AttributeError:  # torch 2.8 has none
            continue
        if found not in _FULL:
            before.callback(setattr, switch, "fp32_precision", found)
            switch.fp32_precision = "ieee"
