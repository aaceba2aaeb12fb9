"""The search for the best timing of one episode, layer by layer.

A state of the episode goes on with the victim's own action, or with one that a perturbation forces. The states after
one more step make the next layer, and the victim looks at all of a layer at once. With each go the return so far and
the steps that were perturbed; a state that can no longer lead to anything better than what is known is dropped.
"""

from __future__ import annotations

import copy
import gc
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import SupportsFloat

import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector.utils import concatenate, create_empty_array
from numpy.typing import NDArray
from torch import Tensor

from adv_wrappers.actions.worst import WorstAction
from adv_wrappers.atari.games import is_atari
from adv_wrappers.core.budgets import Valid
from adv_wrappers.core.context import Context
from adv_wrappers.core.spaces import to_victim
from adv_wrappers.core.types import Action, Info, Observation
from adv_wrappers.errors import SnapshotError, SpaceError, ValueRangeError, VictimError
from adv_wrappers.evaluation.environments import EnvKwargs, MakeEnv, environment_factory, spaces_of
from adv_wrappers.snapshots import Snapshot, check_repeats
from adv_wrappers.snapshots.repeats import difference
from adv_wrappers.utils.numbers import check_integer, check_number, integer
from adv_wrappers.victims import Victim, load_victim
from adv_wrappers.victims.runner import PolicyRunner

Steps = tuple[int, ...]  # of an episode: those that are perturbed


@dataclass(frozen=True)
class FoundTiming:
    """A timing that is known: what it totals, and the steps that it perturbs."""

    total: float
    steps: Steps


@dataclass
class SearchNode:
    """A state on the way: how to come back to it, what was seen there, and what led to it."""

    snapshot: Snapshot
    observation: Observation
    mask: NDArray[np.int8] | None
    total: float  # return so far, and cost of the perturbations so far
    steps: Steps


@dataclass
class SearchedEpisode:
    """What the search of one episode has found.

    Attributes:
        best: the best timing; under budgets the best with at most k perturbations, at place k.
        clean: the clean return.
        nodes: how many steps were simulated.
        first_open: the smallest number of perturbations whose timings were not all considered.
    """

    best: list[FoundTiming]
    clean: float
    nodes: int = 0
    first_open: float = np.inf

    @property
    def open(self) -> bool:
        """Whether there may be better timings."""
        return self.first_open < np.inf

    def place(self, steps: Steps) -> int:
        """Where timings of this many perturbations are kept."""
        return min(len(steps), len(self.best) - 1)

    def beaten_by(self, total: float, steps: Steps) -> bool:
        """Whether a total of at least this, with these perturbations and perhaps more, may be better than the best."""
        return total < self.best[self.place(steps)].total

    def keep(self, timing: FoundTiming) -> None:
        """Keep a timing wherever it is better than what is there."""
        for k in range(self.place(timing.steps), len(self.best)):
            if timing.total < self.best[k].total:
                self.best[k] = timing


