"""The player: it plays blocks of episodes of cells, in one vector environment that stays open between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from adv_wrappers.attacks.targets import Target
from adv_wrappers.core.threat import fits
from adv_wrappers.environments.dmc import DmcVectorEnv
from adv_wrappers.environments.environment import Environment
from adv_wrappers.errors import SpaceError, ValueRangeError, threat_in_errors
from adv_wrappers.evaluation.episodes import Episodes
from adv_wrappers.evaluation.executor import Tell
from adv_wrappers.evaluation.first_steps import OutsideSpace, unrepeated
from adv_wrappers.evaluation.measurements.measurements import BlockMeasurements
from adv_wrappers.evaluation.measurements.metrics import EpisodeMetrics, metric_of
from adv_wrappers.evaluation.measurements.sampled_distances import ObservationSample
from adv_wrappers.evaluation.measurements.target_distance import EpisodeLosses
from adv_wrappers.evaluation.rollout import EpisodesVectorEnv, play_episodes, side_by_side
from adv_wrappers.evaluation.threat_stacks import ThreatStack
from adv_wrappers.utils.pace import StepTimer
from adv_wrappers.utils.processes import pickled
from adv_wrappers.victims.victim import Victim
from adv_wrappers.wrappers.action_recorder import VectorActionRecorder
from adv_wrappers.wrappers.layer import AnyVectorEnv
from adv_wrappers.wrappers.order import check_order
from adv_wrappers.wrappers.perturb_dynamics import end_diverged_episodes
from adv_wrappers.wrappers.wrap import wrap


@dataclass(frozen=True)
class Cell:
    """What is measured by one row: an agent, in an environment, under some threats, in some episodes.

    Attributes:
        victim: the agent.
        environment: how its environments are made.
        threats: aimed at the victim.
        episodes: how they are played, :meth:`.Episodes.fitted` to the victim.
    """

    victim: Victim
    environment: Environment
    threats: ThreatStack
    episodes: Episodes

    @property
    def seeds(self) -> list[int]:
        """Those of its episodes."""
        return self.episodes.seeds[: self.threats.episodes]


@dataclass(frozen=True)
class PlayerSetup:
    """The cells of a player that another process opens; they share their victim, environment and episodes."""

    cells: tuple[Cell, ...]

    def open(self) -> Player:
        """The player."""
        return Player(self.cells)

    def pickled(self) -> bytes:
        """The setup as it is sent to a process; raises :class:`WorkerError` that names what cannot be."""
        pickled("the victim", self.cells[0].victim)
        self.cells[0].environment.pickled()
        pickled("a threat", [cell.threats for cell in self.cells])
        return pickled("the evaluation", self)  # as a whole: attacks hold the same victim


@dataclass(frozen=True)
class Block:
    """Episodes of one cell that are played together: the unit of work of every evaluation.

    Attributes:
        cell: index of the cell among those of the player.
        seeds: of the episodes.
        draws: of every episode the number of its draw; None for the first.
        sampled: whether a sample of observations is taken.
        target: the loss of states, or None.
    """

    cell: int
    seeds: tuple[int, ...]
    draws: tuple[int, ...] | None = None
    sampled: bool = False
    target: Target | None = None


class Player:
    """Plays blocks in this process.

    Args:
        cells: those that are opened, if any.
        ends_diverged: whether an episode whose simulation diverges is cut off there, as in trainings; else it is an
            error.
        on_step: called after every step of a block; what it raises ends the block.

    Raises:
        AdvWrappersError: one of its kinds, for an environment that cannot be made, or a threat that does not fit it.
    """

    def __init__(
        self, cells: Sequence[Cell] = (), ends_diverged: bool = False, on_step: Callable[[], None] | None = None
    ) -> None:
        self._ends_diverged, self._on_step = ends_diverged, on_step
        self._venv: EpisodesVectorEnv | DmcVectorEnv | None = None
        self._unrepeated: str | None = None  # what the first steps say; None before they are played
        self._place: tuple[Environment, int | None] | None = None
        self._stacks: list[tuple[VectorActionRecorder, AnyVectorEnv]] = []
        self._cells: Sequence[Cell] = ()
        if cells:
            try:
                self.open(cells)
            except BaseException:
                self.close()
                raise

    @property
    def venv(self) -> EpisodesVectorEnv | DmcVectorEnv:
        """The vector environment of the cells that are open."""
        if self._venv is None:
            raise ValueRangeError("nothing is open: open cells before blocks are played")
        return self._venv

    def open(self, cells: Sequence[Cell]) -> None:
        """Make ready to play blocks of these cells instead of those before; environments that are open are used again.

        Nothing is played; every stack of threats is wrapped, which checks it.

        Raises:
            AdvWrappersError: one of its kinds, for an environment that cannot be made, or a threat that does not fit.
        """
        first = cells[0]
        venv = self.open_environments(first.environment, first.episodes)
        fits(first.victim, venv.single_observation_space, venv.single_action_space, first.environment.name)
        self._cells, self._stacks = cells, [self._wrapped(cell) for cell in cells]

    def open_environments(self, environment: Environment, episodes: Episodes) -> EpisodesVectorEnv | DmcVectorEnv:
        """The vector environment for such episodes, which is used again by cells that are opened next.

        Raises:
            AdvWrappersError: one of its kinds, for an environment that cannot be made, or whose layers lie in an order
                that cannot work.
        """
        place = (environment, episodes.num_envs)
        if self._venv is None or place != self._place:
            self.close()
            self._venv, self._place = side_by_side(environment, episodes.num_envs or 1), place
            self._unrepeated, self._outside = None, OutsideSpace(self._venv.single_observation_space)
            check_order(self._venv)
        return self._venv

    def _wrapped(self, cell: Cell) -> tuple[VectorActionRecorder, AnyVectorEnv]:
        recorder, threats = VectorActionRecorder(self.venv), cell.threats
        if not threats.layers:
            return recorder, recorder
        with threat_in_errors(threats.name):
            env = wrap(recorder, *threats.layers, victim=cell.victim, quantize=cell.episodes.quantize)
        if self._ends_diverged:
            end_diverged_episodes(env)
        return recorder, env

    def play(
        self, block: Block, on_episode: Tell | None = None, attacked_at: Counter[int] | None = None
    ) -> BlockMeasurements:
        """What a block measures; the arguments beside it, and errors, are those of :func:`play_episodes`."""
        cell, (recorder, env) = self._cells[block.cell], self._stacks[block.cell]
        # once, before the first block: whether the environment repeats
        if self._unrepeated is None:
            rows = getattr(self.venv, "envs", ())  # none where MuJoCo is stepped directly
            first = cell.victim, cell.episodes.seeds[0], self._outside, self._on_step
            try:
                self._unrepeated = unrepeated(rows, *first) if rows else ""
            except SpaceError as error:
                if len(rows) < 2 or error.__cause__ is None:  # that of the environment
                    raise
                raise SpaceError(f"{error}. Where only one can be at a time: num_envs=1") from error.__cause__
        wanted, size = [metric_of(text) for text in cell.episodes.metrics], (len(block.seeds), env.num_envs)

        def end(finished: int) -> None:
            self._outside.look(recorder.observation)  # the last of an episode is often its farthest
            if on_episode is not None:
                on_episode(finished)

        run = play_episodes(
            env,
            recorder,
            cell.victim,
            list(block.seeds),
            end,
            ObservationSample(block.seeds) if block.sampled else None,
            attacked_at,
            losses=None if block.target is None else EpisodeLosses(block.target, *size),
            metrics=EpisodeMetrics(wanted, *size) if wanted else None,
            draws=block.draws,
            on_step=self._on_step,
        )
        # what was noticed of the environment goes with the row
        if self._unrepeated:
            run.notes["unrepeated"] = self._unrepeated
        if self._outside.said:
            run.notes["outside"] = self._outside.said
        if self._outside.mask and any(layer.on == "action" for layer in cell.threats.layers):
            run.notes["unmasked"] = self._outside.mask
        return run

    def step_seconds(self, cell: int, seeds: Sequence[int], timer: StepTimer) -> list[float]:
        """Seconds of some steps of a cell, which begins as if it were played, and of which nothing is kept.

        Args:
            cell: its index.
            seeds: of its episodes.
            timer: says when there are enough.
        """
        recorder, env = self._stacks[cell]
        with timer.ends():
            play_episodes(env, recorder, self._cells[cell].victim, list(seeds), on_step=timer)
        return timer.seconds

    def close(self) -> None:
        """Close the environments."""
        if self._venv is not None:
            self._venv.close()
        self._venv = None
        self._place = None
        self._stacks = []
        self._cells = ()
