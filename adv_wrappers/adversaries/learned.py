"""Learned: a trained adversary as an ordinary perturbation."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from gymnasium import spaces
from torch import Tensor
from torch.nn import functional

from adv_wrappers.adversaries.actor import Actor, ActorPerturbation, check_actions
from adv_wrappers.adversaries.director import Director, load_director, save_director
from adv_wrappers.core.arrays import flat_rows
from adv_wrappers.core.budgets.budget import Budget, Valid
from adv_wrappers.core.engine.context import Context
from adv_wrappers.core.perturbation import Observes, On, When, expect_victim
from adv_wrappers.core.serialization import decode, encode
from adv_wrappers.core.spaces import Field
from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.core.types import Counter, Space
from adv_wrappers.errors import CardError, OrderError, ThreatError
from adv_wrappers.registry import OBSERVE
from adv_wrappers.utils.checks import check_choice
from adv_wrappers.utils.frozen import set_fields
from adv_wrappers.victims.references import load_referenced


@dataclass(frozen=True)
class Learned(ActorPerturbation):
    """At every attack the director chooses an action at the true observation, and the actor perturbs accordingly.

    Actions beyond [-1, 1] are scaled back as a whole where the actor takes a direction. Where it takes values
    (``SARL``, targets) they are clipped, with one warning, unless the director is a :class:`Director` with
    ``clip=True``.

    A recurrent director has a method ``initial_state(rows)``, which returns tensors ``[rows, ...]`` (one, or a tuple),
    and is called as ``(x, state) -> (action, state)``. Every row has a state of its own, which begins anew with every
    episode. It moves at the steps that are attacked: under a timing other than ``always`` the director has not seen the
    steps in between, while in :class:`adv_wrappers.AdversaryEnv` it sees all of them.

    Args:
        director: a module from observations ``[B, *S]`` to actions ``[B, *A]``, or a recurrent one as above; None to
            load ``card``.
        actor: turns the director's action into a perturbation, such as :class:`.SARL` or :class:`.Hybrid`.
        card: a folder that :meth:`save` or a training wrote.
        sha256: hash of the weights; a folder with others is refused. Filled in from the folder.
        observe: what the director observes: ``"state"``; ``"state+action"``, with the victim's action appended
            (:func:`append_actions`); or ``"state+action+spent"``, with the number of attacks of the episode so far too.
        victim: the victim that the actor uses; None for the actor's own, or the one of the card.
        within, when: what a threat takes that gives no budget and no timing: those that the adversary was trained with
            (the action part of a hybrid: always its ``reach``). ``when="always"`` (or :class:`adv_wrappers.Always`)
            takes a timing away.
        part: of a hybrid, ``"observation"`` or ``"action"``. A hybrid is two layers: ``wrap`` and ``evaluate`` make
            them of the whole (None), a single wrapper takes a part.

    Raises:
        CardError: for a folder that holds no adversary, or another one than ``sha256`` says.
        VictimError: for a card whose victim cannot be loaded, or has other weights than it had.
    """

    name: ClassVar[str] = "learned"
    director: Any = field(default=None, compare=False)
    actor: Any = None
    card: str | None = None
    sha256: str | None = None
    observe: str | None = None
    part: str | None = None
    victim: Any = None
    within: Budget | None = None
    when: Any = None
    trained_on: str | None = field(default=None, init=False, repr=False, compare=False)  # hash of the victim's weights
    _weights: Any = field(default=None, init=False, repr=False)  # distinguishes two directors
    _warnings: list[str] = field(default_factory=list, init=False, repr=False, compare=False)  # that were given

    def __post_init__(self) -> None:
        for name in ("card", "sha256"):
            if not isinstance(value := getattr(self, name), (str, Path, type(None))):
                raise ThreatError(f"{name} of an adversary is a text, got {value!r:.80}")
        # from the folder: the director, and whatever the arguments leave open
        if self.card is not None and self.director is None:
            director, card = load_director(self.card)
            found = director.fingerprint_of_weights()
            if self.sha256 not in (None, found):
                raise CardError(f"the adversary in {self.card} changed: expected {self.sha256:.12}, got {found:.12}")
            set_fields(self, director=director, sha256=found, observe=self.observe or card.get("observe"))
            if self.actor is None:
                set_fields(self, actor=decode(card["actor"], load_referenced))
            for name in ("within", "when"):
                if getattr(self, name) is None and card.get(name):
                    set_fields(self, **{name: decode(card[name], load_referenced)})
            set_fields(self, trained_on=(card.get("victim") or {}).get("sha256"))
        set_fields(self, observe=self.observe or OBSERVE[0])
        if not callable(self.director) or not isinstance(self.actor, Actor):
            raise ThreatError(
                f"learned needs a folder, card=FOLDER, or a director (a function from observations to actions) and an "
                f"actor; got {self.director!r:.40} and {self.actor!r:.40}"
            )
        check_choice("observe", self.observe, OBSERVE, error=ThreatError)
        expect_victim(self.name, self.victim)
        # the actor perturbs for the victim at hand, whichever one it was trained against
        if self.victim is not None:
            set_fields(self, actor=self.actor.open().against(self.victim))
        set_fields(self, victim=self.actor.victim, _weights=self.sha256 or id(self.director))
        # of a hybrid two layers are made, one for each part of its actions
        if self.part is not None and (not self._hybrid or self.part not in self.actor.parts):
            raise ThreatError(f"part is 'observation' or 'action', of a hybrid; got {self.part!r}")
        own = self.actor.parts[self.on][1]
        set_fields(self, within=own or self.within or self.actor.within)

    @property
    def _hybrid(self) -> bool:
        return len(self.actor.parts) > 1

    @property
    def on(self) -> On:
        return self.part or self.actor.on  # type: ignore[return-value]

    @property
    def needs_victim(self) -> bool:
        return bool(self.actor.needs_victim or self.observe != OBSERVE[0])

    @property
    def observes(self) -> Observes | None:
        if self._hybrid:
            return "shared"
        return "shown" if self.on == "action" else None

    def label(self, within: Budget) -> str:
        """``learned`` and what it is: an actor's name, or ``hybrid``, and the name of the folder that it is from."""
        folder = "" if self.card is None else f" {Path(self.card).name}"
        return f"{self.name} {self.actor.label}{folder}" + (f" ({self.part})" if self.part else "")

    def check(self, field: Field, within: Budget) -> None:
        """Raise for a whole hybrid, which no single layer can be, and for a director of other spaces."""
        self.actor.parts[self.on][0].check(field, within)
        if self._hybrid and self.part is None:
            raise OrderError("a hybrid adversary is two layers: wrap(env, it) or evaluate(..., [it]), or give part=")
        if isinstance(self.director, Director) and self.victim is not None:
            self.director.check(self.victim.observation_space, self.actor.action_space(field.shape), str(self.observe))

    def layers(self, threat: ThreatModel) -> list[ThreatModel]:
        """The threats that a threat with this adversary stands for, innermost first: two for a hybrid."""
        if not self._hybrid or self.part is not None:
            return [threat]
        action, state = (replace(self, part=part) for part in ("action", "observation"))
        return [ThreatModel("action", action, action.within, threat.when), replace(threat, how=state)]

    def to_dict(self) -> dict[str, Any]:
        if self.card is None:
            raise ThreatError("an adversary without a folder has no JSON form: save(folder) returns one that has")
        data = {"type": self.name, "card": self.card, "sha256": self.sha256}
        data |= {} if self.victim is None else {"victim": encode(self.victim)}
        return data if self.part is None else {**data, "part": self.part}

    def save(self, folder: str | Path, within: Budget | None = None, training: dict[str, Any] | None = None) -> Learned:
        """Write the adversary to a folder, with budget, timing and a record of its training; what was saved.

        A victim without a reference cannot be named in a file: whoever loads the adversary from there fills it in, as
        ``evaluate`` and ``wrap`` do.

        Raises:
            CardError: for a director that is not a :class:`Director`, and a timing that is a bare function.
        """
        if not isinstance(self.director, Director):
            more = ", which may have an nn.LSTM among its layers," if _has_state(self.director) else ""
            raise CardError(f"only a Director{more} can be saved, got {type(self.director).__name__}")
        if self.when is not None and not isinstance(self.when, When):
            raise CardError(f"a card holds timings such as Bernoulli(0.5), not the function {self.when!r:.60}")
        # what the folder says beside the director's weights
        within = within or self.within
        victim = self.victim
        about = {
            "observe": self.observe,
            "actor": (self.actor if victim is None or victim.ref else self.actor.open()).to_dict(),
            "victim": None if victim is None else {"ref": victim.ref, "sha256": victim.fingerprint()},
            "within": None if within is None else within.to_dict(),
            "when": None if self.when is None else self.when.to_dict(),
            "training": training or {},
        }
        save_director(folder, self.director, about)
        return Learned(card=str(folder), victim=victim)

    def initial_memory(self, x: Tensor) -> dict[str, Tensor] | None:
        """The director's state, and the action that :meth:`accepts` chose where the actor may decline."""
        leaves = self._initial_state(len(x))
        if not self.declines:
            return leaves or None
        return {**leaves, _ACTION: torch.zeros(len(x), dtype=torch.int64)}

    def _initial_state(self, rows: int) -> dict[str, Tensor]:
        if not _has_state(self.director):
            return {}
        state = self.director.initial_state(rows)
        leaves = _named(state)
        if leaves is None or any(leaf.dim() == 0 or len(leaf) != rows for leaf in leaves.values()):
            raise ThreatError(
                f"initial_state({rows}) must be a tensor [{rows}, ...] or a tuple of them, got {state!r:.80}"
            )
        return leaves

    def accepts(self, x: Tensor, context: Context) -> Tensor:
        """Rows that the director's actions attack; :meth:`__call__` finds the actions in the memory."""
        assert context.memory is not None
        action = self._action(x, context)
        context.memory[_ACTION] = action.to(context.memory[_ACTION])
        return self.actor.accepts(x, action, context)  # type: ignore[no-any-return]

    def __call__(self, x: Tensor, context: Context) -> Tensor:
        decided = self.declines and context.memory is not None
        action = context.memory[_ACTION].to(x.device) if decided else self._action(x, context)  # type: ignore[index]
        return self.actor.parts[self.on][0](x, action, context)  # type: ignore[no-any-return]

    def _action(self, x: Tensor, context: Context) -> Tensor:
        """The director's actions ``[B, *A]``, in the actor's space."""
        seen = x if self.on == "observation" else context.observation
        # a director may also see the action that the victim would take, and how much of its budget is spent
        if self.observe != "state":
            alone = self.observes == "shown"  # then the action is the one that is perturbed
            bound = context.bind(self.victim)
            victim_action = x if alone else self.victim.mode(bound.params(None if self.on == "observation" else seen))
            seen = append_actions(seen, victim_action, self.victim.action_space)
        if self.observe == OBSERVE[2]:
            seen = append_spent(seen, context.spent)
        # its actions, with the state that a recurrent director carries from step to step
        memory = self.initial_memory(x) if context.memory is None else context.memory
        action = self._advance(seen, memory) if memory and {*memory} - {_ACTION} else self.director(seen)
        if not isinstance(action, Tensor):
            raise ThreatError(f"a director must return a tensor of one action a row, got {type(action).__name__}")
        own = self.director if isinstance(self.director, Director) else None
        if own is None or not (own.discrete or own.clip):  # else it fits: its spaces were checked beforehand
            whole = context.observation if self.on == "action" else x
            fitting = check_actions(
                action, self.actor.action_space(tuple(whole.shape[1:])), len(x), direction=self.actor.direction
            )
            self._warn_if_clipped(action, fitting)
            action = fitting
        return action

    def _advance(self, seen: Tensor, memory: dict[str, Tensor]) -> Any:
        """The actions at ``seen``; the next state takes the place of the one in ``memory``."""
        kept = {name: leaf for name, leaf in memory.items() if name != _ACTION}
        state = tuple(leaf.to(seen.device) for leaf in kept.values())
        answer = self.director(seen, state[0] if _ONE in memory else state)
        # the next state has to be of the form that was given
        leaves = _named(answer[1]) if isinstance(answer, tuple) and len(answer) == 2 else None
        shapes = {name: tuple(leaf.shape) for name, leaf in kept.items()}
        if leaves is None or {name: tuple(leaf.shape) for name, leaf in leaves.items()} != shapes:
            raise ThreatError(
                f"a director with initial_state must return (action, state), the state as it came, {shapes}, got "
                f"{answer!r:.80}"
            )
        memory.update({name: leaf.detach().to(memory[name]) for name, leaf in leaves.items()})
        return answer[0]

    def _warn_if_clipped(self, action: Tensor, fitting: Tensor) -> None:
        """Warn, once, where values were clipped; on the CPU only, as :func:`check_actions` checks them."""
        if self.actor.direction or self._warnings:
            return
        if action.device.type != "cpu" or not action.is_floating_point() or torch.equal(action, fitting):
            return
        self._warnings.append(
            f"the director of {self.label(Valid())} gives actions beyond [-1, 1], up to "
            f"{float(action.abs().max()):.3g}; {self.actor.name} takes values, so they are clipped. Where that is "
            f"meant, let the director clip them itself: Director(..., clip=True)"
        )
        warnings.warn(self._warnings[0], RuntimeWarning, stacklevel=2)


