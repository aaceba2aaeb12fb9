"""Gradient masking: signs, among the rows of one report, that gradients of the victim lead an attack nowhere.

A victim whose gradients are zero, or point elsewhere than its answers do, withstands attacks by gradients and nothing
else. The signs are those of Athalye, Carlini and Wagner 2018 (section 3.1), Carlini et al. 2019 and Tramer et al. 2020.
Only rows with the same budget, timing and keys are compared, on the same episodes, and one is stronger than another
where the interval of the paired difference is above zero. Adversaries that were trained, and searches over whole
episodes, are left out: that they are stronger than an attack on single observations is no sign.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import fields, is_dataclass

from adv_wrappers.attacks.carlini_wagner import CarliniWagner
from adv_wrappers.attacks.gradient_attack import GradientAttack
from adv_wrappers.attacks.hop_skip_jump import HopSkipJump
from adv_wrappers.attacks.noise import Flip, Noise
from adv_wrappers.attacks.square import Square
from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.evaluation.statistics import mean_interval, paired_differences
from adv_wrappers.evaluation.warning_counts import CheckedRow, setting_of

_EFFORTS = ("steps", "queries")  # arguments of which more is never meant to be weaker
_FAR = 0.1  # of what was taken: from here on more steps that take more have not converged


def find_masking(outcomes: Sequence[CheckedRow]) -> list[str]:
    """All signs of masked gradients, and of attacks that failed for another reason, among the rows of one report."""
    found = weaker_than_noise(outcomes) + no_stronger_than_noise(outcomes) + gradient_free_is_stronger(outcomes)
    return found + transfer_is_stronger(outcomes) + more_steps_are_stronger(outcomes) + return_rises_with_eps(outcomes)


def weaker_than_noise(outcomes: Sequence[CheckedRow]) -> list[str]:
    """Attacks that take less than noise of the same budget takes, beyond the interval of the paired difference.

    One episode has no interval.
    """
    single = [o for o in outcomes if len(o.layers) == 1]
    found = []
    for noise in (o for o in single if o.layers[0].label == "noise"):
        for attack in (o for o in single if o.layers[0].label != "noise" and o.layers[0].on == "observation"):
            if _same_setting(attack, noise) and _stronger(noise, attack):
                found.append(
                    f"{attack.name} is weaker than {noise.name} ({_means(attack, noise)}): the attack fails, rather "
                    f"than the agent withstands"
                )
    return found


def no_stronger_than_noise(outcomes: Sequence[CheckedRow]) -> list[str]:
    """Gradient attacks that take what noise takes, all of a budget, where more can be taken.

    That more can be taken is known from an attack of the same budget that needs no gradient and is stronger than the
    noise; or, where noise takes something of the clean return, from the same attack with a larger eps that is stronger
    than the noise. Attacks that are weaker than noise are left to :func:`weaker_than_noise`.
    """
    clean = next((o for o in outcomes if not o.layers), None)
    found = []
    for budget in _groups(outcomes):
        noise = min((o for o in budget if _is(o, Noise)), key=_mean, default=None)
        attacks = [*filter(_by_gradient, budget)]
        if noise is None or any(_stronger(attack, noise) for attack in attacks):
            continue
        same = [o for o in budget if _gradient_free(o) and _stronger(o, noise)]
        takes = clean is not None and _stronger(noise, clean)
        for attack in (o for o in attacks if mean_interval(paired_differences(o.returns, noise.returns))[0] <= 0):
            larger = [o for o in outcomes if takes and _larger_eps(o, attack) and _stronger(o, noise)]
            if same or larger:
                best = min(same + larger, key=_mean)
                found.append(
                    f"{attack.name} is no stronger than {noise.name} ({_means(attack, noise)}), as {best.name} is "
                    f"({_mean(best):.6g}): look for other losses, more restarts, and attacks without gradients (square)"
                )
    return found


def gradient_free_is_stronger(outcomes: Sequence[CheckedRow]) -> list[str]:
    """Attacks without gradients that are stronger than the strongest gradient attack of the same budget."""
    found = []
    for budget in _groups(outcomes):
        by_gradient, others = [*filter(_by_gradient, budget)], [*filter(_gradient_free, budget)]
        if not by_gradient or not others:
            continue
        best, other = min(by_gradient, key=_mean), min(others, key=_mean)
        if _stronger(other, best):
            found.append(
                f"{other.name} needs no gradient and is stronger than {best.name}, the strongest gradient attack of "
                f"this budget ({_means(other, best)}): a sign that gradients of the agent mislead (gradient masking). "
                f"Where a layer has no useful gradient, attack a victim with a smooth one in its place, or a surrogate "
                f"(imitate), and count the strongest row"
            )
    return found


def transfer_is_stronger(outcomes: Sequence[CheckedRow]) -> list[str]:
    """Attacks aimed at another victim that are stronger than the same kind of attack on the agent itself."""
    found = []
    for budget in _groups(outcomes):
        for own, other in itertools.product(filter(_by_gradient, budget), budget):
            if other.transfer and type(other.layers[0].how) is type(own.layers[0].how) and _stronger(other, own):
                found.append(
                    f"{other.name}, aimed at another victim, is stronger than {own.name} ({_means(other, own)}): who "
                    f"sees the agent's own gradients should do no worse, so these mislead (gradient masking)"
                )
    return found


def more_steps_are_stronger(outcomes: Sequence[CheckedRow]) -> list[str]:
    """An attack that is stronger by far with more steps or queries, all else the same, so that fewer do not suffice.

    Of several rows the two with the most steps are compared. Far is a tenth of what was taken from the clean return.
    """
    clean = next((o for o in outcomes if not o.layers), None)
    found = []
    for effort in _EFFORTS:
        families: dict[str, list[tuple[int, CheckedRow]]] = {}
        for outcome in outcomes:
            steps = getattr(outcome.layers[0].how, effort, None) if len(outcome.layers) == 1 else None
            key = _all_but(outcome.layers[0], effort) if isinstance(steps, int) else None
            if isinstance(steps, int) and key is not None:
                families.setdefault(key, []).append((steps, outcome))
        for family in families.values():
            few, most = sorted(family, key=lambda pair: pair[0])[-2:] if len(family) > 1 else (None, None)
            if few is None or most is None or few[0] == most[0] or not _stronger(most[1], few[1]):
                continue
            taken = 0.0 if clean is None else _mean(clean) - _mean(most[1])
            if _mean(few[1]) - _mean(most[1]) >= _FAR * taken:
                found.append(
                    f"{most[1].name} is stronger by far than {few[1].name} ({_means(most[1], few[1])}): {few[0]} "
                    f"{effort} have not converged. Raise {effort} until the return no longer falls"
                )
    return found


def return_rises_with_eps(outcomes: Sequence[CheckedRow]) -> list[str]:
    """The same attack with a larger eps that leaves a higher return, beyond both intervals."""
    families: dict[str, list[tuple[float, CheckedRow]]] = {}
    for outcome in outcomes:
        if len(outcome.layers) != 1:
            continue
        layer = outcome.layers[0]
        eps, setting = getattr(layer.budget, "eps", None), setting_of(layer, ("eps",))
        if eps is not None and setting is not None:
            families.setdefault(f"{layer.how!r} {setting}", []).append((float(eps), outcome))
    found = []
    for family in families.values():
        ordered = [outcome for _, outcome in sorted(family, key=lambda pair: pair[0])]
        for small, large in itertools.pairwise(ordered):
            if len(large.returns) > 1 and mean_interval(large.returns)[0] > mean_interval(small.returns)[1]:
                found.append(
                    f"{large.name} leaves a higher return than {small.name} ({_means(large, small)}): the larger "
                    f"budget contains the smaller, so the attack fails"
                )
    return found


def _mean(outcome: CheckedRow) -> float:
    return float(outcome.returns.mean())


def _means(one: CheckedRow, other: CheckedRow) -> str:
    return f"{_mean(one):.6g} against {_mean(other):.6g}"


def _stronger(one: CheckedRow, other: CheckedRow) -> bool:
    """Whether one attack leaves less than another, beyond the interval of the paired difference."""
    return len(one.returns) > 1 and mean_interval(paired_differences(other.returns, one.returns))[0] > 0


def _is(outcome: CheckedRow, *kinds: type) -> bool:
    """Whether a row is one attack of these kinds on observations, aimed at the agent itself where at a victim."""
    one = outcome.layers[0] if len(outcome.layers) == 1 and not outcome.transfer else None
    return one is not None and one.on == "observation" and isinstance(one.how, kinds)


def _by_gradient(outcome: CheckedRow) -> bool:
    return _is(outcome, GradientAttack, CarliniWagner)


def _gradient_free(outcome: CheckedRow) -> bool:
    """Whether a row is an attack on single observations that needs no gradient; noise is a baseline, and no attack."""
    return _is(outcome, Square, HopSkipJump, Flip)


def _same_setting(one: CheckedRow, other: CheckedRow) -> bool:
    return setting_of(one.layers[0]) == setting_of(other.layers[0]) is not None


def _groups(outcomes: Sequence[CheckedRow]) -> list[list[CheckedRow]]:
    """The rows of one attack each on observations, by budget, timing and keys."""
    groups: dict[str, list[CheckedRow]] = {}
    for outcome in outcomes:
        if len(outcome.layers) == 1 and outcome.layers[0].on == "observation":
            setting = setting_of(outcome.layers[0])
            if setting is not None:
                groups.setdefault(setting, []).append(outcome)
    return [*groups.values()]


def _larger_eps(large: CheckedRow, small: CheckedRow) -> bool:
    """Whether two rows are the same attack, of which the first has the larger eps."""
    if not _by_gradient(large):
        return False
    one, other = large.layers[0], small.layers[0]
    eps, least = (getattr(layer.budget, "eps", None) for layer in (one, other))
    setting = setting_of(one, ("eps",))
    same = setting is not None and setting == setting_of(other, ("eps",)) and one.how == other.how
    return same and eps is not None and least is not None and float(eps) > float(least)


def _all_but(threat: ThreatModel, name: str) -> str | None:
    """A text of everything that a threat is made of but one argument of the attack; None where there is none."""
    setting = setting_of(threat)
    if setting is None or not is_dataclass(threat.how):
        return None
    rest = [f"{f.name}={getattr(threat.how, f.name)!r}" for f in fields(threat.how) if f.name not in (name, "victim")]
    return f"{type(threat.how).__name__} {rest} {[id(victim) for victim in threat.victims]} {setting}"
