"""The engine: one layer applied to a batch. Decide, box, perturb, project; rows not struck keep their bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from adv_wrappers.core import keys
from adv_wrappers.core.arrays import finite, to_victim
from adv_wrappers.core.clock import Clock
from adv_wrappers.core.context import Context
from adv_wrappers.core.errors import OrderError, SpaceError, ThreatError, ValueRangeError
from adv_wrappers.core.memory import Memory
from adv_wrappers.core.perturbation import Perturbation, When
from adv_wrappers.core.session import Session, select
from adv_wrappers.core.threat import ThreatModel

_GATES = 1 << 40  # streams of ProbabilisticTiming, apart from those of layers
_TIMING = 1 << 20  # draws of a timing, apart from those of its perturbation


class Perturber:
    """One layer's engine.

    Args:
        threat: what to do; every victim filled in.
        observation_space, action_space: of one row.
        session: shared by the stack.
        stream: number of layers beneath, which tells this layer's draws from theirs.
        device: where the environment's tensors live; None for an environment on the host.
    """

    def __init__(
        self, threat: ThreatModel, observation_space: spaces.Space[Any], action_space: spaces.Space[Any],
        session: Session, stream: int, device: torch.device | None = None,
    ) -> None:  # fmt: skip
        self.spaces = observation_space, action_space
        self.session, self.stream, self.batched = session, stream, session.rows is not None
        self.clock = Clock(session.rows, device, session.roots)
        self.gates: list[When] = []
        self.true: Any = None  # the value that came in last, and which rows were struck: read by evaluations
        self.struck: Any = False
        self.arm(threat)

    def arm(self, threat: ThreatModel) -> None:
        """Take a threat, after checking that it can work here."""
        threat = threat.against(None)
        self.field = threat.check(*self.spaces)
        self.threat = threat
        victims = threat.victims
        first = next(iter(victims), None)
        single = torch.float32 if self.field.exact == torch.float16 else self.field.exact
        self.dtype: torch.dtype = first.dtype if first else single
        self.device: torch.device | None = first.device if first else self.clock.device
        self.memory = Memory(threat.how, self.session.rows)
        self.watches = threat.on == "action" and bool(victims)

    def settle(self, device: torch.device) -> None:
        """Move to a device, on which the environment turned out to live: clock and schedule live there too."""
        self.clock = Clock(self.session.rows, device, self.session.roots)
        self.device = self.device or device

    @property
    def t(self) -> Any:
        """Step within the episode."""
        return self.clock.t

    @property
    def spent(self) -> Any:
        """Strikes of this episode."""
        return self.clock.spent

    def chance(self, path: int, stream: int | None = None) -> Any:
        """Uniform number in [0, 1) a row, from the layer's stream or from a gate's."""
        if stream is not None:
            return keys.uniform_of(keys.fold(self.clock.key(), _GATES + stream))
        return keys.uniform_of(keys.fold(keys.fold(self.clock.key(), self.stream), _TIMING + path))

    def decide(self, value: Any, eligible: Any = True, final: bool = False) -> Any:
        """Which rows are struck: a bool, or bool ``[B]``."""
        struck = eligible
        for gate in self.gates:
            struck = struck & gate.decide(self)
        when = self.threat.when
        if when is None or struck is False:
            return struck
        if isinstance(when, When) and when.blind:
            return struck & when.decide(self)
        if not isinstance(struck, Tensor) and not np.any(struck):
            return struck
        context, _, _ = self._context(value, None, final, None)
        seen = when.look(context.x, context, self) if isinstance(when, When) else when(context.x, context)
        if isinstance(seen, bool):
            return struck & seen
        seen = seen.cpu().numpy() if isinstance(seen, Tensor) and self.clock.device is None else seen
        if getattr(seen, "dtype", None) not in (np.bool_, torch.bool) or tuple(seen.shape) != (len(context.x),):
            raise ThreatError(f"a timing must return a bool, or one a row ({len(context.x)}), got {seen!r:.80}")
        return struck & (seen if self.batched else bool(seen[0]))

    def apply(self, value: Any, struck: Any, final: bool = False, mask: Any = None) -> Any:
        """``value`` with the struck rows perturbed; what came in is not written to."""
        self.true, self.struck = value, struck
        if struck is False:
            return value
        if self.clock.device is not None:
            return self._on_device(value, struck, final, mask)
        rows = None
        if struck is not True:
            rows = np.flatnonzero(struck)
            if len(rows) == 0:
                return value
            rows = None if len(rows) == len(struck) else rows
        y, part = self._strike(value, True, rows, final, mask)
        if rows is not None:
            out = part.copy()
            out[rows] = self.field.native(y, part)
        else:
            out = self.field.native(y, part)
        return self.field.give(value, out, self.batched)

    def _on_device(self, value: Any, struck: Any, final: bool, mask: Any) -> Any:
        y, part = self._strike(value, struck, None, final, mask)
        out = self.field.native(y, part)
        if struck is not True:
            out = torch.where(struck.view(-1, *[1] * (out.dim() - 1)), out, part)
        return self.field.give(value, out, self.batched)

    def _strike(self, value: Any, struck: Any, rows: Any, final: bool, mask: Any) -> tuple[Tensor, Any]:
        if self.device is not None and self.device.type == "cuda" and torch.cuda._is_in_bad_fork():
            raise OrderError(
                f"{self.threat.label} computes on {self.device} inside a forked worker, where CUDA does not work: wrap "
                f"the vector environment in this process instead (one batched attack), or use context='spawn'"
            )
        context, exact, part = self._context(value, rows, final, mask)
        how = self.threat.how
        native = isinstance(how, Perturbation) and how.native
        with torch.no_grad():
            y = how(self._native(part, rows) if native else context.x, context)
            if not isinstance(y, Tensor) or y.shape != context.x.shape or y.is_complex():
                got = f"{y.dtype} {tuple(y.shape)}" if isinstance(y, Tensor) else type(y).__name__
                raise ThreatError(f"{self.threat.label} must return a tensor {tuple(context.x.shape)}, got {got}")
            low, high = self._box(exact)
            y = y.to(device=exact.device, dtype=exact.dtype)
            if self.clock.device is None and not finite(y):
                raise ThreatError(f"{self.threat.label} returned values that are not finite")
            y = self.threat.budget.project(y, exact, low, high, self.field.grid)
        if context.memory is not None:
            self.memory.remember(context.memory, struck if rows is None else rows)
        return y, part

    def _native(self, part: Any, rows: Any) -> Tensor:
        part = part if rows is None else part[rows]
        tensor = part if isinstance(part, Tensor) else torch.from_numpy(np.array(part, order="C"))
        return tensor.to(self.device or tensor.device)

    def _box(self, exact: Tensor) -> tuple[Tensor, Tensor]:
        """The box around the true values: the space widened to contain them, met with the ball, rounded inwards."""
        low, high = self.field.bounds(exact.device)
        low, high = self.threat.budget.box(exact, torch.minimum(low, exact), torch.maximum(high, exact))
        return (low.ceil_(), high.floor_()) if self.field.grid else (low, high)

    def _context(self, value: Any, rows: Any, final: bool, mask: Any) -> tuple[Context, Tensor, Any]:
        part = self.field.take(value, self.batched)
        if tuple(part.shape) != (expected := (self.session.rows or 1, *self.field.shape)):
            raise SpaceError(f"expected a batch of shape {expected}, got {tuple(part.shape)}")
        exact = self.field.exactly(part if rows is None else part[rows])
        if self.clock.device is None and not self.field.grid and not finite(exact):
            raise ValueRangeError(f"{self.threat.label} was handed an {self.threat.on} that is not finite: {part}")
        dtype, device = self.dtype, self.device or exact.device
        action = self.threat.on == "action"
        observation = select(self.session.handed if action else value, rows if self.batched else None)
        fill = None
        if not action and self.field.keys is not None:
            full = to_victim(observation, dtype, device, self.batched)
            fill = lambda x: self.field.give(full, x, True)  # noqa: E731
        if self.threat.victims and observation is not None:
            observation = to_victim(observation, dtype, device, self.batched)

        def pick(a: Any) -> Any:
            return a if rows is None or not self.batched else a[rows]

        low, high = self._box(exact)
        space_low, space_high = self.field.bounds(torch.device(device))
        context = Context(
            exact.to(device, dtype, copy=True), low.to(device, dtype), high.to(device, dtype),
            (space_low.to(dtype), space_high.to(dtype)), self.threat.budget, self.field.grid,
            pick(self.clock.t), pick(self.clock.spent),
            lambda: keys.as_tensor(keys.fold(pick(self.clock.key()), self.stream), len(exact), device),
            observation, lambda victim: self.session.state(victim, rows, final), fill,
            self.memory.recall(rows), None if mask is None else select(mask, rows).to(device),
        )  # fmt: skip
        return context, exact, part

    def forget(self, mask: Any = None) -> None:
        """Initial memory in the rows of ``mask``; None for all."""
        self.memory.forget(mask)
