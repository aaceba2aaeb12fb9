"""Physical parameters at random: drawn for a run, for every episode, or for every step.

The sources of Robust-Gymnasium (Gu et al. 2025, ICLR) on the robot and its environment are these, uniform or Gaussian,
per episode or per step. Here a draw never leaves its budget.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from adv_wrappers.core import rng
from adv_wrappers.core.context import Context
from adv_wrappers.core.perturbation import BoundedPerturbation, DynamicsPerturbation
from adv_wrappers.errors import ValueRangeError
from adv_wrappers.utils.check_numbers import check_integer

KINDS, EVERY = ("uniform", "bernoulli", "gaussian"), ("run", "episode", "step")


@dataclass(frozen=True)
class DynamicsNoise(DynamicsPerturbation, BoundedPerturbation):
    """Random physical parameters.

    Args:
        kind: ``uniform`` over the budget, ``bernoulli`` (plus or minus the full radius), or ``gaussian`` (standard
            deviation one radius, drawn back into the budget).
        every: how long a draw holds: ``run`` (all episodes have the same one), ``episode`` or ``step``.
        seed: seeds the draw that holds for a run, of which two layers need different ones; the others follow the reset
            seed.

    Raises:
        ValueRangeError: for an unknown kind or duration, and a seed that is none.
    """

    name: ClassVar[str] = "dynamics-noise"
    arrays: ClassVar[bool] = True
    kind: str = "uniform"
    every: str = "episode"
    seed: int = 0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueRangeError(f"kind of dynamics noise must be {', '.join(KINDS)}, got {self.kind!r}")
        if self.every not in EVERY:
            raise ValueRangeError(f"dynamics noise is drawn every {', '.join(EVERY)}, got {self.every!r}")
        check_integer("seed", self.seed, 0)

    def __call__(self, x: Tensor, context: Context) -> Tensor:
        if self.every == "step":
            return context.noise(self.kind)
        key: Any = context.episode_key
        if self.every == "run":
            root = rng.root(self.seed)
            key = rng.as_tensor(root, len(x), x.device) if isinstance(x, Tensor) else np.full(len(x), root, np.uint64)
        return context.noise(self.kind, _Draws(key, context))


class _Draws:
    """Random numbers of a key that is not that of the step."""

    def __init__(self, key: Any, context: Context) -> None:
        self._key, self._shape, self._dtype, self._count = key, context.shape, context.dtype, 0

    def _next(self) -> Any:
        self._count += 1
        return rng.fold(self._key, self._count)

    def uniform(self) -> Any:
        """Uniform in [0, 1)."""
        return rng.uniform(self._next(), self._shape, self._dtype)

    def normal(self) -> Any:
        """Standard normal."""
        return rng.normal(self._next(), self._shape, self._dtype)

    def signs(self) -> Any:
        """Fair signs."""
        return rng.signs(self._next(), self._shape, self._dtype)
