"""The twin of :func:`adv_wrappers.attacks.gradient_attack.pgd` on small networks: all steps of an attack in one kernel.

Products are summed in float32 (no tf32) but in another order than BLAS takes, so results agree with the plain version
up to rounding: an element whose gradient is within rounding of zero may step the other way.
"""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import dataclass
from typing import Any

import torch
import triton
from torch import Tensor, nn
from torch.nn import functional

from adv_wrappers.accel import triton_loader
from adv_wrappers.attacks.mlp_kernel import pgd_kernel
from adv_wrappers.core.budgets import Linf
from adv_wrappers.networks.input_gradient import Normalize

WIDEST, ACTIONS = 128, 32
_BLOCK, _FEW = 32, 4096  # rows from which on a program takes twice as many: the processors are all busy then


@dataclass(frozen=True)
class Network:
    """What the kernel can run: an optional Normalize, then one to three hidden layers of one kind, then one more."""

    first: Any
    linears: tuple[nn.Linear, ...]
    tanh: bool

    @property
    def widths(self) -> tuple[int, ...]:
        """Of observation, hidden layers and output."""
        return (self.linears[0].in_features, *(layer.out_features for layer in self.linears))


def network(layers: list[nn.Module], shape: tuple[int, ...]) -> Network | None:
    """The layers of a chain on observations ``[*S]``, or None if the kernel does not know such a one."""
    first, rest, flat = None, list(layers), len(shape) == 1
    while rest and isinstance(rest[0], (Normalize, nn.Flatten)):
        layer = rest.pop(0)
        flat = flat or isinstance(layer, nn.Flatten)
        if isinstance(layer, Normalize):
            if first is not None:
                return None
            first = layer
    linears, curves = rest[::2], rest[1::2]
    kinds = {type(curve) for curve in curves}
    if not flat or len(linears) != len(curves) + 1 or not 1 <= len(curves) <= 3 or kinds not in ({nn.Tanh}, {nn.ReLU}):
        return None
    if any(type(layer) is not nn.Linear for layer in linears):
        return None
    found = Network(first, tuple(linears), nn.Tanh in kinds)  # type: ignore[arg-type]
    size = math.prod(shape)
    if found.widths[0] != size or max(found.widths) > WIDEST or not 2 <= found.widths[-1] <= ACTIONS:
        return None
    statistics = () if first is None else (first.mean, first.std)
    return None if any(t.numel() not in (1, size) for t in statistics) else found


def _block(width: int) -> int:
    return 16 if width <= 16 else _BLOCK


def _tile(net: Network, rows: int) -> tuple[int, int]:
    """Rows and warps of a program: with these, operands stay in registers."""
    if max(net.widths) > 64:
        return 16, 8
    return (16 if rows <= _FEW else 32), 4


def _fits(net: Network, rows: int, device: torch.device) -> bool:
    """Whether the weights and one activation have room in the shared memory of one processor."""
    if device.type != "cuda":
        return True
    padded = [triton.cdiv(width, _block(width)) * _block(width) for width in net.widths]
    need: int = 4 * (sum(a * b for a, b in itertools.pairwise(padded)) + max(padded) * _tile(net, rows)[0])
    index = torch.cuda.current_device() if device.index is None else device.index
    room: int = triton.runtime.driver.active.utils.get_device_properties(index)["max_shared_mem"]
    return need <= room


def supported(layers: list[nn.Module], labels: Tensor, x: Tensor) -> bool:
    """Whether :func:`pgd` takes these layers, int64 labels ``[B]`` and observations ``[B, *S]``."""
    net = network(layers, tuple(x.shape[1:])) if x.dtype == torch.float32 and x.is_contiguous() and len(x) else None
    if net is None or labels.dtype != torch.int64 or labels.shape != x.shape[:1] or not labels.is_contiguous():
        return False
    weights = [t for layer in net.linears for t in (layer.weight, layer.bias) if t is not None]
    weights += [] if net.first is None else [net.first.mean, net.first.std]
    plain = all(t.dtype == x.dtype and t.is_contiguous() and t.device == x.device for t in weights)
    return plain and labels.device == x.device and _fits(net, len(x), x.device)


@functools.cache  # never let go: a recorded graph may read it
def _no_bias(width: int, device: torch.device) -> Tensor:
    return torch.zeros(width, device=device)


