"""Model-based attacks (Weng et al. 2020, algorithm 3): perturbations planned through a learned model.

At a step of the layer a plan of ``steps`` perturbations is made by descending the loss of equation 3 (observations) or
4 (actions), and its first ``apply`` are applied, as in model predictive control. The paper leaves open how often plans
are renewed, the budget, the learning rate (six were tried, the best reported) and where a descent begins. Here a plan
is renewed at every step unless told otherwise; the descent begins at the best of the previous plan, shifted, no
perturbation, and constant corners of the budget; its best iterate is kept.

A model can be wrong where a plan exploits it. :class:`adv_wrappers.victims.saved_dynamics_model.Dynamics` says in its
card how far its predictions hold, which is how far a plan should reach.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import torch
from gymnasium import spaces
from torch import Tensor

from adv_wrappers.attacks.lqr_planner import lqr
from adv_wrappers.attacks.planning_loss_and_adam import PlanningProblem, best_of, descend, starts
from adv_wrappers.attacks.planning_target_losses import Target, TargetLike, VictimValue, as_target, target_of
from adv_wrappers.attacks.sampling_planners import cem, mppi
from adv_wrappers.core.budgets import Budget
from adv_wrappers.core.context import Context
from adv_wrappers.core.perturbation import ActionPerturbation, SimulatingPerturbation, VictimAttack
from adv_wrappers.core.spaces import Field
from adv_wrappers.core.threat import expect_victim
from adv_wrappers.errors import Message, ThreatError, ValueRangeError, VictimError, Words
from adv_wrappers.utils.check_numbers import check_integer, check_number
from adv_wrappers.utils.frozen_dataclasses import set_fields
from adv_wrappers.victims.saved_dynamics_model import Dynamics, load_dynamics

MOST_PLANNED_STEPS = 10_000
SIMULATOR = "simulator"  # instead of a model
GRADIENT_PLANNERS = ("adam", "lqr")
SAMPLING_PLANNERS = {"cem": cem, "mppi": mppi}
PLANNERS = (*GRADIENT_PLANNERS, *SAMPLING_PLANNERS)


@dataclass(frozen=True)
class Planned(SimulatingPerturbation, VictimAttack):
    """Base of the attacks that plan through a model.

    Args:
        victim: with continuous actions and observations ``[n]``, feed-forward.
        dynamics: a :class:`.Dynamics`, or ``card:FOLDER``; or ``"simulator"``, which plans in the environment itself:
            a reference that tells the error of a model from that of the planner, no attacker can have it.
        target: the loss of a state: a :class:`.planning_target_losses.Target`, its text such as ``"height=0"``, or a
            function of observations ``[..., n]``; None takes the model's environment's own
            (:data:`.planning_target_losses.TARGETS`).
        steps: length T of a plan.
        apply: how many perturbations of a plan are applied before the next one is made, at most ``steps``.
        planner: ``adam`` (the paper's), ``lqr`` (iterative LQR), or without gradients ``cem`` (the cross-entropy
            method) or ``mppi``; None takes ``adam`` where there are gradients, else ``cem``.
        iterations: steps of Adam, linearisations of LQR, or how often is sampled.
        lr: Adam's learning rate, in the budget's radius.
        restarts: descents of Adam or LQR, from the best starts of every row.
        samples: plans that ``cem`` and ``mppi`` draw each time.
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
    steps: int = 10
    apply: int = 1
    iterations: int = field(default=30, kw_only=True)
    lr: float = field(default=0.25, kw_only=True)
    restarts: int = field(default=1, kw_only=True)
    every: int = field(default=1, kw_only=True)
    planner: str | None = field(default=None, kw_only=True)
    samples: int = field(default=64, kw_only=True)

    def __post_init__(self) -> None:
        check_integer("steps", self.steps, 1, MOST_PLANNED_STEPS)
        check_integer("apply, which is at most steps,", self.apply, 1, self.steps)
        check_integer("iterations", self.iterations, 0, MOST_PLANNED_STEPS)
        check_integer("restarts", self.restarts, 1, MOST_PLANNED_STEPS)
        check_integer("every", self.every, 1, MOST_PLANNED_STEPS)
        check_integer("samples", self.samples, 2, MOST_PLANNED_STEPS)
        if self.planner not in (None, *PLANNERS):
            raise ValueRangeError(f"planner must be one of {', '.join(PLANNERS)}, got {self.planner!r}")
        check_number("lr", self.lr, 0, 1e3, above=True)
        expect_victim(self.name, self.victim)
        if self.dynamics is None:
            maker = Words("adv.train_dynamics", "adv-wrappers train-dynamics")
            raise ThreatError(Message(f"{self.name} needs a model: dynamics=card:FOLDER, which ", maker, " makes"))
        if self.in_simulator:
            if self.planner in GRADIENT_PLANNERS:
                raise ThreatError(
                    f"planner={self.planner} follows gradients, and a simulator has none: use cem or mppi"
                )
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
        about = getattr(self.dynamics, "card", {}).get("environment")
        environment = about.get("id") if isinstance(about, dict) else None
        found = target_of(environment) if self.target is None else as_target(self.target)
        if found is None:
            raise ThreatError(
                f"{self.name} needs a target: {environment or 'this environment'} has none of its own, so say where "
                f"its states are driven to, as in target='height=0', or target='reward'"
            )
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
        if self.planner in GRADIENT_PLANNERS and not victim.differentiable:
            raise VictimError(f"planner={self.planner} follows the victim's gradient, and this one has none")
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
        now = torch.as_tensor(context.t, device=made.device).expand(len(x))
        age = torch.where(made < 0, self.steps, now - made).clamp(max=self.steps)
        plan = shifted(memory["plan"].to(x), age.to(x.device))
        old = age >= self.apply
        if bool(old.any()):
            context.bind(self.victim).params(problem.obs)  # which are checked
            new = self.planned(problem, context, plan)
            plan = torch.where(old[:, None, None].to(x.device), new, plan)
            memory["plan"] = torch.where(old[:, None, None], plan.to(memory["plan"]), memory["plan"])
            memory["made"] = torch.where(old, now, made)
        context.memory = memory
        return x + plan[:, 0] * problem.radius

    def problem(self, x: Tensor, context: Context) -> PlanningProblem:
        """What is planned at this step."""
        acting = self.on == "action"
        obs = context.observation if acting else x
        attacked = torch.arange(self.steps, device=x.device) % self.every == 0
        model, simulator, aim = self.dynamics, None, self.aim
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
        if planner in SAMPLING_PLANNERS:
            return SAMPLING_PLANNERS[planner](problem, tried, self.iterations, self.samples, context)
        _, chosen = best_of(problem.losses(tried), tried, self.restarts)
        if self.iterations:
            if planner == "adam":
                losses, chosen = descend(problem, chosen, self.iterations, self.lr)
            else:
                losses, chosen = lqr(problem, chosen, self.iterations)
            _, chosen = best_of(losses, chosen)
        return chosen[0]


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
