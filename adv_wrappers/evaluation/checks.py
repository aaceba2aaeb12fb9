"""Warnings: signs that an evaluation should not be trusted (after AutoAttack's checks, Croce and Hein 2020).

An attack that fails looks like an agent that is robust. Each check returns sentences that say what was seen and what
may be done about it; a report carries them, and so does the table of the command line.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from adv_wrappers.adversaries.learned import Learned
from adv_wrappers.core.arrays import to_victim
from adv_wrappers.core.bound import Bound
from adv_wrappers.core.errors import ThreatError
from adv_wrappers.core.perturbation import Perturbation
from adv_wrappers.core.perturber import Perturber
from adv_wrappers.core.session import select
from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.core.values import encode
from adv_wrappers.evaluation.flips import MOST
from adv_wrappers.evaluation.metrics import interval
from adv_wrappers.victims.victim import Victim

_MOST = 0.5  # a share above which something that may happen now and then is a warning


@dataclass(frozen=True)
class Outcome:
    """What the checks look at: one row of a report.

    Attributes:
        name: text of the threat.
        layers: innermost first, victims filled in; empty for the clean run.
        returns: float ``[episodes]``.
        struck: steps at which an observation was struck; ``still`` of these handed it out unchanged.
        slopes: observations at which an attack's gradient was looked at; at ``flat`` of these it is zero or not finite.
        grid: whether the observation is made of integers.
        flipped: share of observations at which the victim acts otherwise in the precision of the attack.
    """

    name: str
    layers: tuple[ThreatModel, ...]
    returns: NDArray[np.float64]
    struck: int = 0
    still: int = 0
    slopes: int = 0
    flat: int = 0
    grid: bool = False
    flipped: float = 0.0


def slopes(engine: Perturber, obs: Any, rows: NDArray[np.intp]) -> tuple[int, int]:
    """At how many observations an attack's gradient was looked at, and at how many of these it is zero or not finite.

    The gradient is that of the attack's own objective for the true observation, taken a little beside it: a
    divergence is flat at the true observation itself.

    Args:
        engine: of an observation layer.
        obs: true observations ``[B, *S]``, or a dictionary of them.
        rows: which of them, int ``[n]``.
    """
    how: Any = engine.threat.how
    victim, field = getattr(how, "victim", None), engine.field
    if not isinstance(how, Perturbation) or not hasattr(how, "objective") or victim is None:
        return 0, 0
    full = to_victim(select(obs, rows), victim.dtype, victim.device, True)
    x = field.take(full, True)
    fill = None if field.keys is None else (lambda part: field.give(full, part, True))
    bound = Bound(victim, engine.session.state(victim, rows), fill, full)
    signs = torch.ones(x[0].numel(), dtype=x.dtype, device=x.device)
    signs[1::2] = -1
    beside = x + signs.view(x.shape[1:]) * (1.0 if field.grid else 1e-3 * x.abs().clamp(min=1.0))
    with torch.no_grad():
        gradient = bound.gradient(how.objective(x, bound))(beside)
    gradient = gradient.flatten(1)
    flat = ~(gradient.ne(0).any(1) & gradient.isfinite().all(1))
    return len(rows), int(flat.sum())


def check(outcomes: Sequence[Outcome], victim: Victim) -> list[str]:
    """All warnings about a set of runs of one victim, in the order of the runs."""
    found = stochastic(victim)
    for outcome in outcomes:
        found += unmoved(outcome)
    return found + weaker_than_noise(outcomes) + learned_nothing(outcomes) + not_falling(outcomes)


def stochastic(victim: Victim) -> list[str]:
    """A victim whose source samples its actions, evaluated by their mode."""
    if victim.select == "sample" or victim.kind not in ("logits", "gaussian"):
        return []
    source = ((victim.card or {}).get("action") or {}).get("select")
    if source == "sample":
        return ["the victim's source samples its actions, here it plays their mode: load it with select='sample'"]
    if victim.card is None:
        return ["a stochastic policy is evaluated by its mode: if the agent samples its actions, use select='sample'"]
    return []


def unmoved(outcome: Outcome) -> list[str]:
    """Zero gradients, and perturbations that strike without changing anything."""
    found = []
    if outcome.slopes and outcome.flat > _MOST * outcome.slopes:
        found.append(
            f"{outcome.name}: zero gradients at {outcome.flat} of {outcome.slopes} observations, so the attack is "
            f"blind there: another loss, or an attack that needs no gradient, may be far stronger"
        )
    if outcome.struck and outcome.still > _MOST * outcome.struck:
        where = f"{outcome.still} of {outcome.struck} struck observations came out unchanged"
        if outcome.grid and not outcome.flat:
            found.append(f"{outcome.name}: {where}: lost by rounding to integers; raise eps or use quantize=False")
        else:
            found.append(f"{outcome.name}: {where}")
    if outcome.flipped > MOST:
        found.append(
            f"{outcome.name}: in the precision of the attack the victim acts otherwise at {outcome.flipped:.1%} of the "
            f"observations: compare with the attack in full precision"
        )
    return found


def _setting(layer: ThreatModel, drop: Sequence[str] = ()) -> str | None:
    """Text by which two layers' budgets, timings and places are compared; None where they have no JSON form."""
    try:
        parts: dict[str, Any] = {
            "within": layer.budget.to_dict(), "at": layer.at,
            "when": encode(layer.when),
        }  # fmt: skip
    except ThreatError:  # a function has no JSON form: nothing to compare by
        return None
    for key in drop:
        parts["within"].pop(key, None)
    return json.dumps(parts, sort_keys=True, default=str)


