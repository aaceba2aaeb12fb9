"""The verdict of a report: one sentence and one figure, what hurt most, what to do next, and what stays unknown.

It is made of the rows, and of what was chosen for them where that is known.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from adv_wrappers.evaluation.confidence_intervals import LEAST_EPISODES, MeanWithInterval, unseen
from adv_wrappers.evaluation.report import number_text
from adv_wrappers.studies.report.advice import NextStep, hardening, own_training, words_of_agent
from adv_wrappers.studies.report.choices import ReportChoices
from adv_wrappers.studies.report.eps_search import NO_LOSS, broken_eps, halving_eps
from adv_wrappers.studies.report.sections import AgentSections, AttackRow, Kind, held

GREY_LEVELS = "grey levels"  # the unit of eps on images
NEAR = 1.5  # the ratio of two eps that are said to be about the same
SOME_LOSS = 0.1  # of the clean return, from which an agent is said to lose something
_ALONE = 0.5  # of the loss under an attack on all features, from which one feature is said to be enough
_OF_A_SWEEP = ("sweep", "feature", "moment", "few")  # kinds of rows whose eps may be beyond that of the verdict
_HURTS: dict[Kind, str] = {
    "moment": "Weakest moment",
    "daylight": "Worst change of light or camera",
    "fault": "Worst fault of sensors and channels",
    "dynamics": "Worst change of body or world",
    "action": "Strongest attack on actions",
}
_WITHOUT_SIZE = (
    "Harden the agent in its own training: put PerturbObservation, with such an attack, around its environment "
    '(the page "While an agent trains" of the documentation)'
)
_FEW = 5  # episodes, up to which a verdict says how many it rests on
_WHOLE = 1e-6  # of the clean return, which rounding may take


@dataclass(frozen=True)
class VerdictFigure(MeanWithInterval):
    """The number of a verdict: a mean return under attack with its interval.

    Attributes:
        of: the mean return without an attack.
        eps: the radius of the attack.
        attack: its name.
        episodes: how many it is the mean of.
        certified_eps: the largest radius within which the return is certified, or None.
    """

    of: float
    eps: float | None
    attack: str
    episodes: int
    certified_eps: float | None = None


@dataclass(frozen=True)
class Verdict:
    """What a report says in one sentence.

    Attributes:
        sentence: the sentence.
        figure: its number, or None.
        hurts: by what else hurts most (a feature, a moment, a fault, ...) which it is,
            and what it leaves.
        next: what to do.
        cannot_tell: what the report does not show.
    """

    sentence: str
    figure: VerdictFigure | None = None
    hurts: Mapping[str, str] = field(default_factory=dict)
    next: tuple[NextStep, ...] = ()
    cannot_tell: tuple[str, ...] = ()


def verdict(agent: AgentSections) -> Verdict:
    """What the rows of a report say."""
    found, figure = _headline(agent), None
    sentence = f"Without an attack the agent earns {number_text(agent.clean.mean)} an episode. No attack was played."
    if found is not None:
        eps, row = found
        left, episodes, proved = row.returned, len(row.row.returns), _certified_eps(agent)
        figure = VerdictFigure(
            left.mean, left.low, left.high, left.caveat, agent.clean.mean, eps, _attack_name(row), episodes, proved
        )
        sentence = _sentence(agent, eps, row)
    hurts = dict[str, str]()
    if found is not None and (feature := _worst_feature(agent, found[0])) is not None:
        hurts["Weakest feature"] = feature.names
    for kind, name in _HURTS.items():
        if (worst := _worst(agent, agent.of(kind))) is not None:
            hurts[name] = f"{worst.label} leaves {number_text(worst.mean)}"
            if worst.window:
                hurts[name] = f"steps {worst.window[0]} to {worst.window[1] - 1} ({worst.attack})"
    return Verdict(sentence, figure, hurts, _next(agent, found), _unknown(agent))


def eps_in_words(eps: float, choices: ReportChoices) -> str:
    """An eps in words: a share of the ranges of features, grey levels, or the number as it is."""
    if choices.features is not None:
        return f"{100 * eps:.3g}% of each feature's range" + (f" in {', '.join(choices.at)}" if choices.at else "")
    if choices.unit == GREY_LEVELS:
        return f"{eps:.3g} grey level{'' if eps == 1 else 's'} of 255"
    return f"eps {eps:.3g}"


def _attack_name(row: AttackRow) -> str:
    """The name of a row's attack, without its arguments."""
    name, _, arguments = row.attack.partition(":")
    return f"{name} with restarts" if "restarts=" in arguments else name


