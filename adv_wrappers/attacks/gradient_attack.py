"""Gradient attacks: an objective maximised by projected gradient ascent, with restarts, inside a budget.

All step lengths are fractions of the budget's radius. On an integer grid every iterate is a point of the grid: an
attack that ends on the grid searches on it, since a perturbation smaller than a grey level is lost when the observation
is stored.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import torch
from torch import Tensor

from adv_wrappers.attacks.layout import LaidOut, rearranged
from adv_wrappers.attacks.objectives import FirstObjective
from adv_wrappers.attacks.restarts import search
from adv_wrappers.core.arrays import broad, flat_rows
from adv_wrappers.core.engine.context import Context
from adv_wrappers.core.engine.victim_view import VictimView
from adv_wrappers.core.perturbation import VictimAttack
from adv_wrappers.utils.validation import Limits
from adv_wrappers.victims.gradients import Gradient, Loss, need_gradient
from adv_wrappers.victims.victim import Victim

Steps = Annotated[int, Limits(1, 10**6)]
StepLength = Annotated[float, Limits(0, 1e9, above=True)]  # a fraction of the budget's radius
Keep = Literal["last", "best"]  # of the iterates of an ascent
LengthSchedule = Literal["constant", "linear"]  # of its steps


@dataclass(frozen=True)
class GradientAttack(VictimAttack):
    """Base of the attacks that maximise an objective by gradient ascent: frozen dataclasses with a victim and steps.

    Args:
        restarts: number of ascents. The first has the attack's own start; the others start at corners of the box (see
            :class:`.restarts.RestartPoints`). The result is the best of them in every row: see ``keep``.
        keep: the result of an ascent: its ``"last"`` iterate, or the ``"best"`` of all its iterates. Best means,
            where the victim plays the mode of a discrete policy, first what the played action achieves (for most
            attacks that it is not the one of the true observation) and then the objective; else the objective alone.
        schedule: lengths of the steps: ``"constant"``, or ``"linear"``: step i of K is ``step * (1 - i / K)`` long.
    """

    if TYPE_CHECKING:  # fields of every subclass, which places them among its own

        @property
        def steps(self) -> int: ...
        @property
        def step(self) -> float | None: ...

    restarts: Steps = field(default=1, kw_only=True)
    keep: Keep = field(default="last", kw_only=True)
    schedule: LengthSchedule = field(default="constant", kw_only=True)

    _objective_may_wait: ClassVar[bool] = False  # whether nothing overridden asks for it, or takes gradients, elsewhere

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        owner = {name: each for each in reversed(cls.__mro__) for name in vars(each)}
        fixed = all(owner[name] is GradientAttack for name in ("objective", "gradient", "outputs", "__call__"))
        cls._objective_may_wait = fixed and issubclass(owner["starts_at_truth"], owner["run_once"])

    def __post_init__(self) -> None:
        super().__post_init__()
        need_gradient(getattr(self, "name", "this attack"), self.victim)

    @property
    def network_passes(self) -> int:
        return self.steps * self.restarts

    def objective(self, x: Tensor, bound: VictimView) -> Loss:
        """The loss on parameters, ``[B, K] -> [B]``, that is maximised; ``bound`` is the victim at this step."""
        return self.objective_of(bound.params(x))

    def objective_of(self, params: Tensor) -> Loss:
        """The same from the parameters ``[B, K]`` at the true observation, for objectives that depend on nothing else.

        They are not to be kept: the next step of the ascent may overwrite them.
        """
        raise NotImplementedError

    def losses(self, x: Tensor, bound: VictimView, objective: Loss) -> Sequence[Loss]:
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
    def starts_at_truth(self) -> bool:
        """Whether the first gradient that :meth:`run_once` takes, without a ``start``, is at the true observation."""
        return not getattr(self, "random_start", False)

    @property
    def lengths(self) -> tuple[float, str]:
        """Length of the first step, and the schedule.

        Without a given length: a tenth of the radius, as published for ten steps; but half of it, falling linearly,
        for a search that keeps its best point, since restarts begin at corners that short steps would never leave.
        """
        if self.step is not None:
            return self.step, self.schedule
        return (0.5, "linear") if self.keep == "best" else (0.1, self.schedule)

    def outputs(self, bound: VictimView, x: Tensor) -> Tensor:
        """The input of the objective: the parameters ``[B, K]`` of the victim's policy at ``x``."""
        return bound.params(x)

    def gradient(self, bound: VictimView, loss: Loss) -> Gradient:
        """``x -> d loss(outputs(x)).sum() / dx``."""
        return bound.gradient(loss)

    def __call__(self, x: Tensor, context: Context) -> Tensor:
        bound = context.bind(self.victim)
        waits = self._objective_waits(x, context)
        objective = self._first_objective(len(x), bound) if waits else self.objective(x, bound)
        losses = self.losses(x, bound, objective)
        # as published: one ascent, whose last iterate is the answer
        if len(losses) == 1 and self.keep == "last":
            return self._last_iterate(x, context, bound, losses[0])

        def run(context: Context, gradient: Gradient, number: int, start: Tensor | None) -> Tensor:
            return self.run_once(context, gradient, start)

        # with fewer starts than losses, neighbours begin at the same point
        ascents = [(i * self.restarts // len(losses), loss) for i, loss in enumerate(losses)]
        return search(context, bound, objective, ascents, run, self.keep, climbed=self)

    def _objective_waits(self, x: Tensor, context: Context) -> bool:
        """Whether the first step of the ascent can make the objective: a forward pass of its own would be the same.

        It is where the only ascent begins at the true observation, and runs through the victim's network as it is.
        """
        if self.restarts != 1 or self.keep != "last" or x is not context.x:
            return False
        plain = type(self.victim).gradient is Victim.gradient
        return plain and self.starts_at_truth and self._objective_may_wait

    def _first_objective(self, rows: int, bound: VictimView) -> FirstObjective:
        def make(params: Tensor) -> Loss:
            bound.victim.check_params(params, rows, bound.look)
            return self.objective_of(params)

        return FirstObjective(make)

    def _last_iterate(self, x: Tensor, context: Context, bound: VictimView, loss: Loss) -> Tensor:
        """The last iterate of one ascent: the published form of most attacks."""
        gradient = self.gradient(bound, loss)
        other = rearranged(gradient, x, context) if self.steps > 1 else None
        if other is None:
            return self.run_once(context, gradient, None)
        layout, gradient = other
        return layout.inverse(self.run_once(LaidOut(context, layout), gradient, None))


def pgd(
    context: Context,
    gradient: Gradient,
    steps: int,
    step: float,
    random_start: bool = False,
    start: Tensor | None = None,
    schedule: str = "constant",
) -> Tensor:
    """Projected gradient ascent (Madry et al. 2018), ``[B, *S]``; one step of 1 is FGSM (Goodfellow et al. 2015).

    The preset of this name is :class:`.MinBest`, which climbs so from three starts. Starts at ``start``, a random point
    of the budget, or the true value. With ``schedule="linear"`` the steps become shorter, ``step * (1 - i / steps)``.
    """
    y = start if start is not None else context.draw() if random_start else context.x
    del start
    _ = context.box  # made while there is no gradient beside it
    spend, lengths = getattr(gradient, "overwritable", False), _lengths(step, schedule, steps)
    for i in range(steps):
        g = gradient(y)
        y = _mark_nonfinite(context, y, g, i, steps)
        y = context.ascend(y, g, lengths[i], spend)
        del g
    return y


def momentum(
    context: Context,
    gradient: Gradient,
    steps: int,
    step: float,
    decay: float,
    nesterov: bool = False,
    start: Tensor | None = None,
    schedule: str = "constant",
) -> Tensor:
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
        y = _mark_nonfinite(context, y, g, i, steps)
        # g <- decay g + gradient / |gradient|_1
        length = torch.linalg.vector_norm(flat_rows(g), 1, dim=1).clamp(min=torch.finfo(g.dtype).tiny)
        total.mul_(decay).addcdiv_(g, broad(length, g))
        del g
        y = context.ascend(y, total, move)
    return y


def langevin(
    context: Context,
    gradient: Gradient,
    steps: int,
    step: float,
    noise: float,
    start: Tensor | None = None,
    schedule: str = "constant",
) -> Tensor:
    """Signed gradient Langevin ascent, as released with SA-PPO (Zhang et al. 2020).

    Starts one step away in a random sign direction, or at ``start``; at step i Gaussian noise of standard deviation
    ``noise sqrt(2 length) / (i + 2)`` is added to the gradient before its sign is taken. Gradient and ``length`` of the
    step are in the budget's own unit (normalised observations, where ``scale`` says so), as they are there. Trainings
    have this ascent as ``langevin_ascent`` of ``training/defences/base.py``, in boxes instead of a context's budget.
    """
    y = context.ascend(context.x, context.signs(), step) if start is None else start
    if noise == 0:
        return pgd(context, gradient, steps, step, start=y, schedule=schedule)
    # noise sqrt(2 length), in the unit that the gradient is in
    factor = noise * math.sqrt(2 * step * getattr(context.budget, "eps", 1.0))
    scaled, lengths = getattr(context.budget, "scale", None) is not None, _lengths(step, schedule, steps)
    spend = getattr(gradient, "overwritable", False) and not scaled
    # x <- P(x + length sign(gradient + noise sqrt(2 length) / (i + 2) N(0, 1)))
    for i, jitter in enumerate(context.normals(steps)):
        g = context.budget.in_units(gradient(y)) if scaled else gradient(y)
        y = _mark_nonfinite(context, y, g, i, steps)
        g = (g.add_ if spend else g.add)(jitter, alpha=factor / (i + 2))
        del jitter
        y = context.ascend(y, g, lengths[i], spend=True)
    return y


def _lengths(step: float, schedule: str, steps: int) -> list[float]:
    """Lengths of the steps."""
    return [step] * steps if schedule == "constant" else [step * (1 - i / steps) for i in range(steps)]


def _mark_nonfinite(context: Context, y: Tensor, gradient: Tensor, i: int, steps: int) -> Tensor:
    """``y``, at the last of some steps NaN where the gradient is not finite: the engine then raises.

    The sign of NaN is zero: the attack would stay where it is and the victim seem robust.
    """
    if i < steps - 1:
        return y
    own = i > 0 and not context.budget.is_zero  # else it is the start, which is not to be written to
    return y.add_(gradient, alpha=0) if own else torch.add(y, gradient, alpha=0)
