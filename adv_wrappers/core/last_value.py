"""What a perturbation remembers of a row: the value of its last attacked step, and whether there was one."""

from __future__ import annotations

import torch
from torch import Tensor


def no_last_value(x: Tensor) -> dict[str, Tensor]:
    """The memory before the first attacked step, for values of the shape and dtype of ``x [B, *S]``."""
    return {"last": x, "begun": torch.zeros(len(x), dtype=torch.bool, device=x.device)}


def last_value(memory: dict[str, Tensor], otherwise: Tensor) -> Tensor:
    """The last value of every row, ``[B, *S]``; in rows that have none, ``otherwise``, ``[B, *S]`` or ``[*S]``."""
    last = memory["last"].to(otherwise)
    begun = memory["begun"].to(last.device).view(-1, *[1] * (last.dim() - 1))
    return torch.where(begun, last, otherwise)


def remember_value(memory: dict[str, Tensor], value: Tensor) -> None:
    """Keep the value of this step, ``[B, *S]``."""
    memory["last"], memory["begun"] = value.to(memory["last"]), torch.ones_like(memory["begun"])
