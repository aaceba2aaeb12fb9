"""The scores of checkpoints: their episodes are played in this process, or in others while the training goes on.

In both cases the same code plays the same episodes, on one thread of torch, so a score is the same to the last digit.
What is sent to a process is a copy of what is scored, as it is then. Scores come back in the order in which their
checkpoints were handed in, in the thread of the training, when it asks for them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import ExitStack, closing
from dataclasses import dataclass, fields
from pickle import loads
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from adv_wrappers.certification.greedy_worst_case import PlayedEpisodes, play_choices, worst_possible_action
from adv_wrappers.certification.possible_actions import PossibleActions
from adv_wrappers.core.budgets.budget import Budget
from adv_wrappers.core.spaces import has_images
from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.environments.environment import Environment
from adv_wrappers.evaluation.episodes import Episodes, checkpoint_seeds
from adv_wrappers.evaluation.executor import Executor, Played, Processes, Tell, ThisProcess
from adv_wrappers.evaluation.measurements.measurements import BlockMeasurements
from adv_wrappers.evaluation.player import Block, Cell, Player
from adv_wrappers.evaluation.threat_stacks import ThreatStack
from adv_wrappers.utils.processes import pickled
from adv_wrappers.utils.threads import one_thread
from adv_wrappers.victims.certified_actions import Method
from adv_wrappers.victims.victim import Victim

P = TypeVar("P")
R = TypeVar("R")
SIDE_BY_SIDE = 32  # environments, at most
_NAMES = {"victim": "the victim", "actor": "the adversary", "when": "the timing"}


class CheckpointEvaluator:
    """Plays the same episodes of an agent under one threat after another.

    Args:
        environment: how the environment is made.
        episodes: the number of episodes of every evaluation.
        seed: the seed of the training.
        quantize: as for :func:`adv_wrappers.evaluate`.
        most: the number of environments side by side, at most.
    """

    def __init__(
        self, environment: Environment, episodes: int, seed: int, quantize: bool = True, most: int = SIDE_BY_SIDE
    ) -> None:
        self.seeds = checkpoint_seeds(seed, episodes)
        self._environment, self._player = environment, Player(ends_diverged=True)
        self._episodes = Episodes(episodes, num_envs=min(episodes, most), quantize=quantize)
        self._player.open_environments(environment, self._episodes)

    def play(self, victim: Victim, *threats: ThreatModel) -> NDArray[np.float64]:
        """The victim's return in each episode, ``[episodes]``; raises as :meth:`measure` does."""
        return self.measure(victim, *threats).returns

    def measure(self, victim: Victim, *threats: ThreatModel) -> BlockMeasurements:
        """What was measured in the episodes.

        Raises:
            ValueRangeError: for observations or returns that are not finite.
        """
        with one_thread():
            stack = ThreatStack("the threat of a checkpoint", threats, False)
            self._player.open([Cell(victim, self._environment, stack, self._episodes)])
            return self._player.play(Block(0, tuple(self.seeds)))

    def worst_case(self, victim: Victim, within: Budget) -> PlayedEpisodes:
        """The same episodes as the greedy worst case plays them: its returns, and the share of steps without a choice.

        Bounds are interval bounds for images, linear ones else. Integers vary as floats, as in the loss.

        Args:
            victim: the agent, of discrete actions.
            within: the budget, a box.
        """
        venv: Any = self._player.venv  # of discrete actions, whose environments are stepped one by one
        space = venv.single_observation_space
        method: Method = "interval" if has_images(space) else "crown"
        perturbed = PossibleActions(victim, space, within, method, quantize=False)
        with one_thread():
            return play_choices(venv.envs, perturbed, self.seeds, worst_possible_action)

    def close(self) -> None:
        """Close the environments."""
        self._player.close()


@dataclass(frozen=True)
class CheckpointScore(Generic[P, R]):
    """What is measured of a checkpoint; its fields are what all checkpoints of a training share."""

    def __call__(self, evaluator: CheckpointEvaluator, checkpoint: P) -> R:
        """Play the episodes of a checkpoint, and return what is sent back to the training."""
        raise NotImplementedError


