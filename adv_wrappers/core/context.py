"""A victim as seen from one step: attacks never handle a recurrent state or the parts of an observation that stay.

The context: what an adversary may know at this step, and the tools it may use; computed when asked for.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from adv_wrappers.core import rng
from adv_wrappers.core.budgets import Budget
from adv_wrappers.core.spaces import finite
from adv_wrappers.errors import VictimError


class Bound:
    """A victim as seen from one step: its recurrent state and the parts of the observation that stay are filled in."""

    def __init__(
        self, victim: Any, state: Any, fill: Callable[[Tensor], Any] | None, observation: Any, look: bool = True
    ) -> None:  # fmt: skip
        self.victim, self._state, self._fill, self._observation = victim, state, fill, observation
        self.look = look  # whether answers are looked at

    def full(self, x: Tensor | None) -> Any:
        """The whole observation with ``x`` where this layer perturbs; None for the observation as it was received."""
        if x is None:
            return self._observation
        return x if self._fill is None else self._fill(x)

    def params(self, x: Tensor | None = None) -> Tensor:
        """Parameters of the action distribution ``[B, K]`` at ``x``, or at the observation as this layer got it.

        Raises:
            VictimError: for parameters of another shape, and for such that are not finite, where they are looked at:
                on the host it costs next to nothing, elsewhere it would wait for the device.
        """
        params: Tensor = self.victim.params(self.full(x), self._state)
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
        values: Tensor | None = self.victim.q(self.full(x), act, self._state)
        if values is not None and self.look and not finite(values.detach()):
            raise VictimError(f"the Q-values of {self.victim!r} are not finite: {values.detach()}")
        return values

    def value(self, x: Tensor | None = None) -> Tensor | None:
        """State value ``[B]``; None where the victim has none.

        Raises:
            VictimError: where they are looked at, for values that are not finite.
        """
        values: Tensor | None = self.victim.value(self.full(x), self._state)
        if values is not None and self.look and not finite(values.detach()):
            raise VictimError(f"the state values of {self.victim!r} are not finite: {values.detach()}")
        return values

    def gradient(self, loss: Callable[[Tensor], Tensor], precision: str | None = None) -> Callable[[Tensor], Tensor]:
        """``x -> d loss(params(x)).sum() / dx``, ``[B, *S]``; no gradient of the weights is ever computed.

        ``precision`` is None, ``"bf16"`` or ``"tf32"``, as :meth:`adv_wrappers.Victim.gradient` takes it.
        """
        lower = {} if precision is None else {"precision": precision}
        return self.victim.gradient(loss, self._state, self._fill, **lower)  # type: ignore[no-any-return]


_TOGETHER = 1 << 15  # elements that are drawn at once

Leaves = dict[str, Tensor]
Box = tuple[Tensor, Tensor]
Layout = Callable[[Tensor], Tensor]


class Context:
    """One step of one layer, for the rows that are struck.

    Attributes:
        x: the true values ``[B, *S]``, in the dtype that is computed in.
        low, high: the box of the budget around them, ``[B, *S]``.
        space: bounds of the space itself, ``[*S]`` twice.
        budget: the budget; ``grid`` says whether the space is an integer grid.
        t, spent: step and strikes of the episode, an integer for a single environment and else ``[B]``.
        key: the layer's int64 keys ``[B]`` of this step; ``episode_key`` are those of the whole episode.
        observation: for an observation layer what it received, for an action layer what the agent acted on.
        memory: what the perturbation keeps a row, or None.
        mask: action mask, bool ``[B, A]``, where the environment gave one.
        look: whether the answers of victims are looked at, which waits for their device; the engine says so on the
            host.
    """

    look = False

    def __init__(
        self, x: Tensor, box: Box | Callable[[], Box], space: Box, budget: Budget, grid: bool,
        t: Any, spent: Any, key: Callable[[], Tensor], observation: Any, states: Callable[[Any], Any],
        fill: Callable[[Tensor], Any] | None, memory: Leaves | None = None, mask: Tensor | None = None,
        episode_key: Callable[[], Tensor] | None = None,
    ) -> None:  # fmt: skip
        self.x, self._box, self.space, self.budget, self.grid = x, box, space, budget, grid
        self.t, self.spent, self.observation, self.memory, self.mask = t, spent, observation, memory, mask
        self._key, self._episode_key, self._draws = key, episode_key or key, 0
        self._keys: Tensor | None = None
        self._states, self._fill, self._shape, self._dtype = states, fill, tuple(x.shape[1:]), x.dtype
        self._unit: float | Tensor | None = None
        self._layout: Layout | None = None

    @property
    def box(self) -> Box:
        """Smallest box that contains the budget's set: lower and upper bounds ``[B, *S]``."""
        if callable(self._box):
            self._box = self._box()
        return self._box

    @property
    def low(self) -> Tensor:
        """Lower bounds of the box."""
        return self.box[0]

    @property
    def high(self) -> Tensor:
        """Upper bounds of the box."""
        return self.box[1]

    def laid_out(self, layout: Layout) -> Context:
        """The same with ``x``, the box and every batch that is drawn in another layout; the rest stays as it is.

        Args:
            layout: moves the elements of a row without changing them. The budget must be ``elementwise``.
        """
        other = copy.copy(self)
        other.__class__ = _Laid
        sides = list(self._box() if callable(self._box) else self._box)  # let go one by one: not held in two layouts
        other._box = (layout(sides.pop(0)), layout(sides.pop(0)))
        other._layout = layout
        other.__dict__["_origin"] = other.__dict__.pop("x")
        return other

    def _lay(self, numbers: Tensor) -> Tensor:
        return numbers if self._layout is None else self._layout(numbers)

    @property
    def key(self) -> Tensor:
        """Keys of the rows, int64 ``[B]``: a function of (seed, episode, t, layer stream)."""
        if self._keys is None:
            self._keys = self._key()
        return self._keys

    @property
    def episode_key(self) -> Tensor:
        """Keys of the rows that are the same throughout an episode, int64 ``[B]``: (seed, episode, layer stream)."""
        return self._episode_key()

    def _next(self) -> Tensor:
        self._draws += 1
        return rng.fold(self.key, self._draws)  # type: ignore[no-any-return]

    def uniform(self) -> Tensor:
        """Numbers in [0, 1) of the shape and dtype of ``x``; every call is a new draw."""
        return self._lay(rng.uniform(self._next(), self._shape, self._dtype))

    def normal(self) -> Tensor:
        """Standard normal numbers of the shape and dtype of ``x``."""
        return self._lay(rng.normal(self._next(), self._shape, self._dtype))

    def normals(self, count: int) -> Iterator[Tensor]:
        """``count`` independent draws, one after the other; small batches have them for the price of one."""
        key, size = self._next(), max(math.prod(self._shape), 1)
        together = min(max(_TOGETHER // (size * max(len(key), 1)), 1), count)
        for i in range(0, count, together):
            part = min(together, count - i)
            draws = rng.normal(key, (part, *self._shape), self._dtype, i * size)
            yield from (self._lay(draw) for draw in draws.unbind(1))

    def signs(self) -> Tensor:
        """Fair signs of the shape and dtype of ``x``."""
        return self._lay(rng.signs(self._next(), self._shape, self._dtype))

    def numbers(self, count: int) -> Tensor:
        """``count`` numbers in [0, 1) a row, ``[B, count]``, in the dtype of ``x``; every call is a new draw."""
        return rng.uniform(self._next(), (count,), self._dtype)

    def bind(self, victim: Any) -> Bound:
        """The victim at this step: attacks never see a recurrent state."""
        return Bound(victim, self._states(victim), self._fill, self.observation, self.look)

    def project(self, y: Tensor) -> Tensor:
        """``y`` drawn back into the budget (and onto the grid)."""
        return self.budget.project(y, self.x, self.low, self.high, self.grid)

    def draw(self) -> Tensor:
        """A random point of the budget."""
        return self.budget.draw(self.x, self.low, self.high, self, self.grid)

    def ascend(self, y: Tensor, gradient: Tensor, fraction: float | Tensor, spend: bool = False) -> Tensor:
        """``y`` moved up the gradient by ``fraction`` of the budget's radius and projected.

        ``fraction`` is a number, or one a row, ``[B, 1, ...]``. On an integer grid a step is at least one level: a
        tenth of eps would be rounded away. ``spend`` allows to write the result over the gradient.
        """
        if self._unit is None:
            self._unit = self.budget.unit(self.low, self.high)
        step = fraction * self._unit
        if self.grid:
            step = step.clamp(min=1.0) if isinstance(step, Tensor) else max(step, 1.0)
        # in another layout the true values are not kept, and nobody asks for them: a radius of zero stays where it is
        x = self.x if self._layout is None else y
        return self.budget.ascend(y, gradient, step, x, *self.box, self.grid, spend)

    def noise(self, kind: str) -> Tensor:
        """A random point of the budget: ``uniform`` in it, ``sign`` (the radius up or down) or ``gaussian``.

        Gaussian noise has a standard deviation of one radius, and is drawn back into the budget.
        """
        if kind == "uniform":
            return self.draw()
        if kind == "sign":
            return self.ascend(self.x, self.signs(), 1.0)
        return self.project(self.x + self.budget.spread(self.x, self.low, self.high) * self.normal())


class _Laid(Context):
    """A context in another layout; its true values are laid out when they are asked for, and not held."""

    _origin: Tensor

    @property
    def x(self) -> Tensor:  # type: ignore[override]
        """The true values."""
        return self._lay(self._origin)


class Deferred(Context):
    """A context that is made only if it is asked for more than keys: transforms of whole images need no box.

    Args:
        whole: makes the whole context.
        key, episode_key: as in :class:`Context`.
    """

    def __init__(
        self, whole: Callable[[], Context], key: Callable[[], Tensor], episode_key: Callable[[], Tensor]
    ) -> None:
        self._whole, self._key, self._episode_key = whole, key, episode_key
        self._keys, self._draws = None, 0

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "_whole" not in self.__dict__:
            raise AttributeError(name)
        self.__dict__ = {**vars(self._whole()), **self.__dict__}
        if name not in self.__dict__:
            raise AttributeError(f"a context has no attribute {name!r}")
        return self.__dict__[name]
