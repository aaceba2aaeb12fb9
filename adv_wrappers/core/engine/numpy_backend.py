"""An attack computed in numpy from end to end, for environments on the host: small batches, and native transforms.

A tensor operation takes a microsecond or more before it computes anything, and noise on four numbers is fifty of them.
Here they are operations of numpy, at a fifth of that, by the same formulas: perturbations and budgets that declare
``arrays = True`` compute on arrays as they do on tensors, random numbers are equal to the bit, and so is the result
(``tests/core/engine/test_numpy_backend.py`` compares the two). Whatever is out of the ordinary, values that are not
finite among it, is left to the way of tensors, which has the words for what is wrong.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from adv_wrappers.core import rng
from adv_wrappers.core.engine.context import AppliedThreat, AttackedStep, Context, LayerState
from adv_wrappers.core.spaces import ARRAYS
from adv_wrappers.core.types import Array

ArrayBox: TypeAlias = tuple[Array, Array]

LARGEST = 1 << 16  # elements of a batch, beyond which tensors are as fast, and use several threads
_HUGE = 1e30  # squares of numbers below its root, and sums of them, overflow in no float from 32 bits on


def attack_of(applied: AppliedThreat, state: LayerState) -> NumpyAttack | None:
    """The attack of a layer in numpy, where nothing of it needs tensors; else None.

    It needs none without a victim, memory and a history of frames, if the perturbation and the budget declare, in their
    own class and not by inheritance, that they compute on arrays. Nothing of a native perturbation of whole images is
    projected, so its budget need not.
    """
    if (
        applied.victims
        or applied.device is not None
        or state.memory is not None
        or applied.framed
        or state.last_step is not None
    ):
        return None
    if applied.unbounded:
        return NativeNumpyAttack(applied) if _declared(applied.how) else None
    return NumpyAttack(applied) if _declared(applied.how) and _declared(applied.budget) and _plain(applied) else None


def _declared(part: object) -> bool:
    return bool(vars(type(part)).get("arrays", False))


def _plain(applied: AppliedThreat) -> bool:
    """Whether everything is computed and projected in one dtype, by numbers that do not overflow in it."""
    field = applied.field
    if applied.dtype != field.exact or applied.native:
        return False
    corner: Array = np.where(np.isfinite(field.low), field.low, 0).astype(np.float64)[None]
    budget: Any = applied.budget  # which takes arrays as well
    sides = np.stack([field.low[None], field.high[None], *budget.box(corner, field.low, field.high)])
    return bool(np.abs(sides[np.isfinite(sides)]).max(initial=0.0) <= _HUGE)  # else numpy would warn of overflows


class NumpyAttack:
    """One attack of a layer on arrays; made when its threat is set."""

    def __init__(self, applied: AppliedThreat) -> None:
        field = applied.field
        self._field, self._how = field, applied.how
        self._budget: Any = applied.budget  # which takes arrays as well
        self._own = field.dtype
        self._exact = field.exact
        self._grid = field.grid
        self._kind = ARRAYS[field.exact]
        self.space: ArrayBox = field.bounds(None)
        low, high = self.space
        rows = applied.rows or 1  # numpy is slower where shapes differ
        self._repeated = (
            (low, high) if rows * low.size > LARGEST else (np.repeat(low, rows, 0), np.repeat(high, rows, 0))
        )
        with np.errstate(invalid="ignore"):
            self.mirror: Array = np.where(np.isfinite(low + high), low + high, 0)

    def __call__(self, step: AttackedStep) -> Array | None:
        """The attacked rows perturbed, in the dtype that they came in; None where tensors are needed."""
        part, rows = step.part, step.rows
        if step.mask is not None or type(part) is not np.ndarray or part.size > LARGEST:
            return None
        dtype, grid = part.dtype, self._grid
        if dtype is self._own:
            low, high = self._repeated if rows is None else self.space
        elif self._field.exact_for(dtype) is self._exact:
            low, high = self._field.bounds(None, dtype)
        else:
            return None
        # a copy, which the perturbation may write to, of numbers that are finite
        x: Array = np.array(part if rows is None else part[rows], self._kind, order="C")
        if not grid and not np.vdot(x, x) < _HUGE:  # true of numbers that are not finite as well
            return None
        if self._field.discrete:
            self._field.check_finite(x, step.applied.threat)
        # the answer is not trusted: it is projected unless it surely lies within
        context = NumpyContext(self, step, x)
        y = self._how(x, context)
        if type(y) is not np.ndarray or y.shape != x.shape or y.dtype is not x.dtype:
            return None
        if not self._budget.surely_inside(y, x, low, high, grid):
            if not np.isfinite(y).all():
                return None
            y = self._budget.project(y, x, *context.box, grid)
        native: Any = y if dtype is y.dtype else self._field.native(y, part)
        out: Array = native
        return out


class NativeNumpyAttack(NumpyAttack):
    """One attack of a native perturbation of whole uint8 images, on the array as it came in."""

    def __call__(self, step: AttackedStep) -> Array | None:
        part = step.part
        if type(part) is not np.ndarray or part.dtype != np.uint8:
            return None
        x: Array = part if step.rows is None else part[step.rows]
        y = self._how(x, NumpyContext(self, step, x))
        return y if type(y) is np.ndarray and y.shape == x.shape and y.dtype == x.dtype else None


class NumpyContext(Context):
    """A context of arrays: true values, box, keys and draws; what else there is to know is as in any context."""

    mask = None

    def __init__(self, attack: NumpyAttack, step: AttackedStep, x: Array) -> None:
        Context.__init__(self, step)
        self.x, self.dtype = x, x.dtype  # type: ignore[assignment]
        self.space, self.mirror = attack.space, attack.mirror  # type: ignore[assignment]

    @property
    def key(self) -> Any:
        """Of a single environment a Python integer, of the rows of a vector uint64 ``[B]``."""
        return self._key_of(self._state.clock.key())

    @cached_property
    def box(self) -> Any:  # two arrays, where a Context has tensors
        """Smallest box that contains the budget's set: lower and upper bounds ``[B, *S]``."""
        return self.budget.box_in(self._applied.field, self.x, self._step.part.dtype)

    def noise(self, kind: str, draws: Any = None) -> Any:
        """As of any context, but for uniform noise: it is not met with the space, since it is projected anyway."""
        uniform = kind == "uniform" and draws is None
        drawn = self.budget.draw_around(self.x, self, self.grid) if uniform else None
        return super().noise(kind, draws) if drawn is None else drawn

    def ascend(self, y: Any, gradient: Any, fraction: float | Tensor, spend: bool = False) -> Any:
        """As of any context, on tensors in the same memory: those add a multiple in one rounding, numpy in two."""
        box = torch.from_numpy(self.box[0]), torch.from_numpy(self.box[1])
        step = Context.around(torch.from_numpy(self.x), self.budget, box, torch.empty(0), grid=self.grid)
        return step.ascend(torch.from_numpy(y), torch.from_numpy(gradient), fraction, spend).numpy()

    def _key_of(self, key: Any) -> Any:
        return rng.fold(key if self._own is None else key[self._own], self._applied.stream)
