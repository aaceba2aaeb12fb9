"""Gradient masking: signs, among the rows of one report, that gradients of the victim lead an attack nowhere.

A victim whose gradients are zero, or point elsewhere than its answers do, withstands attacks by gradients and nothing
else. The signs are those of Athalye, Carlini and Wagner 2018 (section 3.1), Carlini et al. 2019 and Tramer et al. 2020.
Only rows with the same budget, timing and keys are compared, on the same episodes, and one is stronger than another
where the interval of the paired difference is above zero. Adversaries that were trained, and searches over whole
episodes, are left out: that they are stronger than an attack on single observations is no sign.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from operator import attrgetter

from adv_wrappers.attacks.carlini_wagner import CarliniWagner
from adv_wrappers.attacks.gradient_attack import GradientAttack
from adv_wrappers.attacks.hop_skip_jump import HopSkipJump
from adv_wrappers.attacks.noise import Flip, Noise
from adv_wrappers.attacks.square import Square
from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.evaluation.rows.checked_row import CheckedRow, clean_row, setting_of
from adv_wrappers.evaluation.statistics.confidence_intervals import mean_interval

_EFFORTS = ("steps", "queries")  # arguments of which more is never meant to be weaker
_FAR = 0.1  # of what was taken: from here on more steps that take more have not converged
_mean = attrgetter("mean")


def find_masking(rows: Sequence[CheckedRow]) -> list[str]:
    """All signs of masked gradients, and of attacks that failed for another reason, among the rows of one report."""
    found = weaker_than_noise(rows) + no_stronger_than_noise(rows) + gradient_free_is_stronger(rows)
    return found + transfer_is_stronger(rows) + more_steps_are_stronger(rows) + return_rises_with_eps(rows)


def weaker_than_noise(rows: Sequence[CheckedRow]) -> list[str]:
    """Attacks that take less than noise of the same budget takes, beyond the interval of the paired difference."""
    return [
        f"{attack.name} is weaker than {noise.name} ({attack.against(noise)}): the attack fails, rather than the agent "
        f"withstands"
        for budget in _budgets(rows)
        for noise in filter(_is_noise, budget)
        for attack in itertools.filterfalse(_is_noise, budget)
        if noise.is_stronger(attack)
    ]


def no_stronger_than_noise(rows: Sequence[CheckedRow]) -> list[str]:
    """Gradient attacks that take what noise takes, all of a budget, where more can be taken.

    That more can be taken is known from an attack of the same budget that needs no gradient and is stronger than the
    noise; or, where noise takes something of the clean return, from the same attack with a larger eps that is stronger
    than the noise. Attacks that are weaker than noise are left to :func:`weaker_than_noise`.
    """
    clean, found = clean_row(rows), []
    for budget in _budgets(rows):
        noise, attacks = min(filter(_is_noise, budget), key=_mean, default=None), [*filter(_by_gradient, budget)]
        if noise is None or any(attack.is_stronger(noise) for attack in attacks):
            continue
        # what shows that more can be taken: an attack without gradients, or a larger eps
        same = [row for row in budget if _gradient_free(row) and row.is_stronger(noise)]
        takes = clean is not None and noise.is_stronger(clean)
        for attack in attacks:
            if noise.least_taken(attack) > 0:
                continue
            larger = [row for row in rows if takes and _has_larger_eps(row, attack) and row.is_stronger(noise)]
            if same or larger:
                best = min(same + larger, key=_mean)
                found.append(
                    f"{attack.name} is no stronger than {noise.name} ({attack.against(noise)}), as {best.name} is "
                    f"({best.mean:.6g}): look for other losses, more restarts, and attacks without gradients (square)"
                )
    return found


def gradient_free_is_stronger(rows: Sequence[CheckedRow]) -> list[str]:
    """Attacks without gradients that are stronger than the strongest gradient attack of the same budget."""
    found = []
    for budget in _budgets(rows):
        best, other = (min(filter(kind, budget), key=_mean, default=None) for kind in (_by_gradient, _gradient_free))
        if best is not None and other is not None and other.is_stronger(best):
            found.append(
                f"{other.name} needs no gradient and is stronger than {best.name}, the strongest gradient attack of "
                f"this budget ({other.against(best)}): a sign that gradients of the agent mislead (gradient masking). "
                f"Where a layer has no useful gradient, attack a victim with a smooth one in its place, or a surrogate "
                f"(imitate), and count the strongest row"
            )
    return found


def transfer_is_stronger(rows: Sequence[CheckedRow]) -> list[str]:
    """Attacks aimed at another victim that are stronger than the same kind of attack on the agent itself."""
    return [
        f"{other.name}, aimed at another victim, is stronger than {own.name} ({other.against(own)}): who sees the "
        f"agent's own gradients should do no worse, so these mislead (gradient masking)"
        for budget in _budgets(rows)
        for own, other in itertools.product(filter(_by_gradient, budget), budget)
        if other.transfer and type(other.layers[0].how) is type(own.layers[0].how) and other.is_stronger(own)
    ]


def more_steps_are_stronger(rows: Sequence[CheckedRow]) -> list[str]:
    """An attack that is stronger by far with more steps or queries, all else the same, so that fewer do not suffice.

    Of several rows the two with the most steps are compared. Far is a tenth of what was taken from the clean return.
    """
    clean, found = clean_row(rows), []
    for effort in _EFFORTS:
        families: dict[str, list[tuple[int, CheckedRow]]] = {}
        # rows that differ in this number alone
        for row in rows:
            how = None if row.only is None else row.only.how
            steps = getattr(how, effort, None) if getattr(how, "needs_victim", False) else None  # no delay of steps
            if row.only is not None and isinstance(steps, int) and (key := _all_but(row.only, effort)) is not None:
                families.setdefault(key, []).append((steps, row))
        for family in families.values():
            for (fewer, few), (more, most) in [*_by_number(family)][-1:]:
                # of each family the two with the most
                taken = 0.0 if clean is None else clean.mean - most.mean
                if fewer < more and most.is_stronger(few) and few.mean - most.mean >= _FAR * taken:
                    found.append(
                        f"{most.name} is stronger by far than {few.name} ({most.against(few)}): {fewer} {effort} have "
                        f"not converged. Raise {effort} until the return no longer falls"
                    )
    return found


def return_rises_with_eps(rows: Sequence[CheckedRow]) -> list[str]:
    """The same attack with a larger eps that leaves a higher return, beyond both intervals."""
    families: dict[str, list[tuple[float, CheckedRow]]] = {}
    for row in rows:
        eps, setting = (None, None) if row.only is None else (_eps(row.only), setting_of(row.only, "eps"))
        if eps is not None and setting is not None:
            families.setdefault(f"{row.layers[0].how!r} {setting}", []).append((eps, row))
    return [
        f"{large.name} leaves a higher return than {small.name} ({large.against(small)}): the larger budget contains "
        f"the smaller, so the attack fails"
        for family in families.values()
        for (_, small), (_, large) in _by_number(family)
        if len(large.returns) > 1 and mean_interval(large.returns)[0] > mean_interval(small.returns)[1]
    ]


def _budgets(rows: Sequence[CheckedRow]) -> list[list[CheckedRow]]:
    """The rows of one attack each on observations, by budget, timing and keys."""
    groups: dict[str, list[CheckedRow]] = {}
    for row in rows:
        if row.attack is not None and (setting := setting_of(row.attack)) is not None:
            groups.setdefault(setting, []).append(row)
    return [*groups.values()]


def _by_number(family: Sequence[tuple[float, CheckedRow]]) -> Iterator[tuple[tuple[float, CheckedRow], ...]]:
    """Neighbours among rows that differ in one number, from the smallest on."""
    return itertools.pairwise(sorted(family, key=lambda pair: pair[0]))


def _is(row: CheckedRow, *kinds: type) -> bool:
    """Whether a row is one attack of these kinds on observations, aimed at the agent itself where at a victim."""
    return row.attack is not None and not row.transfer and isinstance(row.attack.how, kinds)


def _is_noise(row: CheckedRow) -> bool:
    return _is(row, Noise)


def _by_gradient(row: CheckedRow) -> bool:
    return _is(row, GradientAttack, CarliniWagner)


def _gradient_free(row: CheckedRow) -> bool:
    """Whether a row is an attack on single observations that needs no gradient; noise is a baseline, and no attack."""
    return _is(row, Square, HopSkipJump, Flip)


def _eps(threat: ThreatModel) -> float | None:
    eps = getattr(threat.budget, "eps", None)
    return None if eps is None else float(eps)


def _has_larger_eps(large: CheckedRow, small: CheckedRow) -> bool:
    """Whether two rows are the same attack by gradients, of which the first has the larger eps."""
    if not _by_gradient(large):
        return False
    one, other = large.layers[0], small.layers[0]
    setting = setting_of(one, "eps")
    eps = _eps(one)
    least = _eps(other)
    same = setting is not None and setting == setting_of(other, "eps") and one.how == other.how
    return same and eps is not None and least is not None and eps > least


def _all_but(threat: ThreatModel, name: str) -> str | None:
    """A text of everything that a threat is made of but one argument of the attack; None where there is none."""
    setting = setting_of(threat)
    if setting is None or not is_dataclass(threat.how):
        return None
    rest = [f"{f.name}={getattr(threat.how, f.name)!r}" for f in fields(threat.how) if f.name not in (name, "victim")]
    return f"{type(threat.how).__name__} {rest} {[id(victim) for victim in threat.victims]} {setting}"
