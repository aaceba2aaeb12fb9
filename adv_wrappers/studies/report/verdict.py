"""The verdict of a report: one sentence and one figure, what hurt most, what to do next, and what stays unknown.

It is made of the rows, and of what was chosen for them where that is known.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from adv_wrappers.evaluation.statistics.confidence_intervals import LEAST_EPISODES, MeanWithInterval, unseen
from adv_wrappers.studies.report.advice import NextStep, hardening, own_training, words_of_agent
from adv_wrappers.studies.report.charts import eps_text
from adv_wrappers.studies.report.choices import ReportChoices
from adv_wrappers.studies.report.eps_search import broken_eps
from adv_wrappers.studies.report.sections import AgentSections, AttackRow, Kind, held
from adv_wrappers.studies.report.trials import NO_LOSS, SOME_LOSS
from adv_wrappers.utils.number_text import counted, interval_text, number_text

GREY_LEVELS = "grey levels"  # the unit of eps on images
NEAR = 1.5  # the ratio of two eps that are said to be about the same
_ALONE = 0.5  # of the loss under an attack on all features, from which one feature is said to be enough
_OF_A_SWEEP = ("sweep", "feature", "moment", "few")  # kinds of rows whose eps may be beyond that of the verdict
_HURTS: dict[Kind, str] = {
    "feature": "Weakest feature",
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

    @property
    def about(self) -> str:
        """What it is, beside it on a page."""
        interval = f"95% interval {interval_text(self.low, self.high)}"
        if self.caveat:
            interval = f"{counted(self.episodes, 'episode')}, too few or too alike for an interval"
        at = "" if self.eps is None else f" at eps {eps_text(self.eps)}"
        return f"mean return an episode under {self.attack}{at}, {interval}"


@dataclass(frozen=True)
class Verdict:
    """What a report says in one sentence.

    Attributes:
        sentence: the sentence.
        figure: its number, or None.
        hurts: by what else hurts most (a feature, a moment, a fault, ...) which it is, and what it leaves.
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
    # the row that the verdict is about, and its figure
    found, figure = headline(agent), None
    sentence = f"Without an attack the agent earns {number_text(agent.clean.mean)} an episode. No attack was played."
    if found is not None:
        eps, row = found
        left, proved = row.returned, _certified_eps(agent)
        figure = VerdictFigure(
            left.mean, left.low, left.high, left.caveat, agent.clean.mean, eps, _attack_name(row), len(row.row.returns),
            proved,
        )  # fmt: skip
        sentence = _sentence(agent, eps, row)
    # what hurt most of every kind
    hurts = dict[str, str]()
    for kind, name in _HURTS.items():
        rows = agent.of(kind)
        worst = _worst_feature(agent, found[0]) if kind == "feature" and found else _worst(rows)
        if worst is not None:
            hurts[name] = f"{worst.label} leaves {number_text(worst.mean)}"
    return Verdict(sentence, figure, hurts, tuple(_next(agent, found)), _unknown(agent, found))


def eps_in_words(eps: float, choices: ReportChoices) -> str:
    """An eps in words: a share of the ranges of features, grey levels, or the number as it is."""
    if choices.features is not None:
        return f"{100 * eps:.3g}% of each feature's range" + (f" in {', '.join(choices.at)}" if choices.at else "")
    return f"{counted(eps, 'grey level')} of 255" if choices.unit == GREY_LEVELS else f"eps {eps:.3g}"


def _attack_name(row: AttackRow) -> str:
    """The name of a row's attack, without its arguments."""
    name, _, arguments = row.attack.partition(":")
    return f"{name} with restarts" if "restarts=" in arguments else name


def headline(agent: AgentSections) -> tuple[float | None, AttackRow] | None:
    """The least eps at which half of the return is lost, with its row; else the largest eps that was tried.

    Without a sweep it is the strongest row, and None where there is none. So it is of rows that no report has chosen,
    where another attack takes what the sweep does not.
    """
    strongest, chosen = agent.strongest, agent.choices.played
    half = broken_eps(agent.clean.mean, strongest)
    eps = half or max(strongest, default=None)
    if eps and (half or chosen or _lower_elsewhere(agent, strongest[eps]) is None):
        return eps, strongest[eps]
    worst = min((chosen and agent.of("entries")) or agent.attacked, key=lambda row: row.mean, default=None)
    return None if worst is None else (worst.eps, worst)


