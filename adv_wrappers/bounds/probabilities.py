"""Bounds on the probability of an action, from bounds on the differences of logits.

``log pi(a) = -log sum_j exp(z_j - z_a)`` falls with every difference ``z_j - z_a``, so that bounds on the differences
bound it. Differences bounded as such (:func:`difference_spec`) are tighter than differences of bounds: what two logits
have in common cancels. Oikarinen et al. 2020 bound their losses so (section 4.2).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from adv_wrappers.errors import ValueRangeError


def difference_spec(actions: Tensor, count: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Rows ``e_j - e_action``, ``[B, A, A]``: how far the output of every action is above that of the row's action.

    Args:
        actions: int64 ``[B]``, from 0 to ``count - 1``.
        count: the number A of actions.
        dtype: of the box that the specification is for.

    >>> import torch
    >>> from adv_wrappers.bounds.probabilities import difference_spec
    >>> difference_spec(torch.tensor([1]), 3).tolist()
    [[[1.0, -1.0, 0.0], [0.0, 0.0, 0.0], [0.0, -1.0, 1.0]]]
    """
    if actions.dim() != 1 or actions.dtype != torch.int64:
        raise ValueRangeError(f"expected actions [B] of int64, got {actions.dtype} {tuple(actions.shape)}")
    return torch.eye(count, dtype=dtype, device=actions.device) - one_hot(actions, count).to(dtype)[:, None]


def log_probability(low: Tensor, high: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
    """Bounds ``(low [B], high [B])`` on ``log pi(action)``; differentiable.

    Args:
        low, high: bounds ``[B, A]`` on ``z_j - z_action`` for every action j, as :func:`difference_spec` asks for.
        action: int64 ``[B]``.

    >>> import torch
    >>> from adv_wrappers.bounds.probabilities import log_probability
    >>> low, high = log_probability(torch.tensor([[0.0, -1.0]]), torch.tensor([[0.0, 1.0]]), torch.tensor([0]))
    >>> round(low.exp().item(), 3), round(high.exp().item(), 3)
    (0.269, 0.731)
    """
    own = one_hot(action, low.shape[-1]).bool()  # exactly 0, whatever was rounded
    least, most = low.masked_fill(own, 0.0), high.masked_fill(own, 0.0)
    return -most.logsumexp(-1), -least.logsumexp(-1)
