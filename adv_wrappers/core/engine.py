"""What a perturbation remembers a row: learned actors and planners keep it here, so that threats stay frozen values.

The moment of a strike: everything that it is made of, gathered before anything is computed.

The bench of one layer: its threat, clock and memory, and what a perturbation is handed for one batch of rows.

The engine: one layer applied to a batch. Decide, box, perturb, project; rows not struck keep their bytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from torch import Tensor

from adv_wrappers.accel import cuda_graphs, transfer
from adv_wrappers.core import rng
from adv_wrappers.core.budgets import Valid
from adv_wrappers.core.clock import Clock
from adv_wrappers.core.context import Context, Deferred, Leaves
from adv_wrappers.core.newest import History, Newest, plain
from adv_wrappers.core.perturbation import Perturbation, When
from adv_wrappers.core.rng import fold
from adv_wrappers.core.rounding import WHOLE
from adv_wrappers.core.session import Session
from adv_wrappers.core.spaces import finite, to_victim
from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.errors import OrderError, SpaceError, ThreatError, ValueRangeError
from adv_wrappers.utils.trees import merge, select


class Memory:
    """Leaves ``[rows, ...]`` of one layer, or nothing for a stateless perturbation.

    Args:
        how: the perturbation; its ``initial_memory`` says what every episode begins with.
        rows: number of rows, None for a single environment.
    """

    def __init__(self, how: Any, rows: int | None) -> None:
        self._how, self._rows = how, rows or 1
        self.leaves: Leaves | None = None
        self.forget()

    def recall(self, rows: Any = None) -> Leaves | None:
        """A copy of the memory of some rows (None for all): a perturbation may write into it."""
        if self.leaves is None:
            return None
        return {key: leaf.clone() if rows is None else select(leaf, rows) for key, leaf in self.leaves.items()}

    def remember(self, new: Leaves, struck: Any) -> None:
        """Keep the memory of the rows that were struck: True for all, bool ``[rows]`` tensor, or their numbers."""
        assert self.leaves is not None
        if struck is True:
            self.leaves = new
        elif isinstance(struck, Tensor):
            self.leaves = merge(struck, new, self.leaves)
        else:
            rows = torch.as_tensor(struck)
            self.leaves = {k: old.index_copy(0, rows.to(old.device), new[k]) for k, old in self.leaves.items()}

    def forget(self, mask: Any = None) -> None:
        """Initial memory in the rows of ``mask`` (bool ``[rows]``); None for all."""
        fresh = self._how.initial_memory(self._rows) if isinstance(self._how, Perturbation) else None
        self.leaves = fresh if mask is None or fresh is None else merge(torch.as_tensor(mask), fresh, self.leaves)


@dataclass
class Moment:
    """What one strike is made of, for the rows that are struck.

    Attributes:
        part: true values ``[B, *S]`` as they came in, an array or a tensor.
        key, episode_key: make the layer's int64 keys ``[B]``.
        seen: what victims see, for an action layer and in a Dict; None where that is ``part``.
        states: hidden state of a recurrent victim.
        free: elements that may change, bool ``[B, *S]``; None for all.
        mask, t, spent, memory: as in :class:`Context`; a strike that is recorded has no t.
    """

    part: Any
    key: Callable[[], Tensor]
    episode_key: Callable[[], Tensor]
    seen: Any
    states: Callable[[Any], Any]
    free: Tensor | None = None
    mask: Tensor | None = None
    t: Any = None
    spent: Any = None
    memory: Any = None


class Timeless(Context):
    """A context to be recorded: what differs from step to step, and is no tensor, is not there."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        del self.t, self.spent, self.memory

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"a capturable perturbation must not look at context.{name}")


def expected(part: Any, shape: tuple[int, ...]) -> Any:
    """``part``, after checking its shape; :class:`SpaceError` for another."""
    if tuple(part.shape) != shape:
        raise SpaceError(f"expected a batch of shape {shape}, got {tuple(part.shape)}")
    return part


def place(part: Any) -> torch.device:
    """Where an array or a tensor is."""
    return part.device if isinstance(part, Tensor) else torch.device("cpu")


def tensor_of(part: Any, device: torch.device | None = None) -> Tensor:
    """An array (copied: it may be the environment's own memory) or a tensor, as a tensor; on ``device``, if any."""
    tensor = part if isinstance(part, Tensor) else torch.from_numpy(np.array(part, order="C"))
    return tensor if device is None else tensor.to(device)


def padded(rows: NDArray[np.intp], most: int) -> NDArray[np.intp]:
    """Rows with the first one repeated up to a power of two, or to ``most``: a handful of shapes for all counts."""
    size = min(1 << (len(rows) - 1).bit_length(), most)
    return np.concatenate([rows, np.full(size - len(rows), rows[0])])


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
        self.graphs: cuda_graphs.Graphs | None = None
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
        record = cuda_graphs.recorder_for(device) if able and device is not None else None
        self.graphs = None if record is None else cuda_graphs.Graphs(record, self.threat.label, self.threat.victims)
        if self.graphs is not None and before is not None and self._how is how:
            self.graphs.fault = before.fault  # another budget does not mend an attack
        self._how = how

    t = property(lambda self: self.clock.t, doc="Step within the episode.")
    spent = property(lambda self: self.clock.spent, doc="Strikes of this episode.")

    def chance(self, path: int, stream: int | None = None) -> Any:
        """Uniform number in [0, 1) a row, from the layer's stream or from a gate's."""
        if stream is not None:
            return rng.uniform_of(rng.fold(self.clock.key(), _GATES + stream))
        return rng.uniform_of(rng.fold(rng.fold(self.clock.key(), self.stream), _TIMING + path))

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
            key = rng.fold(key if rows is None or not self.batched else key[rows], self.stream)
            if self.transfer is None:
                return rng.as_tensor(key, count, device).to(device)
            return self.transfer.up(rng.as_tensor(key, count, torch.device("cpu")).numpy())

        clock = self.clock
        return lambda: made(clock.key()), lambda: made(rng.fold(clock.episode_key(), EPISODE))

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
