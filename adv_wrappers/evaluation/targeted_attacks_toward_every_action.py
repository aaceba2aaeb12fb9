"""Targeted attacks toward every other action: which of them a perturbation can force, and what is shown for each.

For every other action there are ascents of its own (Gowal et al. 2019, "An Alternative Surrogate Loss for PGD-based
Adversarial Testing"). They raise in turn its lead over the best of the others and the logarithm of its probability: the
lead alone has a gradient that turns between two of the others, and misses actions that lie between them (on a linear
victim of three actions 39 of 181, together none). What is found is what a layer would hand out, projected and rounded;
an action counts as forced where the victim plays it there.

Ascents miss an action that is played in a corner of the box alone, or behind a flat part of the network. So what bounds
on the network do not exclude (:mod:`adv_wrappers.victims.possible_actions`), and no ascent reached, is asked for
once more, by short ascents from corners of the box and from random points in it. What they exclude is never asked for.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from adv_wrappers.attacks.gradient_attack import check_steps, pgd
from adv_wrappers.attacks.objectives import CrossEntropy, Margin
from adv_wrappers.attacks.restarts import search
from adv_wrappers.core.budgets import Budget
from adv_wrappers.core.context import Context
from adv_wrappers.core.engine import Engine
from adv_wrappers.core.perturbation import VictimAttack
from adv_wrappers.core.spaces import to_victim
from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.core.types import Array
from adv_wrappers.errors import VictimError
from adv_wrappers.evaluation.tree_search import DeterministicEpisodes
from adv_wrappers.utils.checks import check_integer
from adv_wrappers.victims import Victim
from adv_wrappers.victims.gradients import Gradient, Loss, need_gradient
from adv_wrappers.victims.possible_actions import possible_actions
from adv_wrappers.wrappers.layer import as_float, floated

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
    steps: int = 8
    restarts: int = 2

    def __post_init__(self) -> None:
        check_steps(self.steps, 0.5)
        check_integer("restarts", self.restarts, 1)
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

        ascents = [losses[i % 2] for i in range(self.restarts)]
        return search(context, bound, objective, ascents, climb, restarts=self.restarts, keep="best", rearrange=True)


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

    def of(self, observations: Array) -> Iterator[tuple[int, Array]]:
        """The place of every batch's first observation, and the batch ``[size, *S]``."""
        start = 0
        for size in itertools.chain(self.sizes, itertools.repeat(self.sizes[-1])):
            part = observations[start : start + size]
            if len(part) == 0:
                return
            yield start, part if len(part) == size else np.concatenate([part, np.repeat(part[:1], size - len(part), 0)])
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

    Attributes:
        threat: the first ascents, within the budget as it is for this victim.
        batches: how observations are computed with.
    """

    def __init__(
        self, episodes: DeterministicEpisodes, within: Budget, steps: int, restarts: int, quantize: bool
    ) -> None:
        self.victim, self.count, self.quantize = episodes.victim, episodes.count, quantize
        threat = ThreatModel("observation", TargetedLead(self.victim, steps, restarts), within).resolve(self.victim)
        space, acted = episodes.env.observation_space, episodes.env.action_space
        seen = space if quantize else as_float(space, threat)
        images = len(space.shape or ()) > 1
        self.threat, self.batches = threat, Batches(*(_IMAGES if images else _ROWS))
        further = replace(threat, how=TargetedLead(self.victim, min(_FURTHER_STEPS, steps), max(_FURTHER, restarts)))
        self._engines, self._further = (
            {rows: Engine(one, seen, acted, rows) for rows in self.batches.sizes} for one in (threat, further)
        )
        self._field = threat.check(seen, acted)
        self._bounded = True  # as far as is known

    def begin(self, seed: int) -> None:
        """Episodes begin; ``seed`` seeds the draws of the ascents, which are the same in every row."""
        for engines in (self._engines, self._further):
            for rows, engine in engines.items():
                engine.begin_episode([seed] * rows)

    def received(self, observations: Array) -> Array:
        """Observations ``[B, *S]`` as the layer receives them."""
        return observations if self.quantize else np.asarray(floated(observations))

    def find(self, observations: Array, own: NDArray[np.int64]) -> list[list[ForcedAction]]:
        """The actions that can be forced at the observations of one step, which then is over.

        Args:
            observations: ``[B, *S]``, as the layer receives them.
            own: the victim's own actions, from 0, ``[B]``.
        """
        best: list[dict[int, tuple[float, Array]]] = [{} for _ in own]
        possible = self._possible(observations)  # costs less than one step of an ascent
        pairs = [(i, a) for i, a in np.argwhere(possible).tolist() if a != own[i]]
        self._ask(self._engines, observations, own, pairs, best)
        self._ask(self._further, observations, own, [(i, a) for i, a in pairs if a not in best[i]], best)
        for engine in (*self._engines.values(), *self._further.values()):
            engine.clock.tick()
        return [[ForcedAction(action, shown) for action, (_, shown) in sorted(found.items())] for found in best]

    def _ask(
        self,
        engines: Mapping[int, Engine],
        observations: Array,
        own: NDArray[np.int64],
        pairs: list[tuple[int, int]],
        best: list[dict[int, tuple[float, Array]]],
    ) -> None:
        """Ascend towards actions, each at an observation, and keep what is played with the largest lead so far."""
        asked = np.array([action for _, action in pairs])
        for start, part in self.batches.of(observations[[i for i, _ in pairs]]):
            engine, actions = engines[len(part)], asked[start : start + len(part)]
            engine.set_memory({"action": torch.tensor(np.resize(actions, len(part)))})
            shown: Array = engine.apply(part)
            played, leads = self._played(shown)
            for (i, _), action, lead, one in zip(pairs[start:], played, leads, shown, strict=False):  # the rest is fill
                if lead > 0 and action != own[i] and lead > best[i].get(action, (0.0, one))[0]:
                    best[i][action] = lead, one.copy()

    def _possible(self, observations: Array) -> NDArray[np.bool_]:
        """Which actions bounds do not exclude, ``[B, A]``; all where there are no bounds on the victim's network."""
        victim, budget, found = self.victim, self.threat.budget, np.ones((len(observations), self.count), bool)
        box = budget.grid_box if self._field.grid else budget.box
        for start, part in self.batches.of(observations) if self._bounded else ():
            exact = self._field.exactly(part)
            ends = box(exact, *self._field.widened(exact, part.dtype))
            low, high = (end.expand_as(exact).to(victim.device, victim.dtype) for end in ends)
            try:
                with torch.no_grad():
                    possible = possible_actions(victim, low, high, "interval")
            except VictimError:  # a network that bounds have no rule for
                self._bounded = False
                break
            found[start : start + len(part)] = possible[: len(found) - start].cpu().numpy()
        return found

    def _played(self, shown: Array) -> tuple[list[int], list[float]]:
        """The victim's actions, from 0, and by how much each leads; 0 for less than rounding may change."""
        victim = self.victim
        with torch.no_grad():
            params = victim.params(to_victim(shown, victim.dtype, victim.device, True, space=victim.observation_space))
        victim.check_params(params, len(shown))
        if params.shape[-1] == 1:
            return [0] * len(shown), [0.0] * len(shown)
        top = params.topk(2, -1)
        lead = top.values[:, 0] - top.values[:, 1]
        lead = torch.where(lead > _SURE * params.abs().amax(-1), lead, 0.0)
        return top.indices[:, 0].tolist(), lead.tolist()
