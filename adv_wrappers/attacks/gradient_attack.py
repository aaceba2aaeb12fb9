"""Gradient attacks: an objective maximised by projected gradient ascent, with restarts, inside a budget.

All step lengths are fractions of the budget's radius. On an integer grid every iterate is a point of the grid: an
attack that ends on the grid searches on it, since a perturbation smaller than a grey level is lost when the observation
is stored.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from adv_wrappers.core.bound_victim import BoundVictim
from adv_wrappers.core.context import Context
from adv_wrappers.core.perturbation import Perturbation
from adv_wrappers.errors import ValueRangeError
from adv_wrappers.utils.numbers import check_integer, check_number
from adv_wrappers.victims.gradients import Loss, check_precision, need_gradient
from adv_wrappers.victims.victim import Victim

MOST_STEPS = 10**6
Gradient = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class GradientAttack(Perturbation):
    """Base of the attacks that maximise an objective by gradient ascent: frozen dataclasses with a victim and steps.

    Args:
        precision: the precision of gradients: None for the victim's own, ``"bf16"`` or ``"tf32"`` for less
            (see :mod:`adv_wrappers.victims.gradients`).
        restarts: number of ascents. The first has the attack's own start; the others start at corners of the box (see
            :class:`RestartPoints`). The result is the best of them in every row: see ``keep``.
        keep: the result of an ascent: its ``"last"`` iterate, or the ``"best"`` of all its iterates. Best means,
            where the victim plays the mode of a discrete policy, first what the played action achieves (for most
            attacks that it is not the one of the true observation) and then the objective; else the objective alone.
        schedule: lengths of the steps: ``"constant"``, or ``"linear"``: step i of K is ``step * (1 - i / K)`` long.
    """

    search: ClassVar[bool] = True
    needs_victim: ClassVar[bool] = True
    if TYPE_CHECKING:
        victim: Any
        steps: int
        step: float | None
    precision: str | None = field(default=None, kw_only=True)
    restarts: int = field(default=1, kw_only=True)
    keep: str = field(default="last", kw_only=True)
    schedule: str = field(default="constant", kw_only=True)

    def __post_init__(self) -> None:
        check_steps(self.steps, 1.0 if self.step is None else self.step)
        for each in fields(self):
            if isinstance(each.default, bool) and not isinstance(value := getattr(self, each.name), bool):
                raise ValueRangeError(f"{each.name} must be true or false, got {value!r:.80}")
        check_precision(self.precision)
        need_gradient(getattr(self, "name", "this attack"), self.victim)
        check_restarts(self.restarts, self.keep)
        if self.schedule not in ("constant", "linear"):
            raise ValueRangeError(f"schedule must be 'constant' or 'linear', got {self.schedule!r}")

    def objective(self, x: Tensor, bound: BoundVictim) -> Loss:
        """The loss on parameters, ``[B, K] -> [B]``, that is maximised; ``bound`` is the victim at this step."""
        raise NotImplementedError

    def losses(self, x: Tensor, bound: BoundVictim, objective: Loss) -> Sequence[Loss]:
        """The losses that the ascents maximise, one each: the objective, unless a subclass chooses others."""
        return [objective] * self.restarts

    def run_once(self, context: Context, gradient: Gradient, start: Tensor | None) -> Tensor:
        """One ascent, from its start to its last iterate: projected gradient ascent unless a subclass overrides it.

        Args:
            context: the context of this step.
            gradient: the gradient of the loss.
            start: the first iterate, ``[B, *S]``; None for the attack's own.
        """
        random = start is None and getattr(self, "random_start", False)
        step, schedule = self.lengths
        return pgd(context, gradient, self.steps, step, random, start, schedule)

    @property
    def lengths(self) -> tuple[float, str]:
        """Length of the first step, and the schedule.

        Without a given length: a tenth of the radius, as published for ten steps; but half of it, falling linearly,
        for a search that keeps its best point, since restarts begin at corners that short steps would never leave.
        """
        if self.step is not None:
            return self.step, self.schedule
        return (0.5, "linear") if self.keep == "best" else (0.1, self.schedule)

    def outputs(self, bound: BoundVictim, x: Tensor) -> Tensor:
        """The input of the objective: the parameters ``[B, K]`` of the victim's policy at ``x``."""
        return bound.params(x)

    def gradient(self, bound: BoundVictim, loss: Loss) -> Gradient:
        """``x -> d loss(outputs(x)).sum() / dx``."""
        return bound.gradient(loss, self.precision)

    def __call__(self, x: Tensor, context: Context) -> Tensor:
        bound = context.bind(self.victim)
        objective = self.objective(x, bound)
        losses = self.losses(x, bound, objective)
        if len(losses) == 1 and self.keep == "last":
            return self._last_iterate(x, context, bound, losses[0])

        def run(context: Context, gradient: Gradient, number: int, start: Tensor | None) -> Tensor:
            return self.run_once(context, gradient, start)

        return search(
            context, bound, objective, losses, run, restarts=self.restarts, keep=self.keep,
            gradient=self.gradient, outputs=self.outputs, rearrange=True,
        )  # fmt: skip

    def _last_iterate(self, x: Tensor, context: Context, bound: BoundVictim, loss: Loss) -> Tensor:
        """The last iterate of one ascent: the published form of most attacks."""
        gradient = self.gradient(bound, loss)
        rearranged = _rearranged(gradient, x, context)
        if rearranged is None:
            return self.run_once(context, gradient, None)
        layout, gradient = rearranged
        return layout.inverse(self.run_once(context.laid_out(layout), gradient, None))  # type: ignore[no-any-return]


