"""The blocks of an evaluation, and the processes that play them: the same rows whoever plays which.

The last digits of a matrix product depend on how many rows it has, so an episode that is attacked beside fifteen others
may differ in them from the same one beside seven. Hence a run is cut into blocks of episodes by its own numbers alone,
and a block is played whole, by this process or another: its results are the same bits on the same machine.
"""

from __future__ import annotations

import functools
import itertools
import queue
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from pickle import loads
from typing import Protocol, TypeVar

from adv_wrappers.attacks.targets import Target
from adv_wrappers.core.threat import fits
from adv_wrappers.evaluation.best_of import EpisodeDraws, joined, play_draws
from adv_wrappers.evaluation.environments import Environment
from adv_wrappers.evaluation.losses import EpisodeLosses
from adv_wrappers.evaluation.measurements import RunMeasurements
from adv_wrappers.evaluation.rollout import play_episodes, side_by_side
from adv_wrappers.evaluation.sampled_distances import ObservationSample
from adv_wrappers.evaluation.threat_stacks import ThreatStack
from adv_wrappers.presets import preset_in_errors
from adv_wrappers.utils.processes import call_in_worker, pickled, warm_pool
from adv_wrappers.utils.step_timer import StepTimer
from adv_wrappers.utils.threads import one_thread
from adv_wrappers.victims.victim import Victim
from adv_wrappers.wrappers.base import AnyVectorEnv
from adv_wrappers.wrappers.order import check_order
from adv_wrappers.wrappers.recorder import VectorActionRecorder
from adv_wrappers.wrappers.stack import wrap

MOST_BLOCKS = 16  # of a run: more than the cores that one run is worth, and few enough that rows are rarely idle
R = TypeVar("R")
OnEpisode = Callable[[int], None]  # with the number of finished episodes
_open_players: dict[str, EpisodePlayer] = {}  # of a worker, by the file of their setup: the last one


