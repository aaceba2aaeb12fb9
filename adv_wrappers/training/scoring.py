"""The scores of checkpoints: their episodes are played in this process, or in others while the training goes on.

In both cases the same code plays the same episodes, on one thread of torch, so a score is the same to the last digit.
What is sent to a process is a copy of what is scored, as it is then. Scores come back in the order in which their
checkpoints were handed in, in the thread of the training, when it asks for them.
"""

from __future__ import annotations

import tempfile
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, fields
from pathlib import Path
from pickle import loads
from typing import Generic, TypeVar

from stable_baselines3.common.base_class import BaseAlgorithm

from adv_wrappers.evaluation.environments import Environment
from adv_wrappers.training.checkpoints import CheckpointEvaluator
from adv_wrappers.utils.processes import call_in_worker, pickled, warm_pool

P = TypeVar("P")
R = TypeVar("R")
_NAMES = {"victim": "the victim", "actor": "the adversary", "when": "the timing"}


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
    """

    environment: Environment
    episodes: int
    seed: int
    quantize: bool
    score: CheckpointScore[P, R]

    def open(self) -> CheckpointEvaluator:
        """The evaluator that plays the episodes."""
        return CheckpointEvaluator(self.environment, self.episodes, self.seed, self.quantize)

    def pickled(self) -> bytes:
        """The setup as it is sent to a process; raises :class:`WorkerError` that names what cannot be."""
        self.environment.pickled()
        for field in fields(self.score):
            pickled(_NAMES.get(field.name, f"the argument {field.name}"), getattr(self.score, field.name))
        return pickled("the training", self)  # as a whole: its parts hold the same victim


_open: dict[str, tuple[ScoringSetup[object, object], CheckpointEvaluator]] = {}  # of a worker: the last one, by file


def _open_in_worker(path: str) -> tuple[ScoringSetup[object, object], CheckpointEvaluator]:
    """The evaluator of a training in a worker process, where it stays open for the checkpoints that follow."""
    if path not in _open:
        while _open:
            _open.popitem()[1][1].close()
        setup: ScoringSetup[object, object] = loads(Path(path).read_bytes())
        _open[path] = setup, setup.open()
    return _open[path]


def _check_in_worker(path: str) -> None:
    _open_in_worker(path)


def _score_in_worker(path: str, checkpoint: bytes) -> object:
    setup, evaluator = _open_in_worker(path)
    return setup.score(evaluator, loads(checkpoint))


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
        self._evaluator: CheckpointEvaluator | None = None
        self._pool: ProcessPoolExecutor | None = None
        self._path = ""
        self._waiting: deque[tuple[Future[R], Callable[[R], None]]] = deque()
        self._checks: list[Future[None]] = []

    def __enter__(self) -> Scoring[P, R]:
        if self.workers == 1:
            self._evaluator = self.setup.open()
            self._opened.callback(self._evaluator.close)
            return self
        data = self.setup.pickled()
        folder = Path(self._opened.enter_context(tempfile.TemporaryDirectory()))
        self._path = str(folder / "setup")
        Path(self._path).write_bytes(data)
        self._pool = self._opened.enter_context(warm_pool(self.workers - 1))
        # what only shows in another process shows at the next rollout, not at the first checkpoint
        self._checks.append(self._pool.submit(call_in_worker, _check_in_worker, self._path))
        return self

    def __exit__(self, *raised: object) -> bool | None:
        return self._opened.__exit__(*raised)  # type: ignore[arg-type]

    @property
    def ready(self) -> bool:
        """Whether :meth:`deliver` has something to hand over, an error included."""
        first = self._checks[:1] or [future for future, _ in self._waiting][:1]
        return bool(first) and first[0].done()

    def submit(self, checkpoint: P, then: Callable[[R], None]) -> None:
        """Score a checkpoint: at once, or in another process, which gets a copy of it as it is now.

        Args:
            checkpoint: what is scored.
            then: called with the score, here or by :meth:`deliver`.
        """
        if self._pool is None:
            assert self._evaluator is not None
            then(self.setup.score(self._evaluator, checkpoint))
            return
        data = pickled("a checkpoint", checkpoint)
        self.deliver(self.workers - 1)
        future: Future[R] = self._pool.submit(call_in_worker, _score_in_worker, self._path, data)  # type: ignore[arg-type]
        self._waiting.append((future, then))

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
            future, then = self._waiting.popleft()
            then(future.result())


def log_point(model: BaseAlgorithm, steps: int, values: Mapping[str, float]) -> None:
    """Enter what a checkpoint measured in the logs of a model, at the steps that the checkpoint was taken at."""
    if not hasattr(model, "_logger"):  # a training that was complete when it was resumed has none
        return
    if int(model.num_timesteps) == steps:
        for name, value in values.items():
            model.logger.record(name, value)
    else:
        for output in model.logger.output_formats:
            output.write(dict(values), {name: () for name in values}, steps)
