"""Callbacks for trainings with Stable-Baselines3: how robust the agent is while it learns, and curricula over eps.

Both act between rollouts, which for PPO and A2C is after the update that follows one, and at the end of the training:
what is evaluated is a whole policy with the statistics of ``VecNormalize`` of that moment.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import VecEnv, VecMonitor, VecNormalize

from adv_wrappers.core.training_schedules import Number
from adv_wrappers.environments.environment import AnyEnvironment, Environment
from adv_wrappers.errors import SpaceError, ValueRangeError
from adv_wrappers.evaluation.episodes import SEED_OFFSET, Episodes
from adv_wrappers.evaluation.evaluate import play_missing
from adv_wrappers.evaluation.evaluator import Evaluator
from adv_wrappers.evaluation.player import Player
from adv_wrappers.evaluation.rows.report import Report
from adv_wrappers.evaluation.rows.row import Row
from adv_wrappers.evaluation.threat_stacks import CLEAN_RUN, as_threat_stack
from adv_wrappers.training.fit import next_multiple, write_at
from adv_wrappers.utils.files import write_json
from adv_wrappers.utils.reading import read_json
from adv_wrappers.utils.scalar_log import optional_log
from adv_wrappers.utils.validation import EpisodeCount, Positive, Seed, checked
from adv_wrappers.victims import from_sb3
from adv_wrappers.victims.modules.asking import unchanged_randomness
from adv_wrappers.victims.victim import Select
from adv_wrappers.wrappers.layer import LAYERS, Layer, counts, inner_layers, layers, wrappers_of
from adv_wrappers.wrappers.sb3_vec_env import VecProbabilisticTiming
from adv_wrappers.wrappers.schedule_budget import BudgetShares, UsesShare, as_share_schedule, scheduled_layers

BEST_MODEL = "best_model"  # .zip and .json in the folder of a RobustnessCallback
# wrappers of single environments that show the agent no other game
_WATCHING = {"Monitor", "RecordEpisodeStatistics", "RecordAttackStatistics", "RecordVideo"}
_ATTACKING = {"PerturbObservation", "PerturbAction", "ProbabilisticTiming", "ScheduleBudget"}


class RobustnessCallback(BaseCallback):
    """Evaluates the agent in training on the same episodes, clean and under threats, and logs what it keeps.

    The training is not touched: an evaluation plays a copy of the policy in environments of its own, and whatever
    draws from the random generators of Python, numpy and torch meanwhile, they are put back. So the weights of a
    training are the same to the bit with the callback and without it.

    SB3's logger gets, at the number of steps of the evaluation, ``robustness/clean`` and ``robustness/attacked`` (the
    mean return without an attack, and the lowest one under a threat), and under ``robustness/THREAT/`` ``return`` with
    its 95% interval ``low`` and ``high``, ``attack_rate`` (the share of steps at which the threat attacked) and
    ``flips`` (of the attacked steps the share whose action changed). The tables that SB3 prints have the first two.

    Args:
        threats: as for :func:`adv_wrappers.evaluate`: texts, threat models, lists of them for a stack. Those without a
            victim are aimed at the agent as it is at that moment.
        every: steps of the training, those of all environments counted: the agent is evaluated between two rollouts,
            when their number has passed the next multiple of this, and at the end.
        episodes: the number of episodes of every run, or an :class:`adv_wrappers.Episodes`.
        seed: of the episodes. By default they are none of those that :func:`adv_wrappers.evaluate` plays by default, on
            which the chosen agent will be evaluated.
        env: the environment of the evaluations, an id, a function or an :class:`adv_wrappers.Environment`. None takes
            the id and the arguments of the training's own, without its threats.
        out: a folder for the rows, in ``rows.db``, and the newest ``report.json``; every evaluation is an agent of its
            own there, whose ``ref`` says the algorithm and the steps (``PPO@2048``). ``adv-wrappers plot --x
            training_steps`` draws them.
        save_best: whether ``best_model.zip`` in ``out`` is the agent with the highest ``robustness/attacked``, of
            equals the one with the highest clean return. ``best_model.json`` has its steps and returns, and
            ``best_model_vecnormalize.pkl`` the statistics of its ``VecNormalize``, so that
            ``load_victim("sb3:OUT/best_model.zip")`` finds them. A training that goes on
            (``reset_num_timesteps=False``) goes on with the best of before.
        select: whether the agent plays its ``"mode"`` or a ``"sample"``.
        log: where the same numbers go besides, a run of Weights & Biases or MLflow for instance: as for
            :meth:`adv_wrappers.Report.log`. A run of ``wandb.init(sync_tensorboard=True)`` has them already.

    Attributes:
        rows: one dictionary for every run of every evaluation, the clean one first: ``steps``, ``threat``, ``return``,
            ``low``, ``high``, ``attack_rate`` and ``flips`` (None without an attacked step).
        report: the newest report, with the warnings of :func:`adv_wrappers.evaluate`.
        best: what ``best_model.json`` holds, or None.
        seconds: wall clock of all evaluations.

    Raises:
        ValueRangeError: for ``save_best`` without ``out``.
        AdvWrappersError: one of its kinds, when ``learn`` is called and before anything is trained, for an agent that
            is no victim, threats that do not fit it, and an environment that cannot be made.

    For example::

        callback = RobustnessCallback(["pgd:eps=0.1"], every=10_000, out="robustness", save_best=True)
        PPO("MlpPolicy", "CartPole-v1", tensorboard_log="logs").learn(100_000, callback=callback)
    """

    @checked
    def __init__(
        self,
        threats: Any,
        every: Positive = 10_000,
        episodes: EpisodeCount | Episodes = 10,
        seed: Seed = SEED_OFFSET,
        env: AnyEnvironment | None = None,
        *,
        out: str | Path | None = None,
        save_best: bool = False,
        select: Select = "mode",
        log: object = None,
    ) -> None:
        super().__init__()
        self.threats = list(threats) if isinstance(threats, (list, tuple)) else [threats]
        self.every = every
        # episodes that no training sees, and a folder where the best is to be kept
        if isinstance(episodes, Episodes) and seed != SEED_OFFSET:
            raise ValueRangeError("an Episodes has its own seed: give it to it")
        self.episodes = episodes if isinstance(episodes, Episodes) else Episodes(episodes, seed)
        if save_best and out is None:
            raise ValueRangeError("save_best=True needs a folder: give out=")
        self.out = None if out is None else Path(out)
        self.save_best = save_best
        self.select = select
        self.env = env
        self.rows: list[dict[str, Any]] = []
        self.report: Report | None = None
        self.best: dict[str, Any] | None = None
        self.seconds = 0.0
        # the environment is known once the training begins
        self._more_log = optional_log(log)
        self._environment: Environment | None = None
        self._player = Player()
        self._next, self._last = 0, -1

    def _init_callback(self) -> None:
        self._environment = training_environment(self.model) if self.env is None else Environment.of(self.env, None)
        with unchanged_randomness():
            self._evaluator()  # raises for what cannot be evaluated
        steps = int(self.model.num_timesteps)
        self._next, self._last = next_multiple(steps, self.every), steps
        self.best = self._kept_best() if steps else None

    def _on_step(self) -> bool:
        return True

    def _on_rollout_start(self) -> None:
        if self.model.num_timesteps >= self._next:
            self._evaluate()

    def _on_training_end(self) -> None:
        if self.model.num_timesteps > self._last:
            self._evaluate()
        self._player.close()

    def _evaluator(self) -> Evaluator:
        """The present agent on the episodes, under the threats."""
        assert self._environment is not None
        name = f"{type(self.model).__name__}@{self.model.num_timesteps}"
        victim = from_sb3(self.model, select=self.select, ref=name)
        stacks = [CLEAN_RUN, *(as_threat_stack(threat, victim) for threat in self.threats)]
        evaluator = Evaluator(victim, self._environment, stacks, self.episodes, self._player)
        evaluator.about["victim"]["training_steps"] = int(self.model.num_timesteps)
        return evaluator

    def _evaluate(self) -> None:
        steps, started = int(self.model.num_timesteps), time.perf_counter()
        with unchanged_randomness():
            self.report = play_missing(self._evaluator(), out=self.out, resume=False)
        self.seconds += time.perf_counter() - started
        # the return under the strongest attack decides, and among equals the clean one
        self._next, self._last = next_multiple(steps, self.every), steps
        rows = [_row(steps, row) for row in self.report.threats]
        self.rows += rows
        clean, attacked = rows[0]["return"], min(row["return"] for row in rows[1:] or rows)
        self._log(steps, rows, clean, attacked)
        if self.save_best and (self.best is None or (attacked, clean) > (self.best["attacked"], self.best["clean"])):
            self.best = {"steps": steps, "attacked": attacked, "clean": clean, "rows": rows}
            self._save_best()

    def _log(self, steps: int, rows: Sequence[dict[str, Any]], clean: float, attacked: float) -> None:
        values = {"robustness/clean": clean, "robustness/attacked": attacked}
        details = {
            f"robustness/{row['threat'] if i else 'clean'}/{name}": float(value)
            for i, row in enumerate(rows)
            for name, value in row.items()
            if name not in ("steps", "threat") and value is not None
        }
        write_at(self.logger, values, steps, details)
        if self._more_log is not None:
            self._more_log({**values, **details}, steps)

    def _save_best(self) -> None:
        assert self.out is not None and self.best is not None
        path = self.out / BEST_MODEL
        self.model.save(path)
        normalizer = self.model.get_vec_normalize_env()
        if normalizer is not None:
            normalizer.save(f"{path}_vecnormalize.pkl")
        write_json(path.with_suffix(".json"), self.best)

    def _kept_best(self) -> dict[str, Any] | None:
        """The best agent of the training that goes on, where the folder has it."""
        path = None if self.out is None else self.out / f"{BEST_MODEL}.json"
        if path is None or not self.save_best or not path.exists():
            return None
        return read_json(path)


def _row(steps: int, row: Row) -> dict[str, Any]:
    return {
        "steps": steps,
        "threat": row.threat,
        "return": row.mean_return,
        "low": row.low,
        "high": row.high,
        "attack_rate": row.attacked_fraction,
        "flips": row.action_change,
    }


def training_environment(model: BaseAlgorithm) -> Environment:
    """The environment that a model is trained in, as its spec says, without threats and without what only watches.

    Raises:
        SpaceError: where the spec does not say it all: for environments that Gymnasium did not make, and wrappers that
            change what the agent sees.
    """
    venv = model.get_env()
    give = "give env= for the evaluations"
    if venv is None:
        raise SpaceError(f"the model has no environment: {give}")
    # wrappers of the vector may only normalise, watch or attack
    for wrapper in wrappers_of(venv)[:-1]:
        if not isinstance(wrapper, (VecNormalize, VecMonitor, Layer, VecProbabilisticTiming)):
            raise SpaceError(f"{type(wrapper).__name__} changes the training's environment: {give}")
    # the id and arguments that one row was made by
    spec = venv.get_attr("spec", 0)[0]
    if spec is None:
        raise SpaceError(f"the training's environment was not made by an id: {give}")
    others = [wrapper.name for wrapper in spec.additional_wrappers if wrapper.name not in _WATCHING | _ATTACKING]
    if others:
        raise SpaceError(f"{' and '.join(others)} changes the training's environment: {give}")
    kwargs = {key: value for key, value in spec.kwargs.items() if key != "render_mode"}
    registered = gym.registry.get(spec.id)
    if registered is not None and spec.max_episode_steps != registered.max_episode_steps:
        kwargs["max_episode_steps"] = spec.max_episode_steps
    return Environment(spec.id, kwargs)


class ScheduleBudgetCallback(BaseCallback):
    """The layers of the training's environment use a share of their budgets that follows a schedule: a curriculum.

    It follows the training's progress as SB3 counts it, ``num_timesteps`` of ``total_timesteps``, in hundredths,
    changes the share between rollouts, and logs it as ``rollout/budget_share``. :class:`adv_wrappers.ScheduleBudget` is
    the wrapper for other libraries, and says what a share is. SB3 resets the environments before it asks a callback, so
    the first observations of a training are perturbed within the budget as it was.

    Args:
        schedule: the share of the budget, in [0, 1], as for :class:`adv_wrappers.ScheduleBudget`.

    Raises:
        ThreatError, ValueRangeError: for what is no schedule of shares.
        OrderError: when ``learn`` is called, for an environment without layers, and for several in one environment of a
            ``SubprocVecEnv``.
        BudgetError: then, for a layer whose budget has no radius.

    For example::

        venv = adv.PerturbObservation(make_vec_env("CartPole-v1", 8), "noise:eps=0.2")
        callback = ScheduleBudgetCallback(adv.LinearSchedule(0.0, 1.0, end=0.8))
        PPO("MlpPolicy", venv).learn(100_000, callback=callback)
    """

    def __init__(self, schedule: Number | dict[str, Any]) -> None:
        super().__init__()
        self.schedule = as_share_schedule(schedule)
        self._shares: BudgetShares | None = None

    def _init_callback(self) -> None:
        self._shares = BudgetShares(self.schedule, _targets(self.model.get_env()))
        self._follow()

    def _on_step(self) -> bool:
        return True

    def _on_rollout_start(self) -> None:
        self._follow()

    def _follow(self) -> None:
        assert self._shares is not None
        self._shares.set_at(self.model.num_timesteps / max(self.model._total_timesteps, 1))
        self.logger.record("rollout/budget_share", self._shares.share)


class _InWorkers:
    """The one layer of every environment of a vector whose environments are in other processes."""

    def __init__(self, venv: VecEnv) -> None:
        self._venv = venv

    def set_budget_share(self, share: float) -> None:
        self._venv.env_method("set_budget_share", share)


def _targets(venv: Any) -> list[UsesShare]:
    around, inside = layers(venv), inner_layers(venv)
    if counts(venv)[LAYERS] - len(around) == 1 and not any(inside) and hasattr(venv, "env_method"):
        return [*around, _InWorkers(venv)]
    return [*scheduled_layers(venv, "ScheduleBudgetCallback")]