def blocks_of(plays: int, num_envs: int) -> list[range]:
    """The episodes of every block of a run: as equal as can be, and at most 16.

    Args:
        plays: the number of episodes of the run.
        num_envs: how many of them are played at once.

    >>> from adv_wrappers.evaluation.pool import blocks_of
    >>> [len(block) for block in blocks_of(50, 32)], [len(block) for block in blocks_of(1000, 32)][:3]
    ([25, 25], [63, 63, 63])
    """
    count = min(-(-plays // num_envs), MOST_BLOCKS)
    share, more = divmod(plays, count)
    ends = list(itertools.accumulate(share + (i < more) for i in range(count)))
    return [range(start, end) for start, end in zip([0, *ends[:-1]], ends, strict=True)]


@dataclass(frozen=True)
class PlayerSetup:
    """What a process needs to play any block of an evaluation.

    Attributes:
        victim: the agent.
        environment: how its environments are made.
        stacks: the threats of every run.
        num_envs: the number of environments.
        quantize: as for :func:`adv_wrappers.evaluate`.
    """

    victim: Victim
    environment: Environment
    stacks: tuple[ThreatStack, ...]
    num_envs: int
    quantize: bool

    def pickled(self) -> bytes:
        """The setup as it is sent to a process; raises :class:`WorkerError` that names what cannot be."""
        pickled("the victim", self.victim)
        self.environment.pickled()
        pickled("a threat", self.stacks)
        return pickled("the evaluation", self)  # as a whole: attacks hold the same victim


@dataclass(frozen=True)
class Block:
    """Episodes that are played together.

    Attributes:
        run: index of the run.
        seeds: of the episodes.
        draws: of every episode the number of its draw.
        sampled: whether a sample of observations is taken.
        target: the loss of states, or None.
    """

    run: int
    seeds: tuple[int, ...]
    draws: tuple[int, ...]
    sampled: bool = False
    target: Target | None = None


BlockResult = tuple[RunMeasurements, "ObservationSample | None"]


class PlayBlocks(Protocol):
    """Plays blocks in this process or others, and returns what was measured, in their order."""

    def __call__(self, blocks: Sequence[Block], on_episode: OnEpisode | None = None) -> list[BlockResult]: ...


class EpisodePlayer:
    """Plays blocks in this process, in one vector environment under the threats of any run.

    Args:
        setup: the evaluation. Nothing is played yet; every stack of threats is wrapped, which checks it.

    Attributes:
        venv: the vector environment.

    Raises:
        AdvWrappersError: one of its kinds, for an environment that cannot be made, or a threat that does not fit it.
    """

    def __init__(self, setup: PlayerSetup) -> None:
        self.victim = setup.victim
        self.venv = side_by_side(setup.environment, setup.num_envs)
        try:
            check_order(self.venv)
            fits(self.victim, self.venv.single_observation_space, self.venv.single_action_space)
            self.prepare(setup.stacks, setup.quantize)
        except BaseException:
            self.close()
            raise

    def prepare(self, stacks: Sequence[ThreatStack], quantize: bool) -> None:
        """Wrap the environments for these runs instead of those before.

        Raises:
            AdvWrappersError: one of its kinds, for a threat that does not fit.
        """
        self._runs = [self._wrapped(stack, quantize) for stack in stacks]

    def _wrapped(self, stack: ThreatStack, quantize: bool) -> tuple[VectorActionRecorder, AnyVectorEnv]:
        recorder = VectorActionRecorder(self.venv)
        if not stack.layers:
            return recorder, recorder
        with preset_in_errors(stack.name):
            return recorder, wrap(recorder, *stack.layers, victim=self.victim, quantize=quantize)

    def play(self, block: Block, on_episode: OnEpisode | None = None) -> BlockResult:
        """What a block measures; raises as :func:`play_episodes`."""
        recorder, env = self._runs[block.run]
        sample = ObservationSample(block.seeds) if block.sampled else None
        losses = None
        if block.target is not None:
            losses = EpisodeLosses(block.target, len(block.seeds), env.num_envs)
        run = play_episodes(
            env, recorder, self.victim, list(block.seeds), on_episode, sample, losses=losses, draws=block.draws
        )
        return run, sample

    def step_seconds(self, run: int, seeds: Sequence[int], timer: StepTimer) -> list[float]:
        """Seconds of some steps of a run, which begins as if it were played, and of which nothing is kept.

        Args:
            run: index of the run.
            seeds: of as many episodes as rows are attacked.
            timer: says when there are enough.
        """
        recorder, env = self._runs[run]
        with timer.ends():
            play_episodes(env, recorder, self.victim, list(seeds), on_step=timer)
        return timer.seconds

    def play_all(self, blocks: Sequence[Block], on_episode: OnEpisode | None = None) -> list[BlockResult]:
        """What each block measures, one after another."""
        found: list[BlockResult] = []
        before = 0
        for block in blocks:
            found.append(self.play(block, None if on_episode is None else _later(on_episode, before)))
            before += len(block.seeds)
        return found

    def close(self) -> None:
        """Close the environments."""
        self.venv.close()


def _later(on_episode: OnEpisode, before: int) -> OnEpisode:
    return lambda finished: on_episode(before + finished)


def _play_in_worker(path: str, block: Block) -> BlockResult:
    """A block in a worker process, whose player stays open for the blocks of the same evaluation."""
    if path not in _open_players:
        while _open_players:
            _open_players.popitem()[1].close()
        _open_players[path] = EpisodePlayer(loads(Path(path).read_bytes()))
    with one_thread():
        return _open_players[path].play(block)


def play_run(
    play: PlayBlocks,
    run: int,
    seeds: Sequence[int],
    num_envs: int,
    count: int,
    by: str,
    sampled: bool,
    target: Target | None,
    on_episode: OnEpisode | None = None,
) -> tuple[EpisodeDraws, ObservationSample | None]:
    """What one run measures, and its sample of observations.

    Args:
        play: plays its blocks.
        run: index of the run.
        seeds: of the episodes.
        num_envs: how many episodes are played at once.
        count, by: draws of every episode, and what the best is chosen by.
        sampled: whether a sample of observations is taken; it is of the first two draws.
        target: the loss of states that is measured, or None.
        on_episode: called with the number of finished episodes.
    """
    samples: list[ObservationSample] = []
    before = 0

    def play_numbers(numbers: Sequence[int]) -> RunMeasurements:
        nonlocal before
        first, done = before == 0, before
        before += len(numbers)
        every = [*seeds] * (len(numbers) // len(seeds))
        blocks = [
            Block(run, tuple(every[i] for i in part), tuple(numbers[i] for i in part), sampled and first, target)
            for part in blocks_of(len(numbers), num_envs)
        ]
        found = play(blocks, None if on_episode is None else _later(on_episode, done))
        samples.extend(sample for _, sample in found if sample is not None)
        return functools.reduce(joined, [measured for measured, _ in found])

    draws = play_draws(play_numbers, count, len(seeds), by)
    return draws, ObservationSample.joined(samples) if samples else None


def play_runs(
    runs: Mapping[int, Callable[[PlayBlocks, OnEpisode], R]],
    setup: PlayerSetup,
    workers: int,
    on_block: Callable[[int, int], None],
    on_run: Callable[[int, R], None],
) -> None:
    """Play several runs in worker processes.

    Args:
        runs: by index, a function that plays one by the function that it is given.
        setup: the evaluation.
        workers: the number of processes.
        on_block: called with a run's index and the number of its finished episodes, whenever a block is done.
        on_run: called with a run's index and what its function returned, in whatever order runs end.

    Raises:
        WorkerError: where something cannot be sent to a process, before one is started, and where one died.
        Exception: the first that a run raised.
    """
    data = setup.pickled()
    events: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()  # what this thread does in the name of others

    def failed(error: BaseException) -> None:
        raise error

    def play_one(run: int, pool: Executor, path: str) -> None:
        def play(blocks: Sequence[Block], on_episode: OnEpisode | None = None) -> list[BlockResult]:
            waiting = [pool.submit(call_in_worker, _play_in_worker, path, block) for block in blocks]
            found: list[BlockResult] = []
            for future in waiting:
                found.append(future.result())
                if on_episode is not None:
                    on_episode(sum(len(measured.returns) for measured, _ in found))
            return found

        try:
            result = runs[run](play, lambda finished: events.put(functools.partial(on_block, run, finished)))
        except BaseException as error:  # raised again in the thread that waits
            events.put(functools.partial(failed, error))
        else:
            events.put(functools.partial(finish, run, result))

    def finish(run: int, result: R) -> None:
        left.discard(run)
        on_run(run, result)

    left = {*runs}
    with ExitStack() as opened:
        folder = opened.enter_context(tempfile.TemporaryDirectory())
        path = Path(folder) / "setup"
        path.write_bytes(data)
        pool = opened.enter_context(warm_pool(workers))
        for run in runs:
            threading.Thread(target=play_one, args=(run, pool, str(path)), daemon=True).start()
        while left:
            events.get()()
