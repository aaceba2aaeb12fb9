"""The gradient of a graph beside that of autograd, step after step on the memory of the steps before."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from adv_wrappers.networks.input_gradient import LayerGraph


def check_gradient(
    graph: LayerGraph, compute: Callable[[Tensor], Tensor], draw: Callable[[int], Tensor], tolerance: float = 1e-11
) -> None:
    """A graph computes what ``compute`` does, its gradient is autograd's, and nothing of others is written over.

    Args:
        graph: of a network.
        compute: the network, on memory that it may write over.
        draw: a number of rows to as many float64 inputs.
        tolerance: relative and absolute.
    """
    seen, slopes, kept = list[Tensor](), list[tuple[Tensor, Tensor]](), list[tuple[Tensor, Tensor]]()

    def slope(params: Tensor) -> Tensor:
        seen.append(params.clone())
        own = torch.randn_like(params)
        slopes.append((own, own.clone()))
        return own

    for rows in (3, 3, 1):
        gradient = graph.input_gradient(slope)
        for _ in range(2):
            x = draw(rows)
            before = x.clone()
            found = gradient(x)
            given, same = slopes[-1]
            leaf = x.clone().requires_grad_()
            expected = compute(leaf.clone())
            torch.testing.assert_close(seen[-1], expected.detach(), rtol=tolerance, atol=tolerance)
            (expected,) = torch.autograd.grad((expected * given).sum(), leaf)
            torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)
            assert torch.equal(x, before) and torch.equal(given, same)
            kept.append((found, expected))
            if gradient.overwritable and len(kept) % 2:
                found.fill_(torch.nan)  # as an attack may
                kept.pop()
    for found, expected in kept:
        torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)
    assert any(expected.any() for _, expected in kept) or not kept
