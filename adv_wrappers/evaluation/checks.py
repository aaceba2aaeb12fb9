"""Warnings: signs that an evaluation should not be trusted (after AutoAttack's checks, Croce and Hein 2020).

An attack that fails looks like an agent that is robust. Each check returns sentences that say what was seen and what
may be done about it; a report carries them, and so does the table of the command line. The counts that they need of a
run, of zero gradients and of actions that differ in lower precision, are taken here too.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from adv_wrappers.adversaries.learned import Learned
from adv_wrappers.attacks.gradient_attack import GradientAttack
from adv_wrappers.attacks.max_diff import MaxDiff
from adv_wrappers.attacks.min_best import MinBest
from adv_wrappers.core.bound_victim import BoundVictim
from adv_wrappers.core.budgets import Linf
from adv_wrappers.core.engine import Engine
from adv_wrappers.core.newest import frame_budget
from adv_wrappers.core.perturbation import Perturbation
from adv_wrappers.core.spaces import Field, to_victim
from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.core.types import JSON, Observation
from adv_wrappers.core.values import encode
from adv_wrappers.errors import ThreatError
from adv_wrappers.evaluation.statistics import interval
from adv_wrappers.formatting import name_of
from adv_wrappers.presets import presets
from adv_wrappers.utils.numbers import finite
from adv_wrappers.utils.trees import select
from adv_wrappers.victims.gradients import flipped
from adv_wrappers.victims.victim import Victim

MAX_FLIPPED = 0.01  # share of observations at which lower precision may change the action without a warning
_MAX_SHARE = 0.5  # above this share, what may happen now and then is a warning
_STRONGER = "max-diff:restarts=6,keep=best,noise=0"


@dataclass(frozen=True)
class Outcome:
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
        flipped: the share of observations at which the victim acts differently in the precision of the attack.
        alike: whether every episode was played twice, with other random numbers of the attack, and came out the same.
    """

    name: str
    layers: tuple[ThreatModel, ...]
    returns: NDArray[np.float64]
    attacked: int = 0
    unchanged: int = 0
    gradients: int = 0
    zero_gradients: int = 0
    integers: bool = False
    flipped: float = 0.0
    alike: bool = False


def find_warnings(
    outcomes: Sequence[Outcome], victim: Victim, env: str | None = None, under: Sequence[str] = ()
) -> list[str]:  # fmt: skip
    """All warnings about a set of runs of one victim, in the order of the runs.

    Args:
        outcomes: the runs; the one without threats is the clean run.
        victim: the agent.
        env: the id of the environment.
        under: texts of the threats that the environment has itself, innermost first.
    """
    found = perturbed_already(under) + mode_of_stochastic_policy(victim)
    found += [] if under else far_below_training(outcomes, victim, env)
    for outcome in outcomes:
        found += budget_covers_space(outcome, victim) + without_effect(outcome)
    found += weaker_than_noise(outcomes) + learned_nothing(outcomes) + return_rises_with_eps(outcomes)
    return found + only_single_runs(outcomes, victim)


def perturbed_already(under: Sequence[str]) -> list[str]:
    """An environment that is perturbed itself, so that no row of the report is without an attack."""
    if not under:
        return []
    return [
        f"the environment is perturbed already, by {' + '.join(under)}: its first row is not the clean agent, regret "
        f"counts from that row, and there is no impact. Evaluate the environment beneath for clean figures"
    ]


