"""Alternating training: the agent, the adversary that learns, and the callback that gives them turns.

The agent is outside of the layer that perturbs, and its normaliser outside of the agent's environments::

    environments -> layer (true observations in, perturbed ones out) -> VecNormalize -> PPO, A2C, DQN or RecurrentPPO

The normaliser holds the statistics of the true observations and changes between rollouts only; then the budget (where
it is counted in units of the normaliser) and the live victim (whose first layer the normaliser is) change with it. So
at every step the agent acts with the very numbers that the adversary attacks and the budget is counted in.

A recurrent agent has its state in three places. In its own phase RecurrentPPO carries it from step to step, and the
layer (its session) another one, from the same perturbed observations and by the live victim: what an attack looks at is
the state that the agent acts with. In the adversary's phase the policy runner of the adversary's environments has it.
All begin at zero with an episode. When the networks change, states go on from what the old ones made of the episode.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.running_mean_std import RunningMeanStd
from stable_baselines3.common.vec_env import VecNormalize
from torch import Tensor

from adv_wrappers.adversaries.actor import Actor
from adv_wrappers.adversaries.director import Director
from adv_wrappers.adversaries.learned import Learned
from adv_wrappers.attacks.max_diff import MaxDiff
from adv_wrappers.core import rng
from adv_wrappers.core.budgets import Budget
from adv_wrappers.core.context import Context
from adv_wrappers.core.perturbation import BoundedPerturbation, On
from adv_wrappers.core.spaces import At
from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.core.types import Array, Info
from adv_wrappers.errors import BudgetError
from adv_wrappers.training.algorithms import Training
from adv_wrappers.training.checkpoints import AgentAndThreat, AgentCheckpoints, AgentProgress
from adv_wrappers.training.defences.policy_bounds import BoundedPolicy
from adv_wrappers.training.director_networks import director_of
from adv_wrappers.training.method import RobustTraining
from adv_wrappers.training.sb3_conversion import update_normaliser
from adv_wrappers.training.sb3_vec_env import AgentVecEnv
from adv_wrappers.training.scoring import CheckpointEvaluator, CheckpointScore, Scoring, log_point
from adv_wrappers.victims import Victim, from_sb3
from adv_wrappers.wrappers.layer import Layer
from adv_wrappers.wrappers.sb3_layers import VecAdversaryEnv

_SHARES = (1.0, 0.5, 0.25, 0.125)  # of a budget under which all is lost
_SOME_LOSS, _ALIKE = 0.1, 0.02  # of the clean return, and the spread of returns as a share of what is lost
_FEW = 3  # episodes below which nothing is said of what they have in common
_TOLD = 1000  # times that on_steps is called in a training, about, at most
_DIRECTOR_STREAM = 1 << 30  # draws of the adversary's actions, apart from those of the actor


class HeldStatistics(RunningMeanStd):
    """Statistics of a ``VecNormalize`` that change by :meth:`take_in` alone, and not at all if they are ``fixed``."""

    fixed = False

    def update(self, arr: Array) -> None:
        """Do nothing: ``VecNormalize`` calls this at every step, with perturbed observations."""

    def take_in(self, observations: list[Array]) -> None:
        """Update with batches ``[N, n]`` of true observations."""
        if observations and not self.fixed:
            super().update(np.concatenate(observations))


def hold_statistics(normal: VecNormalize, fixed: bool) -> None:
    """Replace the observation statistics of a ``VecNormalize`` by :class:`HeldStatistics` of the same numbers."""
    if normal.norm_obs:
        old: Any = normal.obs_rms
        held = HeldStatistics(shape=old.mean.shape)
        held.mean, held.var, held.count, held.fixed = old.mean, old.var, old.count, fixed
        normal.obs_rms = held  # type: ignore[assignment]


class DirectorSnapshot:
    """A copy of the adversary's policy, which chooses its actions while the agent learns.

    Args:
        sampled: whether actions are drawn, as in the adversary's own phase; else they are the mode.
    """

    def __init__(self, sampled: bool) -> None:
        self.sampled = sampled
        self.director: Director
        self.log_std: Tensor | None = None

    def update(self, model: OnPolicyAlgorithm) -> None:
        """Copy a model's policy."""
        self.director = director_of(model)
        self.log_std = None if self.director.discrete else model.policy.log_std.detach().clone()

    @torch.no_grad()
    def act(self, x: Tensor, key: Tensor) -> Tensor:
        """The adversary's actions ``[B, *A]`` at true observations ``[B, n]``, drawn with the int64 keys ``[B]``."""
        if not self.sampled:
            return self.director(x)  # type: ignore[no-any-return]
        out: Tensor = self.director.net(x.float())
        if self.log_std is None:
            uniform = rng.uniform(key, tuple(out.shape[1:]), out.dtype).clamp(min=1e-20)
            return (out - (-uniform.log()).log()).argmax(-1)
        normal = rng.normal(key, tuple(out.shape[1:]), out.dtype)
        return (out + self.log_std.exp() * normal).clamp(-1, 1)


