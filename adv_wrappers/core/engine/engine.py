"""The engine of one layer: when it attacks, with what, within which budget, and what it remembers.

A wrapper calls it four times: :meth:`Engine.begin_episode` after a reset, :meth:`Engine.act` before the environment's
step, :meth:`Engine.end_step` after it, and :meth:`Engine.observe` for every new observation. The order in which clock,
memory, hidden states and frames begin anew is written here and nowhere else.

An attack proposes, and is not trusted: the engine projects what comes back onto the budget, and rows that are not
attacked keep their bytes.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from adv_wrappers.accel import cuda_graphs, transfer
from adv_wrappers.core import rng
from adv_wrappers.core.arrays import broad, tensor_of
from adv_wrappers.core.budgets.budget import Valid
from adv_wrappers.core.budgets.frame_stack import FrameHistory, Newest, frames_of
from adv_wrappers.core.engine import numpy_backend, torch_backend
from adv_wrappers.core.engine.clock import Clock, Seeds
from adv_wrappers.core.engine.context import AppliedThreat, AttackedStep, Context, LayerState
from adv_wrappers.core.engine.session import Session
from adv_wrappers.core.engine.simulator_protocol import MakesSimulators, check_simulators
from adv_wrappers.core.parameter_space import ParameterSpace
from adv_wrappers.core.perturbation import Perturbation, SimulatingPerturbation, When
from adv_wrappers.core.spaces import Field, numbered_as
from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.core.types import Batch, Counter, Flags, Leaves, Rows, Space, VictimLike
from adv_wrappers.errors import OrderError, SpaceError, ThreatError
from adv_wrappers.utils import trees
from adv_wrappers.utils.trees import merge

Autoreset = Literal["disabled", "next step", "same step"]

_GATES = 1 << 40  # streams of ProbabilisticTiming, apart from those of layers
_TIMING = 1 << 20  # draws of a timing, apart from those of its perturbation


class Wrapped(NamedTuple):
    """The environment around which a layer is, as far as its engine has to know it.

    Attributes:
        observation_space, action_space: of one row.
        rows: number of rows of a vector environment; None for a single environment.
        autoreset: what it does with a row whose episode is over: nothing, or a reset instead of the next step, or a
            reset within the same step.
        device: where its tensors live; None for an environment on the host.
        simulators: makes the simulator of a step; None where there is no environment to simulate.
        parameters: those of its dynamics, for a layer that changes them.
    """

    observation_space: Space
    action_space: Space
    rows: int | None = None
    autoreset: Autoreset = "disabled"
    device: torch.device | None = None
    simulators: MakesSimulators | None = None
    parameters: ParameterSpace | None = None


class Engine:
    """One layer of a stack.

    Args:
        threat: what to do.
        wrapped: the environment.
        victim: fills in what the threat leaves open. Choices are numbered as it numbers them, or the threat's own one
            does: from 0, whatever ``start`` is, where it is an agent of Stable-Baselines3.
        beneath: the engine of the next layer beneath, whose session is shared; None for the innermost layer.
        stream: number of layers beneath, which tells this layer's draws from theirs.

    Attributes:
        threat: as it is applied, every victim filled in.
        attacked: rows whose newest observation (of an action layer: whose last action) was attacked.
        true: the newest observation (of an action layer: the last action) as it came in, or None.
        sent: the last action, or the last physical parameters, as they were passed on, or None.
        applied: the threat, resolved for this layer: what does not change between steps.
        state: what the layer keeps from step to step.
    """

    def __init__(
        self,
        threat: ThreatModel,
        wrapped: Wrapped,
        *,
        victim: VictimLike | None = None,
        beneath: Engine | None = None,
        stream: int = 0,
    ) -> None:
        self.observation_space, self.action_space = wrapped.observation_space, wrapped.action_space
        self.batched = wrapped.rows is not None
        self.stream = stream
        self.autoreset = wrapped.autoreset
        self.parameters = wrapped.parameters
        # the layers of a stack share a session, the innermost one makes it
        session = Session(wrapped.rows) if beneath is None else beneath.session
        self.session: Session = session
        self.state = LayerState(Clock(wrapped.rows, wrapped.device, session.roots), session, wrapped.simulators)
        self.attacked: Flags = False
        self.true: Any = None
        self.sent: Any = None
        self.gates: list[When] = []
        # Any: of Flags mypy does not know what ~ and & give for all of the three kinds
        self._fresh: Any = True  # rows whose newest observation is new: after a partial reset only some
        self._over: Any = False  # rows whose newest observation ends their episode: nobody acts on it
        self._history: FrameHistory | None = None
        self.set_threat(threat, victim)
        # a layer that acts before the step has to know what the agent was shown
        acting = not self.applied.on_observations and not self.applied.sees_own
        listens = acting and (bool(self.applied.victims) or self.applied.reads is not None)
        session.add(self, self.applied.victims, listens)

    # what does not change between steps

    def set_threat(self, threat: ThreatModel, victim: VictimLike | None = None) -> None:
        """Take a threat, after checking that it can work here; it holds from the next attack on.

        ``victim`` fills in what it leaves open; without one, the victim that the rest of it has does.

        Raises:
            AdvWrappersError: one of its kinds, for a threat that cannot work here; the old one then stays.
        """
        threat = threat.resolve(victim)
        # choices are numbered as the victim numbers them, and the threat has to work on these spaces
        for agent in threat.victims[:1] if victim is None else (victim,):
            self.observation_space = numbered_as(agent.observation_space, self.observation_space)
            self.action_space = numbered_as(agent.action_space, self.action_space)
        field = threat.check(self.observation_space, self.action_space, self.parameters)
        state = self.state
        within = threat.budget
        how = threat.how
        if getattr(how, "simulates", False):
            simulators = check_simulators(state.simulators, self.on_host, threat.label)  # raises where there are none
            simulators.record()
            if isinstance(how, SimulatingPerturbation):
                how.check_simulated(simulators.feature_names)

        # what was kept under the threat before stays as far as it means the same: a new budget erases nothing
        before: ThreatModel | None = getattr(self, "threat", None)
        if before is None or frames_of(before.budget) != frames_of(within):
            self._history = FrameHistory(within, field.shape) if isinstance(within, Newest) else None
        if before is None or before.budget != within:
            state.last_step = within.last_step(state.last_step)
        state.free = None
        self.threat = threat
        self.applied: AppliedThreat = self._applied(field)
        another = before is None or before.how is not how
        if another:
            self._begin_memory()
        self._speed_up(another)
        self._at_once = self._attacks_at_once()

    def to(self, device: torch.device) -> None:
        """Move to the device on which the environment turned out to live: clock and schedule live there too."""
        state = self.state
        if state.clock.device is None:
            state.clock = Clock(state.clock.rows, device, self.roots)
            self.applied = self._applied(self.applied.field)
            self._speed_up()

    def _applied(self, field: Field) -> AppliedThreat:
        """The threat as it is applied to a field here: with these spaces, rows and device."""
        threat = self.threat
        clock = self.state.clock
        how = self.threat.how
        # where the attack computes: on its victim's device, to and from which values on the host are sent
        victim = threat.victims[0] if threat.victims else None
        budget = threat.budget.frame
        on_observations = threat.on == "observation"
        native = isinstance(how, Perturbation) and how.native
        device = victim.device if victim else clock.device
        moves = transfer.between(device) if clock.device is None and device is not None else None
        return AppliedThreat(
            threat=threat,
            how=how,
            when=threat.when,
            blind=isinstance(threat.when, When) and threat.when.blind,
            declines=getattr(how, "declines", False),
            victims=threat.victims,
            field=field,
            budget=budget,
            observation_space=self.observation_space,
            rows=clock.rows,
            stream=self.stream,
            on_observations=on_observations,
            sees_own=threat.on in ("dynamics", "reward"),
            reads=None if on_observations else getattr(how, "observes", None),
            shares=getattr(how, "observes", None) == "shared" and on_observations,
            native=native,
            # a native perturbation of whole uint8 images cannot leave its space: nothing to search, or to project
            unbounded=native and isinstance(budget, Valid) and field.whole and victim is None,
            framed=self._history is not None,
            dtype=victim.dtype if victim else torch.float32 if field.exact == torch.float16 else field.exact,
            device=device,
            # devices other than CUDA may lack the dtype of true values, which then stay where they are
            home=device if device is not None and device.type == "cuda" else None,
            transfer=moves,
            look=clock.device is None and moves is None,
        )

    def _speed_up(self, another: bool = False) -> None:
        """Choose what speeds up an attack on this device; ``another`` is whether it is another perturbation's."""
        applied = self.applied
        state = self.state
        before = self.state.graphs
        able = (
            getattr(applied.how, "capturable", False)
            and state.memory is None
            and not applied.unbounded
            and not applied.look
        )
        # CUDA graphs of what can be captured, numpy for what needs no tensors
        able = able and state.last_step is None  # of which a graph knows nothing
        record = cuda_graphs.recorder_for(applied.device) if able and applied.device is not None else None
        state.graphs = None if record is None else cuda_graphs.GraphCache(record, self.threat.label, applied.victims)
        if state.graphs is not None and before is not None and not another:
            state.graphs.fault = before.fault  # another budget does not mend an attack
        self.in_numpy = None if applied.victims else numpy_backend.attack_of(applied, state)

    def _attacks_at_once(self) -> bool:
        """Whether the clock alone says when: neither the observation, nor a gate, nor the perturbation itself."""
        applied = self.applied
        remembers = self._history is not None or self.state.last_step is not None
        looks = not applied.on_observations or remembers or applied.shares or applied.declines
        return not looks and not self.gates and (applied.when is None or applied.blind)

    def add_gate(self, gate: When, root: int | None = None) -> None:
        """Let this layer attack only where a timing agrees that looks at nothing but the clock and draws.

        ``root`` is the key of draws until a reset has a seed, for a layer inside one row of a vector.
        """
        self.gates.append(gate)
        self._at_once = False
        if root is not None:
            self.clock.root = root

    def remove_gate(self, gate: When) -> None:
        """Undo :meth:`add_gate`."""
        self.gates.remove(gate)
        self._at_once = self._attacks_at_once()

    # the four calls of a wrapper

    def begin_episode(self, seeds: Seeds = None, mask: Flags | None = None) -> None:
        """The environment was reset: episodes begin.

        Args:
            seeds: what it was reset with, of :func:`.clock.row_seeds`; a row with a seed starts its
                draws anew.
            mask: bool ``[B]``, the rows that were reset; None for all. The next :meth:`observe` lets the others keep
                what they were shown last.
        """
        self.state.clock.reset(seeds, mask)
        self.true, self.attacked = None, False
        self._forget(mask)
        if mask is None:
            self._fresh, self._over = True, False
        else:
            self._fresh = mask
            if self._over is not False:
                self._over = self._over & ~mask

    def act(self, action: Any, mask: Tensor | None = None) -> Any:
        """The action, or the physical parameters, that the environment gets; a step begins.

        Args:
            action: of the agent; or the parameters as they would be.
            mask: action mask, bool ``[B, A]``, where the environment gave one.
        """
        if self.session.listening:
            self.session.begin_step(self)
        self.sent = action
        last = self.state.last_step
        if last is not None:
            last.act(action, self.action_space)
        return action if self.applied.on_observations else self.perturb(action, mask)

    def perturb(self, action: Any, mask: Tensor | None = None) -> Any:
        """What is not an observation, as it goes on: an action, physical parameters or, after the step, the reward."""
        last = self.state.last_step
        # in NEXT_STEP the action after an end only resets: it is nobody's
        over: Any = self._over if self.autoreset == "next step" else False
        attacked = self.decide(action, True if over is False else ~over, mask=mask)
        if attacked is False:
            self.true, self.attacked = action, False
            if last is not None:
                self._remember_step(action, action, True if over is False else ~over)
            return action
        # attacked, remembered where the next step's budget depends on it, and counted
        self.sent = self.apply(action, attacked, mask=mask)
        if last is not None:
            self._remember_step(action, self.sent, True if over is False else ~over)
        self.state.clock.count(attacked)
        return self.sent

    def end_step(self, done: Flags, final: Any = None) -> Any:
        """The environment has answered: the clock moves on, and rows turn to their next episode.

        Args:
            done: rows that are terminated or truncated by this step.
            final: last observations of the rows of ``done``, ``[B, *S]``, where the environment resets rows within
                the same step; what the other rows hold is not looked at.

        Returns:
            ``final`` attacked, under the clock of the episode that ends; it counts against no budget.
        """
        if not self.batched:
            if self.session.listening:
                self.session.end_step()
            self.state.clock.tick()
            self._over, self._fresh = done, True
            return final
        # rows that this step has only reset turn to their next episode; the others have moved on
        turned: Any = self._over if self.autoreset == "next step" and self._any(self._over) else False
        moved = None if turned is False else ~turned
        if self.session.listening:
            self.session.end_step(moved)
        self.state.clock.tick(True if moved is None else moved)
        # in SAME_STEP the last observation is attacked before the row forgets its episode
        if self.autoreset == "same step":
            if final is not None and self.applied.on_observations:
                final, _ = self._shown(final, done, True)
            turned = done
        else:
            self._over = done
        if self._any(turned):
            self.clock.next_episode(turned)
            self._forget(turned)
        self._fresh = True
        return final

    def _any(self, rows: Flags) -> bool:
        """Whether a mask may hold a row; no device is asked."""
        return rows is not False and (self.state.clock.device is not None or bool(np.count_nonzero(rows)))

    def observe(self, observation: Any, rows: Flags | None = None) -> Any:
        """An observation as the next layer, or the agent, gets it.

        Args:
            observation: what came in, ``[*S]`` or ``[B, *S]``.
            rows: bool ``[B]``, the rows that may be attacked; None for all that are new. After a partial reset the
                others stay as they were shown last.
        """
        fresh: Any = self._fresh if rows is None else rows
        shown = observation
        attacked: Flags = False
        if self._at_once and fresh is True:  # a step that is not attacked does little else
            when = self.applied.when
            attacked = True if when is None else when.decide(self)
            if attacked is False:
                self.true, self.attacked = observation, False
            else:
                shown = self.apply(observation, attacked)
        elif self.applied.on_observations:
            shown, attacked = self._shown(observation, fresh, False)
        # an observation on which nobody acts counts against no budget
        if attacked is not False and self._over is not True:
            self.state.clock.count(attacked if self._over is False else attacked & ~self._over)
        # rows that are not new keep what they were shown
        state = self.state
        if self.batched and fresh is not True and rows is None and state.shown is not None:
            shown = trees.merge(fresh, shown, state.shown)
        state.shown = shown
        if self.session.listening:
            self.session.show(self, shown)
        return shown

    # what wrappers, evaluations and adversaries may look at

    @property
    def clock(self) -> Clock:
        """Step, episode and attacks of every row."""
        return self.state.clock

    @property
    def shown(self) -> Any:
        """The newest observation as it was passed on, or None."""
        return self.state.shown

    @property
    def memory(self) -> Leaves | None:
        """What the perturbation remembers, leaves ``[rows, ...]``; None for nothing."""
        return self.state.memory

    @property
    def t(self) -> Counter:
        """Step within the episode."""
        t: Counter = self.clock.t
        return t

    @property
    def spent(self) -> Counter:
        """Attacks of this episode."""
        spent: Counter = self.clock.spent
        return spent

    @property
    def on_host(self) -> bool:
        """Whether clock and schedule are on the host."""
        return self.state.clock.device is None

    @property
    def roots(self) -> list[int]:
        """Keys of the rows that no reset has given a seed."""
        return self.session.roots

    def hidden_state(self, victim: VictimLike, rows: Rows = None) -> Any:
        """Hidden state of a recurrent victim for some rows; None for a feed-forward one."""
        return self.session.state(victim, rows)

    def chance(self, path: int, stream: int | None = None) -> Any:
        """Uniform number in [0, 1) a row, from the layer's stream or from a gate's."""
        key = rng.fold(self.state.clock.key(), self.stream if stream is None else _GATES + stream)
        return rng.uniform_of(rng.fold(key, _TIMING + path) if stream is None else key)

    def count_attacks(self, attacked: Flags) -> None:
        """Count attacks that another layer made against the budget of this one's episode."""
        self.state.clock.count(attacked)

    def set_memory(self, leaves: Leaves) -> None:
        """Put leaves ``[rows, ...]`` in the place of what the perturbation remembers: an adversary's own actions."""
        self.state.memory = leaves

    def _begin_memory(self, mask: Flags | None = None) -> None:
        applied = self.applied
        state = self.state
        fresh = None
        how: Any = applied.how
        if isinstance(how, Perturbation) and type(how).initial_memory is not Perturbation.initial_memory:
            dtype = tensor_of(np.zeros(0, applied.field.dtype)).dtype if applied.native else applied.dtype
            fresh = how.initial_memory(torch.zeros(applied.batch_shape, dtype=dtype, device=applied.device))
        state.memory = fresh if mask is None or fresh is None else merge(torch.as_tensor(mask), fresh, state.memory)

    def _forget(self, mask: Flags | None = None) -> None:
        """Begin memory, hidden states and frames anew in the rows of ``mask``; None for all."""
        self._begin_memory(mask)
        if self._history is not None:
            self._history.forget(mask)
        if self.state.last_step is not None:
            self.state.last_step.forget(mask)
        self.session.reset(mask)

    # one attack

    def _shown(self, value: Any, eligible: Flags, final: bool) -> tuple[Any, Flags]:
        """An observation as the agent gets it, and which rows were attacked.

        Under Newest the frames of the past come out as they were shown, whether a row is attacked or not.
        """
        if self.applied.shares and not final:
            self.session.shared = value
        if self._history is None:
            attacked = self.decide(value, eligible, final)
            shown = self.apply(value, attacked, final)
            if self.state.last_step is not None and not final:
                self._remember_step(value, shown, eligible)
            return shown, attacked
        # frames of the past as they were shown, then the attack on the newest one, which is remembered
        field = self.applied.field
        part = field.take(value, self.batched)
        stack, self.state.free = self._history.recall(true := tensor_of(part))
        recalled = field.give(value, field.native(stack, part), self.batched)
        attacked = self.decide(recalled, eligible, final)
        shown = self.apply(recalled, attacked, final)
        if not final:
            self._history.remember(true, tensor_of(field.take(shown, self.batched)), eligible)
        self.true = value
        return shown, attacked

    def _remember_step(self, true: Any, shown: Any, rows: Flags) -> None:
        """Keep this step for the next."""
        field, last = self.applied.field, self.state.last_step
        assert last is not None
        before, after = (field.exactly(tensor_of(field.take(part, self.batched))) for part in (true, shown))
        last.remember(before, after, rows)

    def decide(self, value: Any, eligible: Flags = True, final: bool = False, mask: Tensor | None = None) -> Flags:
        """Which rows are attacked: a bool, or bool ``[B]``."""
        attacked = self._timed(value, eligible, final)
        return self._accepted(value, attacked, final, mask) if self.applied.declines else attacked

    def _timed(self, value: Any, eligible: Flags, final: bool) -> Flags:
        """The rows that gates and timing allow: a bool, or bool ``[B]``.

        Args:
            value: the observation or action as it came in.
            eligible: the rows that may be attacked.
            final: whether the observation is the last of its episode.

        Raises:
            ThreatError: for a timing that answers with anything but a bool, or one a row.
        """
        attacked, when = eligible, self.applied.when
        for gate in self.gates:
            attacked = attacked & gate.decide(self)
        if when is None or attacked is False:
            return attacked
        if self.applied.blind:
            allowed: Flags = attacked & when.decide(self)
            return allowed
        if not isinstance(attacked, Tensor) and not np.any(attacked):
            return attacked
        # timings that look at the observation or at the victim
        context = Context(AttackedStep(self.applied, self.state, value, self.part_of(value), None, final))
        seen: Any = when.look(context.x, context, self) if isinstance(when, When) else when(context.x, context)
        if isinstance(seen, bool):
            return attacked & seen
        # one answer a row, brought to where the clock is
        if isinstance(seen, Tensor) and self.on_host:
            moves = self.applied.transfer
            seen = seen.numpy() if moves is None else moves.down(seen)[0].copy()
        if getattr(seen, "dtype", None) not in (np.bool_, torch.bool) or tuple(seen.shape) != (len(context.x),):
            raise ThreatError(f"a timing must return a bool, or one a row ({len(context.x)}), got {seen!r:.80}")
        return attacked & (seen if self.batched else bool(seen[0]))

    def _accepted(self, value: Any, attacked: Flags, final: bool, mask: Tensor | None) -> Flags:
        """Those of the attacked rows that the perturbation does not decline; the others are not even asked.

        What it writes into its memory while it decides stays there.

        Args:
            value, final: as for :meth:`_timed`.
            attacked: the rows that the timing allows.
            mask: action mask, where the environment gave one.

        Raises:
            ThreatError: for an answer that is no bool a row.
        """
        if not isinstance(attacked, Tensor) and not np.any(attacked):
            return False
        rows = np.flatnonzero(attacked) if isinstance(attacked, np.ndarray) and self.on_host else None
        context = Context(AttackedStep(self.applied, self.state, value, self.part_of(value), rows, final, mask))
        with torch.no_grad():
            answer = self.applied.how.accepts(context.x, context)
        count = len(context.x)
        if not isinstance(answer, Tensor) or answer.dtype != torch.bool or tuple(answer.shape) != (count,):
            raise ThreatError(
                f"{self.threat.label} must accept or decline with one bool a row ({count}), got {answer!r:.80}"
            )
        # what it has written while it decided stays, whatever it decided
        if self.state.memory is not None and context.memory is not None:
            everyone: Flags = attacked if isinstance(attacked, Tensor) else True
            self.state.remember(context.memory, everyone if rows is None else rows)
        if not self.on_host:
            return attacked & answer
        # back from the rows that were asked to all rows
        chosen = answer.cpu().numpy()
        if rows is None or not isinstance(attacked, np.ndarray):
            return chosen if self.batched else bool(chosen[0])
        whole = np.zeros(len(attacked), np.bool_)
        whole[rows] = chosen
        return whole

    def part_of(self, value: Any) -> Batch:
        """The part of an observation, or of an action, that is perturbed, ``[B, *S]``."""
        part = self.applied.field.take(value, self.batched)
        if part.shape != self.applied.batch_shape:
            raise SpaceError(f"expected a batch of shape {self.applied.batch_shape}, got {tuple(part.shape)}")
        return part

    def apply(self, value: Any, attacked: Flags = True, final: bool = False, mask: Tensor | None = None) -> Any:
        """``value`` with the attacked rows perturbed; what came in is not written to."""
        self.true, self.attacked = value, attacked
        if attacked is False:
            return value
        applied, rows = self.applied, None
        on_host = self.state.clock.device is None
        if attacked is not True and on_host:
            rows = np.flatnonzero(attacked)
            if len(rows) == 0:
                return value
            rows = None if len(rows) == len(attacked) else rows
        device = applied.device
        if device is not None and device.type == "cuda" and torch.cuda._is_in_bad_fork():
            raise OrderError(
                f"{self.threat.label} computes on {device} inside a forked worker, where CUDA does not work: wrap "
                f"the vector environment in this process instead (one batched attack), or use context='spawn'"
            )

        # the rows, perturbed in numpy where that is enough, else in torch
        part: Any = self.part_of(value)
        step = AttackedStep(applied, self.state, value, part, rows, final, mask)
        out: Any = None if self.in_numpy is None else self.in_numpy(step)
        if out is None:
            out = torch_backend.perturbed(step, True if on_host else attacked)

        # all rows: those that are not attacked keep their bytes
        if rows is not None:
            whole = part.astype(out.dtype)
            whole[rows] = out
            out = whole
        elif not on_host and isinstance(attacked, Tensor):
            out = torch.where(broad(attacked, out), out, part)
        return applied.field.give(value, out, self.batched)
