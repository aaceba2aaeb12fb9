"""worst_dynamics: the physical parameters within a budget that cost an agent most, found by playing episodes.

Nothing of a simulator is differentiated: every candidate is played, on the same episodes. Returns are flat where an
agent copes, and lowest near the ends of the ranges more often than not. So a fourth of the evaluations are corners of
the budget's box at random; from the best of them CMA-ES (Hansen 2016, "The CMA Evolution Strategy: A Tutorial") goes
on, which adapts a normal distribution to what was lowest, and where it has converged it begins again at the next best.
Random points and a grid are there to be compared with.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np

from adv_wrappers.core.budgets.budget import Budget
from adv_wrappers.core.parameter_space import ParameterSpace
from adv_wrappers.core.perturbation import When
from adv_wrappers.core.threat import ThreatModel, needed_budget
from adv_wrappers.core.types import Floats
from adv_wrappers.environments.environment import AnyEnvironment, Environment, MakeEnv
from adv_wrappers.errors import ValueRangeError
from adv_wrappers.evaluation.episodes import Episodes
from adv_wrappers.evaluation.evaluate import play_missing
from adv_wrappers.evaluation.evaluator import Evaluator
from adv_wrappers.evaluation.player import Player
from adv_wrappers.evaluation.rows.row import Row
from adv_wrappers.evaluation.threat_stacks import CLEAN_RUN, ThreatStack, as_threat_stack
from adv_wrappers.faults.dynamics import FixedDynamics
from adv_wrappers.threats.presets import parse_when
from adv_wrappers.utils.files import holding
from adv_wrappers.utils.validation import EpisodeCount, Limits, Seed, Workers, checked
from adv_wrappers.victims import Victim, load_victim
from adv_wrappers.wrappers.perturb_dynamics import dynamics_beneath

_TOGETHER = 16  # points of a grid, and random ones, that are played before the next are chosen
_CORNERS = 0.25  # share of the evaluations
_SPREAD, _INSIDE = 0.3, 0.999  # of CMA-ES: its first standard deviation, and where it begins, in half-ranges of the box


class TriedParameters(NamedTuple):
    """Parameters that were played.

    Attributes:
        values: of the parameters, float64 ``[n]``.
        mean_return: of the agent; None where the simulation diverged.
    """

    values: tuple[float, ...]
    mean_return: float | None


@dataclass(frozen=True)
class WorstDynamics:
    """The result of :func:`worst_dynamics`.

    Attributes:
        threat: the parameters that cost most, as a threat that :func:`adv_wrappers.evaluate` and every wrapper take.
        names: of the parameters, ``[n]``.
        clean_return: the agent's mean return with the environment's own parameters.
        mean_return: that under ``threat``, on the episodes of the search.
        tried: all that were played, in their order.
    """

    threat: ThreatModel
    names: tuple[str, ...]
    clean_return: float
    mean_return: float
    tried: tuple[TriedParameters, ...]

    @property
    def values(self) -> dict[str, float]:
        """The parameters that cost most, by their names."""
        how = self.threat.how
        assert isinstance(how, FixedDynamics) and isinstance(how.values, tuple)
        return dict(zip(self.names, how.values, strict=True))


@checked
@holding
def worst_dynamics(
    victim: Victim | str,
    env: AnyEnvironment,
    at: str | tuple[str, ...],
    eps: float | None = None,
    evaluations: Annotated[int, Limits(2)] = 200,
    episodes: EpisodeCount | Episodes = 10,
    seed: Seed = 0,
    *,
    within: Budget | None = None,
    scale: Any = None,
    when: When | str | None = None,
    method: Literal["cma", "random", "grid"] = "cma",
    env_kwargs: Mapping[str, object] | None = None,
    make: MakeEnv | None = None,
    out: str | Path | None = None,
    workers: Workers = 1,
    progress: Callable[[int, float], None] | None = None,
) -> WorstDynamics:
    """Search the physical parameters within a budget for those under which an agent earns least.

    What is found is the worst on these episodes: report what it costs on others, by :func:`adv_wrappers.evaluate` with
    another ``seed``.

    Args:
        victim: the agent, or a reference such as ``"zoo:hopper-ppo"``.
        env: as for :func:`adv_wrappers.evaluate`, and ``env_kwargs`` and ``make`` beside it.
        at: which parameters, as for :class:`adv_wrappers.PerturbDynamics`.
        eps, scale: arguments of the budget :class:`Linf` around the environment's own values; or ``within``, itself.
        evaluations: how many parameters are played, the environment's own among them.
        episodes: the number of episodes that each is played on, always the same; or an :class:`adv_wrappers.Episodes`.
        seed: seeds the search and its episodes.
        when: the timing of the change; None is every step.
        method: ``"cma"`` (corners and CMA-ES; needs the package ``cma``), ``"random"`` (uniform in the budget's box) or
            ``"grid"`` (as many points on each axis as the evaluations allow).
        out: a folder for the rows of all that were played (``rows.db``, as :func:`adv_wrappers.evaluate` keeps them);
            the same call goes on with them.
        workers: as for :func:`adv_wrappers.evaluate`.
        progress: called as ``progress(parameters played, lowest mean return so far)``.

    Raises:
        AdvWrappersError: one of its kinds, before anything is played: for names that the environment does not have, a
            budget beyond what a simulator holds, and a grid with fewer than two points an axis.
        ImportError: for ``"cma"`` without its package, before anything is played.

    >>> from adv_wrappers import worst_dynamics
    >>> found = worst_dynamics("zoo:cartpole-dqn", "CartPole-v1", "mass", 0.5, evaluations=5, episodes=2, method="grid")
    >>> len(found.tried), found.names
    (5, ('mass.cart', 'mass.pole'))
    """
    if method == "cma":
        _check_cma()
    budget, victim = needed_budget("worst_dynamics", eps, scale, within), load_victim(victim)
    how = Episodes.of(episodes, seed=seed)
    environment = Environment.of(env, victim, env_kwargs, make)
    # parameters are changed to what each candidate says, in shares of the budget
    timing = parse_when(when) if isinstance(when, str) else when
    threat = ThreatModel("dynamics", FixedDynamics(1.0), budget, timing, at)
    with closing(Player()) as player:
        search = _ParameterSearch(victim, environment, threat, how, player, out, workers)
        # the search asks for points of [-1, 1], and is told the mean return at each
        points = _points(method, len(search.low), evaluations - 1, seed)
        asked = next(points)
        while len(asked):
            means = search.play(search.low + (asked + 1) / 2 * (search.high - search.low))
            if progress is not None:
                progress(1 + len(search.tried), search.lowest)
            asked = points.send(means)
        return search.result()


class _ParameterSearch:
    """Plays parameters, and keeps what they left.

    Args:
        victim, environment, threat, episodes: what is played.
        player: plays in this process.
        out, workers: as for :func:`worst_dynamics`.

    Attributes:
        low, high: ends of the budget's box, float64 ``[n]``.
        tried: what was played.
    """

    def __init__(
        self,
        victim: Victim,
        environment: Environment,
        threat: ThreatModel,
        episodes: Episodes,
        player: Player,
        out: str | Path | None,
        workers: int,
    ) -> None:
        self.victim = victim
        self.environment = environment
        self.threat = threat
        self.episodes = episodes
        self.player = player
        self.how_kept = {"out": out, "workers": workers}
        self.tried = list[TriedParameters]()
        # the run without a change, which the environment's parameters are read in
        with closing(self._evaluator([])) as evaluator:
            self.clean = self._played(evaluator, {})[0]
            space = dynamics_beneath(evaluator.player.venv)
        self.space: ParameterSpace = space
        self.places = space.places(threat.at)
        # the ends of the budget's box around the environment's own values
        field = threat.check(evaluator.player.venv.single_observation_space, victim.action_space, space)
        own, *ends = (field.exactly(one[None]) for one in (space.nominal[self.places], field.low, field.high))
        self.low, self.high = (side[0].double().numpy() for side in threat.budget.box(own, *ends))

    def _evaluator(self, points: list[Floats]) -> Evaluator:
        made = [replace(self.threat, how=FixedDynamics(tuple(point.tolist()))) for point in points]
        stacks: list[ThreatStack] = [CLEAN_RUN, *(as_threat_stack(one, self.victim) for one in made)]
        return Evaluator(self.victim, self.environment, stacks, self.episodes, self.player)

    def _played(self, evaluator: Evaluator, rows: dict[int, Row]) -> dict[int, Row]:
        play_missing(evaluator, rows, **self.how_kept)  # type: ignore[arg-type]
        return rows

    def play(self, points: Floats) -> list[float | None]:
        """Play parameters ``[m, n]``; the mean return of each, None where its simulation diverged."""
        with closing(self._evaluator([*points])) as evaluator:
            rows = self._played(evaluator, {0: self.clean})
        means = [float(rows[i].mean_return) if i in rows else None for i in range(1, 1 + len(points))]
        self.tried += [TriedParameters(tuple(one.tolist()), mean) for one, mean in zip(points, means, strict=True)]
        return means

    @property
    def lowest(self) -> float:
        """The lowest mean return so far."""
        return min([self.clean.mean_return, *self._means])

    @property
    def _means(self) -> list[float]:
        return [one.mean_return for one in self.tried if one.mean_return is not None]

    def result(self) -> WorstDynamics:
        """What was found; the environment's own parameters where nothing cost more."""
        clean = self.clean.mean_return
        own = TriedParameters(tuple(self.space.nominal[self.places].tolist()), clean)
        tried = (own, *self.tried)
        best = min((one for one in tried if one.mean_return is not None), key=lambda one: float(one.mean_return or 0.0))
        assert best.mean_return is not None
        names = tuple(self.space.name_of(place) for place in self.places.tolist())
        threat = replace(self.threat, how=FixedDynamics(best.values))
        return WorstDynamics(threat, names, clean, best.mean_return, tried)


# points of [-1, 1], float64 [m, n] at a time, sent the mean return of each; the last are none
_Points = Generator[Floats, list[float | None], None]


def _points(method: str, size: int, count: int, seed: int) -> _Points:
    """The points of a method, ``count`` or fewer in all."""
    if method == "cma":
        return _evolved(size, count, seed)
    if method == "random":
        return _parts(np.random.default_rng(seed).uniform(-1, 1, (count, size)))
    # a grid with as many points on each axis as the evaluations allow
    each = int((count + 0.5) ** (1 / size))
    if each < 2:
        few = f"a grid over {size} parameters needs at least {2**size + 1} evaluations (one is without changes), "
        few += f"got {count + 1}: take "
        raise ValueRangeError(f"{few}method='cma', fewer parameters or more evaluations")
    return _parts(np.array(list(itertools.product(np.linspace(-1, 1, each), repeat=size))))


def _check_cma() -> None:
    try:
        import cma  # noqa: F401
    except ModuleNotFoundError as error:
        raise ImportError("worst_dynamics by CMA-ES needs the package cma: pip install 'adv_wrappers[cma]'") from error


def _parts(points: Floats) -> _Points:
    for start in range(0, len(points) + _TOGETHER, _TOGETHER):
        yield points[start : start + _TOGETHER]


def _evolved(size: int, count: int, seed: int) -> _Points:
    """Corners at random, and the generations of CMA-ES from the best of them, then from the next best."""
    import cma

    rng = np.random.default_rng(seed)
    # a share of the evaluations for corners
    corners = np.unique(rng.choice([-1.0, 1.0], (max(int(count * _CORNERS), 1), size)), axis=0)
    played = list[float]()
    for start in range(0, len(corners), _TOGETHER):
        played += map(_or_infinite, (yield corners[start : start + _TOGETHER]))
    count -= len(corners)
    # CMA-ES from the best corner, and where it has converged from the next best
    starts = itertools.cycle(corners[np.argsort(played, kind="stable")])
    while count > 0:
        options = {"bounds": [-1, 1], "seed": int(rng.integers(1, 2**31)), "verbose": -9, "verb_log": 0}
        strategy = cma.CMAEvolutionStrategy(_INSIDE * next(starts), _SPREAD, options)
        while count > 0 and not strategy.stop():
            asked = strategy.ask()
            means = yield np.clip(np.asarray(asked[:count], np.float64), -1, 1)
            count -= len(means)
            if len(means) == len(asked):
                strategy.tell(asked, [*map(_or_infinite, means)])
    yield np.zeros((0, size))


def _or_infinite(mean: float | None) -> float:
    """A simulation that diverges tells nothing of the agent: nothing is worse to find."""
    return np.inf if mean is None else mean
