"""Graphs of ONNX files, run by ONNX Runtime: outputs without gradients, from whatever framework they were exported.

An ONNX file holds a graph of known operators, which compute and do nothing else: no operators of its own are
registered, and no files are opened for it but those beside it that hold its weights. A graph may still compute for
long.

What the inputs of a graph are is found by their names and sizes: observations; hidden states, each with an output that
has the next one; and the steps since the episode began.
"""

from __future__ import annotations

import hashlib
import math
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from adv_wrappers.core.spaces import size_difference
from adv_wrappers.core.types import Array
from adv_wrappers.errors import CardError, VictimError
from adv_wrappers.utils.reading import MAX_BYTES, check_max_bytes, read_bytes

_DTYPES: dict[str, Any] = {
    "tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(float16)": np.float16, "tensor(bool)": np.bool_,
    "tensor(uint8)": np.uint8, "tensor(int8)": np.int8, "tensor(int32)": np.int32, "tensor(int64)": np.int64,
}  # fmt: skip
WIDE = (np.float64, np.int32, np.int64)  # of which float32 does not hold every value
_STEP = ("time_step", "timestep", "time_steps", "step")  # what an input is called that counts steps
FIRST = ("episode_start", "episode_starts", "is_first", "is_init", "first")  # one that is 1 at the first step alone
_FOLDER = "session.model_external_initializers_file_folder_path"
WHOLE = ""  # the key of an observation that is no dictionary
Sizes = tuple[int | str | None, ...]  # of an input or output; a text or None for any


@dataclass(frozen=True)
class GraphInput:
    """An input of a graph, and what it is given.

    Attributes:
        name: in the graph.
        sizes: as the graph states them.
        type: as the graph states it.
        key: of the observation.
        shape: of one row.
        axis: where the rows are; None for an input of one row.
        next: of a hidden state the output that has the next one; empty for the number of steps.
    """

    name: str
    sizes: Sizes
    type: str
    key: str = WHOLE
    shape: tuple[int, ...] = ()
    axis: int | None = None
    next: str = ""

    @classmethod
    def of(cls, one: Any) -> GraphInput:
        """As ONNX Runtime describes it."""
        return cls(one.name, tuple(one.shape), one.type)

    @property
    def one_row(self) -> tuple[int, ...]:
        """The sizes in the graph for one row."""
        sizes = list(self.shape)
        if self.axis is not None:
            sizes.insert(self.axis, 1)
        return tuple(sizes)

    @property
    def numbers(self) -> int:
        """How many it has a row, the first of several sizes being that of the rows."""
        return math.prod(n for n in self.sizes[len(self.sizes) > 1 :] if isinstance(n, int))

    @property
    def dtype(self) -> Any:
        """NumPy's type of it; None for one that is not known here."""
        return _DTYPES.get(self.type)

    def of_observation(self, key: str, shape: tuple[int, ...]) -> GraphInput | None:
        """The input as that of an observation of a shape; None where it is of other sizes."""
        for axis, sizes in ((0, self.sizes[1:]), (None, self.sizes)):
            rows = axis is None or bool(self.sizes)
            for wanted in (shape, (1,)) if shape == () else (shape,):  # a number may be one of one
                fits = len(sizes) == len(wanted) and all(
                    n in (m, None) or isinstance(n, str) for n, m in zip(sizes, wanted, strict=True)
                )
                if rows and fits and self.dtype is not None:
                    return replace(self, key=key, shape=wanted, axis=axis)
        return None

    def __str__(self) -> str:
        return f"{self.name}: {self.type} {list(self.sizes)}"


@dataclass(frozen=True)
class OnnxStart:
    """Zeros for every hidden state of some rows, of a dtype or that of the graph, and no steps."""

    states: tuple[GraphInput, ...]
    dtype: torch.dtype | None = None

    def __call__(self, rows: int) -> dict[str, Tensor]:
        found = dict[str, Tensor]()
        for each in self.states:
            zeros = torch.from_numpy(np.zeros((rows, *each.shape), each.dtype if each.next else np.int64))
            found[each.name] = zeros.to(self.dtype) if each.next else zeros
        return found


