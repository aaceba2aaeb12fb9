"""The search attack over whole episodes: perturbations that are chosen for where they lead, and not step by step.

An attack that makes the victim act badly now need not cost it anything: a pole that is pushed the wrong way is caught
again one step later. Where victim and simulator are deterministic, an adversary can look ahead: at every state it finds
out which other actions a perturbation within the budget can force, by gradient ascents toward each of them (Gowal et
al. 2019, section 3: one target at a time), and follows all of them, and the victim's own action, to the next states. A
beam of these goes on: those that promise the lowest return, and that are not all alike.

What comes out is a sequence of perturbed observations for every episode, which the ordinary layers play
(:class:`adv_wrappers.evaluation.recorded_perturbations.RecordedPerturbations`). So the return under this attack is one
that was played, an upper bound on what the victim keeps in the worst case: no lower one is promised.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from adv_wrappers.core.arithmetic import Scale
from adv_wrappers.core.budgets import Budget
from adv_wrappers.core.newest import Newest
from adv_wrappers.core.spaces import to_victim
from adv_wrappers.core.threat import ThreatModel, needed_budget
from adv_wrappers.core.types import JSON
from adv_wrappers.errors import BudgetError, ThreatError, ValueRangeError
from adv_wrappers.evaluation.deterministic_episodes import DeterministicEpisodes, SavedState
from adv_wrappers.evaluation.environments import EnvKwargs, MakeEnv, can_be_known
from adv_wrappers.evaluation.forced_actions import ForcedActions
from adv_wrappers.evaluation.prepared import MOST_EPISODES
from adv_wrappers.evaluation.recorded_perturbations import RecordedPerturbations, RecordedStep, digest_of
from adv_wrappers.evaluation.rollout import draw_seeds
from adv_wrappers.utils.files import holding, write
from adv_wrappers.utils.numbers import integer
from adv_wrappers.utils.threads import one_thread
from adv_wrappers.victims import Victim, load_victim

WIDTH = 32  # states that are kept of every episode
_TOGETHER = 16  # episodes that are searched side by side
_DISTANCE = 4.0  # what a standard deviation between two states counts for, in standard deviations of their promise
_FIGURES, _RECORD = "beam.json", "perturbations.npz"


class PerturbedPath(NamedTuple):
    """The perturbed steps that led to a state, the last one first."""

    step: RecordedStep
    before: PerturbedPath | None


@dataclass
class BeamState(SavedState):
    """A state that the beam has reached.

    Attributes:
        episode: the number of its episode.
        total: the reward so far.
        path: the perturbed steps that led to it; None for the victim's own way.
    """

    episode: int
    total: float
    path: PerturbedPath | None


@dataclass
class BeamEpisode:
    """What the search of one episode has found so far.

    Attributes:
        seed: what the environment was reset with.
        first: its first state.
        lowest: the lowest return that was reached; infinity before there is one.
        path: the perturbed steps of it.
        nodes: how many steps were simulated.
        least_reward: the lowest reward that any of them brought.
    """

    seed: int
    first: SavedState
    lowest: float = np.inf
    path: PerturbedPath | None = None
    nodes: int = 0
    least_reward: float = np.inf

    def hopeless(self, total: float) -> bool:
        """Whether no lower return is in sight from a state with this reward so far: where no reward is negative."""
        return self.least_reward >= 0 and total >= self.lowest

    def record(self) -> list[RecordedStep]:
        """The perturbed steps of the lowest return, in their order."""
        found, path = list[RecordedStep](), self.path
        while path is not None:
            found.append(path.step)
            path = path.before
        return found[::-1]


class BeamSearch:
    """The searches of one victim in one environment.

    Args:
        episodes: the victim and the environment.
        forced: finds the actions that can be forced.
        width: how many states of every episode are kept.
    """

    def __init__(self, episodes: DeterministicEpisodes, forced: ForcedActions, width: int) -> None:
        self.episodes, self.forced, self.width = episodes, forced, width

    def run(self, seeds: Sequence[int], on_end: Callable[[], None] = lambda: None) -> list[BeamEpisode]:
        """Search the episodes of some seeds side by side; ``on_end`` is called whenever one is done.

        Raises:
            SnapshotError: for an environment that can neither be saved nor replayed.
            ValueRangeError: for rewards that are not finite.
        """
        found = [BeamEpisode(seed, self.episodes.reset(seed)) for seed in seeds]
        beam = [
            BeamState(one.first.snapshot, one.first.observation, one.first.mask, i, 0.0, None)
            for i, one in enumerate(found)
        ]
        self.forced.begin(seeds[0])
        t = 0
        while beam:
            after = [[] for _ in found]  # type: list[list[BeamState]]
            for child in self._children(beam, found, t):
                after[child.episode].append(child)
            going = {state.episode for state in beam}
            beam = [state for i, states in enumerate(after) for state in self._kept(states, found[i])]
            for _ in going - {state.episode for state in beam}:
                on_end()
            t += 1
        return found

    def _children(self, beam: list[BeamState], found: list[BeamEpisode], t: int) -> Iterator[BeamState]:
        """The states after one more step at which the episode goes on; returns of those that end there are kept."""
        env, start = self.episodes.env, self.episodes.start
        own = np.array([int(action) - start for action in self.episodes.own_actions(beam)])
        seen = self.forced.received(self.episodes.batch([state.observation for state in beam]))
        for state, mine, true, others in zip(beam, own.tolist(), seen, self.forced.find(seen, own), strict=True):
            one, path = found[state.episode], state.path
            choices = [(mine, path)]
            if others:
                digest = digest_of(true)
                choices += [
                    (action, PerturbedPath(RecordedStep(one.seed, t, digest, shown), path)) for action, shown in others
                ]
            for action, path in choices:
                state.snapshot.restore(env)
                observation, reward, terminated, truncated, info = env.step(np.int64(action + start))
                total, one.nodes = state.total + float(reward), one.nodes + 1
                if not np.isfinite(total):
                    raise ValueRangeError(f"the environment returned a reward that is not finite: {reward}")
                one.least_reward = min(one.least_reward, float(reward))
                if terminated or truncated:
                    if one.lowest == np.inf:
                        self.episodes.check_drew_nothing(one.first)
                    if total < one.lowest:
                        one.lowest, one.path = total, path
                elif not one.hopeless(total):
                    saved = self.episodes.saved(observation, info)
                    yield BeamState(saved.snapshot, saved.observation, saved.mask, state.episode, total, path)

    def _kept(self, states: list[BeamState], one: BeamEpisode) -> list[BeamState]:
        """Those that go on: the victim's own way, and the best of the others."""
        states = [state for state in states if not one.hopeless(state.total)]
        if len(states) <= self.width:
            return states
        seen = self.episodes.batch([state.observation for state in states])
        victim = self.episodes.victim
        promise = np.array([state.total for state in states])
        if victim.has_value:
            with torch.no_grad():
                value = victim.value(to_victim(seen, victim.dtype, victim.device, True, space=victim.observation_space))
            assert value is not None
            promise += value.double().cpu().numpy()
        first = next((i for i, state in enumerate(states) if state.path is None), None)
        flat = seen.reshape(len(states), -1).astype(np.float64)
        return [states[i] for i in spread_choice(promise, flat, self.width, first)]


