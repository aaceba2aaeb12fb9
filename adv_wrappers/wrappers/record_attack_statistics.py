"""What an agent earned under attack, and how much of its episode was attacked, in ``info`` at the episode's end.

Gymnasium's ``RecordEpisodeStatistics`` records return, length and time of an episode. This records beside return and
length what only the layers beneath know: the share of steps that they attacked, and how many of those changed the
action. Both count as ``e_adv`` and ``action_change`` of reports do: a step is attacked where its observation or its
action is, and a terminal observation, on which nobody acts, counts nowhere. But the agent of a training explores, so
that the action it takes says little about the one it would have taken on the true observation. Here its most likely
actions on both are compared instead; where observations and actions are attacked, a step counts if either changed the
action.
"""

from __future__ import annotations

import math
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from adv_wrappers.core.engine.engine import Engine
from adv_wrappers.core.threat import fits
from adv_wrappers.core.types import Array, Info, Space
from adv_wrappers.errors import OrderError, VictimError
from adv_wrappers.utils.scalar_log import Write, optional_log
from adv_wrappers.utils.trees import copy, map_leaves, select
from adv_wrappers.victims import Victim, load_victim
from adv_wrappers.victims.policy_runner import PolicyRunner
from adv_wrappers.wrappers.changed_actions import ActionChanges
from adv_wrappers.wrappers.layer import LAYERS, EnvWrapper, ForAnyEnv, autoreset_mode, counts, layers

STATS_KEY = "attack"
_TAGS = {"r": "return", "l": "length"}  # in logs


class AttackCounts:
    """Counts return, length, attacked steps and changed actions of the present episode of every row.

    Args:
        env: the environment with its layers.
        rows: the number of rows.
        observation_space, action_space: of one row, outside of all layers.
        victim: is asked whether an attacked observation changes its action, or None.

    Raises:
        OrderError: where there are no layers, or they are inside the rows of a vector environment.
        VictimError: for a victim that does not fit, or that is recurrent.
    """

    def __init__(
        self, env: Any, rows: int, observation_space: Space, action_space: Space, victim: Victim | str | None
    ) -> None:
        found = layers(env)
        if not found:
            inside = "; those inside the rows are out of reach: put RecordAttackStatistics around each row"
            hidden = inside if counts(env)[LAYERS] else ": wrap the environment in them first"
            what = "RecordAttackStatistics counts the attacks of the layers beneath it, and there are none"
            raise OrderError(f"{what}{hidden}")
        # the layers beneath by what they attack
        self.rows = rows
        self._on_observations = [layer.engine for layer in found if layer.on == "observation"]
        self._on_actions = [layer.engine for layer in found if layer.on == "action"]
        self._on_dynamics = [layer.engine for layer in found if layer.on == "dynamics"]
        self._runner = None
        if victim is not None:
            agent = load_victim(victim)
            fits(agent, observation_space, action_space)
            if agent.recurrent:
                raise VictimError(
                    "RecordAttackStatistics has no flips of recurrent agents, whose answers depend on what they were "
                    "shown before: leave the victim out"
                )
            self._runner = PolicyRunner(agent, rows)
        # whether it can be told that an action was changed: actions have to be comparable, and observations need an
        # agent
        flat = isinstance(action_space, (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary))
        self.knows_flips = flat and (self._runner is not None or not self._on_observations)
        self._differ = ActionChanges(action_space)
        self.returns, self.lengths = np.zeros(rows), np.zeros(rows, np.int64)
        self.attacked, self.flipped = np.zeros(rows, np.int64), np.zeros(rows, np.int64)
        self._shown_attacked, self._shown_flipped = np.zeros(rows, bool), np.zeros(rows, bool)

    def begin(self, rows: NDArray[np.bool_]) -> None:
        """Episodes begin in these rows, bool ``[B]``."""
        for count in (self.returns, self.lengths, self.attacked, self.flipped):
            count[rows] = 0

    def look(self, rows: NDArray[np.bool_], count_flips: NDArray[np.bool_]) -> None:
        """Note which of the newest observations, those in these rows, were attacked.

        Args:
            rows: bool ``[B]``.
            count_flips: rows in which somebody will act on them, bool ``[B]``.
        """
        self._shown_attacked = np.where(rows, self._any_attacked(self._on_observations), self._shown_attacked)
        self._shown_flipped &= ~rows
        asked = np.flatnonzero(rows & count_flips & self._shown_attacked)
        # the agent's actions on the true and on the shown observation, asked for in rows that were attacked
        if self._runner is not None and self.knows_flips and len(asked):
            both = self._on_observations[0].true, self._on_observations[-1].shown
            if self._on_observations[0].batched:
                both = copy(both)  # in which texts are arrays
            else:
                both = map_leaves(lambda leaf: np.asarray(leaf)[None], both)
            true, shown = (select(map_leaves(_on_host, one), asked) for one in both)
            actions = self._runner.mode(_joined(true, shown))  # one evaluation of the network
            true, shown = actions[: len(asked)], actions[len(asked) :]
            self._shown_flipped[asked] = self._differ(true, shown)

    def add(self, actions: Any, rewards: Any, rows: NDArray[np.bool_]) -> None:
        """Add a step of these rows, bool ``[B]``, in which the agent took ``actions``."""
        on_actions = self._any_attacked(self._on_actions)
        flipped = self._shown_flipped
        # an action is changed where the environment received another one than the agent took
        if self._on_actions and self.knows_flips and on_actions.any():
            sent = _on_host(self._on_actions[0].sent).reshape(self.rows, -1)
            flipped = flipped | (on_actions & self._differ(_on_host(actions).reshape(self.rows, -1), sent))
        self.returns += np.where(rows, _on_host(rewards), 0.0)
        self.lengths += rows
        self.attacked += rows & (self._shown_attacked | on_actions | self._any_attacked(self._on_dynamics))
        self.flipped += rows & flipped

    def statistics(self) -> dict[str, Array]:
        """What ``info`` gets, by its names, one number a row."""
        found = {"r": self.returns.copy(), "l": self.lengths.copy(), "attack_rate": _share(self.attacked, self.lengths)}
        return {**found, "flips": _share(self.flipped, self.attacked)} if self.knows_flips else found

    def write(self, log: Write, found: dict[str, Array], rows: NDArray[np.bool_], steps: int) -> None:
        """Write the statistics of some rows, bool ``[B]``, at a number of steps."""
        for row in np.flatnonzero(rows).tolist():
            values = {f"{STATS_KEY}/{_TAGS.get(name, name)}": float(numbers[row]) for name, numbers in found.items()}
            log({tag: value for tag, value in values.items() if not math.isnan(value)}, steps)

    def _any_attacked(self, engines: list[Engine]) -> NDArray[np.bool_]:
        found = np.zeros(self.rows, bool)
        for engine in engines:
            found |= _on_host(engine.attacked)
        return found


