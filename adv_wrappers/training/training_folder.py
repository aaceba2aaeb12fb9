"""The folder of a training: whether it holds the same training, another one, or something else; what identifies one."""

from __future__ import annotations

import dataclasses
import json
import shutil
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.core.types import JSON, Info
from adv_wrappers.core.values import Value
from adv_wrappers.errors import CardError, ThreatError, ValueRangeError
from adv_wrappers.evaluation.environments import Environment, is_named, text_of_function
from adv_wrappers.evaluation.episodes import MOST_ENVS, MOST_EPISODES
from adv_wrappers.networks.card import digest
from adv_wrappers.utils.files import make_folder
from adv_wrappers.utils.numbers import check_integer, integer
from adv_wrappers.victims.dynamics import MOST_NETWORKS
from adv_wrappers.victims.victim import Victim

MOST_SEED = 2**32 - 2**16
MOST_TRAINING_STEPS = 10**12
# of counts that an argument gives; what has no entry is counted in steps
_MOST = {
    "num_envs": MOST_ENVS,
    "episodes": MOST_EPISODES,
    "check_episodes": MOST_EPISODES,
    "epochs": 10**6,
    "ensemble": MOST_NETWORKS,
}
SHOWN = 4  # differences that an error names
_PART = ".part."  # begins the names of folders of checkpoints that are not complete
_PLAIN = (bool, int, float, str, type(None))


def check_seed(seed: object) -> int:
    """A seed; raises :class:`ValueRangeError` unless Stable-Baselines3 can seed NumPy's own generator with it."""
    return integer("seed", seed, 0, MOST_SEED)


def check_counts(**counts: object) -> None:
    """Raise :class:`ValueRangeError` unless these, by the names of arguments, are integers of Python's own from 1 on.

    Beyond what any training takes they are refused as well: it would overflow, or never begin.
    """
    for name, value in counts.items():
        check_integer(name, value, 1, _MOST.get(name, MOST_TRAINING_STEPS))


def later_seed(seed: int, steps: int) -> int:
    """The seed of a training that is resumed after so many steps: other draws and episodes than at the beginning."""
    return (seed + steps) % (MOST_SEED + 1)


def check_same(
    folder: Path, found: Mapping[str, object], expected: Mapping[str, object], what: str = "training"
) -> None:
    """Raise :class:`ValueRangeError`, naming what differs, unless two descriptions are equal as JSON.

    Args:
        folder: where the first was found.
        found: the description in the folder.
        expected: the description of the present call.
        what: what is described, for the message.
    """
    theirs, own = (dict(_leaves("", json.loads(json.dumps(part)))) for part in (found, expected))
    apart = sorted(key for key in {*theirs, *own} if theirs.get(key) != own.get(key))
    if apart:
        said = ", ".join(f"{key} {theirs.get(key)!r:.60} and not {own.get(key)!r:.60}" for key in apart[:SHOWN])
        said += f" and {len(apart) - SHOWN} more" if len(apart) > SHOWN else ""
        raise ValueRangeError(f"{folder} holds another {what}, with {said}: give another folder, or what it has")


def described_victim(victim: Victim) -> dict[str, str | None]:
    """A victim as folders know it: ``ref``, ``sha256`` of its weights, ``structure`` and ``select``."""
    hashes = {"sha256": victim.fingerprint(), "structure": victim.structure()}
    return {"ref": victim.ref, **hashes, "select": victim.select}


def described(part: object) -> JSON:
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
    folder: str | Path | None, victim: Victim | None, environment: Environment, *functions: object
) -> None:
    """Warn where a training is resumed from a folder that cannot tell a victim, or a function, from another.

    Args:
        folder: of the training, or None.
        victim: the agent, or None.
        environment: the environment.
        functions: of the threat.
    """
    names = [] if folder is None or not Path(folder).is_dir() else [path.name for path in Path(folder).iterdir()]
    is_known = (victim is None or victim.is_known) and environment.is_known and all(map(is_named, functions))
    if any(not name.startswith(".") for name in names) and not is_known:
        warnings.warn(
            f"the training in {folder} is resumed, though it cannot tell a victim that is a function, or an "
            "environment that a lambda, a method or a partial makes, from another: give another folder where they have "
            "changed",
            RuntimeWarning,
            stacklevel=4,
        )


def check_no_other_card(folder: Path, expected: Mapping[str, object]) -> None:
    """Raise :class:`ValueRangeError` for a folder with a card that this training did not write.

    Args:
        folder: the folder, with or without a card.
        expected: the description of the training.
    """
    path = folder / "card.json"
    if not path.exists():
        return
    try:
        card = json.loads(path.read_text(encoding="utf-8"))
        training = card["training"]
        known = {name: None if "forms" in card else training.get(name) for name in expected}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        known = {}
    if known != json.loads(json.dumps(expected)):
        raise ValueRangeError(f"{path} belongs to something else, which a training would write over: give another out=")


def as_json(about: Mapping[str, object]) -> dict[str, Any]:
    """The description of a training as a JSON file returns it.

    Raises:
        ValueRangeError: for values that JSON cannot hold, NaN and infinity included.
    """
    try:
        return dict(json.loads(json.dumps(about, allow_nan=False)))
    except (TypeError, ValueError) as error:
        refused = [
            name
            for name, value in _leaves("", about)
            if not isinstance(value, (*_PLAIN, list, tuple)) or (isinstance(value, float) and not np.isfinite(value))
        ]
        raise ValueRangeError(f"a folder keeps what JSON can hold, not {', '.join(refused)}: {error}") from error


def describe_settings(value: Any) -> Any:
    """Settings in JSON: values as such, classes and functions by their names, others by the names of their classes."""
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, Value):
        return value.to_dict()
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return {str(key): describe_settings(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [describe_settings(part) for part in value]
    named = value if hasattr(value, "__qualname__") else type(value)
    return f"{named.__module__}.{named.__qualname__}"


def read_record(folder: Path) -> list[dict[str, Any]]:
    """The checkpoints in the folder of a training: each with ``steps`` and the figures of its evaluation.

    Raises:
        CardError: for a folder without a training.
    """
    try:
        record = json.loads((folder / "state.json").read_text(encoding="utf-8"))["record"]
        return [dict(row) for row in record]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CardError(f"cannot read the training in {folder}: {error}") from error


def make_part(folder: Path, steps: int) -> Path:
    """A new folder in that of a training, for what a checkpoint consists of until it is complete."""
    part = folder / f"{_PART}{steps}"
    shutil.rmtree(part, ignore_errors=True)
    make_folder(part)
    return part


def remove_parts(folder: Path) -> None:
    """Remove what trainings that ended early left of checkpoints that were not complete."""
    for part in folder.glob(f"{_PART}*"):
        shutil.rmtree(part, ignore_errors=True)


def _leaves(name: str, tree: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from _leaves(f"{name}.{key}".lstrip("."), value)
    else:
        yield name, tree


def score(row: Info) -> float:
    """What checkpoints of adversaries are compared by, lower is better: return of the victim, and cost of attacks."""
    return float(row["score"] if "score" in row else row["mean_return"])
