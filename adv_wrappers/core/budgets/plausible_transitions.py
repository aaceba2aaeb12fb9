"""Plausible perturbations: what is shown could have followed from what was shown before.

An agent, or a guard beside it, that knows how its environment moves can compare every observation with what a model of
the dynamics predicts from the one before and the action, and raise an alarm where the two are far apart. Franzmeyer et
al. 2024 ask for attacks that cannot be told from an environment without any. This is less: it holds an attack to one
step of one model. The test is that of every feature by itself, in standard deviations of the model's own errors: so
the set is the meeting of two boxes, attacks search it, and the projection onto it is exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from adv_wrappers.core.budgets.budget import LastStep, Linf, OfFrames, TensorBox, nearest_part
from adv_wrappers.core.types import Array, Space
from adv_wrappers.errors import BudgetError
from adv_wrappers.utils.validation import NotNegative


class Predicts(Protocol):
    """A model of the dynamics, as :class:`adv_wrappers.victims.auxiliary_networks.Dynamics` is one."""

    @property
    def features(self) -> int: ...
    @property
    def actions(self) -> int: ...
    @property
    def error_std(self) -> Tensor: ...
    def step(self, obs: Tensor, act: Tensor) -> Tensor: ...


@dataclass(frozen=True)
class Plausible(OfFrames):
    """``within``, and within ``distance`` of what a model predicts from the last observation shown and the last action.

    Every feature is compared by itself, in the unit of the model's errors on steps that were held out. The first
    observation of an episode is free, and a step that is not attacked shows the truth. Where nothing within ``within``
    is plausible, as after a true observation that the model did not expect, what of it is nearest to the prediction is
    shown. The action is the one that came to this layer: the agent's own, unless a layer around it changes actions.

    Args:
        within: the budget of a single step, an :class:`Linf` on whole observations ``[n]``.
        model: of the dynamics, from :func:`adv_wrappers.train_dynamics`, which makes those of continuous actions. One
            of Discrete actions takes them one-hot. In texts ``card:FOLDER``.
        distance: how far a feature may be from its prediction, in standard deviations of the model's error
            (``Dynamics.error_std``).

    Raises:
        BudgetError: for a ``within`` that is no Linf, what is no model, a distance that is no number or negative; and
            at wrapping for what is no observation ``[n]`` of the model, on actions, and on integer spaces.
        CardError: for a model that does not say how large its errors are.
    """

    name: ClassVar[str] = "plausible"
    within: Linf
    model: Any
    distance: NotNegative

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.within, Linf):
            raise BudgetError(f"Plausible needs an Linf, as in Plausible(Linf(0.1), model, 3), got {self.within!r:.80}")
        if not hasattr(self.model, "error_std"):
            raise BudgetError(f"Plausible needs a model of the dynamics, of train_dynamics, got {self.model!r:.80}")

    @property
    def own_words(self) -> dict[str, Any]:
        return {"plausible": self.distance, "model": self.model}

    def check(self, low: Array, high: Array, grid: bool) -> None:
        self.within.check(low, high, grid)
        if grid or low.shape != (self.model.features,):
            raise BudgetError(
                f"the model predicts observations of {self.model.features} floats, what is perturbed here is "
                f"{'an integer space' if grid else 'a space'} of shape {low.shape}"
            )

    def check_actions(self, space: Space) -> None:
        """Raise :class:`BudgetError` unless the model takes actions of this space."""
        if _numbers(space) != self.model.actions:
            raise BudgetError(f"the model takes actions of {self.model.actions} numbers, this environment has {space}")

    def last_step(self, before: LastStep | None) -> LastStep:
        return LastShown(self, before)


def _numbers(space: Space) -> int | None:
    """How many numbers a model takes for an action, one for each value of a Discrete space."""
    if isinstance(space, spaces.Discrete):
        return int(space.n)
    return space.shape[0] if isinstance(space, spaces.Box) and len(space.shape) == 1 else None


class LastShown(LastStep):
    """What was shown at the last step of every row, ``[B, n]``, and the action that followed, as a model takes it."""

    def __init__(self, budget: Plausible, before: LastStep | None = None) -> None:
        super().__init__(before)
        self._model: Predicts = budget.model
        self._distance = budget.distance

    def act(self, action: Any, space: Space) -> None:
        if self.leaves is not None:
            shown, _, known = self.leaves
            self.leaves = shown, action_vectors(action, space).to(shown.device), known

    def after(self, true: Tensor, shown: Tensor) -> tuple[Tensor, ...]:
        return shown, torch.zeros(len(shown), self._model.actions, dtype=torch.float64, device=shown.device)

    def meet(self, x: Tensor, leaves: Sequence[Tensor], box: TensorBox, grid: bool) -> TensorBox:
        shown, acted, known = leaves
        # computed in float64 and rounded to float32, a prediction is the same alone and in a batch
        near = self._model.step(shown.double(), acted.double()).float().to(x.dtype)
        near = torch.where(torch.isfinite(near), near, x)
        reach = (self._distance * self._model.error_std).to(near)
        lower, upper = near - reach, near + reach
        return nearest_part((lower, upper), box, known)


def action_vectors(action: Any, space: Space) -> Tensor:
    """Actions of a batch, or one, as a model of the dynamics takes them: float64 ``[B, k]``, one-hot for Discrete."""
    values = action if isinstance(action, Tensor) else torch.as_tensor(np.asarray(action))
    if isinstance(space, spaces.Discrete):
        return torch.nn.functional.one_hot(values.reshape(-1).long() - int(space.start), int(space.n)).double()
    return values.reshape(-1, *(space.shape or ())).double()