def far_below_training(outcomes: Sequence[Outcome], victim: Victim, env: str | None) -> list[str]:
    """A clean run that leaves far less than the victim's card says was measured in the same environment.

    Far is beyond three standard errors of the difference and a tenth of the measured mean, with an interval that does
    not reach that mean. Of several measurements the lowest of these bounds counts.
    """
    card = victim.card or {}
    clean = next((o.returns for o in outcomes if not o.layers), None)
    if clean is None or env is None or (card.get("environment") or {}).get("id") != env:
        return []
    bounds = []
    for entry in card.get("measured") or ():
        if isinstance(entry, dict) and entry.get("attack") == "none":
            mean, std, episodes = (finite(entry.get(key)) for key in ("mean", "std", "episodes"))
            if mean is not None and std is not None and episodes:
                error = std * (1 / max(episodes, 1) + 1 / len(clean)) ** 0.5
                bounds.append((mean - max(3 * error, 0.1 * abs(mean)), mean))
    if not bounds:
        return []
    bound, mean = min(bounds)
    if clean.mean() >= bound or interval(clean)[1] >= mean:
        return []
    return [
        f"without an attack the agent earns {clean.mean():.6g}, its card says {mean:.6g}: this may not be what was "
        f"measured. Look at its observation statistics (VecNormalize), the version of {env}, the keyword arguments "
        f"of the environment, and select="
    ]


def budget_covers_space(outcome: Outcome, victim: Victim) -> list[str]:
    """Budgets within which every bounded feature can take every value of its space."""
    found = []
    for layer in outcome.layers:
        budget = frame_budget(layer.budget)
        if not isinstance(budget, Linf) or not isinstance(budget.scale, (float, tuple, type(None))):
            continue
        space = victim.observation_space if layer.on == "observation" else victim.action_space
        field = Field(space, layer.at, layer.on)
        width = np.subtract(field.high, field.low, dtype=np.float64).reshape(-1)
        bounded = np.isfinite(width)
        radius = np.broadcast_to(budget.eps * np.asarray(1.0 if budget.scale is None else budget.scale), width.shape)
        if bounded.any() and (width[bounded] > 0).any() and (radius[bounded] >= width[bounded]).all():
            low, high = (np.asarray(end).reshape(-1)[bounded] for end in (field.low, field.high))
            unit = "of the space" if budget.scale is None else "of its scale"
            found.append(
                f"{outcome.name}: a radius of eps={budget.eps:g} in units {unit} covers the whole range of the "
                f"{layer.on} ({low.min():g} to {high.max():g}), so every value of a bounded feature is allowed"
            )
    return found


def only_single_runs(outcomes: Sequence[Outcome], victim: Victim) -> list[str]:
    """One sentence where gradient attacks are single runs, and no stronger form of them is among the rows."""
    threats = {o.name: o.layers[0] for o in outcomes if len(o.layers) == 1 and o.layers[0].on == "observation"}
    restarts = {name: getattr(threat.how, "restarts", 1) for name, threat in threats.items()}
    strong: list[str] = [name for name in ("pgd", "apgd", "multi-targeted") if victim.discrete and name in presets]
    if "restarts" in {field.name for field in fields(MaxDiff)} and not strong:
        strong = [_STRONGER]
    if not strong or any(name_of(t) in strong or restarts[name] > 1 for name, t in threats.items()):
        return []
    single = [name for name, threat in threats.items() if isinstance(threat.how, (MinBest, MaxDiff))]
    if not single:
        return []
    forms = " or ".join([", ".join(strong[:-1]), strong[-1]] if len(strong) > 1 else strong)
    verb = "is a single run" if len(single) == 1 else "are single runs"
    return [f"{', '.join(single)} {verb} with published settings: {forms} would search the same budget harder"]


def mode_of_stochastic_policy(victim: Victim) -> list[str]:
    """A victim that samples its actions where it comes from, evaluated by their mode."""
    if victim.select == "sample" or victim.kind not in ("logits", "gaussian"):
        return []
    source = ((victim.card or {}).get("action") or {}).get("select")
    if source == "sample":
        return ["the victim's source samples its actions, here it plays their mode: load it with select='sample'"]
    if victim.card is None:
        return ["a stochastic policy is evaluated by its mode: if the agent samples its actions, use select='sample'"]
    return []