@dataclass(frozen=True)
class ScoringSetup(Generic[P, R]):
    """What a process needs to score any checkpoint of a training.

    Attributes:
        environment: how the environment is made.
        episodes: the number of episodes of every checkpoint.
        seed: the seed of the training.
        quantize: as for :func:`adv_wrappers.evaluate`.
        score: what is measured of a checkpoint.
        most: the number of environments side by side, at most.
    """

    environment: Environment
    episodes: int
    seed: int
    quantize: bool
    score: CheckpointScore[P, R]
    most: int = SIDE_BY_SIDE

    def open(self) -> _Scorer[P, R]:
        """What plays the episodes of checkpoints."""
        evaluator = CheckpointEvaluator(self.environment, self.episodes, self.seed, self.quantize, self.most)
        return _Scorer(evaluator, self.score)

    def pickled(self) -> bytes:
        """The setup as it is sent to a process; raises :class:`WorkerError` that names what cannot be."""
        self.environment.pickled()
        for field in fields(self.score):
            pickled(_NAMES.get(field.name, f"the argument {field.name}"), getattr(self.score, field.name))
        return pickled("the training", self)  # as a whole: its parts hold the same victim


class _Scorer(Generic[P, R]):
    """Measures checkpoints as they come, or as they were when they were pickled."""

    def __init__(self, evaluator: CheckpointEvaluator, score: CheckpointScore[P, R]) -> None:
        self._evaluator, self._score = evaluator, score

    def play(self, checkpoint: P | bytes, tell: Tell | None = None) -> R:
        return self._score(self._evaluator, loads(checkpoint) if isinstance(checkpoint, bytes) else checkpoint)

    def close(self) -> None:
        self._evaluator.close()


class Scoring(Generic[P, R]):
    """Scores the checkpoints of a training; a context, which has the processes while it is entered.

    Args:
        setup: what is scored, and how.
        workers: the number of processes of the training: the others than this one play episodes. So many checkpoints
            are on their way at once; then the training waits.

    Raises:
        WorkerError: on entering, for what cannot be sent to a process; and on leaving, where a process died.
    """

    def __init__(self, setup: ScoringSetup[P, R], workers: int = 1) -> None:
        self.setup, self.workers = setup, workers
        self._opened = ExitStack()
        self._executor: Executor[P | bytes, R]
        self._waiting: deque[tuple[P | bytes, Callable[[R], None]]] = deque()
        self._done = dict[int, Played[P | bytes, R]]()  # by the identity of a task
        self._checks: list[Future[None]] = []

    def __enter__(self) -> Scoring[P, R]:
        if self.workers == 1:
            player = self._opened.enter_context(closing(self.setup.open()))
            self._executor = ThisProcess(player)
            return self
        processes = Processes[P | bytes, R](self.workers - 1, self.setup, tries=1)
        self._executor = self._opened.enter_context(closing(processes))
        # what only shows in another process shows at the next rollout, not at the first checkpoint
        self._checks.append(processes.begin())
        return self

    def __exit__(self, *raised: object) -> bool | None:
        return self._opened.__exit__(*raised)  # type: ignore[arg-type]

    @property
    def ready(self) -> bool:
        """Whether :meth:`deliver` has something to hand over, an error included."""
        if self._checks:
            return self._checks[0].done()
        if self._waiting and self.workers > 1:
            self._collect(0)
        return bool(self._waiting) and id(self._waiting[0][0]) in self._done

    def _collect(self, seconds: float | None) -> None:
        for played in self._executor.collect(seconds):
            self._done[id(played.task)] = played

    def submit(self, checkpoint: P, then: Callable[[R], None]) -> None:
        """Score a checkpoint: at once, or in another process, which gets a copy of it as it is now.

        Args:
            checkpoint: what is scored.
            then: called with the score, here or by :meth:`deliver`.
        """
        alone = self.workers == 1
        task = checkpoint if alone else pickled("a checkpoint", checkpoint)
        if not alone:
            self.deliver(self.workers - 1)
        self._executor.submit(task)
        self._waiting.append((task, then))
        if alone:
            self.deliver(0)

    def deliver(self, most: int | None = None) -> None:
        """Hand over the scores that are there, in order.

        Args:
            most: wait until no more than so many checkpoints are on their way; None does not wait.

        Raises:
            Exception: the one that the episodes of a checkpoint raised.
        """
        while self._checks and (most is not None or self._checks[0].done()):
            self._checks.pop().result()
        while self._waiting and (self.ready or (most is not None and len(self._waiting) > most)):
            task, then = self._waiting[0]
            while id(task) not in self._done:
                self._collect(None)
            self._waiting.popleft()
            then(self._done.pop(id(task)).value())