def spread_choice(
    promise: NDArray[np.float64], places: NDArray[np.float64], count: int, first: int | None = None
) -> list[int]:
    """Some states of low promise that lie far from each other.

    One after the other the state is taken whose promise, less what its distance to the nearest of those before counts
    for, is the lowest. Both are counted in standard deviations over all states, distances as root mean squares over
    the features. States in one place are one.

    Args:
        promise: the return that each state promises, ``[N]``.
        places: where each is, ``[N, D]``.
        count: how many are taken at most.
        first: the number of one that is taken in any case, or None.

    >>> import numpy as np
    >>> from adv_wrappers.evaluation.beam import spread_choice
    >>> spread_choice(np.array([0.0, 0.1, 5.0, 6.0]), np.array([[0.0], [0.0], [1.0], [9.0]]), 2)
    [0, 3]
    """
    score = (promise - promise.min()) / (promise.std() or 1.0)
    deviations = places.std(0)
    scaled = places / np.where(deviations > 0, deviations, 1.0)
    chosen = [int(score.argmin()) if first is None else first]
    distance = np.full(len(score), np.inf)
    while True:
        away = np.sqrt(np.square(scaled - scaled[chosen[-1]]).mean(1))
        distance = np.minimum(distance, away)
        if len(chosen) == count or not (distance > 0).any():
            return chosen
        chosen.append(int(np.where(distance > 0, score - _DISTANCE * distance, np.inf).argmin()))


@dataclass(frozen=True)
class FoundPerturbations:
    """Sequences of perturbed observations, one an episode.

    Attributes:
        threat: plays them, in :func:`adv_wrappers.evaluate` with the same episodes and seed and wherever else an
            environment is reset with one of ``seeds``.
        seeds: the seeds of the episodes.
        returns: the lowest returns that the search reached; float64 ``[E]``.
        perturbed: how many steps of each are perturbed; int64 ``[E]``.
        nodes: how many steps were simulated; int64 ``[E]``.
    """

    threat: ThreatModel
    seeds: tuple[int, ...]
    returns: NDArray[np.float64]
    perturbed: NDArray[np.int64]
    nodes: NDArray[np.int64]

    def to_dict(self) -> dict[str, JSON]:
        """The figures, as values that JSON knows."""
        arrays = {name: getattr(self, name).tolist() for name in ("returns", "perturbed", "nodes")}
        return {"seeds": list(self.seeds), **arrays}


