"""Rows of linear combinations of what an affine layer answers, as combinations of what it takes.

``rows @ layer(x) = pulled @ x + offset``: this is one step of bound propagation from the outputs of a network back to
its inputs (Zhang, Weng et al. 2018, section 3.3), and how a specification is multiplied into a network's last layer.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from adv_wrappers.bounds.layer_norm import Centred
from adv_wrappers.errors import ValueRangeError
from adv_wrappers.networks.graph import Arithmetic, Join, Mean, NodeLayer, Permute, Reshape, Slice, factor_and_offset
from adv_wrappers.networks.layers import AppendLogStd, Normalize, QuantileMean, TwoLogits

RowsByValue = dict[int, Tensor]  # by the number of a value: combinations of its elements, [B or 1, M, *S]
Shape = tuple[int, ...]

_VECTORS = (nn.Linear, QuantileMean, TwoLogits, AppendLogStd)
_ANY_SHAPE = (
    nn.Conv2d, nn.Flatten, nn.AvgPool2d, nn.AdaptiveAvgPool2d, nn.Identity, nn.Dropout, nn.Dropout2d, nn.BatchNorm1d,
    nn.BatchNorm2d,
)  # fmt: skip
_OPERATIONS = (Arithmetic, Mean, Slice, Permute, Reshape)


def runs(layer: nn.Module, kind: type[nn.Module]) -> bool:
    """Whether a layer runs the forward of ``kind``, as subclasses do that add nothing to it."""
    return isinstance(layer, kind) and getattr(layer.forward, "__func__", None) is kind.forward


def is_affine(layer: NodeLayer) -> bool:
    """Whether :func:`pull_back` knows the layer."""
    if isinstance(layer, Join):
        return layer.how != "product"
    if not isinstance(layer, nn.Module):
        return isinstance(layer, (*_OPERATIONS, Centred))
    if runs(layer, Normalize):
        return layer.clip is None
    return any(runs(layer, kind) for kind in (*_VECTORS, *_ANY_SHAPE))


def takes_vectors(layer: NodeLayer) -> bool:
    """Whether a layer is affine and of vectors, or an operation that is affine."""
    if isinstance(layer, nn.Module):
        return _type_takes_vectors(type(layer))
    return is_affine(layer) and not isinstance(layer, Centred)


def _type_takes_vectors(kind: type[nn.Module]) -> bool:
    found = _TYPES.get(kind)
    if found is None:
        found = any(issubclass(kind, base) and kind.forward is base.forward for base in _VECTORS)
        _TYPES[kind] = found
    return found


_TYPES: dict[type[nn.Module], bool] = {}  # looked up in every call


def pull_back_vectors(layer: nn.Module, rows: Tensor) -> tuple[Tensor, Tensor] | None:
    """``(pulled, offset)`` of rows ``[..., M, K]``, ``[..., M, N]`` and ``[..., M]``, for layers of vectors.

    None for a layer that is not affine, or that takes more than vectors.
    """
    if runs(layer, nn.Linear):
        assert isinstance(layer, nn.Linear)
        check_width(rows, layer.out_features)
        return rows @ layer.weight, rows.new_zeros(()) if layer.bias is None else rows @ layer.bias
    nothing = rows.new_zeros(())
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


def pull_back(layer: NodeLayer, rows: Tensor, shapes: Sequence[Shape]) -> tuple[Sequence[Tensor], Tensor]:
    """``(pulled, offset)`` of rows ``[B, M, *K]``: ``[B, M, *S]`` for every input, and ``[B, M]`` (or a zero).

    Args:
        layer: an affine one, see :func:`is_affine`.
        rows: the combinations.
        shapes: ``S``, of a row of each value that the layer takes.
    """
    if isinstance(layer, Join):
        return _pull_back_join(layer, rows, shapes)
    pulled, offset = _pull_back(layer, rows, shapes[0])
    return [pulled], offset


def _pull_back(layer: NodeLayer, rows: Tensor, shape: Shape) -> tuple[Tensor, Tensor]:
    if isinstance(layer, nn.Module) and len(shape) == 1 and rows.dim() == 3:
        found = pull_back_vectors(layer, rows)
        if found is not None:
            return found
    nothing = rows.new_zeros(())
    if isinstance(layer, (nn.Flatten, nn.Identity, nn.Dropout, nn.Dropout2d, Reshape)):
        return rows.reshape(*rows.shape[:2], *shape), nothing
    if isinstance(layer, Normalize):
        pulled = rows / layer.std
        return pulled, -flat(pulled * layer.mean, 2).sum(-1)
    if isinstance(layer, nn.Conv2d):
        back = _conv_transposed(layer, rows.flatten(0, 1), shape).unflatten(0, rows.shape[:2])
        return back, nothing if layer.bias is None else rows.sum((-2, -1)) @ layer.bias
    if isinstance(layer, Arithmetic):
        if layer.how == "add":
            return broadcast_back(rows, shape), flat(rows * layer.by, 2).sum(-1)
        return broadcast_back(rows * layer.by if layer.how == "multiply" else rows / layer.by, shape), nothing
    if isinstance(layer, (nn.BatchNorm1d, nn.BatchNorm2d)):
        factor, offset = factor_and_offset(layer, 1 + len(shape))
        return rows * factor, flat(rows * offset, 2).sum(-1)
    if isinstance(layer, Centred):
        return layer(rows), nothing
    if isinstance(layer, Permute):
        axes = [axis % len(layer.axes) for axis in layer.axes]
        return rows.permute(0, *(1 + axes.index(i) for i in range(len(axes)))), nothing
    # pooling, means, parts, and linear layers along the last of several axes
    zero = rows.new_zeros(1, *shape)
    at_zero, transposed = torch.func.vjp(layer, zero.expand(rows.shape[0] * rows.shape[1], *shape))[:2]
    (back,) = transposed(rows.flatten(0, 1))
    return back.unflatten(0, rows.shape[:2]), flat(rows * at_zero[:1], 2).sum(-1)


def _pull_back_join(join: Join, rows: Tensor, shapes: Sequence[Shape]) -> tuple[list[Tensor], Tensor]:
    if join.how != "concatenate":
        first, second = (broadcast_back(rows, shape) for shape in shapes)
        return [first, second if join.how == "sum" else -second], rows.new_zeros(())
    axis = join.axis if join.axis < 0 else join.axis - 1 - len(shapes[0])  # from behind, without the rows
    constants = dict(join.constants)
    inputs = iter(shapes)
    count = len(shapes) + len(constants)
    sizes = [constants[i].shape[-1] if i in constants else next(inputs)[axis] for i in range(count)]
    parts = rows.split(sizes, axis)
    offset = rows.new_zeros(())
    for at, each in join.constants:
        offset = offset + flat(parts[at] * each.to(rows.dtype), 2).sum(-1)
    return [part for i, part in enumerate(parts) if i not in constants], offset


def broadcast_back(rows: Tensor, shape: Shape) -> Tensor:
    """Rows ``[B, M, *K]`` of a value that was made of one of ``shape`` by broadcasting, ``[B, M, *S]``."""
    if tuple(rows.shape[2:]) == shape:
        return rows
    if rows.dim() != 2 + len(shape):
        raise ValueRangeError(f"values of shapes {tuple(rows.shape[2:])} and {shape} take several rows for one")
    return rows.sum_to_size(*rows.shape[:2], *shape)


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


def flat(x: Tensor, axes: int) -> Tensor:
    """``x`` with one axis behind its first ``axes``, in the place of all others, or of none."""
    return x.flatten(axes) if x.dim() > axes else x.unsqueeze(axes)