def _lower_elsewhere(agent: AgentSections, found: AttackRow) -> AttackRow | None:
    """The lowest row of another kind than a verdict's, if it takes a tenth of the return more."""
    rows = [
        row for row in agent.attacked
        if row.kind not in _OF_A_SWEEP or row.keys != found.keys or (row.kind == "sweep" and row.ball != found.ball)
    ]  # fmt: skip
    worst = min(rows, key=lambda row: row.mean, default=None)
    return worst if worst and worst.lost - found.lost > SOME_LOSS * abs(agent.clean.mean) else None


def _certified_eps(agent: AgentSections) -> float | None:
    """The largest eps up to which it is proved that nothing is taken."""
    mean = agent.clean.mean
    proved = [
        one for one in agent.choices.certificates if is_whole(one.lower, mean if one.clean is None else one.clean)
    ]
    return max((one.eps for one in proved), default=None)


def is_whole(lower: float, clean: float) -> bool:
    """Whether a bound says that nothing of a mean return is taken."""
    return lower >= clean - _WHOLE * abs(clean)


def _worst(rows: Sequence[AttackRow]) -> AttackRow | None:
    """The row that takes most, if it takes a tenth of the return.

    The interval of what it takes lies on one side of zero, so that it is no chance of the episodes; too few of them
    have no interval.
    """
    known = [row for row in rows if row.change.caveat is not None or row.change.side < 0]
    row = min(known, key=lambda row: row.mean, default=None)
    return row if row and row.takes(SOME_LOSS) else None


def _worst_feature(agent: AgentSections, most: float | None) -> AttackRow | None:
    """The row of the feature that alone takes most; of rows whose eps is not much above ``most``, if it is given."""
    rows = [row for row in agent.of("feature") if len(row.features) == 1]
    return _worst([row for row in rows if most is None or (row.eps or 0.0) <= NEAR * most])


def _played(agent: AgentSections, eps: float | None) -> str:
    """The names of the attacks of the sweep at an eps, in brackets; "" without any."""
    names = dict.fromkeys(_attack_name(row) for row in agent.swept if row.eps == eps)
    return f" ({', '.join(names)})" if names else ""


def _sentence(agent: AgentSections, eps: float | None, row: AttackRow) -> str:
    """What is lost, what else is known, and what it rests on."""
    choices = agent.choices
    words = [_finding(agent, eps, row)]
    lost = row.takes(NO_LOSS)

    # what is known of smaller sizes, and of other attacks
    unharmed = max((eps for eps, one in agent.strongest.items() if not one.takes(NO_LOSS)), default=None)
    if (proved := _certified_eps(agent)) is not None:
        words.append(f"It is proved that nothing up to {eps_in_words(proved, choices)} takes anything.")
    elif unharmed is not None and lost:
        where = eps_in_words(unharmed, choices)
        words.append(f"At {where} nothing played took anything{_played(agent, unharmed)}.")
    if (lower := _lower_elsewhere(agent, row)) is not None:
        words.append(f"Less is left by {lower.label}: {number_text(lower.mean)}.")

    # what a longer report may find; above all where there was time for nothing but noise
    if choices.untried and {_attack_name(one) for one in agent.swept} == {"noise"}:
        words.append("There was time for noise alone: an attack that aims at the agent takes more, at smaller sizes.")
    elif choices.untried and lost:
        words.append("A longer report may find a smaller size.")
    if (count := agent.clean.row.episodes) <= _FEW:
        words.append(f"All of this rests on {counted(count, 'episode')} alone.")
    return " ".join(words)


