"""PA-AD (Sun et al. 2022, "Who Is the Strongest Enemy?", section 4): a director chooses, an actor attacks.

The director proposes in which direction the victim's policy should change; the actor finds, by gradient ascent inside
the budget, a state at which it does (equation G of the paper). The four forms of the adversary's action:

- ``direction`` of a stochastic policy over n actions: d has n numbers with sum zero, the action is its n - 1
  coordinates in that plane; maximised is ``||pi(s~) - pi(s)|| + weight cos(pi(s~) - pi(s), d)``. The released code
  takes the first n - 1 numbers of d itself, as ``variant="released"`` does. Noise on those is longer along one line of
  the plane than across it, and the mean of a director that samples converges some degrees from the best direction: 10
  to 15 on the paper's process of two states, where with coordinates it comes to the optimum (``tests/adversaries``).
- ``target`` of a deterministic policy over n actions (DQN): the action is one of the victim's, whose lead is maximised.
- ``direction`` of continuous actions: the same with the mean instead of pi, the action is d.
- ``target`` of continuous actions: the mean is brought to the adversary's action, scaled to three times the range of
  actions, since the means of trained agents lie far outside it; with ``variance`` (the C-PAMDP) the policy is brought
  to a Normal whose log standard deviations are part of the adversary's action too.

Taken literally the first objective degenerates: from a small random start the norm pushes wherever the start happened
to point, and with two actions the cosine has no gradient, so that the adversary's action is ignored. So the first step
here climbs ``d . (pi(s~) - pi(s))`` from the true state, and those after it the objective. ``variant="literal"`` starts
at random as the paper has it; ``variant="released"`` takes the released code's single step from noise of a tenth of the
radius, which by an error of sign descends.

On actions (appendix A) the director proposes how the policy should change, and the actor changes the action
accordingly. The paper leaves the rest open; here:

- ``direction`` (continuous actions): the action is moved in that direction as far as the budget goes, so that all of
  the budget's boundary, where the optimum lies (Theorem 4), can be reached;
- ``target``: the action that the adversary names, scaled to the range of actions, or as near to it as the budget
  allows; of discrete actions the one that is taken.

No gradient is needed there: an action is the policy's own output.

The objectives are losses ``[B, K] -> [B]`` of the victim's parameters, with their gradients in closed form; ``delta``
is the change of the policy from the true state, of probabilities or of the mean of continuous actions.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from types import NoneType
from typing import Annotated, Any, ClassVar, Literal

import torch
from gymnasium import spaces
from torch import Tensor

from adv_wrappers.adversaries.actor import (
    ActionActor,
    Actor,
    ActorForm,
    ActorSpace,
    check_bounded,
    scale_to_range,
    unit_box,
)
from adv_wrappers.attacks.gradient_attack import Keep, StepLength, Steps, pgd
from adv_wrappers.attacks.objectives import Margin, OfMean, SquaredDistance
from adv_wrappers.attacks.restarts import search
from adv_wrappers.core.engine.context import Context
from adv_wrappers.core.perturbation import expect_victim
from adv_wrappers.errors import ValueRangeError, VictimError
from adv_wrappers.utils.validation import Limits
from adv_wrappers.victims.distributions import softmax
from adv_wrappers.victims.gradients import need_gradient

_TINY = 1e-12


class _PolicyChange(OfMean):
    """A function of the change of a victim's policy: of the mean of continuous actions, or of probabilities."""

    def __init__(self, victim: Any, params: Tensor, wanted: Tensor) -> None:
        super().__init__(victim)
        self.discrete = victim.kind in ("q", "logits")
        self.own, self.wanted = self._policy(params), wanted

    def _policy(self, params: Tensor) -> Tensor:
        return softmax(params) if self.discrete else self.mean(params)

    def _value(self, delta: Tensor) -> Tensor:
        raise NotImplementedError

    def _slope(self, delta: Tensor) -> Tensor:
        raise NotImplementedError

    def __call__(self, params: Tensor) -> Tensor:
        return self._value(self._policy(params) - self.own)

    def gradient(self, params: Tensor) -> Tensor:
        """``[B, K]``, through the softmax where there is one."""
        policy = self._policy(params)
        slope = self._slope(policy - self.own)
        if self.discrete:
            return policy * (slope - (policy * slope).sum(-1, keepdim=True))
        return self.of_params(slope)


