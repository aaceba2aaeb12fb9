"""The search attack over whole episodes: perturbations that are chosen for where they lead, and not step by step.

An attack that makes the victim act badly now need not cost it anything: a pole that is pushed the wrong way is
caught again one step later. Where victim and simulator are deterministic, an adversary can look ahead: at every
state it finds out which other actions a perturbation within the budget can force, by gradient ascents toward each
of them (Gowal et al. 2019, section 3: one target at a time), and follows all of them, and the victim's own action,
to the next states. A beam of these goes on. Which ones is not told by the reward so far alone: on CartPole it is
the same for all states of a step. So the places of the beam are given, in turn, to the lowest promise (the reward
so far and the victim's value), to states at the boundary of those that were reached, which lie apart from those
already chosen, and to states that lie apart wherever they are: of a linear system, the ways that reach anything in
the least time run along the boundary of what can be reached. Where the victim's value misjudges what harms it, as
that of hardened agents may, the boundary is what finds it: so every other place is one there, and not an extreme
along a single direction, which is often a state that was taken already.

**A wider beam is never weaker**, in no episode. Ordinary beam search is not like that: a wider beam keeps other
states at one step, which displace at the next what a narrower one would have continued with (Lemons et al. 2022,
"Beam Search: Faster and Monotonic", whose remedy this is, with groups of places in place of single ones). A beam of
width 2^n has groups 0 to n, of 1, 2, 4, ..., 2^n places: beside its own places those of the narrower beams, so that
it keeps 2^(n+1) - 1 states and costs twice as much as its last group. Then:

1. Group g is filled with children of states in groups 0 to g, chosen by a rule that looks at nothing but these children
   and what became of these groups before: which of the children groups 0 to g - 1 took, and the lowest return and the
   lowest reward that groups 0 to g have met.
2. So, by induction over steps and groups, group g holds at every step the same states in every beam that has it: the
   first state is the same, and whatever fills the group at the next step is. That holds to the bit, since what is
   computed of a state does not depend on the states behind it
   (:class:`Batches`), and states are gone through group by group.
3. The return of a beam is the lowest of all its groups. A wider beam has all groups of a narrower one, and more.

What comes out is a sequence of perturbed observations for every episode, which the ordinary layers play
(:class:`RecordedPerturbations`). So the return under this attack is one
that was played, an upper bound on what the victim keeps in the worst case: no lower one is promised.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from adv_wrappers.attacks.gradient_attack import Steps, pgd
from adv_wrappers.attacks.objectives import CrossEntropy, Margin
from adv_wrappers.attacks.restarts import search
from adv_wrappers.core import rng
from adv_wrappers.core.arrays import Scale
from adv_wrappers.core.budgets.budget import Budget
from adv_wrappers.core.engine.context import EPISODE_STREAM, Context
from adv_wrappers.core.engine.engine import Engine, Wrapped
from adv_wrappers.core.perturbation import DecliningPerturbation, VictimAttack
from adv_wrappers.core.spaces import At, has_images, to_victim
from adv_wrappers.core.threat import ThreatModel, needed_budget
from adv_wrappers.core.types import Array, Batch
from adv_wrappers.environments.environment import AnyEnvironment, Environment, EnvKwargs, MakeEnv, json_value
from adv_wrappers.errors import AdvWrappersError, BudgetError, ThreatError, VictimError
from adv_wrappers.evaluation.episodes import draw_seeds
from adv_wrappers.evaluation.searches.search_tree import DeterministicEpisodes, TreeNode
from adv_wrappers.registry import BEAM_WIDTH
from adv_wrappers.utils import trees
from adv_wrappers.utils.deadline import Deadline
from adv_wrappers.utils.files import holding, write, write_json
from adv_wrappers.utils.frozen import set_fields
from adv_wrappers.utils.pace import Progress
from adv_wrappers.utils.reading import check_same, decoding, read_result
from adv_wrappers.utils.threads import one_thread
from adv_wrappers.utils.validation import EpisodeCount, Positive, Seed, checked
from adv_wrappers.victims import Victim, load_victim
from adv_wrappers.victims.certified_actions import possible_actions
from adv_wrappers.victims.gradients import Gradient, Loss, need_gradient
from adv_wrappers.wrappers.layer import as_float, floated

# ----------------------------------------------------------------------------------------------------------------------
# Targeted attacks toward every other action: which of them a perturbation can force, and what is shown for each.
#
# For every other action there are ascents of its own (Gowal et al. 2019, "An Alternative Surrogate Loss for PGD-based
# Adversarial Testing"). They raise in turn its lead over the best of the others and the logarithm of its probability:
# the lead alone has a gradient that turns between two of the others, and misses actions that lie between them (on a
# linear victim of three actions 39 of 181, together none). What is found is what a layer would hand out, projected
# and rounded; an action counts as forced where the victim plays it there.
#
# Ascents miss an action that is played in a corner of the box alone, or behind a flat part of the network. So what
# bounds on the network do not exclude (:mod:`adv_wrappers.victims.certified_actions`), and no ascent reached, is asked
# for once more, by short ascents from corners of the box and from random points in it. What they exclude is never
# asked for.
# ----------------------------------------------------------------------------------------------------------------------


_ROWS, _IMAGES = (64, 1024), (2, 32)  # the least and the most observations that are attacked at once
_FURTHER, _FURTHER_STEPS = 9, 2  # ascents toward what bounds allow and the first ascents missed, and their steps
_SURE = 1e-5  # lead of a forced action, relative to the largest output: more than another size of the batch changes


@dataclass(frozen=True)
class TargetedLead(VictimAttack):
    """Bring the victim to the action that the memory holds, by the largest lead of several ascents.

    Args:
        victim: with one discrete action, and a gradient.
        steps, restarts: of the ascents, as of :class:`adv_wrappers.attacks.gradient_attack.GradientAttack`.
    """

    name: ClassVar[str] = "targeted-lead"
    victim: Victim | None = None
    steps: Steps = 8
    restarts: Positive = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        need_gradient("a beam search", self.victim)

    def initial_memory(self, x: Tensor) -> dict[str, Tensor]:
        """Which action is asked for in every row, counted from 0."""
        return {"action": torch.zeros(len(x), dtype=torch.int64)}

    def __call__(self, x: Tensor, context: Context) -> Tensor:
        assert context.memory is not None
        bound, action = context.bind(self.victim), context.memory["action"].to(x.device)
        objective = Margin(action, toward=True)
        losses: Sequence[Loss] = [objective, CrossEntropy(action, toward=True)]

        def climb(context: Context, gradient: Gradient, number: int, start: Tensor | None) -> Tensor:
            return pgd(context, gradient, self.steps, 0.5, start=start, schedule="linear")

        ascents = [(i, losses[i % 2]) for i in range(self.restarts)]
        return search(context, bound, objective, ascents, climb, "best")


class ForcedAction(NamedTuple):
    """An action that is not the victim's own, counted from 0, and the observation ``[*S]`` at which it is played."""

    action: int
    shown: Array