class OnnxNet(nn.Module):
    """The graph of an ONNX file as a function on observations ``[B, *S]``, which can be copied and pickled.

    Args:
        data: the bytes of the file.
        beside: the bytes of the files beside it, by the names that it has for them.
        path: the name of the file, for messages.
        shapes: of the leaves of one observation, by their keys.
        inputs: the key of an input, where it was said.
        output: the name of the output, or None for the first ones.
        outputs: how many of them are taken.

    Attributes:
        observed: the inputs that are parts of the observation.
        states: those that are hidden states, or count steps.
    """

    file_sha256: Tensor

    def __init__(
        self,
        data: bytes,
        beside: Mapping[str, bytes],
        path: str,
        shapes: Mapping[str, tuple[int, ...]],
        inputs: Mapping[str, str],
        output: str | None,
        outputs: int,
    ) -> None:
        super().__init__()
        self.arguments = data, dict(beside), path, dict(shapes), dict(inputs), output, outputs
        # no weights are seen from outside: the hash of the files is the victim's fingerprint
        digest = hashlib.sha256(data)
        for name, content in sorted(beside.items()):
            digest.update(name.encode() + hashlib.sha256(content).digest())
        self.register_buffer("file_sha256", torch.tensor(list(digest.digest()), dtype=torch.uint8))
        self.session = open_session(data, beside, path)
        # what the graph takes and returns, in parts of the observation and hidden states
        given = [GraphInput.of(one) for one in self.session.get_inputs()]
        returned = [GraphInput.of(one) for one in self.session.get_outputs()]
        names = [one.name for one in returned]
        if output is not None and output not in names:
            raise VictimError(f"{path}: no output {output!r:.80}, the graph has {', '.join(names)}")
        self.observed = _observed(given, returned, shapes, inputs, path)
        rest = [one for one in given if one.name not in {each.name for each in self.observed}]
        self.rows = 1 if any(each.axis is None for each in self.observed) else self.observed[0].sizes[0]
        self.states = _states(rest, given, returned, output, outputs, self.observed[0], path)
        if any(each.axis is None for each in self.states):
            self.rows = 1
        # an output that is the next state is no answer of the policy
        later = {each.next for each in self.states}
        free = [name for name in names if name not in later]
        self.outputs = [output] if output else free[:outputs]
        self.others = [name for name in free if name not in self.outputs]

    def extra_repr(self) -> str:
        return f"outputs={self.outputs}, inputs={[each.name for each in (*self.observed, *self.states)]}"

    def forward(self, obs: Any, state: Mapping[str, Any] | None = None) -> Any:
        """The outputs ``[B, K]`` for observations ``[B, *S]``, as arrays; with a state also the next one."""
        feeds = self.feeds(obs, state)
        count = len(feeds[0])
        size = self.rows if isinstance(self.rows, int) else max(count, 1)
        # batches of the size that the graph takes
        pieces = [self._run([x[first : first + size] for x in feeds], size) for first in range(0, count, size)]
        found = [np.concatenate(each) for each in zip(*pieces, strict=True)]
        out = found[0] if len(self.outputs) == 1 else tuple(found[: len(self.outputs)])
        if state is None:
            return out
        # the next state from the outputs, and one step more where it counts steps
        later = iter(found[len(self.outputs) :])
        new = {each.name: next(later) if each.next else np.asarray(state[each.name]) + 1 for each in self.states}
        return out, new

    def feeds(self, obs: Any, state: Mapping[str, Any] | None = None) -> list[Array]:
        """Rows ``[B, *S]`` for every input of the graph, first the observed ones, then the states."""
        parts = obs if isinstance(obs, Mapping) else {WHOLE: obs}
        found = [_array(parts[each.key], each) for each in self.observed]
        for each in self.states:
            value = np.asarray((state or {})[each.name])
            found.append(_array(value == 0 if each.name.lower() in FIRST else value, each))
        return found

    def named(self, feeds: Sequence[Array]) -> dict[str, Array]:
        """The same by the names of the inputs, with the rows where the graph has them."""
        ports = [*self.observed, *self.states]
        return {
            port.name: x[0] if port.axis is None else np.ascontiguousarray(np.moveaxis(x, 0, port.axis))
            for port, x in zip(ports, feeds, strict=True)
        }

    def _run(self, feeds: Sequence[Array], size: int) -> list[Array]:
        """Outputs and next states of at most ``size`` rows: the last one fills up a batch of a fixed size."""
        rows = len(feeds[0])
        padded = [np.concatenate([x, np.repeat(x[-1:], size - rows, 0)]) if rows < size else x for x in feeds]
        # outputs first, then the next states
        named = self.named(padded)
        later = [each for each in self.states if each.next]
        answers = [
            np.asarray(each) for each in self.session.run([*self.outputs, *(each.next for each in later)], named)
        ]
        # rows to the front again, without those that filled the batch
        split = len(self.outputs)
        one = self.observed[0].axis is None
        found = [each[None] if one else each for each in answers[:split]]
        for port, each in zip(later, answers[split:], strict=True):
            found.append(each[None] if port.axis is None else np.moveaxis(each, port.axis, 0))
        return [each[:rows] for each in found]

    def __reduce__(self) -> tuple[object, ...]:
        return OnnxNet, self.arguments