class ChangeAlong(_PolicyChange):
    """``d . delta``: how far the policy went in the wanted direction ``d`` ``[B, K]`` of length one."""

    def _value(self, delta: Tensor) -> Tensor:
        return (delta * self.wanted).sum(-1)

    def _slope(self, delta: Tensor) -> Tensor:
        return self.wanted


class ChangeAndCosine(_PolicyChange):
    """``||delta|| + weight cos(delta, d)`` (PA-AD, equation G)."""

    def __init__(self, victim: Any, params: Tensor, wanted: Tensor, weight: float) -> None:
        super().__init__(victim, params, wanted)
        self.weight = weight

    def _value(self, delta: Tensor) -> Tensor:
        length = (delta.square().sum(-1) + _TINY).sqrt()
        return length + self.weight * (delta * self.wanted).sum(-1) / length

    def _slope(self, delta: Tensor) -> Tensor:
        length = (delta.square().sum(-1, keepdim=True) + _TINY).sqrt()
        unit = delta / length
        cosine = (unit * self.wanted).sum(-1, keepdim=True)
        return unit + self.weight * (self.wanted - cosine * unit) / length


class TowardPolicy:
    """``-KL(policy || goal)`` of Gaussian policies, means and log standard deviations ``[B, K]``."""

    def __init__(self, victim: Any, goal: Tensor) -> None:
        self.victim, self.goal = victim, goal

    def __call__(self, params: Tensor) -> Tensor:
        return -self.victim.kl(params, self.goal)  # type: ignore[no-any-return]

    def gradient(self, params: Tensor) -> Tensor:
        """``(goal mean - mean) / goal variance``, and ``1 - variance / goal variance`` for the log-std."""
        (mean, log_std), (goal, goal_log_std) = params.chunk(2, -1), self.goal.chunk(2, -1)
        move = ((goal - mean) * (-2 * goal_log_std).exp()).nan_to_num(nan=0.0)  # of a mean that stays, and a std of 0
        return torch.cat([move, 1 - (2 * (log_std - goal_log_std)).exp()], -1)


class FormActor(Actor):
    """An actor whose action is a direction in which the policy changes, or what it is brought to: its ``form``.

    Raises:
        VictimError: for a victim with several discrete actions at once.
        ValueRangeError: for ``target`` in a range of actions without bounds.
    """

    form: ActorForm | None

    def __post_init__(self) -> None:
        super().__post_init__()
        expect_victim(self.name, self.victim)
        space = None if self.victim is None else self.victim.action_space
        if not isinstance(space, (spaces.Discrete, spaces.Box, NoneType)):
            raise VictimError(f"{self.name} takes one discrete action or continuous ones, this victim acts in {space}")
        if space is not None and self.resolved_form == "target":
            check_bounded(self.name, space)

    @property
    def resolved_form(self) -> str:
        """``direction`` or ``target``: the given form, or the default for this victim."""
        raise NotImplementedError

    @property
    def direction(self) -> bool:
        return self.resolved_form == "direction"


Variant = Literal["linear-first", "literal", "released"]