class Batches:
    """Batches whose sizes depend on nothing but their place in a sequence of observations.

    Every size is four times the one before, up to the largest; the last batch is filled with observations of its own.
    A matrix product rounds as its shape demands, so what is computed of the first observations would else change in
    the last bit with the number of those that follow.

    Args:
        least, most: the first size and the largest one.

    Attributes:
        sizes: all sizes that there are.
    """

    def __init__(self, least: int, most: int) -> None:
        self.sizes = [least]
        while self.sizes[-1] < most:
            self.sizes.append(min(4 * self.sizes[-1], most))

    def of(self, observations: Any, rows: int | Sequence[int]) -> Iterator[tuple[int, Any]]:
        """The place of every batch's first observation, and the batch, every leaf ``[size, *S]``.

        ``rows`` is how many observations there are, or the numbers of some, in their order.
        """
        numbers = np.arange(rows) if isinstance(rows, int) else np.array(rows, np.intp)
        start = 0
        for size in itertools.chain(self.sizes, itertools.repeat(self.sizes[-1])):
            part = numbers[start : start + size]
            if len(part) == 0:
                return
            yield start, trees.select(observations, np.concatenate([part, np.repeat(part[:1], size - len(part))]))
            start += size


class TargetedAttacks:
    """Find, at true observations, the actions that perturbations within a budget force.

    The perturbed observations are made by an engine, as a layer has one: they are what the layer would hand out.
    Observations are computed with in :class:`Batches`, and the draws are the same in every row, so what is found at
    the first of them does not depend, to the bit, on how many follow.

    Args:
        episodes: the victim and the environment.
        within: the budget.
        steps, restarts: of :class:`TargetedLead`.
        quantize: as for :func:`adv_wrappers.evaluate`.
        at: the key, or a tuple of keys, of the observations that is perturbed; None for all of a Box.

    Attributes:
        threat: the first ascents, within the budget as it is for this victim.
        batches: how observations are computed with.
    """

    def __init__(
        self, episodes: DeterministicEpisodes, within: Budget, steps: int, restarts: int, quantize: bool, at: At = None
    ) -> None:
        self.victim = episodes.victim
        self.count = episodes.count
        self.quantize = quantize
        # the attack toward one action at a time, within the budget
        how = TargetedLead(self.victim, steps, restarts)
        threat = ThreatModel("observation", how, within, at=at).resolve(self.victim)
        space, acted = episodes.env.observation_space, episodes.env.action_space
        seen = space if quantize else as_float(space, threat)
        images = has_images(space)
        self.threat, self.batches = threat, Batches(*(_IMAGES if images else _ROWS))
        # an engine for every size of batch, and others with more starts for actions that are hard to force
        further = replace(threat, how=TargetedLead(self.victim, min(_FURTHER_STEPS, steps), max(_FURTHER, restarts)))
        self._engines, self._further = (
            {rows: Engine(one, Wrapped(seen, acted, rows)) for rows in self.batches.sizes} for one in (threat, further)
        )
        self._field = threat.check(seen, acted)
        self._bounded = self._field.keys is None  # as far as is known: bounds are on the whole of an observation

    def begin(self, seed: int) -> None:
        """Episodes begin; ``seed`` seeds the draws of the ascents, which are the same in every row."""
        for engines in (self._engines, self._further):
            for rows, engine in engines.items():
                engine.begin_episode([seed] * rows)

    def received(self, observations: Any) -> Any:
        """Observations, side by side, as the layer receives them."""
        return observations if self.quantize else floated(observations, self._field.paths)

    def part_of(self, observations: Any) -> Array:
        """What is perturbed of observations, ``[B, *S]``."""
        return np.asarray(self._field.take(observations, True))

    def find(self, observations: Any, own: NDArray[np.int64]) -> list[list[ForcedAction]]:
        """The actions that can be forced at the observations of one step, which then is over.

        Args:
            observations: side by side, as the layer receives them.
            own: the victim's own actions, from 0, ``[B]``.
        """
        best: list[dict[int, tuple[float, Array]]] = [{} for _ in own]
        possible = self._possible(observations, len(own))  # costs less than one step of an ascent
        pairs = [(i, a) for i, a in np.argwhere(possible).tolist() if a != own[i]]
        self._ask(self._engines, observations, own, pairs, best)
        self._ask(self._further, observations, own, [(i, a) for i, a in pairs if a not in best[i]], best)
        for engine in (*self._engines.values(), *self._further.values()):
            engine.clock.tick()
        return [[ForcedAction(action, shown) for action, (_, shown) in sorted(found.items())] for found in best]

    def _ask(
        self,
        engines: Mapping[int, Engine],
        observations: Any,
        own: NDArray[np.int64],
        pairs: list[tuple[int, int]],
        best: list[dict[int, tuple[float, Array]]],
    ) -> None:
        """Ascend towards actions, each at an observation, and keep what is played with the largest lead so far."""
        asked = np.array([action for _, action in pairs])
        for start, batch in self.batches.of(observations, [i for i, _ in pairs]):
            rows = len(self.part_of(batch))
            engine = engines[rows]
            engine.set_memory({"action": torch.tensor(np.resize(asked[start : start + rows], rows))})
            shown = engine.apply(batch)
            played, leads = self._played(shown, rows)
            parts = self.part_of(shown)
            for (i, _), action, lead, one in zip(pairs[start:], played, leads, parts, strict=False):  # the rest is fill
                if lead > 0 and action != own[i] and lead > best[i].get(action, (0.0, one))[0]:
                    best[i][action] = lead, one.copy()

    def _possible(self, observations: Any, count: int) -> NDArray[np.bool_]:
        """Which actions bounds do not exclude, ``[B, A]``; all where there are no bounds on the victim's network."""
        victim, found = self.victim, np.ones((count, self.count), bool)
        for start, part in self.batches.of(observations, count) if self._bounded else ():
            # the box of everything that may be shown, in the dtype that the victim computes in
            exact = self._field.exactly(part)
            ends = self.threat.budget.box_in(self._field, exact, part.dtype)
            low, high = (end.expand_as(exact).to(victim.device, victim.dtype) for end in ends)
            try:
                with torch.no_grad():
                    possible = possible_actions(victim, low, high, "interval")
            except VictimError:  # a network that bounds have no rule for
                self._bounded = False
                break
            found[start : start + len(part)] = possible[: len(found) - start].cpu().numpy()
        return found

    def _played(self, shown: Any, rows: int) -> tuple[list[int], list[float]]:
        """The victim's actions, from 0, and by how much each leads; 0 for less than rounding may change."""
        victim = self.victim
        with torch.no_grad():
            params = victim.params(to_victim(shown, victim.dtype, victim.device, True, space=victim.observation_space))
        victim.check_params(params, rows)
        if params.shape[-1] == 1:
            return [0] * rows, [0.0] * rows
        # a lead within rounding is none: another batch might play the other action
        top = params.topk(2, -1)
        lead = top.values[:, 0] - top.values[:, 1]
        lead = torch.where(lead > _SURE * params.abs().amax(-1), lead, 0.0)
        return top.indices[:, 0].tolist(), lead.tolist()


