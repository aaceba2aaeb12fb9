"""Which outputs of a network can be the largest somewhere in a box, decided by splitting the box.

An output is decided once it is the largest at some point that was evaluated, or excluded in every part of the box
by a linear bound. Parts that hold neither are halved, where the outputs change most, and in every third round where
most of the box's width is left. Bounds of ever smaller boxes become exact, so that in few dimensions everything is
decided but outputs that tie with the largest and never exceed it. (Branch and bound on inputs, as of Wang et al.
2018, ReluVal.)
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from adv_wrappers.bounds.crown_bounds import crown
from adv_wrappers.bounds.interval_bounds import check_box
from adv_wrappers.bounds.probabilities import difference_spec
from adv_wrappers.utils.checks import integer


@dataclass(frozen=True)
class Decision:
    """What :func:`decide` found out about boxes ``[B, *S]`` and outputs ``[B, A]``.

    Attributes:
        found: bool ``[B, A]``, the outputs that are the largest at some point of the box.
        undecided: bool ``[B, A]``, those that are neither found nor excluded.
        boxes: int64 ``[B]``, how many boxes were bounded.
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

    Raises:
        VictimError: for a layer without bounds.
        ValueRangeError: for boxes that are none, and limits below 1.

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
    with torch.inference_mode(False), torch.no_grad():  # tensors of inference mode have no gradient
        return _decide(module, low.clone(), high.clone(), most_boxes, torch.as_tensor(margin).clone(), at_once)


def _decide(module: nn.Module, low: Tensor, high: Tensor, most_boxes: int, margin: Tensor, at_once: int) -> Decision:
    outputs = module((low + high) / 2)
    margins = margin.to(low.device, low.dtype).expand_as(outputs)
    found = torch.zeros_like(outputs, dtype=torch.bool)
    undecided = torch.zeros_like(found)
    boxes = torch.zeros(len(low), dtype=torch.int64, device=low.device)
    owner = torch.arange(len(low), device=low.device)  # which box a part belongs to
    part, width = (low, high), (high - low).flatten(1)
    turn = 0
    # a round bounds all parts that are open, settles what it can, and halves the rest
    while len(owner):
        boxes.index_add_(0, owner, torch.ones_like(owner))
        open_, axis = [], []
        # which outputs no bound excludes in a part, and the axis to halve it along: the one along which the outputs
        # change most, or in every third round the one that was halved least
        for rows in torch.arange(len(owner), device=low.device).split(at_once):
            mine = owner[rows]
            left, steep, seen = _open_in(module, part[0][rows], part[1][rows], margins[mine])
            found.index_put_((mine,), seen, accumulate=True)
            share = (part[1][rows] - part[0][rows]).flatten(1) / width[mine].clamp(min=torch.finfo(low.dtype).tiny)
            open_.append(left)
            axis.append((share if turn % 3 == 2 else steep).argmax(1))
        left = torch.cat(open_) & ~found[owner]
        keep = left.any(1)
        # parts in which no output is open are done
        owner = owner[keep]
        left = left[keep]
        axis_of = torch.cat(axis)[keep]
        part = part[0][keep], part[1][keep]
        # the others are halved; where that is one part too many, or there is no number between the ends, what is open
        # stays so
        first, second, halves = _halves(*part, axis_of)
        count = torch.zeros_like(boxes).index_add_(0, owner, torch.full_like(owner, 2))
        goes_on = halves & (boxes + count <= most_boxes)[owner]
        undecided.index_put_((owner[~goes_on],), left[~goes_on], accumulate=True)
        owner = owner[goes_on].repeat(2)
        part = torch.cat([first[0][goes_on], second[0][goes_on]]), torch.cat([first[1][goes_on], second[1][goes_on]])
        turn += 1
    return Decision(found, undecided & ~found, boxes)


def _open_in(module: nn.Module, low: Tensor, high: Tensor, margins: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Of parts: outputs that no bound excludes, how much every input matters, and outputs that are the largest.

    The last are those of the middle of a part, and of the corners to which gradients there point.
    """
    middle, radius = (low + high) / 2, (high - low) / 2
    outputs, slopes = _slopes(module, middle)
    best = outputs.argmax(1)
    count = outputs.shape[1]
    # how fast every output gains on the largest one, and the corner to which that points
    apart = slopes - slopes[torch.arange(len(low), device=low.device), best][:, None]
    corners = middle[:, None] + radius[:, None] * apart.sign().view(len(low), count, *low.shape[1:])
    corners = torch.minimum(torch.maximum(corners, low[:, None]), high[:, None])
    ahead = module(corners.flatten(0, 1)).argmax(-1).view(len(low), count)
    seen = one_hot(ahead, count).bool().any(1).scatter(1, best[:, None], True)
    # an output is excluded where its lead over that of the middle is below zero all over the part, by more than
    # rounding
    most = crown(module, low, high, difference_spec(best, count, low.dtype))[1]
    left = most >= -(margins + margins.gather(1, best[:, None]))
    left.scatter_(1, best[:, None], True)
    steep = (apart.abs() * left[..., None]).sum(1) * radius.flatten(1)
    return left, steep, seen


def _slopes(module: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    """Outputs ``[B, A]`` and their gradients ``[B, A, N]``."""
    with torch.enable_grad():
        x = x.detach().clone().requires_grad_()
        outputs = module(x * 1)  # which the module may write to
        each = [torch.autograd.grad(outputs[:, i].sum(), x, retain_graph=True)[0] for i in range(outputs.shape[1])]
    return outputs.detach(), torch.stack([grad.flatten(1) for grad in each], 1)


def _halves(low: Tensor, high: Tensor, axis: Tensor) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor], Tensor]:
    """Both halves of boxes along one axis of each, and whether there is a number between its ends."""
    here = one_hot(axis, low.flatten(1).shape[1]).bool().view_as(low)
    middle = (low + high) / 2
    between = ((low < middle) & (middle < high) & here).flatten(1).any(1)
    return (low, torch.where(here, middle, high)), (torch.where(here, middle, low), high), between