def _array(value: Any, port: GraphInput) -> Array:
    """Rows of an observation, or of a state, as an input takes them."""
    whole = value.detach().cpu().numpy() if isinstance(value, Tensor) else np.asarray(value)
    return np.ascontiguousarray(whole.reshape(len(whole), *port.shape).astype(port.dtype, copy=False))


def _observed(
    given: Sequence[GraphInput],
    returned: Sequence[GraphInput],
    shapes: Mapping[str, tuple[int, ...]],
    inputs: Mapping[str, str],
    path: str,
) -> tuple[GraphInput, ...]:
    """The inputs that are parts of the observation: those of its names, and of sizes that one part alone has."""
    found = dict[str, GraphInput]()
    for one in given:  # by name
        key = inputs.get(one.name, one.name)
        part = None if key not in shapes else one.of_observation(key, shapes[key])
        if part is not None:
            found[one.name] = part
        elif one.name in inputs:
            raise VictimError(f"{path}: the input {one} does not take {inputs[one.name]!r:.80} of {_said(shapes)}")
    later = {_stem(one.name) for one in returned}
    left = [one for one in given if one.name not in found]
    # an input that has an output of its name is a hidden state, if another one fits
    for one in sorted(left, key=lambda each: _stem(each.name) in later or each.name.lower() in _STEP + FIRST):
        taken = {part.key for part in found.values()}
        fitting = [
            part for key, shape in shapes.items() if key not in taken and (part := one.of_observation(key, shape))
        ]
        if len(fitting) == 1 and (WHOLE not in shapes or not found):
            found[one.name] = fitting[0]
    # nothing fits: the message says what was expected, and the likely mistake
    if not found:
        names, takes = ", ".join(one.name for one in given), "; ".join(map(str, given)) or "nothing"
        has = sum(map(math.prod, shapes.values()))
        hint = size_difference(given[0].numbers, has) if len(given) == 1 else ""
        if len(given) > 1 and sum(one.numbers for one in given) == has:
            hint = f". Together they are as many numbers: make the observation a Dict of {names}"
        raise VictimError(f"{path}: expected {_said(shapes)}, the graph takes {takes}{hint}")
    return tuple(found[one.name] for one in given if one.name in found)


def _said(shapes: Mapping[str, tuple[int, ...]]) -> str:
    if WHOLE in shapes:
        return f"one input of shape {('B', *shapes[WHOLE])} or {shapes[WHOLE]}"
    return f"inputs of {', '.join(f'{key} {list(shape)}' for key, shape in shapes.items())}, with or without rows"


def _stem(name: str) -> str:
    """A name without what tells a state from the next one: ``h_in`` and ``h_out``, ``h0`` and ``hn``."""
    words = [word for word in re.split(r"[^a-z0-9]+|(?<=[a-z])(?=\d)", name.lower()) if word]
    return " ".join(
        word for word in words if word not in ("in", "out", "input", "output", "new", "next", "prev", "old")
    )


def _states(
    rest: Sequence[GraphInput],
    given: Sequence[GraphInput],
    returned: Sequence[GraphInput],
    output: str | None,
    outputs: int,
    seen: GraphInput,
    path: str,
) -> tuple[GraphInput, ...]:
    """The inputs that are hidden states, each with the output that has the next one, and those that count steps."""
    named = [one for one in rest if one.name.lower() not in _STEP + FIRST]
    # where names do not tell, the first outputs are the policy's
    own = {output} if output else {one.name for one in returned[:outputs]}
    # each state's next value: first an output of the same name, then any of the same type and sizes
    found = dict[str, GraphInput]()
    for tell in (True, False):
        for one in [one for one in named if one.name not in found]:
            taken = {each.next for each in found.values()} | (set() if tell else own)
            alike = [
                each
                for each in returned
                if each.name not in taken
                and each.dtype == one.dtype
                and len(each.sizes) == len(one.sizes)
                and all(
                    n == m or not isinstance(n, int) or not isinstance(m, int)
                    for n, m in zip(each.sizes, one.sizes, strict=True)
                )
                and (not tell or _stem(each.name) == _stem(one.name))
            ]
            if alike:
                found[one.name] = replace(one, next=alike[0].name)
    # a state without a next value can only be one that counts steps
    states = []
    for one in rest:
        if one.name not in found and one in named:
            raise VictimError(
                f"{path}: the input {one.name} is no part of the observation, and no output of its sizes has the next "
                f"one, as that of a hidden state would: the graph takes {'; '.join(map(str, given))}, and returns "
                f"{'; '.join(map(str, returned))}. An action mask is a key of a Dict of observations; "
                "inputs={'NAME': 'KEY'} says which"
            )
        states.append(_placed(found.get(one.name, one), seen, path))
    return tuple(states)


