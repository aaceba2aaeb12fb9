"""The bench of one layer: its threat, clock and memory, and what a perturbation is handed for one batch of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from adv_wrappers.core import keys
from adv_wrappers.core.arrays import finite, to_victim
from adv_wrappers.core.budgets import Valid
from adv_wrappers.core.clock import Clock
from adv_wrappers.core.context import Context
from adv_wrappers.core.errors import SpaceError, ValueRangeError
from adv_wrappers.core.frames import History, Newest, plain
from adv_wrappers.core.memory import Memory
from adv_wrappers.core.perturbation import Perturbation, When
from adv_wrappers.core.session import Session, select
from adv_wrappers.core.threat import ThreatModel

_GATES = 1 << 40  # streams of ProbabilisticTiming, apart from those of layers
_TIMING = 1 << 20  # draws of a timing, apart from those of its perturbation
_EPISODE = 1 << 41  # draws that hold for an episode, apart from those of its steps


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
        self.true: Any = None  # the value that came in last, and which rows were struck: read by evaluations
        self.struck: Any = False
        self.arm(threat)

    def arm(self, threat: ThreatModel) -> None:
        """Take a threat, after checking that it can work here."""
        threat = threat.against(None)
        self.field = threat.check(*self.spaces)
        self.threat = threat
        self.budget, victims = plain(threat.budget), threat.victims
        self.history = History(threat.budget, self.field.shape) if isinstance(threat.budget, Newest) else None
        self._free: Any = None  # elements that are shown for the first time, under Newest
        first = next(iter(victims), None)
        single = torch.float32 if self.field.exact == torch.float16 else self.field.exact
        self.dtype: torch.dtype = first.dtype if first else single
        self.device: torch.device | None = first.device if first else self.clock.device
        self.memory = Memory(threat.how, self.session.rows)
        self.native = isinstance(threat.how, Perturbation) and threat.how.native
        # a native perturbation of whole uint8 images cannot leave its space: nothing to search, nothing to project
        self.whole = self.native and isinstance(self.budget, Valid) and self.field.whole and not victims
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

    def _native(self, part: Any, rows: Any) -> Tensor:
        part = part if rows is None else part[rows]
        tensor = tensor_of(part)
        return tensor.to(self.device or tensor.device)

    def _box(self, exact: Tensor, rows: Any) -> tuple[Tensor, Tensor]:
        """The box around the true values: the space widened to contain them, met with the ball, rounded inwards."""
        low, high = self.field.bounds(exact.device)
        low, high = self.budget.box(exact, torch.minimum(low, exact), torch.maximum(high, exact))
        if self.field.grid:
            low, high = low.ceil_(), high.floor_()
        if self._free is None:
            return low, high
        free = select(self._free, rows)  # what was shown before has no room left
        return torch.where(free, low, exact), torch.where(free, high, exact)

    def _expected(self, part: Any) -> Any:
        if tuple(part.shape) != (expected := (self.session.rows or 1, *self.field.shape)):
            raise SpaceError(f"expected a batch of shape {expected}, got {tuple(part.shape)}")
        return part

    def _keys(self, rows: Any, count: int, device: Any) -> tuple[Any, Any]:
        """Functions that make the layer's keys of this step and of this episode, int64 ``[count]``."""

        def made(key: Any) -> Tensor:
            key = key if rows is None or not self.batched else key[rows]
            return keys.as_tensor(keys.fold(key, self.stream), count, device)

        clock = self.clock
        return lambda: made(clock.key()), lambda: made(keys.fold(clock.episode_key(), _EPISODE))

    def _context(self, value: Any, rows: Any, final: bool, mask: Any) -> tuple[Context, Tensor, Any]:
        part = self._expected(self.field.take(value, self.batched))
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

        low, high = self._box(exact, rows)
        key, episode_key = self._keys(rows, len(exact), device)
        space_low, space_high = self.field.bounds(torch.device(device))
        context = Context(
            exact.to(device, dtype, copy=True), (low.to(device, dtype), high.to(device, dtype)),
            (space_low.to(dtype), space_high.to(dtype)), self.budget, self.field.grid,
            pick(self.clock.t), pick(self.clock.spent), key, observation,
            lambda victim: self.session.state(victim, rows, final), fill,
            self.memory.recall(rows), None if mask is None else select(mask, rows).to(device), episode_key,
        )  # fmt: skip
        return context, exact, part


def tensor_of(part: Any) -> Tensor:
    """An array (copied: it may be the environment's own memory) or a tensor, as a tensor."""
    return part if isinstance(part, Tensor) else torch.from_numpy(np.array(part, order="C"))