def _rearranged(gradient: Any, x: Tensor, context: Context) -> tuple[Any, Gradient] | None:
    """The layout in which a gradient is faster, and the gradient in it; None if there is no such layout."""
    rearranged = getattr(gradient, "rearranged", None)
    return rearranged(x) if rearranged is not None and context.budget.elementwise else None


def search(
    context: Context, bound: BoundVictim, objective: Loss, losses: Sequence[Loss],
    run: Callable[[Context, Gradient, int, Tensor | None], Tensor], *, restarts: int, keep: str,
    gradient: Callable[[BoundVictim, Loss], Gradient] = lambda bound, loss: bound.gradient(loss),
    outputs: Callable[[BoundVictim, Tensor], Tensor] = lambda bound, x: bound.params(x), rearrange: bool = False,
    first: bool = True,
) -> Tensor:  # fmt: skip
    """The best point of several ascents, ``[B, *S]``.

    Args:
        context: the context of this step.
        bound: the victim at this step.
        objective: ranks points (see :class:`BestPoints`).
        losses: the loss of each ascent. With more losses than ``restarts``, several ascents begin at the same point.
        run: one ascent: from a context, a gradient, the number of the start (0 for the attack's own) and the start to
            the last iterate.
        restarts: number of starts.
        keep: ``"last"`` or ``"best"``, see :class:`GradientAttack`.
        gradient: makes the gradient function of a loss, from the victim at this step and the loss.
        outputs: the input of the losses, from the victim at this step and points.
        rearrange: whether ``run`` takes a context in another layout, where gradients are faster.
        first: also try one step of the full radius from the start of the first ascent.
    """
    last = TrackedLoss(losses[0])
    # the victim's answers at the true point were checked; an iterate may be NaN (see _mark_nonfinite)
    blind = copy.copy(bound)
    blind.look = False
    best = BestPoints(objective, bound.victim, lambda y: outputs(blind, y))
    eager = not getattr(bound.victim, "compile", False)  # compiled code does not set attributes of a loss
    slope = gradient(bound, last if eager else losses[0])
    rearranged = _rearranged(slope, context.x, context) if rearrange else None
    if rearranged is not None:
        layout, slope = rearranged
        context, best.back = context.laid_out(layout), layout.inverse
    starts = RestartPoints(context)
    for i, loss in enumerate(losses):
        if eager:
            last.loss = loss
        elif i:
            slope = gradient(bound, loss)
        tracked: Gradient = slope
        if keep == "best":
            tracked = TrackedGradient(slope, best, last if eager else None, context if first and i == 0 else None)
        number = i * restarts // len(losses)
        best.offer(run(context, tracked, number, starts(number)), end=True)
    return best.result()


class TrackedLoss:
    """A loss that keeps the parameters of its last call, ``[B, K]``: those of the victim at the last iterate.

    ``loss`` is exchanged between two ascents, which so share one gradient function and its memory.
    """

    def __init__(self, loss: Loss) -> None:
        self.loss, self.params = loss, None  # type: Loss, Tensor | None
        if hasattr(loss, "gradient"):
            self.gradient = self._gradient

    def __call__(self, params: Tensor) -> Tensor:
        self.params = params.detach()
        return self.loss(params)

    def _gradient(self, params: Tensor) -> Tensor:
        self.params = params  # memory that the next step overwrites; it is read before
        return self.loss.gradient(params)  # type: ignore[attr-defined,no-any-return]  # it has one, see __init__


