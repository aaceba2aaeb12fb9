"""How far a network's own arithmetic may be off: an estimate of rounding errors over a box, for decisions near a tie.

Bounds hold in exact arithmetic, and a network computes in rounded. An error analysis that is certain adds up absolute
values in every layer, and of a deep network says nothing. Here errors are taken as independent of each other (Higham
and Mary 2019): every sum of a layer errs by one machine epsilon of the absolute values that it adds up, errors go
through the next layer by the squares of its weights, and activation functions do not make them larger (GELU and SiLU by
less than an eighth). Layer normalisation divides them by the least deviation of its box.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from adv_wrappers.bounds.interval_bounds import boxes_of, nodes_in
from adv_wrappers.networks.operations.linear_bounds import check_width, largest


def rounding(module: nn.Module, low: Tensor, high: Tensor, spec: Tensor, eps: float) -> Tensor:
    """The size ``[B, M]`` of rounding errors of combinations of a network's outputs, anywhere in boxes.

    Args:
        module: as :func:`adv_wrappers.bounds.interval_bounds` takes it.
        low, high: float tensors ``[B, *S]``.
        spec: rows of linear combinations of the outputs, ``[M, K]``.
        eps: the machine epsilon that the network computes with.
    """
    nodes = nodes_in(module, low)
    boxes = boxes_of(nodes, low, high, range(len(nodes) + 1))
    # errors of roundings are taken for independent: their variances add up, and go through every operation
    variances = [torch.zeros_like(low)]
    for number, node in enumerate(nodes, 1):
        before, taken = [variances[i] for i in node.inputs], [boxes[i] for i in node.inputs]
        variances.append(node.operation.rounding(before, taken, largest(*boxes[number]), eps))
    check_width(spec, variances[-1].shape[1])
    return (variances[-1] @ spec.square().T).sqrt()
