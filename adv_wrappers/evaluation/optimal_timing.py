"""The best timing there is: how few perturbations break a deterministic agent, found by searching all of them.

Behzadan and Hsu 2019 train adversaries to find out when to attack (Algorithms 1 and 2). Where agent and simulator are
deterministic and actions discrete, the optimum that those approach can be computed: from the state at a step, the
episode goes on with the agent's own action, or with the action that a perturbation forces. All such continuations are
followed, layer by layer, each with its return so far and the perturbations spent on it; one that can no longer beat the
best that is known is dropped.

- :func:`fewest_perturbations` is their resilience: the lowest ``return + cost * perturbations`` of every episode.
- :func:`resilience_profile` is their robustness: the lowest return with at most k perturbations, for every k.

A search visits many states, and does not keep those apart that it reaches on two ways: it is for agents that break
within some twenty steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from adv_wrappers.core.types import JSON
from adv_wrappers.errors import ValueRangeError
from adv_wrappers.evaluation.environments import AnyEnvironment, Environment, EnvKwargs, MakeEnv
from adv_wrappers.evaluation.timing_search import Steps, TimingSearch
from adv_wrappers.utils.numbers import check_integer, check_number, integer
from adv_wrappers.victims import Victim, load_victim

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class FewestPerturbations:
    """The best timings of some episodes, one entry an episode.

    Attributes:
        victim, env: the agent and the environment, as reports call them.
        seeds: the seeds of the episodes.
        cost: what a perturbation costs.
        objective: ``returns + cost * perturbations``, the lowest there is where ``finished``; float64 ``[E]``.
        returns: the agent's returns; float64 ``[E]``.
        perturbations: how many perturbations were spent; int64 ``[E]``.
        steps: at which steps of every episode, from 0.
        clean_returns: the returns without any perturbation; float64 ``[E]``.
        finished: whether all timings were considered, bool ``[E]``; else there may be better ones.
        nodes: how many steps were simulated; int64 ``[E]``.
    """

    victim: str
    env: str
    seeds: Steps
    cost: float
    objective: Floats
    returns: Floats
    perturbations: NDArray[np.int64]
    steps: tuple[Steps, ...]
    clean_returns: Floats
    finished: NDArray[np.bool_]
    nodes: NDArray[np.int64]

    @property
    def regret(self) -> Floats:
        """What the perturbations cost the agent, float64 ``[E]``."""
        return self.clean_returns - self.returns

    def to_dict(self) -> dict[str, JSON]:
        """The JSON form."""
        return _json(self)


@dataclass(frozen=True)
class ResilienceProfile:
    """The lowest returns under budgets of perturbations, one row an episode and one column a budget.

    Attributes:
        victim, env, seeds, clean_returns, nodes: as of :class:`FewestPerturbations`.
        budgets: the largest number of perturbations in an episode.
        horizon: how many steps were searched.
        returns: the lowest returns; float64 ``[E, K]``.
        steps: at which steps of every episode its perturbations are, budget by budget.
        finished: whether all timings were considered; bool ``[E, K]``.
    """

    victim: str
    env: str
    seeds: Steps
    budgets: Steps
    horizon: int
    returns: Floats
    steps: tuple[tuple[Steps, ...], ...]
    clean_returns: Floats
    finished: NDArray[np.bool_]
    nodes: NDArray[np.int64]

    @property
    def regret(self) -> Floats:
        """What the perturbations cost the agent, float64 ``[E, K]``."""
        return self.clean_returns[:, None] - self.returns

    def to_dict(self) -> dict[str, JSON]:
        """The JSON form."""
        return _json(self)


def fewest_perturbations(
    victim: Victim | str,
    env: AnyEnvironment,
    seeds: Sequence[int],
    cost: float = 1.0,
    by: str | None = None,
    *,
    gamma: float = 0.99,
    horizon: int | None = None,
    lowest_reward: float = 0.0,
    max_nodes: int = 1_000_000,
    env_kwargs: EnvKwargs | None = None,
) -> FewestPerturbations:
    """The timing of the lowest return plus cost of perturbations, for every episode (Algorithm 1's optimum).

    Args:
        victim: the agent, or its reference; it plays its most likely action.
        env: an id, or a function that makes one environment.
        seeds: the seeds of the episodes: the environment is reset with each of them.
        cost: what a perturbation costs, in rewards; at least 0.
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

    >>> from adv_wrappers.evaluation.optimal_timing import fewest_perturbations
    >>> found = fewest_perturbations("zoo:cartpole-dqn", "CartPole-v1", [0, 1], lowest_reward=1.0)
    >>> found.objective, found.perturbations
    (array([13., 13.]), array([5, 4]))
    """
    check_number("cost", cost, 0)
    victim = load_victim(victim)
    environment = Environment.of(env, victim, env_kwargs)
    with closing(TimingSearch(victim, environment, seeds, by, gamma, horizon, lowest_reward, max_nodes)) as search:
        episodes = [search.episode(seed, float(cost), None) for seed in search.seeds]
    found = [episode.best[0] for episode in episodes]
    return FewestPerturbations(
        search.label,
        environment.name,
        search.seeds,
        float(cost),
        np.array([best.total for best in found]),
        np.array([best.total - cost * len(best.steps) for best in found]),
        np.array([len(best.steps) for best in found]),
        tuple(best.steps for best in found),
        np.array([episode.clean for episode in episodes]),
        np.array([not episode.open for episode in episodes]),
        np.array([episode.nodes for episode in episodes]),
    )


def resilience_profile(
    victim: Victim | str,
    env: AnyEnvironment,
    seeds: Sequence[int],
    budgets: Sequence[int],
    horizon: int = 60,
    by: str | None = None,
    *,
    gamma: float = 0.99,
    lowest_reward: float = 0.0,
    max_nodes: int = 1_000_000,
    env_kwargs: EnvKwargs | None = None,
    make: MakeEnv | None = None,
) -> ResilienceProfile:
    """The lowest return of every episode with at most k perturbations, for every k (Algorithm 2's optimum).

    Args:
        budgets: the numbers of perturbations, whole and at least 0.
        horizon: how many steps are searched. An episode that is not over by then is taken to earn what the clean one
            earns from there on: an agent that is still balancing has lost nothing.
        victim, env, seeds, by, gamma, lowest_reward, max_nodes, env_kwargs: as for :func:`fewest_perturbations`.
        make: a function called as ``make(id, **env_kwargs)`` instead of ``gymnasium.make``.

    Raises:
        AdvWrappersError: as of :func:`fewest_perturbations`.
    """
    most = [integer("a budget", budget, 0) for budget in budgets]
    if not most:
        raise ValueRangeError("budgets must hold at least one number of perturbations, got none")
    check_integer("horizon", horizon, 1)
    victim = load_victim(victim)
    environment = Environment.of(env, victim, env_kwargs, make)
    with closing(TimingSearch(victim, environment, seeds, by, gamma, horizon, lowest_reward, max_nodes)) as search:
        episodes = [search.episode(seed, 0.0, max(most)) for seed in search.seeds]
    return ResilienceProfile(
        search.label,
        environment.name,
        search.seeds,
        tuple(most),
        horizon,
        np.array([[episode.best[k].total for k in most] for episode in episodes]),
        tuple(tuple(episode.best[k].steps for k in most) for episode in episodes),
        np.array([episode.clean for episode in episodes]),
        np.array([[k < episode.first_open for k in most] for episode in episodes]),
        np.array([episode.nodes for episode in episodes]),
    )


def _json(found: FewestPerturbations | ResilienceProfile) -> dict[str, JSON]:
    arrays = {**asdict(found), "regret": found.regret}
    return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in arrays.items()}
