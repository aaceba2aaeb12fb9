"""A block: some episodes of a cell, played side by side under its threats.

Row r of N plays episodes r, r + N, r + 2N, ... : which episodes are counted does not depend on which finish first. A
row that has played all its episodes is reset and stands still, neither simulated nor attacked nor counted.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from numpy.typing import NDArray

from adv_wrappers.core.engine.engine import Engine
from adv_wrappers.core.perturbation import Step, When
from adv_wrappers.core.types import Info
from adv_wrappers.environments.dmc import CONTROL_OBSERVATIONS, PREFIX, DmcVectorEnv, dmc_vector
from adv_wrappers.environments.environment import EnvFactory, Environment, not_side_by_side
from adv_wrappers.errors import AdvWrappersError, SpaceError, ValueRangeError
from adv_wrappers.evaluation.measurements.measurements import BlockMeasurements, BlockMonitor, Mask
from adv_wrappers.evaluation.measurements.metrics import EpisodeMetrics
from adv_wrappers.evaluation.measurements.sampled_distances import ObservationSample
from adv_wrappers.evaluation.measurements.target_distance import EpisodeLosses
from adv_wrappers.victims.policy_runner import PolicyRunner
from adv_wrappers.victims.victim import Victim
from adv_wrappers.wrappers.action_recorder import VectorActionRecorder
from adv_wrappers.wrappers.layer import AnyEnv, AnyVectorEnv, layers


class UnfinishedRows(When):
    """Attacks only in the rows that have an episode left to play.

    Attributes:
        rows: those rows, bool ``[B]``, or True for all.
    """

    def __init__(self) -> None:
        self.rows: Mask = True

    def decide(self, step: Step, path: int = 0) -> Mask:
        return self.rows


class EpisodesVectorEnv(SyncVectorEnv):
    """Environments side by side, in DISABLED autoreset mode, for :func:`play_episodes`.

    Of their infos it passes on ``action_mask``, which layers read, and ``control_observations``, as a list of arrays or
    None, and nothing else: to arrange them by key takes a twentieth of a step of Hopper.

    Args:
        make_env: makes one environment.
        rows: the number of environments.

    Attributes:
        infos: the newest of every environment, as it came.
    """

    def __init__(self, make_env: EnvFactory, rows: int) -> None:
        super().__init__([make_env] * rows, autoreset_mode=AutoresetMode.DISABLED)
        self.infos: list[Info] = [{} for _ in range(rows)]

    def _add_info(self, vector_infos: Info, env_info: Info, env_num: int) -> Info:
        self.infos[env_num] = env_info
        if CONTROL_OBSERVATIONS in env_info:
            states = vector_infos.setdefault(CONTROL_OBSERVATIONS, [None] * self.num_envs)
            states[env_num] = env_info[CONTROL_OBSERVATIONS]
        if "action_mask" not in env_info:
            return vector_infos
        kept: Info = super()._add_info(vector_infos, {"action_mask": env_info["action_mask"]}, env_num)
        return kept


def side_by_side(environment: Environment, rows: int) -> EpisodesVectorEnv | DmcVectorEnv:
    """Environments side by side, in DISABLED autoreset mode.

    Args:
        environment: how one is made; tasks of the DeepMind Control Suite that are known step MuJoCo directly.
        rows: the number of environments.

    Raises:
        SpaceError: for environments that cannot be made.
    """
    made = list[AnyEnv]()

    def make() -> AnyEnv:
        made.append(environment())
        if any(made[-1].unwrapped is one.unwrapped for one in made[:-1]):
            raise SpaceError("the same environment was returned twice, and each has its own episode")
        return made[-1]

    try:
        # MuJoCo stepped directly where the formulas of the task are known
        if environment.id is not None and environment.id.startswith(PREFIX):
            direct = dmc_vector(environment.id, rows, dict(environment.kwargs or {}))
            if direct is not None:
                return direct
        return EpisodesVectorEnv(make, rows)
    except Exception as error:  # whatever a user's function, or the environment that it makes, may raise
        for one in made:
            one.close()
        if not made and isinstance(error, AdvWrappersError):
            raise
        raise not_side_by_side(rows, error, bool(made)) from error


class StandingEnv:
    """An environment without an episode left to play: it can be reset, and its steps stay at the first observation.

    Args:
        env: the environment, whose attributes this has.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        self.env = env
        self.start: tuple[Any, Info] = (None, {})

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Any, Info]:
        """Reset the environment."""
        self.start = self.env.reset(seed=seed, options=options)
        return self.start

    def step(self, action: Any) -> tuple[Any, float, bool, bool, Info]:
        """The first observation of the episode once more."""
        return self.start[0], 0.0, False, False, self.start[1]

    def __getattr__(self, name: str) -> object:
        return getattr(self.env, name)


@contextmanager
def _standing(recorder: VectorActionRecorder) -> Iterator[Callable[[NDArray[np.bool_]], None]]:
    """A function that lets the environments of some rows, bool ``[B]``, stand still from their next reset on."""
    envs = getattr(recorder.unwrapped, "envs", [])  # none where they are in other processes
    playing = list(envs)

    def stand(rows: NDArray[np.bool_]) -> None:
        for row in np.flatnonzero(rows).tolist() if envs else ():
            envs[row] = StandingEnv(envs[row])

    try:
        yield stand
    finally:
        envs[:] = playing


@contextmanager
def _gated(engines: Sequence[Engine], gate: When) -> Iterator[None]:
    """Layers attack where a gate allows it, and note whether they draw; at the end they begin with the first draw."""
    for engine in engines:
        engine.add_gate(gate)
        engine.clock.asked = False
    try:
        yield
    finally:
        for engine in engines:
            engine.remove_gate(gate)
            engine.clock.first_episode = 0


