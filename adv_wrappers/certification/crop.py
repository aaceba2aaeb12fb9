"""CROP's adaptive search: the return that attacks on every step leave a smoothed agent (LoRe of Wu et al. 2022).

For an agent that acts on averages over Gaussian noise (:class:`adv_wrappers.victims.smoothed.Smoothed`) in an
environment that is deterministic under its seed: a lower bound on the return of an episode under any attack that moves
every single observation by at most ``eps`` in Euclidean length, for several ``eps``.

**Possible actions.** Let ``s(o, a)`` in [0, 1] be the expected share of noisy copies of ``o`` on which the agent plays
``a``, or its expected Q-value, clipped to a range and scaled to [0, 1] (``q_range``, the paper's choice). ``Phi^-1(s)``
changes by at most ``eps / sigma`` over a distance of ``eps``. So ``b`` beats ``a`` at every point within ``eps`` of
``o`` if::

    Phi(Phi^-1(s(o, b)) - eps / sigma) - error > Phi(Phi^-1(s(o, a)) + eps / sigma) + error

and then ``a`` is excluded. All others are possible, and sequences of possible actions are what
:class:`adv_wrappers.certification.action_search.ActionSearch` follows, from saved states, as it does for bounds on
networks.

**What is random, and what the confidence says.** Expectations are not known but bounded, from ``samples`` draws of
noise at every state that a search looks at (Clopper and Pearson for shares, Hoeffding for Q-values). A search chooses
its states by earlier draws, and the noise at each is new: so each bound fails with its own probability, whatever was
chosen. There are two for every action at each of at most ``max_states`` states, over all episodes and ``eps`` together,
and every one of them fails with a probability of ``failure / (2 actions max_states)``, so that any does with
``failure`` (a union bound). States beyond ``max_states`` exclude nothing. Further, an agent that is played does not
know expectations either, but averages over its ``vote`` copies. ``error`` is what Hoeffding's inequality allows these
to be off by, for every action, step and episode at once. ``failure`` is half of ``1 - confidence`` for each of the two.
So with probability ``confidence``, over the draws of the certificate and the noise of the attacked episodes, no attack
leaves less than ``lower_returns`` of any of these episodes, for an ``eps`` that it may choose: an attack may know the
certificate and all that was before its step, and not the noise of the step. ``exact=True`` certifies the agent that
chooses by expectations themselves, as the paper does: ``error`` is 0 then, and that agent cannot be played exactly.

**Beyond the paper.** It states its bounds for each state and action at a confidence; here all of them hold at once, and
there is one for an agent that samples. The paper's search takes sequences in the order of the ``eps`` at which they
become possible; here every ``eps`` is a search of its own, from the smallest on, that starts with the lowest return
found at smaller ones and knows the states that were met before. Searches that do not finish bound the return all the
same. Floating point is left out of account, as in :mod:`adv_wrappers.certification.smoothing`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import closing
from typing import Annotated

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from torch import Tensor

from adv_wrappers.certification.action_search import SearchOrder
from adv_wrappers.certification.certificate import Certificate, CertifiedEpisode, with_larger_radii
from adv_wrappers.certification.certify import CertifyingSearch
from adv_wrappers.certification.smoothing import hoeffding, q_bounds, smoothed_victim, vote_bounds
from adv_wrappers.core.budgets.budget import L2
from adv_wrappers.core.spaces import to_victim
from adv_wrappers.core.types import Array
from adv_wrappers.environments.environment import AnyEnvironment, Environment, EnvKwargs, MakeEnv
from adv_wrappers.errors import SpaceError, ValueRangeError
from adv_wrappers.evaluation.episodes import draw_seeds
from adv_wrappers.evaluation.searches.search_tree import DeterministicEpisodes
from adv_wrappers.evaluation.statistics.return_range import LeastReturn
from adv_wrappers.utils.deadline import Deadline
from adv_wrappers.utils.pace import Progress
from adv_wrappers.utils.threads import one_thread
from adv_wrappers.utils.validation import (
    AboveZero,
    EpisodeCount,
    Finite,
    Limits,
    LongCount,
    NotNegative,
    OpenShare,
    Positive,
    Seed,
    checked,
)
from adv_wrappers.victims.smoothed import Smoothed


@checked
def certify_smoothed_actions(
    victim: Smoothed | str,
    env: AnyEnvironment,
    eps: Sequence[NotNegative],
    episodes: EpisodeCount = 10,
    seed: Seed = 0,
    *,
    samples: Annotated[int, Limits(2)] = 1000,
    confidence: OpenShare = 0.95,
    exact: bool = False,
    max_states: Positive | None = None,
    max_nodes: LongCount | None = 2000,
    budget_s: AboveZero | None = None,
    order: SearchOrder | None = None,
    least_reward: Finite | None = None,
    least_return: Finite | None = None,
    env_kwargs: EnvKwargs | None = None,
    make: MakeEnv | None = None,
    progress: Progress | None = None,
) -> list[Certificate]:
    """Bound the return of a smoothed agent under attacks that move every observation by at most ``eps`` (l2).

    Args:
        victim: a :class:`adv_wrappers.victims.smoothed.Smoothed` victim of one discrete action, around one that plays
            its mode, or its reference, such as ``"smoothed:zoo:cartpole-dqn?sigma=0.05&vote=1000"``. With ``q_range``
            it is CROP's, which chooses by averages of Q-values; without, it chooses by votes.
        env, episodes, seed, env_kwargs, make: as for :func:`adv_wrappers.evaluate`; the environment has to be
            deterministic under its seed, and its episodes to have a limit of steps.
        eps: lengths of the perturbation of every observation, at least 0, in the unit of sigma: that of the
            observation, or of the ``scale`` of the victim. Attacks ``within=L2(eps)`` have the former.
        samples: draws of noise at every state.
        confidence: probability that all of it holds at once.
        exact: False certifies the agent as it plays, on ``vote`` copies: few of them err so much that nothing is
            certified. True certifies the one that chooses by exact expectations, whose action no number of copies
            reaches for certain.
        max_states: at how many states actions are bounded, over all episodes and lengths; None takes as many as
            ``max_nodes`` allows for, and has to be a number where that is None.
        max_nodes, budget_s: as for :func:`adv_wrappers.certify`, for a search: there is one for every episode and eps.
        order, least_reward, least_return: as for :func:`adv_wrappers.certify`.
        progress: called as ``progress("search", searches finished, searches)``.

    Returns:
        One certificate for each length, ascending; with probability ``confidence`` all of them hold at once.

    Raises:
        VictimError: for a victim without noise, of other actions, and around one that samples its actions.
        SpaceError: for observations other than one Box.
        SnapshotError: for an environment that can neither be saved nor replayed.
        ValueRangeError: for numbers out of range; where the least return is not known; and for episodes without a limit
            of steps, unless ``exact``.

    >>> from adv_wrappers.certification.crop import certify_smoothed_actions
    >>> found = certify_smoothed_actions(
    ...     "smoothed:zoo:cartpole-dqn?sigma=0.05&vote=1000", "CartPole-v1", [0.0, 0.005], episodes=1, samples=400,
    ...     max_nodes=300,
    ... )
    >>> found[0].lower >= found[1].lower > 5
    True
    """
    lengths = sorted(eps)
    if not lengths:
        raise ValueRangeError("expected at least one eps")
    if max_states is None and max_nodes is None:
        raise ValueRangeError("a union bound needs a number of states: give max_nodes, or max_states")
    agent, seeds = smoothed_victim(victim, one_action=True), draw_seeds(seed, episodes)
    environment = Environment.of(env, agent, env_kwargs, make)
    with closing(DeterministicEpisodes(agent.victim, environment)) as played, one_thread():
        if not isinstance(played.env.observation_space, spaces.Box):
            raise SpaceError(f"a certificate needs observations that are one Box, got {played.env.observation_space}")
        least = LeastReturn.create(played.env, environment.name, least_reward, least_return)
        # what may fail is shared between the bounds at states and the votes of the agent that is played
        failure = 1 - confidence if exact else (1 - confidence) / 2
        error = 0.0 if exact else _error(agent, failure, played.limit, episodes)
        if max_states is None:  # a search asks for no more: each of them is stepped from with every action
            max_states = len(lengths) * episodes * ((max_nodes or 0) // agent.width + 1)
        scores = ScoreBounds(agent, samples, seed, failure, max_states)
        played.check_deterministic(seeds[0])
        found: list[list[CertifiedEpisode]] = [[] for _ in lengths]
        # a search for every episode and radius, the smallest radius first
        for i, own in enumerate(seeds):
            lowest = math.inf
            for k, length in enumerate(lengths):
                possible = PossibleSmoothedActions(scores, length, error)
                search = CertifyingSearch(played, possible, least, None, order, 5000, max_nodes, None, budget_s)
                found[k].append(search.episode(own, lowest, Deadline(budget_s)))
                lowest = found[k][i].lowest  # what is possible stays so within larger eps
                if progress is not None:
                    progress("search", i * len(lengths) + k + 1, episodes * len(lengths))
    # one certificate for every radius; that of a larger one holds for the smaller ones too
    method = f"{samples} draws at each of {scores.states} states, confidence {confidence:g}{', exact' * exact}"
    name = agent.ref or repr(agent)
    certificates = [
        Certificate.of(name, environment.name, L2(length), method, seeds, of_length, least)
        for length, of_length in zip(lengths, found, strict=True)
    ]
    return with_larger_radii(certificates)


class ScoreBounds:
    """Bounds on the expected scores of actions at up to a number of observations, all of them at once.

    Args:
        victim: the agent.
        samples: draws of noise at every observation.
        seed: seeds the noise.
        failure: probability that any of the bounds fails.
        most: at how many observations there are bounds that say something.

    Attributes:
        states: at how many observations scores were bounded.
    """

    def __init__(self, victim: Smoothed, samples: int, seed: int, failure: float, most: int) -> None:
        self.victim = victim
        self._samples = samples
        self._seed = seed
        self._most = most
        self._level = failure / (2 * victim.width * most)
        self._known: dict[bytes, tuple[Tensor, Tensor]] = {}
        self._nothing = torch.zeros(victim.width, dtype=torch.float64), torch.ones(victim.width, dtype=torch.float64)

    @property
    def states(self) -> int:
        return len(self._known)

    def at(self, observations: Array) -> tuple[Tensor, Tensor]:
        """Lower and upper bounds at observations ``[B, *S]``, float64 ``[B, A]`` twice; those of one never change."""
        keys = [row.tobytes() for row in observations]
        # states that were not met before, as long as the union bound covers them
        new = dict[bytes, int]()
        for i, key in enumerate(keys):
            if key not in self._known and len(self._known) + len(new) < self._most:
                new.setdefault(key, i)
        if new:
            # each has noise of its own, by its number
            victim, first = self.victim, len(self._known)
            seen = to_victim(observations[[*new.values()]], victim.dtype, victim.device, True)
            about = victim, seen, self._samples, self._seed, self._level
            ends = vote_bounds(*about, first) if victim.q_range is None else q_bounds(*about, victim.q_range, first)
            self._known.update(zip(new, zip(*ends, strict=True), strict=True))
        # states beyond the union bound exclude nothing
        found = [self._known.get(key, self._nothing) for key in keys]
        low, high = (torch.stack(side) for side in zip(*found, strict=True))
        return low, high


class PossibleSmoothedActions:
    """The actions that attacks of a Euclidean length may bring a smoothed agent to, for a search to follow.

    Args:
        scores: bounds on the expected scores of actions.
        eps: the length.
        error: how far an agent's own average may be from what it is an average of.
    """

    def __init__(self, scores: ScoreBounds, eps: float, error: float) -> None:
        self.scores = scores
        self.eps = eps
        self.error = error

    def at(self, observations: Array) -> tuple[NDArray[np.bool_], Tensor]:
        """As :class:`adv_wrappers.certification.action_search.FollowedActions` has it."""
        low, high = self.scores.at(observations)
        return possible_within(low, high, self.eps / self.scores.victim.sigma, self.error).numpy(), (low + high) / 2


def possible_within(low: Tensor, high: Tensor, length: float, error: float) -> Tensor:
    """Which actions may have the largest score at some point within a length.

    Args:
        low, high: bounds in [0, 1] on the expected scores, float64 ``[B, A]``.
        length: of the perturbation, in units of sigma.
        error: how far a score that is compared may be from its expectation.

    Returns:
        Bool ``[B, A]``; at least one action of a row is possible.

    >>> import torch
    >>> from adv_wrappers.certification.crop import possible_within
    >>> scores = torch.tensor([[0.8, 0.2]], dtype=torch.float64)  # their normal quantiles are 1.68 apart
    >>> [possible_within(scores, scores, length, 0.0).tolist() for length in (0.84, 0.85)]
    [[[True, False]], [[True, True]]]
    """
    worst = torch.special.ndtr(torch.special.ndtri(low) - length) - error
    best = torch.special.ndtr(torch.special.ndtri(high) + length) + error
    possible: Tensor = best >= worst.amax(-1, keepdim=True)
    return possible


def _error(victim: Smoothed, failure: float, limit: int | None, episodes: int) -> float:
    """How far averages over the agent's copies are from expectations, at all actions and steps of all episodes."""
    if limit is None:
        raise ValueRangeError(
            "how often an agent that samples errs depends on the number of steps: make the environment with "
            "max_episode_steps=, or give exact=True"
        )
    return hoeffding(victim.vote, failure / (2 * victim.width * limit * episodes))
