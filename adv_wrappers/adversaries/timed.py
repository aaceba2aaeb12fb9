"""Actors that may decline a step, so that their adversaries learn when to attack.

Behzadan and Hsu 2019 ("RL-Based Method for Benchmarking the Adversarial Resilience and Robustness of Deep Reinforcement
Learning Policies") ask how few perturbations break a policy, and at which steps. Their adversary chooses at every step
to do nothing or to induce an action: any of the other actions (equation 1, :class:`Induce`), or, where all cost the
same, the one that the victim values least (equation 2, :class:`Timed` with :class:`adv_wrappers.WorstAction`). Timed
takes any other perturbation as well. Steps that are declined are not attacked, and count nowhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from gymnasium import spaces
from torch import Tensor

from adv_wrappers.adversaries.actor import ActionActor, Actor, ActorSpace
from adv_wrappers.core.budgets.budget import Budget, Valid
from adv_wrappers.core.engine.context import Context
from adv_wrappers.core.perturbation import On, Perturbation, expect_victim
from adv_wrappers.core.serialization import encode
from adv_wrappers.core.spaces import Field
from adv_wrappers.core.threat import replace_victims
from adv_wrappers.errors import ThreatError, VictimError
from adv_wrappers.utils.frozen import set_fields


@dataclass(frozen=True)
class Timed(Actor):
    """The adversary's action is 0, to leave the step alone, or 1, to apply a perturbation.

    Args:
        how: the perturbation, on observations or on actions; one that keeps a memory of its own is not taken.
        victim: the victim that ``how`` is aimed at where it has none of its own.

    Raises:
        ThreatError: for anything but a perturbation, and for one with a memory.

    >>> from adv_wrappers import MaxDiff, load_victim
    >>> Timed(MaxDiff(), load_victim("zoo:hopper-ppo")).action_space((11,))
    Discrete(2)
    """

    name: ClassVar[str] = "timed"
    how: Any
    victim: Any = None

    def __post_init__(self) -> None:
        expect_victim(self.name, self.victim)
        if not isinstance(self.how, Perturbation):
            raise ThreatError(
                f"timed takes a perturbation such as MaxDiff(), or the text 'timed:max-diff', got {self.how!r:.80}"
            )
        if self.victim is not None:
            set_fields(self, how=replace_victims(self.how, None, self.victim))
        if self.how.declines or self.how.initial_memory(torch.zeros(1)) is not None:
            raise ThreatError(f"timed takes a perturbation without a memory of its own, got {self.how!r:.80}")

    @property
    def within(self) -> Budget | None:
        return self.how.within  # type: ignore[no-any-return]

    @property
    def on(self) -> On:
        return self.how.on  # type: ignore[no-any-return]

    @property
    def needs_victim(self) -> bool:
        return self.how.needs_victim or self.on == "action"

    @property
    def declines(self) -> bool:
        return True

    @property
    def native(self) -> bool:
        return self.how.native  # type: ignore[no-any-return]

    @property
    def simulates(self) -> bool:
        return self.how.simulates  # type: ignore[no-any-return]

    @property
    def label(self) -> str:
        return f"{self.name} {self.how.name}"

    def open(self) -> Timed:
        """The same without its victim, which ``how`` no longer has either; a surrogate that it is aimed at stays."""
        return self if self.victim is None else Timed(replace_victims(self.how, self.victim, None))

    def to_dict(self) -> dict[str, Any]:
        """JSON form. A victim that ``how`` is aimed at too is named once: what is read has one of it, not two."""
        return {**super().to_dict(), "how": encode(self.open().how)}

    def action_space(self, shape: tuple[int, ...]) -> ActorSpace:
        return spaces.Discrete(2)

    def check(self, field: Field, within: Budget) -> None:
        self.how.check(field, within)

    def accepts(self, x: Tensor, action: Tensor, context: Context) -> Tensor:
        return action != 0

    def __call__(self, x: Tensor, action: Tensor, context: Context) -> Tensor:
        return self.how(x, context)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Induce(ActionActor):
    """The adversary's action is 0, to leave the step alone, or k, to have the k-th of the victim's actions played.

    To name the action that the victim plays anyway, or one that the environment's mask forbids, is to leave the step
    alone.

    Args:
        victim: the victim, with one discrete action.

    Raises:
        VictimError: for a victim with other actions.
    """

    name: ClassVar[str] = "induce"
    within: ClassVar[Budget | None] = Valid()
    victim: Any = None

    def __post_init__(self) -> None:
        expect_victim(self.name, self.victim)
        space = None if self.victim is None else self.victim.action_space
        if self.victim is not None and not isinstance(space, spaces.Discrete):
            raise VictimError(
                f"induce names one of several discrete actions, this victim acts in {space}: "
                f"Timed(WorstAction()) takes continuous ones"
            )

    @property
    def declines(self) -> bool:
        return True

    def action_space(self, shape: tuple[int, ...]) -> ActorSpace:
        expect_victim(self.name, self.victim)
        return spaces.Discrete(int(self.victim.action_space.n) + 1)

    def accepts(self, x: Tensor, action: Tensor, context: Context) -> Tensor:
        named = action.clamp(min=1) - 1
        chosen = (action != 0) & (named + int(self.victim.action_space.start) != x.long())
        if context.mask is None:
            return chosen
        return chosen & context.mask.gather(-1, named[:, None]).squeeze(-1).bool()

    def __call__(self, x: Tensor, action: Tensor, context: Context) -> Tensor:
        return (action.clamp(min=1) - 1 + int(self.victim.action_space.start)).to(x.dtype).view(x.shape)
