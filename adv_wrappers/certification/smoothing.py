"""What randomized smoothing certifies: the return of an agent that acts on noise.

**Policy smoothing** (Kumar, Levine and Feizi 2022, "Policy Smoothing for Provably Robust Reinforcement Learning", by
their adaptive Neyman-Pearson lemma). The agent adds ``N(0, sigma^2)`` to every observation. Let ``P(return >= c) >= p``
without an attack. Then under any attack that moves its observations ``o_t`` by ``d_t``, with
``sqrt(sum_t |d_t|^2) <= eps`` in every episode,

    P(return >= c) >= Phi(Phi^-1(p) - eps / sigma),

with Phi the distribution function of the standard normal. The attack may be adaptive: ``d_t`` may depend on everything
up to then (states, observations, actions, the weights), though not on the noise of the step. Environment, start and
agent may be random. What is certified is the smoothed agent itself, over starts and noise, not a single episode; and of
an agent with ``vote=n``, which looks at n copies that move together, with ``eps sqrt(n)`` for ``eps`` (the same theorem
for the n copies as one observation; the paper has n = 1).

**From episodes to a bound.** The expected return is ``least + integral of P(return >= c) dc`` from the least possible
return on, so a lower bound on the whole distribution function, each of its values shifted as above and summed, bounds
it (the CDF smoothing of Kumar et al. 2020). The thresholds ``c`` are the returns of fixed ranks in the sorted sample of
n episodes: the i-th smallest is reached with a probability that is at least Beta(n - i + 1, i) distributed, whatever
the distribution of returns, so its ``1 - confidence`` quantile is a lower bound: that of Clopper and Pearson (1934) for
n - i + 1 successes. All ranks hold at once by Bonferroni, each at ``(1 - confidence) / ranks``. The inequality of
Dvoretzky, Kiefer and Wolfowitz, which holds for all thresholds as well, allows for the same error everywhere; Clopper
and Pearson's bound is far closer where P is near one (0.994 instead of 0.961 where all of 1000 episodes succeed, at
confidence 0.95), and that is where the shift costs most.

**Divergences.** ReCePS (Mu et al. 2024) bounds the mean by the least one of all distributions of the return within an
f-divergence of the clean one, that of the noise from the noise when it is moved by eps. Of the same distribution this
is never more than the bound above. Let U be standard normal. The returns of the clean agent are distributed as a
function of U that does not fall (their quantiles); the same function of ``U - eps / sigma`` has just the distribution
that the thresholds allow, and its divergence from the clean one is at most that of ``U - eps / sigma`` from U (data
processing), so it lies in the ball. What such a ball adds are other norms and noise, and actions: it is not built.

**CROP** (Wu et al. 2022) is not built. Its global smoothing is of attacks that are fixed beforehand; the lemma above
makes the same numbers hold for attacks that adapt. Its expectation shifts the mean of the returns alone,
``Phi(Phi^-1(m) - eps / sigma)`` in units of their range, which :meth:`SmoothedCertificate.certified_return` of the same
distribution is never below (Jensen's inequality). Its search over the actions that averages over noise leave possible
certified 22 of 500 steps of CartPole's DQN agent at an ``eps`` of 0.001, by a thousand copies a step, and no more at
any larger one.

Floating point is left out of account: noise has 24 bits (float32), so it ends 5.4 sigma out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from statistics import NormalDist
from typing import Any

import numpy as np
import torch

from adv_wrappers.core.types import Floats, Integers
from adv_wrappers.environments.environment import AnyEnvironment, Environment, EnvKwargs, MakeEnv
from adv_wrappers.errors import ValueRangeError, VictimError
from adv_wrappers.evaluation.evaluate import evaluate
from adv_wrappers.evaluation.statistics.confidence_intervals import finite_returns, least_probability
from adv_wrappers.evaluation.statistics.return_range import lowest_return
from adv_wrappers.utils.checks import number
from adv_wrappers.utils.frozen import set_fields
from adv_wrappers.utils.pace import Progress
from adv_wrappers.utils.validation import (
    AboveZero,
    EnvCount,
    EpisodeCount,
    Finite,
    OpenShare,
    Positive,
    Seed,
    check_fields,
    checked,
)
from adv_wrappers.victims import load_victim
from adv_wrappers.victims.smoothed import Smoothed
from adv_wrappers.victims.victim import Victim

_NORMAL = NormalDist()
_GROWTH = 1.25  # of one rank over the last: finer ones gain less than the correction for their number costs


@checked
def certify_smoothed(
    victim: Smoothed | str,
    env: AnyEnvironment,
    episodes: EpisodeCount = 1000,
    seed: Seed = 0,
    *,
    least: Finite | None = None,
    confidence: OpenShare = 0.95,
    num_envs: EnvCount | None = None,
    env_kwargs: EnvKwargs | None = None,
    make: MakeEnv | None = None,
    progress: Progress | None = None,
) -> SmoothedCertificate:
    """Bound the return of a smoothed agent under any attack, from episodes without one.

    Args:
        victim: a :class:`Smoothed` victim, or a reference such as ``"smoothed:zoo:cartpole-dqn?sigma=0.1"``.
        env, seed, num_envs, env_kwargs, make, progress: as :func:`adv_wrappers.evaluate` takes them.
        episodes: how many to play; with n of them no probability above about ``1 - 6 / n`` can be shown.
        least: the least return that is possible; None takes what is known of the environment as it is, its arguments,
            wrappers and limit of steps included (:class:`adv_wrappers.evaluation.statistics.return_range.LeastReturn`).
        confidence: probability, over the episodes, that the certificate holds, for all thresholds and lengths at once.

    Raises:
        VictimError: for a victim without noise.
        ValueRangeError: for an environment without a known least return, returns below it, and arguments out of range.

    >>> from adv_wrappers.certification.smoothing import certify_smoothed
    >>> short = {"max_episode_steps": 50}
    >>> found = certify_smoothed("smoothed:zoo:cartpole-dqn?sigma=0.05", "CartPole-v1", 20, env_kwargs=short)
    >>> found.certified_return(0.0) > found.certified_return(0.1) > 0
    True
    """
    victim = _smoothed_victim(victim)
    environment = Environment.of(env, victim, env_kwargs, make)
    if least is None:
        least = lowest_return(environment)
        if least is None:
            raise ValueRangeError(
                f"the least return of {environment} is not known: give least=, since a bound on an expectation "
                f"must assume it wherever nothing else is certified"
            )
    # the distribution of returns without an attack is all that the lemma needs
    report = evaluate(victim, environment, (), episodes, seed, num_envs, progress=progress)
    return SmoothedCertificate(
        report.threats[0].returns, victim.sigma, least, victim.vote, confidence, seed, victim.ref
    )


@dataclass(frozen=True)
class SmoothedCertificate:
    """What any attack leaves of the return of a smoothed agent.

    Lengths are Euclidean, over all observations of an episode together, in the unit of sigma: those of the observation,
    or of the ``scale`` of the victim.

    Attributes:
        returns: of independent episodes without an attack.
        sigma, vote: of the victim.
        least: the least return that is possible.
        confidence: probability, over the episodes, that all of it holds at once.
        seed: what the episodes were drawn from, or None.
        victim: its reference, or None.

    Raises:
        ValueRangeError: for returns that are not finite or below ``least``.

    >>> from adv_wrappers.certification.smoothing import SmoothedCertificate
    >>> found = SmoothedCertificate([1.0] * 90 + [0.0] * 10, sigma=1.0, least=0.0)
    >>> round(found.certified_return(0.0), 2), round(found.certified_return(1.0), 2)
    (0.78, 0.41)
    >>> print(found)
    return 0.9 over 100 episodes; at least 0.777, 0.603, 0.406 under attacks of 0, 0.5, 1 sigma (confidence 0.95)
    """

    returns: Sequence[float]
    sigma: AboveZero
    least: Finite
    vote: Positive = 1
    confidence: OpenShare = 0.95
    seed: int | None = None
    victim: str | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        returns = finite_returns(self.returns)
        if returns.min() < self.least:
            raise ValueRangeError(f"a return of {returns.min():g} is below least={self.least:g}")
        set_fields(self, returns=tuple(returns.tolist()))

    def __str__(self) -> str:
        mean, lengths = sum(self.returns) / len(self.returns), (0.0, 0.5, 1.0)
        least = ", ".join(f"{self.certified_return(at * self.sigma):.3g}" for at in lengths)
        return (
            f"return {mean:.4g} over {len(self.returns)} episodes; at least {least} under "
            f"attacks of {', '.join(f'{at:g}' for at in lengths)} sigma (confidence {self.confidence:.3g})"
        )

    @cached_property
    def thresholds(self) -> tuple[Floats, Floats]:
        """Returns in ascending order, and lower bounds on the probabilities of at least as much, both ``[K]``."""
        ordered, count = np.sort(np.asarray(self.returns)), len(self.returns)
        ranks = _ranks(count)
        level = (1 - self.confidence) / len(ranks)
        return ordered[ranks - 1], np.array([least_probability(count - i + 1, count, level) for i in ranks.tolist()])

    def certified_probability(self, threshold: float, eps: float) -> float:
        """Lower bound on the probability of a return of at least ``threshold``, whatever an attack of length eps does.

        Args:
            threshold: a return.
            eps: length of the attack over the whole episode, at least 0.
        """
        if threshold <= self.least:
            return 1.0
        returns, _ = self.thresholds
        reached = moved_probabilities(self.thresholds[1], self._length(eps))[returns >= threshold]
        return float(reached[0]) if len(reached) else 0.0

    def certified_return(self, eps: float) -> float:
        """Lower bound on the expected return, whatever an attack of total length ``eps`` (at least 0) does."""
        return least_mean(*self.thresholds, self.least, self._length(eps))

    def _length(self, eps: float) -> float:
        """The length of an attack in units of sigma, for all noisy copies together."""
        return number("eps", eps, 0) * math.sqrt(self.vote) / self.sigma

    def to_dict(self) -> dict[str, Any]:
        """JSON form: all fields."""
        return asdict(self)


def moved_probabilities(reached: Floats, length: float) -> Floats:
    """The least that probabilities ``[K]`` of returns become under attacks of a length, in sigma."""
    moved: Floats = torch.special.ndtr(torch.special.ndtri(torch.from_numpy(reached)) - length).numpy()
    return moved


def least_mean(returns: Floats, reached: Floats, least: float, length: float) -> float:
    """The least mean under attacks of a length, in sigma, where each return is reached with a probability at least.

    Args:
        returns: in ascending order, ``[K]``.
        reached: the probabilities of at least as much, ``[K]``.
        least: the least return that is possible.
        length: of the attacks over the whole episode, for all noisy copies together.
    """
    return least + float((np.diff(returns, prepend=least) * moved_probabilities(reached, length)).sum())


def _ranks(count: int) -> Integers:
    """Ranks of thresholds in a sample of a size, from 1 on, each about a quarter above the last."""
    steps = math.floor(math.log(count) / math.log(_GROWTH)) + 1
    return np.unique(np.rint(_GROWTH ** np.arange(steps)).astype(np.int64))


def _smoothed_victim(victim: Victim | str) -> Smoothed:
    """A victim with noise; :class:`VictimError` for another."""
    victim = load_victim(victim)
    if not isinstance(victim, Smoothed):
        raise VictimError(f"smoothing certifies a victim with noise, Smoothed(victim, sigma), got {victim!r}")
    return victim
