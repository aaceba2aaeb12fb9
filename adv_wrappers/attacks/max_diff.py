"""MaxDiff, also called MAD (Zhang et al. 2020, "Robust Deep RL against Adversarial Perturbations", equation 8).

Maximises ``KL(pi(s) || pi(s~))``. The divergence has a zero gradient at the true state, so the random start is not
optional. As in the released code: a start one step away in a random sign direction, 10 steps of a tenth of the radius,
annealed Gaussian noise on the gradient (``noise`` scales it). A deterministic actor is a Normal of unit variance, so
its divergence is half the squared distance of the actions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from adv_wrappers.attacks.ascent import check_steps, langevin
from adv_wrappers.attacks.objectives import Divergence
from adv_wrappers.core.context import Context
from adv_wrappers.core.errors import ValueRangeError
from adv_wrappers.core.threat import Perturbation


@dataclass(frozen=True)
class MaxDiff(Perturbation):
    """Maximise the divergence between what the victim would do and what it does.

    Args:
        victim: of any kind.
        steps, step: number of steps, and length of each as a fraction of the budget's radius.
        noise: factor of the annealed gradient noise, at least 0.
    """

    name: ClassVar[str] = "max-diff"
    search: ClassVar[bool] = True
    needs_victim: ClassVar[bool] = True
    victim: Any = None
    steps: int = 10
    step: float = 0.1
    noise: float = 1.0

    def __post_init__(self) -> None:
        check_steps(self.steps, self.step)
        if isinstance(self.noise, bool) or not isinstance(self.noise, (int, float)) or not 0 <= self.noise < float("inf"):
            raise ValueRangeError(f"noise must be a finite number of at least 0, got {self.noise!r}")

    def __call__(self, x: Tensor, context: Context) -> Tensor:
        bound = context.bind(self.victim)
        return langevin(context, bound.gradient(self.objective(x, bound)), self.steps, self.step, self.noise)

    def objective(self, x: Tensor, bound: Any) -> Any:
        """What is maximised, a loss on parameters ``[B, K] -> [B]``."""
        return Divergence(self.victim, bound.params(x))