def _placed(one: GraphInput, seen: GraphInput, path: str) -> GraphInput:
    """A hidden state with the axis of its rows, and the shape of one row's."""
    rows = None if seen.axis is None else seen.sizes[0]
    axis = None
    # rows lie along an axis of as many, in a graph for a batch of one size, else along one of open size
    if isinstance(rows, int) and rows > 1:
        axis = next((i for i in (1, 0) if i < len(one.sizes) and one.sizes[i] == rows), None)
    elif rows is None or not isinstance(rows, int):
        free = [i for i, n in enumerate(one.sizes) if not isinstance(n, int)]
        same = [i for i in free if one.sizes[i] == rows and rows is not None]
        axis = next(iter(same or free), None) if seen.axis is not None else None
    # of a graph for one row, a size that is open is that of its rows
    shape = tuple(n if isinstance(n, int) else 1 if axis is None else 0 for i, n in enumerate(one.sizes) if i != axis)
    if 0 in shape or one.dtype is None:
        raise VictimError(f"{path}: the sizes of the hidden state {one} are not known beside its rows")
    return replace(one, shape=shape, axis=axis)


def files_beside(data: bytes, path: Path, max_bytes: int | None) -> dict[str, bytes]:
    """The files that a graph keeps weights in, by the names that it has for them: such as are beside it."""
    found, left = dict[str, bytes](), (check_max_bytes(max_bytes) or MAX_BYTES) - len(data)
    for match in _LOCATION.finditer(data):
        length, start = _varint(data, match.end())
        name = data[start : start + length].decode(errors="replace")
        parts = PurePosixPath(name.replace("\\", "/"))
        if name in found or parts.is_absolute() or ".." in parts.parts or ":" in name:
            continue  # ONNX Runtime then says that the weights are missing
        if (path.parent / parts).exists():
            found[name] = read_bytes(path.parent / parts, max(left, 1))
            left -= len(found[name])
    return found


_LOCATION = re.compile(rb"\x0a\x08location\x12")  # an entry of a tensor whose values are in another file


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number as protocol buffers write lengths, and where it ends; of two bytes at most."""
    first = data[at] if at < len(data) else 0
    return (first, at + 1) if first < 128 or at + 1 >= len(data) else (first - 128 + 128 * data[at + 1], at + 2)


def _unknown_operations(data: bytes) -> list[str]:
    """The operations of a graph that are neither ONNX's own nor functions of the file, with their domains."""
    import onnx

    try:
        model = onnx.load_from_string(data)
    except Exception:  # classes of Protobuf's own; the file is no graph at all
        return []
    known, found = {(one.domain, one.name) for one in model.functions}, dict[str, None]()
    nodes = [*model.graph.node, *(node for function in model.functions for node in function.node)]
    for node in nodes:
        known_here = (node.domain, node.op_type) in known or node.domain.startswith("com.microsoft")  # ONNX Runtime's
        if not known_here and not onnx.defs.has(node.op_type, node.domain):
            found[f"{node.op_type} of the domain {node.domain}" if node.domain else node.op_type] = None
    return [*found]


def open_session(data: bytes, beside: Mapping[str, bytes], path: str) -> Any:
    """An inference session on one thread of the host, which sees no files but copies of those beside the graph."""
    try:
        import onnxruntime
    except ImportError as error:
        raise VictimError(f"{path} needs ONNX Runtime: pip install 'adv_wrappers[onnx]'") from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4  # what goes wrong is an error of its own
    # weights in files of their own, copied to where nothing else is
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        for name, content in beside.items():
            place = Path(folder, *PurePosixPath(name.replace("\\", "/")).parts)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
        options.add_session_config_entry(_FOLDER, folder)
        try:
            return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # classes of ONNX Runtime's own, without a common base
            if unknown := _unknown_operations(data):
                raise CardError(
                    f"{path} has operations that ONNX Runtime does not have: {', '.join(unknown)}. Export the policy "
                    "with ONNX's own ones alone"
                ) from error
            outside = (
                "" if not _LOCATION.search(data) else ". It keeps weights in other files, which must lie beside it"
            )
            raise CardError(f"cannot read {path} as ONNX{outside}: {error!s:.300}") from error