@dataclass(frozen=True)
class PAAD(FormActor):
    """The adversary's action is a direction in the space of policies, or a policy to bring the victim to.

    Args:
        victim: a victim of any kind, with one action at a time.
        form: ``"direction"`` or ``"target"``; None takes the paper's for discrete actions (``target`` for Q-values,
            else ``direction``), and for continuous ones ``target``, the stronger against most agents that were
            measured (``docs/results/pa_ad.md``), unless the range of actions has no bounds.
        steps, step: of the actor's ascent, the length a fraction of the budget's radius; one step of 1 is the paper's
            FGSM, 30 steps of 0.1 its attack on robust agents.
        weight: of the cosine (lambda).
        stretch: how far the targets of continuous actions go, in half-ranges of the action space.
        variance: the adversary's action sets log standard deviations as well (continuous actions, ``target``).
        variant: see the head of this file.
        restarts, keep: number of ascents, and the point of each that counts, ``"last"`` or ``"best"``: the first is the
            variant's own, the others start at corners of the box, and the best result is kept (for a target: first one
            at which the action asked for is played). None takes three and ``"best"`` for a ``target`` of discrete
            actions on observations of one dimension, which finds 97 % of the actions that a box holds on MountainCar's
            DQN where one ascent and its last point, the default elsewhere, finds 84 %, in three times the time; and one
            and ``"last"``, as published, with ``variant="literal"`` and ``"released"``.

    Raises:
        VictimError: for a victim with several discrete actions at once, and for one without a gradient.
        ValueRangeError: for ``target`` in a range of actions without bounds.
    """

    name: ClassVar[str] = "pa-ad"
    victim: Any = None
    form: ActorForm | None = None
    steps: Steps = 5
    step: StepLength = 0.4
    weight: Annotated[float, Limits(0, 1e9)] = 1.0
    variance: bool = False
    stretch: Annotated[float, Limits(1e-6, 1e9)] = 3.0
    variant: Variant = "linear-first"
    restarts: Steps | None = None
    keep: Keep | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.variant == "released" and (self.restarts not in (None, 1) or self.keep not in (None, "last")):
            raise ValueRangeError(
                "the released code takes one ascent and its last point: restarts and keep are not its"
            )
        if self.victim is None:
            return
        # the actor climbs by the victim's gradient, in the space of its policies
        need_gradient(self.name, self.victim)
        if self.variance and (self.victim.kind != "gaussian" or self.resolved_form != "target"):
            raise ValueRangeError("variance goes with Gaussian policies and form='target'")

    @property
    def resolved_form(self) -> str:
        space = self.victim.action_space
        boundless = isinstance(space, spaces.Box) and not space.is_bounded()  # then no target lies within a range
        known = self.victim.kind == "logits" or (self.victim.kind != "q" and self.variant != "linear-first")
        return self.form or ("direction" if known or boundless else "target")

    def action_space(self, shape: tuple[int, ...]) -> ActorSpace:
        expect_victim(self.name, self.victim)
        space = self.victim.action_space
        if isinstance(space, spaces.Discrete):
            return spaces.Discrete(int(space.n)) if self.resolved_form == "target" else unit_box(int(space.n) - 1)
        return unit_box(math.prod(space.shape) * (2 if self.variance else 1))

    def __call__(self, x: Tensor, action: Tensor, context: Context) -> Tensor:
        bound = context.bind(self.victim)
        # target: climb to the policy that the adversary names
        if self.resolved_form == "target":
            toward = self._target(action.to(x.dtype) if action.is_floating_point() else action)
            return self._ascend(context, bound, toward)
        # direction: climb equation G, ||pi(s~) - pi(s)|| + weight cos(pi(s~) - pi(s), d)
        params, wanted = bound.params(x), self._direction(action).to(x.dtype)
        objective = ChangeAndCosine(self.victim, params, wanted, self.weight)
        # the released code takes one step, which descends
        if self.variant == "released":
            start = self._random_start(context)
            return context.ascend(start, -bound.gradient(objective)(start), 1.0)
        if self.variant == "literal":
            return self._ascend(context, bound, objective)
        # the first step climbs d . (pi(s~) - pi(s)): from the true state the norm has no direction of its own
        start = context.ascend(x, bound.gradient(ChangeAlong(self.victim, params, wanted))(x), self.step)
        return self._ascend(context, bound, objective, start, self.steps - 1)

    @property
    def ascents(self) -> tuple[int, str]:
        """Number of ascents, and which point of each counts."""
        space, seen = self.victim.action_space, self.victim.observation_space.shape
        ours = self.variant == "linear-first" and isinstance(space, spaces.Discrete) and self.resolved_form == "target"
        restarts, keep = (3, "best") if ours and seen is not None and len(seen) == 1 else (1, "last")
        return self.restarts or restarts, self.keep or keep

    def _ascend(
        self, context: Context, bound: Any, objective: Any, start: Tensor | None = None, steps: int | None = None
    ) -> Tensor:
        """Several ascents: the first from ``start``, the others from corners of the box.

        Args:
            objective: what is climbed, and what points are compared by where they are.
            start: None for the true state, or a random one nearby, by the variant.
            steps: of the first; None for ``self.steps``, as the others have.
        """
        if start is None and self.variant != "linear-first":
            start = self._random_start(context)
        steps = self.steps if steps is None else steps
        restarts, keep = self.ascents
        # as published: one ascent, whose last point is the answer
        if restarts == 1 and keep == "last":
            return pgd(context, bound.gradient(objective), steps, self.step, start=start)

        def climb(context: Context, gradient: Callable[[Tensor], Tensor], number: int, start: Tensor | None) -> Tensor:
            return pgd(context, gradient, self.steps if number else steps, self.step, start=start)

        ascents = [(number, objective) for number in range(restarts)]
        return search(context, bound, objective, ascents, climb, keep, start)

    def _random_start(self, context: Context) -> Tensor:
        """A random state near the true one."""
        return context.project(context.x + 0.1 * (context.draw() - context.x))

    def _direction(self, action: Tensor) -> Tensor:
        """The direction ``[B, K]`` of length one that the adversary's action stands for."""
        d = action.flatten(1)
        if self.victim.kind in ("q", "logits"):
            released = self.variant == "released"
            d = torch.cat([d, -d.sum(-1, keepdim=True)], -1) if released else d @ zero_sum_basis(d.shape[1] + 1).to(d)
        return d / d.norm(dim=-1, keepdim=True).clamp(min=1e-12)  # type: ignore[no-any-return]

    def _target(self, action: Tensor) -> Margin | SquaredDistance | TowardPolicy:
        if isinstance(self.victim.action_space, spaces.Discrete):
            return Margin(action, toward=True)
        size = math.prod(self.victim.action_space.shape)
        goal = scale_to_range(self.victim.action_space, action[:, :size], self.stretch)
        if not self.variance:
            return SquaredDistance(self.victim, goal, toward=True)
        return TowardPolicy(self.victim, torch.cat([goal, action[:, size:]], -1))  # log standard deviations in [-1, 1]


