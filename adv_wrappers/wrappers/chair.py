"""What the three shells of the adversary's chair share: what a steer sets off.

Between the adversary and the victim sit the actor, the budget and the engine of every other layer, and the victim acts
through the pilot that evaluations use. So an adversary that was trained here does as a deployed perturbation exactly
what it did here, for the same seed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from adv_wrappers.adversaries.actor import Steers, check_steers
from adv_wrappers.core.budgets import Budget
from adv_wrappers.core.errors import ValueRangeError
from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.wrappers.layer import Layer, floated
from adv_wrappers.wrappers.pilot import Pilot
from adv_wrappers.wrappers.seat import Seat


class Chaired(Layer):
    """Mixin of the three shells: a steer strikes, and is accounted for."""

    seat: Seat
    pilot: Pilot
    quantize: bool
    _true: Any = None

    def _sit(self, inner: Any, rows: int) -> None:
        """Take the seat; ``inner`` is the layer of actions beneath, where there is one."""
        self.victim, self.pilot = self.seat.victim, self.seat.pilot(rows)
        self._inner: Layer | None = None if self.seat.hand is None else inner
        engines = [layer.engine for layer in (self, self._inner) if layer is not None]
        self._steered = [engine for engine in engines if engine.memory.leaves is not None]

    def set_budget(self, within: Budget) -> None:
        """Replace the budget, for curricula: that of the actions for an actor on actions, else of the observations.

        It is the one that ``within`` gave: a hybrid's actions keep their ``reach``. It holds from the next steer on,
        and the recorded spec follows.

        Raises:
            BudgetError: for a budget that makes no sense on this space; the old one then stays.
        """
        if not self.seat.alone:
            super().set_budget(within)
            return
        assert self._inner is not None
        self._inner.set_budget(within)
        self.seat.hand = self._inner.threat
        self._record()

    def _replace(self, threat: ThreatModel) -> None:
        self.engine.arm(threat)
        self.threat = self.seat.threat = threat
        self._record()

    def _strike(self, steers: Any, rows: int, moved: Any = True) -> tuple[Any, Any]:
        """What the victim is shown, and which rows were struck."""
        seat = self.seat
        engine, leaves = self.engine, steers_of(steers, seat.steers, rows, seat.actor.direction)
        for steered in self._steered:
            steered.memory.leaves = leaves
        shown, struck = engine.observe(self._true if self.quantize else floated(self._true, None), moved)
        if struck is not False:
            engine.clock.pay(struck)
        engine.session.hand(self, shown)
        if engine.session.listening:
            engine.session.begin(self)
        return shown, struck

    def _hit(self, struck: Any) -> Any:
        """Which rows were struck at all, once the action has been: on observations or on actions."""
        if self._inner is None:
            return struck
        hand = self._inner.engine
        if self.engine not in self._steered:  # what an adversary of actions spends
            self.engine.clock.pay(hand.struck)
        return struck | hand.struck

    def _last_seen(self, obs: Any, done: Any, final: Callable[[int], Any]) -> dict[int, Any]:
        """Last observations by row, as the adversary sees them before the rows turn to their next episode."""
        whole, rows = np.array(obs), np.flatnonzero(done).tolist()
        for row in rows:
            whole[row] = final(row)
        seen = self.seat.seen(self.pilot, whole)
        return {row: seen[row] for row in rows}


def steers_of(steer: Any, space: Steers, rows: int, direction: bool = False) -> dict[str, torch.Tensor]:
    """Steers ``[rows, *A]`` from outside as an actor's memory, int64 or float32.

    Raises:
        ValueRangeError: for what is no array of numbers, and what ``check_steers`` refuses.
    """
    try:
        array = np.asarray(steer)
        given = torch.from_numpy(array.astype(array.dtype.newbyteorder("=")))  # a copy: the memory is ours
    except (TypeError, ValueError) as error:
        shape = (rows, *(space.shape or ()))
        raise ValueRangeError(f"expected steers of shape {shape}, numbers, got {steer!r:.80}") from error
    checked = check_steers(given, space, rows, direction)
    return {"steer": checked.float() if checked.is_floating_point() else checked}
