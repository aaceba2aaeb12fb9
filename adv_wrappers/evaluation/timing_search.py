"""The search for the best timing of one episode, layer by layer.

A state of the episode goes on with the victim's own action, or with one that a perturbation forces. The states after
one more step make the next layer, and the victim looks at all of a layer at once. With each go the return so far and
the steps that were perturbed; a state that can no longer lead to anything better than what is known is dropped.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import SupportsFloat

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from adv_wrappers.actions.worst import WorstAction
from adv_wrappers.core.budgets import Valid
from adv_wrappers.core.context import Context
from adv_wrappers.core.spaces import to_victim
from adv_wrappers.core.types import Action, Info, Observation
from adv_wrappers.errors import ValueRangeError
from adv_wrappers.evaluation.deterministic_episodes import DeterministicEpisodes, SavedState, collection_paused
from adv_wrappers.evaluation.environments import AnyEnvironment
from adv_wrappers.utils.numbers import check_integer, check_number, integer
from adv_wrappers.victims import Victim

Steps = tuple[int, ...]  # of an episode: those that are perturbed


@dataclass(frozen=True)
class FoundTiming:
    """A timing that is known: what it totals, and the steps that it perturbs."""

    total: float
    steps: Steps


@dataclass
class SearchNode(SavedState):
    """A state on the way, and what led to it."""

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


class TimingSearch(DeterministicEpisodes):
    """The searches of one victim in one environment.

    Args:
        victim, env, seeds, by, gamma, horizon, lowest_reward, max_nodes: as for
            :func:`adv_wrappers.evaluation.optimal_timing.fewest_perturbations`, which says what is refused.

    Attributes:
        seeds: the seeds, checked.
    """

    def __init__(
        self,
        victim: Victim | str,
        env: AnyEnvironment,
        seeds: Sequence[int],
        by: str | None,
        gamma: float,
        horizon: int | None,
        lowest_reward: float,
        max_nodes: int,
    ) -> None:
        self.seeds: Steps = tuple(integer("a seed", seed, 0) for seed in seeds)
        if not self.seeds:
            raise ValueRangeError("seeds must hold at least one seed, got none")
        if horizon is not None:
            check_integer("horizon", horizon, 1)
        check_number("lowest_reward", lowest_reward)
        check_integer("max_nodes", max_nodes, 1)
        super().__init__(victim, env)
        self.worst = None if by == "any" else WorstAction(self.victim, by, gamma=gamma, other=True)
        if horizon is not None:
            self.limit = horizon
        if lowest_reward < 0 and self.limit is None:
            raise ValueRangeError(
                "a lowest_reward below 0 needs a horizon: without a limit of steps no timing is bounded"
            )
        self.horizon, self.lowest, self.max_nodes = horizon, float(lowest_reward), max_nodes

    def episode(self, seed: int, cost: float, most: int | None) -> SearchedEpisode:
        """Search one episode; ``most`` perturbations, None for any number at a cost each."""
        root, clean, clean_then = self._clean_episode(seed)
        rest = clean - clean_then
        found = SearchedEpisode([FoundTiming(clean, ())] * (1 if most is None else most + 1), clean)
        with collection_paused():
            # a quick search for something to beat: once an episode is perturbed, it is at every step
            for goes_on in (False, True):
                self._search(root, found, cost, np.inf if most is None else most, rest, goes_on)
        return found

    def _clean_episode(self, seed: int) -> tuple[SearchNode, float, float]:
        """The first state, and the return without perturbations, whole and within the horizon."""
        env, horizon = self.env, self.horizon
        first = self.reset(seed)
        root = SearchNode(first.snapshot, first.observation, first.mask, 0.0, ())
        observation, clean, clean_then = first.observation, 0.0, 0.0
        for t in itertools.count():
            action = self.own_actions([SavedState(first.snapshot, observation, None)])[0]
            observation, reward, terminated, truncated, _ = env.step(action)
            clean += self._checked_reward(reward)
            clean_then = clean if horizon is None or t < horizon else clean_then
            if terminated or truncated:
                break
        self.check_drew_nothing(first)
        return root, clean, clean_then

    def _node(self, observation: Observation, info: Info, total: float, steps: Steps) -> SearchNode:
        state = self.saved(observation, info)
        return SearchNode(state.snapshot, state.observation, state.mask, total, steps)

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
            own = self.own_actions(layer)
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
        seen = self.batch([node.observation for node in nodes])
        bounds = own.new_tensor(self.start), own.new_tensor(self.start + self.count - 1)
        context = Context.around(
            own,
            Valid(),
            bounds,
            torch.zeros(len(nodes), dtype=torch.int64),
            observation=to_victim(seen, victim.dtype, victim.device, True, space=victim.observation_space),
            mask=None if all(mask.all() for mask in masks) else torch.as_tensor(np.stack(masks), device=victim.device),
            simulator=NodeSimulator(self, nodes),
        )
        with torch.no_grad():
            return [[action] for action in self.worst(own, context).cpu().numpy().astype(np.int64)]


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