@dataclass(frozen=True)
class SnapshotAdversary(BoundedPerturbation):
    """The adversary in training, as the agent meets it.

    Args:
        actor: turns the adversary's action into a perturbation.
        snapshot: chooses the adversary's action.
    """

    name: ClassVar[str] = "opponent"
    actor: Actor
    snapshot: DirectorSnapshot

    @property
    def on(self) -> On:
        return self.actor.on

    @property
    def at(self) -> At:
        """Of an actor on the dynamics the parameters that it changes, else None."""
        return self.actor.at

    @property
    def victim(self) -> Victim | None:
        """The actor's victim."""
        return self.actor.victim  # type: ignore[no-any-return]

    def __call__(self, x: Tensor, context: Context) -> Tensor:
        seen = x if self.on == "observation" else context.observation
        action = self.snapshot.act(seen, rng.fold(context.key, _DIRECTOR_STREAM))
        return self.actor(x, action, context)


@dataclass
class AdversaryTrainer:
    """The adversary's side of an alternating training.

    Attributes:
        model: the algorithm that trains it, on ``env``.
        env: the game from the adversary's side, against the live agent.
        snapshot: the policy that it plays with in the agent's phase.
        actor: the actor as it is deployed, its victim left open.
        threat: the threat that the agent meets in its own phase.
    """

    model: OnPolicyAlgorithm
    env: VecAdversaryEnv
    snapshot: DirectorSnapshot
    actor: Actor
    threat: ThreatModel


class AgentTrainer:
    """The agent's side: its model, the live victim, and the layers whose budgets follow its normaliser.

    Args:
        model: the agent's algorithm, made on ``VecNormalize(AgentVecEnv(...))``.
        victim: the agent as a live victim.
    """

    def __init__(self, model: BaseAlgorithm, victim: Victim) -> None:
        self.model, self.victim = model, victim
        self.within: Budget | None = None
        self.layers: list[Layer] = []

    @property
    def normal(self) -> VecNormalize:
        """The agent's normaliser."""
        found = self.model.get_vec_normalize_env()
        assert found is not None
        return found

    @property
    def env(self) -> AgentVecEnv:
        """The agent's environments."""
        return self.normal.venv  # type: ignore[return-value]

    def attack(self, threat: ThreatModel | None, adversary: AdversaryTrainer | None) -> None:
        """Put the adversary between the environments and the agent; open victims are the agent itself."""
        threat = threat if adversary is None else adversary.threat
        if threat is None:
            return
        self.within = threat.budget
        self.layers = [*self.env.attack(threat, self.victim), *([] if adversary is None else [adversary.env])]

    def update_normaliser(self) -> None:
        """Between two rollouts: update the normaliser, and with it the live victim and the budgets."""
        seen = self.env.true_observations
        if self.normal.norm_obs:
            assert isinstance(self.normal.obs_rms, HeldStatistics)
            self.normal.obs_rms.take_in(seen)
            update_normaliser(self.victim, self.normal)
            if self.victim.recurrent:
                # The agent has its last observation in the old units. Its state would go on from these, that of the
                # live victim from the new ones, and they would differ to the end of the episode.
                self.model._last_obs = self.normal.normalize_obs(self.normal.get_original_obs())
        seen.clear()
        for layer in self.layers:
            assert self.within is not None
            within = self.within.resolve(next(iter(layer.threat.victims), self.victim))
            if within != layer.threat.budget:
                layer.set_budget(within)


