"""What an adversary may know at one step of one layer."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from adv_wrappers.accel.cuda_graphs import GraphCache
from adv_wrappers.accel.transfer import Transfer
from adv_wrappers.core import rng
from adv_wrappers.core.budgets.budget import Budget, Feasible, FewFeatures, LastStep, TensorBox
from adv_wrappers.core.engine.clock import Clock
from adv_wrappers.core.engine.session import Session
from adv_wrappers.core.engine.simulator_protocol import MakesSimulators, SimulatorLike, check_simulators
from adv_wrappers.core.engine.victim_view import VictimView
from adv_wrappers.core.spaces import Field, Labelled, to_victim
from adv_wrappers.core.types import Batch, Counter, Leaves, Rows, Space
from adv_wrappers.errors import SnapshotError
from adv_wrappers.utils.trees import merge, repeat, select

_ALL = 1 << 20  # numbers of several draws that are made at once
EPISODE_STREAM = 1 << 41  # draws that hold for an episode, apart from those of its steps
_HOST = torch.device("cpu")


@dataclass(frozen=True, eq=False)
class AppliedThreat:
    """A threat as one layer applies it: all that does not change between steps.

    Attributes:
        threat: the threat, every victim filled in.
        how: its perturbation.
        when: its timing; None attacks at every step.
        blind: whether the timing looks at nothing but the clock and draws.
        declines: whether the perturbation may decline a step.
        victims: those that it looks at.
        field: what is perturbed.
        budget: of a single step: that of a frame under :class:`.Newest`.
        observation_space: of one row.
        rows: number of rows of a vector environment; None for a single environment.
        stream: number of layers beneath, which tells this layer's draws from theirs.
        on_observations: whether observations are perturbed, and not actions, physical parameters or rewards.
        sees_own: whether the perturbation looks at what this layer received, not at what the agent acted on.
        reads: what an action layer without a victim looks at (:attr:`.Perturbation.observes`).
        shares: whether what this layer received is shown to a layer on actions that shares it.
        native, unbounded: whether it is perturbed in its own dtype; whether without any projection.
        framed: whether the budget tells the frames of a stack apart.
        dtype, device: of the computation; None for where the values are.
        home: the device of true values; None for where they are.
        transfer: what copies batches to the device and back; None where nothing does.
        look: whether answers of victims are checked, which waits for their device.
    """

    threat: Labelled
    how: Any
    when: Any
    blind: bool
    declines: bool
    victims: Sequence[Any]
    field: Field
    budget: Budget
    observation_space: Space
    rows: int | None
    stream: int
    on_observations: bool
    sees_own: bool
    reads: str | None
    shares: bool
    native: bool
    unbounded: bool
    framed: bool
    dtype: torch.dtype
    device: torch.device | None
    home: torch.device | None
    transfer: Transfer | None
    look: bool

    @property
    def batched(self) -> bool:
        """Whether the environment is a vector."""
        return self.rows is not None

    @cached_property
    def batch_shape(self) -> tuple[int, ...]:
        """Shape of what is perturbed, ``(B, *S)``."""
        return self.rows or 1, *self.field.shape

    def lift(self, leaf: Any, rows: Rows = None) -> Any:
        """Rows of a batch, on the device where the attack is computed."""
        if self.transfer is not None and leaf is not None:
            return self.transfer.up(leaf.numpy() if isinstance(leaf, Tensor) else leaf, rows)
        leaf = select(leaf, rows)
        return leaf if self.home is None or leaf is None else leaf.to(self.home)


class LayerState:
    """What a layer keeps from step to step.

    Attributes:
        clock: step, episode and attacks of every row.
        session: what the layers of the stack share.
        simulators: makes the simulator of a step; None where there is no environment to simulate.
        shown: the newest observation as it was passed on, or None.
        memory: what the perturbation remembers, leaves ``[rows, ...]``; None for nothing.
        last_step: what is kept of the step before, where the budget depends on it; else None.
        free: under :class:`.Newest` the elements that are shown for the first time, bool ``[B, *S]``; else None.
        graphs: what records attacks; None where nothing is recorded.
    """

    shown: Any = None
    memory: Leaves | None = None
    last_step: LastStep | None = None
    free: Tensor | None = None
    graphs: GraphCache | None = None

    def __init__(self, clock: Clock, session: Session, simulators: MakesSimulators | None = None) -> None:
        self.clock = clock
        self.session = session
        self.simulators = simulators

    @property
    def on_host(self) -> bool:
        """Whether clock and schedule are on the host."""
        return self.clock.device is None

    def remember(self, new: Leaves, attacked: Any) -> None:
        """Keep the memory of the attacked rows: True for all, bool ``[rows]`` tensor, or their numbers."""
        assert self.memory is not None
        if attacked is True:
            self.memory = new
        elif isinstance(attacked, Tensor):
            self.memory = merge(attacked, new, self.memory)
        else:
            rows = torch.as_tensor(attacked)
            self.memory = {k: old.index_copy(0, rows.to(old.device), new[k]) for k, old in self.memory.items()}


class AttackedStep(NamedTuple):
    """One step of a layer: what comes in, and which rows of it are attacked.

    Attributes:
        applied: the threat.
        state: of the layer.
        value: the observation or action as it came in.
        part: the part of it that is perturbed, ``[B, *S]``.
        rows: numbers of the rows that are attacked; None for all.
        final: whether the observation is the last of its episode, seen after the row was reset.
        mask: action mask of all rows, bool ``[B, A]``, where the environment gave one.
    """

    applied: AppliedThreat
    state: LayerState
    value: Any
    part: Batch
    rows: Rows = None
    final: bool = False
    mask: Tensor | None = None

    @property
    def acted_on(self) -> Any:
        """What the agent acted on; for a layer on the dynamics or rewards, what it received itself."""
        applied, state = self.applied, self.state
        return state.shown if applied.sees_own else state.session.observation(applied.reads, applied.threat.label)


class Context(rng.Draws):
    """One step of one layer, for the rows that are attacked; everything is made when it is first asked for.

    Attributes:
        budget: the budget.
        grid: whether the space is an integer grid.
        choices: of Discrete, MultiDiscrete and MultiBinary spaces, between whose values there is no distance, how many
            values every entry has; else None.
        shape, dtype: of a row of ``x``, and of its numbers.
        look: whether the answers of victims are checked, which waits for their device.
    """

    choices: tuple[int, ...] | None = None

    def __init__(self, step: AttackedStep) -> None:
        applied = step.applied
        field = applied.field
        self._step = step
        self._applied = applied
        self._state = step.state
        self._rows = step.rows
        self._own = None if applied.rows is None else step.rows  # leaves of a single one have no rows
        self.budget: Budget = applied.budget
        self.grid: bool = field.grid
        self.choices = field.choices
        self.shape: tuple[int, ...] = field.shape
        self.dtype: torch.dtype = applied.dtype
        self.look: bool = applied.look

    @classmethod
    def around(
        cls,
        x: Tensor,
        budget: Budget,
        box: TensorBox,
        key: Tensor,
        *,
        grid: bool = False,
        look: bool = False,
        **more: Any,
    ) -> Context:
        """A context without a layer, for attacks on their own.

        Args:
            x, budget, box, key, grid, look: as the attributes of these names.
            **more: other attributes; where it is not given, ``space`` is the box, ``observation`` is ``x``,
                ``episode_key`` is ``key``, ``t`` and ``spent`` are 0, and the others are None.
        """
        made = cls.__new__(cls)
        made.budget = budget
        made.grid = grid
        made.look = look
        made.shape = tuple(x.shape[1:])
        made.dtype = x.dtype
        more = {"space": box, "observation": x, "episode_key": key, "t": 0, "spent": 0, **more}
        vars(made).update(
            {"state": lambda victim: None, "fill": None, "memory": None, "mask": None, "simulator": None, **more}
        )
        vars(made).update(x=x, box=box, key=key)
        return made

    # what there is to know

    def again(self) -> Context:
        """The same from the start: nothing drawn, nothing asked for."""
        return Context(self._step)

    @cached_property
    def part(self) -> Batch:
        """True values ``[B, *S]`` in the dtype that they came in."""
        applied = self._applied
        rows = self._rows
        taken = self._step.part
        # values that go to a device are looked at on the host, where that waits for nothing
        if applied.transfer is not None:
            applied.field.exactly(taken[:0])  # raises for arrays of anything but numbers
            applied.field.check_finite(taken if rows is None else taken[rows], applied.threat)
        elif rows is None and applied.home is None:
            return taken
        part: Batch = applied.lift(taken, rows)
        return part

    @cached_property
    def exact(self) -> Tensor:
        """True values in the dtype that they are projected in."""
        applied = self._applied
        exact: Tensor = applied.field.exactly(self.part)
        if applied.transfer is None and self._state.clock.device is None:
            applied.field.check_finite(exact, applied.threat)
        return exact

    @cached_property
    def x(self) -> Tensor:
        """True values in the dtype that is computed in: a copy, which may be written to."""
        return self.exact.to(self._applied.device or self.exact.device, self.dtype, copy=True)

    @cached_property
    def observation(self) -> Any:
        """For an observation layer what it received, for one on actions what the agent acted on.

        For one on the dynamics or rewards it is the observation as this layer received it.
        """
        applied = self._applied
        if applied.on_observations and applied.field.keys is None and applied.victims:
            return self.x
        value = select(self._step.value if applied.on_observations else self._step.acted_on, self._own)
        if value is None or not (applied.victims or applied.sees_own):
            return value
        # as the victim takes it, where there is one to look at it
        lift = {} if applied.transfer is None else {"lift": applied.transfer.up}
        device = applied.device or place(self._step.part)
        return to_victim(value, self.dtype, device, applied.batched, space=applied.observation_space, **lift)

    @cached_property
    def fill(self) -> Callable[[Tensor], Any] | None:
        """Completes a perturbed part to a whole observation; None where the part is all of it."""
        field = self._applied.field
        if not self._applied.on_observations or field.keys is None:
            return None
        return self._filled_into(self.observation)

    def _filled_into(self, whole: Any) -> Callable[[Tensor], Any]:
        field = self._applied.field
        return lambda part: field.give(whole, part, True)

    def state(self, victim: Any) -> Any:
        """Hidden state of a recurrent victim."""
        rows = self._rows if self._applied.transfer is None else self._applied.lift(self._rows)
        return self._state.session.state(victim, rows, self._step.final)

    @cached_property
    def box(self) -> TensorBox:
        """Smallest box that contains the budget's set: lower and upper bounds ``[B, *S]``."""
        low, high = self.exact_box()
        device = self._applied.device or low.device
        return low.to(device, self.dtype), high.to(device, self.dtype)

    def exact_box(self) -> TensorBox:
        """The box in the dtype that is projected in.

        The space is widened to contain the true values, met with the ball, and on a grid rounded inwards.
        """
        applied, exact = self._applied, self.exact
        low, high = self.budget.box_in(applied.field, exact, self.part.dtype)
        if low.shape != exact.shape:  # a budget of somebody's own may return the bounds of the space
            low, high = low.expand_as(exact).clone(), high.expand_as(exact).clone()
        # what the step before leaves room for, and of a stack only what is new
        last = self._state.last_step
        if last is not None and last.leaves is not None:
            leaves = [applied.lift(leaf, self._rows) for leaf in last.leaves]
            low, high = last.meet(exact, leaves, (low, high), self.grid)
        if self._state.free is not None and (free := self.free) is not None:  # what was shown before has no room left
            low, high = torch.where(free, low, exact), torch.where(free, high, exact)
        return low, high

    @cached_property
    def space(self) -> TensorBox:
        """Bounds of the space itself, ``[*S]`` twice."""
        low, high = self._applied.field.bounds(self._applied.device or self.exact.device)
        return low.to(self.dtype), high.to(self.dtype)

    @cached_property
    def mirror(self) -> Tensor:
        """What a value is taken from to mirror it in the middle of the space, ``[*S]``; 0 where there is no middle."""
        low, high = self.space
        return torch.where(torch.isfinite(low + high), low + high, 0)

    @cached_property
    def free(self) -> Tensor | None:
        """Elements that may change, bool ``[B, *S]``; None for all."""
        free = self._state.free
        return None if free is None else self._applied.lift(free, self._rows)

    @cached_property
    def mask(self) -> Tensor | None:
        """Action mask, bool ``[B, A]``, where the environment gave one."""
        mask, applied = self._step.mask, self._applied
        return None if mask is None else applied.lift(mask, self._rows).to(applied.device or place(self._step.part))

    @cached_property
    def key(self) -> Tensor:
        """Keys of the rows, int64 ``[B]``: a function of (seed, episode, t, layer stream)."""
        return self._key_of(self._state.clock.key())

    @cached_property
    def episode_key(self) -> Tensor:
        """Keys of the rows that are the same throughout an episode, int64 ``[B]``: (seed, episode, layer stream)."""
        return self._key_of(rng.fold(self._state.clock.episode_key(), EPISODE_STREAM))

    def _key_of(self, key: Any) -> Tensor:
        applied, rows = self._applied, self._rows
        count = len(self._step.part) if rows is None else len(rows)
        key = rng.fold(key if rows is None or not applied.batched else key[rows], applied.stream)
        if applied.transfer is not None:
            lifted: Tensor = applied.transfer.up(rng.as_tensor(key, count, _HOST).numpy())
            return lifted
        device = applied.device or (self._step.part.device if isinstance(self._step.part, Tensor) else _HOST)
        return rng.as_tensor(key, count, device).to(device)

    @cached_property
    def t(self) -> Counter:
        """Step within the episode: an integer for a single environment, else ``[B]``."""
        t: Counter = select(self._state.clock.t, self._own)
        return t

    @cached_property
    def spent(self) -> Counter:
        """Attacks of the episode so far: an integer for a single environment, else ``[B]``."""
        spent: Counter = select(self._state.clock.spent, self._own)
        return spent

    @cached_property
    def memory(self) -> Leaves | None:
        """What the perturbation keeps a row, a copy that it may write into; None where it keeps nothing."""
        leaves, rows = self._state.memory, self._rows
        if leaves is None:
            return None
        return {key: leaf.clone() if rows is None else select(leaf, rows) for key, leaf in leaves.items()}

    @cached_property
    def simulator(self) -> SimulatorLike:
        """Tries actions from the present state of the attacked rows, on the host, and undoes them.

        ``simulator.step(actions)`` returns observations, rewards and ends (:class:`.Simulator`).

        Raises:
            SnapshotError: where there is nothing to simulate, or it cannot be saved or does not repeat.
        """
        state, label = self._state, self._applied.threat.label
        if self._step.final:
            raise SnapshotError(f"{label} cannot simulate from the last observation of an episode")
        return check_simulators(state.simulators, state.on_host, label)(self._rows)

    def inputs(self) -> dict[str, Any]:
        """Everything that an attack depends on and that differs from step to step: the inputs of a graph."""
        applied = self._applied
        clock = self._state.clock
        beside = applied.field.keys is not None or (not applied.on_observations and bool(applied.victims))
        inputs = {
            "part": self.part,
            "observation": self.observation if beside else None,
            "free": self.free,
            "mask": self.mask,
            "states": {id(victim): self.state(victim) for victim in applied.victims if victim.recurrent},
        }
        if clock.device == applied.device:  # keys are made in the graph: they are thirty kernels
            return {**inputs, "clock": (lambda: clock.root, lambda: clock.episode, lambda: clock.t)}
        return {**inputs, "keys": (lambda: self.key, lambda: self.episode_key)}

    # random numbers and moves within the budget

    @property
    def low(self) -> Tensor:
        """Lower bounds of the box."""
        return self.box[0]

    @property
    def high(self) -> Tensor:
        """Upper bounds of the box."""
        return self.box[1]

    @cached_property
    def unit(self) -> float | Tensor:
        """What a step of length one means: the budget's radius."""
        return self.budget.unit(*self.box)

    def bind(self, victim: Any, copies: int = 1) -> VictimView:
        """The victim at this step: attacks never see a recurrent state.

        With ``copies`` it takes so many points for every row, ``[B * copies, *S]``, those of a row side by side.
        """
        if copies == 1:
            return VictimView(victim, self.state(victim), self.fill, self.observation, self.look)
        state, whole = repeat(self.state(victim), copies), repeat(self.observation, copies)
        return VictimView(victim, state, self.fill and self._filled_into(whole), whole, self.look)

    def project(self, y: Tensor) -> Tensor:
        """``y`` drawn back into the budget (and onto the grid)."""
        return self.budget.project(y, self.x, *self.box, self.grid)

    def ascend(self, y: Tensor, gradient: Tensor, fraction: float | Tensor, spend: bool = False) -> Tensor:
        """``y`` moved up the gradient by ``fraction`` of the budget's radius and projected.

        ``fraction`` is a number, or one a row, ``[B, 1, ...]``. On an integer grid a step is at least one level: a
        tenth of eps would be rounded away. ``spend`` allows to write the result over the gradient.
        """
        inside = Feasible(self.x, *self.box, self.grid)
        return self.budget.ascend(y, gradient, self._length(fraction), inside, spend)

    def _length(self, fraction: float | Tensor) -> float | Tensor:
        step = fraction * self.unit
        if not self.grid:
            return step
        return step.clamp(min=1.0) if isinstance(step, Tensor) else max(step, 1.0)

    def signs(self) -> Tensor:
        """Fair signs of the shape and dtype of ``x``; under a budget of few features of as many, the others 0."""
        drawn = super().signs()
        if isinstance(self.budget, FewFeatures):  # equal signs would not choose between features
            drawn = drawn * self.budget.chosen(*self.box, self)
        return drawn

    def normals(self, count: int) -> Iterable[Tensor]:
        """``count`` independent draws, one after the other; small batches have them for the price of one."""
        key, size = self._next_key(), max(math.prod(self.shape), 1)
        if size * max(len(key), 1) * count <= _ALL:
            return iter(rng.normal(key, (count, *self.shape), self.dtype).unbind(1))
        return (rng.normal(key, self.shape, self.dtype, i * size) for i in range(count))

    def numbers(self, count: int) -> Tensor:
        """``count`` numbers in [0, 1) a row, ``[B, count]``, in the dtype of ``x``; every call is a new draw."""
        return rng.uniform(self._next_key(), (count,), self.dtype)

    def draw(self) -> Tensor:
        """A random point of the budget."""
        return self.budget.draw(self.x, *self.box, self, self.grid)

    def noise(self, kind: str, draws: Any = None) -> Tensor:
        """A random point of the budget.

        Args:
            kind: ``uniform``, ``sign`` or ``bernoulli`` (a radius up or down), or ``gaussian`` (of one radius).
            draws: has ``uniform()``, ``signs()`` and ``normal()``; None draws anew, with the key of the step.
        """
        draws = self if draws is None else draws
        if kind == "uniform":
            return self.budget.draw(self.x, *self.box, draws, self.grid)
        if kind in ("sign", "bernoulli"):
            return self.ascend(self.x, draws.signs(), 1.0)
        return self.project(self.x + self.budget.spread(self.x, *self.box) * draws.normal())


def place(part: Batch) -> torch.device:
    """Where an array or a tensor is."""
    return part.device if isinstance(part, Tensor) else _HOST