class BestPoints:
    """The best point of every row among those that were offered, ``[B, *S]``.

    Args:
        objective: ranks points: by its method ``success`` of the parameters, if it has one and the victim plays the
            mode, and then by the objective itself.
        victim: the victim whose policy is attacked.
        outputs: the parameters ``[B, K]`` at points.

    Attributes:
        back: converts points from the layout in which they are offered to that of ``outputs`` and of the result.
    """

    def __init__(self, objective: Loss, victim: Victim, outputs: Callable[[Tensor], Tensor]) -> None:
        self.objective, self.outputs = objective, outputs
        self.back: Callable[[Tensor], Tensor] = lambda y: y
        self.success = getattr(objective, "success", None) if victim.select == "mode" else None
        self.point: Tensor | None = None
        self.rank: tuple[Tensor | None, Tensor] | None = None

    def offer(self, y: Tensor, params: Tensor | None = None, end: bool = False) -> Tensor:
        """Take the rows of ``y`` that are better than the best so far; returns the objective at ``y``, ``[B]``.

        Args:
            y: points ``[B, *S]``.
            params: the victim's parameters at ``y``, if they are known.
            end: whether ``y`` is the end of an ascent. Rows that are NaN there (see :func:`_mark_nonfinite`) stay NaN.
        """
        params = self.outputs(self.back(y)) if params is None else params
        success = None if self.success is None else self.success(params)
        value: Tensor = self.objective(params)
        if self.point is None or self.rank is None:
            self.point, self.rank = y, (success, value)
            return value
        old_success, old = self.rank
        better = value > old
        if success is not None and old_success is not None:
            better = (success > old_success) | ((success == old_success) & better)
            success = torch.where(better, success, old_success)
        if end:
            better = better | value.isnan()
        self.point = torch.where(better.view(-1, *[1] * (y.dim() - 1)), y, self.point)
        self.rank = success, torch.where(better, value, old)
        return value

    def result(self) -> Tensor:
        """The best points, in the layout of the observations."""
        assert self.point is not None
        return self.back(self.point)


class TrackedGradient:
    """A gradient function ``[B, *S] -> [B, *S]`` that offers every point at which it is called to ``best``.

    Args:
        gradient: the gradient, in the layout of the ascent.
        best: collects the best points.
        last: the loss, which has the parameters at a point once the gradient was computed there; None if it has not.
        first: the context of an ascent from the true point. One step of the full radius along its first gradient is
            offered as well, so that keeping the best is in no row weaker than FGSM.

    Attributes:
        value: the objective at the last point, ``[B]``.
        overwritable: see :class:`adv_wrappers.networks.input_gradient.InputGradient`.
    """

    value: Tensor

    def __init__(self, gradient: Gradient, best: BestPoints, last: TrackedLoss | None, first: Context | None) -> None:
        self.gradient, self.best, self.last, self.first = gradient, best, last, first
        self.overwritable = getattr(gradient, "overwritable", False)

    def __call__(self, y: Tensor) -> Tensor:
        g = self.gradient(y)
        self.value = self.best.offer(y, None if self.last is None else self.last.params)
        if self.first is not None:
            context, self.first = self.first, None
            self.best.offer(context.ascend(y, g, 1.0))
        return g


class RestartPoints:
    """The starts of restarts: the attack's own start, opposite corners of the box pair by pair, then random points.

    The signs of the first corner are drawn; the corner of pair p is the first one with the signs of the p-th Walsh
    function, which is orthogonal to those before. So few starts are spread as widely as a box allows: in two
    dimensions four of them are its corners, which random points would leave out.
    """

    def __init__(self, context: Context) -> None:
        self.context = context
        self._signs: Tensor | None = None

    def __call__(self, number: int) -> Tensor | None:
        """Start ``number``, ``[B, *S]``; None for 0, the attack's own."""
        if number == 0:
            return None
        context, pair = self.context, (number - 1) // 2
        if self._signs is None:
            self._signs = context.signs()
        size = max(self._signs[0].numel(), 1)
        if pair >= size:
            return context.draw()
        signs = self._signs * _walsh(pair, size, self._signs.device).view(self._signs.shape[1:])
        low, high = context.box
        up = signs > 0 if number % 2 else signs < 0
        return context.project(torch.where(up, high, low))


def _walsh(number: int, size: int, device: torch.device) -> Tensor:
    """A Walsh function, +-1 int64 ``[size]``: the parity of the bits that ``number`` and the index share."""
    index = torch.arange(size, device=device) & number
    parity = torch.zeros_like(index)
    for bit in range(number.bit_length()):
        parity ^= (index >> bit) & 1
    return 1 - 2 * parity


