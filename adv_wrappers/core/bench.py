"""The bench of one layer: its threat, clock and memory, and what a perturbation is handed for one batch of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from adv_wrappers.core import graphs, keys, recorder, transfer
from adv_wrappers.core.arrays import finite, to_victim
from adv_wrappers.core.budgets import Valid
from adv_wrappers.core.clock import Clock
from adv_wrappers.core.context import Context
from adv_wrappers.core.errors import ValueRangeError
from adv_wrappers.core.frames import History, Newest, plain
from adv_wrappers.core.memory import Memory
from adv_wrappers.core.moment import Moment, Timeless, expected, place
from adv_wrappers.core.perturbation import Perturbation, When
from adv_wrappers.core.rounding import WHOLE
from adv_wrappers.core.session import Session, select
from adv_wrappers.core.threat import ThreatModel

_GATES = 1 << 40  # streams of ProbabilisticTiming, apart from those of layers
_TIMING = 1 << 20  # draws of a timing, apart from those of its perturbation
EPISODE = 1 << 41  # draws that hold for an episode, apart from those of its steps


class Bench:
    """What one layer works with.

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
        self.true, self.struck = None, False  # type: Any, Any  # what came in last and was struck: for evaluations
        self.graphs: graphs.Graphs | None = None
        self._how, self.when = None, None  # type: Any, Any
        self.arm(threat)

    def arm(self, threat: ThreatModel) -> None:
        """Take a threat, after checking that it can work here."""
        threat = threat.against(None)
        self.field = threat.check(*self.spaces)
        self.threat, self.when = threat, threat.when  # looked up once: a step that is not struck does little else
        self.blind = isinstance(self.when, When) and self.when.blind
        self.budget, victims = plain(threat.budget), threat.victims
        self.history = History(threat.budget, self.field.shape) if isinstance(threat.budget, Newest) else None
        self._free: Any = None  # elements that are shown for the first time, under Newest
        first, exact = next(iter(victims), None), self.field.exact
        self.dtype: torch.dtype = first.dtype if first else torch.float32 if exact == torch.float16 else exact
        self.device: torch.device | None = first.device if first else self.clock.device
        self.memory = Memory(threat.how, self.session.rows)
        self.native = isinstance(threat.how, Perturbation) and threat.how.native
        # a native perturbation of whole uint8 images cannot leave its space: nothing to search, nothing to project
        self.whole = self.native and isinstance(self.budget, Valid) and self.field.whole and not victims
        self.reads = getattr(threat.how, "reads", None) if threat.on == "action" else None
        self.shares = getattr(threat.how, "shares", False)
        self.watches = threat.on == "action" and (bool(victims) or self.reads is not None)
        self.gentle: bool = getattr(threat.how, "capturable", False)  # and so promises to write to nothing
        self._equip()

    def settle(self, device: torch.device) -> None:
        """Move to a device, on which the environment turned out to live: clock and schedule live there too."""
        self.clock = Clock(self.session.rows, device, self.session.roots)
        self.device = self.device or device
        self._equip()

    def _equip(self) -> None:
        """What speeds up a strike on this device."""
        how, device, before = self.threat.how, self.device, self.graphs
        host = self.clock.device is None
        # devices other than CUDA may lack the dtype of true values, which then stay where they are
        self.home = device if device is not None and device.type == "cuda" else None
        self.transfer = transfer.between(device) if host and device is not None else None
        able = getattr(how, "capturable", False) and self.memory.leaves is None and not self.whole
        able = able and (self.transfer is not None or not host)
        able = able and not any(getattr(v, "compile", False) for v in self.threat.victims)  # cannot be watched
        record = recorder.recorder_for(device) if able and device is not None else None
        self.graphs = None if record is None else graphs.Graphs(record, self.threat.label, self.threat.victims)
        if self.graphs is not None and before is not None and self._how is how:
            self.graphs.fault = before.fault  # another budget does not mend an attack
        self._how = how

    t = property(lambda self: self.clock.t, doc="Step within the episode.")
    spent = property(lambda self: self.clock.spent, doc="Strikes of this episode.")

    def chance(self, path: int, stream: int | None = None) -> Any:
        """Uniform number in [0, 1) a row, from the layer's stream or from a gate's."""
        if stream is not None:
            return keys.uniform_of(keys.fold(self.clock.key(), _GATES + stream))
        return keys.uniform_of(keys.fold(keys.fold(self.clock.key(), self.stream), _TIMING + path))

    def _lift(self, leaf: Any, rows: Any = None) -> Any:
        """Rows of a batch, on the device where the strike is computed."""
        if self.transfer is not None and leaf is not None:
            return self.transfer.up(leaf.numpy() if isinstance(leaf, Tensor) else leaf, rows)
        leaf = select(leaf, rows)
        return leaf if self.home is None or leaf is None else leaf.to(self.home)

    def _box(self, exact: Tensor, moment: Moment) -> tuple[Tensor, Tensor]:
        """The box around the true values: the space widened to contain them, met with the ball, rounded inwards."""
        low, high = self.field.bounds(exact.device, moment.part.dtype)
        if not self.field.holds(moment.part):
            low, high = torch.minimum(low, exact), torch.maximum(high, exact)
        low, high = (self.budget.grid_box if self.field.grid else self.budget.box)(exact, low, high)
        if low.shape != exact.shape:  # a budget of somebody's own may hand the bounds of the space back
            low, high = low.expand_as(exact).clone(), high.expand_as(exact).clone()
        if moment.free is not None:  # what was shown before has no room left
            low, high = torch.where(moment.free, low, exact), torch.where(moment.free, high, exact)
        return low, high

    def _keys(self, rows: Any, count: int, device: Any) -> tuple[Any, Any]:
        """Functions that make the layer's keys of this step and of this episode, int64 ``[count]``."""

        def made(key: Any) -> Tensor:
            key = keys.fold(key if rows is None or not self.batched else key[rows], self.stream)
            if self.transfer is None:
                return keys.as_tensor(key, count, device).to(device)
            return self.transfer.up(keys.as_tensor(key, count, torch.device("cpu")).numpy())

        clock = self.clock
        return lambda: made(clock.key()), lambda: made(keys.fold(clock.episode_key(), EPISODE))

    def _moment(self, value: Any, rows: Any, final: bool, mask: Any) -> tuple[Moment, Any]:
        """What a strike on some rows (None for all) is made of, and the part of ``value`` that it perturbs."""
        part = expected(self.field.take(value, self.batched), (self.session.rows or 1, *self.field.shape))
        own = rows if self.batched else None  # of leaves without a first axis in single environments
        action, victims = self.threat.on == "action", self.threat.victims
        seen = self.session.observation(self.reads, self.threat.label) if action else value
        if victims and not action and self.field.keys is None:
            seen = None
        else:
            seen = select(seen, own)
            if victims and seen is not None:
                lift = {} if self.transfer is None else {"lift": self.transfer.up}
                seen = to_victim(
                    seen, self.dtype, self.device or place(part), self.batched, space=self.spaces[0], **lift
                )
        if self.transfer is not None:
            self.field.exactly(part[:0])  # raises for arrays of anything but numbers
            self.sound(part if rows is None else part[rows])
        device = self.device or place(part)
        return Moment(
            self._lift(part, rows), *self._keys(rows, len(part) if rows is None else len(rows), device), seen,
            lambda victim: self.session.state(victim, rows if self.transfer is None else self._lift(rows), final),
            self._lift(self._free, rows), None if mask is None else self._lift(mask, rows).to(device),
            select(self.clock.t, own), select(self.clock.spent, own), self.memory.recall(rows),
        ), part  # fmt: skip

    def _context(self, moment: Moment) -> tuple[Context, Tensor]:
        """The context of a strike, and the true values in the space's own precision.

        ``context.x`` is the latter themselves where the two are of one dtype and the perturbation writes to neither.
        """
        exact = self.field.exactly(moment.part)
        if self.transfer is None:
            self.sound(exact)
        dtype, device = self.dtype, self.device or exact.device
        x, gentle = exact.to(device, dtype), self.gentle and not exact.is_inference()
        if x is exact and not gentle:
            x = exact.clone()
        seen, fill, seeing = moment.seen, None, self.threat.on == "observation"
        if seen is None and seeing:
            seen = x if gentle else x.clone()
        elif seeing and self.field.keys is not None:
            fill = lambda part: self.field.give(moment.seen, part, True)  # noqa: E731

        def box() -> Any:
            return tuple(side.to(device, dtype) for side in self._box(exact, moment))

        low, high = self.field.bounds(torch.device(device))
        context = (Context if moment.t is not None else Timeless)(
            x, box, (low.to(dtype), high.to(dtype)), self.budget, self.field.grid, moment.t, moment.spent, moment.key,
            seen, moment.states, fill, moment.memory, moment.mask, moment.episode_key,
        )  # fmt: skip
        context.look = self.clock.device is None and self.transfer is None
        return context, exact

    def sound(self, values: Any) -> None:
        """Raise :class:`ValueRangeError` unless the values of a host environment are finite; no device is asked.

        And unless floats hold integers with all their neighbours.
        """
        if self.clock.device is not None:
            return
        if not self.field.grid:
            if not finite(torch.as_tensor(values)):
                raise ValueRangeError(
                    f"{self.threat.label} was handed an {self.threat.on} that is not finite: {values}"
                )
        elif self.field.wide and len(values) and np.abs(np.asarray(values, np.float64)).max() >= WHOLE:
            raise ValueRangeError(
                f"{self.threat.label} was handed an {self.threat.on} with integers beyond 2**53, next to which floats "
                f"are more than one apart: {values}"
            )

    def forget(self, mask: Any = None) -> None:
        """Initial memory in the rows of ``mask``; None for all."""
        self.memory.forget(mask)
        if self.history is not None:
            self.history.forget(mask)
