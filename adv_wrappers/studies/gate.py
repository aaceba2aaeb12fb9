"""assert_robust: a test of a user's own suite, which fails where an agent does not keep what is asked for under attack.

A sequential test. Episodes are played in looks, of 10, 20, 40, ... episodes an attack in all, and after each look the
returns of every attack are judged (:class:`adv_wrappers.evaluation.statistics.claim.RobustnessClaim`). The
test fails as soon as one attack's mean lies below ``min_return``, and passes as soon as every attack's mean lies at or
above it. What lies on both sides is played on. A test that ends without a verdict, out of time or of episodes, has not
shown the
agent to be robust: it fails, and says so.
"""

from __future__ import annotations

import functools
import math
import os
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Annotated, ParamSpec, TypeVar

import numpy as np

from adv_wrappers.core.budgets.budget import Budget
from adv_wrappers.core.threat import needed_budget
from adv_wrappers.environments.environment import AnyEnvironment, Environment, EnvKwargs, MakeEnv
from adv_wrappers.errors import AdvWrappersError, NotRobust, ValueRangeError
from adv_wrappers.evaluation.episodes import Episodes
from adv_wrappers.evaluation.evaluator import Evaluator
from adv_wrappers.evaluation.measurements.metrics import metric_of
from adv_wrappers.evaluation.statistics.claim import RobustnessClaim
from adv_wrappers.evaluation.statistics.confidence_intervals import LEAST_EPISODES
from adv_wrappers.evaluation.statistics.return_range import lowest_return
from adv_wrappers.evaluation.threat_stacks import ThreatStack, as_threat_stack
from adv_wrappers.studies import AttackSetting, entries_that_apply
from adv_wrappers.utils.deadline import Deadline
from adv_wrappers.utils.number_text import interval_text, number_text
from adv_wrappers.utils.threads import one_thread
from adv_wrappers.utils.validation import (
    MOST_EPISODES,
    AboveZero,
    EnvCount,
    Expected,
    Finite,
    Limits,
    OpenShare,
    Seed,
    checked,
)
from adv_wrappers.victims import Victim, load_victim

P = ParamSpec("P")
R = TypeVar("R")
BUDGET_VARIABLE = "ADV_WRAPPERS_BUDGET"  # seconds of every call that names none: pytest's option --adv-budget sets it
_FIRST = 1  # episodes that are played to know what one costs
_LAST_LOOKS = 2  # beside the planned ones, where time ends between two of them
_SPENT = 0.95  # share of the time that is filled: episodes differ in length


@dataclass(frozen=True)
class AttackVerdict:
    """What was seen of an agent under one attack.

    Attributes:
        threat: its text, as ``adv-wrappers evaluate`` takes it.
        mean, low, high: of the returns, with the interval of the last look.
        episodes: how many were played.
        worst_seed: of the episode with the lowest return.
    """

    threat: str
    mean: float
    low: float
    high: float
    episodes: int
    worst_seed: int

    def __str__(self) -> str:
        bounds = interval_text(self.low, self.high)
        return f"{self.threat} leaves {number_text(self.mean)} ({bounds}) over {self.episodes} episodes"


@dataclass(frozen=True)
class Robust:
    """What :func:`assert_robust` returns where it passes.

    Attributes:
        attacks: what was seen under each attack, in the order of the suite.
        seconds: wall clock.
        left_out: by attack that does not apply, the reason.
    """

    attacks: tuple[AttackVerdict, ...]
    seconds: float
    left_out: Mapping[str, str] = field(default_factory=dict)

    @property
    def worst(self) -> AttackVerdict:
        """The attack with the lowest mean."""
        return min(self.attacks, key=lambda attack: attack.mean)


