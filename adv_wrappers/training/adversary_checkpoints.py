"""The checkpoints of an adversary's training: which is the best, and from which the training resumes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback

from adv_wrappers.adversaries.actor import Actor
from adv_wrappers.adversaries.hybrid import Hybrid
from adv_wrappers.adversaries.learned import Learned
from adv_wrappers.core.budgets import Budget
from adv_wrappers.core.perturbation import When
from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.core.types import Info
from adv_wrappers.errors import CardError
from adv_wrappers.training.checkpoints import CheckpointEvaluator, restore_model, save_model
from adv_wrappers.training.director_networks import director_of
from adv_wrappers.training.training_folder import as_json, check_no_other_card, check_same, score
from adv_wrappers.utils.files import make_folder, write
from adv_wrappers.victims import Victim
from adv_wrappers.wrappers.adversary_rewards import Reward

AdversaryProgress = Callable[[int, float], None]
OnEpisode = Callable[[int, float, int, int], "bool | None"]


@dataclass
class AdversaryTask:
    """What an adversary is trained for.

    Attributes:
        victim: the victim under attack.
        actor: turns the adversary's action into a perturbation.
        budget, when: budget and timing of the attack.
        observe: what the director observes, as for :class:`adv_wrappers.AdversaryEnv`.
        reward: what the adversary earns.
        evaluator: plays the episodes that checkpoints are compared on.
        about: the description that distinguishes this training from others.
    """

    victim: Victim
    actor: Actor | Hybrid
    budget: Budget
    when: When | Callable[..., Any] | None
    observe: str
    reward: Reward
    evaluator: CheckpointEvaluator
    about: dict[str, Any] = field(default_factory=dict)


class AdversaryCheckpoints(BaseCallback):
    """Evaluates the deterministic director every ``every`` steps, keeps the best one, and writes the checkpoint.

    Args:
        task: what the adversary is trained for.
        every: steps between two checkpoints.
        out: a folder, or None.
        progress: called as ``progress(steps done, mean return of the victim at this checkpoint)``.
        on_episode: called at the end of every training episode; it stops the training by returning False.
    """

    def __init__(
        self, task: AdversaryTask, every: int, out: str | Path | None, progress: AdversaryProgress | None,
        on_episode: OnEpisode | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.on_episode = on_episode
        self.task, self.every, self.progress = task, every, progress
        self.out = None if out is None else Path(out)
        self.next, self.best, self.found = every, np.inf, None  # type: tuple[int, float, Learned | None]
        self.record: list[Info] = []
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
        self.seconds = float(self.record[-1]["seconds"]) if self.record else 0.0
        self.found = Learned(card=str(self.out), victim=self.task.actor.victim)
        restore_model(model, self.out / "model.zip", self.out / "normaliser.json")
        return True

    def finish(self) -> Learned:
        """The strongest checkpoint, after evaluating the last steps too."""
        if not self.record or self.record[-1]["steps"] < self.model.num_timesteps:
            self._checkpoint()
        assert self.found is not None
        return self.found

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
        if self.num_timesteps >= self.next:
            self._checkpoint()

    def _checkpoint(self) -> None:
        self.seconds += time.process_time() - self.since
        model: Any = self.model
        task, steps = self.task, int(model.num_timesteps)
        self.next = (steps // self.every + 1) * self.every
        learned = Learned(
            director_of(model), task.actor, observe=task.observe, within=task.budget, when=task.when
        )  # fmt: skip
        run = task.evaluator.measure(task.victim, ThreatModel(learned.on, learned, task.budget, task.when))
        returns, mean = run.returns, float(run.returns.mean())
        recent = [-episode["r"] for episode in model.ep_info_buffer or ()]
        row = {
            "steps": steps, "mean_return": mean, "std": float(returns.std()), "median": float(np.median(returns)),
            "in_training": float(np.mean(recent)) if recent else None, "seconds": round(self.seconds, 3),
        }  # fmt: skip
        total = getattr(task.reward, "total", None)
        if total is not None:
            row["attacks"] = float(run.attacked_steps.mean())
            row["score"] = float(total(returns, run.attacked_steps).mean())
        self.record.append(row)
        if hasattr(self.model, "_logger"):  # a training that was complete when it was resumed has none
            self.logger.record("adversary/victim_return", mean)
        if score(row) < self.best:
            self.best, self.found = score(row), learned
            learned.director.record = {**task.about, "checkpoints": [*self.record]}
            if self.out is not None:
                self.found = learned.save(self.out, task.budget, dict(learned.director.record))
        if self.out is not None:
            self._write(self.out)
        if self.progress is not None:
            self.progress(steps, mean)
        self.since = time.process_time()

    def _write(self, out: Path) -> None:
        save_model(self.model, out / "model.zip", out / "normaliser.json")
        state = {"next": self.next, "about": self.task.about, "record": self.record}
        write(out / "state.json", (json.dumps(state, indent=1) + "\n").encode())