@functools.cache
def zero_sum_basis(n: int) -> Tensor:
    """An orthonormal basis ``[n - 1, n]`` of the vectors with sum zero (Helmert's), float64."""
    rows = torch.tril(torch.ones(n - 1, n, dtype=torch.float64))
    k = torch.arange(1, n, dtype=torch.float64)
    rows[torch.arange(n - 1), torch.arange(1, n)] = -k
    return rows / (k * (k + 1)).sqrt()[:, None]


@dataclass(frozen=True)
class ActionPAAD(ActionActor, FormActor):
    """The adversary's action is a direction in the space of the victim's actions, or one of them.

    Args:
        victim: the victim, with one action at a time.
        form: ``"direction"`` or ``"target"``; None takes ``target`` for discrete actions and else ``direction``.

    Raises:
        VictimError: for a victim with several discrete actions at once.
        ValueRangeError: for ``direction`` with discrete actions, which have none, and ``target`` in a range of actions
            without bounds.
    """

    name: ClassVar[str] = "pa-ad-action"
    victim: Any = None
    form: ActorForm | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.victim is not None and self.victim.discrete and self.form == "direction":
            raise ValueRangeError("discrete actions have no direction: form must be 'target' or None")

    @property
    def resolved_form(self) -> str:
        return self.form or ("target" if isinstance(self.victim.action_space, spaces.Discrete) else "direction")

    def action_space(self, shape: tuple[int, ...]) -> ActorSpace:
        expect_victim(self.name, self.victim)
        space = self.victim.action_space
        if isinstance(space, spaces.Discrete):
            return spaces.Discrete(int(space.n))
        return unit_box(math.prod(space.shape))

    def __call__(self, x: Tensor, action: Tensor, context: Context) -> Tensor:
        space = self.victim.action_space
        # target: the action that is named, or the nearest one that the budget allows
        if isinstance(space, spaces.Discrete):
            return (action + int(space.start)).to(x.dtype).view(x.shape)
        if self.resolved_form == "target":
            return scale_to_range(space, action.to(x.dtype)).view(x.shape)
        # direction: as far as the budget goes, where the optimum lies (Theorem 4)
        action = action.to(x.dtype)
        onto = action / action.abs().amax(-1, keepdim=True).clamp(min=torch.finfo(x.dtype).tiny)
        if not context.budget.bounded:
            return scale_to_range(space, onto).view(x.shape)
        return x + onto.view(x.shape) * context.budget.spread(x, context.low, context.high)