def _on_host(value: Any) -> Array:
    array: Array = value.cpu().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)
    return array


def _joined(a: Any, b: Any) -> Any:
    """Two batches, or dictionaries or tuples of batches, one after the other."""
    if isinstance(a, dict):
        return {key: _joined(a[key], b[key]) for key in a}
    if isinstance(a, tuple):
        return tuple(_joined(*pair) for pair in zip(a, b, strict=True))
    return np.concatenate([a, b])


def _share(part: Array, whole: Array) -> Array:
    """The share of a whole, NaN of nothing."""
    share: Array = np.divide(part, whole, out=np.full(len(whole), math.nan), where=whole > 0)
    return share


class StatisticsRecorder:
    """Mixin of the recorders of one environment and of a vector, in every autoreset mode."""

    env: Any
    rows: int

    def __init__(
        self,
        env: Any,
        victim: Victim | str | None = None,
        *,
        log: object = None,
        stats_key: str = STATS_KEY,
        tensorboard: object = None,
    ) -> None:
        known = victim.ref or victim if isinstance(victim, Victim) else victim
        hint = ": an SB3 VecEnv takes the wrapper inside its environments, or adv_wrappers.training.sb3.callbacks."
        # whoever rebuilds it has its own logs
        self._wrap_one(env, f"{hint}RobustnessCallback", victim=known, stats_key=stats_key)  # type: ignore[attr-defined]
        self._stats_key = stats_key
        self._log = optional_log(log, tensorboard)
        self._taken = 0
        self._single = isinstance(env, gym.Env)
        self._mode = AutoresetMode.DISABLED if self._single else autoreset_mode(env)
        observed = env.observation_space if self._single else env.single_observation_space
        acted = env.action_space if self._single else env.single_action_space
        self._counts = AttackCounts(env, self.rows, observed, acted, victim)
        self._every = np.ones(self.rows, bool)
        self._over = ~self._every  # rows that the next step resets, whatever its action

    def reset(self, *, seed: Any = None, options: Info | None = None) -> tuple[Any, Info]:
        """Reset the environment, or those rows of a vector that ``options["reset_mask"]`` says."""
        mask = None if options is None or self._single else options.get("reset_mask")
        rows = self._every if mask is None else _on_host(mask).astype(bool)
        obs, info = self.env.reset(seed=seed, options=options)
        self._counts.begin(rows)
        self._counts.look(rows, rows)
        self._over = self._over & ~rows
        return obs, info

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, Info]:
        """One step, with the statistics of the episodes that it ends in ``info``."""
        counts = self._counts
        obs, rewards, terminated, truncated, info = self.env.step(action)
        counts.add(action, rewards, ~self._over)
        self._taken += self.rows
        # statistics of the episodes that end, before their counts begin anew
        done = (_on_host(terminated) | _on_host(truncated)).astype(bool).reshape(self.rows)
        if done.any():
            found = counts.statistics()
            if self._single:
                info = {**info, self._stats_key: {name: numbers[0].item() for name, numbers in found.items()}}
            else:
                info = {**info, self._stats_key: found, f"_{self._stats_key}": done}
            if self._log is not None:
                counts.write(self._log, found, done, self._taken)
        counts.begin(done)
        # in NEXT_STEP the step after an end is a reset, on which nobody acts
        if self._mode == AutoresetMode.NEXT_STEP:
            self._over = done
        counts.look(self._every, self._every if self._mode == AutoresetMode.SAME_STEP else ~done)
        return obs, rewards, terminated, truncated, info