# ----------------------------------------------------------------------------------------------------------------------
# Perturbed observations that were found beforehand, step by step of known episodes, as an ordinary perturbation.
#
# A search over whole episodes (:func:`beam_search`) finds which observations to show to a victim.
# Played by the layers that every attack goes through, they are projected onto the budget and measured as any other
# attack is.
# ----------------------------------------------------------------------------------------------------------------------


_BYTES = 16  # of a digest: which observation a perturbation is for


@dataclass(frozen=True)
class RecordedStep:
    """A perturbed observation, and what it was found for.

    Attributes:
        seed: what the environment was reset with.
        t: the step of the episode, from 0, the observation of the reset.
        digest: of the true observation, see :func:`digest_of`.
        shown: the perturbed observation ``[*S]``, in the dtype in which the layer hands it out.
    """

    seed: int
    t: int
    digest: bytes
    shown: Array


def digest_of(observation: Batch) -> bytes:
    """A digest of the bytes of an observation ``[*S]``, an array or a tensor."""
    array = observation.detach().cpu().numpy() if isinstance(observation, Tensor) else np.asarray(observation)
    return hashlib.blake2b(np.ascontiguousarray(array).tobytes(), digest_size=_BYTES).digest()


@dataclass(frozen=True, eq=False)
class RecordedPerturbations(DecliningPerturbation):
    """Show recorded observations at the steps for which there are some; all other steps are left alone.

    A record belongs to an episode, by the seed that its environment was reset with, and to the true observation of its
    step, to the bit: where another one comes, because the victim or the environment is another, the step is left alone.
    The layer is the innermost one of its environment, as the only layer is.

    Args:
        steps: the record; None to read it from ``file``.
        file: an ``.npz`` file that :meth:`save` wrote, by which this has a JSON form.
        sha256: hash of the record; a file with another is refused. Filled in from the file.

    Raises:
        ThreatError: without a record, and for a file that holds none, or another one than ``sha256`` says.
    """

    name: ClassVar[str] = "recorded"
    steps: Sequence[RecordedStep] | None = None
    file: str | None = None
    sha256: str | None = None

    def __post_init__(self) -> None:
        if self.steps is None:
            if self.file is None:
                raise ThreatError("recorded needs steps=, or file= with a record that save(file) wrote")
            set_fields(self, steps=_read(Path(self.file)))
        sha256 = _hash(self._steps)
        if self.sha256 not in (None, sha256):
            raise ThreatError(f"the record {self.file} changed: expected sha256 {self.sha256:.12}, got {sha256:.12}")
        set_fields(self, sha256=sha256)

    @property
    def _steps(self) -> Sequence[RecordedStep]:
        assert self.steps is not None
        return self.steps

    @cached_property
    def _episodes(self) -> Mapping[int, Mapping[int, RecordedStep]]:
        """The record by the key of an episode and the step in it."""
        found: dict[int, dict[int, RecordedStep]] = {}
        for step in self._steps:
            found.setdefault(_episode_key(step.seed), {})[step.t] = step
        return found

    def to_dict(self) -> dict[str, Any]:
        """The JSON form; raises :class:`ThreatError` for a record without a file."""
        if self.file is None:
            raise ThreatError("a record without a file has no JSON form: save(file) returns one that has")
        return {"type": self.name, "file": self.file, "sha256": self.sha256}

    def save(self, file: str | Path) -> RecordedPerturbations:
        """Write the record to an ``.npz`` file; the same with a JSON form, which names the file."""
        steps, data = self._steps, io.BytesIO()
        shown = np.stack([step.shown for step in steps]) if steps else np.zeros(0)
        np.savez_compressed(
            data,
            seed=np.array([step.seed for step in steps], np.uint64),
            t=np.array([step.t for step in steps]),
            digest=np.frombuffer(b"".join(step.digest for step in steps), np.uint8).reshape(-1, _BYTES),
            shown=shown,
        )
        write(Path(file), data.getvalue())
        return RecordedPerturbations(steps, str(file))

    def accepts(self, x: Tensor, context: Context) -> Tensor:
        """Rows for whose step there is a record, bool ``[B]``."""
        return torch.tensor([step is not None for step in self._present(context)], dtype=torch.bool)

    def __call__(self, x: Tensor, context: Context) -> Tensor:
        y = x.clone()
        for row, step in enumerate(self._present(context)):
            if step is not None:
                y[row] = torch.as_tensor(step.shown).to(y)
        return y

    def _present(self, context: Context) -> list[RecordedStep | None]:
        """The record of every row's present step, or None."""
        keys = [int(key) for key in context.episode_key.tolist()]
        times = np.broadcast_to(np.asarray(context.t), (len(keys),)).tolist()
        found = [self._episodes.get(key, {}).get(t) for key, t in zip(keys, times, strict=True)]
        part = context.part
        same = [step is not None and step.digest == digest_of(part[i]) for i, step in enumerate(found)]
        return [step if alike else None for step, alike in zip(found, same, strict=True)]


