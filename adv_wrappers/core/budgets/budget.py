"""Budgets: the feasible set around the true value, as a box to search, a projection, and a direction of ascent.

``Valid`` is the space itself; ``L2`` bounds how far a row may move in the Euclidean norm, ``Linf`` how far each of
its elements may. Budgets of few elements are at the end.

Every function takes batches ``[B, *S]`` of floats in the units of the space; ``low`` and ``high`` are the space's own
bounds ``[*S]``, already widened by the engine to contain the true value. Batches are tensors; those of budgets that
declare ``arrays = True`` may be numpy arrays. On an integer grid the engine passes ``grid=True``: boxes are rounded
inwards, values to the nearest integer.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from adv_wrappers.core.arrays import (
    ROUNDING,
    Scale,
    around,
    broad,
    clamp,
    distance,
    flat_rows,
    half_and_width,
    largest,
    library,
    radius,
    round_,
    row_norms,
    shrunk,
    whole_levels,
    wide,
)
from adv_wrappers.core.rng import Draws
from adv_wrappers.core.serialization import Value
from adv_wrappers.core.spaces import Field
from adv_wrappers.core.types import Array, Batch, DType, Flags, Space, VictimLike
from adv_wrappers.errors import BudgetError
from adv_wrappers.utils.checks import integer
from adv_wrappers.utils.frozen import set_fields
from adv_wrappers.utils.validation import Expected, Limits, check_fields

# ----------------------------------------------------------------------------------------------------------------------
# What a layer keeps of its last step, for budgets in which a step depends on the one before.
# ----------------------------------------------------------------------------------------------------------------------


TensorBox = tuple[Tensor, Tensor]


class LastStep:
    """The last step of every row, in one stack of a layer.

    Attributes:
        leaves: tensors ``[B, ...]``, in an order of the subclass, the last of them bool ``[B]``: the rows that had a
            step in this episode. None before the first step.
    """

    leaves: tuple[Tensor, ...] | None = None

    def __init__(self, before: LastStep | None = None) -> None:
        """Begin with what ``before`` kept: that of another budget, which the episode has had until now."""
        if before is not None and type(before) is type(self):
            self.__dict__.update(before.__dict__)

    def act(self, action: Any, space: Space) -> None:
        """An action of this space came in, of all rows."""

    def after(self, true: Tensor, shown: Tensor) -> tuple[Tensor, ...]:
        """What is kept of a step, without the last of the leaves.

        Args:
            true, shown: the value of the step as it came in and as it was passed on, ``[B, *S]``.
        """
        raise NotImplementedError

    def meet(self, x: Tensor, leaves: Sequence[Tensor], box: TensorBox, grid: bool) -> TensorBox:
        """The part of a box that the last step allows, or what of the box is nearest to that.

        Args:
            x: true values ``[B, *S]``.
            leaves: those of these rows.
            box: its bounds ``[B, *S]``, of the budget of a single step met with the space.
            grid: whether values are whole numbers.
        """
        raise NotImplementedError

    def remember(self, true: Tensor, shown: Tensor, rows: Flags = True) -> None:
        """Keep a step in the rows of a mask (bool ``[B]``; True for all)."""
        new = self.after(true, shown)
        mask = torch.as_tensor(rows, device=shown.device).expand(len(shown))
        if rows is True:
            self.leaves = *new, mask
            return
        # rows that are not in the mask keep what they had
        if self.leaves is None:
            self.leaves = *(torch.zeros_like(leaf) for leaf in new), torch.zeros_like(mask)
        *old, known = self.leaves
        self.leaves = *(torch.where(broad(mask, b), b, a) for a, b in zip(old, new, strict=True)), known | mask

    def forget(self, rows: Flags | None = None) -> None:
        """A new episode begins in the rows of a mask; None for all."""
        if rows is None:
            self.leaves = None
        elif self.leaves is not None:
            *old, known = self.leaves
            self.leaves = *old, known & ~torch.as_tensor(rows, device=known.device)


def nearest_part(near: TensorBox, box: TensorBox, known: Tensor) -> TensorBox:
    """``box`` met with ``near`` in the rows that are known; where the two do not meet, what of ``box`` is nearest."""
    low, high = box
    lower, upper = (torch.clamp(end, low, high) for end in near)
    free = ~broad(known, low)
    return torch.where(free, low, lower), torch.where(free, high, upper)


class Feasible(NamedTuple):
    """The set of a budget at one step: true values ``[B, *S]``, the bounds of its box, and whether it is on a grid."""

    x: Tensor
    low: Tensor
    high: Tensor
    grid: bool


class Budget(Value):
    """The feasible set around a true value."""

    bounded: ClassVar[bool] = True  # whether the set is bounded even where the space is not
    measured: ClassVar[bool] = False  # whether it measures distances, which choices do not have
    # whether boxes, projections and draws are computed on arrays as on tensors, with the same bits; not inherited
    arrays: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_fields(self, BudgetError)

    @property
    def elementwise(self) -> bool:
        """Whether an element's part of every function depends on that element alone, and not on where it stands."""
        return False

    @property
    def is_zero(self) -> bool:
        """Whether the true value is all that it allows: under it every attack is the identity."""
        return False

    @property
    def words(self) -> dict[str, Any] | None:
        """The arguments of a threat's text that stand for it (``eps``, ``norm``, ...); None where none do."""
        return None

    @property
    def frame(self) -> Budget:
        """The budget of a frame at a single step: the budget itself without frames, and whatever was before."""
        return self

    def resolve(self, victim: VictimLike | None) -> Budget:
        """This budget with what it borrows from the victim (its unit) filled in."""
        return self

    def scaled(self, share: float, grid: bool = False) -> Budget:
        """The budget with ``share`` of its radius: of L0, which has none, with that share of its elements, rounded.

        Args:
            share: in [0, 1]; at 1 the budget itself.
            grid: whether it is for an integer grid, where a radius below one level is 0, as nothing could change.

        Raises:
            BudgetError: for a budget without a radius.
        """
        raise BudgetError(f"{self!r:.80} has no radius to take a share of, as Linf(eps), L2(eps) and L0(k) have")

    def check(self, low: Array, high: Array, grid: bool) -> None:
        """Raise :class:`BudgetError` if the budget makes no sense on a space with these bounds."""

    def last_step(self, before: LastStep | None) -> LastStep | None:
        """What a layer keeps of its last step, where the budget depends on that; None where it does not.

        Args:
            before: that of another budget, which the episode has had until now.
        """
        return None

    def box(self, x: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        """Smallest box that contains the feasible set: what an attack searches, ``[B, *S]`` twice."""
        raise NotImplementedError

    def grid_box(self, x: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        """:meth:`box` on an integer grid: around whole ``x``, rounded inwards to whole numbers."""
        xp, (lower, upper) = library(x), self.box(x, low, high)
        return xp.ceil(lower), xp.floor(upper)

    def box_in(self, field: Field, x: Batch, dtype: DType) -> tuple[Any, Any]:
        """The box around true values ``x`` of a field, which came in ``dtype``; its space is widened to hold them."""
        low, high = field.widened(x, dtype)
        return (self.grid_box if field.grid else self.box)(x, low, high)  # type: ignore[arg-type]  # or arrays

    def project(self, y: Tensor, x: Tensor, low: Tensor, high: Tensor, grid: bool = False) -> Tensor:
        """A feasible point for every row of ``y``; ``low`` and ``high`` are those of :meth:`box`."""
        y = clamp(y, low, high)
        return round_(y) if grid else y

    def direction(self, gradient: Tensor) -> Tensor:
        """Steepest ascent for this geometry, of length one in the budget's unit."""
        return gradient.sign()

    def in_units(self, gradient: Tensor) -> Tensor:
        """The gradient with respect to features counted in the budget's own unit (its scale)."""
        return gradient

    def unit(self, low: Tensor, high: Tensor) -> float | Tensor:
        """What a step of length one means: the radius, or half the box where the space alone bounds the set."""
        return (high - low) / 2

    def spread(self, x: Tensor, low: Tensor, high: Tensor) -> float | Tensor:
        """Standard deviation of Gaussian noise, a feature: one radius."""
        return self.unit(low, high)

    def move(self, y: Tensor, gradient: Tensor, length: float | Tensor, grid: bool = False) -> Tensor:
        """``y`` moved by ``length`` (in the budget's unit, a number or ``[B, *S]``) along :meth:`direction`."""
        direction = self.direction(gradient)
        return y + length * direction if isinstance(length, Tensor) else torch.add(y, direction, alpha=length)

    def ascend(
        self, y: Tensor, gradient: Tensor, length: float | Tensor, inside: Feasible, spend: bool = False
    ) -> Tensor:
        """:meth:`move`, then :meth:`project`; ``spend`` allows to write over the gradient."""
        return self.project(self.move(y, gradient, length, inside.grid), *inside)

    def draw_around(self, x: Tensor, draws: Draws, grid: bool = False) -> Tensor | None:
        """:meth:`draw` before it is met with the space; None for a budget whose draws need the box."""
        return None

    def surely_inside(self, y: Array, x: Array, low: Array, high: Array, grid: bool = False) -> bool:
        """Whether ``y`` is found, without a box, to be finite and its own projection in a space with these bounds."""
        return False

    def draw(self, x: Tensor, low: Tensor, high: Tensor, draws: Draws, grid: bool = False) -> Tensor:
        """A random point of the set, uniform in the box (on the grid: uniform over its integers)."""
        u, xp = draws.uniform(), library(x)
        if not grid:
            return low + u * (high - low)
        u = u * (high - low + 1)
        xp.minimum(xp.floor(u, out=u), high - low, out=u)
        return low + u


@dataclass(frozen=True)
class Valid(Budget):
    """Anything that the space itself allows. A gradient attack or noise needs the space to be bounded."""

    name: ClassVar[str] = "valid"
    bounded: ClassVar[bool] = False
    arrays: ClassVar[bool] = True
    elementwise = True
    words: ClassVar[dict[str, Any] | None] = {"norm": "valid"}

    def box(self, x: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        xp = library(x)
        return xp.minimum(x, low), xp.maximum(x, high)

    def surely_inside(self, y: Array, x: Array, low: Array, high: Array, grid: bool = False) -> bool:
        inside: Array = clamp(np.rint(y) if grid else y, low, high)
        return math.isfinite(np.vdot(y, y)) and inside.tobytes() == y.tobytes()


Radius = Annotated[float, Limits(0, 1e38)]  # attacks compute in float32
_SCALE = Expected(Radius)


def below_one_level(eps: float) -> BudgetError:
    """The error of a radius with which nothing on an integer grid can change."""
    return BudgetError(
        f"eps={eps:g} is below one grey level on an integer space, so nothing could change: eps is in the units of the "
        "observation or action (1 is 1/255 of the range of uint8). Raise eps, or make the space float with "
        "quantize=False, where that can be given"
    )


_FAR = 1e6  # length of a vector that stands for its direction alone


@dataclass(frozen=True)
class L2(Budget):
    """The whole row may move by ``eps`` in the Euclidean norm.

    A row is met with the space, and then drawn back along the line to the true value, which stays in the space since
    boxes are convex: feasible, and the nearest point wherever the space is not active. On an integer grid the elements
    that a row can pay for move by whole levels, those first that are nearest to the next one.

    Raises:
        BudgetError: for a negative or non-finite radius, and below one grey level on an integer space.
    """

    name: ClassVar[str] = "l2"
    measured: ClassVar[bool] = True
    eps: Radius

    @property
    def words(self) -> dict[str, Any]:
        return {"eps": self.eps, "norm": "l2"}

    @property
    def is_zero(self) -> bool:
        return self.eps == 0

    def scaled(self, share: float, grid: bool = False) -> L2:
        eps = share * self.eps
        return self if share == 1 else L2(0.0 if grid and eps < 1 else eps)

    def check(self, low: Array, high: Array, grid: bool) -> None:
        if grid and 0 < self.eps < 1:
            raise below_one_level(self.eps)

    def box(self, x: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        lower, upper = around(x, distance(self.eps, None, False, (), x.dtype, getattr(x, "device", None)))
        return torch.maximum(lower, low), torch.minimum(upper, high)

    def grid_box(self, x: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        whole = distance(self.eps, None, True, (), x.dtype, getattr(x, "device", None))
        return torch.maximum(x - whole, low), torch.minimum(x + whole, high)

    def project(self, y: Tensor, x: Tensor, low: Tensor, high: Tensor, grid: bool = False) -> Tensor:
        if self.eps == 0:
            return x  # to the bit, -0.0 included
        inner = max(self.eps - 0.999, 0.0) if grid else 0.999 * self.eps
        # met with the space's bounds, not with the sides of the box around the ball: those would bend the way back
        y = torch.where((y < low) & (low > x - inner), low, y)
        y = torch.where((y > high) & (high < x + inner), high, y)
        # on the grid as many whole levels of the change as the ball holds
        if grid:
            return x + whole_levels(y - x, self.eps)
        # drawn back along the line to the true value, and not to a float that lies a little further out
        true = wide(x)
        delta = shrunk(wide(y) - true, self.eps)
        near = (true + delta).to(x.dtype)
        over = (wide(near) - true).abs() > delta.abs() * (1 + ROUNDING)  # rounded away from the true value
        return torch.clamp(torch.where(over, torch.nextafter(near, x), near), low, high)

    def direction(self, gradient: Tensor) -> Tensor:
        top = broad(flat_rows(gradient).abs().amax(1, keepdim=True), gradient)
        g = gradient / torch.where(top > 0, top, 1.0)  # the squares of a small gradient would underflow
        return g / row_norms(g).clamp(min=1)

    def unit(self, low: Tensor, high: Tensor) -> float | Tensor:
        return self.eps

    def move(self, y: Tensor, gradient: Tensor, length: float | Tensor, grid: bool = False) -> Tensor:
        return y + whole_levels(_FAR * self.direction(gradient), length) if grid else super().move(y, gradient, length)

    def draw(self, x: Tensor, low: Tensor, high: Tensor, draws: Draws, grid: bool = False) -> Tensor:
        """Uniform in the ball: a Gaussian direction at radius ``eps * u ** (1 / n)``, then met with the space."""
        normal, size = draws.normal(), max(x.shape[1:].numel(), 1)
        radius = self.eps * broad(flat_rows(draws.uniform())[:, :1].pow(1 / size), x)
        return self.project(self.move(x, normal, radius, grid), x, low, high, grid)


_NEARLY = 0.999999  # of a radius: the rest is more than rounding takes


@dataclass(frozen=True)
class Linf(Budget):
    """Every feature may move by ``eps`` times its scale.

    Args:
        eps: radius, at least 0, in the units of the space (grey levels for uint8 images) or of ``scale``.
        scale: None (one), a number, one number a feature in C order (0 freezes a feature), or ``"victim"``: the
            victim's own unit, the standard deviations of its normaliser.

    Raises:
        BudgetError: for a negative or non-finite radius or scale, and below one grey level on an integer space.

    >>> Linf(0.5).box(torch.zeros(1, 2), torch.tensor([-0.2, -1.0]), torch.tensor([1.0, 1.0]))
    (tensor([[-0.2000, -0.5000]]), tensor([[0.5000, 0.5000]]))
    """

    name: ClassVar[str] = "linf"
    measured: ClassVar[bool] = True
    arrays: ClassVar[bool] = True
    eps: Radius
    scale: Scale = None

    def __post_init__(self) -> None:
        super().__post_init__()
        scale = self.scale
        # the victim's own unit, one for every feature, or one for all
        if isinstance(scale, (str, bytes)):
            if scale != "victim":
                raise BudgetError(f"scale must be None, a number, one number a feature or 'victim', got {scale!r}")
        elif isinstance(scale, (Sequence, np.ndarray, Tensor)):
            try:
                flat = np.asarray(scale, dtype=np.float64).reshape(-1).tolist()
            except (TypeError, ValueError, OverflowError, RuntimeError) as error:
                raise BudgetError(f"scale must be one number a feature, got {scale!r}") from error
            set_fields(self, scale=tuple(_SCALE.check("scale", s, BudgetError) for s in flat))
        elif scale is not None:
            set_fields(self, scale=_SCALE.check("scale", scale, BudgetError))

    @property
    def words(self) -> dict[str, Any]:
        return {"eps": self.eps} if self.scale is None else {"eps": self.eps, "scale": self.scale}

    def resolve(self, victim: VictimLike | None) -> Linf:
        """Replace ``scale="victim"`` by the victim's own standard deviations."""
        if self.scale != "victim" or victim is None:
            return self
        if victim.scale is None:
            needs = " needs a victim with a unit of its own (a normaliser); this one has none"
            if victim.scales:
                needs = f" needs at=, of keys that this victim normalises: {', '.join(victim.scales)}"
            raise BudgetError(f"scale='victim'{needs}")
        scale = victim.scale.double().reshape(-1)
        if bool((scale == scale[0]).all()):  # one number for all: images would carry tens of thousands
            return replace(self, scale=float(scale[0]))
        return replace(self, scale=tuple(scale.tolist()))

    @property
    def is_zero(self) -> bool:
        scale = self.scale if isinstance(self.scale, tuple) else (self.scale,)
        return self.eps == 0 or all(unit == 0 for unit in scale)

    @property
    def _largest_unit(self) -> float:
        """The scale of the feature that may move furthest."""
        if isinstance(self.scale, tuple):
            return max(self.scale, default=0.0)
        return float(1 if self.scale is None else self.scale)

    def scaled(self, share: float, grid: bool = False) -> Linf:
        eps = share * self.eps
        return self if share == 1 else replace(self, eps=0.0 if grid and eps * self._largest_unit < 1 else eps)

    def check(self, low: Array, high: Array, grid: bool) -> None:
        if self.scale == "victim":
            raise BudgetError("scale='victim' needs a victim: give one to the attack, as by threat.against(victim)")
        size = int(np.prod(low.shape))
        if isinstance(self.scale, tuple) and len(self.scale) != size:
            raise BudgetError(f"scale has {len(self.scale)} numbers for a space of {size} features {low.shape}")
        if grid and 0 < self.eps * self._largest_unit < 1:
            raise below_one_level(self.eps * self._largest_unit)

    @property
    def elementwise(self) -> bool:
        return not isinstance(self.scale, tuple)

    def radius(self, x: Tensor) -> float | Tensor:
        """Largest change of every feature: a number, or ``[*S]``."""
        if isinstance(self.scale, tuple):
            return radius(self.eps, self.scale, x.shape[1:], x.dtype, getattr(x, "device", None))  # type: ignore[no-any-return]
        return self.eps if self.scale is None else self.eps * float(self.scale)

    def box(self, x: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        xp = library(x)
        lower, upper = around(
            x, distance(self.eps, self.scale, False, x.shape[1:], x.dtype, getattr(x, "device", None))
        )
        return xp.maximum(lower, low, out=lower), xp.minimum(upper, high, out=upper)

    def grid_box(self, x: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        whole = distance(self.eps, self.scale, True, x.shape[1:], x.dtype, getattr(x, "device", None))
        xp = library(x)
        lower, upper = x - whole, x + whole  # exact
        return xp.maximum(lower, low, out=lower), xp.minimum(upper, high, out=upper)

    def direction(self, gradient: Tensor) -> Tensor:
        return self.in_units(gradient.sign())

    def in_units(self, gradient: Tensor) -> Tensor:
        if isinstance(self.scale, tuple):
            unit: Tensor = radius(1.0, self.scale, gradient.shape[1:], gradient.dtype, gradient.device)
            return gradient * unit
        return gradient if self.scale is None else gradient * float(self.scale)

    def ascend(
        self, y: Tensor, gradient: Tensor, length: float | Tensor, inside: Feasible, spend: bool = False
    ) -> Tensor:
        if self.eps == 0:
            return inside.x  # to the bit, -0.0 included
        # the steepest direction of a box: the sign of every feature, in its own unit
        move = gradient.sign_() if spend else gradient.sign()
        if self.scale is not None:
            move = self.in_units(move)
        if inside.grid and self.scale is not None:  # at least one level, also for features of a small scale
            move = (length * move).abs().clamp_(min=1).mul_(move.sign())
            length = 1.0
        # in the memory of the direction: on large batches fresh memory costs more than the arithmetic
        if isinstance(length, Tensor):
            move.mul_(length).add_(y)
        else:
            torch.add(y, move, alpha=length, out=move)
        torch.clamp(move, inside.low, inside.high, out=move)
        return move.round_() if inside.grid else move

    def project(self, y: Tensor, x: Tensor, low: Tensor, high: Tensor, grid: bool = False) -> Tensor:
        if self.eps == 0:
            return x  # to the bit, -0.0 included
        y = clamp(y, low, high)
        return round_(y) if grid else y

    def unit(self, low: Tensor, high: Tensor) -> float | Tensor:
        return self.eps

    def spread(self, x: Tensor, low: Tensor, high: Tensor) -> float | Tensor:
        return self.radius(x)

    def surely_inside(self, y: Array, x: Array, low: Array, high: Array, grid: bool = False) -> bool:
        if grid:
            return False
        reach = distance(_NEARLY * self.eps, self.scale, False, x.shape[1:], x.dtype, None)
        near: Array = np.absolute(y - x) < reach  # rounded, by far less than what is left to the radius
        return b"\0" not in near.tobytes() and clamp(y, low, high).tobytes() == y.tobytes()

    def draw(self, x: Tensor, low: Tensor, high: Tensor, draws: Draws, grid: bool = False) -> Tensor:
        """Uniform in the ball (on the grid: over its integers), then met with the space, as the papers do."""
        y = self.draw_around(x, draws, grid)
        return clamp(y, low, high, out=y)

    def draw_around(self, x: Tensor, draws: Draws, grid: bool = False) -> Tensor:
        u = draws.uniform()
        if not grid:
            half, width = half_and_width(self.eps, self.scale, x.shape[1:], x.dtype, getattr(x, "device", None))
            if not isinstance(u, Tensor):  # numpy takes three times as long for one element in its own place
                return (u - half) * width + x
            u.sub_(half).mul_(width)
        else:
            # on the grid every level within reach is as likely as any other
            whole = distance(self.eps, self.scale, True, x.shape[1:], x.dtype, getattr(x, "device", None))
            u *= 2 * whole + 1
            library(u).floor(u, out=u)
            u -= whole
        u += x
        return u


# ----------------------------------------------------------------------------------------------------------------------
# Budgets of few features: at most ``k`` elements of a row may change, each within the space or a distance of its own.
#
# ``Sparse(k, Linf(eps))`` is O_max of Behzadan and Hsu (2019), the number of features of an observation that an
# adversary may perturb, beside the distance that each of them may move.
# ----------------------------------------------------------------------------------------------------------------------


class Nested(Budget):
    """A budget that allows less than another one, ``within``."""

    within: Budget

    @property
    def is_zero(self) -> bool:
        return self.within.is_zero

    def resolve(self, victim: VictimLike | None) -> Self:
        inner = self.within.resolve(victim)
        return self if inner is self.within else replace(self, within=inner)  # type: ignore[type-var]

    def scaled(self, share: float, grid: bool = False) -> Self:
        return replace(self, within=self.within.scaled(share, grid))  # type: ignore[type-var]

    def check(self, low: Array, high: Array, grid: bool) -> None:
        self.within.check(low, high, grid)


class OfFrames(Nested):
    """One of several steps: ``within`` is the budget of a frame at a single step."""

    measured: ClassVar[bool] = True

    @property
    def words(self) -> dict[str, Any] | None:
        within, own = self.within.words, self.own_words
        return None if within is None or own is None else {**within, **own}

    @property
    def own_words(self) -> dict[str, Any] | None:
        """:attr:`words` beside those of ``within``."""
        raise NotImplementedError

    @property
    def frame(self) -> Budget:
        return self.within


class FewFeatures(Nested):
    """At most ``k`` elements of a row may change, each as the budget ``within`` allows."""

    k: int

    def __post_init__(self) -> None:
        set_fields(self, k=integer("k", self.k, 0, 2**63 - 1, floats=True, error=BudgetError))
        super().__post_init__()

    @property
    def is_zero(self) -> bool:
        return self.k == 0 or self.within.is_zero

    def box(self, x: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        return self.within.box(x, low, high)

    def grid_box(self, x: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        return self.within.grid_box(x, low, high)

    def project(self, y: Tensor, x: Tensor, low: Tensor, high: Tensor, grid: bool = False) -> Tensor:
        """The ``k`` largest changes, each counted in the feature's own unit, stay; all others are undone."""
        y = self.within.project(y, x, low, high, grid)
        unit = self.in_units(torch.ones_like(x))
        return torch.where(largest((y - x).abs() / torch.where(unit > 0, unit, 1.0), self.k), y, x)

    def direction(self, gradient: Tensor) -> Tensor:
        """One unit along each of the ``k`` features in which that gains most."""
        return torch.where(largest(self.in_units(gradient).abs(), self.k), self.within.direction(gradient), 0.0)

    def in_units(self, gradient: Tensor) -> Tensor:
        return self.within.in_units(gradient)

    def unit(self, low: Tensor, high: Tensor) -> float | Tensor:
        return self.within.unit(low, high)

    def spread(self, x: Tensor, low: Tensor, high: Tensor) -> float | Tensor:
        return self.within.spread(x, low, high)

    def ascend(
        self, y: Tensor, gradient: Tensor, length: float | Tensor, inside: Feasible, spend: bool = False
    ) -> Tensor:
        """A step in the ``k`` features that gain most at the end of their range; all others return to the true value.

        What this step gains would favour features of little range, and those that were chosen before. A feature that
        takes the place of another begins at the share of its range that the row has reached: from the true value it
        would lose its place again before it gets anywhere.
        """
        x = inside.x
        low, high = inside.low, inside.high
        sign, room = gradient.sign(), torch.where(gradient > 0, high - x, x - low)
        room = room.clamp(max=torch.finfo(room.dtype).max)  # 0 times infinity would be NaN
        # how much every feature gains on the way to the end of its range; scaled, so that tiny gradients do not vanish
        top = broad(flat_rows(gradient).abs().amax(1, keepdim=True), gradient)
        gain = (gradient / torch.where(top > 0, top, 1.0)).abs() * room  # of tiny gradients, too
        changed = y != x
        # where nothing is to be gained, what has changed stays; NaN counts as the largest and is not lost
        chosen = largest(torch.where(gain == 0, changed.to(gain.dtype) - 1, gain), self.k)
        # the share of their range that the chosen features have reached, from which a new one begins
        side = torch.where(y > x, high - x, x - low)
        reached = torch.where(changed & (side > 0), (y - x).abs() / side, 0.0)
        share = broad(flat_rows(reached).amax(1, keepdim=True), y).clamp(max=1.0)
        start = torch.where(changed, y, x + share * room * sign)
        return torch.where(chosen, self.within.ascend(start, gradient, length, inside, spend), x)

    def chosen(self, low: Tensor, high: Tensor, draws: Draws) -> Tensor:
        """``k`` elements drawn evenly among those that can change, bool ``[B, *S]``."""
        return largest(torch.where(high > low, draws.uniform(), -1.0), self.k)

    def draw(self, x: Tensor, low: Tensor, high: Tensor, draws: Draws, grid: bool = False) -> Tensor:
        """As many elements as may change, drawn evenly, each uniform over its range."""
        y = self.within.draw(x, low, high, draws, grid)
        return torch.where(self.chosen(low, high, draws), y, x)


@dataclass(frozen=True)
class L0(FewFeatures):
    """At most ``k`` elements of a row may change, each within the space's own bounds.

    Raises:
        BudgetError: if ``k`` is not an integer of at least 0.
    """

    name: ClassVar[str] = "l0"
    bounded: ClassVar[bool] = False
    within: ClassVar[Budget] = Valid()  # type: ignore[misc]
    k: int

    @property
    def words(self) -> dict[str, Any]:
        return {"eps": self.k, "norm": "l0"}

    def scaled(self, share: float, grid: bool = False) -> L0:
        return L0(round(share * self.k))


@dataclass(frozen=True)
class Sparse(FewFeatures):
    """At most ``k`` elements of a row may change, each of them within ``eps`` times its scale.

    Args:
        k: how many, at least 0.
        within: how far each may move, :class:`Linf` with or without a scale.

    Raises:
        BudgetError: if ``k`` is not an integer of at least 0, or ``within`` is no :class:`Linf`; at wrapping for what
            :class:`Linf` refuses.

    >>> x = torch.zeros(1, 3)
    >>> low, high = Sparse(1, Linf(0.5)).box(x, x - 9, x + 9)
    >>> Sparse(1, Linf(0.5)).project(torch.tensor([[0.1, -0.3, 0.2]]), x, low, high)
    tensor([[ 0.0000, -0.3000,  0.0000]])
    """

    name: ClassVar[str] = "sparse"
    measured: ClassVar[bool] = True
    k: int
    within: Linf

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.within, Linf):
            raise BudgetError(
                f"Sparse needs how far each element may move, such as Sparse(2, Linf(0.1)), got {self.within!r:.80}"
            )

    @property
    def eps(self) -> float:
        """The radius of :attr:`within`."""
        return self.within.eps

    @property
    def scale(self) -> Scale:
        """The scale of :attr:`within`."""
        return self.within.scale

    @property
    def words(self) -> dict[str, Any]:
        return {"eps": self.eps, "norm": f"sparse({self.k})", **self.within.words}


def budget_of(eps: float | None, norm: str | None, scale: Any) -> Budget:
    """The budget that has these :attr:`Budget.words`; ``norm=None`` is ``linf``.

    Raises:
        BudgetError: for words that do not go together.
    """
    few = re.fullmatch(r"sparse\((\d+)\)", norm.replace(" ", "")) if isinstance(norm, str) else None
    if norm not in (None, "linf", "l2", "l0", "valid") and few is None:
        raise BudgetError(f"norm must be linf, l2, l0, sparse(2) for two features or valid, got {norm!r}")
    if norm == "valid":
        if eps is not None or scale is not None:
            raise BudgetError(f"norm=valid has no eps and no scale, got eps={eps!r}, scale={scale!r}")
        return Valid()
    if scale is not None and norm in ("l2", "l0"):
        raise BudgetError(f"scale belongs to norm=linf and sparse, got norm={norm}")
    # the ball that the words name
    if norm in ("l2", "l0"):
        return L2(eps) if norm == "l2" else L0(eps)  # type: ignore[arg-type]  # they check
    ball = Linf(eps, scale)  # type: ignore[arg-type]
    return ball if few is None else Sparse(int(few[1]), ball)
