"""The folder of a training: its identity, record, checkpoints, the best so far, and the result; what an identity says.

All trainings (of adversaries, agents, critics, models of the dynamics, surrogates) and measurements of resilience keep
what they have in a :class:`TrainingFolder`, and resume from it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import shutil
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor, nn

from adv_wrappers.core.serialization import Value
from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.core.types import Info
from adv_wrappers.environments.environment import Environment, is_named, text_of_function
from adv_wrappers.errors import CardError, ThreatError, ValueRangeError
from adv_wrappers.evaluation.rows.row_key import revision, versions
from adv_wrappers.networks.card import Section, role_of
from adv_wrappers.networks.fingerprint import digest
from adv_wrappers.utils.files import make_folder, rename_file, write, write_json
from adv_wrappers.utils.reading import PLAIN, check_same, decoding, json_form, read_json
from adv_wrappers.utils.validation import MOST_SEED
from adv_wrappers.victims.victim import Victim

_FORMAT = 1  # of state.json
STATE, TENSORS = "state.json", "state.safetensors"
_CARD = ("weights.safetensors", "card.json")  # the card last: it has the hash of the weights
_PART, _CHECKPOINT = ".part.", "checkpoint-"  # begin the names of folders of checkpoints: incomplete, and complete
TrainingKind = Literal["adversary", "agent", "critic", "dynamics", "imitation", "resilience", "robustness"]
_WORDS: dict[TrainingKind, str] = {
    "adversary": "training of an adversary",
    "agent": "training of an agent",
    "critic": "training of a critic",
    "dynamics": "training of a model of the dynamics",
    "imitation": "imitation",
    "resilience": "measurement of resilience",
    "robustness": "measurement of robustness",
}


def later_seed(seed: int, steps: int) -> int:
    """The seed of a training that is resumed after so many steps: other draws and episodes than at the beginning."""
    return (seed + steps) % (MOST_SEED + 1)


def described_victim(victim: Victim) -> dict[str, str | None]:
    """A victim as folders know it: ``ref``, ``sha256`` of its weights, ``structure`` and ``select``."""
    hashes = {"sha256": victim.fingerprint(), "structure": victim.structure()}
    return {"ref": victim.ref, **hashes, "select": victim.select}


def described(part: object) -> Any:
    """A threat, or a part of one, in JSON, also where nothing can be loaded from that: functions by their names."""
    if isinstance(part, Victim):
        return described_victim(part)
    if isinstance(part, Value):
        try:
            return part.to_dict()
        except ThreatError:
            fields = [field.name for field in dataclasses.fields(part) if field.init]  # type: ignore[arg-type]
            return {"type": part.name, **{name: described(getattr(part, name)) for name in fields}}
    if isinstance(part, nn.Module):
        return {"network": type(part).__qualname__, "sha256": digest([part])}
    return text_of_function(part) if callable(part) else describe_settings(part)


def functions_of(threat: ThreatModel) -> list[object]:
    """The functions that a threat is made of, where it has no JSON form that something could be loaded from."""
    return [part for part in (threat.how, threat.when, threat.at) if callable(part) and not isinstance(part, Value)]


def warn_of_unknown(
    folder: str | Path | None,
    victim: Victim | None,
    environment: Environment,
    *functions: object,
    stacklevel: int = 5,
) -> None:
    """Warn where a training is resumed from a folder that cannot tell a victim, or a function, from another.

    Args:
        folder: of the training, or None.
        victim: the agent, or None.
        environment: the environment.
        functions: of the threat.
        stacklevel: of the warning.
    """
    names = [] if folder is None or not Path(folder).is_dir() else [path.name for path in Path(folder).iterdir()]
    is_known = (victim is None or victim.is_known) and environment.is_known and all(map(is_named, functions))
    if any(not name.startswith(".") for name in names) and not is_known:
        warnings.warn(
            f"the training in {folder} is resumed, though it cannot tell a victim that is a function, or an "
            "environment that a lambda, a method or a partial makes, from another: give another folder where they have "
            "changed",
            RuntimeWarning,
            stacklevel=stacklevel,
        )


def describe_settings(value: Any) -> Any:
    """Settings in JSON: values as such, classes and functions by their names, others by the names of their classes."""
    if isinstance(value, PLAIN):
        return value
    if isinstance(value, Value):
        return value.to_dict()
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return {str(key): describe_settings(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [describe_settings(part) for part in value]
    # anything else by where it is defined
    named = value if hasattr(value, "__qualname__") else type(value)
    return f"{named.__module__}.{named.__qualname__}"


def read_record(folder: Path) -> list[Info]:
    """The record of the training in a folder: a row a checkpoint, each with ``steps`` and its figures.

    Raises:
        CardError: for a folder without a training.
    """
    return list(_read_state(folder / STATE)["record"])


def _read_state(path: Path) -> Info:
    """What ``state.json`` says; raises :class:`CardError` for one that is missing, damaged or of something else."""
    data = read_json(path)
    with decoding(f"{path} as the state of a training"):
        found = {
            "record": [],
            "best": -1,
            "checkpoint": None,
            "result": {},
            "finished": False,
            "format": _FORMAT,
            **data,
        }
        # values of the right kind, whose numbers point at what is there
        if found["format"] != _FORMAT or found["kind"] not in _WORDS:
            raise CardError(
                f"expected a training in format {_FORMAT}, got {found['kind']!r:.80}, {found['format']!r:.80}"
            )
        found["about"], found["result"] = dict(found["about"]), dict(found["result"])
        record = found["record"] = [*map(dict, found["record"])]
        if found["checkpoint"] is not None:
            found["checkpoint"] = f"{_CHECKPOINT}{int(record[-1]['steps'])}"
        if found["best"] != -1:
            int(record[found["best"]]["steps"])
        return found


class TrainingFolder:
    """What a training keeps, in a folder, from which the same call goes on; or, without one, in memory alone.

    A folder has the same layout for every kind of training:

    - ``state.json``: what was asked (``about``), a row a checkpoint (``record``), which one is the ``best`` so far, the
      name of the last (``checkpoint``), and what was found beside checkpoints (``result``);
    - ``checkpoint-STEPS``: the last checkpoint, and the best one;
    - ``card.json`` and ``weights.safetensors``, maybe in folders of their own: copies of those of the best checkpoint;
    - whatever else the training has made (:meth:`keep`).

    A checkpoint is written to a folder under another name, which is moved into its place at once when its row is known.
    Then ``state.json`` names it, and only then are the cards copied and the checkpoints before it removed: a training
    that is killed at any moment goes on from a complete checkpoint. Everything is read as data, no code in it runs. One
    process has a folder at a time: functions with ``out=`` are :func:`adv_wrappers.utils.files.holding` it.

    Args:
        out: the folder, which need not be there yet; or None.
        kind: what is trained, or measured.
        about: what was asked, whatever distinguishes one training from another: values that JSON knows.

    Attributes:
        about: what was asked.
        record: a row a checkpoint, oldest first: its ``steps`` (of a model of the dynamics: epochs), and its figures.
        best: the index of the best row of the record; -1 where none is.
        result: what was found, beside the checkpoints.
        finished: whether there is nothing left to do.

    Raises:
        ValueRangeError: for a folder of another training, naming what differs, and of something else; for values that
            JSON cannot hold.
        CardError: for a folder that cannot be read.
    """

    def __init__(self, out: str | Path | None, kind: TrainingKind, about: Mapping[str, object]) -> None:
        self.out = None if out is None else Path(out)
        self.kind = kind
        self.best = -1
        self.finished = False
        self.about: Info = dict(about)
        self.record: list[Info] = []
        self.result: Info = {}
        self._last: str | None = None  # the name of the last checkpoint
        if self.out is None:
            return
        # a new training, or the same one, which goes on
        self.about = json_form("a folder", about)
        if not (self.out / STATE).exists():
            _check_nothing_else(self.out)
            return
        found = _read_state(self.out / STATE)
        if found["kind"] != kind:
            raise ValueRangeError(
                f"{self.out} holds the {_WORDS[found['kind']]}, and not the {_WORDS[kind]}: give another out="
            )
        check_same(self.out, found["about"], self.about, _WORDS[kind].split()[0])
        # what an interrupted process has left is made whole
        self.record = found["record"]
        self.best = found["best"]
        self.result = found["result"]
        self._last, self.finished = found["checkpoint"], found["finished"]
        if self.checkpoint is not None and not self.checkpoint.is_dir():
            raise CardError(f"{self.out / STATE} names {self._last}, which is not there")
        self._remove_old()
        self._copy_cards()

    @classmethod
    def of(
        cls,
        out: str | Path | None,
        kind: TrainingKind,
        environment: Environment,
        victim: Victim,
        **about: object,
    ) -> TrainingFolder:
        """The folder of a training in an environment, with a victim; what else was asked are sections of its own."""
        warn_of_unknown(out, victim, environment, stacklevel=6)
        known = {"environment": environment.described, "victim": described_victim(victim)}
        return cls(out, kind, {**known, **about})

    def card(self, name: str, **sections: object) -> Section:
        """The card of a network that was learned: what was asked, what is given here, and by which versions."""
        return {"name": name, **self.about, **sections, "versions": versions(), "git": revision()}

    @property
    def best_row(self) -> Info | None:
        """The best row of the record, or None."""
        return None if self.best < 0 else self.record[self.best]

    @property
    def checkpoint(self) -> Path | None:
        """The folder of the last checkpoint, from which the training goes on; None where there is none."""
        return None if self.out is None or self._last is None else self.out / self._last

    def keep(self, name: str, data: bytes) -> None:
        """Write a file of the training's own, which is known by its name; nothing without a folder."""
        if self.out is None:
            return
        if not (self.out / STATE).exists():
            self._write()  # first: what is in the folder belongs to this training
        write(self.out / name, data)

    def begin_checkpoint(self, steps: int) -> Path | None:
        """A new folder for what a checkpoint consists of until :meth:`add`; None without a folder."""
        if self.out is None:
            return None
        part = self.out / f"{_PART}{steps}"
        shutil.rmtree(part, ignore_errors=True)
        make_folder(part)
        return part

    def add(self, row: Info, checkpoint: Path | None = None, best: bool = False) -> None:
        """Add a row to the record, and its checkpoint.

        Args:
            row: its figures, with ``steps``.
            checkpoint: what :meth:`begin_checkpoint` returned, or None.
            best: whether it is the best so far.
        """
        self.record.append(row)
        if best:
            self.best = len(self.record) - 1
        # the checkpoint first, then the state that names it, and only then what it replaces goes
        if self.out is not None and checkpoint is not None:
            self._last = f"{_CHECKPOINT}{row['steps']}"
            place = self.out / self._last
            shutil.rmtree(place, ignore_errors=True)  # of a training that was killed before state.json named it
            rename_file(checkpoint, place)
        self.save_result()
        if checkpoint is not None:
            self._remove_old()
        if best:
            self._copy_cards()

    def save_result(self, **result: Any) -> None:
        """Keep what was found, beside what is there of it."""
        self.result |= result
        if self.out is not None:
            self._write()

    def finish(self, **result: Any) -> None:
        """Keep the result of a training with nothing left to do, and remove what it would go on from."""
        self.finished, self._last = True, None
        self.save_result(**result)
        self._remove_old()

    def remove_parts(self) -> None:
        """Remove what trainings that ended early left of checkpoints that were not complete."""
        for part in [] if self.out is None else self.out.glob(f"{_PART}*"):
            shutil.rmtree(part, ignore_errors=True)

    def _write(self) -> None:
        assert self.out is not None
        names = ("kind", "about", "record", "best", "result", "finished")
        state = {name: getattr(self, name) for name in names} | {"checkpoint": self._last, "format": _FORMAT}
        write_json(self.out / STATE, state)

    def _place_of_best(self) -> Path | None:
        row = self.best_row
        return None if self.out is None or row is None or self.finished else self.out / f"{_CHECKPOINT}{row['steps']}"

    def _remove_old(self) -> None:
        """Remove all checkpoints but the last and the best one."""
        for old in [] if self.out is None else [*self.out.glob(f"{_CHECKPOINT}*")]:
            if old not in (self.checkpoint, self._place_of_best()):
                shutil.rmtree(old, ignore_errors=True)

    def _copy_cards(self) -> None:
        """Copy the cards of the best checkpoint to the folder itself."""
        place = self._place_of_best()
        for name in _CARD if place is not None else ():
            assert place is not None and self.out is not None
            for path in sorted(place.rglob(name)):
                write(self.out / path.relative_to(place), path.read_bytes())


