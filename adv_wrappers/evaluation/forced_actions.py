"""Which other actions a perturbation of the observation can force, and at which perturbed observation each is played.

For every other action there are ascents of its own (Gowal et al. 2019, "An Alternative Surrogate Loss for PGD-based
Adversarial Testing"). They raise in turn its lead over the best of the others and the logarithm of its probability: the
lead alone has a gradient that turns between two of the others, and misses actions that lie between them (on a linear
victim of three actions 39 of 181, together none). What is found is what a layer would hand out, projected and rounded;
an action counts as forced where the victim plays it there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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
from adv_wrappers.core.perturbation import Perturbation
from adv_wrappers.core.spaces import to_victim
from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.core.types import Array
from adv_wrappers.evaluation.deterministic_episodes import DeterministicEpisodes
from adv_wrappers.utils.numbers import check_integer
from adv_wrappers.victims import Victim
from adv_wrappers.victims.gradients import Gradient, Loss, need_gradient
from adv_wrappers.wrappers.base import as_float, floated

_ROWS = 512  # observations that are attacked at once; of images 32
_SURE = 1e-5  # lead of a forced action, relative to the largest output: more than another size of the batch changes


@dataclass(frozen=True)
class LeadOfNamed(Perturbation):
    """Bring the victim to the action that the memory names, by the largest lead of several ascents.

    Args:
        victim: with one discrete action, and a gradient.
        steps, restarts: of the ascents, as of :class:`adv_wrappers.attacks.gradient_attack.GradientAttack`.
    """

    name: ClassVar[str] = "lead-of-named"
    search: ClassVar[bool] = True
    needs_victim: ClassVar[bool] = True
    victim: Victim | None = None
    steps: int = 8
    restarts: int = 2

    def __post_init__(self) -> None:
        check_steps(self.steps, 0.5)
        check_integer("restarts", self.restarts, 1)
        need_gradient("a beam search", self.victim)

    def initial_memory(self, rows: int) -> dict[str, Tensor]:
        """Which action is asked for in every row, counted from 0."""
        return {"action": torch.zeros(rows, dtype=torch.int64)}

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


class ForcedActions:
    """Finds, at true observations, the actions that perturbations within a budget force.

    The perturbed observations are made by an engine, as a layer has one: they are what the layer would hand out.

    Args:
        episodes: the victim and the environment.
        within: the budget.
        steps, restarts: of :class:`LeadOfNamed`.
        quantize: as for :func:`adv_wrappers.evaluate`.
    """

    def __init__(
        self, episodes: DeterministicEpisodes, within: Budget, steps: int, restarts: int, quantize: bool
    ) -> None:
        self.victim, self.count, self.quantize = episodes.victim, episodes.count, quantize
        threat = ThreatModel("observation", LeadOfNamed(self.victim, steps, restarts), within).resolve(self.victim)
        seen = episodes.env.observation_space
        self.rows = _ROWS if len(seen.shape or ()) < 2 else _ROWS // 16
        self.engine = Engine(threat, seen if quantize else as_float(seen, threat), episodes.env.action_space, self.rows)
        self.threat = threat

    def begin(self, seed: int) -> None:
        """Episodes begin; ``seed`` seeds the draws of the ascents."""
        self.engine.begin_episode([seed] * self.rows)

    def received(self, observations: Array) -> Array:
        """Observations ``[B, *S]`` as the layer receives them."""
        return observations if self.quantize else np.asarray(floated(observations, None))

    def find(self, observations: Array, own: NDArray[np.int64]) -> list[list[ForcedAction]]:
        """The actions that can be forced at the observations of one step, which then is over.

        Args:
            observations: ``[B, *S]``, as the layer receives them.
            own: the victim's own actions, from 0, ``[B]``.
        """
        pairs = [(i, a) for i, mine in enumerate(own.tolist()) for a in range(self.count) if a != mine]
        best: list[dict[int, tuple[float, Array]]] = [{} for _ in own]
        for start in range(0, len(pairs), self.rows):
            part = pairs[start : start + self.rows]
            shown = self._perturbed(observations[[i for i, _ in part]], [action for _, action in part])
            played, leads = self._played(shown)
            for (i, _), action, lead, one in zip(part, played, leads, shown, strict=True):
                if lead > 0 and action != own[i] and lead > best[i].get(action, (0.0, one))[0]:
                    best[i][action] = lead, one.copy()
        self.engine.clock.tick()
        return [[ForcedAction(action, shown) for action, (_, shown) in sorted(found.items())] for found in best]

    def _perturbed(self, observations: Array, actions: list[int]) -> Array:
        """One perturbed observation for each action that is asked for, of at most ``rows``."""
        count = len(actions)
        rest = self.rows - count
        whole = np.concatenate([observations, np.repeat(observations[:1], rest, 0)])
        self.engine.set_memory({"action": torch.tensor(actions + [0] * rest)})
        shown: Array = self.engine.apply(whole, np.arange(self.rows) < count)
        return shown[:count]

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
