"""Recorders: what makes a graph of the kernels that a function launches."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Protocol

import torch

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
