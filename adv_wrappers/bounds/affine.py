"""Rows of linear combinations of what an affine layer answers, as combinations of what it takes.

``rows @ layer(x) = pulled @ x + offset``: this is one step of bound propagation from the outputs of a network back to
its inputs (Zhang, Weng et al. 2018, section 3.3), and how a specification is multiplied into a network's last layer.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from adv_wrappers.errors import ValueRangeError
from adv_wrappers.networks.layers import AppendLogStd, Normalize, QuantileMean, TwoLogits

_VECTORS = (nn.Linear, QuantileMean, TwoLogits, AppendLogStd)
_ANY_SHAPE = (nn.Conv2d, nn.Flatten, nn.AvgPool2d, nn.Identity)


def runs(layer: nn.Module, kind: type[nn.Module]) -> bool:
    """Whether a layer runs the forward of ``kind``, as subclasses do that add nothing to it."""
    return isinstance(layer, kind) and getattr(layer.forward, "__func__", None) is kind.forward


def is_affine(layer: nn.Module) -> bool:
    """Whether :func:`pull_back` knows the layer."""
    if runs(layer, Normalize):
        return layer.clip is None
    return any(runs(layer, kind) for kind in (*_VECTORS, *_ANY_SHAPE))


def pull_back_vectors(layer: nn.Module, rows: Tensor) -> tuple[Tensor, Tensor] | None:
    """``(pulled, offset)`` of rows ``[..., M, K]``, ``[..., M, N]`` and ``[..., M]``, for layers of vectors.

    None for a layer that is not affine, or that takes more than vectors.
    """
    nothing = rows.new_zeros(())
    if runs(layer, nn.Linear):
        assert isinstance(layer, nn.Linear)
        check_width(rows, layer.out_features)
        return rows @ layer.weight, nothing if layer.bias is None else rows @ layer.bias
    if runs(layer, QuantileMean):  # [quantiles, K] in this order
        assert isinstance(layer, QuantileMean)
        return (rows / layer.quantiles).tile(layer.quantiles), nothing
    if runs(layer, TwoLogits):  # the logits of 0 are 0
        return rows[..., 1::2], nothing
    if runs(layer, AppendLogStd):
        assert isinstance(layer, AppendLogStd)
        mean, log_std = rows.chunk(2, -1)
        return mean, log_std @ layer.log_std.view(-1)
    return None


def pull_back(layer: nn.Module, rows: Tensor, shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """``(pulled, offset)`` of rows ``[B, M, *K]``: ``[B, M, *S]`` and ``[B, M]`` (or a zero).

    Args:
        layer: an affine one, see :func:`is_affine`.
        rows: the combinations.
        shape: ``S``, of a row of what the layer takes.
    """
    nothing = rows.new_zeros(())
    if len(shape) == 1 and rows.dim() == 3:
        found = pull_back_vectors(layer, rows)
        if found is not None:
            return found
    if isinstance(layer, (nn.Flatten, nn.Identity)):
        return rows.reshape(*rows.shape[:2], *shape), nothing
    if isinstance(layer, Normalize):
        pulled = rows / layer.std
        return pulled, -(pulled * layer.mean).flatten(2).sum(-1)
    if isinstance(layer, nn.Conv2d):
        back = _conv_transposed(layer, rows.flatten(0, 1), shape).unflatten(0, rows.shape[:2])
        return back, nothing if layer.bias is None else rows.sum((-2, -1)) @ layer.bias
    # pooling, and linear layers along the last of several axes
    zero = rows.new_zeros(1, *shape)
    at_zero, transposed = torch.func.vjp(layer, zero.expand(rows.shape[0] * rows.shape[1], *shape))[:2]
    (back,) = transposed(rows.flatten(0, 1))
    return back.unflatten(0, rows.shape[:2]), (rows * at_zero[:1]).flatten(2).sum(-1)


def _conv_transposed(layer: nn.Conv2d, rows: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Rows ``[R, C', H', W']`` of what a convolution answers back at ``[R, C, H, W]``."""
    if layer.padding == "valid":
        before = [0, 0]
    elif layer.padding == "same":
        before = [d * (k - 1) // 2 for d, k in zip(layer.dilation, layer.kernel_size, strict=True)]
    else:
        before = [int(p) for p in layer.padding]
    # as far as kernels reach; what no kernel reaches beyond that stays zero
    reached = functional.conv_transpose2d(
        rows, layer.weight, stride=layer.stride, groups=layer.groups, dilation=layer.dilation
    )
    missing = [max(0, p + n - m) for p, n, m in zip(before, shape[1:], reached.shape[2:], strict=True)]
    reached = functional.pad(reached, (0, missing[1], 0, missing[0]))
    return reached[:, :, before[0] : before[0] + shape[1], before[1] : before[1] + shape[2]]


def times(rows: Tensor, x: Tensor) -> Tensor:
    """``rows @ x``, ``[B, M]``, of rows ``[M, N]``, ``[1, M, N]`` or ``[B, M, N]`` and ``x`` ``[B, N]``."""
    if rows.dim() == 2 or len(rows) == 1:
        return x @ (rows if rows.dim() == 2 else rows[0]).T
    if rows.shape[1] <= 8:  # a product of a matrix and a vector for every row of a batch takes longer
        return (rows * x[:, None]).sum(-1)
    return (rows @ x[..., None]).squeeze(-1)


def check_width(rows: Tensor, outputs: int) -> None:
    """Raise :class:`ValueRangeError` unless rows combine this many outputs."""
    if rows.shape[-1] != outputs:
        raise ValueRangeError(
            f"a specification has rows of one number for each of the {outputs} outputs, got {rows.shape[-1]}"
        )
