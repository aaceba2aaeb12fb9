"""PA-AD on actions (Sun et al. 2022, appendix A).

The director proposes how the policy should change, and the actor changes the action accordingly. The paper leaves the
rest open; here:

- ``direction`` (continuous actions): the action is moved along the steer as far as the budget goes, so that all of the
  budget's boundary, where the optimum lies (Theorem 4), can be reached;
- ``target``: the action that the steer names, scaled to the range of actions, or as near to it as the budget allows;
  of discrete actions the one that is taken.

No gradient is needed: an action is the policy's own output.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from gymnasium import spaces
from torch import Tensor

from adv_wrappers.adversaries.actor import Actor, Steers, check_bounded, check_form, goal_of, unit_box
from adv_wrappers.core.context import Context
from adv_wrappers.core.errors import ValueRangeError, VictimError
from adv_wrappers.core.perturbation import On
from adv_wrappers.core.threat import expect_victim


@dataclass(frozen=True)
class ActionPAAD(Actor):
    """The steer is a direction in the space of actions, or an action.

    Args:
        victim: whose actions these are, one at a time.
        form: ``"direction"`` or ``"target"``; None takes ``target`` for discrete actions and else ``direction``.

    Raises:
        VictimError: for a victim with several discrete actions at once.
        ValueRangeError: for ``direction`` with discrete actions, which have none, and ``target`` in a range of actions
            without bounds.
    """

    name: ClassVar[str] = "pa-ad-action"
    on: ClassVar[On] = "action"
    victim: Any = None
    form: str | None = None

    def __post_init__(self) -> None:
        expect_victim(self.name, self.victim)
        check_form(self.form)
        if self.victim is None:
            return
        space = self.victim.action_space
        if not isinstance(space, (spaces.Discrete, spaces.Box)):
            raise VictimError(f"pa-ad-action takes one discrete action or continuous ones, this victim acts in {space}")
        if isinstance(space, spaces.Discrete) and self.form == "direction":
            raise ValueRangeError("discrete actions have no direction: form must be 'target' or None")
        if self.form == "target":
            check_bounded(self.name, space)

    @property
    def manner(self) -> str:
        """``direction`` or ``target``."""
        return self.form or ("target" if isinstance(self.victim.action_space, spaces.Discrete) else "direction")

    @property
    def direction(self) -> bool:
        return self.manner == "direction"

    def steer_space(self, shape: tuple[int, ...]) -> Steers:
        expect_victim(self.name, self.victim)
        space = self.victim.action_space
        if isinstance(space, spaces.Discrete):
            return spaces.Discrete(int(space.n))
        return unit_box(math.prod(space.shape))

    def __call__(self, x: Tensor, steer: Tensor, context: Context) -> Tensor:
        space = self.victim.action_space
        if isinstance(space, spaces.Discrete):
            return (steer + int(space.start)).to(x.dtype).view(x.shape)
        if self.manner == "target":
            return goal_of(space, steer.to(x.dtype)).view(x.shape)
        steer = steer.to(x.dtype)
        onto = steer / steer.abs().amax(-1, keepdim=True).clamp(min=torch.finfo(x.dtype).tiny)
        if not context.budget.bounded:
            return goal_of(space, onto).view(x.shape)
        return x + onto.view(x.shape) * context.budget.spread(x, context.low, context.high)
