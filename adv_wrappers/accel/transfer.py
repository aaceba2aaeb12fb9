"""Host to device and back: through pinned memory, without waiting, but for one event a step.

Copies from pageable memory wait for the device. Here a batch goes through a pinned buffer in its own dtype, bytes as
bytes, and becomes floats on the device; so does the result on its way back. The host waits once, for the event behind
the result, and by then everything that was sent has long arrived.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor


class Transfer:
    """Pinned buffers between the host and one device, kept for the next step.

    A buffer holds a power of two of bytes, so that batches of every size share a handful.

    Args:
        device: where data goes and comes from.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._event: torch.cuda.Event | None = None
        self._free: dict[int, list[Tensor]] = {}
        self._taken: list[Tensor] = []

    def _buffer(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        room = 1 << max(size - 1, 63).bit_length()
        waiting = self._free.setdefault(room, [])
        buffer = waiting.pop() if waiting else self.pinned(room)
        self._taken.append(buffer)
        return buffer[:size].view(dtype).view(shape)

    def up(self, array: ArrayLike, rows: NDArray[np.intp] | None = None) -> Tensor:
        """An array, or some of its rows, as a new tensor of the same dtype on the device; the host does not wait."""
        array = np.asarray(array)
        kind = torch.from_numpy(np.empty(0, array.dtype)).dtype
        buffer = self._buffer(array.shape if rows is None else (len(rows), *array.shape[1:]), kind)
        if rows is None:
            np.copyto(buffer.numpy(), array)
        else:  # the numbers are those of rows, and any other mode would go through more memory
            np.take(array, rows, 0, buffer.numpy(), mode="clip")
        return torch.empty(buffer.shape, dtype=kind, device=self.device).copy_(buffer, non_blocking=True)

    def down(self, *tensors: Tensor) -> list[NDArray[np.generic]]:
        """Tensors as arrays, in memory that the next :meth:`up` may take; waits for them once."""
        out = []
        for tensor in tensors:
            buffer = self._buffer(tuple(tensor.shape), tensor.dtype)
            self.send(buffer, tensor)
            out.append(buffer.numpy())
        # one wait for all of them, after which the memory of what was sent is free again
        self.fence()
        for buffer in self._taken:
            self._free[len(buffer)].append(buffer)
        self._taken.clear()
        return out

    def pinned(self, size: int) -> Tensor:
        """Host memory that the device copies from and to by itself: uint8 ``[size]``."""
        return torch.empty(size, dtype=torch.uint8, pin_memory=True)

    def fence(self) -> None:
        """Wait until the device has done all it was given so far."""
        if self._event is None:
            self._event = torch.cuda.Event()
        self._event.record(torch.cuda.current_stream(self.device))
        self._event.synchronize()

    def send(self, buffer: Tensor, tensor: Tensor) -> None:
        """Begin to copy a tensor into a buffer, which holds it at the next fence."""
        buffer.copy_(tensor, non_blocking=True)

    def __getstate__(self) -> dict[str, object]:
        return {**vars(self), "_event": None, "_free": {}, "_taken": []}


def between(device: torch.device) -> Transfer | None:
    """What carries data between the host and a device; None where they are one, or nobody has measured it."""
    return Transfer(device) if device.type == "cuda" else None
