"""The engine: one layer applied to a batch. Decide, box, perturb, project; rows not struck keep their bytes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from adv_wrappers.core.arrays import finite
from adv_wrappers.core.bench import EPISODE, Bench
from adv_wrappers.core.context import Deferred
from adv_wrappers.core.errors import OrderError, ThreatError
from adv_wrappers.core.keys import fold
from adv_wrappers.core.moment import Moment, expected, padded, tensor_of
from adv_wrappers.core.perturbation import When
from adv_wrappers.core.session import select

_INPUTS = ("part", "key", "episode_key", "seen", "free", "mask")  # of a recorded strike, with the hidden states


class Perturber(Bench):
    """One layer's engine."""

    def observe(self, value: Any, eligible: Any = True, final: bool = False) -> tuple[Any, Any]:
        """An observation as this layer hands it on, and which rows were struck.

        Under Newest the frames of the past come out as they were shown, whether a row is struck or not.
        """
        if self.shares and not final:
            self.session.shared = value
        if self.history is None:
            alone = self.blind and eligible is True and not self.gates
            struck = self.when.decide(self) if alone else self.decide(value, eligible, final)
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
        when = self.when
        if when is None or struck is False:
            return struck
        if self.blind:
            return struck & when.decide(self)
        if not isinstance(struck, Tensor) and not np.any(struck):
            return struck
        context, _ = self._context(self._moment(value, None, final, None)[0])
        seen = when.look(context.x, context, self) if isinstance(when, When) else when(context.x, context)
        if isinstance(seen, bool):
            return struck & seen
        if isinstance(seen, Tensor) and self.clock.device is None:
            seen = seen.numpy() if self.transfer is None else self.transfer.down(seen)[0].copy()
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
            out = part.astype(y.dtype)
            out[rows] = y
        else:
            out = y
        return self.field.give(value, out, self.batched)

    def _on_device(self, value: Any, struck: Any, final: bool, mask: Any) -> Any:
        out, part = self._strike(value, struck, None, final, mask)
        if struck is not True:
            out = torch.where(struck.view(-1, *[1] * (out.dim() - 1)), out, part)
        return self.field.give(value, out, self.batched)

    def _strike(self, value: Any, struck: Any, rows: Any, final: bool, mask: Any) -> tuple[Any, Any]:
        """The struck rows perturbed, and all rows as they came in; both in the kind and dtype of ``value``."""
        if self.device is not None and self.device.type == "cuda" and torch.cuda._is_in_bad_fork():
            raise OrderError(
                f"{self.threat.label} computes on {self.device} inside a forked worker, where CUDA does not work: wrap "
                f"the vector environment in this process instead (one batched attack), or use context='spawn'"
            )
        with torch.no_grad():
            if self.whole:
                return self._transform(value, struck, rows, final, mask)
            count = None if rows is None else len(rows)
            if self.graphs is not None and rows is not None:
                rows = padded(rows, self.session.rows or 1)
            moment, part = self._moment(value, rows, final, mask)
            if self.graphs is None:
                y, top, memory = self._perturb(moment)
            else:
                # rows that were struck are chosen into new memory, or copied to the host; else the result is handed out
                keep = self.clock.device is not None and struck is True
                y, top = self.graphs(self._replayed, self._tree(moment), lambda: self._perturb(moment)[:2], keep)
            if self.transfer is not None and top is not None:
                y, largest = self.transfer.down(y, top)
                self._sane(math.isfinite(float(largest)))
                y = y[:count] if count is not None else y.copy()
            elif isinstance(part, Tensor):
                y = self.field.native(y, part)
        if self.graphs is None and memory is not None:
            self.memory.remember(memory, struck if rows is None else rows)
        return y, part

    def _perturb(self, moment: Moment) -> tuple[Any, Tensor | None, Any]:
        """The perturbed rows, their largest absolute value where it has to be looked at later, and the new memory."""
        context, exact = self._context(moment)
        trusted = context.x is exact
        version = exact._version if trusted else 0
        y = self.threat.how(tensor_of(moment.part, self.device) if self.native else context.x, context)
        if trusted and exact._version != version:  # a network may well scale its input in place: it gets copies now
            self.gentle = False
            return self._perturb(moment)
        self._check(y, tuple(context.x.shape))
        low, high = context.box if trusted else self._box(exact, moment)
        memory = None if moment.memory is None else context.memory
        del context
        if not y.is_floating_point():
            y = y.to(exact.dtype)
        top = None
        if self.transfer is not None:
            top = torch.linalg.vector_norm(y, torch.inf) if y.numel() else y.sum()
        elif self.clock.device is None:
            self._sane(finite(y))
        if y.dtype.itemsize > exact.dtype.itemsize:  # beyond its range lies no infinity
            most = torch.finfo(exact.dtype).max
            y = y.clamp(-most, most)
        y = y.to(device=exact.device, dtype=exact.dtype)
        y = self.budget.project(y, exact, low, high, self.field.grid)
        del low, high
        return self.field.native(y, moment.part), top, memory

    def _tree(self, moment: Moment) -> dict[str, Any]:
        """Everything that a strike depends on and that differs from step to step."""
        states = {id(v): moment.states(v) for v in self.threat.victims if v.recurrent}
        tree = {name: getattr(moment, name) for name in _INPUTS} | {"states": states}
        if not self.threat.victims and self.field.keys is None:
            tree["seen"] = None  # that is the part
        clock = self.clock
        if clock.device == self.device:  # keys are made in the graph: they are thirty kernels
            tree["key"] = tree["episode_key"] = None
            tree["clock"] = lambda: clock.root, lambda: clock.episode, lambda: clock.t
        return tree

    def _replayed(self, tree: dict[str, Any]) -> tuple[Any, Tensor | None]:
        tree = dict(tree)
        states, clock = tree.pop("states"), tree.pop("clock", None)
        if clock is not None:
            root, episode, t = clock
            tree["key"] = lambda: fold(fold(fold(root(), episode()), t()), self.stream)
            tree["episode_key"] = lambda: fold(fold(fold(root(), episode()), EPISODE), self.stream)
        return self._perturb(Moment(**tree, states=lambda victim: states.get(id(victim))))[:2]

    def _sane(self, finite: bool) -> None:
        if not finite:
            raise ThreatError(
                f"{self.threat.label} returned values that are not finite: what it computes of the victim overflows "
                f"here; use a victim in float64, or an attack that needs no gradient"
            )

    def _transform(self, value: Any, struck: Any, rows: Any, final: bool, mask: Any) -> tuple[Any, Any]:
        """A strike on whole images, in their own dtype from end to end."""
        part = self.field.take(value, self.batched)
        whole = expected(part, (self.session.rows or 1, *self.field.shape))
        x = tensor_of(whole if rows is None else whole[rows], self.device)
        key, episode_key = self._keys(rows, len(x), x.device)
        context = Deferred(lambda: self._context(self._moment(value, rows, final, mask)[0])[0], key, episode_key)
        y = self.threat.how(x, context)
        self._check(y, tuple(x.shape))
        if y.dtype != x.dtype:
            raise ThreatError(f"{self.threat.label} is native, so it must return {x.dtype}, got {y.dtype}")
        if self._free is not None:
            y = torch.where(select(self._free, rows), y, x)
        if self.memory.leaves is not None and context.memory is not None:
            self.memory.remember(context.memory, struck if rows is None else rows)
        return self.field.native(y, part), part

    def _check(self, y: Any, shape: tuple[int, ...]) -> None:
        if not isinstance(y, Tensor) or y.shape != shape or y.is_complex():
            got = f"{y.dtype} {tuple(y.shape)}" if isinstance(y, Tensor) else type(y).__name__
            raise ThreatError(f"{self.threat.label} must return a tensor {shape}, got {got}")