def _check_nothing_else(folder: Path) -> None:
    """Raise :class:`ValueRangeError` for a folder with a card or a report that a training would write over."""
    path = next((path for path in (folder / "card.json", folder / "report.json") if path.exists()), None)
    if path is None:
        return
    role = None
    with contextlib.suppress(CardError):
        role = role_of(read_json(path))
    what = "" if role is None else f" (the card of a {role})"
    raise ValueRangeError(
        f"{path}{what} belongs to something else, which a training would write over: give another out="
    )


def check_chosen_folder(folder: Path, record: str, what: str) -> None:
    """Raise unless the strongest of several trainings may be written to a folder.

    Args:
        folder: the folder, which need not be there.
        record: the entry of its card that says what was chosen from.
        what: it holds, in words: "the strongest of several critics".

    Raises:
        CardError: for a card that cannot be read.
        ValueRangeError: for a folder with a single training, or with something else.
    """
    path = folder / "card.json"
    other = path.exists() and record not in read_json(path)
    if other or (folder / STATE).exists():
        raise ValueRangeError(f"{folder} holds something else than {what}: give another out=")


def write_tensors(folder: Path, state: Mapping[str, object]) -> None:
    """Write a state to the folder of a checkpoint: a tree of tensors, numbers and texts, as PyTorch's state_dict."""
    tensors: dict[str, Tensor] = {}
    about = json.dumps(_packed(state, tensors))
    write(folder / TENSORS, save(tensors, {"state": about}))