def _own_rewards(recorder: VectorActionRecorder) -> Callable[[], NDArray[np.float64]] | None:
    """A function that returns the environment's own rewards of the last step, where it has layers that change them."""
    rows = [[layer for layer in layers(env) if layer.on == "reward"] for env in getattr(recorder.unwrapped, "envs", ())]
    innermost: list[Any] = [found[0] for found in rows if found]
    return (lambda: np.array([float(layer.true_rewards or 0) for layer in innermost])) if innermost else None


def play_episodes(
    env: AnyVectorEnv,
    recorder: VectorActionRecorder,
    victim: Victim,
    seeds: list[int],
    on_episode: Callable[[int], None] | None = None,
    sample: ObservationSample | None = None,
    attacked_at: Counter[int] | None = None,
    *,
    losses: EpisodeLosses | None = None,
    metrics: EpisodeMetrics | None = None,
    draws: Sequence[int] | None = None,
    on_step: Callable[[], None] | None = None,
) -> BlockMeasurements:
    """Play one episode for each seed, and measure.

    Args:
        env: an :class:`EpisodesVectorEnv`, or another in DISABLED autoreset mode, under any wrappers around
            ``recorder``.
        recorder: the wrapper beneath all that perturb.
        victim: the agent.
        seeds: the seeds of the episodes.
        on_episode: called with the number of finished episodes, whenever one finishes.
        sample: considers the attacked observations, or None.
        attacked_at: counts the episodes that were attacked at step t, from 0, or None.
        losses: adds up the losses of states, or None.
        metrics: reads what is counted beside the return, or None.
        draws: of every episode the number of its draw: the random numbers of the attacks differ between draws, the
            episode does not; None for the first.
        on_step: called after every step of all rows; what it raises ends the run.

    Raises:
        ValueRangeError: for observations or returns that are not finite.
    """
    rows, episodes = env.num_envs, len(seeds)
    run = BlockMeasurements(
        np.zeros(episodes), np.zeros(episodes, np.int64), np.zeros(episodes, np.int64), sample=sample
    )
    # the agent, and what is looked at around it
    runner, gate = PolicyRunner(victim, rows), UnfinishedRows()
    monitor = BlockMonitor(run, env, recorder, runner)
    perturbing = (*monitor.on_observations, *monitor.on_actions, *monitor.on_dynamics)
    engines = [wrapper.engine for wrapper in perturbing]
    numbers = np.zeros(episodes, np.int64) if draws is None else np.asarray(draws, np.int64)
    # of every row: its episode, what it has earned, and for how long
    current = np.arange(rows)
    score = np.zeros(rows)
    length = np.zeros(rows, np.int64)
    finished = 0
    own = _own_rewards(recorder)
    infos: Sequence[Info] = getattr(recorder.unwrapped, "infos", [{}] * rows)  # none where MuJoCo is stepped directly
    begin: NDArray[np.bool_] | None = None  # rows that begin an episode, None for all
    fresh, started = True, time.perf_counter()
    with _standing(recorder) as stand, _gated(engines, gate):
        while finished < episodes:
            if fresh:
                # rows that begin an episode are reset, those that have played all of theirs stand still
                busy = current < episodes
                stand(~busy if begin is None else begin & ~busy)
                gate.rows = True if busy.all() else busy
                for engine in engines:
                    engine.clock.first_episode = numbers[np.minimum(current, episodes - 1)]
                new_seeds: Any = [seeds[e] if e < episodes else None for e in current]
                obs, _ = env.reset(seed=new_seeds, options=None if begin is None else {"reset_mask": begin})
                runner.reset(begin, new_seeds)
                monitor.new_observation(begin)
            # one step: compared before it and after it
            attacked = monitor.attacked
            attacked_rows, on_true = monitor.before_step(obs, busy, current, length)
            actions = runner.act(obs)
            obs, rewards, terminated, truncated, info = env.step(actions)
            rewards = rewards if own is None else own()
            if losses is not None:
                losses.add(recorder.observation, info.get(CONTROL_OBSERVATIONS), rewards)
            if metrics is not None:
                metrics.add(infos, busy, terminated)
            at_this_step = monitor.after_step(attacked_rows, on_true, actions, busy, attacked)
            if attacked_at is not None:
                attacked_at.update(length[at_this_step].tolist())
            monitor.new_observation()
            # what every row has earned so far
            score += rewards
            length += 1
            if on_step is not None:
                on_step()
            done = terminated | truncated
            fresh = bool(done.any())
            if not fresh:
                continue
            # episodes that are over, as far as they count
            over = done & busy
            which = current[over]
            run.returns[which], run.lengths[which] = score[over], length[over]
            run.attacked_steps[which] = monitor.attacked_steps[over]
            if not np.isfinite(score[over]).all():
                raise ValueRangeError(f"the environment returned a reward that is not finite: return {score[over]}")
            if metrics is not None:
                metrics.finish(which, over, infos)
            if losses is not None:
                losses.finish(which, over)
                losses.begin(done)
            finished += len(which)
            if on_episode is not None and len(which):
                on_episode(finished)
            # the row's next episode
            current[over] += rows
            score[done] = 0.0
            length[done] = 0
            monitor.attacked_steps[done] = 0
            begin = done
    # totals of the block
    run.sums["drew"] = sum(engine.clock.asked for engine in engines)
    run.losses = None if losses is None else losses.totals
    run.metrics = {} if metrics is None else metrics.values
    run.sums["seconds"] = time.perf_counter() - started
    return run
