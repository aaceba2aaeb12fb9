"""Lower precision for the gradients of attacks: which there is, how it is switched on, and which actions it flips.

An attack needs the sign of a gradient more than its digits. ``bf16`` computes layers in bfloat16 (fast on GPUs, and on
processors with matrix units for it); ``tf32`` lets a GPU's float32 products round their factors to 10 bits of mantissa,
and does nothing elsewhere. The loss, the step and the projection stay exact, and so does the agent: what is evaluated
is always the policy in full precision.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from adv_wrappers.core.errors import ValueRangeError

PRECISIONS = ("bf16", "tf32")


def check_precision(precision: str | None) -> None:
    """Raise :class:`ValueRangeError` unless this is ``"bf16"``, ``"tf32"``, or None for the victim's own."""
    if precision is not None and precision not in PRECISIONS:
        raise ValueRangeError(f"precision must be one of {', '.join(PRECISIONS)}, or None for full, got {precision!r}")


@contextlib.contextmanager
def lowered(precision: str | None, device: torch.device) -> Iterator[None]:
    """Networks that run in here do so in ``precision``; what was set before is set again afterwards."""
    if precision == "bf16":
        with torch.autocast(device.type, torch.bfloat16):
            yield
    elif precision == "tf32":
        products, convolutions = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
        torch.set_float32_matmul_precision("high")
        torch.backends.cudnn.allow_tf32 = True
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(products)
            torch.backends.cudnn.allow_tf32 = convolutions
    else:
        yield


@torch.no_grad()
def flipped(victim: Any, obs: Any, precision: str | None, state: Any = None) -> Tensor:
    """Observations at which the victim would do something else in lower precision, bool ``[B]``.

    Args:
        victim: of any kind.
        obs: ``[B, *S]`` in the victim's dtype and on its device (a dictionary of them for a Dict space).
        precision: see :func:`check_precision`.
        state: of a recurrent victim.

    Returns:
        For discrete actions whether the most likely one differs; for continuous ones whether any element of it moves by
        more than a hundredth of the action's range (0.01 where that is infinite).
    """
    check_precision(precision)
    exact = victim.mode(victim.params(obs, state))
    with lowered(precision, victim.device):
        params = victim.params(obs, state).to(victim.dtype)
    rough = victim.mode(params)
    if exact.dtype.is_floating_point:
        space = victim.action_space
        low, high = (
            torch.as_tensor(bound, dtype=exact.dtype, device=exact.device) for bound in (space.low, space.high)
        )
        width = torch.where(torch.isfinite(high - low), high - low, 1.0)
        differ: Tensor = (exact - rough).abs() > width / 100
    else:
        differ = exact != rough
    return differ.reshape(len(differ), -1).any(1)
