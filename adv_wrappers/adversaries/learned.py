"""Learned: a trained adversary as an ordinary perturbation."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor

from adv_wrappers.adversaries.actor import Actor
from adv_wrappers.adversaries.director import Director, load_director, save_director
from adv_wrappers.core.budgets import Budget
from adv_wrappers.core.context import Context
from adv_wrappers.core.errors import CardError, ThreatError
from adv_wrappers.core.perturbation import Perturbation
from adv_wrappers.core.values import decode


@dataclass(frozen=True)
class Learned(Perturbation):
    """At every strike the director looks at the true observation and steers, and the actor perturbs.

    Args:
        director: a module from observations ``[B, *S]`` to steers ``[B, *A]``; None to load ``card``.
        actor: what the director steers.
        card: a folder that :meth:`save` wrote, or a training.
        sha256: of the weights; a folder with others is refused. Filled in from the folder.

    Raises:
        CardError: for a folder that holds no adversary, or another one than ``sha256`` says.
        VictimError: for a card whose victim cannot be loaded, or has other weights than it had.
    """

    name: ClassVar[str] = "learned"
    search: ClassVar[bool] = True
    director: Any = None
    actor: Any = None
    card: str | None = None
    sha256: str | None = None

    def __post_init__(self) -> None:
        if self.card is not None and self.director is None:
            director, card = load_director(self.card)
            found = director.fingerprint_of_weights()
            if self.sha256 not in (None, found):
                raise CardError(f"the adversary in {self.card} changed: expected {self.sha256:.12}, got {found:.12}")
            object.__setattr__(self, "director", director)
            object.__setattr__(self, "sha256", found)
            if self.actor is None:
                object.__setattr__(self, "actor", decode(card["actor"]))
            object.__setattr__(self, "_within", decode(card["within"]) if card.get("within") else None)
        if not callable(self.director) or not isinstance(self.actor, Actor):
            raise ThreatError(
                f"learned needs a director and an actor, or a card: got {self.director!r:.40} and {self.actor!r:.40}"
            )

    @property
    def victim(self) -> Any:
        """The actor's."""
        return self.actor.victim

    @property
    def needs_victim(self) -> bool:  # type: ignore[override]
        """Whether the actor looks at one."""
        return self.actor.needs_victim  # type: ignore[no-any-return]

    @property
    def within(self) -> Budget | None:  # type: ignore[override]
        """The budget that it was trained with, where a card says so."""
        return getattr(self, "_within", None)

    def to_dict(self) -> dict[str, Any]:
        if self.card is None:
            raise ThreatError("an adversary without a folder has no JSON form: save(folder) returns one that has")
        return {"type": self.name, "card": self.card, "sha256": self.sha256}

    def save(self, folder: str | Path, within: Budget | None = None, training: dict[str, Any] | None = None) -> Learned:
        """Write the adversary to a folder, with the budget and a record of its training; what was saved.

        Raises:
            CardError: for a director that is not a :class:`Director`.
        """
        if not isinstance(self.director, Director):
            raise CardError(f"only a Director can be saved, got {type(self.director).__name__}")
        about = {
            "actor": self.actor.to_dict(), "within": None if within is None else within.to_dict(),
            "training": training or {},
        }  # fmt: skip
        save_director(folder, self.director, about)
        return Learned(card=str(folder))

    def __call__(self, x: Tensor, context: Context) -> Tensor:
        return self.actor(x, self.director(x), context)  # type: ignore[no-any-return]
