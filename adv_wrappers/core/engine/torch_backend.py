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
from adv_wrappers.core.engine.context import EPISODE_STREAM, AppliedThreat, AttackedStep, Context, LayerState
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
        applied, state: of the layer.
        inputs: what :meth:`Context.inputs` made, or static copies of it.
    """

    t, spent, memory, simulator = map(_not_recorded, ("t", "spent", "memory", "simulator"))

    def __init__(self, applied: AppliedThreat, state: LayerState, inputs: Info) -> None:
        super().__init__(AttackedStep(applied, state, None, inputs["part"]))
        self._inputs = inputs
        vars(self).update(part=inputs["part"], free=inputs["free"], mask=inputs["mask"])

    def again(self) -> RecordedContext:
        return RecordedContext(self._applied, self._state, self._inputs)

    @cached_property
    def observation(self) -> Any:
        seen = self._inputs["observation"]
        return self.x if seen is None and self._applied.on_observations else seen

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
        key = rng.fold(rng.fold(rng.fold(root(), episode()), last), self._applied.stream)
        return key


def perturbed(step: AttackedStep, attacked: Flags) -> Batch:
    """The attacked rows perturbed, in the kind and dtype that they came in.

    Args:
        step: what came in; its rows are those of the host.
        attacked: bool ``[B]`` for an environment of tensors, True for all rows; on the host True.
    """
    applied = step.applied
    state = step.state
    part = step.part
    rows = step.rows
    count = None if rows is None else len(rows)
    with torch.no_grad():
        if applied.unbounded:
            return _transform(step, attacked)
        # computed now, or replayed from a graph; rows are then filled up to one of few sizes
        if state.graphs is None:
            y, top, memory = _perturb(Context(step), applied, state)
            if memory is not None:
                state.remember(memory, attacked if rows is None else rows)
        else:
            rows = None if rows is None else cuda_graphs.padded(rows, applied.rows or 1)
            context = Context(step._replace(rows=rows))
            # attacked rows are chosen into new memory, or copied to the host; else the result leaves the engine
            keep = state.clock.device is not None and attacked is True
            plain = lambda: _perturb(context.again(), applied, state)[:2]  # noqa: E731
            y, top = state.graphs(functools.partial(_replay, applied, state), context.inputs(), plain, keep)
        # back to the host in one copy, with the largest value, which says whether all are finite
        if applied.transfer is not None and top is not None:
            y, largest = applied.transfer.down(tensor_of(y), top)
            if not math.isfinite(float(largest)):
                raise _not_finite(applied)
            y = y[:count] if count is not None else y.copy()
        elif isinstance(part, Tensor):
            y = applied.field.native(y, part)
    return y


def _replay(applied: AppliedThreat, state: LayerState, inputs: dict[str, Any]) -> tuple[Batch, Tensor | None]:
    """What a graph records: an attack as a function of everything that differs from step to step."""
    return _perturb(RecordedContext(applied, state, inputs), applied, state)[:2]


def _perturb(context: Context, applied: AppliedThreat, state: LayerState) -> tuple[Batch, Tensor | None, Leaves | None]:
    """The perturbed rows, their largest absolute value where it has to be looked at later, and the new memory."""
    exact, x = context.exact, context.x
    y: Any = applied.how(tensor_of(context.part, applied.device) if applied.native else x, context)
    _check_batch(applied, y, x.shape)
    # a box that was searched bounds the result, where the attack promises not to write to it
    own = getattr(applied.how, "capturable", False) and (x.dtype, x.device) == (exact.dtype, exact.device)
    low, high = context.box if own else context.exact_box()
    memory = None if state.memory is None else context.memory
    # nothing of the context is needed below, and its memory may be used for the result
    part, mask = context.part, context.mask if applied.field.discrete else None
    del context, x
    if not y.is_floating_point():
        y = y.to(exact.dtype)
    # whether the answer is finite: looked at here, or on a device when it arrives on the host
    top = None
    if applied.transfer is not None:
        top = torch.linalg.vector_norm(y, torch.inf) if y.numel() else y.sum()
    elif state.clock.device is None and not math.isfinite(float(y.sum())) and not finite(y):
        raise _not_finite(applied)
    # the answer is not trusted: it is projected in the dtype of the true values
    y = applied.budget.project(y.to(exact.device, exact.dtype), exact, low, high, applied.field.grid)
    del low, high
    if mask is not None:
        y = _permitted(applied, y, exact, mask)
    return applied.field.native(y, part), top, memory


def _permitted(applied: AppliedThreat, y: Tensor, exact: Tensor, mask: Tensor) -> Tensor:
    """Discrete actions ``[B, *S]``; where the mask ``[B, sum of choices]`` forbids one, the agent's own stays."""
    index = (y - applied.field.bounds(y.device)[0].to(y.dtype)).long().reshape(len(y), -1)
    index = index + _first_choices(applied.field.choices or (), y.device)
    return torch.where(mask.bool().gather(-1, index).view_as(y), y, exact)


@functools.cache
def _first_choices(counts: tuple[int, ...], device: torch.device) -> Tensor:
    """Where each of several choices begins in a mask of all; made once, since a graph cannot copy from the host."""
    return torch.tensor([0, *itertools.accumulate(counts)][:-1], device=device)


def _transform(step: AttackedStep, attacked: Flags) -> Batch:
    """An attack on whole images, in their own dtype from end to end."""
    applied = step.applied
    state = step.state
    part = step.part
    rows = step.rows
    x = tensor_of(part if rows is None else part[rows], applied.device)
    context = Context(step)
    y = applied.how(x, context)
    _check_batch(applied, y, x.shape)
    if y.dtype != x.dtype:
        raise ThreatError(f"{applied.threat.label} is native, so it must return {x.dtype}, got {y.dtype}")
    # older frames of a stack stay as they were shown
    if state.free is not None:
        y = torch.where(select(state.free, rows), y, x)
    if state.memory is not None and context.memory is not None:
        state.remember(context.memory, attacked if rows is None else rows)
    out: Batch = applied.field.native(y, part)
    return out


def _check_batch(applied: AppliedThreat, y: object, shape: torch.Size) -> None:
    """Raise :class:`ThreatError` unless this is a batch of a shape, of real numbers."""
    if not isinstance(y, Tensor) or y.shape != shape or y.is_complex():
        got = f"{y.dtype} {tuple(y.shape)}" if isinstance(y, Tensor) else type(y).__name__
        raise ThreatError(f"{applied.threat.label} must return a tensor {tuple(shape)}, got {got}")


def _not_finite(applied: AppliedThreat) -> ThreatError:
    said = f"{applied.threat.label} returned values that are not finite"
    if not applied.victims:
        return ThreatError(f"{said}: a perturbation must return finite numbers")
    return ThreatError(
        f"{said}: what it computes of the victim overflows here; use a victim in float64, or an attack that needs no "
        f"gradient"
    )
