"""An attack computed on tensors: on the host, on a device, or as a recorded graph of one.

A perturbation proposes, and is not trusted: its answer must be a finite batch, and is projected onto the budget.
"""

from __future__ import annotations

import functools
import itertools
import math
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from adv_wrappers.accel import cuda_graphs
from adv_wrappers.core import rng
from adv_wrappers.core.arrays import tensor_of
from adv_wrappers.core.context import EPISODE_STREAM, AttackedStep, Context
from adv_wrappers.core.layer_protocol import AttackedLayer
from adv_wrappers.core.spaces import finite
from adv_wrappers.core.types import Batch, Flags, Info, Leaves, VictimLike
from adv_wrappers.errors import ThreatError
from adv_wrappers.utils.trees import select

# ----------------------------------------------------------------------------------------------------------------------
# A context whose attack is recorded as a graph: what differs from step to step is an input, and the rest not there.
# ----------------------------------------------------------------------------------------------------------------------


def _not_recorded(name: str) -> property:
    def refuse(context: Context) -> None:
        raise AttributeError(f"a capturable perturbation must not look at context.{name}")

    return property(refuse)


class RecordedContext(Context):
    """A context to be recorded: what differs from step to step, and is no tensor, is not there.

    Args:
        engine: of the layer.
        inputs: what :meth:`Context.inputs` made, or static copies of it.
    """

    t, spent, memory, simulator = map(_not_recorded, ("t", "spent", "memory", "simulator"))

    def __init__(self, engine: AttackedLayer, inputs: Info) -> None:
        super().__init__(engine, AttackedStep(None, inputs["part"]))
        self._inputs = inputs
        vars(self).update(part=inputs["part"], free=inputs["free"], mask=inputs["mask"])

    def again(self) -> RecordedContext:
        return RecordedContext(self._engine, self._inputs)

    @cached_property
    def observation(self) -> Any:
        seen = self._inputs["observation"]
        return self._received() if seen is None and not self._engine.before_step else seen

    def state(self, victim: VictimLike) -> Any:
        return self._inputs["states"].get(id(victim))

    @cached_property
    def key(self) -> Tensor:
        return self._input_key(0)

    @cached_property
    def episode_key(self) -> Tensor:
        return self._input_key(1)

    def _input_key(self, which: int) -> Tensor:
        if "keys" in self._inputs:
            key: Tensor = self._inputs["keys"][which]()
            return key
        root, episode, t = self._inputs["clock"]
        last = EPISODE_STREAM if which else t()
        key = rng.fold(rng.fold(rng.fold(root(), episode()), last), self._engine.stream)
        return key


def perturbed(engine: AttackedLayer, step: AttackedStep, attacked: Flags) -> Batch:
    """The attacked rows perturbed, in the kind and dtype that they came in.

    Args:
        engine: of the layer.
        step: what came in; its rows are those of the host.
        attacked: bool ``[B]`` for an environment of tensors, True for all rows; on the host True.
    """
    part, rows = step.part, step.rows
    count = None if rows is None else len(rows)
    with torch.no_grad():
        if engine.unbounded:
            return _transform(engine, step, attacked)
        if engine.graphs is None:
            y, top, memory = _perturb(engine, Context(engine, step))
            if memory is not None:
                engine.remember(memory, attacked if rows is None else rows)
        else:
            rows = None if rows is None else cuda_graphs.padded(rows, engine.rows or 1)
            context = Context(engine, step._replace(rows=rows))
            # attacked rows are chosen into new memory, or copied to the host; else the result leaves the engine
            keep = engine.clock.device is not None and attacked is True
            plain = lambda: _perturb(engine, context.again())[:2]  # noqa: E731
            y, top = engine.graphs(functools.partial(_replay, engine), context.inputs(), plain, keep)
        if engine.transfer is not None and top is not None:
            y, largest = engine.transfer.down(tensor_of(y), top)
            if not math.isfinite(float(largest)):
                raise _not_finite(engine)
            y = y[:count] if count is not None else y.copy()
        elif isinstance(part, Tensor):
            y = engine.field.native(y, part)
    return y


