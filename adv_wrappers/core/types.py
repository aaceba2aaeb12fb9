"""Names of the types that travel between wrappers, the engine and attacks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeAlias

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from torch import Tensor

Space: TypeAlias = spaces.Space[Any]
Array: TypeAlias = NDArray[Any]
Floats: TypeAlias = NDArray[np.float64]
Integers: TypeAlias = NDArray[np.int64]
DType: TypeAlias = np.dtype[Any] | torch.dtype
Batch: TypeAlias = NDArray[Any] | Tensor  # [B, *S]

Info: TypeAlias = dict[str, Any]

# One value for a single environment, else one a row: on the host numpy arrays [B], else tensors [B].
Flags: TypeAlias = bool | NDArray[np.bool_] | Tensor  # True and False also stand for all rows of a vector
Counter: TypeAlias = int | NDArray[np.int64] | Tensor
Amount: TypeAlias = float | NDArray[np.float64]  # rewards and returns
Chance: TypeAlias = float | NDArray[np.float64] | Tensor

Rows: TypeAlias = NDArray[np.intp] | None  # numbers of rows, None for all
Leaves: TypeAlias = dict[str, Tensor]  # [rows, ...]


class VictimLike(Protocol):
    """What the engine and a context ask of a victim (:class:`adv_wrappers.Victim`)."""

    observation_space: Space
    action_space: Space
    device: torch.device
    dtype: torch.dtype
    recurrent: bool
    ref: str | None
    scale: Tensor | None

    @property
    def scales(self) -> Mapping[str, Tensor]: ...
    def params(self, obs: Any, state: Any = None) -> Tensor: ...
    def policy(self, obs: Any, state: Any = None) -> torch.distributions.Distribution: ...
    def q(self, obs: Any, act: Tensor | None = None, state: Any = None) -> Tensor | None: ...
    def value(self, obs: Any, state: Any = None) -> Tensor | None: ...
    def check_params(self, params: Tensor, rows: int | None = None, look: bool = True) -> None: ...
    def initial_state(self, rows: int) -> Any: ...
    def advance(self, obs: Any, state: Any) -> Any: ...
    def fingerprint(self) -> str: ...
