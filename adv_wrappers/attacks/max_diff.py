"""MaxDiff, also called MAD (Zhang et al. 2020, "Robust Deep RL against Adversarial Perturbations", equation 8).

Maximises ``KL(pi(s) || pi(s~))``. The divergence has a zero gradient at the true state, so the random start is not
optional: one step away in a random sign direction, then 10 steps of a tenth of the radius. The released codes add
annealed Gaussian noise to the gradient: SA-PPO a large one (factor 1), SA-DDPG next to none (1e-5). A deterministic
actor is a Normal of unit variance, so its divergence is half the squared distance of the actions.

How much noise is much depends on the scale of the loss: SA-PPO's is the squared distance of the means in standard
deviations that were divided by their average, and that is the divergence times twice the square of that average
(``weights="std"``). But its published figures are those of agents that play their mean, which the released code makes
of them by setting every log standard deviation to -100: then all weights are one (``weights="one"``). The two differ:
an agent may withstand one and not the other.

Q-values are no policy. The paper takes their softmax, and so does this attack as long as it has a gradient: where the
best and the worst action lie more than 10 apart, both are divided until they do not (``temperature``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from torch import Tensor

from adv_wrappers.attacks.gradient_attack import GradientAttack, StepLength, Steps, langevin
from adv_wrappers.attacks.objectives import Temperature, Weights, divergence_of
from adv_wrappers.core.engine.context import Context
from adv_wrappers.core.engine.victim_view import VictimView
from adv_wrappers.utils.validation import Limits
from adv_wrappers.victims.gradients import Gradient, Loss


@dataclass(frozen=True)
class MaxDiff(GradientAttack):
    """Maximise the divergence between what the victim would do and what it does.

    ``MaxDiff(victim, restarts=6, keep="best", noise=0)`` is its strong form: a search for the largest divergence,
    rather than the published single ascent with noise.

    Args:
        victim: of any kind.
        steps, step: number of steps, and length of each as a fraction of the budget's radius; None for a tenth, or,
            with ``keep="best"``, half of it, falling linearly to nothing.
        noise: factor of the annealed gradient noise, at least 0; None takes the released code's, 1 for Gaussian
            policies and 1e-5 for the others.
        weights: of the dimensions of a Gaussian policy's action: ``"one"``, or ``"std"``: the inverse squares of its
            standard deviations, which makes it the divergence; None takes ``"one"`` for victims that play the mode.
        temperature: of the softmax over discrete actions, 1e-9 to 1e9; None takes one, and more for Q-values
            that lie far apart.

    Raises:
        ValueRangeError: for arguments out of range.
    """

    name: ClassVar[str] = "max-diff"
    capturable: ClassVar[bool] = True
    steps: Steps = 10
    step: StepLength | None = None
    noise: Annotated[float, Limits(0, 1e9)] | None = None
    weights: Weights | None = None
    temperature: Temperature | None = None

    def run_once(self, context: Context, gradient: Gradient, start: Tensor | None) -> Tensor:
        released = 1.0 if self.victim.kind == "gaussian" else 1e-5
        noise = released if self.noise is None else self.noise
        step, schedule = self.lengths
        return langevin(context, gradient, self.steps, step, noise, start, schedule)

    def objective(self, x: Tensor, bound: VictimView) -> Loss:
        return divergence_of(self.victim, bound.params(x), self.weights, self.temperature)
