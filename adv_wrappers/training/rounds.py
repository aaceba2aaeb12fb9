"""The rounds of a training in which an agent and an adversary take turns, and the checkpoints in between."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from stable_baselines3.common.callbacks import BaseCallback

from adv_wrappers.adversaries.learned import Learned
from adv_wrappers.core.errors import ValueRangeError
from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.core.values import real
from adv_wrappers.training.arena import Arena
from adv_wrappers.training.hardening import Rival, Table
from adv_wrappers.training.keeping import Found, Keeper, Progress
from adv_wrappers.training.networks import director_of
from adv_wrappers.victims import from_sb3


@dataclass(frozen=True)
class Schedule:
    """Numbers of a training: see :func:`adv_wrappers.training.atla.train_agent`.

    Raises:
        ValueRangeError: for what is no number of at least one step, turn, checkpoint, episode or environment.
    """

    steps: int
    phase: int
    ratio: float
    checks: int
    episodes: int
    num_envs: int

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if name == "ratio" and (real(value) or 0) <= 0:
                raise ValueRangeError(f"ratio must be a number above 0, got {value!r:.80}")
            if name != "ratio" and not (isinstance(value, int) and number and value >= 1):
                raise ValueRangeError(f"{name} must be a whole number of at least 1, got {value!r}")

    @property
    def every(self) -> int:
        """Steps between two checkpoints."""
        return max(self.steps // self.checks, 1)


class Rounds(BaseCallback):
    """Called by the agent's algorithm at the beginning of every rollout.

    Between two of them the adversary has its phase, checkpoints are judged, and the agent's normaliser moves.

    Args:
        table: the agent and what is about it.
        rival: the adversary, or None where none learns.
        judge: the threat that the agent is judged under where none learns, or None.
        select: how the agent plays when it is judged.
    """

    def __init__(
        self, table: Table, rival: Rival | None, judge: ThreatModel | None, arena: Arena, plan: Schedule, keep: Keeper,
        select: Any, progress: Progress | None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.table, self.rival, self.judge, self.arena, self.plan, self.keep = table, rival, judge, arena, plan, keep
        self.select, self.progress = select, progress
        last = keep.record[-1]["seconds"] if keep.record else {"agent": 0.0, "adversary": 0.0}
        self.spent, self.since = dict(last), time.process_time()
        self.turn = self.check = 0
        self._advance()

    @property
    def steps(self) -> int:
        """That the agent has taken."""
        return int(self.table.model.num_timesteps)

    def _advance(self) -> None:
        self.turn, self.check = ((self.steps // each + 1) * each for each in (self.plan.phase, self.plan.every))

    def _on_training_start(self) -> None:
        self.since = time.process_time()

    def _on_step(self) -> bool:
        return True

    def _on_rollout_start(self) -> None:  # after the update that follows a rollout, so that what is kept is whole
        check = self.steps >= self.check
        if check or self.steps >= self.turn:
            self._between(check)
        self.table.settle()

    def finish(self) -> Found:
        """The best checkpoint; the last steps are judged too."""
        if not self.keep.record or self.keep.record[-1]["steps"] < self.steps:
            self._between(True)
        return self.keep.finish(self.present())

    def _between(self, check: bool) -> None:
        self._advance()
        self._lap("agent")
        self._adversary()
        self._lap("adversary")
        if check:
            self._check()
        self.since = time.process_time()

    def _lap(self, who: str) -> None:
        now = time.process_time()
        self.spent[who] += now - self.since
        self.since = now

    def _adversary(self) -> None:
        """The adversary's phase: until it has ``ratio`` times the steps of the agent, who stays as it is."""
        if self.rival is None:
            return
        lack = round(self.plan.ratio * self.steps) - int(self.rival.model.num_timesteps)
        if lack > 0:
            self.rival.model.learn(lack, reset_num_timesteps=False, tb_log_name="adversary")
            self.rival.model.set_logger(self.rival.model.logger)  # or every phase would open another
            self.rival.seat.take(self.rival.model)

    def present(self) -> ThreatModel | None:
        """What the agent is judged under now: an adversary that learns by its mode, its victim open."""
        if self.rival is None:
            return self.judge
        learned, opponent = Learned(director_of(self.rival.model), self.rival.actor), self.rival.opponent
        return ThreatModel("observation", learned, opponent.budget, opponent.when)

    def _check(self) -> None:
        model, threat = self.table.model, self.present()
        agent = from_sb3(model, select=self.select)
        attacked = None if threat is None else self.arena.play(agent, threat)
        returns = {"clean": self.arena.play(agent), "attacked": attacked}
        recent = [episode["r"] for episode in model.ep_info_buffer or ()]
        row: dict[str, Any] = {
            "steps": self.steps, "adversary_steps": 0 if self.rival is None else int(self.rival.model.num_timesteps),
        }  # fmt: skip
        for name, of_all in returns.items():
            row[name] = None if of_all is None else float(of_all.mean())
            row[f"{name}_std"] = None if of_all is None else float(of_all.std())
            if of_all is not None:
                model.logger.record(f"agent/{name}", row[name])
        row["score"] = float(np.mean([row[name] for name in returns if row[name] is not None]))
        row["in_training"] = float(np.mean(recent)) if recent else None
        row["seconds"] = {who: round(spent, 1) for who, spent in self.spent.items()}
        row["late"] = 2 * self.steps >= self.plan.steps  # the adversary has had half of its training
        self.keep.add(row, (agent, threat), model, self.rival)
        if self.progress is not None:
            self.progress(self.steps, row["clean"], row["attacked"])
