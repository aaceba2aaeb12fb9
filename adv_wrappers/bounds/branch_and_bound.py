"""Which outputs of a network can be the largest somewhere in a box, decided by splitting the box.

An output is decided once it is the largest at some point that was evaluated, or excluded in every part of the box
by a linear bound. Parts that hold neither are halved, where the outputs change most, and in every third round where
most of the box's width is left. Bounds of ever smaller boxes become exact, so that in few dimensions everything is
decided but outputs that tie with the largest and never exceed it. (Branch and bound on inputs, as of Wang et al.
2018, ReluVal.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from adv_wrappers.bounds.crown_bounds import RATE, Intermediate, RelaxedNetwork, crown, lower_bounds
from adv_wrappers.bounds.interval_bounds import as_rows, check_box, check_spec, nodes_in
from adv_wrappers.bounds.probabilities import difference_spec
from adv_wrappers.errors import VictimError
from adv_wrappers.networks.operations.activations import CurveStep, ReLU
from adv_wrappers.networks.operations.operation import AffineStep
from adv_wrappers.networks.operations.relaxation import BoundStep, BoxStep, Choice, RowsByValue
from adv_wrappers.utils.checks import check_choice, integer

# ----------------------------------------------------------------------------------------------------------------------
# Lower bounds by splitting on the neurons that may be on or off: beta-CROWN (Wang et al. 2021).
#
# A ReLU that may be on either side of its bend is where linear bounds lose. Two cases take its place: in one its input
# ``z`` is at least 0, and ``relu(z) = z``; in the other it is at most 0, and ``relu(z) = 0``. The least value over both
# is bounded by the lower one of their bounds. In each case the constraint on ``z`` enters the bound by a multiplier::
#
#     min f(x) subject to z >= 0   is at least   min f(x) - beta z,     for every beta >= 0,
#
# and with ``+ beta z`` where ``z <= 0`` (weak duality). So a bound holds for whatever multipliers and slopes there
# are, and Adam looks for good ones, of many cases at once. Splitting an input
# (:func:`decide`) is for few inputs: halving one pixel of a picture changes next to
# nothing.
#
# Next is split, in the case of the lowest bound of every row, the neuron whose relaxation costs that bound most: the
# gap of its upper line at 0 times the coefficient that asks for the upper line (the second part of the score of
# BaBSR, Bunel et al. 2020). Bounds on hidden neurons are those of the whole box, cut at 0 where a case says so, and
# are not computed anew. The bound of a case is no lower than that of the case which it came from.
#
# As all bounds here, these hold in exact arithmetic.
# ----------------------------------------------------------------------------------------------------------------------


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

    They are never below those of :func:`adv_wrappers.bounds.crown_bounds` with the same ``intermediate``.

    Args:
        module: as :func:`adv_wrappers.bounds.crown_bounds` takes it; all that it holds beside ReLUs is affine.
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
    >>> from adv_wrappers.bounds.branch_and_bound import split_neurons
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
        integer(name, value, 1)
    with torch.inference_mode(False), torch.no_grad():
        low, high, spec = low.clone(), high.clone(), spec.clone()
        network = RelaxedNetwork(nodes_in(module, low), low, high, None if intermediate == "interval" else 0)
        for step in network.steps[1:]:
            curve = step.operation if isinstance(step, CurveStep) else None
            if not isinstance(step, AffineStep) and not isinstance(curve, ReLU):
                what = "what is neither affine nor a ReLU" if curve is None else curve.layer
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
                steps.append(CurveStep.of(step.operation, step.sources, low, high))
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
            lower = step.operation.first_choice(step.low, step.high).lower
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


Split = Literal["inputs", "neurons"]
ASCENT = 8  # steps of projected gradient ascent for every output in the whole box


@dataclass(frozen=True)
class Decision:
    """What :func:`decide` found out about boxes ``[B, *S]`` and outputs ``[B, A]``.

    Attributes:
        found: bool ``[B, A]``, the outputs that are the largest at some point of the box.
        undecided: bool ``[B, A]``, those that are neither found nor excluded.
        boxes: int64 ``[B]``, how many boxes, or cases of neurons, were bounded.
    """

    found: Tensor
    undecided: Tensor
    boxes: Tensor

    @property
    def possible(self) -> Tensor:
        """Bool ``[B, A]``, the outputs that are not excluded."""
        return self.found | self.undecided


def decide(
    module: nn.Module,
    low: Tensor,
    high: Tensor,
    most_boxes: int = 1000,
    margin: Tensor | float = 0.0,
    at_once: int = 256,
    split: Split = "inputs",
) -> Decision:
    """Decide which outputs ``[B, A]`` of a network are the largest anywhere in boxes, the first one of a tie.

    Every box is decided by itself: what is found does not depend on the others but for rounding.

    Args:
        module: as :func:`adv_wrappers.bounds.crown_bounds` takes it; outputs are vectors.
        low, high: float tensors ``[B, *S]``, finite.
        most_boxes: limit on the boxes that are bounded for each; outputs that are open then stay undecided.
        margin: how far each output may be off by rounding: a number, or ``[B, A]``. An output is excluded where it is
            lower than another by more than both margins.
        at_once: how many boxes are bounded together.
        split: ``"inputs"`` halves boxes, for few inputs. ``"neurons"`` splits on ReLUs that may be on or off
            (:func:`split_neurons`), for pictures and other wide inputs; the limit is then
            on cases of every output, and outputs are found by gradient ascent in the whole box alone.

    Raises:
        VictimError: for a layer without bounds, and for a network of other layers than ReLUs and affine ones whose
            neurons are to be split.
        ValueRangeError: for boxes that are none, limits below 1, and another ``split``.

    >>> import torch
    >>> from torch import nn
    >>> from adv_wrappers.bounds.branch_and_bound import decide
    >>> net = nn.Sequential(nn.Linear(1, 2))
    >>> with torch.no_grad():
    ...     _ = net[0].weight.copy_(torch.tensor([[1.0], [-1.0]])), net[0].bias.zero_()
    >>> decide(net, torch.tensor([[-1.0], [0.5]]), torch.tensor([[1.0], [1.0]])).possible.tolist()
    [[True, True], [True, False]]
    """
    check_box(low, high)
    for name, value in (("most_boxes", most_boxes), ("at_once", at_once)):
        integer(name, value, 1)
    check_choice("split", split, get_args(Split))
    decided = _decide if split == "inputs" else _decide_by_neurons
    with torch.inference_mode(False), torch.no_grad():  # tensors of inference mode have no gradient
        return decided(module, low.clone(), high.clone(), most_boxes, torch.as_tensor(margin).clone(), at_once)


def _decide_by_neurons(
    module: nn.Module, low: Tensor, high: Tensor, most_cases: int, margin: Tensor, at_once: int
) -> Decision:
    best, apart, seen = largest_at_corners(module, low, high)
    count = apart.shape[1]
    found = seen | _reached(module, low, high, count)
    margins = margin.to(low.device, low.dtype).expand(len(low), count)
    wanted = margins + margins.gather(1, best[:, None])
    ahead = -difference_spec(best, count, low.dtype)  # of the best in the middle over every output
    known = torch.where(found, -torch.inf, torch.nextafter(wanted, torch.full_like(wanted, torch.inf)))
    bounds = split_neurons(module, low, high, ahead, most_cases, known, at_once=min(at_once, 64))
    return Decision(found, ~found & (bounds.lower <= wanted), bounds.cases.sum(1))


def _decide(module: nn.Module, low: Tensor, high: Tensor, most_boxes: int, margin: Tensor, at_once: int) -> Decision:
    outputs = module((low + high) / 2)
    margins = margin.to(low.device, low.dtype).expand_as(outputs)
    found = torch.zeros_like(outputs, dtype=torch.bool)
    undecided = torch.zeros_like(found)
    boxes = torch.zeros(len(low), dtype=torch.int64, device=low.device)
    owner = torch.arange(len(low), device=low.device)  # which box a part belongs to
    part, width = (low, high), (high - low).flatten(1)
    turn = 0
    while len(owner):
        boxes.index_add_(0, owner, torch.ones_like(owner))
        open_, axis = [], []
        for rows in torch.arange(len(owner), device=low.device).split(at_once):
            mine = owner[rows]
            left, steep, seen = _open_in(module, part[0][rows], part[1][rows], margins[mine])
            found.index_put_((mine,), seen, accumulate=True)
            share = (part[1][rows] - part[0][rows]).flatten(1) / width[mine].clamp(min=torch.finfo(low.dtype).tiny)
            open_.append(left)
            axis.append((share if turn % 3 == 2 else steep).argmax(1))
        left = torch.cat(open_) & ~found[owner]
        keep = left.any(1)
        if turn == 0:  # every box is its own part still
            found[keep] |= _reached(module, low[keep], high[keep], found.shape[1])
            left &= ~found
            keep = left.any(1)
        owner, left, axis_of = owner[keep], left[keep], torch.cat(axis)[keep]
        part = part[0][keep], part[1][keep]
        first, second, halves = _halves(*part, axis_of)
        count = torch.zeros_like(boxes).index_add_(0, owner, torch.full_like(owner, 2))
        goes_on = halves & (boxes + count <= most_boxes)[owner]
        undecided.index_put_((owner[~goes_on],), left[~goes_on], accumulate=True)
        owner = owner[goes_on].repeat(2)
        part = torch.cat([first[0][goes_on], second[0][goes_on]]), torch.cat([first[1][goes_on], second[1][goes_on]])
        turn += 1
    return Decision(found, undecided & ~found, boxes)


class Largest(NamedTuple):
    """Which outputs are the largest at points of boxes.

    Attributes:
        middle: the largest one in the middle of each, int64 ``[B]``.
        apart: how fast every output gains on that, gradients in the middle, ``[B, A, N]``.
        seen: those that are the largest in the middle or at one of the corners to which these point, bool ``[B, A]``.
    """

    middle: Tensor
    apart: Tensor
    seen: Tensor


@torch.no_grad()
def largest_at_corners(module: nn.Module, low: Tensor, high: Tensor) -> Largest:
    """Outputs that are the largest in the middle of boxes ``[B, *S]``, or at the corner to which gradients point."""
    middle, radius = (low + high) / 2, (high - low) / 2
    outputs, slopes = _slopes(module, middle)
    best = outputs.argmax(1)
    count = outputs.shape[1]
    apart = slopes - slopes[torch.arange(len(low), device=low.device), best][:, None]
    # the corner to which the gradient of every output's difference points
    corners = middle[:, None] + radius[:, None] * apart.sign().view(len(low), count, *low.shape[1:])
    corners = torch.minimum(torch.maximum(corners, low[:, None]), high[:, None])
    ahead = module(corners.flatten(0, 1)).argmax(-1).view(len(low), count)
    seen = one_hot(ahead, count).bool().any(1).scatter(1, best[:, None], True)
    return Largest(best, apart, seen)


@torch.no_grad()
def largest_at_points(module: nn.Module, low: Tensor, high: Tensor, count: int = 64) -> Tensor:
    """Outputs ``[B, A]`` that are the largest at some of ``count`` points of boxes ``[B, *S]``, half of them corners.

    The points are the same shares of every box, and the same in every call.
    """
    shares = torch.rand(count, *low.shape[1:], dtype=low.dtype, generator=torch.Generator().manual_seed(0))
    shares[::2].round_()
    points = torch.lerp(low[:, None], high[:, None], shares.to(low.device))
    values = module(points.flatten(0, 1))
    return one_hot(values.argmax(-1).view(len(low), count), values.shape[1]).bool().any(1)


def _open_in(module: nn.Module, low: Tensor, high: Tensor, margins: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Of parts: outputs that no bound excludes, how much every input matters, and outputs that are the largest."""
    best, apart, seen = largest_at_corners(module, low, high)
    most = crown(module, low, high, difference_spec(best, apart.shape[1], low.dtype))[1]
    left = most >= -(margins + margins.gather(1, best[:, None]))
    left.scatter_(1, best[:, None], True)
    steep = (apart.abs() * left[..., None]).sum(1) * ((high - low) / 2).flatten(1)
    return left, steep, seen