@dataclass(frozen=True)
class Schedule:
    """How the two sides of an alternating training take turns: see :func:`adv_wrappers.train_agent`.

    Attributes:
        training: how the agent is trained.
        phase: its steps between two phases of the adversary.
        ratio: the adversary's steps for each of the agent's.
    """

    training: Training
    phase: int
    ratio: float


@dataclass(frozen=True)
class AgentSnapshot:
    """An agent as it was at a checkpoint, with what it is scored under.

    Attributes:
        agent: the agent, a copy.
        threat: the threat, or None.
        worst_within: the budget of the greedy worst case, or None where that is not played.
        is_first: whether it is the agent that the training begins with, which has not learned by its method.
    """

    agent: Victim
    threat: ThreatModel | None = None
    worst_within: Budget | None = None
    is_first: bool = False


@dataclass(frozen=True)
class AgentReturns:
    """What an agent did at a checkpoint.

    Attributes:
        returns: of every episode, ``[episodes]``, under the names of the record: ``clean``, ``attacked``, which may be
            None, and ``gwc`` where the greedy worst case was played.
        acr: of its episodes the share of steps without a choice, ``[episodes]``, or None.
        max_diff: where all is lost, by the share of the budget the mean return under MaxDiff.
    """

    returns: dict[str, NDArray[np.float64] | None]
    acr: NDArray[np.float64] | None = None
    max_diff: dict[str, float] | None = None


@dataclass(frozen=True)
class AgentScore(CheckpointScore[AgentSnapshot, AgentReturns]):
    """The returns of an agent: clean, attacked and in the greedy worst case, as far as there are those.

    Where the strongest of them ends all episodes alike, far below those without an attack, it says nothing of how far
    an agent is from withstanding it. Then MaxDiff is played too, in the budget, which the greedy worst
    case exceeds by what its bounds are loose, and in shares of it.

    Attributes:
        robust: of a robust training, which says how the agent is used; or None.
    """

    robust: RobustTraining | None = None

    def __call__(self, evaluator: CheckpointEvaluator, checkpoint: AgentSnapshot) -> AgentReturns:
        agent, threat = checkpoint.agent, checkpoint.threat
        if self.robust is not None and not checkpoint.is_first:
            agent = self.robust.deployed(agent)
        attacked = None if threat is None else evaluator.play(agent, threat)
        clean = evaluator.play(agent)
        returns = {"clean": clean, "attacked": attacked}
        # what the agent loses most by, of which nothing is learned where all is lost at every checkpoint
        within, worst = checkpoint.worst_within, None
        if within is not None:
            worst = evaluator.worst_case(agent, within)
            returns["gwc"] = worst.returns
        elif threat is not None and threat.on == "observation":
            within = threat.budget
        strongest = attacked if worst is None else worst.returns
        lost = strongest is not None and all_lost(strongest, clean)
        max_diff = self._max_diff(evaluator, agent, within) if lost and within is not None else None
        return AgentReturns(returns, None if worst is None else worst.acr, max_diff)

    def _max_diff(self, evaluator: CheckpointEvaluator, agent: Victim, within: Budget) -> dict[str, float] | None:
        """By the share of a budget the mean return under MaxDiff in it; None where none of them is one."""
        found, grid = dict[str, float](), np.dtype(agent.observation_space.dtype).kind in "iu"
        for share in _SHARES:
            with contextlib.suppress(BudgetError):
                part = within.scaled(share, grid)
                if not part.is_zero:
                    threat = ThreatModel("observation", MaxDiff(), part)
                    found[f"{share:g}"] = float(evaluator.play(agent, threat.against(agent)).mean())
        return found or None