def _episode_key(seed: int) -> int:
    """The key by which the innermost layer knows the first episode after a reset with a seed."""
    return rng.signed(rng.fold(rng.fold(rng.fold(rng.root(seed), 0), EPISODE_STREAM), 0))


def _hash(steps: Sequence[RecordedStep]) -> str:
    found = hashlib.sha256()
    for step in steps:
        found.update(f"{step.seed} {step.t} {step.shown.dtype.str} {step.shown.shape} ".encode())
        found.update(step.digest + np.ascontiguousarray(step.shown).tobytes())
    return found.hexdigest()


def _read(path: Path) -> tuple[RecordedStep, ...]:
    with decoding(path, ThreatError):
        with np.load(path, allow_pickle=False) as data:
            columns = [data[name] for name in ("seed", "t", "digest", "shown")]
        return tuple(
            RecordedStep(int(seed), int(t), digest.tobytes(), shown)
            for seed, t, digest, shown in zip(*columns, strict=True)
        )


WIDTH = BEAM_WIDTH  # states that are kept of every episode
TOGETHER = 16  # episodes that are searched side by side
_DISTANCE = 4.0  # what a standard deviation between two states counts for, in standard deviations of their promise
_ALIKE = 0.1  # standard deviations within which two states count as alike
_RANKINGS = "promise", "boundary", "apart", "boundary"  # by which places are filled, in turn
_DIRECTIONS, _NUMBERS = 256, 2**20  # along which the boundary is looked for, and numbers of all of them, at most
BEAM_FILE, _RECORD = "beam.json", "perturbations.npz"


class PerturbedPath(NamedTuple):
    """The perturbed steps that led to a state, the last one first."""

    step: RecordedStep
    before: PerturbedPath | None


