"""``choices.json``: what the player of an agent's report chose, and why, beside the rows that it played.

The file may be of another hand: every entry may be missing, what is there is checked, and files that it names are
read only from its own folder.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from adv_wrappers.errors import ValueRangeError
from adv_wrappers.utils.checks import finite_float
from adv_wrappers.utils.files import write
from adv_wrappers.utils.reading import read_json

CHOICES_FILE = "choices.json"  # in the folder of a report, beside its rows
SCHEMA = 1
ADVERSARIES = ("max-diff", "pa-ad")  # to train under
HARDENED_BY = ("radial", "wocar", "sa", "car", *ADVERSARIES)  # beside robust losses


@dataclass(frozen=True)
class FeatureSpread:
    """What a feature of the observations was in episodes without an attack.

    Attributes:
        name: of the feature.
        low, high: its 2.5% and 97.5% quantiles, in its own unit; None where they are not known.
        std: its standard deviation, likewise.
    """

    name: str
    low: float | None
    high: float | None
    std: float | None


@dataclass(frozen=True)
class CertifiedReturn:
    """What no attack within a radius takes from an agent.

    Attributes:
        eps: the radius.
        lower: the certified mean return.
        clean: the mean return of these episodes without an attack, or None.
        episodes: the number of episodes that it is the mean of.
        method: how it was found, ``"search"`` or ``"bounds"``.
    """

    eps: float
    lower: float
    clean: float | None
    episodes: int | None
    method: str


@dataclass(frozen=True)
class Untried:
    """An attack that there was no time for.

    Attributes:
        threat: its text.
        why: what it is for, in words.
        seconds: about what all its rows take; 0 where that is not known.
        command: what plays it, or "".
    """

    threat: str
    why: str
    seconds: float = 0.0
    command: str = ""


@dataclass(frozen=True)
class AttackedFrame:
    """Pictures of one attacked step; paths of files, or None where one is missing.

    Attributes:
        title: the threat and the step.
        true: what the environment showed.
        shown: what the agent was shown.
        difference: of the two, amplified.
    """

    title: str
    true: Path | None
    shown: Path | None
    difference: Path | None


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
        eps: the radii that all features were attacked in, after 0 for none.
        halving_eps: the radius at which half of the return is lost, between two that were played; or None.
        reasons: why the budgets were chosen, in sentences.
        certificates: certified returns, by eps.
        untried: attacks that there was no time for.
        frames: pictures of attacked steps.
        film: the path of a short animation (gif, webp or mp4), or None.
        harden_by: what ``train-agent`` is advised to go on with the agent by, one of ``HARDENED_BY``; "" where it
            cannot begin with it.
        harden_seconds: of one of its steps, measured; or None.
        harden_most: the largest eps that it should have, where a training under more than that had nothing to choose
            checkpoints by; or None.
        tried: what the agent, or one that was trained from it, was hardened by already.
        not_tried: what could not be tried at all, in sentences that say why.
        identity: ``victim``, ``env`` and ``seed`` of the report that it belongs to, as a report has them; or None.
        at: the keys of a Dict or Tuple that ``features``, ``scale`` and ``unit`` are of; empty for all that is seen.
        played: whether there is such a file.
    """

    command: str = ""
    minutes: float | None = None
    seconds: float | None = None
    finished: bool = True
    episodes: int | None = None
    features: tuple[FeatureSpread, ...] | None = None
    scale: tuple[float, ...] | None = None
    unit: str = ""
    eps: tuple[float, ...] = ()
    halving_eps: float | None = None
    reasons: tuple[str, ...] = ()
    certificates: tuple[CertifiedReturn, ...] = ()
    untried: tuple[Untried, ...] = ()
    frames: tuple[AttackedFrame, ...] = ()
    film: Path | None = None
    harden_by: str = ""
    harden_seconds: float | None = None
    harden_most: float | None = None
    tried: tuple[str, ...] = ()
    not_tried: tuple[str, ...] = ()
    identity: Mapping[str, Any] | None = None
    at: tuple[str, ...] = ()
    played: bool = False


def write_choices(folder: Path, choices: ReportChoices) -> None:
    """Write the choices into a folder, from which :func:`read_choices` reads them; their pictures lie there already."""
    data = {"schema": SCHEMA, **asdict(choices)}
    del data["played"]
    inside = folder.resolve()
    text = json.dumps(data, indent=1, allow_nan=False, default=lambda path: path.relative_to(inside).as_posix())
    write(folder / CHOICES_FILE, (text + "\n").encode())


def read_choices(folder: Path) -> ReportChoices:
    """The choices of a folder; empty ones where it has no such file.

    Raises:
        ValueRangeError: for a file that is not of this form, or of another release.
    """
    path = folder / CHOICES_FILE
    if not path.exists():
        return ReportChoices()
    data = read_json(path, error=ValueRangeError)
    if (found := data.get("schema", SCHEMA)) != SCHEMA:
        raise ValueRangeError(f"{path} has form {found!r} and not {SCHEMA}: another release of adv_wrappers wrote it")
    choices: ReportChoices = _value(ReportChoices, {**data, "played": True}, "it", path)
    if choices.harden_by not in ("", *HARDENED_BY):  # it becomes a word of a command
        raise ValueRangeError(f"harden_by in {path} must be one of {HARDENED_BY} or empty, got {choices.harden_by!r}")
    return choices


def _value(kind: Any, found: Any, name: str, path: Path) -> Any:
    """A value of a file, as the annotation of its field has it; what a file lacks, and null, is the default.

    Raises:
        ValueRangeError: for a value of another kind, and for a path that leads out of the folder.
    """

    def wrong(expected: str) -> ValueRangeError:
        return ValueRangeError(f"{name} in {path} must be {expected}, got {found!r:.80}")

    if type(None) in get_args(kind):
        if found is None:
            return None
        kind = get_args(kind)[0]
    if isinstance(kind, type) and is_dataclass(kind):
        if not isinstance(found, dict):
            raise wrong("a dictionary")
        kinds, given = get_type_hints(kind), {key: value for key, value in found.items() if value is not None}
        read = [one.name for one in fields(kind) if one.name in given or one.default is MISSING]
        return kind(**{one: _value(kinds[one], given.get(one), one, path) for one in read})
    if get_origin(kind) is tuple:
        if not isinstance(found, list):
            raise wrong("a list")
        return tuple(_value(get_args(kind)[0], item, f"an item of {name}", path) for item in found)
    if kind in (int, float):
        if (number := finite_float(found)) is None:
            raise wrong("a finite number")
        return kind(number)
    if kind is bool:
        return found is not False
    if get_origin(kind) is not None:  # a mapping
        if not isinstance(found, dict):
            raise wrong("a dictionary")
        return found
    if not isinstance(found, str | None):
        raise wrong("a text")
    if kind is str:
        return found or ""
    inside = path.parent.resolve()
    if not (inside / (found or "")).resolve().is_relative_to(inside):  # only what lies there is ever read
        raise wrong(f"the name of a file in {inside}")
    return (inside / found).resolve() if found else None