def without_effect(outcome: Outcome) -> list[str]:
    """Zero gradients, attacks that change nothing, and draws that are all the same."""
    found = []
    if outcome.gradients and outcome.zero_gradients > _MAX_SHARE * outcome.gradients:
        found.append(
            f"{outcome.name}: zero gradients at {outcome.zero_gradients} of {outcome.gradients} observations, so the "
            f"attack is blind there: another loss, or an attack that needs no gradient, may be far stronger"
        )
    if outcome.attacked and outcome.unchanged > _MAX_SHARE * outcome.attacked:
        where = f"{outcome.unchanged} of {outcome.attacked} attacked observations came out unchanged"
        if outcome.integers and not outcome.zero_gradients:
            found.append(f"{outcome.name}: {where}: lost by rounding to integers; raise eps or use quantize=False")
        else:
            found.append(f"{outcome.name}: {where}")
    if outcome.alike:
        found.append(
            f"{outcome.name}: two draws of every episode are alike, so nothing in it is random and no others were "
            f"played: best_of is for random attacks"
        )
    if outcome.flipped > MAX_FLIPPED:
        found.append(
            f"{outcome.name}: in the precision of the attack the victim acts otherwise at {outcome.flipped:.1%} of the "
            f"observations: compare with the attack in full precision"
        )
    return found


def _setting(threat: ThreatModel, drop: Sequence[str] = ()) -> str | None:
    """A text by which the budgets, timings and keys of two threats are compared; None where one has no JSON form."""
    try:
        parts: dict[str, JSON] = {
            "within": threat.budget.to_dict(), "at": threat.at,
            "when": encode(threat.when),
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


def return_rises_with_eps(outcomes: Sequence[Outcome]) -> list[str]:
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


def count_zero_gradients(engine: Engine, obs: Observation, rows: NDArray[np.intp]) -> tuple[int, int]:
    """The number of observations at which an attack's gradient was computed, and of those where it is zero.

    A gradient that is not finite counts as zero. It is that of the attack's own objective for the true observation,
    taken a little beside it: a divergence has no slope at the true observation itself.

    Args:
        engine: the engine of a wrapper on observations.
        obs: true observations ``[B, *S]``, or a dictionary of them.
        rows: numbers of the rows that are looked at, int ``[n]``.
    """
    how: Any = engine.threat.how
    victim, field = getattr(how, "victim", None), engine.field
    if not isinstance(how, Perturbation) or not hasattr(how, "objective") or victim is None:
        return 0, 0
    full = to_victim(select(obs, rows), victim.dtype, victim.device, True, space=victim.observation_space)
    x = field.take(full, True)
    fill = None if field.keys is None else (lambda part: field.give(full, part, True))
    bound = BoundVictim(victim, engine.hidden_state(victim, rows), fill, full)
    signs = torch.ones(x[0].numel(), dtype=x.dtype, device=x.device)
    signs[1::2] = -1
    beside = x + signs.view(x.shape[1:]) * (1.0 if field.grid else 1e-3 * x.abs().clamp(min=1.0))
    with torch.no_grad():
        loss = how.objective(x, bound)
        gradient_of = how.gradient(bound, loss) if isinstance(how, GradientAttack) else bound.gradient(loss)
        gradient = gradient_of(beside).flatten(1)
    zero = ~gradient.ne(0).any(1) | ~torch.isfinite(gradient).all(1)
    return len(rows), int(zero.sum())


def count_flips(engine: Engine, obs: Observation, rows: NDArray[np.intp]) -> tuple[int, int]:
    """The number of observations looked at, and of those where the action differs in the precision of the attack.

    Args:
        engine: the engine of a wrapper on observations; unless its attack has a lower precision, none is looked at.
        obs: true observations ``[B, *S]``, or a dictionary of them.
        rows: numbers of the rows that are looked at, int ``[n]``.
    """
    how = engine.threat.how
    victim, precision = getattr(how, "victim", None), getattr(how, "precision", None)
    if victim is None or precision is None:
        return 0, 0
    full = to_victim(select(obs, rows), victim.dtype, victim.device, True, space=victim.observation_space)
    return len(rows), int(flipped(victim, full, precision, engine.hidden_state(victim, rows)).sum())
