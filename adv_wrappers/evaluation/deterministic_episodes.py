"""Episodes that repeat: a victim that always does the same in a state, in an environment that can go back to states.

Searches over what an adversary can make of an episode go back to states that they have seen, try an action there, and
ask the victim at many states at once. What such a search needs of the victim and the environment is checked here,
before anything is played; :mod:`adv_wrappers.evaluation.timing_search` and :mod:`adv_wrappers.certification.search`
are built on it.

The environment has to be deterministic under its seed. Random numbers that it draws in its steps are then those of the
seed, and what is found is what an adversary can do that knows them.
"""

from __future__ import annotations

import copy
import gc
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import concatenate, create_empty_array
from gymnasium.wrappers import TimeLimit
from numpy.typing import NDArray

from adv_wrappers.core.types import Action, Array, Info, Observation
from adv_wrappers.errors import SnapshotError, SpaceError, VictimError
from adv_wrappers.evaluation.environments import AnyEnvironment, Environment
from adv_wrappers.snapshots import Snapshot, check_repeats, random_states, record_for_replay
from adv_wrappers.snapshots.repeats import difference
from adv_wrappers.victims import Victim, load_victim
from adv_wrappers.victims.runner import PolicyRunner
from adv_wrappers.wrappers.base import AnyEnv, wrappers_of

_LOOKED_AT = 32  # steps of an episode that must draw no random numbers, before anything is computed


@dataclass
class SavedState:
    """A state of an episode: how to come back to it, what was seen there, and of the first the random states."""

    snapshot: Snapshot
    observation: Observation
    mask: NDArray[np.int8] | None
    random: Sequence[object] = field(default=(), kw_only=True)


@contextmanager
def collection_paused() -> Iterator[None]:
    """No garbage is collected inside.

    A search makes many small objects, none of them in a circle: looking for those takes a quarter of its time.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def check_searchable(victim: Victim) -> None:
    """Raise unless an exact search can follow what this victim does.

    Raises:
        VictimError: for a victim that samples or has a hidden state.
        SpaceError: for actions other than one discrete one.
    """
    if victim.select != "mode":
        raise VictimError(f"an exact search needs a victim that plays its mode, got {victim!r}")
    if victim.recurrent:
        raise VictimError(f"an exact search needs a victim without a hidden state, got {victim!r}")
    if not isinstance(victim.action_space, spaces.Discrete):
        raise SpaceError(f"an exact search tries one discrete action a step, this victim acts in {victim.action_space}")


def step_limit(env: AnyEnv) -> int | None:
    """After how many steps the wrapper :class:`gymnasium.wrappers.TimeLimit` ends an episode, or None."""
    found = [wrapper._max_episode_steps for wrapper in wrappers_of(env) if isinstance(wrapper, TimeLimit)]
    return min(found, default=None)


class DeterministicEpisodes:
    """The episodes of one victim in one environment, which can be followed from any of their states.

    Args:
        victim: the agent, or its reference; it plays its most likely action.
        env: an id, a function that makes one environment, or both with their arguments.
        strict: refuse environments that cannot be saved, instead of replaying their episodes, and those that draw
            random numbers in their steps, instead of following the draws of the seed. Both are warned of otherwise.

    Attributes:
        victim, env: the agent, and the environment, an instance for the search alone.
        make_env: makes another instance.
        label, name: what reports call the two.
        about: the environment as folders know it.
        limit: the largest number of steps of an episode, or None.
        start, count: the first action, and the number of actions.

    Raises:
        VictimError, SpaceError: as :func:`check_searchable`, and for a victim that does not fit the environment.
    """

    def __init__(self, victim: Victim | str, env: AnyEnvironment, *, strict: bool = False) -> None:
        self.victim = victim = load_victim(victim)
        check_searchable(victim)
        assert isinstance(victim.action_space, spaces.Discrete)
        self.start, self.count = int(victim.action_space.start), int(victim.action_space.n)
        self.environment = Environment.of(env, victim).unchecked()
        self.environment.spaces_for(victim)  # which checks them
        self.env, self.label = self.environment(), victim.ref or repr(victim)
        if not strict:
            self.env = record_for_replay(self.env)
        self.limit, self.strict = step_limit(self.env), strict
        self._runner, self._checked, self._draws = PolicyRunner(victim, 1), False, False

    def reset(self, seed: int) -> SavedState:
        """The first state of an episode.

        Raises:
            SnapshotError: for an environment that can neither be saved nor replayed; looked at once.
        """
        first = self.saved(*self.env.reset(seed=seed))
        if not self._checked:
            check_repeats(self.env, self.own_actions([first])[0])
            self._checked, first.snapshot = True, Snapshot.of(self.env)  # which may be replayed from now on
        first.random = random_states(self.env)
        return first

    def saved(self, observation: Observation, info: Info) -> SavedState:
        """The present state; what was seen there is copied, since it may be the environment's own memory."""
        seen = observation.copy() if isinstance(observation, np.ndarray) else copy.deepcopy(observation)
        return SavedState(Snapshot.of(self.env), seen, copy.copy(info.get("action_mask")))

    def check_drew_nothing(self, first: SavedState) -> None:
        """Raise or warn if random numbers were drawn on the way from ``first`` to the present state.

        Raises:
            SnapshotError: if they were, and the search is strict.
        """
        if self._draws or not difference(random_states(self.env), list(first.random), "draws"):
            return
        if self.strict:
            raise SnapshotError(f"{self.env} draws random numbers in its steps, which an adversary cannot know")
        self._draws = True
        warnings.warn(
            f"{self.env} draws random numbers in its steps: what is searched are the episodes of the seeds, by an "
            f"adversary that knows what will be drawn",
            RuntimeWarning,
            stacklevel=2,
        )

    def check_deterministic(self, seed: int) -> None:
        """Play the first steps of an episode, and see whether they draw random numbers (:meth:`check_drew_nothing`)."""
        first = self.reset(seed)
        observation = first.observation
        for _ in range(_LOOKED_AT):
            action = self._runner.mode(self.batch([observation]))[0]
            observation, _, terminated, truncated, _ = self.env.step(action)
            if terminated or truncated:
                break
        self.check_drew_nothing(first)

    def own_actions(self, states: Sequence[SavedState]) -> list[Action]:
        """What the victim does in some states where nothing is perturbed."""
        return list(self.actions(self.batch([state.observation for state in states])))

    def actions(self, observations: Observation) -> Array:
        """What the victim does at observations side by side, as a vector environment returns them."""
        return self._runner.mode(observations)

    def batch(self, observations: list[Observation]) -> Observation:
        """Observations side by side, as a vector environment returns them."""
        space = self.env.observation_space
        if isinstance(space, spaces.Box):
            return np.stack(observations).astype(space.dtype, copy=False)
        empty: Observation = create_empty_array(space, len(observations))
        return concatenate(space, observations, empty)

    def close(self) -> None:
        """Close the environment."""
        self.env.close()