class BeamState(NamedTuple):
    """A state that the beam has reached.

    Attributes:
        node: the state, and the reward so far.
        episode: the number of its episode.
        group: the group of places from which it was reached, and once it has a place, that of its own.
        groups: the groups that it may go on in; bool ``[G]``.
        path: the perturbed steps that led to it; None for the victim's own way.
    """

    node: TreeNode
    episode: int
    group: int
    groups: NDArray[np.bool_]
    path: PerturbedPath | None


class BeamEpisode:
    """What the search of one episode has found so far.

    Args:
        seed: what the environment was reset with.
        first: its first state.
        groups: how many groups of places there are.
        below: the return under which others are looked for.

    Attributes:
        lowest: the lowest return that was reached from groups 0 to g; infinity before there is one; float64 ``[G]``.
        least_reward: the lowest reward that a step from groups 0 to g brought; float64 ``[G]``.
        path: the perturbed steps of the lowest return of all.
        nodes: how many steps were simulated.
    """

    def __init__(self, seed: int, first: TreeNode, groups: int, below: float = np.inf) -> None:
        self.seed = seed
        self.first = first
        self.below = below
        self.lowest, self.least_reward = np.full(groups, np.inf), np.full(groups, np.inf)
        self.path: PerturbedPath | None = None
        self.nodes = 0

    def step(self, group: int, reward: float) -> None:
        """A step from a state of a group brought a reward."""
        self.nodes += 1
        np.minimum(self.least_reward[group:], reward, out=self.least_reward[group:])

    def end(self, group: int, total: float, path: PerturbedPath | None) -> None:
        """The episode ended after a step from a state of a group."""
        if total < self.lowest[-1]:
            self.path = path
        np.minimum(self.lowest[group:], total, out=self.lowest[group:])

    def hopeful(self, total: NDArray[np.float64] | float) -> NDArray[np.bool_]:
        """For which groups a lower return is in sight from states with these rewards so far; bool ``[..., G]``.

        There is none where a group has met no negative reward, and a return that is no higher.
        """
        lower: NDArray[np.bool_] = np.asarray(total)[..., None] < np.minimum(self.lowest, self.below)
        return lower | (self.least_reward < 0)

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
        attacks: find the actions that can be forced.
        width: how many states of every episode are kept, a power of two.

    Attributes:
        steps: how far the last :meth:`run` came.
    """

    def __init__(self, episodes: DeterministicEpisodes, attacks: TargetedAttacks, width: int) -> None:
        self.episodes, self.attacks = episodes, attacks
        self.groups, self.steps = width.bit_length(), 0

    def run(
        self,
        seeds: Sequence[int],
        on_end: Callable[[], None] = lambda: None,
        on_step: Callable[[int], None] = lambda states: None,
        until: Deadline | None = None,
        below: float = np.inf,
    ) -> list[BeamEpisode]:
        """Search the episodes of some seeds side by side.

        Args:
            seeds: of the episodes.
            on_end: called whenever one is done.
            on_step: called after every step with the number of states that go on; what it raises ends the search.
            until: when the search stops; each episode then goes on without an attack, from the state that promises
                least.
            below: as for :func:`beam_search`.

        Raises:
            SnapshotError: for an environment that can neither be saved nor replayed.
            ValueRangeError: for rewards that are not finite.
        """
        found = [BeamEpisode(seed, self.episodes.reset(seed), self.groups, below) for seed in seeds]
        beam = [BeamState(one.first, i, 0, np.ones(self.groups, bool), None) for i, one in enumerate(found)]
        self.attacks.begin(seeds[0])
        self.steps = 0
        while beam:
            if until is not None and until.passed:
                self._go_on_alone(beam, found)
                break
            # the children of all states, by episode
            after: list[list[tuple[BeamState, float]]] = [[] for _ in found]
            children = list(self._children(beam, found, self.steps))
            for child, promise in zip(children, self._promises(children).tolist(), strict=True):
                after[child.episode].append((child, promise))
            # of each episode those that are kept; one without any is done
            going = {state.episode for state in beam}
            beam = [state for i, states in enumerate(after) for state in self._kept(states, found[i])]
            beam.sort(key=lambda state: state.group)  # what is computed of a group must not depend on later ones
            for _ in going - {state.episode for state in beam}:
                on_end()
            on_step(len(beam))
            self.steps += 1
        return found

    def _go_on_alone(self, beam: list[BeamState], found: list[BeamEpisode]) -> None:
        """Follow the victim's own way to the end, in each episode from the state that promises the lowest return."""
        least = dict[int, tuple[float, BeamState]]()
        for state, promise in zip(beam, self._promises(beam).tolist(), strict=True):
            if state.episode not in least or promise < least[state.episode][0]:
                least[state.episode] = promise, state
        # from there without an attack to the end of the episode
        for _, state in least.values():
            *_, last = self.episodes.follow(state.node)
            found[state.episode].end(state.group, last.total, state.path)

    def _children(self, beam: list[BeamState], found: list[BeamEpisode], t: int) -> Iterator[BeamState]:
        """The states after one more step at which the episode goes on; returns of those that end there are kept."""
        start = self.episodes.start
        # the victim's own action in every state, and those that it can be forced to
        seen = self.episodes.batch([state.node.observation for state in beam])
        own = np.concatenate([self.episodes.actions(part) for _, part in self.attacks.batches.of(seen, len(beam))])
        own = own[: len(beam)].astype(np.int64) - start
        seen = self.attacks.received(seen)
        others = self._forced(beam, found, seen, own)
        for state, mine, true, forced in zip(beam, own.tolist(), self.attacks.part_of(seen), others, strict=True):
            # each action is tried, with the perturbation that forces it
            one, path = found[state.episode], state.path
            groups = (np.arange(self.groups) >= state.group) & one.hopeful(state.node.total)
            choices = [(mine, path)]
            if forced:
                digest = digest_of(true)
                choices += [
                    (action, PerturbedPath(RecordedStep(one.seed, t, digest, shown), path)) for action, shown in forced
                ]
            for action, path in choices:
                after = self.episodes.step(state.node, np.int64(action + start))
                one.step(state.group, after.reward)
                # an end counts at once, for the groups that have reached it
                if after.over:
                    if one.lowest[-1] == np.inf:
                        self.episodes.check_drew_nothing(one.first)
                    one.end(state.group, after.total, path)
                else:
                    yield BeamState(self.episodes.save(after), state.episode, state.group, groups, path)

    def _forced(
        self, beam: list[BeamState], found: list[BeamEpisode], seen: Any, own: NDArray[np.int64]
    ) -> list[list[ForcedAction]]:
        """The other actions that can be forced at every state, for the groups that still have hope there.

        They are sought in the order of these groups. The victim's own way is the only state that others than its own
        group may have hope for: it is followed to its end, whatever others reach.
        """
        none, others = self.groups, list[list[ForcedAction]]([] for _ in beam)
        first = []
        for state in beam:
            # the first group that would go on from this state, in whose order states are asked
            start = max(1, state.group)
            hopeful = found[state.episode].hopeful(state.node.total)[start:]
            first.append(start + int(hopeful.argmax()) if hopeful.any() else none)
        asked = sorted((i for i in range(len(beam)) if first[i] < none), key=first.__getitem__)
        sought = self.attacks.find(trees.select(seen, np.array(asked, np.intp)), own[asked])
        for i, forced in zip(asked, sought, strict=True):
            others[i] = forced
        return others

    def _promises(self, states: list[BeamState]) -> NDArray[np.float64]:
        """The return that each state promises: the reward so far, and the victim's value where it has one; ``[N]``."""
        promise = np.array([state.node.total for state in states])
        victim = self.episodes.victim
        if not victim.has_value or not states:
            return promise
        seen = self.episodes.batch([state.node.observation for state in states])
        # what the victim itself expects from there on
        for start, part in self.attacks.batches.of(seen, len(states)):
            with torch.no_grad():
                value = victim.value(to_victim(part, victim.dtype, victim.device, True, space=victim.observation_space))
            assert value is not None
            promise[start : start + len(value)] += value.double().cpu().numpy()[: len(states) - start]
        return promise

    def _kept(self, children: list[tuple[BeamState, float]], one: BeamEpisode) -> list[BeamState]:
        """Those that go on, group by group, each with the group of its place."""
        if not children:
            return []
        states = [state for state, _ in children]
        # what the ranking knows: which groups a state may go on in, where it lies, and what it promises
        origin, total = np.array([state.group for state in states]), np.array([state.node.total for state in states])
        hopeful = np.stack([state.groups for state in states]) & one.hopeful(total)
        seen = self.episodes.batch([state.node.observation for state in states])
        numbers = [leaf for leaf in trees.leaves(seen) if isinstance(leaf, np.ndarray)]  # texts have no distance
        parts = [leaf.astype(np.float64).reshape(len(states), -1) for leaf in numbers]
        ranked = RankedStates(np.array([promise for _, promise in children]), np.concatenate(parts, 1))
        kept = list[BeamState]()
        for group in range(self.groups):
            if group == 0:  # the victim's own way
                own_way = np.array([state.path is None for state in states])
                chosen = ranked.take(own_way & hopeful[:, 0], origin == 0, [0])
            else:
                chosen = ranked.take(hopeful[:, group], origin <= group, range(2**group - 1, 2 ** (group + 1) - 1))
            kept += [states[i]._replace(group=group) for i in chosen]
        return kept