def _at_the_call(function: Callable[P, R]) -> Callable[P, R]:
    """A function whose errors say where it was called alone: of a test pytest shows its line, and no source of ours."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        __tracebackhide__ = True
        try:
            return function(*args, **kwargs)
        except AdvWrappersError as error:
            raise error.with_traceback(None) from error.__cause__

    return call


@_at_the_call
@checked
def assert_robust(
    victim: Victim | str,
    env: AnyEnvironment,
    suite: str = "standard",
    eps: float | None = None,
    *,
    min_return: Finite | None = None,
    metric: str | None = None,
    at_least: Finite | None = None,
    confidence: Annotated[float, Limits(0.5, 1.0, above=True, below=True)] = 0.95,
    budget_s: AboveZero | None = None,
    scale: object = None,
    within: Budget | None = None,
    attacks: str | Sequence[object] | None = None,
    seed: Seed = 0,
    num_envs: EnvCount | None = None,
    most_episodes: Annotated[int, Limits(LEAST_EPISODES, MOST_EPISODES)] = 1280,
    return_range: tuple[Finite | None, Finite | None] | None = None,
    rare: OpenShare = 0.05,
    env_kwargs: EnvKwargs | None = None,
    make: MakeEnv | None = None,
) -> Robust:
    """Assert that an agent's mean return, or another metric, is at least so much under every attack of a suite.

    Args:
        victim, env, env_kwargs, make, num_envs: as for :func:`adv_wrappers.evaluate`.
        suite: the name of a suite, of which the attacks are taken that apply, need no training and no search.
        eps, scale: arguments of the budget :class:`Linf`; or ``within``, the budget itself. Not needed where all
            ``attacks`` have a budget of their own.
        min_return: the mean return that is asked for.
        metric, at_least: instead of it, what is counted in an episode, as in ``metrics`` of
            :func:`adv_wrappers.evaluate`, and its least rate or mean: ``metric="success", at_least=0.95``.
        confidence: of either verdict.
        budget_s: seconds that the call may take; None takes what ``pytest --adv-budget`` says, or as many as it takes.
        attacks: instead of a suite, threats as :func:`adv_wrappers.evaluate` takes them; names of presets get the
            budget.
        seed: seeds the episodes; every look has its own.
        most_episodes: of each attack.
        return_range: the lowest and the highest return that an episode can have, each None where it is not known; None
            takes what is known of the environment's least return
            (:class:`~adv_wrappers.evaluation.statistics.return_range.LeastReturn`). Nearly equal returns are judged
            by it.
        rare: the share of episodes from which on a kind of them must not be missed where nearly all that were played
            are equal, and their range is not known: 0.05 takes at least 72 of these to pass, 0.01 takes 368.

    Returns:
        What was seen, where the agent passes.

    Raises:
        NotRobust: where it does not, with the attack and the seed of its worst episode; and where there is no verdict.
        AdvWrappersError: one of its kinds, before anything is played, for arguments that cannot work.

    >>> from adv_wrappers.studies.gate import assert_robust
    >>> short = {"max_episode_steps": 50}
    >>> found = assert_robust(
    ...     "zoo:cartpole-dqn", "CartPole-v1", eps=0.01, attacks=["noise"], min_return=40, env_kwargs=short
    ... )
    >>> found.worst.threat, found.worst.episodes
    ('noise:eps=0.01', 40)
    """
    began = time.perf_counter()
    budget_s = _budget(budget_s)
    until, filled = (Deadline(None if budget_s is None else share * budget_s) for share in (1.0, _SPENT))
    # what is asked for: a return, or another metric
    counted = None if metric is None else metric_of(metric)
    least = min_return if counted is None else at_least
    if least is None or (min_return is None) == (at_least is None):
        raise ValueRangeError("assert_robust needs min_return=, or metric= and at_least=, got neither or both")
    attacks = [attacks] if isinstance(attacks, str) else attacks
    agent, (lowest, highest) = load_victim(victim), _return_range(return_range)
    # how low and how high an episode can be, as far as that is known
    environment = Environment.of(env, agent, env_kwargs, make)
    if counted is not None and return_range is None:
        lowest, highest = (0.0, 1.0) if counted.is_rate else (None, None)
    elif return_range is None:
        lowest = lowest_return(environment)
    budget = None
    if attacks is None or eps is not None or within is not None or scale is not None:
        budget = needed_budget("assert_robust", eps, scale, within)  # type: ignore[arg-type]  # Linf says what scale is
    # the attacks that are tried, each with the returns that it has so far
    stacks, left_out = _attacks(AttackSetting(agent, environment, budget), suite, attacks)
    tried = [_Tried(stack) for stack in stacks]
    test = _SequentialTest(tried, least, confidence, most_episodes, rare, lowest, highest)
    root, warned = np.random.SeedSequence(seed), False
    named, given = (environment.id, environment.kwargs) if environment.id is not None else (env, env_kwargs)
    where = f"adv.evaluate({agent.ref or victim!r}, {named!r}, ", f"env_kwargs={dict(given)!r}, " if given else ""
    while open_ := test.undecided:
        # a look: as many episodes as there is time for, of every attack without a verdict
        batch = test.batch(filled.left)
        if batch < 1:
            raise NotRobust(_undecided(test, budget_s, time.perf_counter() - began))
        (look_seed,) = root.spawn(1)[0].generate_state(1).tolist()
        how = Episodes(batch, look_seed, num_envs, distances=(), metrics=() if metric is None else (metric,))
        evaluator = Evaluator(agent, environment, [one.stack for one in open_], how)
        with closing(evaluator), one_thread():
            # one attack that refutes the claim ends the test
            for place, one in enumerate(open_):
                started = time.perf_counter()
                row = evaluator.play(place)
                for sentence in () if warned else row.environment_notes.values():
                    warnings.warn(sentence, stacklevel=4)
                warned = True
                one.add(row.returns if metric is None else row.metrics[metric], evaluator.seeds)
                one.seconds = (time.perf_counter() - started) / batch
                if test.claim.refuted_by(one.returns):
                    raise NotRobust(_broken(test.verdict(one), test, where))
                if until.passed:
                    raise NotRobust(_undecided(test, budget_s, time.perf_counter() - began))
        test.end_look()
    return Robust(tuple(map(test.verdict, tried)), time.perf_counter() - began, left_out)


@dataclass
class _Tried:
    """What was seen of one attack so far.

    Attributes:
        stack: the attack.
        returns, seeds: of its episodes.
        seconds: of an episode, in the last look.
        above: whether its mean is shown to lie at or above what is asked for.
    """

    stack: ThreatStack
    returns: list[float] = field(default_factory=list)
    seeds: list[int] = field(default_factory=list)
    seconds: float = 0.0
    above: bool = False

    def add(self, returns: Sequence[float], seeds: Sequence[int]) -> None:
        """The episodes of a look."""
        self.returns += returns
        self.seeds += seeds


class _SequentialTest:
    """How many episodes the next look has, and what the returns so far decide.

    Args:
        tried: the attacks.
        min_return, confidence: what is asked for.
        most: episodes of each attack.
        rare: the share of episodes that equal ones must not have missed, where their range is not known.
        lowest, highest: the range of returns, or None.
    """

    def __init__(
        self,
        tried: Sequence[_Tried],
        min_return: float,
        confidence: float,
        most: int,
        rare: float = 0.05,
        lowest: float | None = None,
        highest: float | None = None,
    ) -> None:
        count = max(math.ceil(math.log2(most / LEAST_EPISODES)), 0) + 1
        self.tried, self.looks = tried, [min(LEAST_EPISODES * 2**i, most) for i in range(count)]
        self.claim = RobustnessClaim(min_return, confidence, count + _LAST_LOOKS, len(tried), rare, lowest, highest)
        self.done, self.last = 0, 0  # episodes of those that are undecided, and looks that time cut short

    @property
    def undecided(self) -> list[_Tried]:
        """The attacks whose mean is not shown to be high enough."""
        return [one for one in self.tried if not one.above]

    def batch(self, left: float) -> int:
        """Episodes of the next look for each attack that is undecided, in so many seconds; 0 where there is no time."""
        if self.done == 0:
            return _FIRST
        wanted = next((look - self.done for look in self.looks if look > self.done), 0)
        each = sum(one.seconds for one in self.undecided)
        if wanted * each <= left:
            return wanted
        self.last += 1
        return int(left / each) if self.last <= _LAST_LOOKS else 0

    def end_look(self) -> None:
        """Judge the attacks whose mean may lie at or above what is asked for."""
        self.done = max(len(one.returns) for one in self.undecided)
        for one in self.undecided:
            one.above = self.claim.shown_by(one.returns)

    def verdict(self, one: _Tried) -> AttackVerdict:
        """What was seen of an attack."""
        low, high = self.claim.interval(one.returns)
        worst, mean = one.seeds[int(np.argmin(one.returns))], float(np.mean(one.returns))
        return AttackVerdict(one.stack.name, mean, low, high, len(one.returns), worst)


def _budget(given: float | None) -> float | None:
    """The seconds of a call: its own, or those of the test session."""
    said = os.environ.get(BUDGET_VARIABLE) if given is None else None
    try:
        budget = float(said) if said else given
    except ValueError as error:
        raise ValueRangeError(f"{BUDGET_VARIABLE} must be a number of seconds, got {said!r}") from error
    seconds: float | None = Expected(AboveZero | None).check("budget_s", budget)
    return seconds


def _return_range(given: tuple[float | None, float | None] | None) -> tuple[float | None, float | None]:
    """The lowest and the highest return that are given, after checking them; None is a range without limits."""
    if given is None:
        return None, None
    low, high = given
    if low is not None and high is not None and low >= high:
        raise ValueRangeError(f"return_range must go from the lowest to the highest return, got {low:g} to {high:g}")
    return low, high


def _attacks(
    setting: AttackSetting, suite: str, attacks: Sequence[object] | None
) -> tuple[list[ThreatStack], dict[str, str]]:
    """The threats that are tried, and why others are not."""
    # entries of a suite, or by name, and threats of one's own
    given = [*(attacks or ())]
    names = [attack for attack in given if isinstance(attack, str) and ":" not in attack]
    entries, left_out = ((), {}) if attacks is not None and not names else entries_that_apply(names or suite, setting)
    if names and left_out:
        raise ValueRangeError("; ".join(f"{name} does not apply: {reason}" for name, reason in left_out.items()))
    # what is searched for the very episodes it is scored on proves nothing of others
    made = [entry.attack(setting).threat for entry in entries if not entry.per_episodes]
    threats = [*made, *(attack for attack in given if attack not in names)]
    left_out |= {one.name: "it is searched for the episodes it is scored on" for one in entries if one.per_episodes}
    if not threats:
        raise ValueRangeError(f"no attack applies: {left_out}")
    return [as_threat_stack(threat, setting.victim) for threat in threats], left_out


def _broken(verdict: AttackVerdict, test: _SequentialTest, where: tuple[str, str]) -> str:
    """What is wrong, and how to see it."""
    again = f"{where[0]}[{verdict.threat!r}], {where[1]}episodes=1)"
    return (
        f"{verdict}, less than the {number_text(test.claim.min_return)} asked for. The worst of them has the seed "
        f"{verdict.worst_seed}: env.reset(seed={verdict.worst_seed}); see also {again}"
    )


def _undecided(test: _SequentialTest, budget_s: float | None, spent: float) -> str:
    """Why there is no verdict, and what there is."""
    open_ = [one for one in test.undecided if one.returns]
    seen = "; ".join(f"{test.verdict(one)}: {test.claim.why_open(one.returns)}" for one in open_)
    alone = LEAST_EPISODES * sum(one.seconds for one in open_)
    why = f"after {test.done} episodes" if budget_s is None else f"after {spent:.1f} of {budget_s:g} s"
    few = any(len(one.returns) < LEAST_EPISODES for one in open_)
    more = f"; {LEAST_EPISODES} episodes of each take about {alone:.1f} s" if few else ""
    return f"undecided {why}{more}: whether at least {number_text(test.claim.min_return)} are left is not shown. {seen}"