def _finding(agent: AgentSections, eps: float | None, row: AttackRow) -> str:
    """What an attack takes."""
    clean = agent.clean.mean
    least = agent.report.minimum.get("value")
    earned = number_text(agent.clean.mean)
    size = "" if eps is None else eps_in_words(eps, agent.choices)
    if least is not None and clean <= float(least) + NO_LOSS * abs(clean):
        return f"Without an attack the agent earns {earned}, the least there is: no attack can take anything."
    # nothing is lost: because no action changed, or although some did
    if not row.takes(NO_LOSS):
        if agent.swept and all(one.row.action_change == 0 for one in agent.swept):
            return f"Nothing that was tried changes a single action, up to {size}: the agent earns {earned}."
        what = f"No error up to {size}" if size else "No attack that was tried"
        return f"{what} takes anything from {earned}{_played(agent, eps)}."
    # what is lost, and whether one feature alone does most of it
    what, by = (f"An error of {size}", f" ({_attack_name(row)}{held(row, agent.clean)})") if size else (row.label, "")
    words = f"{what} lowers the mean return from {earned} to {number_text(row.mean)}{by}."
    if size and (one := _worst_feature(agent, eps)) is not None and one.lost >= _ALONE * row.lost:
        alone = f"An error of {_own_unit(agent, one)} in {one.names} alone"
        words += f" {alone} lowers it to {number_text(one.mean)} ({_attack_name(one)})."
    return words


def _own_unit(agent: AgentSections, row: AttackRow) -> str:
    """The size of an error in one feature, in its own unit where its range is known."""
    known = agent.choices.features or ()
    eps = row.eps or 0.0
    [i] = row.features
    low, high = (known[i].low, known[i].high) if row.keys == agent.choices.at and i < len(known) else (None, None)
    if low is None or high is None:
        return eps_in_words(eps, agent.choices)
    return f"{eps * (high - low):.2g} ({100 * eps:.3g}% of its range)"


def _next(agent: AgentSections, found: tuple[float | None, AttackRow] | None) -> list[NextStep]:
    """What to do, with commands."""
    # rows of an evaluation: a report would choose for itself
    if not agent.choices.played:
        what = "Let a report choose budgets and attacks for this agent, and certify what it can"
        same = words_of_agent(agent)
        words = ["adv-wrappers", "report", *(same or ()), "--minutes", "5", "--out", "FOLDER"]
        return [NextStep(what, shlex.join(words))] if same else []
    # nothing hurt: train on where an agent has given up, else look longer
    if found is None or not found[1].takes(NO_LOSS):
        training = agent.choices.training
        steps = hardening(agent, training.most or 0.0) if training.begins_with else []
        return steps or [NextStep("Give the report more minutes, and read what it cannot tell", "")]
    # harden it against what hurt, by a command or in its own training
    eps, row = found
    if eps is None:
        steps = [NextStep(_WITHOUT_SIZE, "")]
    else:
        size = "this size"
        if row.row.episodes < min(LEAST_EPISODES, agent.clean.row.episodes):
            size += f" (as {counted(row.row.episodes, 'episode')} showed)"
        steps = hardening(agent, eps, size) or own_training(agent, eps, row, size)
    # one feature that does most of the harm by itself is worth protecting
    if (one := _worst_feature(agent, found[0])) is not None:
        takes = f"lowers the mean return to {number_text(one.mean)}"
        error = f"an error of {_own_unit(agent, one)} in it alone {takes}"
        steps.append(NextStep(f"Protect the sensor of {one.names}, or measure it twice: {error}", ""))
    return steps


def _unknown(agent: AgentSections, found: tuple[float | None, AttackRow] | None) -> tuple[str, ...]:
    """What the report does not tell."""
    proved, training = _certified_eps(agent), agent.choices.training
    beyond = "Nothing" if proved is None else f"Nothing beyond {eps_in_words(proved, agent.choices)}"
    no_training = training.why_none if found is not None and found[1].takes(NO_LOSS) else ""
    return (
        f"{beyond} is certified: another attack may take more than those that were tried.",
        f"Rare events: {unseen(agent.report.episodes)}.",
        "Attacks choose errors anew at every step, as bad as can be. Sensors, channels, body and world change in the "
        "sizes alone that are shown. Other players are not tried.",
        *agent.choices.not_tried,
        *([f"No training by train-agent is advised: {no_training}."] if no_training else []),
    )
