"""Lower bounds by splitting on the neurons that may be on or off: beta-CROWN (Wang et al. 2021).

A ReLU that may be on either side of its bend is where linear bounds lose. Two cases take its place: in one its input
``z`` is at least 0, and ``relu(z) = z``; in the other it is at most 0, and ``relu(z) = 0``. The least value over both
is bounded by the lower one of their bounds. In each case the constraint on ``z`` enters the bound by a multiplier::

    min f(x) subject to z >= 0   is at least   min f(x) - beta z,     for every beta >= 0,

and with ``+ beta z`` where ``z <= 0`` (weak duality). So a bound holds for whatever multipliers and slopes there are,
and Adam looks for good ones, of many cases at once. Splitting an input (:mod:`adv_wrappers.bounds.branch_and_bound`) is
for few inputs: halving one pixel of a picture changes next to nothing.

Next is split, in the case of the lowest bound of every row, the neuron whose relaxation costs that bound most: the gap
of its upper line at 0 times the coefficient that asks for the upper line (the second part of the score of BaBSR, Bunel
et al. 2020). Bounds on hidden neurons are those of the whole box, cut at 0 where a case says so, and are not computed
anew. The bound of a case is no lower than that of the case which it came from.

As all bounds here, these hold in exact arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from adv_wrappers.bounds.activation_relaxations import Choice, first_choice, lines
from adv_wrappers.bounds.backward_through_affine_layers import RowsByValue
from adv_wrappers.bounds.crown_linear_bounds import (
    RATE,
    AffineStep,
    BoundStep,
    BoxStep,
    CurveStep,
    Intermediate,
    MeanLines,
    RelaxedNetwork,
    crown,
    lower_bounds,
)
from adv_wrappers.bounds.interval_bound_propagation import as_rows, check_box, check_spec
from adv_wrappers.bounds.interval_rules_by_layer_type import nodes_in
from adv_wrappers.errors import ValueRangeError, VictimError

STEPS = 20  # of Adam for a case


class NeuronBounds(NamedTuple):
    """What :func:`split_neurons` found out about rows of a specification.

    Attributes:
        lower: lower bounds, ``[B, M]``.
        cases: how many cases were bounded, int64 ``[B, M]``; 0 where none was needed.
    """

    lower: Tensor
    cases: Tensor


@dataclass
class _NeuronCases:
    """Cases of rows of a specification: what is assumed of the neurons, and what is known then.

    Attributes:
        owner: the number of the row, from 0 to ``B M - 1``; int64 ``[N]``.
        signs: by the number of a ReLU's value: 1 where its input is at least 0, -1 where it is at most 0, 0 where
            nothing is assumed; ``[N, *S]``.
        bound: ``[N]``.
        splits: by the number of a ReLU's value, how much each neuron costs the bound, 0 where there is nothing to
            split; ``[N, *S]``.
    """

    owner: Tensor
    signs: dict[int, Tensor]
    bound: Tensor
    splits: dict[int, Tensor]

    def __getitem__(self, which: Tensor) -> _NeuronCases:
        signs, splits = ({n: each[which] for n, each in some.items()} for some in (self.signs, self.splits))
        return _NeuronCases(self.owner[which], signs, self.bound[which], splits)

    def with_more(self, other: _NeuronCases) -> _NeuronCases:
        """These and others."""
        signs, splits = (
            {n: torch.cat([each, more[n]]) for n, each in some.items()}
            for some, more in ((self.signs, other.signs), (self.splits, other.splits))
        )
        owner, bound = torch.cat([self.owner, other.owner]), torch.cat([self.bound, other.bound])
        return _NeuronCases(owner, signs, bound, splits)


def split_neurons(
    module: nn.Module,
    low: Tensor,
    high: Tensor,
    spec: Tensor,
    most_cases: int = 200,
    stop: float | Tensor = torch.inf,
    intermediate: Intermediate = "crown",
    steps: int = STEPS,
    at_once: int = 64,
) -> NeuronBounds:
    """Lower bounds on ``spec`` times what a network of ReLUs answers in boxes, by splitting on its neurons.

    They are never below those of :func:`adv_wrappers.bounds.crown` with the same ``intermediate``.

    Args:
        module: as :func:`adv_wrappers.bounds.crown` takes it; all that it holds beside ReLUs is affine.
        low, high: float tensors ``[B, *S]``, finite.
        spec: rows of combinations of the outputs, ``[M, K]`` or ``[B, M, K]``.
        most_cases: how many cases are bounded for every row, at least 1.
        stop: the bound with which a row is done: a number, or ``[B, M]``.
        intermediate: bounds on hidden neurons, as for ``crown``.
        steps: of Adam, on the slopes and multipliers of a case.
        at_once: how many cases are bounded together.

    Raises:
        VictimError: for a layer without bounds, and one that is neither affine nor a ReLU.
        ValueRangeError: for boxes and specifications that are none, and limits below 1.

    >>> import torch
    >>> from torch import nn
    >>> from adv_wrappers.bounds import crown
    >>> from adv_wrappers.bounds.neuron_branch_and_bound import split_neurons
    >>> net = nn.Sequential(nn.Linear(1, 2, bias=False), nn.ReLU(), nn.Linear(2, 1, bias=False))
    >>> with torch.no_grad():  # relu(x) - relu(x) / 2
    ...     _ = net[0].weight.fill_(1.0), net[2].weight.copy_(torch.tensor([[1.0, -0.5]]))
    >>> box, one = (torch.tensor([[-1.0]]), torch.tensor([[1.0]])), torch.eye(1)
    >>> [round(bound.item(), 2) for bound in (crown(net, *box, one)[0], split_neurons(net, *box, one).lower)]
    [-0.5, 0.0]
    """
    check_box(low, high)
    check_spec(spec, low)
    for name, value in (("most_cases", most_cases), ("steps", steps), ("at_once", at_once)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueRangeError(f"{name} must be a whole number of at least 1, got {value!r}")
    with torch.inference_mode(False), torch.no_grad():
        low, high, spec = low.clone(), high.clone(), spec.clone()
        network = RelaxedNetwork(nodes_in(module, low), low, high, None if intermediate == "interval" else 0)
        for step in network.steps[1:]:
            if not isinstance(step, AffineStep) and not (isinstance(step, CurveStep) and type(step.layer) is nn.ReLU):
                what = step.layer if isinstance(step, CurveStep) else "what is neither affine nor a ReLU"
                raise VictimError(f"neurons are split in networks of ReLUs and affine layers, this one has {what}")
        least = crown(module, low, high, spec, intermediate)[0]
        search = _NeuronSearch(
            network.steps, as_rows(spec, tuple(network.boxes[-1][0].shape[1:])), least.shape[1], steps
        )
        wanted = torch.as_tensor(stop, dtype=low.dtype, device=low.device).expand_as(least).flatten()
        found, tried = search.run(least.flatten(), wanted, most_cases, at_once)
        return NeuronBounds(found.view_as(least), tried.view_as(least))


class _NeuronSearch:
    """Splits rows of a specification, which are numbered box by box."""

    def __init__(self, steps: Sequence[BoundStep], rows: Tensor, count: int, adam: int) -> None:
        self.steps, self.rows, self.count, self.adam = steps, rows, count, adam
        self.curves = {n: step for n, step in enumerate(steps) if isinstance(step, CurveStep)}

    def run(self, least: Tensor, wanted: Tensor, most: int, at_once: int) -> tuple[Tensor, Tensor]:
        """Bounds ``[B M]``, which are at least ``least``, and the numbers of cases."""
        rows = torch.arange(len(least), device=least.device)[least < wanted]
        tried = torch.zeros(len(least), dtype=torch.int64, device=least.device)
        if not self.curves or not len(rows):
            return least, tried
        nothing = {n: step.low.new_zeros(len(rows), *step.low.shape[1:]) for n, step in self.curves.items()}
        cases = self._bounded(_NeuronCases(rows, nothing, least[rows], nothing), at_once)
        tried.index_add_(0, rows, torch.ones_like(rows))
        while True:
            found = self._lowest(cases, least)
            width = self._costs(cases).amax(1)
            lowest = cases.bound <= found[cases.owner]
            goes = lowest & (width > 0) & (found < wanted)[cases.owner] & (tried[cases.owner] + 2 <= most)
            which = goes.nonzero().flatten()
            # one case of a row at a time, the first of equal ones
            first = torch.full_like(tried, len(cases.owner)).scatter_reduce(0, cases.owner[which], which, "amin")
            which = which[first[cases.owner[which]] == which]
            if not len(which):
                return torch.maximum(found, least), tried
            parts = self._bounded(self._split(cases[which]), at_once)
            tried.index_add_(0, parts.owner, torch.ones_like(parts.owner))
            kept = torch.ones(len(cases.owner), dtype=torch.bool, device=least.device)
            kept[which] = False
            cases = cases[kept].with_more(parts)

    def _lowest(self, cases: _NeuronCases, least: Tensor) -> Tensor:
        """The lowest bound of the cases of every row; infinity for rows that are done, which ``least`` has."""
        found = least.clone()
        own = torch.full_like(least, torch.inf).scatter_reduce(0, cases.owner, cases.bound, "amin")
        return torch.where(own.isinf() & (own > 0), found, own)

    def _costs(self, cases: _NeuronCases) -> Tensor:
        return torch.cat([each.flatten(1) for each in cases.splits.values()], 1)

    def _split(self, cases: _NeuronCases) -> _NeuronCases:
        """Both cases of the neuron that costs each of these most."""
        costs = self._costs(cases)
        chosen = torch.zeros_like(costs).scatter(1, costs.argmax(1, keepdim=True), 1.0)
        parts = chosen.split([each[0].numel() for each in cases.splits.values()], 1)
        signs = {
            n: torch.cat([each + part.view_as(each), each - part.view_as(each)])
            for (n, each), part in zip(cases.signs.items(), parts, strict=True)
        }
        return _NeuronCases(cases.owner.repeat(2), signs, cases.bound.repeat(2), signs)

    def _bounded(self, cases: _NeuronCases, at_once: int) -> _NeuronCases:
        """Cases with their bounds, which are at least those that they have."""
        found = [self._bound(cases[part]) for part in torch.arange(len(cases.owner)).split(at_once)]
        whole = found[0]
        for more in found[1:]:
            whole = whole.with_more(more)
        return whole

    def _bound(self, cases: _NeuronCases) -> _NeuronCases:
        box, row = cases.owner // self.count, cases.owner % self.count
        steps = list[BoundStep]()
        for n, step in enumerate(self.steps):
            if isinstance(step, BoxStep):
                steps.append(BoxStep(step.low[box], step.high[box]))
            elif isinstance(step, CurveStep):
                sign = cases.signs[n]
                low = torch.where(sign > 0, step.low[box].clamp(min=0), step.low[box])
                high = torch.where(sign < 0, step.high[box].clamp(max=0), step.high[box])
                # a case that is empty may be bounded by anything
                low, high = torch.minimum(low, high), torch.maximum(low, high)
                found = MeanLines.of(lines(step.layer, low, high, first_choice(step.layer, low, high)))
                steps.append(CurveStep(step.layer, step.source, low, high, MeanLines(*(e[:, None] for e in found))))
            else:
                steps.append(step)
        rows = (self.rows[box, row] if len(self.rows) > 1 else self.rows[0, row])[:, None]
        bound, costs = self._optimised(steps, {len(steps) - 1: rows}, cases.signs)
        return _NeuronCases(cases.owner, cases.signs, torch.maximum(bound, cases.bound), costs)

    def _optimised(
        self, steps: Sequence[BoundStep], rows: RowsByValue, signs: dict[int, Tensor]
    ) -> tuple[Tensor, dict[int, Tensor]]:
        """The best bounds ``[N]`` that Adam finds, and what neurons cost them."""
        numbers = list[Tensor]()
        for n in self.curves:
            step = steps[n]
            assert isinstance(step, CurveStep)
            lower = first_choice(step.layer, step.low, step.high).lower
            assert lower is not None
            numbers += [lower[:, None].clone(), torch.zeros_like(lower)[:, None]]
        seen = dict[int, Tensor]()

        def bounds(numbers: Sequence[Tensor]) -> Tensor:
            slopes, multipliers = (dict(zip(self.curves, numbers[i::2], strict=True)) for i in (0, 1))

            def constrained(n: int, before: Tensor, after: Tensor) -> Tensor:
                seen[n] = before.detach()[:, :1]
                return after - torch.cat([multipliers[n] * signs[n][:, None], torch.zeros_like(multipliers[n])], 1)

            choices = {n: Choice(slope.expand(-1, 2, *slope.shape[2:]), None) for n, slope in slopes.items()}
            return lower_bounds(steps, rows, choices, constrained)[:, 0]

        best, costs = bounds(numbers), self._gaps(steps, seen)
        optimiser = torch.optim.Adam([each.requires_grad_() for each in numbers], RATE, maximize=True)
        for _ in range(self.adam):
            with torch.enable_grad():
                optimiser.zero_grad()
                total = bounds(numbers).sum()
                slopes = torch.autograd.grad(total, numbers, allow_unused=True, materialize_grads=True)
            for each, slope in zip(numbers, slopes, strict=True):
                each.grad = slope
            optimiser.step()
            for i, each in enumerate(numbers):
                each.clamp_(0, None if i % 2 else 1)
            now = bounds(numbers)
            better, gaps = now > best, self._gaps(steps, seen)
            best = torch.where(better, now, best)
            costs = {n: torch.where(better.view(-1, *[1] * (old.dim() - 1)), gaps[n], old) for n, old in costs.items()}
        return best.detach(), costs

    def _gaps(self, steps: Sequence[BoundStep], seen: dict[int, Tensor]) -> dict[int, Tensor]:
        """What the lines of neurons cost at most: where the lower one ends, and how high the upper one is at 0."""
        found = dict[int, Tensor]()
        for n in self.curves:
            step, row = steps[n], seen[n][:, 0]
            assert isinstance(step, CurveStep)
            low, high = step.low, step.high
            bends = (low < 0) & (high > 0)
            gap = -low * high / (high - low).clamp(min=torch.finfo(low.dtype).tiny)
            below = torch.minimum(-low, high)  # of the lower line, for a positive coefficient
            found[n] = torch.where(bends, row.clamp(max=0).abs() * gap + 1e-3 * row.clamp(min=0) * below, 0.0)
        return found