def pgd(
    layers: list[nn.Module], objective: str, labels: Tensor, start: Tensor, low: Tensor, high: Tensor, steps: int,
    length: float, scale: float | Tensor | None = None, grid: bool = False, toward: bool = False,
) -> Tensor | None:  # fmt: skip
    """Signed gradient steps from ``start`` within the box, ``[B, *S]``; None for what the kernel does not know.

    Args:
        layers: of a chain: an optional Normalize and Flatten, then one to three hidden layers with tanh or ReLU, no
            layer wider than 128, 2 to 32 actions.
        objective: ``"cross-entropy"`` or ``"margin"``, of ``labels`` int64 ``[B]``; ``toward`` for the negative of it.
        start, low, high: float32.
        length: of a step, in the units of the space, or of ``scale`` (a number, or one a feature).
        grid: whether every iterate is rounded, and every step at least 1.
    """
    net = network(layers, tuple(start.shape[1:]))
    alike = all(t.shape == start.shape and t.dtype == start.dtype and t.is_contiguous() for t in (low, high))
    if net is None or not alike or not supported(layers, labels, start):
        return None
    out, rows = torch.empty_like(start), len(start)
    linears = [*net.linears[:-1], *[net.linears[-1]] * (5 - len(net.linears))]  # the last one fills the gaps
    weights: list[Tensor] = []
    for layer in linears:
        bias = _no_bias(layer.out_features, start.device) if layer.bias is None else layer.bias
        weights += [layer.weight, bias]
    widths = [*net.widths[:-1], *[0] * (5 - len(net.widths)), net.widths[-1]]
    mean, std, clip = (out, out, None) if net.first is None else (net.first.mean, net.first.std, net.first.clip)
    units = scale.detach() if isinstance(scale, Tensor) else out  # an alias, so that whoever watches torch sees it
    number, unit = (1.0, 0) if scale is None else (1.0, 2) if isinstance(scale, Tensor) else (float(scale), 1)
    tile, warps = _tile(net, rows)
    pgd_kernel[(triton.cdiv(rows, tile),)](
        start, low, high, labels, out, units, mean, std, *weights, rows, steps, float(length), number,
        0.0 if clip is None else float(clip), *widths, *map(_block, widths),
        TANH=net.tanh, NORM=0 if net.first is None else 1 if clip is None else 2,
        MEAN=int(mean.numel() > 1), STD=int(std.numel() > 1), UNIT=unit, GRID=grid, MARGIN=objective == "margin",
        TOWARD=toward, ROWS=tile, num_warps=warps, num_stages=1, enable_fp_fusion=True,
    )  # fmt: skip
    return out


def plainly(
    net: nn.Module, objective: str, labels: Tensor, y: Tensor, low: Tensor, high: Tensor, steps: int, length: float,
    budget: Linf, grid: bool = False, toward: bool = False,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """What :func:`pgd` does, by autograd and the plain step: the last iterate, and the objective ``[B]`` there."""

    def loss(y: Tensor) -> Tensor:
        params = net(y)
        own = params.gather(1, labels[:, None])[:, 0]
        margin = params.scatter(1, labels[:, None], -torch.inf).amax(1) - own
        rise = margin if objective == "margin" else functional.cross_entropy(params, labels, reduction="none")
        return -rise if toward else rise

    for _ in range(steps):
        with torch.enable_grad():
            leaf = y.detach().requires_grad_()
            slope = torch.autograd.grad(loss(leaf).sum(), leaf)[0]
        y = budget.plainly(y, slope, length, y, low, high, grid)
    with torch.no_grad():
        return y, loss(y)


@torch.inference_mode(False)
def trial(device: torch.device) -> None:
    """Raise unless kernel and autograd end at the same points, and where they do not, at the same objective.

    One element in a hundred may have stepped the other way; rows with such a one must reach the same value to 1%.
    """
    generator = torch.Generator().manual_seed(0)
    draw = functools.partial(torch.rand, generator=generator)
    for widths, curve, clip, scale, toward in (
        ((7, 33, 3), nn.Tanh, None, None, False),
        ((40, 20, 64, 5), nn.ReLU, 1.5, 0.5, True),
        ((5, 65, 18, 70, 18), nn.Tanh, 2.0, (1.0, 0.0, 2.0, 0.5, 1.0), False),
    ):
        linears = [nn.Linear(a, b) for a, b in itertools.pairwise(widths)]
        for parameter in itertools.chain.from_iterable(layer.parameters() for layer in linears):
            parameter.data = (draw(parameter.shape) - 0.5) * 4 / parameter.shape[-1] ** 0.5
        layers: list[nn.Module] = [Normalize(draw(widths[0]), draw(widths[0]) + 0.5, clip)] if clip else []
        layers += [layer for linear in linears for layer in (linear, curve())][:-1]
        net = nn.Sequential(*layers).to(device)
        x, labels = draw(19, widths[0]).to(device), torch.arange(19).remainder(widths[-1]).to(device)
        low, high, budget = x - 0.1, x + 0.1, Linf(0.1, scale)
        for objective in ("cross-entropy", "margin"):
            asked = objective, labels, x, low, high, 5, 0.03
            expected, reached = plainly(net, *asked, budget, toward=toward)
            got = pgd(list(net), *asked, budget.units(x), toward=toward)
            assert got is not None
            off = (got - expected).abs() > 1e-5
            what = f"{objective} on {widths}"
            triton_loader.same(
                f"elements that stepped the other way: {what}", off.float().mean(), torch.zeros(()).to(device), 0.01
            )
            _, value = plainly(net, objective, labels, got, low, high, 0, 0.0, budget, toward=toward)
            triton_loader.same(what, value, reached, 0.01 * float(reached.abs().max()))