@holding
def beam_search(
    victim: Victim | str, env: str | MakeEnv, eps: float | None = None, episodes: int = 10, seed: int = 0,
    width: int = WIDTH, *, scale: Scale = None, within: Budget | None = None, steps: int = 8, restarts: int = 2,
    env_kwargs: EnvKwargs | None = None, make: MakeEnv | None = None, quantize: bool = True,
    out: str | Path | None = None, progress: Callable[[str, int, int], None] | None = None,
) -> FoundPerturbations:  # fmt: skip
    """Search whole episodes for the perturbed observations that leave a deterministic victim the lowest return.

    Args:
        victim: the agent, or its reference: it plays its most likely action, one discrete one, and has a gradient.
        env: the id of the environment, or a function that makes one; it is deterministic under its seed.
        eps, scale: arguments of the budget :class:`adv_wrappers.Linf`; or ``within``, the budget itself, of the whole
            observation.
        episodes, seed, env_kwargs, make, quantize: as for :func:`adv_wrappers.evaluate`, whose episodes these are.
        width: how many states of every episode are kept at a step. The cost is proportional to it.
        steps, restarts: of the ascents toward each other action.
        out: a folder for ``beam.json`` and the perturbations. The same call reads what is there, and the threat has a
            JSON form. No other process gets it meanwhile.
        progress: called as ``progress("beam", episodes finished, episodes)``.

    Raises:
        VictimError: for a victim that samples, is recurrent, or has no gradient.
        SpaceError: for actions other than one discrete one, and observations other than a Box.
        SnapshotError: for an environment that can neither be saved nor replayed (:ref:`replays`).
        BudgetError: for a budget that is unbounded, does not fit, or depends on earlier steps
            (:class:`adv_wrappers.Newest`).
        ThreatError: without a budget, or with two.
        ValueRangeError: for numbers out of range.
        OutputError: for a folder that cannot be written to, or that another process holds.

    >>> from adv_wrappers import evaluate
    >>> from adv_wrappers.evaluation.beam import beam_search
    >>> found = beam_search("zoo:cartpole-ppo", "CartPole-v1", 0.05, episodes=2, width=8)
    >>> report = evaluate("zoo:cartpole-ppo", "CartPole-v1", [found.threat], episodes=2)
    >>> report.threats[1]["returns"] == found.returns.tolist()
    True
    """
    episodes, seed = integer("episodes", episodes, 1, MOST_EPISODES), integer("seed", seed, 0)
    width, steps = integer("width", width, 1), integer("steps", steps, 1)
    restarts = integer("restarts", restarts, 1)
    budget = needed_budget("a beam search", eps, scale, within)
    if isinstance(budget, Newest):
        raise BudgetError("a beam search takes the budget of a whole observation, and newest depends on what was shown")
    seeds = draw_seeds(seed, episodes)
    with closing(DeterministicEpisodes(load_victim(victim), env, env_kwargs, make)) as played, one_thread():
        forced = ForcedActions(played, budget, steps, restarts, quantize)
        settings = {
            "victim": played.victim.described(), "env": played.about,
            "within": forced.threat.budget.to_dict(), "episodes": episodes, "seed": seed, "width": width,
            "steps": steps, "restarts": restarts, "quantize": quantize,
        }  # fmt: skip
        folder = Path(out) if out is not None and can_be_known(played.victim, env, make, env_kwargs) else None
        known = None if folder is None else _known(folder, settings, forced.threat.budget)
        if known is not None:
            return known
        search, done = BeamSearch(played, forced, width), itertools.count(1)
        on_end = (lambda: None) if progress is None else (lambda: progress("beam", next(done), episodes))
        found = list[BeamEpisode]()
        for start in range(0, episodes, _TOGETHER):
            found += search.run(seeds[start : start + _TOGETHER], on_end)
    steps_ = [step for one in found for step in one.record()]
    how = RecordedPerturbations(steps_)
    how = how if out is None else how.save(Path(out) / _RECORD)
    result = FoundPerturbations(
        ThreatModel("observation", how, forced.threat.budget), tuple(seeds), np.array([one.lowest for one in found]),
        np.array([len(one.record()) for one in found]), np.array([one.nodes for one in found]),
    )  # fmt: skip
    if out is not None:
        write(Path(out) / _FIGURES, (json.dumps({"settings": settings, **result.to_dict()}, indent=1) + "\n").encode())
    return result


def _known(folder: Path, settings: dict[str, JSON], within: Budget) -> FoundPerturbations | None:
    """What a folder holds of the same search, or None."""
    try:
        about = json.loads((folder / _FIGURES).read_text(encoding="utf-8"))
        if about["settings"] != json.loads(json.dumps(settings)):
            return None
        how = RecordedPerturbations(file=str(folder / _RECORD))
        figures = (np.array(about[name]) for name in ("returns", "perturbed", "nodes"))
        return FoundPerturbations(ThreatModel("observation", how, within), tuple(about["seeds"]), *figures)
    except (OSError, ValueError, KeyError, TypeError, ThreatError):
        return None