class RankedStates:
    """The states after a step, from which those that go on are chosen.

    Args:
        promise: the return that each promises, ``[N]``.
        places: where each is: its observation, ``[N, D]``.
    """

    def __init__(self, promise: NDArray[np.float64], places: NDArray[np.float64]) -> None:
        self.promise, self.places = promise, places
        self.taken = list[int]()
        _, which = np.unique(places, axis=0, return_inverse=True)
        self._which = which.reshape(-1)  # the number of each state's place
        self._lowest = np.full(len(places), np.inf)  # by its number, the lowest promise that was taken in a place

    def take(self, open_: NDArray[np.bool_], among: NDArray[np.bool_], numbers: Iterable[int]) -> list[int]:
        """Fill places of the beam, by the ranking that the number of each says.

        Distances are root mean squares over the features, and they and promises are in standard deviations over the
        states ``among``. A state that is :data:`_ALIKE` one that was taken waits until all others are taken; of states
        in one place only one that promises less than those that were taken is another. The rankings, in which equals
        have the order of their promise, are the lowest promise; the lowest promise less :data:`_DISTANCE` times the
        distance to the nearest that was taken; the largest such distance, of states that are the farthest along one of
        :data:`_DIRECTIONS`, and of the others once all of these are taken.

        Args:
            open_: which may be taken; bool ``[N]``.
            among: which are counted in standard deviations and means, all of ``open_``; bool ``[N]``.
            numbers: of the places, from 0.

        Returns:
            The numbers of the states that were taken, at most as many as places.
        """
        chosen = list[int]()
        open_ = open_ & (self.promise < self._lowest[self._which])
        if not open_.any():
            return chosen
        # places and promises in standard deviations
        scaled = _standardised(self.places, among)
        promise = _standardised(self.promise[:, None], among)[:, 0]
        order = np.argsort(promise, kind="stable")
        counted = order[among[order]]
        # states that lie farthest along some direction
        boundary = np.zeros(len(promise), bool)
        boundary[counted[(scaled[counted] @ _directions(scaled.shape[1])).argmax(0)]] = True
        distance = np.full(len(promise), np.inf)
        for i in self.taken:
            distance = np.minimum(distance, _distance(scaled, i))
        for number in numbers:
            if not open_.any():
                break
            # the ranking of this place
            ranking = _RANKINGS[(number - 1) % len(_RANKINGS)]
            if ranking == "promise":
                score = promise
            elif ranking == "apart":
                score = promise - _DISTANCE * distance
            else:
                score = -distance
            # states like one that was taken wait, and inner ones wait for the boundary
            apart = open_ & (distance > _ALIKE)
            if ranking == "boundary" and (apart & boundary).any():
                apart &= boundary
            score = np.where(apart if apart.any() else open_, score, np.inf)
            i = int(order[score[order].argmin()])
            chosen.append(i)
            self._lowest[self._which[i]] = self.promise[i]
            open_ &= self.promise < self._lowest[self._which]
            distance = np.minimum(distance, _distance(scaled, i))
        self.taken += chosen
        return chosen


