"""The worst action: what the victim values least (Behzadan and Hsu 2019, section 3: argmin of Q).

Without Q: the action that the policy itself finds least likely (the least preferred one; for continuous actions the
corner of the budget farthest from the mean). Continuous actions with a critic: projected gradient descent on
``Q(s, a)`` over the action, ``s`` being what the agent acted on.

Equation 3 makes Q-values for victims that have a state value only: ``Q(s, a) = r(s, a) + gamma V(s')``, ``s'`` being
the state that ``a`` leads to. Every action is tried in the environment and undone (``context.simulator``). ``V(s')`` is
taken at what the environment beneath this layer returns, and is 0 where the episode is then over.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from gymnasium import spaces
from torch import Tensor

from adv_wrappers.core.budgets.budget import Budget
from adv_wrappers.core.engine.context import Context
from adv_wrappers.core.engine.victim_view import VictimView
from adv_wrappers.core.perturbation import ActionPerturbation, SimulatingPerturbation, VictimAttack, need_q
from adv_wrappers.core.spaces import Field, to_victim
from adv_wrappers.errors import VictimError
from adv_wrappers.utils.validation import Positive, Share


@dataclass(frozen=True)
class WorstAction(ActionPerturbation, SimulatingPerturbation, VictimAttack):
    """Replace the action by the worst within the budget.

    Args:
        victim: whose opinion counts.
        by: ``"q"``, ``"policy"``, or ``"successor"``: by the state values where each action leads to, for one discrete
            action; None takes Q where there is one, and else the policy.
        steps: gradient steps for continuous actions with a critic, each ``2 / steps`` of the radius.
        gamma: the discount of the state values for ``by="successor"``, in [0, 1].
        other: the worst of the actions other than the one that is played, of which a value may think the least: for one
            discrete action. Where an action mask allows no other it stays.

    Raises:
        VictimError: for ``by="q"`` on a victim without Q, for ``by="successor"`` on one without state values or with
            continuous actions, for a critic without a gradient, for several discrete actions at once, and for ``other``
            with continuous ones.
        SnapshotError: for ``by="successor"`` in an environment that cannot be saved, or does not repeat.
    """

    name: ClassVar[str] = "worst-action"
    by: Literal["q", "policy", "successor"] | None = None
    steps: Positive = 10
    gamma: Share = 0.99
    other: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        own = f"worst-action by={self.by!r}"
        # equation 3 tries every action, so there must be finitely many, and it takes the value of the state after each
        if self.by == "successor" and self.victim is not None:
            if not isinstance(self.victim.action_space, spaces.Discrete):
                raise VictimError(
                    f"{own} tries every action, and this victim acts in {self.victim.action_space}: use by='q' or "
                    "by='policy'"
                )
            if not self.victim.has_value:
                raise VictimError(f"{own} needs state values, and this victim has neither these nor Q: use by='policy'")
        # the argmin of Q takes Q-values, and over continuous actions their gradient
        if self.by == "q":
            need_q(own, self.victim, "use by='policy'")
        by_critic = self.by in (None, "q") and self.victim is not None and self.victim.has_q
        if by_critic and not self.victim.discrete and not self.victim.differentiable:
            raise VictimError("worst-action follows a critic's gradient, this victim has none: use by='policy'")

    @property
    def simulates(self) -> bool:
        return self.by == "successor"

    @property
    def network_passes(self) -> int:
        return self.steps

    def check(self, field: Field, within: Budget) -> None:
        super().check(field, within)
        if field.discrete and field.shape != ():
            raise VictimError("worst-action is for one discrete action or continuous ones, not for several discrete")
        if self.other and not field.discrete:
            raise VictimError("worst-action with other=True is for one discrete action, not for continuous ones")

    def __call__(self, x: Tensor, context: Context) -> Tensor:
        bound = context.bind(self.victim)
        # equation 3: Q-values from state values, by trying every action
        if self.by == "successor":
            return context.space[0] + self._without_own(self.successor_values(x, context), x, context).argmin(-1)
        by_q = self.by == "q" or (self.by is None and self.victim.has_q)
        # the argmin of Q; of a policy alone the action that it finds least likely
        if self.victim.discrete:
            scores = bound.q() if by_q else bound.params()
            assert scores is not None
            scores = scores.masked_fill(scores == -torch.inf, torch.inf)  # what the victim itself rules out
            if context.mask is not None:
                scores = scores.masked_fill(~context.mask.bool(), torch.inf)
            return context.space[0] + self._without_own(scores, x, context).argmin(-1)
        # continuous actions without a critic: the corner of the budget farthest from the mean
        if not by_q:
            mean = self.victim.mode(bound.params())
            return torch.where((context.high - mean).abs() >= (context.low - mean).abs(), context.high, context.low)
        # with a critic: projected gradient descent on Q(s, a) over the action
        y = x
        for _ in range(self.steps):
            with torch.enable_grad():
                leaf = y.detach().requires_grad_()
                value = bound.q(act=leaf)
                assert value is not None
                g = torch.autograd.grad(-value.sum(), leaf)[0]
            y = context.ascend(y, g, 2 / self.steps)
        return y

    def _without_own(self, scores: Tensor, x: Tensor, context: Context) -> Tensor:
        """Scores ``[B, A]`` that with ``other`` are infinite for the action that is played, if there is another."""
        if not self.other:
            return scores
        own = torch.arange(scores.shape[-1], device=scores.device) == (x.long() - context.space[0])[:, None]
        others = (scores < torch.inf) & ~own
        return scores.masked_fill(own & others.any(-1, keepdim=True), torch.inf)

    def successor_values(self, x: Tensor, context: Context) -> Tensor:
        """Equation 3's Q-values of every action, ``[B, A]``, infinite for those that the action mask forbids.

        A recurrent victim values ``s'`` with the hidden state after acting on its present observation.
        """
        victim, count = self.victim, int(self.victim.action_space.n)
        mask = torch.ones(len(x), count, dtype=torch.bool) if context.mask is None else context.mask.bool().cpu()
        allowed = mask.int().argmax(-1)  # tried in the place of one that is not, whose answer is not used
        tried = torch.where(mask, torch.arange(count), allowed[:, None]) + context.space[0].long().cpu()
        # V(s') is taken with the hidden state that the victim has after this observation
        state = victim.advance(context.observation, context.state(victim)) if victim.recurrent else None
        columns = list[Tensor]()
        # r(s, a) + gamma V(s') of one action after the other, where V is 0 once the episode is over
        for action in tried.unbind(-1):
            observation, reward, done = context.simulator.step(action)
            after = to_victim(observation, victim.dtype, victim.device, True, space=victim.observation_space)
            value = VictimView(victim, state, None, after, context.look).value()
            assert value is not None
            gained, goes_on = torch.from_numpy(reward).to(x), torch.from_numpy(~done).to(x)
            columns.append(gained + self.gamma * value.to(x) * goes_on)
        return torch.stack(columns, -1).masked_fill(~mask.to(x.device), torch.inf)


# ----------------------------------------------------------------------------------------------------------------------
# The flip baseline of Weng et al. 2020 (section 4): every action turned to its opposite, within the budget.
# ----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ActionFlip(ActionPerturbation):
    """Mirror the action in the middle of the action space (in zero where the space is unbounded).

    Discrete actions are numbered from the other end. An opposite that the environment's mask forbids is not taken.
    """

    name: ClassVar[str] = "action-flip"
    arrays: ClassVar[bool] = True

    def __call__(self, x: Tensor, context: Context) -> Tensor:
        y = context.mirror - x
        if context.mask is None or x.dim() != 1:
            return y
        allowed = context.mask.gather(-1, (y - context.space[0]).long()[:, None]).squeeze(-1)
        return torch.where(allowed.bool(), y, x)