def _lost(agent: AgentSections, row: AttackRow) -> float:
    """What a row takes of the mean return, on the episodes that it holds."""
    return -row.change.mean


def _strongest(agent: AgentSections) -> dict[float, AttackRow]:
    """By eps above 0, the strongest row up to there; none without a sweep."""
    return {eps: row for sweep in agent.sweeps[:1] for eps, row in sweep.strongest if eps > 0}


def _headline(agent: AgentSections) -> tuple[float | None, AttackRow] | None:
    """The least eps at which half of the return is lost, with its row; else the largest eps that was tried.

    Without a sweep it is the strongest row, and None where there is none. So it is of rows that no report has chosen,
    where another attack takes what the sweep does not.
    """
    strongest, clean = _strongest(agent), agent.clean.mean
    if (eps := broken_eps(clean, strongest)) is not None:
        return eps, strongest[eps]
    largest = max(strongest, default=0.0)
    if strongest and (agent.choices.played or _lower_elsewhere(agent, strongest[largest]) is None):
        return largest, strongest[largest]
    harmful = [row for row in agent.of("entries") if _lost(agent, row) > NO_LOSS * abs(clean)]
    worst = min((harmful if agent.choices.played else None) or agent.attacked, key=lambda row: row.mean, default=None)
    return None if worst is None else (worst.eps, worst)


def error_to_withstand(agent: AgentSections) -> tuple[float | None, AttackRow] | None:
    """The eps that an agent is to be hardened against, and a row there: the headline, if it has enough episodes.

    A search that came to two episodes may have found an eps at which most others keep everything. Then it is the eps
    at which half is lost on the line between rows of enough episodes; the headline all the same where these take
    nothing.
    """
    found, least = _headline(agent), min(LEAST_EPISODES, agent.clean.row.episodes)
    rows = replace(agent, rows=tuple(row for row in agent.rows if row.row.episodes >= least))
    sound, clean = _headline(rows) if rows.sweeps else None, agent.clean.mean
    if found is None or sound is None or sound[1] is found[1] or _lost(agent, sound[1]) <= NO_LOSS * abs(clean):
        return found
    return halving_eps(clean, _strongest(rows)) or sound[0], sound[1]


def _lower_elsewhere(agent: AgentSections, found: AttackRow) -> AttackRow | None:
    """The lowest row of another kind than a verdict's, if it takes a tenth of the return more."""
    other = [
        row for row in agent.attacked if row.keys != found.keys or (row.kind == "sweep" and row.ball != found.ball)
    ]
    rows = [*other, *(row for row in agent.attacked if row.kind not in _OF_A_SWEEP)]
    worst = min(rows, key=lambda row: row.mean, default=None)
    more = SOME_LOSS * abs(agent.clean.mean)
    return worst if worst is not None and found.mean - worst.mean >= more > 0 else None


def _certified_eps(agent: AgentSections) -> float | None:
    """The largest eps up to which it is proved that nothing is taken."""
    mean = agent.clean.mean
    found = [
        one.eps for one in agent.choices.certificates if is_whole(one.lower, mean if one.clean is None else one.clean)
    ]
    return max(found, default=None)


def is_whole(lower: float, clean: float) -> bool:
    """Whether a bound says that nothing of a mean return is taken."""
    return lower >= clean - _WHOLE * abs(clean)


def _unharmed_eps(agent: AgentSections) -> float | None:
    """The largest eps at which no attack that was tried took anything."""
    limit = NO_LOSS * abs(agent.clean.mean)
    return max((eps for eps, row in _strongest(agent).items() if _lost(agent, row) <= limit), default=None)


def _worst(agent: AgentSections, rows: Sequence[AttackRow]) -> AttackRow | None:
    """The row that takes most, if it takes a tenth of the return, and not by the chance of the episodes."""
    row = min(filter(_is_no_chance, rows), key=lambda row: row.mean, default=None)
    return row if row is not None and _lost(agent, row) >= SOME_LOSS * abs(agent.clean.mean) else None


