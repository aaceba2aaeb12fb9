"""The session: what the layers of one stack share.

It knows what the agent is shown and holds the hidden state of every recurrent victim. The outermost layer records
what it hands out; victims advance from it once, when the environment answers the next action, and never on the dummy
step that NEXT_STEP autoreset plays for a finished row. So an attack at t sees the state produced by the ATTACKED
observations 0..t-1, as the agent itself does.
"""

from __future__ import annotations

import secrets
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch

from adv_wrappers.core.spaces import to_victim
from adv_wrappers.core.types import Flags, Rows, VictimLike
from adv_wrappers.errors import OrderError
from adv_wrappers.utils.trees import merge, select


class Session:
    """Shared by the engines of one stack; ``rows=None`` is a single environment."""

    def __init__(self, rows: int | None) -> None:
        self.rows = rows
        self.roots = [secrets.randbits(64) for _ in range(rows or 1)]  # of the layers' keys, until a reset has a seed
        self._outermost: Callable[[], Any] | None = None  # weakly: a stack is freed at once when it is let go
        self.listening = False  # whether any layer needs to know what the agent is shown
        self.shown: Any = None
        self.shared: Any = None  # what an observation layer received that shares it
        self._due = False
        self._victims: dict[int, VictimLike] = {}
        self._states: dict[int, Any] = {}
        self._before: dict[int, Any] | None = None

    @property
    def outermost(self) -> object:
        """The engine whose layer hands out what the agent gets."""
        return None if self._outermost is None else self._outermost()

    def __getstate__(self) -> dict[str, Any]:
        """A weak reference has no pickle: the engine itself goes with it."""
        return {**self.__dict__, "_outermost": self.outermost}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """After unpickling victims are other objects: the tables follow their new identities."""
        moved = {old: id(victim) for old, victim in state["_victims"].items()}
        for name in ("_victims", "_states", "_before"):
            if state[name] is not None:
                state[name] = {moved[old]: value for old, value in state[name].items()}
        engine = state["_outermost"]
        self.__dict__.update(state, _outermost=None if engine is None else weakref.ref(engine))

    def add(self, engine: object, victims: Sequence[VictimLike], listen: bool) -> None:
        """Register an engine, whose layer is now the outermost one, and the victims that it looks at."""
        self._outermost = weakref.ref(engine)
        self.listening = self.listening or listen
        for victim in victims:
            if victim.recurrent and id(victim) not in self._victims:
                self.listening = True
                self._victims[id(victim)] = victim
                self._states[id(victim)] = victim.initial_state(self.rows or 1)

    def state(self, victim: object, rows: Rows = None, final: bool = False) -> Any:
        """Hidden state of a recurrent victim for some rows; ``final`` asks for the one before this step's autoreset."""
        states = self._before if final and self._before is not None else self._states
        state = states.get(id(victim))
        return None if state is None else select(state, rows)

    def observation(self, reads: str | None, label: str) -> Any:
        """What an action layer looks at: what the agent acted on, or what an observation layer shares.

        Raises:
            OrderError: where no layer shares what it received.
        """
        if reads == "shared" and self.shared is None:
            raise OrderError(f"{label} shares its actions with a layer around it, and there is none")
        return self.shared if reads == "shared" else self.shown

    def begin_step(self, engine: object) -> None:
        """A step begins: victims advance at the next answer of the environment."""
        if engine is self.outermost:
            self._due = True

    def end_step(self, moved: Flags | None = None) -> None:
        """The environment answered: advance, once, the rows of ``moved`` (bool ``[B]``; None for all)."""
        if not self._due:
            return
        self._due, self._before = False, None
        # each victim's state goes on from what the agent was shown
        for key, victim in self._victims.items():
            space = victim.observation_space
            obs = to_victim(self.shown, victim.dtype, victim.device, self.rows is not None, space=space)
            with torch.no_grad():
                new = victim.advance(obs, self._states[key])
            self._states[key] = new if moved is None else merge(torch.as_tensor(moved), new, self._states[key])

    def reset(self, mask: Flags | None = None) -> None:
        """Initial states in the rows of ``mask``; None for all."""
        if mask is None:
            self._due = False
        if not self._victims:
            return
        if self._before is None:
            self._before = dict(self._states)
        for key, victim in self._victims.items():
            fresh = victim.initial_state(self.rows or 1)
            self._states[key] = fresh if mask is None else merge(torch.as_tensor(mask), fresh, self._states[key])

    def show(self, engine: object, observation: Any) -> None:
        """Record what leaves the stack."""
        if self.listening and engine is self.outermost:
            self.shown = observation
