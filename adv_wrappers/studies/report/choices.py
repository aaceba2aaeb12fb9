"""``choices.json``: what the player of an agent's report chose, and why, beside the rows that it played.

The file may be of another hand: every entry may be missing, what is there is checked, and files that it names are
read only from its own folder.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from adv_wrappers.certification.certificate import Certificate
from adv_wrappers.errors import ValueRangeError
from adv_wrappers.registry import Robust
from adv_wrappers.utils.files import write_json
from adv_wrappers.utils.reading import decoding, read_result, value_of

CHOICES_FILE = "choices.json"  # in the folder of a report, beside its rows
SCHEMA = 3
ADVERSARIES = ("max-diff", "pa-ad")  # to train under
HardenedBy = Literal["", Robust, "max-diff", "pa-ad"]  # by a robust loss or these


@dataclass(frozen=True)
class FeatureSpread:
    """What a feature of the observations was in episodes without an attack.

    Attributes:
        name: of the feature.
        low, high: its 2.5% and 97.5% quantiles, in its own unit; None where they are not known.
        std: its standard deviation, likewise.
    """

    name: str = ""
    low: float | None = None
    high: float | None = None
    std: float | None = None


@dataclass(frozen=True)
class CertifiedReturn:
    """What no attack within a radius takes from an agent.

    Attributes:
        lower: the certified mean return.
        method: by which bounds it was found.
        eps: the radius; 0 in entries of a standing that do not say it again.
        clean: the mean return of these episodes without an attack, or None.
        episodes: the number of episodes that it is the mean of, or None.
    """

    lower: float
    method: str = ""
    eps: float = 0.0
    clean: float | None = None
    episodes: int | None = None

    @staticmethod
    def of(found: Certificate, eps: float) -> CertifiedReturn | None:
        """The means of a certificate; None where there was no time for it."""
        known = math.isfinite(found.lower) and math.isfinite(found.clean)
        return CertifiedReturn(found.lower, found.method, eps, found.clean, len(found.seeds)) if known else None


@dataclass(frozen=True)
class Untried:
    """An attack that there was no time for.

    Attributes:
        threat: its text.
        why: what it is for, in words.
        seconds: about what all its rows take; 0 where that is not known.
    """

    threat: str = ""
    why: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class AdvisedTraining:
    """The training by ``train-agent`` that comes next.

    Attributes:
        by: what hardens the agent; "" where none can begin with it.
        tried: what hardened the agent, or one that was trained from it, already, in this order.
        most: the largest eps that it should have, or None.
        algorithm, rewards, gamma: those that the agent learned with by its card; "" or None where it does not say.
        seconds: of one of its steps, measured; or None.
        begins_with: where the agent earns much less without an attack than the one that it was trained from, the
            reference of that one, which the training is to begin with; else "".
        scale: what its eps is multiplied by then, a feature; None is one for all.
        report: the folder of that agent's report, or "".
        why_none: why none can begin with the agent, or "".
    """

    by: HardenedBy = ""
    tried: tuple[str, ...] = ()
    most: float | None = None
    algorithm: Literal["", "ppo", "a2c", "dqn", "recurrent-ppo"] = ""
    rewards: Literal["", "normalized", "clipped", "raw"] = ""
    gamma: float | None = None
    seconds: float | None = None
    begins_with: str = ""
    scale: tuple[float, ...] | None = None
    report: str = ""
    why_none: str = ""


@dataclass(frozen=True)
class AttackedFrame:
    """Pictures of one attacked step: names of files in the folder of the report; "" where one is missing.

    Attributes:
        title: the threat and the step.
        true: what the environment showed.
        shown: what the agent was shown.
        difference: of the two, amplified.
    """

    title: str = ""
    true: str = ""
    shown: str = ""
    difference: str = ""


@dataclass(frozen=True)
class ReportChoices:
    """What was chosen; empty where no file says so.

    Attributes:
        command: the command that plays the report again.
        minutes: the time that was given.
        seconds: the time that it took.
        finished: whether it came to its end.
        episodes: the number of episodes of every row, or None.
        features: of the observations, in their order; None for images.
        scale: what an eps is multiplied by, a feature; None is one for all.
        unit: the unit of an eps, in words.
        reasons: why the budgets were chosen, in sentences.
        certificates: certified returns, by eps.
        untried: attacks that there was no time for.
        more: the command that plays these too.
        frames: pictures of attacked steps.
        film: the name of the file of a short animation, or "".
        training: what is advised to harden the agent by.
        not_tried: what could not be tried at all, in sentences that say why.
        identity: ``victim``, ``env`` and ``seed`` of the report that it belongs to, as a report has them; or None.
        at: the keys of a Dict or Tuple that ``features``, ``scale`` and ``unit`` are of; empty for all that is seen.
        folder: that of the file; None where there is none.
    """

    command: str = ""
    minutes: float | None = None
    seconds: float | None = None
    finished: bool = True
    episodes: int | None = None
    features: tuple[FeatureSpread, ...] | None = None
    scale: tuple[float, ...] | None = None
    unit: str = ""
    reasons: tuple[str, ...] = ()
    certificates: tuple[CertifiedReturn, ...] = ()
    untried: tuple[Untried, ...] = ()
    more: str = ""
    frames: tuple[AttackedFrame, ...] = ()
    film: str = ""
    training: AdvisedTraining = AdvisedTraining()
    not_tried: tuple[str, ...] = ()
    identity: Mapping[str, Any] | None = None
    at: tuple[str, ...] = ()
    folder: Path | None = None

    @property
    def played(self) -> bool:
        """Whether a report has been played."""
        return self.folder is not None


def write_choices(folder: Path, choices: ReportChoices) -> None:
    """Write the choices into a folder, from which :func:`read_choices` reads them; their pictures lie there already."""
    data = {"schema": SCHEMA, **asdict(choices)}
    del data["folder"]
    write_json(folder / CHOICES_FILE, data)


def read_choices(folder: Path) -> ReportChoices:
    """The choices of a folder; empty ones where it has no such file.

    Raises:
        ValueRangeError: for a file that is not of this form, or of another release.
    """
    path = folder / CHOICES_FILE
    if not path.exists():
        return ReportChoices()
    data = read_result(path)
    with decoding(path, ValueRangeError):
        if (found := data.pop("schema", SCHEMA)) != SCHEMA:
            why = f"it has form {found!r} and not {SCHEMA}: another release of adv_wrappers wrote it"
            raise ValueRangeError(f"{why}. Make the report again, in a new folder")
        choices: ReportChoices = value_of(ReportChoices, data)
        # files that it names are those beside it
        pictures = [("film", choices.film)]
        pictures += [(name, getattr(one, name)) for one in choices.frames for name in ("true", "shown", "difference")]
        for name, file in pictures:
            if not (folder / file).resolve().is_relative_to(folder.resolve()):
                raise ValueRangeError(f"{name} must be the name of a file in {folder}, got {file!r:.80}")
        return replace(choices, folder=folder)