def all_lost(returns: NDArray[np.float64], clean: NDArray[np.float64]) -> bool:
    """Whether an attack ends all episodes alike, well below those without one, so that it tells no agents apart.

    >>> all_lost(np.full(20, -500.0), np.full(20, -80.0)), all_lost(np.full(20, 500.0), np.full(20, 500.0))
    (True, False)
    """
    lost = float(clean.mean() - returns.mean())
    alike = len(returns) >= _FEW and float(returns.std()) <= _ALIKE * lost
    return alike and lost > _SOME_LOSS * abs(float(clean.mean()))


class AlternatingTraining(BaseCallback):
    """Called by the agent's algorithm before every rollout: the adversary's phases, checkpoints, the normaliser.

    Args:
        agent: the agent's side.
        adversary: the adversary's side; None where no adversary learns.
        threat: the threat that the agent is evaluated under where no adversary learns, or None.
        scoring: plays the episodes that checkpoints are compared on, maybe while the training goes on.
        schedule: when either side learns.
        checkpoints: the record, and what is written to the folder.
        select: how the agent acts in evaluations.
        progress: called after every checkpoint.
        bounds: of the agent's policy, where its loss is one over the budget's box.
        on_steps: called between rollouts with the steps that the agent has taken.
    """

    def __init__(
        self,
        agent: AgentTrainer,
        adversary: AdversaryTrainer | None,
        threat: ThreatModel | None,
        scoring: Scoring[AgentSnapshot, AgentReturns],
        schedule: Schedule,
        checkpoints: AgentCheckpoints,
        select: Literal["mode", "sample"],
        progress: AgentProgress | None,
        bounds: BoundedPolicy | None = None,
        on_steps: Callable[[int], object] | None = None,
    ) -> None:
        super().__init__()
        self.bounds, self.on_steps = bounds, on_steps
        self.agent, self.adversary, self.threat, self.scoring = agent, adversary, threat, scoring
        self.schedule, self.checkpoints, self.select, self.progress = schedule, checkpoints, select, progress
        record = checkpoints.folder.record
        last = record[-1]["seconds"] if record else {"agent": 0.0, "adversary": 0.0}
        self.taken = int(record[-1]["steps"]) if record else 0  # steps of the last checkpoint, with a score or without
        self.seconds, self.since = dict(last), time.process_time()
        self.next_phase = self.next_checkpoint = 0
        self.told = -1  # steps that on_steps was told of last
        self._schedule_next()

    @property
    def steps(self) -> int:
        """Steps that the agent has taken."""
        return int(self.agent.model.num_timesteps)

    def _schedule_next(self) -> None:
        phase, checkpoint = self.schedule.phase, self.schedule.training.checkpoint_every
        self.next_phase, self.next_checkpoint = ((self.steps // each + 1) * each for each in (phase, checkpoint))

    def _on_training_start(self) -> None:
        self.since = time.process_time()

    def _on_step(self) -> bool:
        return True

    def _on_rollout_start(self) -> None:  # after the update that follows a rollout, so that a checkpoint is whole
        if self.scoring.ready:
            self._count_seconds("agent")
            self.scoring.deliver()
            self.since = time.process_time()
        checkpoint = self.steps >= self.next_checkpoint
        if checkpoint or self.steps >= self.next_phase:
            self._between_rollouts(checkpoint)
        self.agent.update_normaliser()
        if self.on_steps is not None and (
            self.told < 0 or self.steps - self.told >= self.schedule.training.steps // _TOLD
        ):
            self.told = self.steps
            self.on_steps(self.steps)

    def score_first(self, agent: Victim) -> None:
        """Score the agent that the training begins with, as it is without an attack."""

        def keep(found: AgentReturns) -> None:
            clean = found.returns["clean"]
            assert clean is not None
            self.checkpoints.began_with = {"ref": agent.ref, "clean": float(clean.mean())}

        self.scoring.submit(AgentSnapshot(agent, is_first=True), keep)

    def finish(self) -> AgentAndThreat:
        """The best checkpoint, after evaluating the last steps too."""
        if self.taken < self.steps:
            self._between_rollouts(True)
        self.scoring.deliver(0)
        return self.checkpoints.finish(self.current_threat())

    def _between_rollouts(self, checkpoint: bool) -> None:
        self._schedule_next()
        self._count_seconds("agent")
        self._adversary_phase()
        self._count_seconds("adversary")
        if checkpoint:
            self._checkpoint()
        self.since = time.process_time()

    def _count_seconds(self, side: str) -> None:
        now = time.process_time()
        self.seconds[side] += now - self.since
        self.since = now

    def _adversary_phase(self) -> None:
        """Train the adversary until it has ``ratio`` times the steps of the agent, which does not change."""
        if self.adversary is None:
            return
        model = self.adversary.model
        missing = round(self.schedule.ratio * self.steps) - int(model.num_timesteps)
        if missing > 0:
            model.learn(missing, reset_num_timesteps=False, tb_log_name="adversary")
            model.set_logger(model.logger)  # or every phase would open another
            self.adversary.snapshot.update(model)

    def current_threat(self) -> ThreatModel | None:
        """The threat that the agent is evaluated under now: an adversary that learns by its mode, its victim open."""
        if self.adversary is None:
            return self.threat
        learned, threat = Learned(director_of(self.adversary.model), self.adversary.actor), self.adversary.threat
        return ThreatModel(learned.on, learned, threat.budget, threat.when)

    def _checkpoint(self) -> None:
        model, threat = self.agent.model, self.current_threat()
        adversary = None if self.adversary is None else self.adversary.model
        self.taken = self.steps
        worst = self.bounds.within if self.bounds is not None and self.bounds.count else None
        recent = [episode["r"] for episode in model.ep_info_buffer or ()]
        row: Info = {
            "steps": self.steps,
            "adversary_steps": 0 if adversary is None else int(adversary.num_timesteps),
            "in_training": float(np.mean(recent)) if recent else None,
            "seconds": {side: round(seconds, 1) for side, seconds in self.seconds.items()},
            "late": 2 * self.steps >= self.schedule.training.steps,  # the adversary has had half of its training
        }
        part = self.checkpoints.begin(self.steps, model, adversary)
        snapshot = AgentSnapshot(from_sb3(model, select=self.select), threat, worst)
        self.scoring.submit(snapshot, functools.partial(self._add, row, snapshot, part))

    def _add(self, taken: Info, snapshot: AgentSnapshot, part: Path | None, found: AgentReturns) -> None:
        """Add a checkpoint to the record, now that its returns are known."""
        row = {name: taken[name] for name in ("steps", "adversary_steps")}
        returns, logged = found.returns, dict[str, float]()
        for name, of_all in returns.items():
            row[name] = None if of_all is None else float(of_all.mean())
            row[f"{name}_std"] = None if of_all is None else float(of_all.std())
            if of_all is not None:
                logged[f"agent/{name}"] = row[name]
        log_point(self.agent.model, row["steps"], logged)
        row["score"] = float(np.mean([row[name] for name in returns if row[name] is not None]))
        if found.max_diff is not None:
            row["max_diff"] = found.max_diff
            row["max_diff_score"] = float(np.mean([row["clean"], np.mean([*found.max_diff.values()])]))
        if found.acr is not None:
            row["gwc_acr"] = float(found.acr.mean())
        row |= {name: taken[name] for name in ("in_training", "seconds", "late")}
        self.checkpoints.add(row, (snapshot.agent, snapshot.threat), part)
        if self.progress is not None:
            self.progress(row["steps"], row["clean"], row["attacked"])