def _is_no_chance(row: AttackRow) -> bool:
    """Whether the interval of what a row takes lies on one side of zero; of too few episodes it is none."""
    return row.change.caveat is not None or row.change.side < 0


def _worst_feature(agent: AgentSections, most: float | None = None) -> AttackRow | None:
    """The row of the feature that alone takes most; of rows whose eps is not much above ``most``, if it is given."""
    rows = [row for row in agent.of("feature") if len(row.features) == 1]
    return _worst(agent, [row for row in rows if most is None or (row.eps or 0.0) <= NEAR * most])


def _swept(agent: AgentSections) -> list[AttackRow]:
    """The rows of the first sweep."""
    return [row for sweep in agent.sweeps[:1] for curve in sweep.curves for row in curve.rows]


def _played(agent: AgentSections, eps: float | None) -> str:
    """The names of the attacks of the sweep at an eps, in brackets; "" without any."""
    names = dict.fromkeys(_attack_name(row) for row in _swept(agent) if eps is not None and row.eps == eps)
    return f" ({', '.join(names)})" if names else ""


def _sentence(agent: AgentSections, eps: float | None, row: AttackRow) -> str:
    """What is lost, what else is known, and what it rests on."""
    clean, choices, words = agent.clean.mean, agent.choices, [_finding(agent, eps, row)]
    lost = _lost(agent, row) > NO_LOSS * abs(clean)

    # what is known of smaller sizes, and of other attacks
    proved, unharmed, lower = _certified_eps(agent), _unharmed_eps(agent), _lower_elsewhere(agent, row)
    if proved is not None:
        words.append(f"It is proved that nothing up to {eps_in_words(proved, choices)} takes anything.")
    elif unharmed is not None and lost:
        where = eps_in_words(unharmed, choices)
        words.append(f"At {where} nothing played took anything{_played(agent, unharmed)}.")
    if lower is not None:
        words.append(f"Less is left by {lower.label}: {number_text(lower.mean)}.")

    # what a longer report may find; above all where there was time for nothing but noise
    names = {_attack_name(one) for one in _swept(agent)}
    if choices.untried and names == {"noise"}:  # a sweep of noise that ended early is itself untried
        words.append("There was time for noise alone: an attack that aims at the agent takes more, at smaller sizes.")
    elif choices.untried and names and lost:
        words.append("A longer report may find a smaller size.")
    if (count := agent.clean.row.episodes) <= _FEW:
        words.append(f"All of this rests on {count} episode{'' if count == 1 else 's'} alone.")
    return " ".join(words)


def _finding(agent: AgentSections, eps: float | None, row: AttackRow) -> str:
    """What an attack takes."""
    clean, lost, least = agent.clean.mean, _lost(agent, row), agent.report.minimum.get("value")
    earned, size = number_text(clean), "" if eps is None else eps_in_words(eps, agent.choices)
    if least is not None and clean <= float(least) + NO_LOSS * abs(clean):
        return f"Without an attack the agent earns {earned}, the least there is: no attack can take anything."
    if lost <= NO_LOSS * abs(clean):
        if (swept := _swept(agent)) and all(one.row.action_change == 0 for one in swept):
            return f"Nothing that was tried changes a single action, up to {size}: the agent earns {earned}."
        what = "No attack that was tried" if _lower_elsewhere(agent, row) is None else "No error of this kind"
        return f"{what} takes anything from {earned}" + (f", up to {size}{_played(agent, eps)}." if size else ".")
    taken, by = f"{number_text(lost)} of {earned}", f"({_attack_name(row)}{held(row, agent.clean)})"
    if clean <= 0 or row.mean < 0:
        taken = f"{number_text(lost)}: the mean return falls from {earned} to {number_text(row.mean)}"
    one = _worst_feature(agent, eps)
    if one is not None and size and _lost(agent, one) >= _ALONE * lost:
        whole = f"of {earned}" if clean > 0 else f"from a mean return of {earned}"
        where = size if agent.choices.at else f"{size} in all features"
        return (
            f"An error of {_own_unit(agent, one)} in {one.names} alone takes {number_text(_lost(agent, one))} {whole} "
            f"({_attack_name(one)}); one of {where} takes {number_text(lost)} {by}."
        )
    if row.kind == "entries":
        return f"Other values of {', '.join(row.keys) or 'what the agent sees'} take {taken} ({row.label})."
    return f"An error of {size} takes {taken} {by}." if size else f"{row.label} takes {taken}."


