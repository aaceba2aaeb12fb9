"""Where attacks on observations can bring an agent with continuous actions, by a learned model of its environment.

MuJoCo's steps are no formulas, so no search over boxes of states knows them. A model that was learned
(:func:`adv_wrappers.train_dynamics`) is a network, and so are the agent and any number of steps of both: of the state
at the start, of what is added to the observation at every step, and of the model's error at every step. CROWN bounds it
over the box of all of these at once (as Everett et al. 2021 bound feedback loops of a network and known linear
dynamics), so that a state's coordinates keep what they have in common from one step to the next, which a box of states
that is stepped loses.

This is a statement of the model and of the error that is allowed for at each step. It is one of the environment as far
as that error is never exceeded, which held-out transitions make likely and do not prove: an attack may bring the agent
where nobody has measured, and what 99% of single steps do not exceed, more of several do. Bounds hold in exact
arithmetic; what the agent rounds in float32 is not added.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from adv_wrappers.bounds import crown
from adv_wrappers.core.arrays import Scale
from adv_wrappers.core.budgets import Budget, Linf
from adv_wrappers.core.threat import needed_budget
from adv_wrappers.core.types import Floats
from adv_wrappers.errors import BudgetError, ValueRangeError, VictimError
from adv_wrappers.networks.layers import Clip
from adv_wrappers.utils.limits import Limits, checked
from adv_wrappers.utils.threads import one_thread
from adv_wrappers.victims import Victim, load_victim
from adv_wrappers.victims.action_bounds import params_network
from adv_wrappers.victims.distributions import unscale
from adv_wrappers.victims.module import ModuleVictim
from adv_wrappers.victims.saved_networks import Dynamics, TransitionModel, load_dynamics

_ROWS = 16  # starts whose bounds are computed at once


@dataclass(frozen=True)
class ReachedSets:
    """Boxes that hold every state which attacks can bring about in the model within its error, after each step.

    Attributes:
        low, high: their ends, float64 ``[B, steps + 1, n]``; the first is the start.
        error: how far the model was allowed to be off at every step, ``[n]``.
    """

    low: Floats
    high: Floats
    error: Floats

    def steps_within(self, low: ArrayLike, high: ArrayLike) -> NDArray[np.int64]:
        """For how many steps no attack leads out of limits, ``[B]``; 0 where the start is outside already.

        Args:
            low, high: the limits, which broadcast with ``[n]``; minus infinity and infinity for none.

        >>> import numpy as np
        >>> from adv_wrappers.certification.reached_sets import ReachedSets
        >>> found = ReachedSets(np.zeros((1, 3, 1)), np.array([[[0.0], [0.1], [0.3]]]), np.zeros(1))
        >>> found.steps_within(-0.2, 0.2)
        array([1])
        """
        inside = np.all((self.low >= np.asarray(low)) & (self.high <= np.asarray(high)), axis=-1)
        after: NDArray[np.int64] = np.cumprod(inside[:, 1:] & inside[:, :1], axis=1).sum(1)
        return after


@checked
def reached_sets(
    victim: Victim | str,
    model: Dynamics | str,
    start: ArrayLike,
    eps: float | None = None,
    *,
    scale: Scale = None,
    within: Budget | None = None,
    steps: Annotated[int, Limits(1, 50)] = 5,
    error: ArrayLike | None = None,
) -> ReachedSets:
    """Bound the states of the next steps, whatever is done to the observations of an agent.

    Args:
        victim: the agent, or its reference: feed-forward, with continuous actions, playing its mode.
        model: a model of the environment, or ``card:FOLDER``, of observations that are the state.
        start: observations ``[n]`` or ``[B, n]``, in the units of the environment.
        eps, scale, within: the budget of every step, a ``Linf``; as for :func:`adv_wrappers.certify`.
        steps: of the environment, 1 to 50. Boxes widen with each of them, and the time grows with their cube.
        error: how far the model may be off at every step, a number or one for each feature ``[n]``; None for
            ``model.error_quantile(0.99)``, which 99% of the victim's transitions that were held out do not exceed in
            any feature.

    Raises:
        VictimError: for a victim that samples, has discrete actions, a hidden state, no bounds, or another shape than
            the model.
        ThreatError: for no budget, and for ``within`` beside ``eps`` or ``scale``.
        BudgetError: for a budget other than ``Linf``.
        ValueRangeError: for starts and errors that are not finite or of another shape, and steps out of range.
        CardError: for a model whose card does not say how large its errors are.

    >>> from adv_wrappers import train_dynamics
    >>> from adv_wrappers.certification.reached_sets import reached_sets
    >>> model = train_dynamics("zoo:hopper-ppo", "Hopper-v5", 2000, hidden=())
    >>> found = reached_sets("zoo:hopper-ppo", model, [1.25] + [0.0] * 10, 0.01, steps=2)
    >>> found.low.shape
    (1, 3, 11)
    """
    budget = needed_budget("a set of reached states", eps, scale, within, zero=True)
    if not isinstance(budget, Linf):
        raise BudgetError(f"a set of reached states needs Linf(eps) as the budget of every step, got {budget!r}")
    victim, model = load_victim(victim), load_dynamics(model)
    if victim.select != "mode" or not isinstance(victim.action_space, spaces.Box):
        raise VictimError(
            f"a set of reached states needs a victim that plays its mode of continuous actions, got {victim!r}"
        )
    model.check(victim)
    features = model.features
    starts = torch.atleast_2d(_numbers("start", start, features, 1, 2))
    off = model.error_quantile() if error is None else _numbers("error", error, features, 0, 1).expand(features)
    if bool((off < 0).any()):
        raise ValueRangeError(f"error must be at least 0, got {off.tolist()}")
    budget = budget.resolve(victim)
    budget.check(np.zeros(features), np.zeros(features), grid=False)
    radius = torch.as_tensor(budget.radius(starts), dtype=torch.float64).expand(features)
    policy = VictimActions(victim)
    transition = copy.deepcopy(model.net).double().cpu().requires_grad_(False)
    sides = torch.cat([radius, off])  # of what is added at a step: to the observation, and to the next state
    boxes = [(starts, starts)]
    with one_thread(), torch.no_grad():
        for count in range(1, steps + 1):
            loop, room = ClosedLoop(policy, transition, count), sides.repeat(count).expand(len(starts), -1)
            parts = zip(
                torch.cat([starts, -room], 1).split(_ROWS), torch.cat([starts, room], 1).split(_ROWS), strict=True
            )
            ends = [crown(loop, low, high, intermediate="crown") for low, high in parts]
            boxes.append((torch.cat([low for low, _ in ends]), torch.cat([high for _, high in ends])))
    low, high = (torch.stack(side, 1).numpy() for side in zip(*boxes, strict=True))
    return ReachedSets(low, high, off.numpy())


class ClosedLoop(nn.Module):
    """Some steps of an agent in a model, as one network.

    Takes the state at the start ``[B, n]`` with, beside it and for each step, what is added to the observation and what
    is added to the state that the model predicts: ``[B, n + steps * 2 n]``. Answers with the last state ``[B, n]``.
    """

    def __init__(self, policy: nn.Module, transition: TransitionModel, steps: int) -> None:
        super().__init__()
        self.policy, self.transition, self.steps = policy, transition, steps
        self.size = len(transition.obs_mean)

    def forward(self, x: Tensor) -> Tensor:
        size = self.size
        state = x[:, :size]
        for at in range(size, size * (1 + 2 * self.steps), 2 * size):
            action = self.policy(state + x[:, at : at + size])
            state = self.transition(state, action)[0] + x[:, at + size : at + 2 * size]
        return state


class VictimActions(nn.Module):
    """An agent's actions, in the units of the environment, as a network in float64 of raw observations."""

    low: Tensor
    high: Tensor

    def __init__(self, victim: Victim) -> None:
        super().__init__()
        self.net = copy.deepcopy(params_network(victim)).double().cpu().requires_grad_(False)
        space = victim.action_space
        assert isinstance(space, spaces.Box) and isinstance(victim, ModuleVictim)
        self.size = len(space.low)
        self.squash = victim.squash or ("clip" if victim.clip else "")
        if self.squash and not space.is_bounded():
            raise VictimError(f"expected a bounded space for actions that are brought into it, got {space}")
        self.tanh, self.ends = nn.Tanh(), Clip(0.0, 1.0)
        low, high = (torch.as_tensor(side, dtype=torch.float64) for side in (space.low, space.high))
        self.register_buffer("low", low)
        self.register_buffer("high", high)

    def forward(self, x: Tensor) -> Tensor:
        action: Tensor = self.net(x)[:, : self.size]
        if self.squash == "clip":
            span = self.high - self.low
            action = self.ends((action - self.low) / span) * span + self.low
        elif self.squash:
            action = self.tanh(action) if self.squash == "tanh" else action
            action = unscale(action, self.low, self.high)
        return action


def _numbers(name: str, given: ArrayLike, features: int, least: int, most: int) -> Tensor:
    """Finite numbers, float64, of at least and at most so many dimensions, the last of which are features."""
    try:
        found = np.asarray(given, np.float64)
    except (TypeError, ValueError) as error:
        raise ValueRangeError(f"{name} must be numbers, got {given!r:.80}") from error
    forms = ("a number", f"({features},)", f"('B', {features})")[least : most + 1]
    fits = least <= found.ndim <= most and found.shape[-1:] in ((), (features,)) and found.size
    if not fits or not np.isfinite(found).all():
        got = found.shape if np.isfinite(found).all() else "some that are not finite"
        raise ValueRangeError(f"{name} must be finite numbers of shape {' or '.join(forms)}, got {got}")
    return torch.from_numpy(found.copy())
