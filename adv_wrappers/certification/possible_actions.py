"""The possible actions: what a victim may do where its observations are perturbed within a budget.

The box around an observation is made by the functions by which the engine bounds an attack, in the same dtype, and is
then cast as the victim casts what it observes. Casting keeps the order of numbers, so the box holds every observation
that an attack can show to the victim.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from torch import Tensor

from adv_wrappers.core.budgets.budget import Budget, Linf, Valid
from adv_wrappers.core.budgets.frame_stack import Newest
from adv_wrappers.core.spaces import Field, finite, has_images, to_victim
from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.core.types import Array, Batch, Space
from adv_wrappers.errors import BudgetError, SpaceError, ValueRangeError
from adv_wrappers.victims.certified_actions import Method, possible_actions
from adv_wrappers.victims.victim import Victim
from adv_wrappers.wrappers.layer import as_float, floated

_ROWS = 256  # boxes whose bounds are computed at once; of images 8


def observation_box(space: Space, budget: Budget, observations: Batch) -> tuple[Tensor, Tensor]:
    """The smallest box around observations that holds whatever an attack within a budget can make of them.

    Args:
        space: the observation space, a Box. Where it holds integers, the box is rounded inwards to whole numbers.
        budget: :class:`adv_wrappers.Linf` or, where the space is bounded, :class:`adv_wrappers.Valid`, of the whole
            observation or, as :class:`adv_wrappers.Newest`, of the newest frame of a stack. Under ``Newest`` the victim
            sees older frames as they were shown, each within the budget of a frame that was new, so the box lets all
            of them vary; it holds more than one attack can show.
        observations: ``[B, *S]``, finite.

    Returns:
        Lower and upper bounds ``[B, *S]``, in the float dtype in which the engine projects an attack.

    Raises:
        BudgetError: for a budget that is no box, is unbounded, does not fit the space, or is below one grey level.
        SpaceError: for a space other than a Box of numbers.
        ValueRangeError: for observations that are not finite.

    >>> import numpy as np
    >>> from gymnasium import spaces
    >>> from adv_wrappers import Linf
    >>> from adv_wrappers.certification.possible_actions import observation_box
    >>> low, high = observation_box(spaces.Box(0, 255, (2,), np.uint8), Linf(1.5), np.array([[0, 9]], np.uint8))
    >>> low.tolist(), high.tolist()
    ([[0.0, 8.0]], [[1.0, 10.0]])
    """
    return ObservationBoxes(space, budget)(observations)


class ObservationBoxes:
    """Makes the boxes of :func:`observation_box` for one space and budget, which are checked once."""

    def __init__(self, space: Space, budget: Budget) -> None:
        frame = budget.frame
        if not isinstance(frame, (Linf, Valid)):
            raise BudgetError(
                f"a certificate needs a budget that is a box, Linf(eps) or Valid(), of an observation or within "
                f"Newest(...), got {budget!r}; the box of Linf(eps) holds the ball of L2(eps)"
            )
        if not isinstance(space, spaces.Box):
            raise SpaceError(f"a certificate needs observations that are one Box, this environment has {space}")
        self.field: Field = ThreatModel("observation", _unchanged, budget).check(space, spaces.Discrete(1))
        if not frame.bounded and not self.field.bounded:
            raise BudgetError(f"{frame!r} is unbounded in {space}: give a budget such as Linf(eps)")
        self._frame = frame
        self._axis = 0
        self._size = 0
        self._frames = 1
        # older frames of a stack were the newest once, and may have been perturbed then
        if isinstance(budget, Newest):
            axis = budget.along(self.field.shape)
            self._axis, self._size = axis + 1 if axis >= 0 else axis, budget.size
            if not self._alike(axis):
                self._frames = self.field.shape[axis] // budget.size

    def __call__(self, observations: Batch) -> tuple[Tensor, Tensor]:
        """As :func:`observation_box`."""
        exact = self.field.exactly(observations)
        if not finite(exact):
            raise ValueRangeError(f"the environment returned an observation that is not finite: {observations}")
        low, high = self._box(exact, observations)
        for places in range(1, self._frames):
            # a frame that was new some places further on was perturbed as that place allows
            move, kept = places * self._size, exact.shape[self._axis] - places * self._size
            sides = self._box(torch.roll(exact, move, self._axis), observations)
            least, most = (torch.roll(side, -move, self._axis).narrow(self._axis, 0, kept) for side in sides)
            torch.minimum(low.narrow(self._axis, 0, kept), least, out=low.narrow(self._axis, 0, kept))
            torch.maximum(high.narrow(self._axis, 0, kept), most, out=high.narrow(self._axis, 0, kept))
        return low, high

    def _box(self, exact: Tensor, observations: Batch) -> tuple[Tensor, Tensor]:
        low, high = self._frame.box_in(self.field, exact, observations.dtype)
        return low.expand_as(exact).clone(), high.expand_as(exact).clone()

    def _alike(self, axis: int) -> bool:
        """Whether every place of a stack has the same budget and the same bounds."""
        sides = (np.moveaxis(side, axis, 0) for side in (self.field.low, self.field.high))
        return self._frame.elementwise and all((side[self._size :] == side[: -self._size]).all() for side in sides)


def _unchanged(x: Tensor, context: object) -> Tensor:
    return x


class PossibleActions:
    """The actions that attacks on observations within a budget may bring a victim to.

    Args:
        victim: the agent, which plays its mode of discrete actions.
        space: the observation space of the environment.
        budget: as for :func:`observation_box`.
        method: of the bounds on the victim's outputs, as for
            :func:`adv_wrappers.victims.certified_actions.possible_actions`.
        quantize: False lets integer observations vary as floats, as attacks with ``quantize=False`` do.

    Attributes:
        budget: the budget, with the victim's own unit filled in.

    Raises:
        AdvWrappersError: one of its kinds, as :func:`observation_box`.
    """

    def __init__(self, victim: Victim, space: Space, budget: Budget, method: Method, quantize: bool = True) -> None:
        self.victim = victim
        self.method = method
        self.quantize = quantize
        self.budget = budget.resolve(victim)
        if not quantize and isinstance(space, spaces.Box):
            space = as_float(space, ThreatModel("observation", _unchanged, self.budget))
        self.boxes = ObservationBoxes(space, self.budget)
        self._rows = 8 if has_images(space) else _ROWS

    def outputs(self, observations: Array) -> Tensor:
        """What the victim computes of observations ``[B, *S]`` as they are, ``[B, A]``: Q-values or logits."""
        victim = self.victim
        with torch.no_grad():
            params = victim.params(to_victim(observations, victim.dtype, victim.device, True), None)
        victim.check_params(params, len(observations))
        return params

    def at(self, observations: Array) -> tuple[NDArray[np.bool_], Tensor]:
        """Which actions an attack may bring about, and the victim's outputs without one.

        Args:
            observations: true observations ``[B, *S]``, in the dtype of their space.

        Returns:
            Bool ``[B, A]``, True for every action that the victim takes at some observation of the box, and perhaps for
            others; and its outputs ``[B, A]``. The victim's own action is always possible.
        """
        found, outputs = list[NDArray[np.bool_]](), list[Tensor]()
        for part in self._parts(observations):
            own = self.outputs(part)
            # everything that may be shown, as the victim sees it
            low, high = self.boxes(part if self.quantize else floated(part))
            low, high = (side.to(self.victim.device, self.victim.dtype) for side in (low, high))
            with torch.no_grad():
                possible = possible_actions(self.victim, low, high, self.method)
            possible = possible.scatter(1, own.argmax(-1, keepdim=True), True)
            found.append(possible.cpu().numpy())
            outputs.append(own)
        return np.concatenate(found), torch.cat(outputs)

    def _parts(self, observations: Array) -> Iterator[Array]:
        for start in range(0, len(observations), self._rows):
            yield observations[start : start + self._rows]
