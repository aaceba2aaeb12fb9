"""The checkpoints of an adversary's training: which is the best, and from which the training resumes."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback

from adv_wrappers.adversaries.actor import Actor
from adv_wrappers.adversaries.director import Director
from adv_wrappers.adversaries.hybrid import Hybrid
from adv_wrappers.adversaries.learned import Learned
from adv_wrappers.core.budgets import Budget
from adv_wrappers.core.perturbation import When
from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.core.types import Info
from adv_wrappers.errors import ANOTHER_OUT, CardError, Message
from adv_wrappers.evaluation.distances_and_changed_actions import RunMeasurements
from adv_wrappers.evaluation.environments import Environment
from adv_wrappers.training.checkpoints import restore_model, save_model
from adv_wrappers.training.director_networks import director_of
from adv_wrappers.training.score_checkpoints import CheckpointEvaluator, CheckpointScore, Scoring, log_point
from adv_wrappers.training.training_folder import TrainingFolder
from adv_wrappers.victims import Victim
from adv_wrappers.wrappers.adversary_rewards import Reward

AdversaryProgress = Callable[[int, float], None]
OnTrainingEpisode = Callable[[int, float, int, int], "bool | None"]
MODEL, NORMALISER = "model.zip", "normaliser.json"


@dataclass(frozen=True)
class AdversaryScore(CheckpointScore[Director, RunMeasurements]):
    """What a director does to its victim.

    Attributes:
        victim: the victim under attack.
        actor: turns the adversary's action into a perturbation.
        budget, when: budget and timing of the attack.
        observe: what the director observes, as for :class:`adv_wrappers.AdversaryEnv`.
    """

    victim: Victim
    actor: Actor | Hybrid
    budget: Budget
    when: When | Callable[..., Any] | None
    observe: str

    def adversary(self, director: Director) -> Learned:
        """The adversary of a director."""
        return Learned(director, self.actor, observe=self.observe, within=self.budget, when=self.when)

    def __call__(self, evaluator: CheckpointEvaluator, checkpoint: Director) -> RunMeasurements:
        learned = self.adversary(checkpoint)
        return evaluator.measure(self.victim, ThreatModel(learned.on, learned, self.budget, self.when))


@dataclass(frozen=True)
class AdversaryTask:
    """What an adversary is trained for.

    Attributes:
        environment: how the environment is made.
        score: what a checkpoint is compared by: victim, actor, budget, timing, and what the director observes.
        reward: what the adversary earns; None is minus the victim's reward.
        quantize: as for :class:`adv_wrappers.AdversaryEnv`.
    """

    environment: Environment
    score: AdversaryScore
    reward: Reward | None
    quantize: bool


def adversary_score(row: Info) -> float:
    """What checkpoints of adversaries are compared by, lower is better: return of the victim, and cost of attacks."""
    return float(row["score"] if "score" in row else row["mean_return"])


@dataclass(frozen=True)
class TakenCheckpoint:
    """A checkpoint whose score is not known yet.

    Attributes:
        learned: the adversary as it was then.
        row: its figures so far.
        next: the steps of the following checkpoint.
        part: the folder that holds the model of that moment, or None.
    """

    learned: Learned
    row: Info
    next: int
    part: Path | None


class AdversaryCheckpoints(BaseCallback):
    """Evaluates the deterministic director every ``every`` steps, and keeps the best one and the last.

    A checkpoint may be scored while the training goes on.

    Args:
        task: what the adversary is trained for.
        scoring: plays the episodes that checkpoints are compared on.
        every: steps between two checkpoints.
        folder: what is kept.
        progress: called as ``progress(steps done, mean return of the victim at this checkpoint)``.
        on_episode: called at the end of every training episode; it stops the training by returning False.
    """

    def __init__(
        self,
        task: AdversaryTask,
        scoring: Scoring[Director, RunMeasurements],
        every: int,
        folder: TrainingFolder,
        progress: AdversaryProgress | None,
        on_episode: OnTrainingEpisode | None = None,
    ) -> None:
        super().__init__()
        self.on_episode = on_episode
        self.task, self.scoring, self.every, self.folder, self.progress = task, scoring, every, folder, progress
        self.found: Learned | None = None  # the best so far
        last = folder.record[-1] if folder.record else {"steps": 0, "seconds": 0.0}
        try:
            self.taken = int(last["steps"])  # of the last checkpoint, whose score may not be known yet
            self.next = int(folder.result.get("next", every))  # follows from steps, which may be more by now
            self.seconds = float(last["seconds"])  # of the processor, without the evaluations
        except (KeyError, TypeError, ValueError) as error:
            raise CardError(
                Message(f"{folder.out} holds no training of an adversary ({error!r}): ", ANOTHER_OUT)
            ) from error
        self.since = time.process_time()

    def resume(self, model: BaseAlgorithm) -> bool:
        """Load the last checkpoint of the folder into a new model; False if there is none.

        Raises:
            CardError: for files that cannot be read.
        """
        checkpoint = self.folder.checkpoint
        if checkpoint is None:
            return False
        restore_model(model, checkpoint / MODEL, checkpoint / NORMALISER)
        return True

    def finish(self) -> Learned:
        """The strongest checkpoint, after evaluating the last steps too."""
        if self.taken < self.model.num_timesteps:
            self._count_seconds()
            self._checkpoint()
        self.scoring.deliver(0)
        if self.folder.out is not None:
            return Learned(card=str(self.folder.out), victim=self.task.score.actor.victim)
        assert self.found is not None
        return self.found

    def _count_seconds(self) -> None:
        self.seconds += time.process_time() - self.since

    def _on_training_start(self) -> None:
        self.since = time.process_time()

    def _on_step(self) -> bool:
        goes_on = True
        for info in self.locals["infos"] if self.on_episode is not None else ():
            if (episode := info.get("adversary_episode")) is not None:
                assert self.on_episode is not None
                done = self.num_timesteps, episode["victim_return"], episode["attacks"], episode["length"]
                goes_on = self.on_episode(*done) is not False and goes_on
        return goes_on

    def _on_rollout_start(self) -> None:  # after the update that follows a rollout, so that a checkpoint is whole
        due = self.num_timesteps >= self.next
        if due or self.scoring.ready:
            self._count_seconds()
            self.scoring.deliver()
            if due:
                self._checkpoint()
            self.since = time.process_time()

    def _checkpoint(self) -> None:
        model: Any = self.model
        self.taken = int(model.num_timesteps)
        self.next = (self.taken // self.every + 1) * self.every
        recent = [-episode["r"] for episode in model.ep_info_buffer or ()]
        row = {
            "steps": self.taken,
            "in_training": float(np.mean(recent)) if recent else None,
            "seconds": round(self.seconds, 3),
        }
        part = self.folder.begin_checkpoint(self.taken)
        if part is not None:
            save_model(model, part / MODEL, part / NORMALISER)
        director = director_of(model)
        taken = TakenCheckpoint(self.task.score.adversary(director), row, self.next, part)
        self.scoring.submit(director, functools.partial(self._add, taken))

    def _add(self, taken: TakenCheckpoint, run: RunMeasurements) -> None:
        """Add a checkpoint to the record, now that its score is known."""
        returns, mean, steps = run.returns, float(run.returns.mean()), int(taken.row["steps"])
        row = {
            "steps": steps,
            "mean_return": mean,
            "std": float(returns.std()),
            "median": float(np.median(returns)),
            **{name: taken.row[name] for name in ("in_training", "seconds")},
        }
        total = getattr(self.task.reward, "total", None)
        if total is not None:
            row["attacks"] = float(run.attacked_steps.mean())
            row["score"] = float(total(returns, run.attacked_steps).mean())
        log_point(self.model, steps, {"adversary/victim_return": mean})
        best = self.folder.best_row
        is_best = best is None or adversary_score(row) < adversary_score(best)
        if is_best:
            self.found = taken.learned
            taken.learned.director.record = {**self.folder.about, "checkpoints": [*self.folder.record, row]}
            if taken.part is not None:
                taken.learned.save(taken.part, self.task.score.budget, dict(taken.learned.director.record))
        self.folder.add(row, taken.part, is_best, next=taken.next)
        if self.progress is not None:
            self.progress(steps, mean)