def weaker_than_noise(outcomes: Sequence[Outcome]) -> list[str]:
    """Attacks that take less than noise of the same budget takes, beyond the interval of the paired difference."""
    single = [o for o in outcomes if len(o.layers) == 1]
    found = []
    for noise in (o for o in single if o.layers[0].label == "noise"):
        for attack in (o for o in single if o.layers[0].label != "noise" and o.layers[0].on == "observation"):
            same = _setting(attack.layers[0]) == _setting(noise.layers[0]) is not None
            if same and interval(attack.returns - noise.returns)[0] > 0:
                found.append(
                    f"{attack.name} is weaker than {noise.name} ({attack.returns.mean():.6g} against "
                    f"{noise.returns.mean():.6g}): the attack fails, rather than the agent withstands"
                )
    return found


def learned_nothing(outcomes: Sequence[Outcome]) -> list[str]:
    """Trained adversaries that take no more than chance from the clean return, on the same episodes."""
    clean = next((o.returns for o in outcomes if not o.layers), None)
    trained = [o for o in outcomes if any(isinstance(layer.how, Learned) for layer in o.layers)]
    return [
        f"{o.name} takes nothing of the clean return ({o.returns.mean():.6g} of {clean.mean():.6g}): its training may "
        f"have met no reward to learn from, so it says little of the agent"
        for o in trained
        if clean is not None and interval(clean - o.returns)[0] <= 0
    ]


def not_falling(outcomes: Sequence[Outcome]) -> list[str]:
    """The same attack with a larger eps that leaves a higher return, beyond both intervals."""
    families: dict[str, list[tuple[float, Outcome]]] = {}
    for outcome in outcomes:
        if len(outcome.layers) != 1:
            continue
        layer = outcome.layers[0]
        eps, setting = getattr(layer.budget, "eps", None), _setting(layer, ("eps",))
        if eps is not None and setting is not None:
            families.setdefault(f"{layer.how!r} {setting}", []).append((float(eps), outcome))
    found = []
    for family in families.values():
        ordered = [outcome for _, outcome in sorted(family, key=lambda pair: pair[0])]
        for small, large in itertools.pairwise(ordered):
            if interval(large.returns)[0] > interval(small.returns)[1]:
                found.append(
                    f"{large.name} leaves a higher return than {small.name} ({large.returns.mean():.6g} against "
                    f"{small.returns.mean():.6g}): the larger budget contains the smaller, so the attack fails"
                )
    return found
