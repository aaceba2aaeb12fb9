"""Attacks of suites that need no training: texts, searches, plans through a model, and daylight transforms.

A text of a threat without a budget is an entry by itself (:func:`text_entry`). The budget is the setting's: that of
observations or that of actions. Transforms of images ask for none, they take any change that leaves a valid image.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from gymnasium import spaces

from adv_wrappers.attacks.model_based import ActionModelBased, ModelBased, Planned
from adv_wrappers.attacks.targets import target_of
from adv_wrappers.core.budgets.budget import Linf, Valid
from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.core.timing import Not, Pair, Strategic
from adv_wrappers.daylight.transform import Transform
from adv_wrappers.errors import VictimError
from adv_wrappers.evaluation.applicable_attacks import BEAM, SLOW, check_no_budget, why_no_beam, why_threat_excluded
from adv_wrappers.evaluation.perturbed_samples import daylight_threats
from adv_wrappers.evaluation.searches.beam import WIDTH, beam_search
from adv_wrappers.studies.suite.entry import NO_BUDGET, ONE_RUN, AttackSetting, Entry, MadeAttack
from adv_wrappers.threats.presets import parse_threat, threat
from adv_wrappers.victims.carrl import LowerBound

# texts


def text_entry(name: str, text: str | None = None, slow: bool = False, continuous: bool = False) -> Entry:
    """The entry of a threat's text, such as ``max-diff:steps=5`` or ``learned:card=FOLDER``.

    Args:
        name: the name of the entry, and the text where none is given.
        text: a text without a budget; a victim in it makes a transfer attack of it, as everywhere.
        slow: whether images leave it out, where it would take hours.
        continuous: whether it makes sense with continuous actions alone.

    Raises:
        ThreatError: for a text that cannot be read.
        BudgetError: for a text with a budget, which is the suite's.
    """
    text = name if text is None else text
    check_no_budget(text)
    parse_threat(text, within=Valid())  # raises for what cannot be read
    return Entry(name, partial(_why_no_text, text, slow, continuous), partial(_text_threat, text))


def _text_threat(text: str, setting: AttackSetting) -> ThreatModel:
    open_ = parse_threat(text, within=Valid())
    within = Valid() if isinstance(open_.how, Transform) else setting.within(open_.on)
    return parse_threat(text, within=within)


def _why_no_text(text: str, slow: bool, continuous: bool, setting: AttackSetting) -> str | None:
    seen, acted = setting.spaces
    if continuous and not isinstance(acted, spaces.Box):
        return f"it is for continuous actions, this victim acts in {acted}"
    open_ = parse_threat(text, within=Valid())
    if not isinstance(open_.how, Transform) and (why := setting.no_budget(open_.on)):
        return why
    found = _text_threat(text, setting)
    if any(isinstance(part, Strategic) for part in _timings(found.when)) and not isinstance(acted, spaces.Discrete):
        return f"strategic timing is defined for one discrete action, this victim acts in {acted}"
    return why_threat_excluded(found, setting.victim, seen, acted) or (SLOW if slow and setting.images else None)


def _timings(when: object) -> Iterator[object]:
    """A timing and all that it is combined from."""
    yield when
    for part in (when.a, when.b) if isinstance(when, Pair) else (when.a,) if isinstance(when, Not) else ():
        yield from _timings(part)


# a search over the episodes that are scored


def _why_no_beam(setting: AttackSetting) -> str | None:
    within = setting.budget
    return NO_BUDGET if within is None else why_no_beam(setting.victim, setting.environment, within)


def beam_attack(setting: AttackSetting, on_step: Callable[[int], None] = lambda states: None) -> MadeAttack:
    """Search the episodes of a setting; ``on_step`` as for :func:`.beam_search`."""
    folder = setting.folder(BEAM)
    found = beam_search(
        setting.victim,
        setting.environment,
        None,
        setting.episodes,
        setting.episode_seed,
        within=setting.budget,
        quantize=setting.quantize,
        progress=setting.progress,
        out=None if folder is None else folder / setting.part,
        on_step=on_step,
    )
    return MadeAttack(found.threat, f"one search of width {WIDTH} over the episodes that it is scored on")


beam = Entry(BEAM, _why_no_beam, beam_attack, per_episodes=True)


# plans through a model of the environment


def _plan(kind: type[Planned], setting: AttackSetting) -> MadeAttack:
    """The attack that plans through the model, to the environment's unsafe state, or else to the least reward.

    Raises:
        AdvWrappersError: one of its kinds, for a victim that the model does not fit.
    """
    assert setting.dynamics is not None
    about = setting.dynamics.card.get("environment")
    known = isinstance(about, dict) and target_of(about.get("id")) is not None
    how = kind(setting.victim, setting.dynamics, None if known else "reward", 5, restarts=8)
    made = ThreatModel(how.on, how, setting.within(how.on))
    return MadeAttack(made, f"{ONE_RUN}, through the model that was given")


def _why_no_plan(kind: type[Planned], setting: AttackSetting) -> str | None:
    if setting.dynamics is None:
        return "it needs a model of the environment: dynamics="
    why = setting.no_budget("action" if kind is ActionModelBased else "observation")
    return why or why_threat_excluded(_plan(kind, setting).threat, setting.victim, *setting.spaces)


model_based, action_model_based = (
    Entry(kind.name, partial(_why_no_plan, kind), partial(_plan, kind)) for kind in (ModelBased, ActionModelBased)
)


# certified bounds on the victim's network


def _lower_bound(setting: AttackSetting) -> MadeAttack:
    """PGD on certified lower bounds of the victim's Q-values within the budget; see :class:`.LowerBound`.

    Raises:
        VictimError: for a budget that is no l-infinity ball, and a victim without Q-values or bounds.
    """
    if not isinstance(setting.budget, Linf):
        raise VictimError(f"lower bounds hold within an l-infinity ball, this budget is {setting.budget!r}")
    made = threat("pgd", LowerBound(setting.victim, setting.budget), within=setting.budget)
    return MadeAttack(made, f"{ONE_RUN}, pgd on the certified lower bounds of the Q-values")


def _why_no_lower_bound(setting: AttackSetting) -> str | None:
    if why := setting.no_budget() or (SLOW if setting.images else None):
        return why
    try:
        return why_threat_excluded(_lower_bound(setting).threat, setting.victim, *setting.spaces)
    except VictimError as error:
        return str(error)


lower_bound = Entry("lower-bound-pgd", _why_no_lower_bound, _lower_bound)


# daylight transforms


def _daylight_text(transform: str, setting: AttackSetting) -> str:
    """The text of a transform, with the daylight paper's numbers for the game where it has it."""
    card = setting.victim.card or {}
    about = card.get("environment")
    names = (setting.environment.name, about.get("id") if isinstance(about, dict) else None)
    for text in (text for name in names if isinstance(name, str) for text in daylight_threats(name)):
        if text.endswith(f"transform={transform}"):
            return text
    return transform


def _why_no_daylight(transform: str, setting: AttackSetting) -> str | None:
    return _why_no_text(_daylight_text(transform, setting), False, False, setting)


def _daylight(transform: str, setting: AttackSetting) -> MadeAttack:
    text = _daylight_text(transform, setting)
    numbers = "the preset's own numbers" if text == transform else f"the daylight paper's numbers, {text}"
    return MadeAttack(_text_threat(text, setting), f"one run with {numbers}")


def daylight_entry(transform: str) -> Entry:
    """The entry of a daylight transform, such as ``rotation``."""
    return Entry(transform, partial(_why_no_daylight, transform), partial(_daylight, transform))
