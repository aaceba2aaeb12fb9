"""The checkpoints of an adversary's training: which is the best, and from which the training resumes."""

from __future__ import annotations

import functools
import json
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
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
from adv_wrappers.errors import CardError
from adv_wrappers.evaluation.measurements import RunMeasurements
from adv_wrappers.training.checkpoints import restore_model, save_model
from adv_wrappers.training.director_networks import director_of
from adv_wrappers.training.scoring import CheckpointEvaluator, CheckpointScore, Scoring, log_point
from adv_wrappers.training.training_folder import (
    as_json,
    check_no_other_card,
    check_same,
    make_part,
    remove_parts,
    score,
)
from adv_wrappers.utils.files import make_folder, move, write
from adv_wrappers.victims import Victim
from adv_wrappers.wrappers.adversary_rewards import Reward

AdversaryProgress = Callable[[int, float], None]
OnEpisode = Callable[[int, float, int, int], "bool | None"]
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


@dataclass
class AdversaryTask:
    """What an adversary is trained for.

    Attributes:
        score: what a checkpoint is compared by.
        scoring: plays the episodes that checkpoints are compared on.
        reward: what the adversary earns.
        about: the description that distinguishes this training from others.
    """

    score: AdversaryScore
    scoring: Scoring[Director, RunMeasurements]
    reward: Reward
    about: dict[str, Any] = field(default_factory=dict)


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
    """Evaluates the deterministic director every ``every`` steps, keeps the best one, and writes the checkpoint.

    A checkpoint may be scored while the training goes on. Its model is written to a folder under another name, which is
    moved into its place at once when the score is known; then ``state.json`` names it, and the one before is removed.
    So a training that is killed at any moment resumes from a complete checkpoint.

    Args:
        task: what the adversary is trained for.
        every: steps between two checkpoints.
        out: a folder, or None.
        progress: called as ``progress(steps done, mean return of the victim at this checkpoint)``.
        on_episode: called at the end of every training episode; it stops the training by returning False.
    """

    def __init__(
        self,
        task: AdversaryTask,
        every: int,
        out: str | Path | None,
        progress: AdversaryProgress | None,
        on_episode: OnEpisode | None = None,
    ) -> None:
        super().__init__()
        self.on_episode = on_episode
        self.task, self.every, self.progress = task, every, progress
        self.out = None if out is None else Path(out)
        self.next, self.best, self.found = every, np.inf, None  # type: tuple[int, float, Learned | None]
        self.record: list[Info] = []
        self.taken = 0  # steps of the last checkpoint, whose score may not be known yet
        self.seconds, self.since = 0.0, time.process_time()  # of the processor, without the evaluations
        if self.out is not None:
            make_folder(self.out)
            task.about = as_json(task.about)
            if not (self.out / "state.json").exists():
                check_no_other_card(self.out, task.about)

    def resume(self, model: BaseAlgorithm) -> bool:
        """Load the state of this training from its folder into a new model; False if the folder holds none.

        The files are read as data: no code in them runs.

        Raises:
            ValueRangeError: for the folder of another training.
            CardError: for a folder that cannot be read.
        """
        if self.out is None or not (self.out / "state.json").exists():
            return False
        try:
            state = json.loads((self.out / "state.json").read_text(encoding="utf-8"))
            found = state["about"]
            self.next, self.record = int(state["next"]), list(state["record"])
            known = json.loads((self.out / "card.json").read_text(encoding="utf-8"))["training"]["checkpoints"]
            self.best = score(known[-1])  # the card may be newer: it is written first
        except (KeyError, TypeError) as error:
            raise CardError(f"{self.out} holds no training of an adversary (no {error}): give another out=") from error
        except (OSError, ValueError) as error:
            raise CardError(f"cannot read {self.out / 'state.json'}: {error}") from error
        check_same(self.out, found, self.task.about)
        if self.record:
            self.seconds, self.taken = float(self.record[-1]["seconds"]), int(self.record[-1]["steps"])
        self.found = Learned(card=str(self.out), victim=self.task.score.actor.victim)
        folder = self._folder_at(self.taken)
        restore_model(model, folder / MODEL, folder / NORMALISER)
        return True

    def _folder_at(self, steps: int) -> Path:
        assert self.out is not None
        return self.out / f"checkpoint-{steps}"

    def finish(self) -> Learned:
        """The strongest checkpoint, after evaluating the last steps too."""
        if self.taken < self.model.num_timesteps:
            self._count_seconds()
            self._checkpoint()
        self.task.scoring.deliver(0)
        assert self.found is not None
        return self.found

    def remove_unscored(self) -> None:
        """Remove what is kept of checkpoints without a score."""
        if self.out is not None:
            remove_parts(self.out)

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
        if due or self.task.scoring.ready:
            self._count_seconds()
            self.task.scoring.deliver()
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
        part = None
        if self.out is not None:
            part = make_part(self.out, self.taken)
            save_model(model, part / MODEL, part / NORMALISER)
        director = director_of(model)
        taken = TakenCheckpoint(self.task.score.adversary(director), row, self.next, part)
        self.task.scoring.submit(director, functools.partial(self._add, taken))

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
        self.record.append(row)
        log_point(self.model, steps, {"adversary/victim_return": mean})
        if score(row) < self.best:
            self.best, self.found = score(row), taken.learned
            taken.learned.director.record = {**self.task.about, "checkpoints": [*self.record]}
            if self.out is not None:
                self.found = taken.learned.save(self.out, self.task.score.budget, dict(taken.learned.director.record))
        if self.out is not None and taken.part is not None:
            folder = self._folder_at(steps)
            shutil.rmtree(folder, ignore_errors=True)  # of a training that was killed before state.json named it
            move(taken.part, folder)
            state = {"next": taken.next, "about": self.task.about, "record": self.record}
            write(self.out / "state.json", (json.dumps(state, indent=1) + "\n").encode())
            for old in {*self.out.glob("checkpoint-*")} - {folder}:
                shutil.rmtree(old, ignore_errors=True)
            for name in (MODEL, NORMALISER):
                (self.out / name).unlink(missing_ok=True)
        if self.progress is not None:
            self.progress(steps, mean)
