"""The session: what the layers of one stack share.

It knows what was handed to the agent and holds the hidden state of every recurrent victim. The outermost layer records
what was handed out; victims advance from it once, when the environment answers the next action, and never on the dummy
step that NEXT_STEP autoreset plays for a finished row. So an attack at t sees the state produced by the ATTACKED
observations 0..t-1, as the agent itself does.
"""

from __future__ import annotations

import secrets
import weakref
from collections.abc import Callable
from typing import Any

import torch

from adv_wrappers.core.spaces import to_victim
from adv_wrappers.errors import OrderError
from adv_wrappers.utils.trees import merge, select


class Session:
    """Shared by the layers of one stack; ``rows=None`` is a single environment."""

    def __init__(self, rows: int | None) -> None:
        self.rows = rows
        self.roots = [secrets.randbits(64) for _ in range(rows or 1)]  # of the layers' keys, until a reset has a seed
        self._outermost: Callable[[], Any] | None = None  # weakly: a stack is freed at once when it is let go
        self.listening = False  # whether any layer needs to know what was handed out
        self.handed: Any = None
        self.shared: Any = None  # what an observation layer received that shares it
        self.due = False
        self._victims: dict[int, Any] = {}
        self._states: dict[int, Any] = {}
        self._before: dict[int, Any] | None = None

    @property
    def outermost(self) -> Any:
        """The layer that hands out what the agent gets."""
        return None if self._outermost is None else self._outermost()

    def __getstate__(self) -> dict[str, Any]:
        """A weak reference has no pickle: the layer itself goes with it."""
        return {**self.__dict__, "_outermost": self.outermost}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """After unpickling victims are other objects: the tables follow their new identities."""
        moved = {old: id(victim) for old, victim in state["_victims"].items()}
        for name in ("_victims", "_states", "_before"):
            if state[name] is not None:
                state[name] = {moved[old]: value for old, value in state[name].items()}
        layer = state["_outermost"]
        self.__dict__.update(state, _outermost=None if layer is None else weakref.ref(layer))

    def join(self, layer: Any, victims: list[Any], listen: bool) -> None:
        """Register a layer, which is now the outermost one, and the victims that it watches."""
        self._outermost = weakref.ref(layer)
        self.listening = self.listening or listen
        for victim in victims:
            if victim.recurrent and id(victim) not in self._victims:
                self.listening = True
                self._victims[id(victim)] = victim
                self._states[id(victim)] = victim.initial_state(self.rows or 1)

    def state(self, victim: Any, rows: Any = None, final: bool = False) -> Any:
        """Hidden state of a recurrent victim for some rows; ``final`` asks for the one before this step's autoreset."""
        states = self._before if final and self._before is not None else self._states
        return select(states.get(id(victim)), rows)

    def observation(self, reads: str | None, label: str) -> Any:
        """What an action layer looks at: what the agent acted on, or what an observation layer shares.

        Raises:
            OrderError: where no layer shares what it received.
        """
        if reads == "shared" and self.shared is None:
            raise OrderError(f"{label} shares its steers with a layer around it, and there is none")
        return self.shared if reads == "shared" else self.handed

    def begin(self, layer: Any) -> None:
        """A step begins: the next answer of the environment is due."""
        if layer is self.outermost:
            self.due = True

    def answered(self, moved: Any = None) -> None:
        """The environment answered: advance, once, the rows of ``moved`` (bool ``[B]``; None for all)."""
        if not self.due:
            return
        self.due, self._before = False, None
        for key, victim in self._victims.items():
            space = victim.observation_space
            obs = to_victim(self.handed, victim.dtype, victim.device, self.rows is not None, space=space)
            with torch.no_grad():
                new = victim.advance(obs, self._states[key])
            self._states[key] = new if moved is None else merge(torch.as_tensor(moved), new, self._states[key])

    def reset(self, mask: Any = None) -> None:
        """Initial states in the rows of ``mask``; None for all."""
        if not self._victims:
            return
        if self._before is None:
            self._before = dict(self._states)
        for key, victim in self._victims.items():
            fresh = victim.initial_state(self.rows or 1)
            self._states[key] = fresh if mask is None else merge(torch.as_tensor(mask), fresh, self._states[key])

    def hand(self, layer: Any, obs: Any) -> None:
        """Record what leaves the stack."""
        if self.listening and layer is self.outermost:
            self.handed = obs
