"""What tree searches over an episode share: nodes, steps from them, and what they need of victim and environment.

Where victim and environment are deterministic, what an adversary can make of an episode is a tree: its nodes are
states, its edges the actions that the victim can be brought to. A search goes back to a node that it has seen, tries an
action there, and asks the victim at many nodes at once. Which nodes are followed, in which order, and how their returns
are bounded is the idea of each search: :mod:`adv_wrappers.evaluation.searches.beam`,
:mod:`adv_wrappers.evaluation.searches.fewest_perturbations` and :mod:`adv_wrappers.certification.action_search`.

The environment has to be deterministic under its seed. Random numbers that it draws in its steps are then those of the
seed, and what is found is what an adversary can do that knows them.
"""

from __future__ import annotations

import copy
import gc
import itertools
import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit
from numpy.typing import NDArray

from adv_wrappers.core.action_masks import action_mask_of, mask_path
from adv_wrappers.core.types import Array, Info
from adv_wrappers.environments.environment import AnyEnvironment, Environment
from adv_wrappers.environments.replay import record_for_replay
from adv_wrappers.environments.simulator import stacked
from adv_wrappers.environments.snapshot import Snapshot, check_repeats, difference, random_states
from adv_wrappers.errors import SnapshotError, SpaceError, ValueRangeError, VictimError
from adv_wrappers.victims import Victim, load_victim
from adv_wrappers.victims.policy_runner import PolicyRunner
from adv_wrappers.wrappers.layer import AnyEnv, wrappers_of

_LOOKED_AT = 32  # steps of an episode that must draw no random numbers, before anything is computed


class TreeNode(NamedTuple):
    """A state of an episode, to which a search can go back.

    Attributes:
        snapshot: how the environment is brought back to it.
        observation: what is seen there.
        mask: the mask of valid actions in its info, int8 ``[A]``; None without one.
        steps: the number of steps so far.
        total: the sum of the rewards so far.
        random: of the first state of an episode the random states of the environment; else empty.
    """

    snapshot: Snapshot
    observation: Any
    mask: NDArray[np.int8] | None
    steps: int
    total: float
    random: Sequence[object] = ()


class Transition(NamedTuple):
    """What followed an action from a node.

    Attributes:
        observation, info: as the environment returned them; its next step may write into them.
        reward: of the step.
        steps, total: the number of steps, and the sum of the rewards, with this one.
        over: whether the episode is over, terminated or truncated.
    """

    observation: Any
    info: Info
    reward: float
    steps: int
    total: float
    over: bool


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
        hint = ": adv_wrappers.certification.smoothing.certify_smoothed is for it" if hasattr(victim, "sigma") else ""
        raise VictimError(f"an exact search needs a victim that plays its mode, got {victim!r}{hint}")
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

    One node after the other is stepped from, in one environment.

    Args:
        victim: the agent, or its reference; it plays its most likely action.
        env: an id, a function that makes one environment, or both with their arguments.
        strict: refuse environments that cannot be saved, instead of replaying their episodes, and those that draw
            random numbers in their steps, instead of following the draws of the seed. Both are warned of otherwise.

    Attributes:
        victim, env: the agent, and the environment, an instance for the search alone.
        environment: makes another instance.
        label: what reports call the agent.
        limit: the largest number of steps of an episode, or None.
        start, count: the first action, and the number of actions.

    Raises:
        VictimError, SpaceError: as :func:`check_searchable`, and for a victim that does not fit the environment.
    """

    def __init__(self, victim: Victim | str, env: AnyEnvironment, *, strict: bool = False) -> None:
        self.victim = victim = load_victim(victim)
        self.environment = Environment.of(env, victim).unchecked()
        self.environment.spaces_for(victim)  # a victim of another environment is told that first
        check_searchable(victim)
        assert isinstance(victim.action_space, spaces.Discrete)
        self.start, self.count = int(victim.action_space.start), int(victim.action_space.n)
        # one environment, whose states are saved or else replayed
        self.env, self.label = self.environment(), victim.ref or repr(victim)
        if not strict:
            self.env = record_for_replay(self.env)
        self._mask_path = mask_path(self.env.observation_space, (self.count,))
        self.limit, self.strict = step_limit(self.env), strict
        self._runner = PolicyRunner(victim, 1)
        self._checked = False
        self._draws = False

    def reset(self, seed: int) -> TreeNode:
        """The first state of an episode.

        Raises:
            SnapshotError: for an environment that can neither be saved nor replayed; looked at once.
        """
        first = self._node(*self.env.reset(seed=seed), 0, 0.0)
        if not self._checked:
            action = self.actions(self.batch([first.observation]))[0]
            check_repeats(self.env, action, action_space=self.victim.action_space)
            self._checked, first = True, first._replace(snapshot=Snapshot.of(self.env))  # may be replayed from now on
        return first._replace(random=random_states(self.env))

    def step(self, node: TreeNode, action: Any) -> Transition:
        """Go back to a node and try an action there; :meth:`save` makes a node of where that leads.

        Raises:
            SnapshotError: for an episode that is replayed and goes another way.
            ValueRangeError: for a reward that is not finite.
        """
        node.snapshot.restore(self.env)
        return self._stepped(action, node.steps, node.total)

    def follow(self, node: TreeNode) -> Iterator[Transition]:
        """The victim's own way from a node to the end of the episode; nothing else may be stepped meanwhile.

        Raises:
            ValueRangeError: for a reward that is not finite.
        """
        node.snapshot.restore(self.env)
        observation, steps, total, over = node.observation, node.steps, node.total, False
        while not over:
            after = self._stepped(self.actions(self.batch([observation]))[0], steps, total)
            yield after
            observation, _, _, steps, total, over = after

    def _stepped(self, action: Any, steps: int, total: float) -> Transition:
        """One step of the environment, after so many steps and rewards."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        earned = float(reward)
        total += earned
        if not math.isfinite(total):
            raise ValueRangeError(f"the environment returned a reward that is not finite: {reward}")
        return Transition(observation, info, earned, steps + 1, total, bool(terminated or truncated))

    def save(self, after: Transition) -> TreeNode:
        """The node that the last :meth:`step` led to; saving takes longer than the step, so it is asked for."""
        return self._node(after.observation, after.info, after.steps, after.total)

    def _node(self, observation: Any, info: Info, steps: int, total: float) -> TreeNode:
        # what was seen may be the environment's own memory
        seen = observation.copy() if isinstance(observation, np.ndarray) else copy.deepcopy(observation)
        mask = copy.copy(action_mask_of(observation, info, self._mask_path))
        return TreeNode(Snapshot.of(self.env), seen, mask, steps, total)

    def check_drew_nothing(self, first: TreeNode) -> None:
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
        for _ in itertools.islice(self.follow(first), _LOOKED_AT):
            pass
        self.check_drew_nothing(first)

    def actions(self, observations: Any) -> Array:
        """What the victim does at observations side by side, as a vector environment returns them."""
        return self._runner.mode(observations)

    def batch(self, observations: list[Any]) -> Any:
        """Observations side by side, as a vector environment returns them."""
        return stacked(self.env.observation_space, observations)

    def close(self) -> None:
        """Close the environment."""
        self.env.close()