@functools.cache
def _directions(features: int) -> NDArray[np.float64]:
    """Fixed random directions, ``[D, N]``."""
    count = max(min(_DIRECTIONS, _NUMBERS // features), 1)
    return np.random.default_rng(0).normal(size=(features, count))


def _standardised(values: NDArray[np.float64], among: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Values ``[N, D]`` in standard deviations from the mean, both over those ``among``, that do not all agree."""
    some = values[among]
    deviation = some.std(0)
    varying = deviation > 0
    return (values[:, varying] - some[:, varying].mean(0)) / deviation[varying] if varying.any() else values[:, :1] * 0


def _distance(scaled: NDArray[np.float64], i: int) -> NDArray[np.float64]:
    """Root mean squares over the features, of the differences from row ``i``; ``[N]``."""
    away: NDArray[np.float64] = np.sqrt(np.square(scaled - scaled[i]).mean(1))
    return away


@dataclass(frozen=True)
class FoundPerturbations:
    """Sequences of perturbed observations, one an episode.

    Attributes:
        threat: plays them, in :func:`adv_wrappers.evaluate` with the same episodes and seed and wherever else an
            environment is reset with one of ``seeds``.
        seeds: the seeds of the episodes that were searched, the first ones of those that were asked for.
        returns: the lowest returns that the search reached, ``below`` where it left an episode; float64 ``[E]``.
        perturbed: how many steps of each are perturbed; int64 ``[E]``.
        nodes: how many steps were simulated; int64 ``[E]``.
    """

    threat: ThreatModel
    seeds: tuple[int, ...]
    returns: NDArray[np.float64]
    perturbed: NDArray[np.int64]
    nodes: NDArray[np.int64]

    def to_dict(self) -> dict[str, Any]:
        """The figures, as values that JSON knows."""
        arrays = {name: getattr(self, name).tolist() for name in ("returns", "perturbed", "nodes")}
        return {"seeds": list(self.seeds), **arrays}


@checked
@holding
def beam_search(
    victim: Victim | str,
    env: AnyEnvironment,
    eps: float | None = None,
    episodes: EpisodeCount = 10,
    seed: Seed = 0,
    width: Positive = WIDTH,
    *,
    scale: Scale = None,
    within: Budget | None = None,
    at: At = None,
    steps: Steps = 8,
    restarts: Positive = 2,
    env_kwargs: EnvKwargs | None = None,
    make: MakeEnv | None = None,
    quantize: bool = True,
    out: str | Path | None = None,
    progress: Progress | None = None,
    on_step: Callable[[int], None] = lambda states: None,
    together: Positive = TOGETHER,
    until: Deadline | None = None,
    below: float = math.inf,
) -> FoundPerturbations:
    """Search whole episodes for perturbed observations that leave a deterministic victim a low return.

    Args:
        victim: the agent, or its reference: it plays its most likely action, one discrete one, and has a gradient.
        env: the id of the environment, or a function that makes one; it is deterministic under its seed.
        eps, scale: arguments of the budget :class:`adv_wrappers.Linf`; or ``within``, the budget itself.
        at: the key of a Dict that is perturbed, or a tuple of keys under one budget; None for all of a Box.
        episodes, seed, env_kwargs, make, quantize: as for :func:`adv_wrappers.evaluate`, whose episodes these are.
        width: how many states of every episode are kept at a step: the largest power of two up to this number, beside
            those of the narrower beams; 1 follows the victim's own way alone. No episode's return is higher with a
            larger one, and the cost is in proportion.
        steps, restarts: of the ascents toward each other action.
        out: a folder for ``beam.json`` and the perturbations. The same call reads what is there, and the threat has a
            JSON form. No other process gets it meanwhile.
        progress: called as ``progress("beam", episodes finished, episodes)``.
        on_step: called after every step of the search with the number of states that go on, of the episodes that are
            searched side by side; what it raises ends the search.
        together: how many episodes are searched side by side: the last digits of what is found depend on it.
        until: when the search stops; None for never. What was found by then is kept: of the episodes whose search
            ended, and of those under way, if they came further or there are no others. So the episodes that withstand
            a search, which takes longest there, are not left out.
        below: the return of an episode under which others are looked for: where no reward is negative, ways that have
            earned as much are left.

    Raises:
        VictimError: for a victim that samples, is recurrent, or has no gradient.
        SpaceError: for actions other than one discrete one, and observations that are no Box and have none ``at``.
        SnapshotError: for an environment that can neither be saved nor replayed (:ref:`replays`).
        BudgetError: for a budget that is unbounded, does not fit, or depends on earlier steps
            (:class:`adv_wrappers.Newest`).
        ThreatError: without a budget, or with two.
        ValueRangeError: for numbers out of range.
        OutputError: for a folder that cannot be written to, or that another process holds.

    >>> from adv_wrappers import evaluate
    >>> from adv_wrappers.evaluation.searches.beam import beam_search
    >>> short = {"max_episode_steps": 50}
    >>> found = beam_search("zoo:cartpole-ppo", "CartPole-v1", 0.05, episodes=2, width=8, env_kwargs=short)
    >>> report = evaluate("zoo:cartpole-ppo", "CartPole-v1", [found.threat], episodes=2, env_kwargs=short)
    >>> report.threats[1]["returns"] == found.returns.tolist()
    True
    """
    width = 1 << width.bit_length() - 1
    budget = needed_budget("a beam search", eps, scale, within, zero=True)
    if budget.frame is not budget:
        depends = f"a beam search takes the budget of a single step, and {budget.name} depends on what was shown before"
        raise BudgetError(depends)
    seeds, victim = draw_seeds(seed, episodes), load_victim(victim)
    environment = Environment.of(env, victim, env_kwargs, make)
    with closing(DeterministicEpisodes(victim, environment)) as played, one_thread():
        # what identifies the search: the same call reads what is there
        attacks = TargetedAttacks(played, budget, steps, restarts, quantize, at)
        settings = {
            "victim": victim.described(),
            "env": json_value(environment.described),
            "within": attacks.threat.budget.to_dict(),
            "episodes": episodes,
            "seed": seed,
            "width": width,
            "steps": steps,
            "restarts": restarts,
            "quantize": quantize,
            "together": together,
            "rankings": list(_RANKINGS),
            "below": None if math.isinf(below) else below,
        }
        if at is not None:
            settings["at"] = at
        folder = Path(out) if out is not None and victim.is_known and environment.is_known else None
        known = None if folder is None else _known(folder, settings, attacks.threat)
        if known is not None and len(known.seeds) == episodes:
            return known
        # a few episodes side by side, until the time is over
        search, done = BeamSearch(played, attacks, width), itertools.count(1)
        on_end = (lambda: None) if progress is None else (lambda: progress("beam", next(done), episodes))
        if progress is not None:  # the first episode may take minutes
            progress("beam", 0, episodes)
        found, least = list[BeamEpisode](), math.inf  # and the steps of the search that took fewest
        for start in range(0, episodes, together):
            part = search.run(seeds[start : start + together], on_end, on_step, until, below)
            over = until is not None and until.passed
            if not over or search.steps > least or not found:
                found += part
            if over:
                break
            least = min(least, search.steps)
    if known is not None and len(known.seeds) >= len(found):  # an earlier search, whose time was over too
        return known
    # what was found, as a threat that plays it
    steps_ = [step for one in found for step in one.record()]
    how = RecordedPerturbations(steps_)
    how = how if out is None else how.save(Path(out) / _RECORD)
    result = FoundPerturbations(
        replace(attacks.threat, how=how),
        tuple(seeds[: len(found)]),
        np.array([below if np.isinf(one.lowest[-1]) else one.lowest[-1] for one in found]),
        np.array([len(one.record()) for one in found]),
        np.array([one.nodes for one in found]),
    )
    if out is not None:
        write_json(Path(out) / BEAM_FILE, {"settings": settings, **result.to_dict()}, allow_nan=True)
    return result


def _known(folder: Path, settings: dict[str, Any], threat: ThreatModel) -> FoundPerturbations | None:
    """What a folder holds of the same search, under the budget of ``threat``, or None."""
    with contextlib.suppress(AdvWrappersError), decoding(folder):
        about = read_result(folder / BEAM_FILE)
        check_same(folder, about["settings"], settings)
        how = RecordedPerturbations(file=str(folder / _RECORD))
        figures = (np.array(about[name]) for name in ("returns", "perturbed", "nodes"))
        return FoundPerturbations(replace(threat, how=how), tuple(about["seeds"]), *figures)
    return None
