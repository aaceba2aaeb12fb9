"""One training of an adversary: its checkpoints, the best of them, and the state it can go on from."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from stable_baselines3.common.callbacks import BaseCallback

from adv_wrappers.adversaries.actor import Actor
from adv_wrappers.adversaries.hybrid import Hybrid
from adv_wrappers.adversaries.learned import Learned
from adv_wrappers.core.budgets import Budget
from adv_wrappers.core.errors import CardError, ValueRangeError
from adv_wrappers.core.files import write
from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.training.another import plain, refuse_another, refuse_card
from adv_wrappers.training.arena import Arena
from adv_wrappers.training.checkpoint import keep, restore
from adv_wrappers.training.networks import director_of
from adv_wrappers.victims import Victim

Progress = Callable[[int, float], None]


@dataclass
class Game:
    """Whom the adversary plays against, with what, and where its checkpoints are compared."""

    victim: Victim
    actor: Actor | Hybrid
    budget: Budget
    when: Any
    observe: str
    arena: Arena
    about: dict[str, Any] = field(default_factory=dict)  # what tells this training from another


class Run(BaseCallback):
    """Compares the deterministic director with the best one so far, every ``every`` steps, and writes what there is.

    Args:
        game: what is played.
        every: steps between two checkpoints.
        out: a folder, or None.
        progress: called as ``progress(steps done, mean return of the victim at this checkpoint)``.
    """

    def __init__(self, game: Game, every: int, out: str | Path | None, progress: Progress | None) -> None:
        super().__init__()
        self.game, self.every, self.progress = game, every, progress
        self.out = None if out is None else Path(out)
        self.next, self.best, self.found = every, np.inf, None  # type: tuple[int, float, Learned | None]
        self.record: list[dict[str, Any]] = []
        self.spent, self.since = 0.0, time.process_time()  # seconds of the processor, checkpoints left out
        if self.out is not None:
            try:
                self.out.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise ValueRangeError(f"cannot write to the folder {out}: {error}") from error
            game.about = plain(game.about)
            if not (self.out / "state.json").exists():
                refuse_card(self.out, game.about)

    def resume(self, model: Any) -> bool:
        """Fill a new model with what the folder holds of this training, if it does, and recall its best adversary.

        The folder's files are read as data: no code of theirs runs.

        Raises:
            ValueRangeError: for a folder of another training.
            CardError: for one that cannot be read.
        """
        if self.out is None or not (self.out / "state.json").exists():
            return False
        try:
            state = json.loads((self.out / "state.json").read_text(encoding="utf-8"))
            found = state["about"]
            self.next, self.record = int(state["next"]), list(state["record"])
            kept = json.loads((self.out / "card.json").read_text(encoding="utf-8"))["training"]["checkpoints"]
            self.best = float(kept[-1]["mean_return"])  # the card may be newer: it is written first
        except (KeyError, TypeError) as error:
            raise CardError(f"{self.out} holds no training of an adversary (no {error}): give another out=") from error
        except (OSError, ValueError) as error:
            raise CardError(f"cannot read {self.out / 'state.json'}: {error}") from error
        refuse_another(self.out, found, self.game.about)
        self.spent = float(self.record[-1]["seconds"]) if self.record else 0.0
        self.found = Learned(card=str(self.out), victim=self.game.actor.victim)
        restore(model, self.out / "model.zip", self.out / "normaliser.json")
        return True

    def finish(self) -> Learned:
        """The strongest checkpoint; the last steps are compared too."""
        if not self.record or self.record[-1]["steps"] < self.model.num_timesteps:
            self._check()
        assert self.found is not None
        return self.found

    def _on_training_start(self) -> None:
        self.since = time.process_time()

    def _on_step(self) -> bool:
        return True

    def _on_rollout_start(self) -> None:  # after the update that follows a rollout, so that what is kept is whole
        if self.num_timesteps >= self.next:
            self._check()

    def _check(self) -> None:
        self.spent += time.process_time() - self.since
        game, steps = self.game, int(self.model.num_timesteps)
        self.next = (steps // self.every + 1) * self.every
        parts: dict[str, Any] = {"observe": game.observe, "within": game.budget, "when": game.when}
        learned = Learned(director_of(self.model), game.actor, **parts)
        returns = game.arena.play(game.victim, ThreatModel(learned.on, learned, game.budget, game.when))
        left = float(returns.mean())
        recent = [-episode["r"] for episode in self.model.ep_info_buffer or ()]
        self.record.append({
            "steps": steps, "mean_return": left, "std": float(returns.std()), "median": float(np.median(returns)),
            "in_training": float(np.mean(recent)) if recent else None, "seconds": round(self.spent, 3),
        })  # fmt: skip
        if hasattr(self.model, "_logger"):  # not if a training that was finished is finished again
            self.logger.record("adversary/victim_return", left)
        if left < self.best:
            self.best, self.found = left, learned
            if self.out is not None:
                self.found = learned.save(self.out, game.budget, {**game.about, "checkpoints": self.record})
        if self.out is not None:
            self._write(self.out)
        if self.progress is not None:
            self.progress(steps, left)
        self.since = time.process_time()

    def _write(self, out: Path) -> None:
        keep(self.model, out / "model.zip", out / "normaliser.json")
        state = {"next": self.next, "about": self.game.about, "record": self.record}
        write(out / "state.json", (json.dumps(state, indent=1) + "\n").encode())
