"""What a module returns: it is asked once, with two rows of zeros, before anything is built on it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor, nn

from adv_wrappers.core.errors import VictimError
from adv_wrappers.victims.families import params_of

Net = nn.Module | Callable[..., Any]


def width(space: spaces.Space[Any]) -> int:
    """Numbers a row that describe an action of this space (a mean, or logits of every choice)."""
    if isinstance(space, spaces.Discrete):
        return int(space.n)
    if isinstance(space, spaces.MultiDiscrete):
        return int(space.nvec.sum())
    if isinstance(space, spaces.MultiBinary):
        return 2 * int(torch.tensor(space.shape).prod())
    if isinstance(space, spaces.Box) and space.shape is not None and len(space.shape) == 1:
        return int(space.shape[0])
    raise VictimError(f"expected Discrete, MultiDiscrete, MultiBinary or one-dimensional Box actions, got {space}")


def _zeros(space: spaces.Space[Any], device: torch.device, dtype: torch.dtype) -> Any:
    if isinstance(space, spaces.Dict):
        return {key: _zeros(value, device, dtype) for key, value in space.spaces.items()}
    if not isinstance(space, spaces.Box):
        raise VictimError(f"expected Box observations (or a Dict of them), got {space}")
    return torch.zeros(2, *space.shape, device=device, dtype=dtype)


def probe(net: Net, space: spaces.Space[Any], start: Any, device: torch.device, dtype: torch.dtype) -> tuple[str, Any]:
    """What the module returns for two rows of zeros: a form, and (kind, width)."""
    obs = _zeros(space, device, dtype)
    try:
        with torch.no_grad():
            out = net(obs, start(2))[0] if start else net(obs)
    except Exception as error:
        raise VictimError(f"the module does not take observations of {space}: {error}") from error
    if isinstance(out, torch.distributions.Distribution):
        try:
            kind, params = params_of(out)
        except TypeError as error:
            raise VictimError(str(error)) from error
        return "distribution", (kind, params.shape[-1])
    if isinstance(out, tuple) and len(out) == 2 and isinstance(out[0], Tensor) and isinstance(out[1], Tensor):
        return "gaussian", ("gaussian", 2 * out[0].shape[-1])
    if not isinstance(out, Tensor) or out.dim() != 2 or len(out) != 2:
        raise VictimError(
            "the module must return [B, K], a (mean, log_std) pair or a Distribution, "
            f"got {type(out).__name__} of shape {tuple(getattr(out, 'shape', ()))} for a batch of 2"
        )
    return "tensor", (None, out.shape[-1])
