"""Executors that no machine is needed for to be fast or slow: what is begun first ends last."""

from __future__ import annotations

from adv_wrappers.errors import SimulationError
from adv_wrappers.evaluation.executor import Played


class LastFirst:
    """Plays here, and takes all tasks that there are; the last of them ends first.

    Args:
        player: plays them.
    """

    def __init__(self, player):
        self.player, self.waiting = player, []

    def free(self):
        return 1

    def submit(self, task, tell=None):
        self.waiting.append(task)

    def collect(self, seconds):
        task = self.waiting.pop()
        try:
            return [Played(task, self.player.play(task))]
        except SimulationError as error:
            return [Played(task, error=error)]

    def close(self):
        self.waiting.clear()