class TimingSearch:
    """The searches of one victim in one environment.

    Args:
        victim, env, seeds, by, gamma, horizon, lowest_reward, max_nodes, env_kwargs: as for
            :func:`adv_wrappers.fewest_perturbations`, which says what is refused.

    Attributes:
        seeds: the seeds, checked.
        label, name: the victim and the environment, as reports call them.
    """

    def __init__(
        self, victim: Victim | str, env: str | MakeEnv, seeds: Sequence[int], by: str | None, gamma: float,
        horizon: int | None, lowest_reward: float, max_nodes: int, env_kwargs: EnvKwargs | None,
    ) -> None:  # fmt: skip
        self.seeds: Steps = tuple(integer("a seed", seed, 0) for seed in seeds)
        if not self.seeds:
            raise ValueRangeError("seeds must hold at least one seed, got none")
        if horizon is not None:
            check_integer("horizon", horizon, 1)
        check_number("lowest_reward", lowest_reward)
        check_integer("max_nodes", max_nodes, 1)
        self.victim = victim = load_victim(victim)
        if victim.select != "mode":
            raise VictimError(f"an exact search needs a victim that plays its mode, got {victim!r}")
        if victim.recurrent:
            raise VictimError(f"an exact search needs a victim without a hidden state, got {victim!r}")
        if not isinstance(victim.action_space, spaces.Discrete):
            raise SpaceError(
                f"an exact search tries one discrete action a step, this victim acts in {victim.action_space}"
            )
        self.worst = None if by == "any" else WorstAction(victim, by, gamma=gamma, other=True)
        self.start, self.count = int(victim.action_space.start), int(victim.action_space.n)
        make_env, self.name, kwargs = environment_factory(env, victim, env_kwargs)
        if isinstance(env, str) and not is_atari(env):  # whose checks take half of a step
            make_env, *_ = environment_factory(env, victim, {"disable_env_checker": True, **kwargs})
        spaces_of(make_env, victim)
        self.env, self.label = make_env(), victim.ref or repr(victim)
        limit = getattr(self.env.spec, "max_episode_steps", None) if horizon is None else horizon
        if lowest_reward < 0 and limit is None:
            raise ValueRangeError(
                "a lowest_reward below 0 needs a horizon: without a limit of steps no timing is bounded"
            )
        self.horizon, self.limit, self.lowest, self.max_nodes = horizon, limit, float(lowest_reward), max_nodes
        self.runner = PolicyRunner(victim, 1)
        self.checked = False

    def episode(self, seed: int, cost: float, most: int | None) -> SearchedEpisode:
        """Search one episode; ``most`` perturbations, None for any number at a cost each."""
        root, clean, clean_then = self._clean_episode(seed)
        rest = clean - clean_then
        found = SearchedEpisode([FoundTiming(clean, ())] * (1 if most is None else most + 1), clean)
        collecting = gc.isenabled()
        gc.disable()  # many small objects, none of them in a circle: looking for those takes a quarter of the time
        try:
            # a quick search for something to beat: once an episode is perturbed, it is at every step
            for goes_on in (False, True):
                self._search(root, found, cost, np.inf if most is None else most, rest, goes_on)
        finally:
            if collecting:
                gc.enable()
        return found

    def _clean_episode(self, seed: int) -> tuple[SearchNode, float, float]:
        """The first state, and the return without perturbations, whole and within the horizon."""
        env, horizon = self.env, self.horizon
        observation, info = env.reset(seed=seed)
        root = self._node(observation, info, 0.0, ())
        if not self.checked:
            check_repeats(env, self._own_actions([root])[0])
            self.checked = True
        clean = clean_then = 0.0
        for t in itertools.count():
            action = self._own_actions([SearchNode(root.snapshot, observation, None, 0.0, ())])[0]
            observation, reward, terminated, truncated, _ = env.step(action)
            clean += self._checked_reward(reward)
            clean_then = clean if horizon is None or t < horizon else clean_then
            if terminated or truncated:
                break
        if difference(Snapshot.of(env).random_states(), root.snapshot.random_states(), "draws"):
            raise SnapshotError(
                f"{env} draws random numbers in its steps: an exact search needs a deterministic simulator"
            )
        return root, clean, clean_then

    def _node(self, observation: Observation, info: Info, total: float, steps: Steps) -> SearchNode:
        """The present state; what was seen there is copied, since it may be the environment's own memory."""
        seen = observation.copy() if isinstance(observation, np.ndarray) else copy.deepcopy(observation)
        return SearchNode(Snapshot.of(self.env), seen, copy.copy(info.get("action_mask")), total, steps)

    def _checked_reward(self, reward: SupportsFloat) -> float:
        if not float(reward) >= self.lowest:
            raise ValueRangeError(f"expected rewards of at least lowest_reward={self.lowest:g}, got {reward}")
        return float(reward)

    def _search(
        self, root: SearchNode, found: SearchedEpisode, cost: float, most: float, rest: float, goes_on: bool
    ) -> None:
        """Follow every timing from the first state on; not ``goes_on``: those that perturb every step to the end."""
        layer = [root]
        for t in itertools.count():
            own = self._own_actions(layer)
            spending = [(node, action) for node, action in zip(layer, own, strict=True) if len(node.steps) < most]
            forced = iter(self._forced_actions(spending))
            after, least = list[SearchNode](), self._least_future(t, rest)
            for node, action in zip(layer, own, strict=True):
                spends = len(node.steps) < most
                choices = [(other, (*node.steps, t)) for other in next(forced) if other != action] if spends else []
                if goes_on or not node.steps or not spends:
                    choices.append((action, node.steps))
                for choice, steps in choices:
                    total = node.total + cost * (len(steps) - len(node.steps))
                    if not found.beaten_by(total + least, steps):
                        continue
                    if found.nodes >= self.max_nodes:
                        found.first_open = min(found.first_open, len(steps))
                        continue
                    found.nodes += 1
                    node.snapshot.restore(self.env)
                    observation, reward, terminated, truncated, info = self.env.step(choice)
                    total += self._checked_reward(reward)
                    if terminated or truncated:
                        found.keep(FoundTiming(total, steps))
                    elif self.horizon == t + 1:
                        found.keep(FoundTiming(total + rest, steps))
                    elif found.beaten_by(total + self._least_future(t + 1, rest), steps):
                        after.append(self._node(observation, info, total, steps))
            layer = after
            if not layer:
                return

    def _least_future(self, t: int, rest: float) -> float:
        """The least that a state at step t can still earn."""
        if self.limit is None:
            return self.lowest
        left = self.lowest * (self.limit - t)
        return min(self.lowest, left, left + rest)

    def _own_actions(self, nodes: list[SearchNode]) -> list[Action]:
        """What the victim does in some states."""
        return list(self.runner.mode(self._batch(nodes)))

    def _forced_actions(self, spending: list[tuple[SearchNode, Action]]) -> list[list[Action]]:
        """The actions that a perturbation may force in some states where the victim has chosen its own.

        The own one is among them where no other is allowed, or where any is.
        """
        nodes = [node for node, _ in spending]
        if not nodes:
            return []
        masks = [np.ones(self.count, np.int8) if node.mask is None else np.asarray(node.mask) for node in nodes]
        if self.worst is None:
            return [[np.int64(self.start + action) for action in np.flatnonzero(mask)] for mask in masks]
        victim = self.victim
        own = torch.as_tensor([int(action) for _, action in spending], dtype=victim.dtype, device=victim.device)
        bounds = own.new_tensor(self.start), own.new_tensor(self.start + self.count - 1)
        context = Context.around(
            own, Valid(), bounds, torch.zeros(len(nodes), dtype=torch.int64),
            observation=to_victim(
                self._batch(nodes), victim.dtype, victim.device, True, space=victim.observation_space
            ),
            mask=None if all(mask.all() for mask in masks) else torch.as_tensor(np.stack(masks), device=victim.device),
            simulator=NodeSimulator(self, nodes),
        )  # fmt: skip
        with torch.no_grad():
            return [[action] for action in self.worst(own, context).cpu().numpy().astype(np.int64)]

    def _batch(self, nodes: list[SearchNode]) -> Observation:
        return self.batch([node.observation for node in nodes])

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


class NodeSimulator:
    """Tries one action a state, for rules that look at what follows."""

    def __init__(self, search: TimingSearch, nodes: list[SearchNode]) -> None:
        self.search, self.nodes = search, nodes

    def step(self, actions: Tensor) -> tuple[Observation, NDArray[np.float64], NDArray[np.bool_]]:
        """Observations, rewards and ends of one step from every state."""
        env, observations = self.search.env, list[Observation]()
        rewards, done = np.zeros(len(self.nodes)), np.zeros(len(self.nodes), bool)
        for i, (node, action) in enumerate(zip(self.nodes, actions.cpu().numpy(), strict=True)):
            node.snapshot.restore(env)
            observation, reward, terminated, truncated, _ = env.step(action)
            observations.append(copy.deepcopy(observation))
            rewards[i], done[i] = float(reward), terminated or truncated
        return self.search.batch(observations), rewards, done