def _own_unit(agent: AgentSections, row: AttackRow) -> str:
    """The size of an error in one feature, in its own unit where its range is known."""
    assert row.eps is not None
    known, [i] = agent.choices.features or () if row.keys == agent.choices.at else (), row.features
    low, high = (known[i].low, known[i].high) if i < len(known) else (None, None)
    if low is None or high is None:
        return eps_in_words(row.eps, agent.choices)
    return f"{row.eps * (high - low):.2g} ({100 * row.eps:.3g}% of its range)"


def _next(agent: AgentSections, found: tuple[float | None, AttackRow] | None) -> tuple[NextStep, ...]:
    """What to do, with commands."""
    if not agent.choices.played:
        same = words_of_agent(agent)
        if same is None:
            return ()
        what = "Let a report choose budgets and attacks for this agent, and certify what it can"
        words = ["adv-wrappers", "report", *same, "--minutes", "5", "--out", "FOLDER"]
        return (NextStep(what, shlex.join(words)),)
    if found is None or _lost(agent, found[1]) <= NO_LOSS * abs(agent.clean.mean):
        training = agent.choices.training
        steps = hardening(agent, training.most or 0.0) if training.begins_with else []
        return tuple(steps) or (NextStep("Give the report more minutes, and read what it cannot tell", ""),)
    eps, row = error_to_withstand(agent) or found
    size = "" if eps is None else _size(agent, eps, row, found[1])
    steps = [] if eps is None else hardening(agent, eps, size)
    if not steps:
        steps = own_training(agent, eps, row, size) if eps is not None else [NextStep(_WITHOUT_SIZE, "")]
    if (one := _worst_feature(agent, found[0])) is not None:
        clean = agent.clean.mean
        taken = number_text(_lost(agent, one)) + (f" of {number_text(clean)}" if clean > 0 else "")
        name = one.names
        size = _own_unit(agent, one)
        what = f"Protect the sensor of {name}, or measure it twice: an error of {size} in it alone takes {taken}"
        steps.append(NextStep(what, ""))
    return tuple(steps)


def _size(agent: AgentSections, eps: float, row: AttackRow, headline: AttackRow) -> str:
    """The size of the errors that an agent is to be hardened against, and what it rests on."""
    count = row.row.episodes
    words = "this size" if row is headline else eps_in_words(eps, agent.choices)
    if row is not headline:
        half = row.eps is None or eps < row.eps
        what = "about where half is lost" if half else f"at which {_attack_name(row)} leaves {number_text(row.mean)}"
        words += f" ({what} on {count} episodes)"
    elif count < min(LEAST_EPISODES, agent.clean.row.episodes):
        words += f" (which rests on {count} episode{'' if count == 1 else 's'} alone)"
    return words


def _unknown(agent: AgentSections) -> tuple[str, ...]:
    """What the report does not tell."""
    proved = _certified_eps(agent)
    if proved is not None:
        beyond = f"Beyond {eps_in_words(proved, agent.choices)} it is not certified that the whole return is kept"
    elif agent.choices.certificates:
        beyond = "There is no eps for which it is certified that the whole return is kept"
    else:
        beyond = "Nothing is certified"
    known = (
        "Body and world change by the factors alone that are shown; other"
        if agent.of("dynamics")
        else "Other dynamics and other"
    )
    training, found = agent.choices.training, _headline(agent)
    lost = found is not None and _lost(agent, found[1]) > NO_LOSS * abs(agent.clean.mean)
    return (
        f"{beyond}: another attack may take more than those that were tried.",
        f"Rare events: {unseen(agent.report.episodes)}.",
        "Attacks choose errors anew at every step, as bad as can be; sensors and channels fail in the sizes alone that "
        f"are shown. {known} players are not tried.",
        *agent.choices.not_tried,
        *([f"No training by train-agent is advised: {training.why_none}."] if training.why_none and lost else []),
    )
