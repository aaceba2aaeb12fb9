"""Model-based attacks (Weng et al. 2020, algorithm 3): perturbations planned through a learned model.

At a step of the layer a plan of ``steps`` perturbations is made by descending the loss of equation 3 (observations)
or 4 (actions), and its first ``apply`` are applied, as in model predictive control. The paper leaves open how often
plans are renewed, the budget, the learning rate (six were tried, the best reported) and where a descent begins.
Here a plan is renewed at every step unless told otherwise; the descent begins at the best of the previous plan,
shifted, no perturbation, and constant corners of the budget; its best iterate is kept.

A model can be wrong where a plan exploits it. :class:`adv_wrappers.victims.auxiliary_networks.Dynamics` says in its
card how far its predictions hold, which is how far a plan should reach.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

import torch
from gymnasium import spaces
from torch import Tensor

from adv_wrappers.attacks.adam import Adam
from adv_wrappers.attacks.targets import Target, TargetLike, VictimValue, as_target, target_of
from adv_wrappers.core.budgets.budget import Budget
from adv_wrappers.core.engine.context import Context
from adv_wrappers.core.engine.simulator_protocol import SimulatorLike
from adv_wrappers.core.perturbation import ActionPerturbation, On, SimulatingPerturbation, VictimAttack
from adv_wrappers.core.spaces import Field
from adv_wrappers.errors import ThreatError, VictimError
from adv_wrappers.utils.checks import integer
from adv_wrappers.utils.frozen import set_fields
from adv_wrappers.utils.validation import Limits, Positive
from adv_wrappers.victims.auxiliary_networks import Dynamics, load_dynamics
from adv_wrappers.victims.victim import Victim

# ----------------------------------------------------------------------------------------------------------------------
# Planning of perturbations through a model: the loss of plans, and its descent by Adam.
#
# Equations 3 and 4 of Weng et al. 2020: of perturbations ``delta_1 .. delta_T`` within the budget, those are wanted
# that minimise ``sum_i d(s_i, s_target)``, where the states follow from the model and the victim's own policy,
#
# - of observations: ``a_i = pi(s_i + delta_i)``, ``s_{i+1} = f(s_i, a_i)``,
# - of actions: ``a_i = pi(s_i) + delta_i``, within the bounds of the actions.
#
# A plan counts perturbations in the budget's radius, and is drawn back into the budget after every step; the engine
# projects what is applied of it once more.
# ----------------------------------------------------------------------------------------------------------------------


MOST_CORNERS = 64  # constant corners of the budget, where a search begins at all of them
DRAWN_CORNERS = 32  # where there are more, so many are drawn: 64 would cost as much as thirty steps of a descent


@dataclass
class PlanningProblem:
    """What a plan is for, at one step of a layer: B rows, plans of T perturbations of d numbers.

    Attributes:
        model: predicts observations and rewards, as :class:`.Dynamics` does; None where a simulator is there.
        victim: who acts on what it is shown.
        target: the loss of a state.
        on: what is perturbed.
        obs: the true observations, ``[B, n]``.
        action: where actions are perturbed those of the agent at this step, ``[B, d]``; else None.
        budget: of every perturbation.
        space: bounds of what is perturbed, ``[d]`` twice.
        steps: T.
        attacked: whether a step of the plan is attacked at all, bool ``[T]``.
        simulator: plays plans in the environment itself, from the present state; it has no gradient.
    """

    model: Any
    victim: Victim
    target: Target
    on: On
    obs: Tensor
    action: Tensor | None
    budget: Budget
    space: tuple[Tensor, Tensor]
    steps: int
    attacked: Tensor
    simulator: SimulatorLike | None = None

    def __post_init__(self) -> None:
        self.value = self.obs if self.action is None else self.action
        far = torch.full_like(self.value, math.inf)
        low, high = self.budget.box(self.value, -far, far)
        radius = self.budget.spread(self.value, low, high)
        radius = radius.expand_as(self.value) if isinstance(radius, Tensor) else torch.full_like(self.value, radius)
        # without a radius of its own the space bounds a perturbation
        self.bounded = bool(radius.isfinite().all())
        self.radius = radius if self.bounded else (self.space[1] - self.space[0]).expand_as(self.value)
        act_low, act_high = _action_bounds(self.victim)
        self.act_low, self.act_high = act_low.to(self.obs), act_high.to(self.obs)

    @property
    def size(self) -> tuple[int, int, int]:
        """B, T and d."""
        return len(self.value), self.steps, self.value.shape[1]

    def feasible(self, plans: Tensor) -> Tensor:
        """Plans ``[..., B, T, d]`` in the budget's radius, drawn back into the budget."""
        plans = plans * self.attacked[:, None]
        # a box is cut, any other budget projects the point that the plan leads to
        if self.budget.elementwise or not self.bounded:
            return plans.clamp(-1, 1)
        x, radius = (
            part[:, None].expand(plans.shape).reshape(-1, plans.shape[-1]) for part in (self.value, self.radius)
        )
        far = torch.full_like(x, math.inf)
        low, high = self.budget.box(x, -far, far)
        y = self.budget.project(x + plans.reshape(x.shape) * radius, x, low, high)
        return ((y - x) / radius.clamp(min=torch.finfo(x.dtype).tiny)).view(plans.shape)

    def losses(self, plans: Tensor) -> Tensor:
        """The summed loss of plans ``[..., B, T, d]``, as ``[..., B]``; differentiable, but in a simulator."""
        if self.model is None:
            return self.simulated(plans)
        # every plan through the model, and the target's loss of each state on the way (equations 3 and 4)
        copies = plans.shape[:-2]
        moves = (plans * self.radius[:, None]).reshape(-1, *plans.shape[-2:])
        obs = self.obs.expand(*copies, -1).reshape(-1, self.obs.shape[1])
        total = torch.zeros(len(obs), dtype=obs.dtype, device=obs.device)
        for t in range(self.steps):
            obs, reward = self.model.predict(obs, self.acted(obs, moves[:, t], t, copies))
            total = total + self.target(obs, reward)
        return total.view(copies)

    @torch.no_grad()
    def simulated(self, plans: Tensor) -> Tensor:
        """The summed loss of plans, each of which is played; a row whose episode ends stays at its last state."""
        assert self.simulator is not None
        rows, dtype = len(self.obs), self.victim.action_space.dtype
        whole, found = plans.reshape(-1, *plans.shape[-3:]), []
        # as many plans as the simulator plays at once
        for part in whole.split(max(self.simulator.at_once // rows, 1)):
            copies = part.shape[:-2]
            moves = (part * self.radius[:, None]).reshape(-1, *part.shape[-2:])
            obs = self.obs.expand(*copies, -1).reshape(-1, self.obs.shape[1])
            total = torch.zeros(len(obs), dtype=obs.dtype)
            # play each from the present state, and sum the target's loss of every state on the way (equations 3 and 4)
            with self.simulator.rollout(len(part)) as rollout:
                for t in range(self.steps):
                    actions = self.acted(obs, moves[:, t], t, copies).numpy().astype(dtype)
                    then, reward, _ = rollout.step(actions)
                    obs = torch.from_numpy(then).to(obs)
                    total = total + self.target(obs, torch.from_numpy(reward).to(obs))
            found.append(total.view(copies))
        return torch.cat(found).view(plans.shape[:-2])

    def acted(self, obs: Tensor, move: Tensor, t: int, copies: torch.Size) -> Tensor:
        """The actions that the environment receives at step t, where the agent sees ``obs [C, n]``."""
        low, high = self.space
        if self.on == "observation":
            shown = (obs + move).clamp(torch.minimum(low, obs.detach()), torch.maximum(high, obs.detach()))
            return self.agent(shown)
        # on actions: the first one is known, those after it are what the policy would do
        action = self.agent(obs)
        if t == 0 and self.action is not None:
            action = self.action.expand(*copies, -1).reshape(action.shape)
        return (action + move).clamp(torch.minimum(low, action.detach()), torch.maximum(high, action.detach()))

    def agent(self, obs: Tensor) -> Tensor:
        """What the agent does where it sees this: its mode, within the bounds of its actions."""
        return self.victim.mode(self.victim.params(obs)).clamp(self.act_low, self.act_high)


def _action_bounds(victim: Victim) -> tuple[Tensor, Tensor]:
    space = victim.action_space
    return torch.as_tensor(space.low), torch.as_tensor(space.high)  # type: ignore[attr-defined]


def starts(problem: PlanningProblem, context: Context, previous: Tensor | None) -> Tensor:
    """Where searches may begin, ``[P, B, T, d]``: the previous plan, no perturbation, and constant corners.

    Where the agent is doing well the loss may have no slope (the cosine of a pole that stands upright): a search that
    begins with no perturbation would never leave it. Of the corners of the budget all are tried where there are no more
    than 64, else a random 32.

    Args:
        problem: the problem.
        context: draws the corners.
        previous: the plan of an earlier step, ``[B, T, d]``, shifted to the present; None for none.
    """
    rows, steps, size = problem.size
    like = problem.value
    # all corners of the budget, or some that are drawn, held over the whole plan
    if 2**size <= MOST_CORNERS:
        signs = like.new_tensor(list(itertools.product((-1.0, 1.0), repeat=size)))[:, None].expand(-1, rows, -1)
    else:
        signs = context.numbers(DRAWN_CORNERS * size).view(rows, DRAWN_CORNERS, size).sub(0.5).sign().transpose(0, 1)
    corners = signs[:, :, None].expand(-1, -1, steps, -1)
    nothing = like.new_zeros(1, rows, steps, size)
    first = [nothing] if previous is None else [previous[None], nothing]
    return problem.feasible(torch.cat([*first, corners]))


def best_of(losses: Tensor, plans: Tensor, count: int = 1) -> tuple[Tensor, Tensor]:
    """The ``count`` plans of least loss in every row: losses ``[count, B]`` and plans ``[count, B, T, d]``."""
    least = losses.nan_to_num(nan=math.inf).argsort(dim=0, stable=True)[:count]
    rows = torch.arange(losses.shape[1], device=losses.device)
    return losses[least, rows], plans[least, rows]


def descend(problem: PlanningProblem, plans: Tensor, iterations: int, lr: float) -> tuple[Tensor, Tensor]:
    """Adam from plans ``[P, B, T, d]``: the best iterate of each, and its loss ``[P, B]``.

    Args:
        problem: the problem.
        plans: where it begins, in the budget.
        iterations: gradient steps.
        lr: the learning rate, in the budget's radius.
    """
    plans, adam = plans.clone(), Adam(plans, lr)
    best, least = plans.clone(), torch.full(plans.shape[:-2], math.inf, dtype=plans.dtype, device=plans.device)

    def keep(losses: Tensor, plans: Tensor) -> None:
        better = losses < least
        torch.where(better, losses, least, out=least)
        torch.where(better[..., None, None], plans, best, out=best)

    # the paper's projected descent: a step of Adam on each plan, and back into the budget
    for _ in range(iterations):
        with torch.enable_grad():
            losses = problem.losses(plans.requires_grad_())
            (slope,) = torch.autograd.grad(losses.sum(), plans)
        keep(losses.detach(), plans.detach())
        plans = problem.feasible(plans.detach() - adam.step(slope))
    keep(problem.losses(plans), plans)
    return least, best


# ----------------------------------------------------------------------------------------------------------------------
# The planner for models, victims and simulators without gradients: the cross-entropy method (Rubinstein and Kroese
# 2004), which draws plans around a mean, and moves mean and deviation to the best of them.
# ----------------------------------------------------------------------------------------------------------------------


ELITES = 0.125  # share of the samples that the cross-entropy method moves to
SPREAD, LEAST_SPREAD = 0.5, 0.05  # standard deviation of the first samples and of the last, in the budget's radius


def cem(problem: PlanningProblem, plans: Tensor, iterations: int, samples: int, context: Context) -> Tensor:
    """The cross-entropy method from the best of some plans.

    Args:
        problem: the problem.
        plans: where it may begin, ``[P, B, T, d]``.
        iterations: how often it samples.
        samples: plans that are drawn each time in every row.
        context: draws them.

    Returns:
        The best plan of every row, ``[B, T, d]``.
    """
    few = max(round(ELITES * samples), 1)
    least, best = best_of(problem.losses(plans), plans)
    mean, std = best[0], torch.full_like(best[0], SPREAD)
    # drawn around the mean of the best few of the last iteration, and as wide as these lie apart
    for _ in range(iterations):
        drawn = _drawn(problem, mean, std, samples, context)
        losses, elites = best_of(problem.losses(drawn), drawn, few)
        least, best = best_of(torch.cat([least, losses[:1]]), torch.cat([best, elites[:1]]))
        mean, std = elites.mean(0), elites.std(0, unbiased=False).clamp(min=LEAST_SPREAD)
    return best[0]


def _drawn(problem: PlanningProblem, mean: Tensor, std: Tensor, samples: int, context: Context) -> Tensor:
    """Plans around a mean, the mean itself first, ``[samples, B, T, d]``."""
    rows, steps, size = mean.shape
    uniform = context.numbers(samples * steps * size).view(rows, samples, steps, size).transpose(0, 1)
    # normal numbers from uniform ones, which follow from the step's key
    bits = torch.finfo(uniform.dtype).eps
    normal = torch.special.ndtri(uniform.clamp(bits, 1 - bits)).to(mean)
    normal[0] = 0.0
    return problem.feasible(mean + std * normal)


MOST_PLANNED_STEPS = 10_000
SIMULATOR = "simulator"  # instead of a model
Planner = Literal["adam", "cem"]


@dataclass(frozen=True)
class Planned(SimulatingPerturbation, VictimAttack):
    """Base of the attacks that plan through a model.

    Args:
        victim: with continuous actions and observations ``[n]``, feed-forward.
        dynamics: a :class:`.Dynamics`, or ``card:FOLDER``; or ``"simulator"``, which plans in the environment itself:
            a reference that tells the error of a model from that of the planner, no attacker can have it.
        target: the loss of a state: a :class:`.targets.Target`, its text such as ``"height=0"``, or a
            function of observations ``[..., n]``; None takes the model's environment's own
            (:data:`.targets.TARGETS`).
        steps: length T of a plan.
        apply: how many perturbations of a plan are applied before the next one is made, at most ``steps``.
        planner: ``adam`` (the paper's), or without gradients ``cem`` (the cross-entropy method); None takes ``adam``
            where there are gradients, else ``cem``.
        iterations: steps of Adam, or how often is sampled.
        lr: Adam's learning rate, in the budget's radius.
        restarts: descents of Adam, from the best starts of every row.
        samples: plans that ``cem`` draws each time.
        every: of the steps of a plan only every so many are attacked, as where the timing is ``Every(k)``.

    Raises:
        VictimError: for a victim that none can plan through, and one that the model does not fit.
        ThreatError: without a target where the environment has none of its own; for a model whose own predictions
            leave the finite numbers.
        ValueRangeError: for arguments out of range, and for a feature that observations do not have; where a simulator
            knows the names of features, when a layer is made.
    """

    dynamics: Any = None
    target: TargetLike | None = None
    steps: Annotated[int, Limits(1, MOST_PLANNED_STEPS)] = 10
    apply: Positive = 1
    iterations: Annotated[int, Limits(0, MOST_PLANNED_STEPS)] = field(default=30, kw_only=True)
    lr: Annotated[float, Limits(0, 1e3, above=True)] = field(default=0.25, kw_only=True)
    restarts: Annotated[int, Limits(1, MOST_PLANNED_STEPS)] = field(default=1, kw_only=True)
    every: Annotated[int, Limits(1, MOST_PLANNED_STEPS)] = field(default=1, kw_only=True)
    planner: Planner | None = field(default=None, kw_only=True)
    samples: Annotated[int, Limits(2, MOST_PLANNED_STEPS)] = field(default=64, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        integer("apply, which is at most steps,", self.apply, 1, self.steps)
        if self.dynamics is None:
            raise ThreatError(
                f"{self.name} needs a model: dynamics=card:FOLDER, which train_dynamics, or adv-wrappers "
                "train-dynamics, makes"
            )
        # a simulator has no gradients; a reference to a model is loaded
        if self.in_simulator:
            if self.planner == "adam":
                raise ThreatError("planner=adam follows gradients, and a simulator has none: use cem")
        elif isinstance(self.dynamics, str):
            set_fields(self, dynamics=load_dynamics(self.dynamics))
        if not self.in_simulator and not hasattr(self.dynamics, "predict"):
            raise ThreatError(
                f"dynamics must be a model of the dynamics, card:FOLDER or simulator, got {self.dynamics!r:.80}"
            )
        if self.target is not None:
            set_fields(self, target=as_target(self.target))
        _ = self.aim
        if isinstance(self.dynamics, Dynamics):
            _check_errors(self.dynamics)
        if self.victim is not None:
            self._check_victim()

    @property
    def simulates(self) -> bool:
        return self.in_simulator

    @property
    def network_passes(self) -> int:
        return self.steps * (self.samples + self.restarts * self.iterations) // self.every

    @property
    def in_simulator(self) -> bool:
        """Whether plans are made in the environment itself."""
        return isinstance(self.dynamics, str) and self.dynamics == SIMULATOR

    @cached_property
    def aim(self) -> Target:
        """The target that is planned for, with numbers where features have names, unless the simulator knows these.

        Raises:
            ThreatError: where none is given and the environment has none of its own.
            ValueRangeError: for a feature that observations do not have.
        """
        # the target that was given, or the environment's own
        about = getattr(self.dynamics, "card", {}).get("environment")
        environment = about.get("id") if isinstance(about, dict) else None
        found = target_of(environment) if self.target is None else as_target(self.target)
        if found is None:
            raise ThreatError(
                f"{self.name} needs a target: {environment or 'this environment'} has none of its own, so say where "
                f"its states are driven to, as in target='height=0', or target='reward'"
            )
        # what it leaves open: whose value it is, and the numbers of the features that it names
        if isinstance(found, VictimValue) and found.victim is None and self.victim is not None:
            found = VictimValue(self.victim)
        if isinstance(self.dynamics, Dynamics):
            found = found.named(self.dynamics.feature_names, self.dynamics.features)
        elif self.in_simulator and self.victim is not None and not found.has_names:
            found = found.named((), *self.victim.observation_space.shape)
        return found

    def check_simulated(self, feature_names: Sequence[str]) -> None:
        if self.aim.has_names:
            self.aim.named(feature_names, *self.victim.observation_space.shape)

    def _check_victim(self) -> None:
        victim = self.victim
        if not isinstance(victim.action_space, spaces.Box) or len(victim.action_space.shape) != 1:
            raise VictimError(f"{self.name} is for continuous actions, this victim acts in {victim.action_space}")
        if not isinstance(victim.observation_space, spaces.Box) or len(victim.observation_space.shape) != 1:
            raise VictimError(f"{self.name} takes observations [n], this victim sees {victim.observation_space}")
        if victim.recurrent:
            raise VictimError(f"{self.name} plans through a policy without a hidden state, and this victim has one")
        if self.planner == "adam" and not victim.differentiable:
            raise VictimError("planner=adam follows the victim's gradient, and this one has none")
        if isinstance(self.dynamics, Dynamics):
            self.dynamics.check(victim)

    def check(self, field: Field, within: Budget) -> None:
        super().check(field, within)
        if field.grid or field.discrete:
            raise ThreatError(f"{self.name} plans in continuous spaces, not on a grid")

    def initial_memory(self, x: Tensor) -> dict[str, Tensor]:
        """The plan of every row, in the budget's radius, and the step that it was made for, -1 for none."""
        space = self.victim.observation_space if self.on == "observation" else self.victim.action_space
        return {
            "plan": torch.zeros(len(x), self.steps, *space.shape),
            "made": torch.full((len(x),), -1, dtype=torch.int64),
        }

    def __call__(self, x: Tensor, context: Context) -> Tensor:
        memory, problem = context.memory or self.initial_memory(x), self.problem(x, context)
        made = memory["made"]
        # what is left of every row's plan, and whether it is old enough for another one
        now = torch.as_tensor(context.t, device=made.device).expand(len(x))
        age = torch.where(made < 0, self.steps, now - made).clamp(max=self.steps)
        plan = shifted(memory["plan"].to(x), age.to(x.device))
        old = age >= self.apply
        # the rest of the old plan is one of the points from which the new one is sought
        if bool(old.any()):
            context.bind(self.victim).params(problem.obs)  # which are checked
            new = self.planned(problem, context, plan)
            plan = torch.where(old[:, None, None].to(x.device), new, plan)
            memory["plan"] = torch.where(old[:, None, None], plan.to(memory["plan"]), memory["plan"])
            memory["made"] = torch.where(old, now, made)
        # of the plan the first perturbation is applied
        context.memory = memory
        return x + plan[:, 0] * problem.radius

    def problem(self, x: Tensor, context: Context) -> PlanningProblem:
        """What is planned at this step."""
        acting = self.on == "action"
        obs = context.observation if acting else x
        # the steps of the plan at which it may perturb
        attacked = torch.arange(self.steps, device=x.device) % self.every == 0
        model = self.dynamics
        simulator = None
        aim = self.aim
        if self.in_simulator:
            model, simulator = None, context.simulator
            aim = aim.named(simulator.feature_names, *self.victim.observation_space.shape)
        return PlanningProblem(
            model,
            self.victim,
            aim,
            self.on,
            obs.to(x),
            x if acting else None,
            context.budget,
            context.space,
            self.steps,
            attacked.to(x.dtype),
            simulator,
        )

    def planned(self, problem: PlanningProblem, context: Context, previous: Tensor) -> Tensor:
        """The best plan that was found in every row, ``[B, T, d]``."""
        tried = starts(problem, context, previous)
        differentiable = problem.model is not None and self.victim.differentiable
        planner = self.planner or ("adam" if differentiable else "cem")
        # without gradients by the cross-entropy method, with them by descent from the best starts
        if planner == "cem":
            return cem(problem, tried, self.iterations, self.samples, context)
        _, chosen = best_of(problem.losses(tried), tried, self.restarts)
        losses, chosen = descend(problem, chosen, self.iterations, self.lr)
        return best_of(losses, chosen)[1][0]


def shifted(plan: Tensor, age: Tensor) -> Tensor:
    """Plans ``[B, T, d]`` that begin ``age`` steps later, the last perturbation repeated at their ends."""
    steps = plan.shape[1]
    index = (torch.arange(steps, device=plan.device) + age[:, None]).clamp(max=steps - 1)
    return plan.gather(1, index[:, :, None].expand_as(plan))


def _check_errors(model: Dynamics) -> None:
    """Raise :class:`ThreatError` for a model whose own predictions were not finite on the episodes held out."""
    errors = model.card.get("errors")
    for source, found in (errors if isinstance(errors, dict) else {}).items():
        loops = found.get("open_loop", {}) if isinstance(found, dict) else {}
        for steps, error in loops.items():
            if error is None or not math.isfinite(error):
                raise ThreatError(
                    f"the model's predictions over {steps} steps are not finite on episodes of the {source}: train it "
                    f"on more transitions"
                )


@dataclass(frozen=True)
class ModelBased(Planned):
    """Show the agent what makes it drive itself to an unsafe state, planned through a learned model."""

    name: ClassVar[str] = "model-based"


@dataclass(frozen=True)
class ActionModelBased(ActionPerturbation, Planned):
    """Turn the agent's actions so that they lead to an unsafe state, planned through a learned model."""

    name: ClassVar[str] = "action-model-based"
