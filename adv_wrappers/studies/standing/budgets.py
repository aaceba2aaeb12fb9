"""The budget of every environment of the standing: agents are compared under one, which no submission chooses.

The eps are those at which the agents of the literature were trained and attacked: of MuJoCo in normalised observations
(Zhang et al. 2020, Sun et al. 2022), of InvertedPendulum and Reacher in standard deviations of the state (the agents
of SA-DDPG), of images one grey level. Those of CartPole, MountainCar and dm_control are this library's own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from adv_wrappers.core.arrays import Scale
from adv_wrappers.core.budgets.budget import Linf
from adv_wrappers.errors import BudgetError
from adv_wrappers.studies.report.observation_ranges import ObservationRanges
from adv_wrappers.victims.victim import Victim

LEAST_UNIT = 0.5  # of the deviation that was observed: an agent's own unit below that makes its budget too small


@dataclass(frozen=True)
class StandingBudget:
    """What an attack may change in one environment.

    Attributes:
        eps: the radius of the l-infinity ball around every observation.
        scale: its unit: ``"victim"`` is the standard deviation by which the agent normalises a feature, or else that
            of its clean episodes; numbers are in the units of the observation; None is one of each.
        words: the unit in words.
    """

    eps: float
    scale: Scale
    words: str

    def __str__(self) -> str:
        return f"{self.eps:g} {self.words}"

    @property
    def arguments(self) -> str:
        """As arguments of a threat.

        >>> budget_of_environment("MountainCar-v0").arguments
        'eps=0.05,scale=0.9;0.07'
        """
        if self.scale is None:
            return f"eps={self.eps:g}"
        scale = ";".join(f"{unit:g}" for unit in self.scale) if isinstance(self.scale, tuple) else self.scale
        return f"eps={self.eps:g},scale={scale}"


_STD, _RAW = "standard deviations", "in raw units"
BUDGETS: dict[str, StandingBudget] = {
    "CartPole": StandingBudget(0.05, None, _RAW),
    "MountainCar": StandingBudget(0.05, (0.9, 0.07), "of half the range"),
    "InvertedPendulum": StandingBudget(0.3, "victim", _STD),
    "Reacher": StandingBudget(1.5, "victim", _STD),
    "Hopper": StandingBudget(0.075, "victim", _STD),
    "Walker2d": StandingBudget(0.05, "victim", _STD),
    "HalfCheetah": StandingBudget(0.15, "victim", _STD),
    "Ant": StandingBudget(0.15, "victim", _STD),
    "dm_control/cartpole-balance": StandingBudget(0.2, None, _RAW),
    "dm_control/cartpole-swingup": StandingBudget(0.1, None, _RAW),
    "dm_control/walker-stand": StandingBudget(0.2, None, _RAW),
    "dm_control/walker-walk": StandingBudget(0.2, None, _RAW),
    "dm_control/fish-upright": StandingBudget(0.2, None, _RAW),
}
IMAGES = StandingBudget(1.0, None, "grey level")  # of Atari: less is no change of an image of bytes
_ATARI = re.compile(r"^(ALE/.*|.*NoFrameskip)$")


def budget_of_environment(env: str) -> StandingBudget | None:
    """The budget of an environment by its id, whatever its version; None for one that the table does not have.

    >>> str(budget_of_environment("Hopper-v5")), str(budget_of_environment("PongNoFrameskip-v4"))
    ('0.075 standard deviations', '1 grey level')
    """
    name = re.sub(r"-v\d+$", "", env)
    return BUDGETS.get(name) or (IMAGES if _ATARI.match(name) else None)


def chosen_budget(env: str, eps: float | None, scale: Scale) -> StandingBudget:
    """The budget of the table, or the one that is given for an environment that the table does not have.

    Raises:
        BudgetError: for an environment without a budget and no ``eps``, and for an ``eps`` or ``scale`` that is not the
            table's.
    """
    known = budget_of_environment(env)
    if known is None:
        if eps is None:
            raise BudgetError(
                f"the standing has no budget for {env}, only for {', '.join(BUDGETS)} and Atari: give eps="
            )
        radius, words = eps, "of its own unit" if scale == "victim" else "of the scale"
        if radius == 0:
            raise BudgetError("eps=0 allows nothing: agents of a standing are attacked")
        return StandingBudget(radius, scale, _RAW if scale is None else words)
    # an environment of the table has one budget for all
    if (eps is not None and eps != known.eps) or (scale is not None and scale != known.scale):
        unit = "" if known.scale is None else f" with scale={known.scale!r}"
        asked = f"scale={scale!r}" if eps is None else f"eps={eps:g}"
        raise BudgetError(f"agents of {env} are all attacked at eps={known.eps:g}{unit}, got {asked}: leave it out")
    return known


def fitted_budget(budget: StandingBudget, victim: Victim, ranges: ObservationRanges) -> Linf:
    """The budget in the agent's own unit, once it is known that this unit does not shrink it.

    Args:
        budget: of the environment.
        victim: the agent.
        ranges: of what it saw in clean episodes.

    Raises:
        BudgetError: where the agent's card has a unit that leaves features which move alone, or that is less than half
            of the standard deviation of its own observations (the median over features): a unit is the submission's
            own number, and a small one would be a small budget.
    """
    if budget.scale != "victim":
        return Linf(budget.eps, budget.scale)
    observed = np.array([one.std for one in ranges.features or ()], np.float64)
    if victim.scale is None:
        return Linf(budget.eps, tuple(float(f"{one:.4g}") for one in observed))
    unit = np.broadcast_to(victim.scale.detach().cpu().numpy().astype(np.float64).reshape(-1), observed.shape)
    check_unit(unit.tolist(), observed.tolist(), ranges.names)
    return Linf(budget.eps, "victim")


def check_unit(unit: Sequence[float], observed: Sequence[float], names: Sequence[str] | None = None) -> None:
    """Raise :class:`BudgetError` for a unit that is far smaller than what was observed.

    Args:
        unit: of every feature, what an eps of 1 is.
        observed: of every feature, its standard deviation in clean episodes.
        names: of the features.
    """
    own, seen = np.asarray(unit, np.float64), np.asarray(observed, np.float64)
    moving = seen > 1e-6 * max(float(seen.max(initial=0.0)), 1e-12)
    # a unit of 0 for a feature that moves would hide it from attacks
    frozen = [i for i in range(len(own)) if moving[i] and own[i] == 0]
    if frozen:
        what = ", ".join(names[i] if names else f"feature {i}" for i in frozen[:3])
        raise BudgetError(
            f"the agent's own unit (attack.scale of its card, or its normaliser) is 0 for {what}, which it sees move: "
            f"attacks could not change them"
        )
    if not moving.any():
        return
    # and one that is far smaller than what is seen would make the budget small
    ratio = float(np.median(own[moving] / seen[moving]))
    if ratio < LEAST_UNIT:
        raise BudgetError(
            f"the agent's own unit (attack.scale of its card, or its normaliser) is {ratio:.2g} times the standard "
            f"deviation of what it sees, and the budget is counted in it: expected at least {LEAST_UNIT:g}"
        )
