"""A graph on a processor: kernels are written down with the memory they touch, and run again without their function."""

from __future__ import annotations

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from adv_wrappers.accel import cuda_graphs, transfer
from adv_wrappers.core import rng
from adv_wrappers.utils.trees import tensors


class _Writing(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.lines = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        self.lines.append((function, args, kwargs or {}, out))
        return out


class Tape:
    """What a CUDA graph does: the same kernels, on the same memory, with the same numbers as arguments."""

    def __init__(self) -> None:
        self.records = self.replays = 0

    def record(self, function):
        self.records += 1
        with _Writing() as tape:
            out = function()

        def replay():
            self.replays += 1
            with torch.no_grad():
                for kernel, args, kwargs, old in tape.lines:
                    for new, kept in zip(tensors(kernel(*args, **kwargs)), tensors(old), strict=True):
                        if new.data_ptr() != kept.data_ptr():  # neither a view nor in place
                            kept.copy_(new)
            return out

        return replay


class Late(transfer.Transfer):
    """A transfer whose results arrive at the fence and no earlier, to a device that is the processor itself."""

    def __init__(self, device) -> None:
        self.buffers, self.fences, self.coming = 0, 0, []
        super().__init__(device)

    def pinned(self, size):
        self.buffers += 1
        return torch.full((size,), 205, dtype=torch.uint8)

    def fence(self) -> None:
        self.fences += 1
        for buffer, value in self.coming:
            buffer.copy_(value)
        self.coming.clear()

    def send(self, buffer, value) -> None:
        self.coming.append((buffer, value))


def elsewhere(monkeypatch) -> None:
    """Draw by the kernels of other devices, which a tape can write down."""
    monkeypatch.setattr(rng, "_HOST", ())


def install(monkeypatch) -> tuple[list[Tape], list[Late]]:
    """Every layer that may be recorded is, as if its device were another; the tapes and transfers that it got."""
    elsewhere(monkeypatch)
    tapes, lates = [], []
    monkeypatch.setattr(cuda_graphs, "recorder_for", lambda device: tapes.append(Tape()) or tapes[-1])
    monkeypatch.setattr(transfer, "between", lambda device: lates.append(Late(device)) or lates[-1])
    return tapes, lates
