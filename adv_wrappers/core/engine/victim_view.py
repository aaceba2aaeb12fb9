"""A victim as it is seen from one step: attacks handle no recurrent state, nor parts of an observation that stay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from adv_wrappers.core.spaces import finite
from adv_wrappers.errors import VictimError


class VictimView:
    """A victim at one step: its recurrent state and the parts of the observation that stay are filled in.

    Args:
        victim: the victim.
        state: its hidden state, None for a feed-forward one.
        fill: completes a perturbed part to a whole observation; None where the part is all of it.
        observation: what the layer received.
        look: whether answers are checked for numbers that are not finite, which waits for the victim's device.
    """

    def __init__(
        self,
        victim: Any,
        state: Any,
        fill: Callable[[Tensor], Any] | None,
        observation: Any,
        look: bool = True,
    ) -> None:
        self.victim = victim
        self._state = state
        self._fill = fill
        self._observation = observation
        self.look = look

    def full(self, x: Tensor | None) -> Any:
        """The whole observation with ``x`` where this layer perturbs; None for the observation as it was received."""
        if x is None:
            return self._observation
        return x if self._fill is None else self._fill(x)

    def params(self, x: Tensor | None = None) -> Tensor:
        """Parameters of the action distribution ``[B, K]`` at ``x``, or at the observation as this layer received it.

        Raises:
            VictimError: for parameters of another shape, and for such that are not finite, where they are looked at:
                on the host it costs next to nothing, elsewhere it would wait for the device.
        """
        whole = x if x is not None and self._fill is None else self.full(x)
        params: Tensor = self.victim.params(whole, self._state)
        check = getattr(self.victim, "check_params", None)
        if check is not None:
            check(params, None if x is None else len(x), self.look)
        return params

    def policy(self, x: Tensor | None = None) -> torch.distributions.Distribution:
        """Action distribution at ``x``."""
        return self.victim.policy(self.full(x), self._state)  # type: ignore[no-any-return]

    def q(self, x: Tensor | None = None, act: Tensor | None = None) -> Tensor | None:
        """``[B, A]`` for discrete actions, ``[B]`` with ``act``; None where the victim has no Q.

        Raises:
            VictimError: where they are looked at, for values that are not finite.
        """
        return self._looked_at("Q-values", self.victim.q(self.full(x), act, self._state))

    def value(self, x: Tensor | None = None) -> Tensor | None:
        """State value ``[B]``; None where the victim has none.

        Raises:
            VictimError: where they are looked at, for values that are not finite.
        """
        return self._looked_at("state values", self.victim.value(self.full(x), self._state))

    def _looked_at(self, what: str, values: Tensor | None) -> Tensor | None:
        if values is not None and self.look and not finite(values.detach()):
            raise VictimError(f"the {what} of {self.victim!r} are not finite: {values.detach()}")
        return values

    def gradient(self, loss: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        """``x -> d loss(params(x)).sum() / dx``, ``[B, *S]``; no gradient of the weights is ever computed."""
        return self.victim.gradient(loss, self._state, self._fill)  # type: ignore[no-any-return]
