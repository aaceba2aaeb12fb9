"""One run: every episode of one evaluation under one stack of layers, with fixed quotas.

Row r of N plays episodes r, r + N, r + 2N, ... : which episodes are counted does not depend on which finish first. A
row whose quota is played is reset and stepped along, neither attacked nor counted.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from adv_wrappers.core.perturbation import Step, When
from adv_wrappers.errors import ValueRangeError
from adv_wrappers.evaluation.measurements import Meter, Run, Sample
from adv_wrappers.victims.runner import PolicyRunner
from adv_wrappers.victims.victim import Victim
from adv_wrappers.wrappers.recorder import VectorActionRecorder


class Busy(When):
    """A gate that keeps every layer away from rows that have no episode left to play."""

    def __init__(self) -> None:
        self.rows: Any = True

    def decide(self, step: Step, path: int = 0) -> Any:
        return self.rows


def play(
    shell: Any, recorder: VectorActionRecorder, victim: Victim, seeds: list[int],
    tell: Callable[[int], None] | None = None, sample: Sample | None = None,
) -> Run:  # fmt: skip
    """Play one episode a seed and measure.

    Args:
        shell: ``recorder`` under any layers; a vector environment in DISABLED autoreset mode.
        seeds: of the episodes, at least as many as there are rows.
        tell: called with the number of episodes that are finished, whenever one is.
        sample: is offered the observations of the attacked steps.

    Raises:
        ValueRangeError: for observations or returns that are not finite.
    """
    rows, episodes = shell.num_envs, len(seeds)
    run = Run(np.zeros(episodes), np.zeros(episodes, np.int64), np.zeros(episodes, np.int64))
    runner, gate = PolicyRunner(victim, rows), Busy()
    meter = Meter(run, shell, recorder, runner, sample)
    for layer in (*meter.watched, *meter.steered):
        layer.engine.add_gate(gate)
    current, busy, everyone = np.arange(rows), np.ones(rows, bool), True
    score, length, finished = np.zeros(rows), np.zeros(rows, np.int64), 0
    started = time.perf_counter()
    obs, _ = shell.reset(seed=seeds[:rows])
    runner.reset(None, seeds[:rows])
    meter.observed()
    while True:
        struck = meter.seen
        shown, meant = meter.before(obs, busy, everyone, current, length)
        actions = runner.act(obs)
        obs, rewards, terminated, truncated, _ = shell.step(actions)
        meter.after(shown, meant, actions, busy, struck)
        meter.observed()
        score += rewards
        length += 1
        done = terminated | truncated
        if not done.any():
            continue
        over = done & busy
        which = current[over]
        run.returns[which], run.lengths[which], run.strikes[which] = score[over], length[over], meter.strikes[over]
        if not np.isfinite(score[over]).all():
            raise ValueRangeError(f"the environment handed out a reward that is not finite: return {score[over]}")
        finished += len(which)
        if tell is not None and len(which):
            tell(finished)
        if finished == episodes:
            break
        current[over] += rows
        busy = current < episodes
        everyone = bool(busy.all())
        gate.rows = True if everyone else busy
        score[done], length[done], meter.strikes[done] = 0.0, 0, 0
        fresh = [seeds[e] if e < episodes else None for e in current]
        obs, _ = shell.reset(seed=fresh, options={"reset_mask": done})
        runner.reset(done, fresh)
        meter.observed(done)
    run.seconds, run.steps = time.perf_counter() - started, int(run.lengths.sum())
    return run
