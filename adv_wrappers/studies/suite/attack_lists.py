"""Suites: lists of attacks by name, of which all that apply are run on one agent.

``standard`` is the list for perturbed observations under one budget (after AutoAttack, Croce and Hein 2020), ``action``
that for perturbed actions, ``daylight`` natural changes of images (the daylight paper's tables 1 to 6), ``certified``
what needs no gradient of the victim or goes by certified bounds, for victims whose gradients may mislead, and
``everything`` the union. A name stands for one entry in all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from adv_wrappers.daylight.daylight import TRANSFORMS
from adv_wrappers.errors import ThreatError
from adv_wrappers.evaluation.applicable_attacks import SLOW_ON_IMAGES, UNTRAINED
from adv_wrappers.studies.suite.entry import AttackSetting, Entry
from adv_wrappers.studies.suite.trained_attacks import learned_entry, robust_sarsa, transfer
from adv_wrappers.studies.suite.untrained_attacks import (
    action_model_based,
    beam,
    daylight_entry,
    lower_bound,
    model_based,
    text_entry,
)

NOT_TRAINED = "it is trained, which takes minutes to hours, and only where train=True (--train)"

_UNTRAINED = {name: text_entry(name, text, slow=name in SLOW_ON_IMAGES) for name, text in UNTRAINED.items()}
# by scores and by decisions alone: 500 queries a step
_square, _decisions = text_entry("square", slow=True), text_entry("hop-skip-jump", slow=True)

_STANDARD = (*_UNTRAINED.values(), beam, model_based, robust_sarsa, learned_entry("sa-rl"), learned_entry("pa-ad"))
_ACTION = (
    text_entry("action-noise"),
    text_entry("bernoulli-action-noise", "action-noise:kind=bernoulli", continuous=True),
    text_entry("action-flip"), text_entry("half-action-flip", "action-flip:p=0.5"),
    text_entry("worst-action"), text_entry("half-worst-action", "worst-action:p=0.5"),
    action_model_based, learned_entry("pa-ad-action", on="action"), learned_entry("induce", on="action"),
)  # fmt: skip
_DAYLIGHT = tuple(daylight_entry(transform) for transform in TRANSFORMS)
_CERTIFIED = (
    *(_UNTRAINED[name] for name in ("noise", "max-diff", "apgd", "multi-targeted")), _square, _decisions, lower_bound,
    beam,
)  # fmt: skip
_timed = learned_entry("timed-max-diff", "timed:max-diff")
_OTHERS = (
    text_entry("flip"), text_entry("sensor-bias"), text_entry("sensor-drift"), text_entry("quantization"),
    text_entry("max-worst"), text_entry("min-value"), text_entry("min-played-q", slow=True),
    text_entry("carlini-wagner", slow=True), text_entry("strategic-max-diff", "max-diff:when=strategic(0.1)"),
    text_entry("discrete-search"), _timed, transfer,
)  # fmt: skip

SUITES: dict[str, tuple[Entry, ...]] = {
    "standard": _STANDARD,
    "action": _ACTION,
    "daylight": _DAYLIGHT,
    "certified": _CERTIFIED,
    "everything": tuple({one.name: one for one in (*_STANDARD, *_CERTIFIED, *_OTHERS, *_ACTION, *_DAYLIGHT)}.values()),
}
_BY_NAME = {entry.name: entry for entry in SUITES["everything"]}
# the names of those that learn from steps of the environment, so that more steps are another training
LEARNED = tuple(entry.name for entry in SUITES["everything"] if entry.trained is True)
TIMED = (_timed.name,)  # whose adversaries decide themselves when they attack
ADVERSARIES = tuple(name for name in LEARNED if name != transfer.name)  # of these those by train_adversary


def entry_named(name: str) -> Entry:
    """The entry with this name, in any process: one of ``SUITES``, or that of a threat's text.

    Raises:
        ThreatError: for a text that cannot be read.
        BudgetError: for a text with a budget, which is the suite's.

    >>> entry_named("pgd") is SUITES["standard"][2], entry_named("max-diff:steps=3").name
    (True, 'max-diff:steps=3')
    """
    return _BY_NAME[name] if name in _BY_NAME else text_entry(name)


def entries_of(suite: str | Iterable[Entry | str]) -> tuple[Entry, ...]:
    """The entries of a suite.

    Args:
        suite: a name of ``SUITES``; or entries, names of entries and texts of threats, in any order.

    Raises:
        ThreatError: for an unknown suite, no entries, two of one name, and what is none.
    """
    if isinstance(suite, str):
        if suite not in SUITES:
            raise ThreatError(
                f"unknown suite {suite!r:.80}; known: {', '.join(SUITES)}; a single attack goes in a list"
            )
        return SUITES[suite]
    if not isinstance(suite, Iterable):
        raise ThreatError(f"expected the name of a suite or its entries, got {suite!r:.80}")
    found = list[Entry]()
    for item in suite:
        if not isinstance(item, (Entry, str)):
            raise ThreatError(f"a suite holds entries, their names and texts of threats, got {item!r:.80}")
        found.append(entry_named(item) if isinstance(item, str) else item)
    # a name stands for one row
    names = [entry.name for entry in found]
    double = sorted({name for name in names if names.count(name) > 1})
    if not names:
        raise ThreatError("a suite needs at least one entry, got none")
    if double:
        raise ThreatError(f"a suite needs entries of different names, got {', '.join(double)} twice")
    return tuple(found)


def entries_that_apply(
    suite: str | Iterable[Entry | str], setting: AttackSetting
) -> tuple[tuple[Entry, ...], dict[str, str]]:
    """The entries of a suite that apply to a setting, in their order, and by name why the others are left out.

    A few steps are played to see whether an environment can be searched.

    Raises:
        AdvWrappersError: one of its kinds, for arguments that cannot work: a victim that does not fit the environment,
            a budget or a model that fits neither, trainings that cannot be.

    >>> from adv_wrappers import Linf, load_victim
    >>> from adv_wrappers.studies import AttackSetting, entries_that_apply
    >>> setting = AttackSetting(load_victim("zoo:cartpole-dqn"), "CartPole-v1", Linf(0.1))
    >>> applying, left_out = entries_that_apply(["min-q", "rotation", "sa-rl"], setting)
    >>> [entry.name for entry in applying], sorted(left_out)
    (['min-q'], ['rotation', 'sa-rl'])
    """
    entries, reasons = entries_of(suite), dict[str, str | None]()
    for entry in sorted(entries, key=lambda entry: not entry.trained):  # what cannot be trained costs no step played
        reason = entry.applies(setting)
        reasons[entry.name] = NOT_TRAINED if reason is None and entry.trains(setting) and not setting.train else reason
    left_out = {entry.name: reason for entry in entries if (reason := reasons[entry.name]) is not None}
    return tuple(entry for entry in entries if entry.name not in left_out), left_out


def some_that_apply(
    suite: str | Iterable[Entry | str], setting: AttackSetting
) -> tuple[tuple[Entry, ...], dict[str, str]]:
    """:func:`entries_that_apply`; raises :class:`ThreatError` where there are none, with the reasons."""
    entries, reasons = entries_that_apply(suite, setting)
    if not entries:
        raise ThreatError("no attack applies: " + "; ".join(f"{one}: {reason}" for one, reason in reasons.items()))
    return entries, reasons


def chosen_entries(entries: Sequence[Entry], names: str | Iterable[str] | None) -> tuple[Entry, ...]:
    """The entries with these names, in the suite's order; None chooses all.

    Raises:
        ThreatError: for no names, and for unknown ones.
    """
    if names is None:
        return tuple(entries)
    asked, known = (names,) if isinstance(names, str) else tuple(names), [entry.name for entry in entries]
    unknown = [name for name in asked if name not in known]
    if unknown or not asked:
        got = ", ".join(map(repr, unknown)) or "none"
        raise ThreatError(f"attacks must be names out of {', '.join(known)}, got {got}")
    return tuple(entry for entry in entries if entry.name in asked)
