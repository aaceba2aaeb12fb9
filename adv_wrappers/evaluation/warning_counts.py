"""What the checks need of a run: its threats, its returns, and the counts that are taken of single observations.

Counted are zero gradients, and answers of the victim that differ when it is asked twice about one observation.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from adv_wrappers.attacks.gradient_attack import GradientAttack
from adv_wrappers.core.arrays import flat_rows
from adv_wrappers.core.bound_victim import BoundVictim
from adv_wrappers.core.engine import Engine
from adv_wrappers.core.perturbation import Perturbation
from adv_wrappers.core.spaces import to_victim
from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.core.value import encode
from adv_wrappers.errors import ThreatError
from adv_wrappers.utils.trees import select
from adv_wrappers.victims.policy_runner import PolicyRunner

_ROUNDING = 64  # units in the last place by which two equal answers may differ, as on devices that add in any order


@dataclass(frozen=True)
class CheckedRow:
    """One row of a report, as the checks need it.

    Attributes:
        name: text of the threat.
        layers: the threats, innermost first, victims filled in; empty for the clean run.
        returns: of the episodes, float ``[episodes]``.
        attacked: the number of observations that were attacked.
        unchanged: those of them that the attack left as they were.
        gradients: the number of observations at which an attack's gradient was looked at.
        zero_gradients: those of them at which it is zero or not finite.
        integers: whether the observation is made of integers.
        alike: whether every episode was played twice, with other random numbers of the attack, and came out the same.
        asked_twice: the number of observations about which the victim was asked twice.
        unequal_answers: those of them at which the second answer was another one.
        transfer: whether the attack is aimed at another victim.
        unrepeated, outside: what :mod:`.first_steps` says of the environment; "" for nothing.
    """

    name: str
    layers: tuple[ThreatModel, ...]
    returns: NDArray[np.float64]
    attacked: int = 0
    unchanged: int = 0
    gradients: int = 0
    zero_gradients: int = 0
    integers: bool = False
    alike: bool = False
    asked_twice: int = 0
    unequal_answers: int = 0
    transfer: bool = False
    unrepeated: str = ""
    outside: str = ""


def setting_of(threat: ThreatModel, drop: Sequence[str] = ()) -> str | None:
    """A text by which the budgets, timings and keys of two threats are compared; None where one has no JSON form."""
    try:
        parts: dict[str, Any] = {
            "within": threat.budget.to_dict(),
            "at": threat.at,
            "when": encode(threat.when),
        }
    except ThreatError:  # a function has no JSON form: nothing to compare by
        return None
    for key in drop:
        parts["within"].pop(key, None)
    return json.dumps(parts, sort_keys=True, default=str)


def count_zero_gradients(engine: Engine, obs: Any, rows: NDArray[np.intp]) -> tuple[int, int]:
    """The number of observations at which an attack's gradient was computed, and of those where it is zero.

    A gradient that is not finite counts as zero. It is that of the attack's own objective for the true observation,
    taken a little beside it: a divergence has no slope at the true observation itself.

    Args:
        engine: the engine of a wrapper on observations.
        obs: true observations ``[B, *S]``, or a dictionary of them.
        rows: numbers of the rows that are looked at, int ``[n]``.
    """
    how: Any = engine.threat.how
    victim, field = getattr(how, "victim", None), engine.applied.field
    if not isinstance(how, Perturbation) or not hasattr(how, "objective") or victim is None:
        return 0, 0
    full = to_victim(select(obs, rows), victim.dtype, victim.device, True, space=victim.observation_space)
    x: Any = field.take(full, True)
    fill = None if field.keys is None else (lambda part: field.give(full, part, True))
    bound = BoundVictim(victim, engine.hidden_state(victim, rows), fill, full)
    signs = torch.ones(x[0].numel(), dtype=x.dtype, device=x.device)
    signs[1::2] = -1
    beside = x + signs.view(x.shape[1:]) * (1.0 if field.grid else 1e-3 * x.abs().clamp(min=1.0))
    with torch.no_grad():
        loss = how.objective(x, bound)
        gradient_of = how.gradient(bound, loss) if isinstance(how, GradientAttack) else bound.gradient(loss)
        gradient = flat_rows(gradient_of(beside))
    zero = ~gradient.ne(0).any(1) | ~torch.isfinite(gradient).all(1)
    return len(rows), int(zero.sum())


def count_unequal_answers(runner: PolicyRunner, obs: Any, rows: NDArray[np.intp]) -> tuple[int, int]:
    """The number of observations about which the victim is asked twice, and of those where its answers differ.

    Differences of a few units in the last place, of the largest number of an answer, count as none.

    Args:
        runner: acts for the victim.
        obs: observations ``[B, *S]``, or a dictionary of them.
        rows: numbers of the rows that are looked at, int ``[n]``.

    Raises:
        ValueRangeError: for observations that are not finite.
        VictimError: for answers that are not what was promised.
    """
    first, second = runner.params(obs, rows), runner.params(obs, rows)
    largest = torch.where(first.isfinite(), first.abs(), 0.0).amax(1, keepdim=True)
    near = (first - second).abs() <= _ROUNDING * torch.finfo(first.dtype).eps * largest
    return len(first), int((~(near | (first == second)).all(1)).sum())
