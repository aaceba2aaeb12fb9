"""MaxDiff, also called MAD (Zhang et al. 2020, "Robust Deep RL against Adversarial Perturbations", equation 8).

Maximises ``KL(pi(s) || pi(s~))``. The divergence has a zero gradient at the true state, so the random start is not
optional: one step away in a random sign direction, then 10 steps of a tenth of the radius. The released codes add
annealed Gaussian noise to the gradient: SA-PPO a large one (factor 1), SA-DDPG next to none (1e-5). A deterministic
actor is a Normal of unit variance, so its divergence is half the squared distance of the actions.

How much noise is much depends on the scale of the loss: SA-PPO's is the squared distance of the means in standard
deviations that were divided by their average, and that is the divergence times twice the square of that average.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from adv_wrappers.attacks.ascent import Climb, Gradient, langevin
from adv_wrappers.attacks.objectives import Divergence
from adv_wrappers.core.context import Context
from adv_wrappers.core.errors import ValueRangeError
from adv_wrappers.core.threat import expect_victim
from adv_wrappers.core.values import real


@dataclass(frozen=True)
class MaxDiff(Climb):
    """Maximise the divergence between what the victim would do and what it does.

    Args:
        victim: of any kind.
        steps, step: number of steps, and length of each as a fraction of the budget's radius.
        noise: factor of the annealed gradient noise, at least 0; None takes the released code's, 1 for Gaussian
            policies and 1e-5 for the others.
    """

    name: ClassVar[str] = "max-diff"
    capturable: ClassVar[bool] = True
    victim: Any = None
    steps: int = 10
    step: float = 0.1
    noise: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        expect_victim(self.name, self.victim)
        if self.noise is None:
            return
        factor = real(self.noise)
        if factor is None or factor < 0:
            raise ValueRangeError(f"noise must be a finite number of at least 0, got {self.noise!r:.80}")

    def climb(self, context: Context, gradient: Gradient) -> Tensor:
        released = 1.0 if self.victim.kind == "gaussian" else 1e-5
        noise = released if self.noise is None else self.noise
        return langevin(context, gradient, self.steps, self.step, noise)

    def objective(self, x: Tensor, bound: Any) -> Any:
        return Divergence(self.victim, bound.params(x), averaged=self.victim.kind == "gaussian")
