"""Victims from ONNX files, run by ONNX Runtime: outputs without gradients, from whatever framework they were exported.

An ONNX file holds a graph of known operators, which compute and do nothing else: no files are opened for it (weights
kept outside it are refused) and no operators of its own are registered. A graph may still compute for long.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from adv_wrappers.core.types import Array
from adv_wrappers.errors import CardError, VictimError
from adv_wrappers.utils.untrusted_files import check_max_bytes, read_bytes
from adv_wrappers.victims.module import ModuleVictim, from_module
from adv_wrappers.victims.victim import Select

_DTYPES = {
    "tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(float16)": np.float16,
    "tensor(uint8)": np.uint8, "tensor(int8)": np.int8, "tensor(int32)": np.int32, "tensor(int64)": np.int64,
}  # fmt: skip


class GraphTensor(Protocol):
    """An input or output of a graph, as ONNX Runtime describes it."""

    name: str
    type: str
    shape: Sequence[int | str | None]


class InferenceSession(Protocol):
    """What is used of ONNX Runtime's class of this name."""

    def get_inputs(self) -> Sequence[GraphTensor]: ...
    def get_outputs(self) -> Sequence[GraphTensor]: ...
    def run(self, outputs: Sequence[str], inputs: Mapping[str, Array]) -> Sequence[Array]: ...


def from_onnx(
    path: str | Path,
    observation_space: spaces.Space[object],
    action_space: spaces.Space[object],
    kind: Literal["q", "logits", "mean", "gaussian", "action"],
    *,
    output: str | None = None,
    select: Select = "mode",
    clip: bool = False,
    scale: Tensor | None = None,
    dtype: torch.dtype | None = None,
    max_bytes: int | None = None,
) -> ModuleVictim:
    """A victim from an ONNX file; it has no gradients, and is attacked by its outputs or through :func:`imitate`.

    The file knows no spaces and does not say what it returns, so both are arguments here, and there is no reference for
    :func:`load_victim`. A graph that takes one observation, or a batch of a fixed size, is run as often as it takes.

    Args:
        path: the file. Weights that are kept outside it are not read.
        observation_space: of one environment, a Box.
        action_space: of one environment.
        kind: what the output is, as for :func:`adv_wrappers.from_module`; graphs that end with the action that the
            agent takes are ``action``.
        output: the name of the output; None takes the first, and for ``gaussian`` the first two, mean and log standard
            deviation, where there are several.
        select, clip, scale, dtype: as for :func:`adv_wrappers.from_module`.
        max_bytes: how long the file may be; None is 256 MiB.

    Raises:
        VictimError: where ONNX Runtime is not installed, for a graph that does not take one observation of the space,
            and for what :func:`adv_wrappers.from_module` refuses.
        CardError: for a file that is missing, too large, or that ONNX Runtime cannot read.

    >>> from_onnx("policy.onnx", env.observation_space, env.action_space, "logits")  # doctest: +SKIP
    """
    data = read_bytes(path, check_max_bytes(max_bytes))
    if not isinstance(observation_space, spaces.Box):
        raise VictimError(f"from_onnx takes Box observations, got {observation_space}")
    outputs = 2 if kind == "gaussian" and output is None else 1
    net = OnnxNet(data, str(path), observation_space.shape, output, outputs)
    return from_module(net, observation_space, action_space, kind, select=select, clip=clip, scale=scale, dtype=dtype)


class OnnxNet(nn.Module):
    """The graph of an ONNX file as a function on observations ``[B, *S]``, which can be copied and pickled.

    Args:
        data: the bytes of the file.
        path: the name of the file, for messages.
        shape: of one observation.
        output: the name of the output, or None for the first ones.
        outputs: how many of them are taken.
    """

    file_sha256: Tensor

    def __init__(self, data: bytes, path: str, shape: tuple[int, ...], output: str | None, outputs: int) -> None:
        super().__init__()
        self.arguments = data, path, shape, output, outputs
        # no weights are seen from outside: the hash of the file is the victim's fingerprint
        self.register_buffer("file_sha256", torch.tensor(list(hashlib.sha256(data).digest()), dtype=torch.uint8))
        self.session = _session(data, path)
        inputs, names = self.session.get_inputs(), [out.name for out in self.session.get_outputs()]
        wanted = len(shape)
        found = inputs[0] if len(inputs) == 1 else None
        sides = [] if found is None else list(found.shape)
        fits = found is not None and len(sides) in (wanted, wanted + 1) and found.type in _DTYPES
        stated = sides[len(sides) - wanted :]
        if found is None or not fits or any(isinstance(n, int) and n != m for n, m in zip(stated, shape, strict=True)):
            said = "; ".join(f"{one.name}: {one.type} {one.shape}" for one in inputs)
            raise VictimError(f"{path}: expected one input of shape {('B', *shape)} or {shape}, the graph takes {said}")
        if output is not None and output not in names:
            raise VictimError(f"{path}: no output {output!r:.80}, the graph has {', '.join(names)}")
        self.batched, self.rows = len(sides) > wanted, sides[0] if len(sides) > wanted else 1
        self.input, self.dtype, self.outputs = found.name, _DTYPES[found.type], [output] if output else names[:outputs]

    def extra_repr(self) -> str:
        return f"outputs={self.outputs}"

    def forward(self, obs: Tensor | Array) -> Array | tuple[Array, ...]:
        """The outputs ``[B, K]`` for observations ``[B, *S]``, as arrays."""
        whole = obs.detach().cpu().numpy() if isinstance(obs, Tensor) else np.asarray(obs)
        x = np.ascontiguousarray(whole.astype(self.dtype, copy=False))
        size = self.rows if isinstance(self.rows, int) else max(len(x), 1)
        parts = [self._run(x[first : first + size], size) for first in range(0, len(x), size)]
        found = tuple(np.concatenate(pieces) for pieces in zip(*parts, strict=True))
        return found[0] if len(found) == 1 else found

    def _run(self, x: Array, size: int) -> list[Array]:
        """The outputs for at most ``size`` observations: the last one fills up a batch of a fixed size."""
        padded = np.concatenate([x, np.repeat(x[-1:], size - len(x), 0)]) if len(x) < size else x
        found = self.session.run(self.outputs, {self.input: padded if self.batched else padded[0]})
        rows = [np.asarray(out) if self.batched else np.asarray(out)[None] for out in found]
        return [out[: len(x)] for out in rows]

    def __reduce__(self) -> tuple[object, ...]:
        return OnnxNet, self.arguments


def _session(data: bytes, path: str) -> InferenceSession:
    """An inference session on one thread of the host."""
    try:
        import onnxruntime
    except ImportError as error:
        raise VictimError(f"{path} needs ONNX Runtime: pip install 'adv_wrappers[onnx]'") from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4  # what goes wrong is an error of its own
    try:
        session: InferenceSession = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # classes of ONNX Runtime's own, without a common base
        raise CardError(f"cannot read {path} as ONNX: {error!s:.300}") from error
    return session
