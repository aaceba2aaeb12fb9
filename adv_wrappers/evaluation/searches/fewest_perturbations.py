"""The best timing there is: how few perturbations break a deterministic agent, found by searching all of them.

Behzadan and Hsu 2019 train adversaries to find out when to attack (Algorithms 1 and 2). Where agent and simulator are
deterministic and actions discrete, the optimum that those approach can be computed: from the state at a step, the
episode goes on with the agent's own action, or with the action that a perturbation forces. All such continuations are
followed, layer by layer, each with its return so far and the perturbations spent on it; one that can no longer beat the
best that is known is dropped. The victim looks at all states of a layer at once.

- :func:`fewest_perturbations` is their resilience: the lowest ``return + cost * perturbations`` of every episode.
- :func:`resilience_profile` is their robustness: the lowest return with at most k perturbations, for every k.

A search visits many states, and does not keep those apart that it reaches on two ways: it is for agents that break
within some twenty steps.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from adv_wrappers.attacks.action_attacks import WorstAction
from adv_wrappers.core.budgets.budget import Valid
from adv_wrappers.core.engine.context import Context
from adv_wrappers.core.spaces import to_victim
from adv_wrappers.core.types import Floats
from adv_wrappers.environments.environment import AnyEnvironment, Environment, EnvKwargs, MakeEnv
from adv_wrappers.errors import ValueRangeError
from adv_wrappers.evaluation.searches.search_tree import DeterministicEpisodes, Transition, TreeNode, collection_paused
from adv_wrappers.utils.validation import Count, Finite, NotNegative, Positive, Seed, Share, checked
from adv_wrappers.victims import Victim, load_victim

Steps = tuple[int, ...]  # of an episode: those that are perturbed
Forced = Literal["q", "policy", "successor", "any"]  # actions


@dataclass(frozen=True)
class BestTimings:
    """The best timings of some episodes, one entry an episode; under budgets one row an episode, and a column a budget.

    Attributes:
        victim, env: the agent and the environment, as reports call them.
        seeds: the seeds of the episodes.
        cost: what a perturbation costs; 0 under budgets.
        budgets: the largest numbers of perturbations in an episode; None for any number.
        horizon: how many steps were searched; None for all.
        returns: the agent's returns; float64 ``[E]`` or ``[E, K]``.
        perturbations: how many perturbations were spent; int64 ``[E]`` or ``[E, K]``.
        steps: at which steps of every episode, from 0; under budgets a tuple of these an episode.
        clean_returns: the returns without any perturbation; float64 ``[E]``.
        finished: whether all timings were considered, bool ``[E]`` or ``[E, K]``; else there may be better ones.
        nodes: how many steps were simulated; int64 ``[E]``.
    """

    victim: str
    env: str
    seeds: tuple[int, ...]
    cost: float
    budgets: tuple[int, ...] | None
    horizon: int | None
    returns: Floats
    perturbations: NDArray[np.int64]
    steps: tuple[Any, ...]
    clean_returns: Floats
    finished: NDArray[np.bool_]
    nodes: NDArray[np.int64]

    @property
    def objective(self) -> Floats:
        """The returns and what the perturbations cost: the lowest there is where ``finished``."""
        return self.returns + self.cost * self.perturbations

    @property
    def regret(self) -> Floats:
        """What the perturbations take from the agent."""
        return (self.clean_returns - self.returns.T).T

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        values = {**asdict(self), "objective": self.objective, "regret": self.regret}
        return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in values.items()}


@checked
def fewest_perturbations(
    victim: Victim | str,
    env: AnyEnvironment,
    seeds: Sequence[Seed],
    cost: NotNegative = 1.0,
    by: Forced | None = None,
    *,
    gamma: Share = 0.99,
    horizon: Positive | None = None,
    lowest_reward: Finite = 0.0,
    max_nodes: Positive = 1_000_000,
    env_kwargs: EnvKwargs | None = None,
) -> BestTimings:
    """The timing of the lowest return plus cost of perturbations, for every episode (Algorithm 1's optimum).

    Args:
        victim: the agent, or its reference; it plays its most likely action.
        env: an id, or a function that makes one environment.
        seeds: the seeds of the episodes: the environment is reset with each of them.
        cost: what a perturbation costs, in rewards.
        by: the action that a perturbation forces instead of the agent's own: the worst of the others, by the rule of
            this name of :class:`adv_wrappers.WorstAction` (``other=True``), or for ``"any"`` each of them.
        gamma: the discount of ``by="successor"``.
        horizon: how many steps may be perturbed; None for all. An episode that is not over by then is taken to earn
            what the clean one earns from there on.
        lowest_reward: the lowest reward that a step can bring, on which it depends what can be dropped; the closer the
            faster. One below 0 needs a horizon, or an environment with a limit of steps.
        max_nodes: how many steps are simulated for an episode at most; then the best that is known is returned as not
            finished.
        env_kwargs: keyword arguments of the environment; None takes those of the victim's card if it names the id.

    Raises:
        VictimError: for a victim that samples or is recurrent, or that ``by`` does not suit.
        SpaceError: for actions other than one discrete one.
        SnapshotError: for an environment that can neither be saved nor replayed (:ref:`replays`).
        ValueRangeError: for numbers out of range, and for a reward below ``lowest_reward``.

    >>> from adv_wrappers.evaluation.searches.fewest_perturbations import fewest_perturbations
    >>> found = fewest_perturbations("zoo:cartpole-dqn", "CartPole-v1", [0, 1], lowest_reward=1.0)
    >>> found.objective, found.perturbations
    (array([13., 13.]), array([5, 4]))
    """
    victim = load_victim(victim)
    environment = Environment.of(env, victim, env_kwargs)
    rules = by, gamma, horizon, lowest_reward, max_nodes
    return _best_timings(victim, environment, seeds, cost, None, *rules)


@checked
def resilience_profile(
    victim: Victim | str,
    env: AnyEnvironment,
    seeds: Sequence[Seed],
    budgets: Sequence[Count],
    horizon: Positive = 60,
    by: Forced | None = None,
    *,
    gamma: Share = 0.99,
    lowest_reward: Finite = 0.0,
    max_nodes: Positive = 1_000_000,
    env_kwargs: EnvKwargs | None = None,
    make: MakeEnv | None = None,
) -> BestTimings:
    """The lowest return of every episode with at most k perturbations, for every k (Algorithm 2's optimum).

    Args:
        budgets: the numbers of perturbations.
        horizon: how many steps are searched. An episode that is not over by then is taken to earn what the clean one
            earns from there on: an agent that is still balancing has lost nothing.
        victim, env, seeds, by, gamma, lowest_reward, max_nodes, env_kwargs: as for :func:`fewest_perturbations`.
        make: a function called as ``make(id, **env_kwargs)`` instead of ``gymnasium.make``.

    Raises:
        AdvWrappersError: as of :func:`fewest_perturbations`.
    """
    if not budgets:
        raise ValueRangeError("budgets must hold at least one number of perturbations, got none")
    victim = load_victim(victim)
    environment = Environment.of(env, victim, env_kwargs, make)
    rules = by, gamma, horizon, lowest_reward, max_nodes
    return _best_timings(victim, environment, seeds, 0.0, tuple(budgets), *rules)


def _best_timings(
    victim: Victim,
    environment: Environment,
    seeds: Sequence[int],
    cost: float,
    budgets: tuple[int, ...] | None,
    *rules: Any,
) -> BestTimings:
    """Search every episode; ``rules`` are those of :class:`TimingSearch`."""
    if not seeds:
        raise ValueRangeError("seeds must hold at least one seed, got none")
    with closing(DeterministicEpisodes(victim, environment)) as tree:
        search = TimingSearch(tree, *rules)
        episodes = [search.episode(seed, cost, max(budgets) if budgets else None) for seed in seeds]
    # for every episode the best timing of every budget, or the best of all
    kept = budgets or (0,)
    best = [[episode.best[k] for k in kept] for episode in episodes]
    steps = tuple(tuple(one.steps for one in row) for row in best)

    def array(rows: list[list[Any]]) -> NDArray[Any]:
        return np.array(rows) if budgets else np.array(rows)[:, 0]

    return BestTimings(
        tree.label,
        environment.name,
        tuple(seeds),
        cost,
        budgets,
        search.horizon,
        array([[one.total - cost * len(one.steps) for one in row] for row in best]),
        array([[len(one.steps) for one in row] for row in best]),
        steps if budgets else tuple(row[0] for row in steps),
        np.array([episode.clean for episode in episodes]),
        array([[k < episode.first_open for k in kept] for episode in episodes]),
        np.array([episode.nodes for episode in episodes]),
    )


class FoundTiming(NamedTuple):
    """A timing that is known: what it totals, and the steps that it perturbs."""

    total: float
    steps: Steps


class PerturbedNode(NamedTuple):
    """A state on the way, and what led to it.

    Attributes:
        node: the state.
        total: the return so far, and the cost of the perturbations so far.
        steps: the steps that were perturbed.
    """

    node: TreeNode
    total: float
    steps: Steps


@dataclass
class SearchedEpisode:
    """What the search of one episode has found.

    Attributes:
        best: the best timing; under budgets the best with at most k perturbations, at place k.
        clean: the clean return.
        nodes: how many steps were simulated.
        first_open: the first place of ``best`` whose timings were not all considered.
    """

    best: list[FoundTiming]
    clean: float
    nodes: int = 0
    first_open: float = np.inf

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
        tree: the victim and the environment.
        by, gamma, horizon, lowest_reward, max_nodes: which timings are considered, as for :func:`fewest_perturbations`.

    Raises:
        VictimError: for a victim that ``by`` does not suit.
        ValueRangeError: for numbers out of range, and a negative ``lowest_reward`` where episodes have no limit.
    """

    @checked
    def __init__(
        self,
        tree: DeterministicEpisodes,
        by: Forced | None = None,
        gamma: Share = 0.99,
        horizon: Positive | None = None,
        lowest_reward: Finite = 0.0,
        max_nodes: Positive = 1_000_000,
    ) -> None:
        self.tree = tree
        self.horizon = horizon
        self.lowest_reward = lowest_reward
        self.max_nodes = max_nodes
        self.worst = None if by == "any" else WorstAction(tree.victim, by, gamma=gamma, other=True)
        self.limit = tree.limit if horizon is None else horizon
        if lowest_reward < 0 and self.limit is None:
            raise ValueRangeError(
                "a lowest_reward= below 0 needs a horizon: without a limit of steps no timing is bounded"
            )

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

    def _clean_episode(self, seed: int) -> tuple[TreeNode, float, float]:
        """The first state, and the return without perturbations, whole and within the horizon."""
        first = self.tree.reset(seed)
        clean, clean_then = 0.0, 0.0
        # the victim's own way, in an environment that has to draw nothing
        for after in self.tree.follow(first):
            self._checked_reward(after.reward)
            clean = after.total
            clean_then = clean if self.horizon is None or after.steps <= self.horizon else clean_then
        self.tree.check_drew_nothing(first)
        return first, clean, clean_then

    def _checked_reward(self, reward: float) -> float:
        if not reward >= self.lowest_reward:
            raise ValueRangeError(f"expected rewards of at least lowest_reward={self.lowest_reward:g}, got {reward}")
        return reward

    def _search(
        self, root: TreeNode, found: SearchedEpisode, cost: float, most: float, rest: float, goes_on: bool
    ) -> None:
        """Follow every timing from the first state on; not ``goes_on``: those that perturb every step to the end."""
        tree, layer = self.tree, [PerturbedNode(root, 0.0, ())]
        for t in itertools.count():
            # a layer: all states that are open at this step, and the victim's actions in them
            own = list(tree.actions(tree.batch([one.node.observation for one in layer])))
            spending = [(one.node, action) for one, action in zip(layer, own, strict=True) if len(one.steps) < most]
            forced = iter(self._forced_actions(spending))
            after, least = list[PerturbedNode](), self._least_future(t, rest)
            for one, action in zip(layer, own, strict=True):
                # from each state the victim's own action, and the forced one where a perturbation is left
                spends = len(one.steps) < most
                choices = [(other, (*one.steps, t)) for other in next(forced) if other != action] if spends else []
                if goes_on or not one.steps or not spends:
                    choices.append((action, one.steps))
                for choice, steps in choices:
                    total = one.total + cost * (len(steps) - len(one.steps))
                    # a continuation that can beat nothing is dropped; beyond the limit it is noted as open
                    if not found.beaten_by(total + least, steps):
                        continue
                    if found.nodes >= self.max_nodes:
                        found.first_open = min(found.first_open, found.place(steps))
                        continue
                    found.nodes += 1
                    reached = tree.step(one.node, choice)
                    total += self._checked_reward(reached.reward)
                    # an end, the horizon, or a state to go on from
                    if reached.over:
                        found.keep(FoundTiming(total, steps))
                    elif self.horizon == t + 1:
                        found.keep(FoundTiming(total + rest, steps))
                    elif found.beaten_by(total + self._least_future(t + 1, rest), steps):
                        after.append(PerturbedNode(tree.save(reached), total, steps))
            layer = after
            if not layer:
                return

    def _least_future(self, t: int, rest: float) -> float:
        """The least that a state at step t can still earn."""
        lowest = self.lowest_reward
        if self.limit is None:
            return lowest
        left = lowest * (self.limit - t)
        return min(lowest, left, left + rest)

    def _forced_actions(self, spending: list[tuple[TreeNode, Any]]) -> list[list[Any]]:
        """The actions that a perturbation may force in some states where the victim has chosen its own.

        The own one is among them where no other is allowed, or where any is.
        """
        tree, nodes = self.tree, [node for node, _ in spending]
        if not nodes:
            return []
        # any action, or that of the rule
        masks = [np.ones(tree.count, np.int8) if node.mask is None else np.asarray(node.mask) for node in nodes]
        if self.worst is None:
            return [[np.int64(tree.start + action) for action in np.flatnonzero(mask)] for mask in masks]
        victim = tree.victim
        # the rule is an attack on actions: it gets a context with these states as its simulator
        own = torch.as_tensor([int(action) for _, action in spending], dtype=victim.dtype, device=victim.device)
        seen = tree.batch([node.observation for node in nodes])
        bounds = own.new_tensor(tree.start), own.new_tensor(tree.start + tree.count - 1)
        context = Context.around(
            own,
            Valid(),
            bounds,
            torch.zeros(len(nodes), dtype=torch.int64),
            observation=to_victim(seen, victim.dtype, victim.device, True, space=victim.observation_space),
            mask=None if all(mask.all() for mask in masks) else torch.as_tensor(np.stack(masks), device=victim.device),
            simulator=NodeSimulator(tree, nodes),
        )
        with torch.no_grad():
            return [[action] for action in self.worst(own, context).cpu().numpy().astype(np.int64)]


class NodeSimulator:
    """Tries one action a state, for rules that look at what follows."""

    def __init__(self, tree: DeterministicEpisodes, nodes: list[TreeNode]) -> None:
        self.tree, self.nodes = tree, nodes

    def step(self, actions: Tensor) -> tuple[Any, Floats, NDArray[np.bool_]]:
        """Observations, rewards and ends of one step from every state."""
        after = list[Transition]()
        for node, action in zip(self.nodes, actions.cpu().numpy(), strict=True):
            one = self.tree.step(node, action)
            after.append(one._replace(observation=copy.deepcopy(one.observation)))
        rewards, over = np.array([one.reward for one in after]), np.array([one.over for one in after])
        return self.tree.batch([one.observation for one in after]), rewards, over
