"""Rows of linear combinations of what an affine layer answers, as combinations of what it takes.

``rows @ layer(x) = pulled @ x + offset``: this is one step of bound propagation from the outputs of a network back to
its inputs (Zhang et al. 2018, section 3.3), and how a specification is multiplied into a network's last layer.
"""

from __future__ import annotations

from torch import Tensor, nn

from adv_wrappers.errors import ValueRangeError
from adv_wrappers.networks.layers import AppendLogStd, QuantileMean, TwoLogits


def pull_back(layer: nn.Module, rows: Tensor, magnitudes: bool = False) -> tuple[Tensor, Tensor] | None:
    """``(pulled, offset)`` of rows ``[..., M, K]``, ``[..., M, N]`` and ``[..., M]``; None for layers not known here.

    Only layers from vectors to vectors are.

    Args:
        layer: the layer.
        rows: the combinations.
        magnitudes: take the absolute values of all weights.
    """
    nothing = rows.new_zeros(())
    if type(layer) is nn.Linear:
        check_width(rows, layer.out_features)
        weight = layer.weight.abs() if magnitudes else layer.weight
        if layer.bias is None:
            return rows @ weight, nothing
        return rows @ weight, rows @ (layer.bias.abs() if magnitudes else layer.bias)
    if type(layer) is QuantileMean:  # [quantiles, K] in this order
        return (rows / layer.quantiles).tile(layer.quantiles), nothing
    if type(layer) is TwoLogits:  # the logits of 0 are 0
        return rows[..., 1::2], nothing
    if type(layer) is AppendLogStd:
        mean, log_std = rows.chunk(2, -1)
        beside = layer.log_std.view(-1)
        return mean, log_std @ (beside.abs() if magnitudes else beside)
    return None


def check_width(rows: Tensor, outputs: int) -> None:
    """Raise :class:`ValueRangeError` unless rows combine this many outputs."""
    if rows.shape[-1] != outputs:
        raise ValueRangeError(
            f"a specification has rows of one number for each of the {outputs} outputs, got {rows.shape[-1]}"
        )