_ONE = "state"  # the name of a state that is one tensor
_ACTION = "action"  # the name of the actions that the director chose at this step


def _has_state(director: Any) -> bool:
    return hasattr(director, "initial_state") and bool(getattr(director, "recurrent", True))


def _named(state: Any) -> dict[str, Tensor] | None:
    """The leaves of a director's state by name; None for what is no tensor and no tuple or list of them."""
    if isinstance(state, Tensor):
        return {_ONE: state}
    if not isinstance(state, (tuple, list)) or not state or not all(isinstance(leaf, Tensor) for leaf in state):
        return None
    return {f"{_ONE}.{i}": leaf for i, leaf in enumerate(state)}


def append_actions(x: Tensor, action: Tensor, space: Space) -> Tensor:
    """Observations ``[B, n]`` with native actions ``[B, ...]`` of ``space`` appended, discrete ones one-hot."""
    if isinstance(space, spaces.Discrete):
        action = functional.one_hot(action.long().view(-1) - int(space.start), int(space.n))
    return torch.cat([flat_rows(x), flat_rows(action).to(x.dtype)], -1)


def append_spent(x: Tensor, spent: Counter) -> Tensor:
    """Observations ``[B, n]`` with the attacks of the episode so far appended, one number for all rows or ``[B]``."""
    count = torch.as_tensor(spent, device=x.device).to(x.dtype)
    return torch.cat([x, count.expand(len(x))[:, None]], -1)
