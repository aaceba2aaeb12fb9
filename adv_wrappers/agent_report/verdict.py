"""The verdict of a report: one sentence and one figure, what hurt most, what to do next, and what stays unknown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from adv_wrappers.agent_report.eps_sweep import half_return
from adv_wrappers.agent_report.observed_spread import ObservedSpread
from adv_wrappers.agent_report.trials import Trial
from adv_wrappers.evaluation.report import Row, number_text

_NO_LOSS = 0.02  # of the clean return, which is no loss
SOME_LOSS = 0.1  # of the clean return, from which an agent is said to lose something
_ALONE = 0.5  # of the loss under an attack on all features, from which one feature is said to be enough


@dataclass(frozen=True)
class CertifiedLower:
    """What no attack within a radius takes from the agent: its mean return is at least ``lower``.

    Attributes:
        eps: the radius.
        lower: the bound on the mean return of the episodes.
        clean: their mean return without an attack.
        episodes: their number.
        method: ``"search"`` or ``"bounds"``.
    """

    eps: float
    lower: float
    clean: float
    episodes: int
    method: str

    @property
    def is_whole(self) -> bool:
        """Whether nothing at all can be taken."""
        return self.lower >= self.clean - 1e-6 * abs(self.clean)


@dataclass(frozen=True)
class Evidence:
    """All that a verdict is made of.

    Attributes:
        clean: the row without an attack.
        spread: what the agent sees.
        strongest: by eps, the strongest trial up to there.
        features: by its name, the trial that moved one feature alone.
        moments: by its first and last step, the trial that attacked there alone.
        certificates: what is certified.
        warnings: those of the report.
        reasons: why something was not tried at all.
        env: the id of the environment, for commands.
        victim: the reference of the agent, for commands.
    """

    clean: Row
    spread: ObservedSpread
    strongest: Mapping[float, Trial]
    features: Mapping[str, Trial]
    moments: Mapping[tuple[int, int], Trial]
    certificates: Sequence[CertifiedLower]
    warnings: Sequence[str]
    reasons: Sequence[str] = field(default_factory=tuple)
    env: str = "ENV"
    victim: str = "REF"

    @property
    def mean(self) -> float:
        """The mean return without an attack."""
        return float(self.clean["mean_return"])

    def lost(self, trial: Trial) -> float:
        """What a trial takes of the mean return."""
        return self.mean - trial.mean

    @property
    def headline(self) -> tuple[float, Trial] | None:
        """The least eps at which half of the return is lost, else the largest that was tried; None without a sweep."""
        half = half_return(self.mean, (trial.mean for trial in self.strongest.values()))
        broken = [(eps, trial) for eps, trial in self.strongest.items() if half < self.mean and trial.mean <= half]
        if broken:
            return broken[0]
        return max(self.strongest.items(), default=None, key=lambda item: item[0])

    @property
    def certified_eps(self) -> float | None:
        """The largest eps up to which it is proved that nothing can be taken."""
        return max((one.eps for one in self.certificates if one.is_whole), default=None)

    @property
    def unharmed_eps(self) -> float | None:
        """The largest eps at which no attack that was tried took anything."""
        limit = _NO_LOSS * abs(self.mean)
        return max((eps for eps, trial in self.strongest.items() if self.lost(trial) <= limit), default=None)

    @property
    def worst_feature(self) -> str | None:
        """The feature that alone takes most, if it takes a tenth of the return."""
        found = max(self.features.items(), default=None, key=lambda item: self.lost(item[1]))
        return found[0] if found and self.lost(found[1]) >= SOME_LOSS * abs(self.mean) else None

    @property
    def worst_moment(self) -> tuple[int, int] | None:
        """The steps at which an attack takes most, if it takes a tenth of the return."""
        found = max(self.moments.items(), default=None, key=lambda item: self.lost(item[1]))
        return found[0] if found and self.lost(found[1]) >= SOME_LOSS * abs(self.mean) else None


def eps_text(eps: float, spread: ObservedSpread) -> str:
    """An eps in words.

    Args:
        eps: the radius.
        spread: of the agent; a share of the range of every feature, or grey levels.
    """
    if spread.image:
        levels = eps * 255 / spread.levels
        return f"{levels:.3g} grey level{'' if levels == 1 else 's'} of 255"
    return f"{100 * eps:.3g}% of each feature's range"


def verdict(evidence: Evidence) -> dict[str, Any]:
    """The verdict as ``choices.json`` has it.

    Returns:
        ``sentence``, ``figure``, ``feature``, ``moment``, ``next`` (what to do) and ``cannot_tell``.
    """
    found, mean = evidence.headline, evidence.mean
    figure: dict[str, Any] = {"of": mean, "eps": None, "certified_eps": evidence.certified_eps}
    if found is None:
        sentence = f"The agent earns {number_text(mean)} without an attack; there was no time to try one."
        figure |= {"value": mean, "low": evidence.clean["low"], "high": evidence.clean["high"]}
    else:
        eps, trial = found
        figure |= {"value": trial.mean, "low": trial.row["low"], "high": trial.row["high"], "eps": trial.eps}
        sentence = _sentence(evidence, eps, trial)
    moment = evidence.worst_moment
    return {
        "sentence": sentence,
        "figure": figure,
        "feature": evidence.worst_feature,
        "moment": None if moment is None else f"steps {moment[0]} to {moment[1]}",
        "next": _next(evidence, found),
        "cannot_tell": _unknown(evidence, found),
    }


def _sentence(evidence: Evidence, eps: float, trial: Trial) -> str:
    mean, lost = evidence.mean, evidence.lost(trial)
    size = eps_text(eps, evidence.spread)
    proved = evidence.certified_eps
    below = ""
    if proved is not None:
        below = f" It is proved that nothing up to {eps_text(proved, evidence.spread)} takes anything."
    elif evidence.unharmed_eps is not None:
        below = f" No attack tried took anything up to {eps_text(evidence.unharmed_eps, evidence.spread)}."
    if lost <= _NO_LOSS * abs(mean):
        if trial.row.get("action_change") == 0:
            return (
                f"Nothing that was tried changes a single action, with errors of up to {size}: the agent earns "
                f"{number_text(mean)} whatever it is shown.{'' if proved is None else below}"
            )
        return (
            f"No attack that was tried takes anything from {number_text(mean)}, with errors of up to {size}."
            f"{'' if proved is None else below}"
        )
    of = f"{number_text(lost)} of {number_text(mean)}"
    if mean <= 0 or trial.mean < 0:
        of = f"{number_text(lost)}: the mean return falls from {number_text(mean)} to {number_text(trial.mean)}"
    feature = evidence.worst_feature
    if feature is not None and evidence.lost(evidence.features[feature]) >= _ALONE * lost:
        one = evidence.features[feature]
        i = (evidence.spread.names or ()).index(feature)
        own = (one.eps or 0.0) * float(evidence.spread.high[i] - evidence.spread.low[i])
        taken = number_text(evidence.lost(one))
        return (
            f"An error of {own:.2g} in {feature} alone ({eps_text(one.eps or 0.0, evidence.spread)}) takes {taken} of "
            f"{number_text(mean)}; one of {size} in all features takes {number_text(lost)}.{below}"
        )
    return f"An error of {size} takes {of} ({trial.attack}).{below}"


def _next(evidence: Evidence, found: tuple[float, Trial] | None) -> list[dict[str, Any]]:
    """What to do, with commands."""
    steps = list[dict[str, Any]]()
    if found is None or evidence.lost(found[1]) <= _NO_LOSS * abs(evidence.mean):
        return [{"what": "Try more: give the report more minutes, and read what it cannot tell.", "command": None}]
    budget = f"--eps {found[0]:.3g}"
    if not evidence.spread.image and evidence.spread.scale is not None:
        budget += " --scale '" + ";".join(f"{unit:g}" for unit in evidence.spread.scale) + "'"
    steps.append(
        {
            "what": "Harden the agent against errors of this size, then make this report of the new one.",
            "command": f"adv-wrappers train-agent {evidence.env} --victim {evidence.victim} "
            f"--adversary max-diff {budget} --out hardened",
        }
    )
    if (feature := evidence.worst_feature) is not None:
        one = evidence.features[feature]
        steps.append(
            {
                "what": f"Protect the sensor of {feature}, or measure it twice: an error in it alone takes "
                f"{number_text(evidence.lost(one))} of {number_text(evidence.mean)}.",
                "command": None,
            }
        )
    return steps


def _unknown(evidence: Evidence, found: tuple[float, Trial] | None) -> list[str]:
    """What the report does not tell."""
    said = list[str]()
    proved = evidence.certified_eps
    if proved is None:
        said.append("Nothing is proved: an attack that was not tried may take more at any eps.")
    elif found is not None:
        said.append(
            f"Beyond {eps_text(proved, evidence.spread)} nothing is proved: an attack that was not tried may take more."
        )
    count = int(evidence.clean["episodes"])
    said.append(
        f"Means are of {count} episodes with the same starts; their intervals say how far they may be off, for "
        "starts drawn like these."
    )
    said.append(
        "Errors here are chosen anew at every step and as bad as can be. Sensors that drift, delays, other dynamics, "
        "and other players are not tried."
    )
    said += [str(reason) for reason in evidence.reasons]

    return said
