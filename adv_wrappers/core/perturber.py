"""The engine: one layer applied to a batch. Decide, box, perturb, project; rows not struck keep their bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from adv_wrappers.core.arrays import finite
from adv_wrappers.core.bench import Bench, tensor_of
from adv_wrappers.core.context import Deferred
from adv_wrappers.core.errors import OrderError, ThreatError
from adv_wrappers.core.perturbation import When
from adv_wrappers.core.session import select


class Perturber(Bench):
    """One layer's engine."""

    def observe(self, value: Any, eligible: Any = True, final: bool = False) -> tuple[Any, Any]:
        """An observation as this layer hands it on, and which rows were struck.

        Under Newest the frames of the past come out as they were shown, whether a row is struck or not.
        """
        if self.history is None:
            struck = self.decide(value, eligible, final)
            if struck is False:
                self.true, self.struck = value, False
                return value, False
            return self.apply(value, struck, final), struck
        part = self.field.take(value, self.batched)
        stack, self._free = self.history.recall(true := tensor_of(part))
        recalled = self.field.give(value, self.field.native(stack, part), self.batched)
        struck = self.decide(recalled, eligible, final)
        shown = self.apply(recalled, struck, final)
        if not final:
            self.history.remember(true, tensor_of(self.field.take(shown, self.batched)), eligible)
        self.true = value
        return shown, struck

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
        how = self.threat.how
        if self.whole:
            return self._transform(how, value, struck, rows, final, mask)
        context, exact, part = self._context(value, rows, final, mask)
        with torch.no_grad():
            y = how(self._native(part, rows) if self.native else context.x, context)
            self._check(y, tuple(context.x.shape))
            low, high = self._box(exact, rows)
            y = y.to(device=exact.device, dtype=exact.dtype)
            if self.clock.device is None and not finite(y):
                raise ThreatError(f"{self.threat.label} returned values that are not finite")
            y = self.budget.project(y, exact, low, high, self.field.grid)
        if context.memory is not None:
            self.memory.remember(context.memory, struck if rows is None else rows)
        return y, part

    def _transform(self, how: Any, value: Any, struck: Any, rows: Any, final: bool, mask: Any) -> tuple[Tensor, Any]:
        """A strike on whole images, in their own dtype from end to end."""
        part = self.field.take(value, self.batched)
        x = self._native(self._expected(part), rows)
        key, episode_key = self._keys(rows, len(x), x.device)
        context = Deferred(lambda: self._context(value, rows, final, mask)[0], key, episode_key)
        with torch.no_grad():
            y = how(x, context)
            self._check(y, tuple(x.shape))
            if y.dtype != x.dtype:
                raise ThreatError(f"{self.threat.label} is native, so it must return {x.dtype}, got {y.dtype}")
            if self._free is not None:
                y = torch.where(select(self._free, rows), y, x)
        if self.memory.leaves is not None and context.memory is not None:
            self.memory.remember(context.memory, struck if rows is None else rows)
        return y, part

    def _check(self, y: Any, shape: tuple[int, ...]) -> None:
        if not isinstance(y, Tensor) or y.shape != shape or y.is_complex():
            got = f"{y.dtype} {tuple(y.shape)}" if isinstance(y, Tensor) else type(y).__name__
            raise ThreatError(f"{self.threat.label} must return a tensor {shape}, got {got}")

    def forget(self, mask: Any = None) -> None:
        """Initial memory in the rows of ``mask``; None for all."""
        self.memory.forget(mask)
        if self.history is not None:
            self.history.forget(mask)