def read_tensors(folder: Path) -> dict[str, Any]:
    """The state that :func:`write_tensors` wrote, in which tuples have become lists.

    Raises:
        CardError: for a file that is missing or cannot be read.
    """
    path = folder / TENSORS
    with decoding(path), safe_open(path, "pt") as file:
        # copies: what is read is memory of the file itself
        tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 - no dictionary
        return dict(_unpacked(json.loads(file.metadata()["state"]), tensors))


def _packed(tree: Any, tensors: dict[str, Tensor]) -> Any:
    """A tree as JSON, whose tensors are named there; keys of dictionaries stay integers, as optimizers have them."""
    if isinstance(tree, Tensor):
        name = str(len(tensors))
        tensors[name] = tree.detach().cpu().contiguous().clone()
        return {"tensor": name}
    if isinstance(tree, Mapping):
        return {"items": [[key, _packed(value, tensors)] for key, value in tree.items()]}
    return [_packed(part, tensors) for part in tree] if isinstance(tree, (list, tuple)) else tree


def _unpacked(tree: Any, tensors: Mapping[str, Tensor]) -> Any:
    if isinstance(tree, list):
        return [_unpacked(part, tensors) for part in tree]
    if not isinstance(tree, dict):
        return tree
    return tensors[tree["tensor"]] if "tensor" in tree else {k: _unpacked(v, tensors) for k, v in tree["items"]}
