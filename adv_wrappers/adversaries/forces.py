"""Forces on bodies: the adversary of RARL (Pinto et al. 2017, "Robust Adversarial Reinforcement Learning").

The adversary pushes the agent's body while the agent acts. Its action is the force itself, in units of the budget:
three numbers a body of MuJoCo (x, y, z in newtons, at the centre of mass), two of Box2D. The paper pushes the feet
(Hopper, Walker2d) or torso and feet (HalfCheetah) in the plane; forces across it move nothing there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from adv_wrappers.adversaries.sa_rl import SARL
from adv_wrappers.core.perturbation import On
from adv_wrappers.errors import ValueRangeError
from adv_wrappers.utils.frozen import set_fields


@dataclass(frozen=True)
class Forces(SARL):
    """The adversary's action is the force on bodies, ``[3]`` numbers in [-1, 1] for each.

    Args:
        victim: unused; there so that all actors are made alike.
        bodies: names of the bodies that are pushed; one, several, or none for all.

    Raises:
        ValueRangeError: for anything but names.
    """

    name: ClassVar[str] = "forces"
    victim: Any = None
    bodies: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        given: Any = (self.bodies,) if isinstance(self.bodies, str) else self.bodies
        if not isinstance(given, (list, tuple)) or not all(isinstance(name, str) for name in given):
            raise ValueRangeError(f"bodies are names, as in Forces(bodies=('foot',)), got {self.bodies!r:.80}")
        set_fields(self, bodies=tuple(given))

    @property
    def on(self) -> On:
        return "dynamics"

    @property
    def at(self) -> tuple[str, ...]:
        """The parameters of the dynamics that it changes."""
        return tuple(f"force.{name}" for name in self.bodies) or ("force",)
