"""Actions by certified lower bound (CARRL, Luetjens et al. 2019).

The agent knows that what it sees may be off by up to the budget, and plays the action whose Q-value is largest in the
worst case over all true observations that are possible then:

    argmax_a  min { Q(s, a) : s within the budget of what is seen }.

The minimum is bounded from below by interval or linear bounds on the network. So the action that is played has at the
true observation at least the Q-value that :meth:`LowerBound.params` says; whether that Q-value is right is another
matter: Q is what the agent without attacks would earn from there on, so nothing is certified about the return. Where
bounds are loose for all actions, the order of their lower bounds means little, and with a large radius the agent plays
worse than without: the radius is a setting to be tried out.

Attacks take it like any other victim. Its gradients are those of the lower bounds, through the defence.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from adv_wrappers.bounds.crown_bounds import crown
from adv_wrappers.bounds.interval_bounds import interval
from adv_wrappers.core.budgets.budget import Linf
from adv_wrappers.core.spaces import Field
from adv_wrappers.errors import ValueRangeError, VictimError
from adv_wrappers.utils.validation import checked
from adv_wrappers.victims.certified_actions import params_network
from adv_wrappers.victims.victim import Victim, VictimAround

BoundMethod = Literal["interval", "crown", "full-crown"]


class LowerBound(VictimAround):
    """A victim with Q-values that plays the action with the largest lower bound on its Q-value.

    Args:
        victim: an agent of kind ``q`` whose network has bounds.
        within: how far the true observation may be from what is seen.
        method: how Q-values are bounded: ``interval``, as fast as two evaluations; ``crown``, linear bounds whose
            relaxations lie in interval bounds; ``full-crown``, linear bounds throughout.

    Attributes:
        victim: the agent that plays by its Q-values.
        within: the budget, its unit filled in.
        method: as given.

    Raises:
        VictimError: for agents without Q-values, or without a network that has bounds.
        BudgetError: for a budget that does not fit the observations.
        ValueRangeError: for another budget than :class:`Linf`, and an unknown method.

    >>> from adv_wrappers import Linf, load_victim
    >>> from adv_wrappers.victims.carrl import LowerBound
    >>> victim = LowerBound(load_victim("zoo:cartpole-dqn"), Linf(0.01))
    >>> import torch
    >>> x = torch.zeros(1, 4)
    >>> bool((victim.params(x) <= load_victim("zoo:cartpole-dqn").params(x)).all())
    True
    """

    @checked
    def __init__(self, victim: Victim, within: Linf, method: BoundMethod = "crown") -> None:
        super().__init__(victim, "mode")
        if victim.kind != "q":
            raise VictimError(f"lower bounds are of Q-values, this victim has {victim.kind}: {victim!r}")
        if not isinstance(within, Linf):
            raise ValueRangeError(f"within must be an Linf, how far the truth may be from what is seen, got {within!r}")
        self.method, self._net = method, params_network(victim)
        # the ends of the space, which a true observation lies within too
        field = Field(victim.observation_space, None, "observation")
        self.within = within.resolve(victim)
        self.within.check(field.low, field.high, False)
        self._low, self._high = (
            torch.as_tensor(end, dtype=self.dtype, device=self.device) for end in (field.low, field.high)
        )
        self._spec = torch.eye(self.width, dtype=self.dtype, device=self.device)
        if not isinstance(within.scale, tuple):  # else no text can say it
            self.ref = self.reference("lower-bound", {}, eps=within.eps, scale=within.scale, method=method)
        with torch.no_grad():  # a layer without a rule is found before anything is played
            self.params(torch.zeros(1, *field.shape, dtype=self.dtype, device=self.device))

    def params(self, obs: Any, state: Any = None) -> Tensor:
        """Lower bounds ``[B, A]`` on the Q-values at every observation within the budget of ``obs``."""
        low, high = self._box(self.taken(obs))
        if self.method == "interval":
            return interval(self._net, low, high, self._spec)[0]
        return crown(self._net, low, high, self._spec, "interval" if self.method == "crown" else "crown")[0]

    def _box(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """The box around ``obs``, whose ends move with it but where the space ends."""
        with torch.no_grad():
            low, high = self.within.box(obs, torch.minimum(self._low, obs), torch.maximum(self._high, obs))
        moved = obs - obs.detach()  # zero, with a gradient: the ends keep their bits
        return low + moved * (low > self._low), high + moved * (high < self._high)

    def q(self, obs: Any, act: Tensor | None = None, state: Any = None) -> Tensor | None:
        """The agent's Q-values at ``obs`` itself, ``[B, A]``, or ``[B]`` of the native actions ``act``."""
        return self.victim.q(obs, act)

    def acts_by(self) -> str:
        return f"{self.within.to_dict()} {self.method}"

    def __repr__(self) -> str:
        return f"<LowerBound, {self.within!r} by {self.method}, of {self.victim!r}>"