def _slopes(module: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    """Outputs ``[B, A]`` and their gradients ``[B, A, N]``."""
    with torch.enable_grad():
        x = x.detach().clone().requires_grad_()
        outputs = module(x * 1)  # which the module may write to
        each = [torch.autograd.grad(outputs[:, i].sum(), x, retain_graph=True)[0] for i in range(outputs.shape[1])]
    return outputs.detach(), torch.stack([grad.flatten(1) for grad in each], 1)


def _reached(module: nn.Module, low: Tensor, high: Tensor, count: int) -> Tensor:
    """Of ``count`` outputs those that are the largest where projected gradient ascent takes each, from the middle."""
    if not len(low):  # many networks take no empty batch
        return torch.zeros(0, count, dtype=torch.bool, device=low.device)
    middle, step = (low + high) / 2, ((high - low) / 2)[:, None]
    x = middle[:, None].expand(len(low), count, *low.shape[1:])
    found = torch.zeros(len(low), count, dtype=torch.bool, device=low.device)
    own = torch.eye(count, dtype=torch.bool, device=low.device).repeat(len(low), 1)
    for i in range(ASCENT):
        with torch.enable_grad():
            at = x.flatten(0, 1).clone().requires_grad_()
            values = module(at * 1)
            ahead = values[own].sum() - values.masked_fill(own, -torch.inf).amax(1).sum()
            (grad,) = torch.autograd.grad(ahead, at)
        x = x + step * grad.view_as(x).sign() * 2 ** (-i / 2)
        x = torch.minimum(torch.maximum(x, low[:, None]), high[:, None])
        found |= one_hot(module(x.flatten(0, 1)).argmax(1).view(len(low), count), count).bool().any(1)
    return found


def _halves(low: Tensor, high: Tensor, axis: Tensor) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor], Tensor]:
    """Both halves of boxes along one axis of each, and whether there is a number between its ends."""
    here = one_hot(axis, low.flatten(1).shape[1]).bool().view_as(low)
    middle = (low + high) / 2
    between = ((low < middle) & (middle < high) & here).flatten(1).any(1)
    return (low, torch.where(here, middle, high)), (torch.where(here, middle, low), high), between