def _replay(engine: AttackedLayer, inputs: dict[str, Any]) -> tuple[Batch, Tensor | None]:
    """What a graph records: an attack as a function of everything that differs from step to step."""
    return _perturb(engine, RecordedContext(engine, inputs))[:2]


def _perturb(engine: AttackedLayer, context: Context) -> tuple[Batch, Tensor | None, Leaves | None]:
    """The perturbed rows, their largest absolute value where it has to be looked at later, and the new memory."""
    exact, x = context.exact, context.x
    trusted = x is exact
    version = exact._version if trusted else 0
    y: Any = engine.how(tensor_of(context.part, engine.device) if engine.native else x, context)
    if trusted and exact._version != version:  # a network may well scale its input in place: it gets copies now
        engine.writes_nothing = False
        return _perturb(engine, context.again())
    if not isinstance(y, Tensor) or y.shape != x.shape or y.is_complex():
        raise _not_a_batch(engine, y, x.shape)
    low, high = context.box if trusted else context.exact_box()
    memory = None if engine.memory is None else context.memory
    part, mask = context.part, context.mask if engine.field.discrete else None
    del context, x
    if not y.is_floating_point():
        y = y.to(exact.dtype)
    top = None
    if engine.transfer is not None:
        top = torch.linalg.vector_norm(y, torch.inf) if y.numel() else y.sum()
    elif engine.clock.device is None and not math.isfinite(float(y.sum())) and not finite(y):
        raise _not_finite(engine)
    y = engine.budget.project(y.to(exact.device, exact.dtype), exact, low, high, engine.field.grid)
    del low, high
    if mask is not None:
        y = _permitted(engine, y, exact, mask)
    return engine.field.native(y, part), top, memory


def _permitted(engine: AttackedLayer, y: Tensor, exact: Tensor, mask: Tensor) -> Tensor:
    """Discrete actions ``[B, *S]``; where the mask ``[B, sum of choices]`` forbids one, the agent's own stays."""
    index = (y - engine.field.bounds(y.device)[0].to(y.dtype)).long().reshape(len(y), -1)
    index = index + _first_choices(engine.field.choices or (), y.device)
    return torch.where(mask.bool().gather(-1, index).view_as(y), y, exact)


@functools.cache
def _first_choices(counts: tuple[int, ...], device: torch.device) -> Tensor:
    """Where each of several choices begins in a mask of all; made once, since a graph cannot copy from the host."""
    return torch.tensor([0, *itertools.accumulate(counts)][:-1], device=device)


def _transform(engine: AttackedLayer, step: AttackedStep, attacked: Flags) -> Batch:
    """An attack on whole images, in their own dtype from end to end."""
    part, rows = step.part, step.rows
    x = tensor_of(part if rows is None else part[rows], engine.device)
    context = Context(engine, step)
    y = engine.how(x, context)
    if not isinstance(y, Tensor) or y.shape != x.shape or y.is_complex():
        raise _not_a_batch(engine, y, x.shape)
    if y.dtype != x.dtype:
        raise ThreatError(f"{engine.threat.label} is native, so it must return {x.dtype}, got {y.dtype}")
    if engine.free is not None:
        y = torch.where(select(engine.free, rows), y, x)
    if engine.memory is not None and context.memory is not None:
        engine.remember(context.memory, attacked if rows is None else rows)
    out: Batch = engine.field.native(y, part)
    return out


def _not_a_batch(engine: AttackedLayer, y: object, shape: torch.Size) -> ThreatError:
    got = f"{y.dtype} {tuple(y.shape)}" if isinstance(y, Tensor) else type(y).__name__
    return ThreatError(f"{engine.threat.label} must return a tensor {tuple(shape)}, got {got}")


def _not_finite(engine: AttackedLayer) -> ThreatError:
    said = f"{engine.threat.label} returned values that are not finite"
    if not engine.victims:
        return ThreatError(f"{said}: a perturbation must return finite numbers")
    return ThreatError(
        f"{said}: what it computes of the victim overflows here; use a victim in float64, or an attack that needs no "
        f"gradient"
    )
