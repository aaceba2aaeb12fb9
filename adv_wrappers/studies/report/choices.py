"""``choices.json``: what the player of an agent's report chose, and why, beside the rows that it played.

The file may be of another hand: every entry may be missing, what is there is checked, and files that it names are
read only from its own folder.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from adv_wrappers.errors import ValueRangeError
from adv_wrappers.utils.checks import finite_float
from adv_wrappers.utils.files import write

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
    seconds: float
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
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueRangeError(f"cannot read {path}: {error}") from error
    if not isinstance(data, dict) or data.get("schema", SCHEMA) != SCHEMA:
        found = data.get("schema") if isinstance(data, dict) else type(data).__name__
        raise ValueRangeError(f"{path} has form {found!r} and not {SCHEMA}: another release of adv_wrappers wrote it")
    return _ChoicesReader(path).choices(data)


class _ChoicesReader:
    """Turns the entries of one file into values, and says which of them is not what it should be."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def choices(self, data: Mapping[str, Any]) -> ReportChoices:
        scale, features, episodes = data.get("scale"), data.get("features"), self._number(data, "episodes")
        return ReportChoices(
            command=self._text(data, "command"),
            minutes=self._number(data, "minutes"),
            seconds=self._number(data, "seconds"),
            finished=data.get("finished", True) is not False,
            episodes=None if episodes is None else int(episodes),
            features=None if features is None else tuple(map(self._feature, self._dicts(data, "features"))),
            scale=None if scale is None else self._numbers(data, "scale"),
            unit=self._text(data, "unit"),
            at=self._texts(data, "at"),
            eps=self._numbers(data, "eps"),
            halving_eps=self._number(data, "halving_eps"),
            reasons=self._texts(data, "reasons"),
            certificates=tuple(map(self._certificate, self._dicts(data, "certificates"))),
            untried=tuple(map(self._untried, self._dicts(data, "untried"))),
            frames=tuple(map(self._frame, self._dicts(data, "frames"))),
            film=self._file(data, "film"),
            harden_by=self._harden_by(data),
            harden_seconds=self._number(data, "harden_seconds"),
            harden_most=self._number(data, "harden_most"),
            tried=self._texts(data, "tried"),
            not_tried=self._texts(data, "not_tried"),
            identity=None if (about := data.get("identity")) is None else self._dict("identity", about),
            played=True,
        )

    def _feature(self, data: Mapping[str, Any]) -> FeatureSpread:
        return FeatureSpread(self._text(data, "name"), *(self._number(data, key) for key in ("low", "high", "std")))

    def _certificate(self, data: Mapping[str, Any]) -> CertifiedReturn:
        episodes = self._number(data, "episodes")
        eps, lower = self._needed(data, "eps"), self._needed(data, "lower")
        count = None if episodes is None else int(episodes)
        return CertifiedReturn(eps, lower, self._number(data, "clean"), count, self._text(data, "method"))

    def _untried(self, data: Mapping[str, Any]) -> Untried:
        return Untried(
            self._text(data, "threat"),
            self._text(data, "why"),
            self._number(data, "seconds") or 0.0,
            self._text(data, "command"),
        )

    def _frame(self, data: Mapping[str, Any]) -> AttackedFrame:
        return AttackedFrame(
            self._text(data, "title"), *(self._file(data, key) for key in ("true", "shown", "difference"))
        )

    def _wrong(self, key: str, expected: str, found: object) -> ValueRangeError:
        return ValueRangeError(f"{key} in {self._path} must be {expected}, got {found!r:.80}")

    def _text(self, data: Mapping[str, Any], key: str) -> str:
        found = data.get(key)
        if found is not None and not isinstance(found, str):
            raise self._wrong(key, "a text", found)
        return found or ""

    def _harden_by(self, data: Mapping[str, Any]) -> str:
        found = data.get("harden_by", ReportChoices.harden_by)
        if found not in ("", *HARDENED_BY):  # it becomes a word of a command
            raise self._wrong("harden_by", f"one of {HARDENED_BY} or empty", found)
        return str(found)

    def _number(self, data: Mapping[str, Any], key: str) -> float | None:
        return None if data.get(key) is None else self._one_number(key, data[key])

    def _needed(self, data: Mapping[str, Any], key: str) -> float:
        return self._one_number(key, data.get(key))

    def _one_number(self, key: str, found: object) -> float:
        number = finite_float(found)
        if number is None:
            raise self._wrong(key, "a finite number", found)
        return number

    def _numbers(self, data: Mapping[str, Any], key: str) -> tuple[float, ...]:
        return tuple(self._one_number(key, item) for item in self._list(data, key))

    def _list(self, data: Mapping[str, Any], key: str) -> Sequence[Any]:
        found = data.get(key)
        if found is not None and not isinstance(found, list):
            raise self._wrong(key, "a list", found)
        return found or []

    def _texts(self, data: Mapping[str, Any], key: str) -> tuple[str, ...]:
        found = self._list(data, key)
        if not all(isinstance(item, str) for item in found):
            raise self._wrong(key, "a list of texts", found)
        return tuple(found)

    def _dict(self, key: str, found: object) -> Mapping[str, Any]:
        if not isinstance(found, dict):
            raise self._wrong(key, "a dictionary", found)
        return found

    def _dicts(self, data: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
        return [self._dict(f"an item of {key}", item) for item in self._list(data, key)]

    def _file(self, data: Mapping[str, Any], key: str) -> Path | None:
        """The file of a name; only one that lies inside the folder is ever read."""
        name = self._text(data, key)
        if not name:
            return None
        folder = self._path.parent.resolve()
        found = (folder / name).resolve()
        if not found.is_relative_to(folder):
            raise self._wrong(key, f"the name of a file in {folder}", name)
        return found