def pgd(
    context: Context, gradient: Gradient, steps: int, step: float, random_start: bool = False,
    start: Tensor | None = None, schedule: str = "constant",
) -> Tensor:  # fmt: skip
    """Projected gradient ascent (Madry et al. 2018), ``[B, *S]``; one step of 1 is FGSM (Goodfellow et al. 2015).

    Starts at ``start``, a random point of the budget, or the true value. With ``schedule="linear"`` the steps become
    shorter, ``step * (1 - i / steps)``.
    """
    y = start if start is not None else context.draw() if random_start else context.x
    del start
    _ = context.box  # made while there is no gradient beside it
    spend, lengths = getattr(gradient, "overwritable", False), _lengths(step, schedule, steps)
    for i in range(steps):
        g = gradient(y)
        if i == steps - 1:
            y = _mark_nonfinite(y, g, i > 0 and getattr(context.budget, "eps", 1) != 0)
        y = context.ascend(y, g, lengths[i], spend)
        del g
    return y


def momentum(
    context: Context, gradient: Gradient, steps: int, step: float, decay: float, nesterov: bool = False,
    start: Tensor | None = None, schedule: str = "constant",
) -> Tensor:  # fmt: skip
    """MI-FGSM (Dong et al. 2018, algorithm 1): gradients of l1 length one, accumulated with ``decay``.

    ``nesterov`` looks one step ahead along the accumulated direction (NI-FGSM, Lin et al. 2020, algorithm 1).
    Starts at ``start``, or the true value.
    """
    _ = context.box
    y = context.x if start is None else start
    total, lengths = torch.zeros_like(y), _lengths(step, schedule, steps)
    for i in range(steps):
        move = lengths[i]
        ahead = context.ascend(y, total, move * decay) if nesterov else y
        g = gradient(ahead)
        if i == steps - 1:
            y = _mark_nonfinite(y, g, i > 0 and getattr(context.budget, "eps", 1) != 0)
        length = torch.linalg.vector_norm(g.flatten(1), 1, dim=1).clamp(min=torch.finfo(g.dtype).tiny)
        total.mul_(decay).addcdiv_(g, length.view(-1, *[1] * (g.dim() - 1)))
        del g
        y = context.ascend(y, total, move)
    return y


def langevin(
    context: Context, gradient: Gradient, steps: int, step: float, noise: float, start: Tensor | None = None,
    schedule: str = "constant",
) -> Tensor:  # fmt: skip
    """Signed gradient Langevin ascent, as released with SA-PPO (Zhang et al. 2020).

    Starts one step away in a random sign direction, or at ``start``; at step i Gaussian noise of standard deviation
    ``noise sqrt(2 length) / (i + 2)`` is added to the gradient before its sign is taken. Gradient and ``length`` of the
    step are in the budget's own unit (normalised observations, where ``scale`` says so), as they are there.
    """
    y = context.ascend(context.x, context.signs(), step) if start is None else start
    if noise == 0:
        return pgd(context, gradient, steps, step, start=y, schedule=schedule)
    factor = noise * math.sqrt(2 * step * getattr(context.budget, "eps", 1.0))
    scaled, lengths = getattr(context.budget, "scale", None) is not None, _lengths(step, schedule, steps)
    spend = getattr(gradient, "overwritable", False) and not scaled
    for i, jitter in enumerate(context.normals(steps)):
        g = context.budget.in_units(gradient(y)) if scaled else gradient(y)
        if i == steps - 1:
            y = _mark_nonfinite(y, g, i > 0 and getattr(context.budget, "eps", 1) != 0)
        g = (g.add_ if spend else g.add)(jitter, alpha=factor / (i + 2))
        del jitter
        y = context.ascend(y, g, lengths[i], spend=True)
    return y


def _lengths(step: float, schedule: str, steps: int) -> list[float]:
    """Lengths of the steps."""
    return [step] * steps if schedule == "constant" else [step * (1 - i / steps) for i in range(steps)]


def _mark_nonfinite(y: Tensor, gradient: Tensor, own: bool) -> Tensor:
    """``y``, NaN where the gradient is not finite: the engine then raises, without a check at every step.

    The sign of NaN is zero: the attack would stay where it is and the victim seem robust. ``own`` allows to write to y.
    """
    return y.add_(gradient, alpha=0) if own else torch.add(y, gradient, alpha=0)


def check_restarts(restarts: int, keep: str) -> None:
    """Raise :class:`ValueRangeError` for less than one ascent, and other words than ``"last"`` and ``"best"``."""
    check_integer("restarts", restarts, 1, MOST_STEPS)
    if keep not in ("last", "best"):
        raise ValueRangeError(f"keep must be 'last' or 'best', got {keep!r}")


def check_steps(steps: int, step: float) -> None:
    """Raise :class:`ValueRangeError` for less than one step, and a length that is not positive and finite."""
    check_integer("steps", steps, 1, MOST_STEPS)
    check_number("step, a fraction of the budget's radius,", step, 0, 1e9, above=True)