class RecordAttackStatistics(ForAnyEnv, StatisticsRecorder, EnvWrapper):
    """Records what an agent earned under the layers beneath, and how they attacked it, at every episode's end.

    The last step of an episode has in ``info["attack"]``:

    - ``r``, ``l``: return and length of the episode, under attack, as Gymnasium's ``RecordEpisodeStatistics`` names
      them;
    - ``attack_rate``: the share of its steps at which a layer attacked the observation or the action;
    - ``flips``: of the attacked steps the share at which the action changed: the victim's most likely action is another
      one on the observation that the outermost layer shows than on the one that the innermost received (a continuous
      one by more than 5% of its range), or the environment received another action than was sent. NaN where no step was
      attacked. The wrapper cannot know it, and leaves it out, where observations are attacked and no ``victim`` is
      given.

    In a vector environment these are arrays with one number a row, and ``info["_attack"]`` masks the rows whose episode
    is over, in every autoreset mode. What an agent earns *without* the attack is not known here:
    :func:`adv_wrappers.evaluate` and :class:`.RobustnessCallback` play such episodes beside a
    training.

    Args:
        env: a Gymnasium ``Env`` or ``VectorEnv``, already wrapped in layers; other wrappers may lie between.
        victim: the agent, for ``flips``: as it learns by ``from_module(..., live=True)``. Its networks are evaluated on
            the true and the shown observation of every attacked step.
        log: as for :meth:`adv_wrappers.Report.log`, for ``attack/return``, ``attack/length``, ``attack/attack_rate``
            and ``attack/flips`` of every episode, over steps, those of all rows counted.
        stats_key: the key in ``info``.
        tensorboard: ``log`` by its name before 0.3.

    Raises:
        OrderError: where no layer is beneath; layers inside the rows of a vector environment are out of reach, so wrap
            these rows.
        VictimError: for a victim that does not fit the environment, or that is recurrent.

    >>> import gymnasium as gym
    >>> from adv_wrappers import PerturbObservation, load_victim
    >>> victim = load_victim("zoo:cartpole-dqn")
    >>> env = PerturbObservation(gym.make("CartPole-v1"), "pgd:eps=0.2,when=every(2)", victim=victim)
    >>> env = RecordAttackStatistics(env, victim)
    >>> (obs, info), over = env.reset(seed=0), False
    >>> while not over:
    ...     obs, reward, terminated, truncated, info = env.step(victim.act_on(obs[None])[0])
    ...     over = terminated or truncated
    >>> info["attack"]
    {'r': 28.0, 'l': 28, 'attack_rate': 0.5, 'flips': 1.0}
    """


VectorRecordAttackStatistics = RecordAttackStatistics.of_vector
