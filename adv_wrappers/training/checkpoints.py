"""What a training goes on from: a model's weights, optimiser and step counts, and the statistics of its normaliser.

Weights are in SB3's own ``.zip``, statistics in JSON. Both are read as data: ``BaseAlgorithm.load`` and
``VecNormalize.load`` would unpickle, which runs whatever code a file holds. Settings are therefore not read at all: the
caller makes the model and its normaliser anew, as for a training that begins, and :func:`restore` fills them in.

Whether a folder holds what a caller means to go on with, and what tells the two apart.

What is kept of a training of two sides: checkpoints, the record, the best agent as a card.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from adv_wrappers.adversaries.learned import Learned
from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.errors import CardError, ValueRangeError
from adv_wrappers.training.sb3_agents import save_agent
from adv_wrappers.utils.files import write
from adv_wrappers.utils.numbers import check_integer, integer
from adv_wrappers.victims import Victim, load_card
from adv_wrappers.victims.sb3_zip import stored_tensors

_COUNTS = ("num_timesteps", "_n_updates")


def keep(model: Any, weights: Path, statistics: Path) -> None:
    """Write a model and the statistics of its ``VecNormalize``, each file at once or not at all."""
    beside = weights.with_name(f"part.{weights.name}")
    model.save(beside)
    os.replace(beside, weights)
    normal = model.get_vec_normalize_env()
    moments = {"observation": normal.obs_rms if normal.norm_obs else None, "reward": normal.ret_rms}
    about = {
        name: rms and {"mean": np.asarray(rms.mean).tolist(), "var": np.asarray(rms.var).tolist(), "count": rms.count}
        for name, rms in moments.items()
    }
    write(statistics, (json.dumps(about) + "\n").encode())


def restore(model: Any, weights: Path, statistics: Path) -> None:
    """Fill a new model, and the ``VecNormalize`` that it was made on, with what :func:`keep` wrote of another.

    Nothing is unpickled, so a file by somebody else cannot run code.

    Args:
        model: of the same algorithm and settings as the one that was kept.
        weights, statistics: the two files.

    Raises:
        CardError: for files that are missing, damaged, or of a model of other shapes.
    """
    moments = _statistics(statistics)
    normal = model.get_vec_normalize_env()
    _fill(normal.ret_rms, moments.get("reward"), f"{statistics}: reward")
    if normal.norm_obs:
        _fill(normal.obs_rms, moments.get("observation"), f"{statistics}: observation")
    try:
        with zipfile.ZipFile(weights) as archive:
            about = json.loads(archive.read("data"))
            stored = {name: archive.read(f"{name}.pth") for name in ("policy", "policy.optimizer")}
        counts = {name: about[name] for name in _COUNTS}
    except (OSError, KeyError, ValueError, TypeError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise CardError(f"cannot read {weights} as a model of Stable-Baselines3: {error}") from error
    for name, count in counts.items():
        check_integer(f"{weights}: {name}", count, 0, error=CardError)
    try:
        found = {name: stored_tensors(data, f"{weights}: {name}.pth") for name, data in stored.items()}
        model.set_parameters(found, exact_match=True, device=model.device)
    except (RuntimeError, KeyError, ValueError, TypeError, AttributeError) as error:
        if isinstance(error, CardError):
            raise
        raise CardError(f"{weights} holds a model of other shapes: {error}") from error
    for name, count in counts.items():
        setattr(model, name, count)


def _statistics(path: Path) -> dict[str, Any]:
    try:
        moments = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        if path.with_suffix(".pkl").exists():
            raise CardError(
                f"{path.with_suffix('.pkl')} is a pickle, as earlier versions wrote them: reading it would run code, "
                f"so this training cannot go on. Its best checkpoint is in {path.parent} as ever; give another out="
            ) from error
        raise CardError(f"cannot go on without {path}: give another out=") from error
    except (OSError, ValueError, RecursionError) as error:
        raise CardError(f"cannot read {path}: {error}") from error
    if not isinstance(moments, dict):
        raise CardError(f"{path}: expected a JSON object, got {type(moments).__name__}")
    return moments


def _fill(rms: Any, moments: Any, where: str) -> None:
    """Put a mean, a variance and a count into running moments of the same shape."""
    try:
        mean, var = (np.asarray(moments[name], np.float64) for name in ("mean", "var"))
        count = float(moments["count"])
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise CardError(f"{where} must hold mean, var and count, numbers: {error}") from error
    shape = np.shape(rms.mean)
    sound = np.isfinite(mean).all() and np.isfinite(var).all() and math.isfinite(count) and count > 0
    if mean.shape != shape or var.shape != shape or not sound:
        raise CardError(f"{where} must be finite, of shape {shape}, got {moments!r:.80}")
    rms.mean, rms.var, rms.count = (mean, var, count) if shape else (float(mean), float(var), count)


MOST_SEED = 2**32 - 2**16
SHOWN = 4  # differences
_PLAIN = (bool, int, float, str, type(None))


def check_seed(seed: Any) -> None:
    """Raise :class:`ValueRangeError` unless Stable-Baselines3 can seed NumPy's own generator with it."""
    integer("seed", seed, 0, MOST_SEED)


def refuse_another(folder: Path, found: Mapping[str, Any], mine: Mapping[str, Any], what: str = "training") -> None:
    """Raise :class:`ValueRangeError`, naming what differs, unless the two are the same as JSON."""
    theirs, own = (dict(_leaves("", json.loads(json.dumps(part)))) for part in (found, mine))
    apart = sorted(key for key in {*theirs, *own} if theirs.get(key) != own.get(key))
    if apart:
        said = ", ".join(f"{key} {theirs.get(key)!r:.60} and not {own.get(key)!r:.60}" for key in apart[:SHOWN])
        said += f" and {len(apart) - SHOWN} more" if len(apart) > SHOWN else ""
        raise ValueRangeError(f"{folder} holds another {what}, with {said}: give another folder, or what it has")


def plain(about: Mapping[str, Any]) -> dict[str, Any]:
    """What tells a training from another as JSON gives it back; :class:`ValueRangeError` for what JSON cannot hold."""
    try:
        return dict(json.loads(json.dumps(about)))
    except (TypeError, ValueError) as error:
        held = [name for name, value in _leaves("", about) if not isinstance(value, (*_PLAIN, list, tuple))]
        raise ValueRangeError(f"a folder keeps what JSON can hold, not {', '.join(held)}: {error}") from error


def refuse_card(folder: Path, mine: Mapping[str, Any]) -> None:
    """Raise :class:`ValueRangeError` for a folder whose card was not begun by the training ``mine``."""
    path = folder / "card.json"
    if not path.exists():
        return
    try:
        card = json.loads(path.read_text(encoding="utf-8"))
        training = card["training"]
        known = {name: training.get(name) for name in mine}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        known = {}
    if known != json.loads(json.dumps(mine)):
        raise ValueRangeError(f"{path} belongs to something else, which a training would write over: give another out=")


def in_words(value: Any) -> Any:
    """Settings as JSON holds them: classes and functions by their names, other objects by their classes'."""
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return {str(key): in_words(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [in_words(part) for part in value]
    named = value if hasattr(value, "__qualname__") else type(value)
    return f"{named.__module__}.{named.__qualname__}"


def _leaves(name: str, tree: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from _leaves(f"{name}.{key}".lstrip("."), value)
    else:
        yield name, tree


Progress = Callable[[int, float, "float | None"], None]
Found = tuple[Victim, "ThreatModel | None"]


class Keeper:
    """The record of a training, and its folder where it has one.

    A checkpoint is a folder that is written beside and moved into its place at once; then ``state.json`` names it, and
    what it no longer names is removed. So a training that is killed at any moment goes on from a whole checkpoint.

    Args:
        out: the folder, or None.
        about: what tells this training from another.
        environment: its id and keyword arguments, for cards.

    Raises:
        CardError: for a state that cannot be read.
        ValueRangeError: for the folder of another training.
    """

    def __init__(
        self, out: Path | None, about: dict[str, Any], environment: tuple[str, Mapping[str, Any]]
    ) -> None:  # fmt: skip
        self.out, self.about, self.environment = out, about if out is None else plain(about), environment
        self.record: list[dict[str, Any]] = []
        self.best = -1  # of the record; -1 before the first
        self.found: Found | None = None
        self.place: Path | None = None  # the checkpoint to go on from
        if out is None:
            return
        if not (out / "state.json").exists():
            refuse_card(out, self.about)
            return
        try:
            state = json.loads((out / "state.json").read_text(encoding="utf-8"))
            theirs, self.record, self.best = dict(state["about"]), list(state["record"]), int(state["best"])
            steps = int(self.record[-1]["steps"])
        except (KeyError, TypeError, IndexError) as error:
            raise CardError(f"{out} holds no training of an agent (no {error}): give another out=") from error
        except (OSError, ValueError) as error:
            raise CardError(f"cannot read {out / 'state.json'}: {error}") from error
        refuse_another(out, theirs, self.about)
        self.place = self._at(steps)
        if not (self.place / "agent.zip").exists():
            raise CardError(f"{out / 'state.json'} names {self.place.name}, which is not there")
        self._publish()

    def _at(self, steps: int) -> Path:
        assert self.out is not None
        return self.out / f"checkpoint-{steps}"

    def add(self, row: dict[str, Any], found: Found, model: Any, rival: Any) -> None:
        """A checkpoint: kept as the best if it is ``late`` and no other scored more."""
        self.record.append(row)
        if row["late"] and (self.best < 0 or row["score"] >= self.record[self.best]["score"]):
            self.best, self.found = len(self.record) - 1, found
        if self.out is not None:
            self._write(row["steps"], model, rival, found if self.best == len(self.record) - 1 else None)

    def _write(self, steps: int, model: Any, rival: Any, best: Found | None) -> None:
        assert self.out is not None
        part = self.out / f".part.{os.getpid()}"
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        for name, side in (("", model), ("adversary", None if rival is None else rival.model)):
            if side is not None:
                keep(side, part / f"{name or 'agent'}.zip", part / f"{name}{name and '-'}normaliser.json")
        if best is not None:
            agent, threat = best
            save_agent(part, agent, self.environment, training={**self.about, "checkpoints": self.record})
            if rival is not None and threat is not None and isinstance(threat.how, Learned):
                threat.how.save(part / "adversary", threat.budget, {**self.about, "steps": steps})
        shutil.rmtree(self._at(steps), ignore_errors=True)
        os.replace(part, self._at(steps))
        state = {"about": self.about, "best": self.best, "record": self.record}
        write(self.out / "state.json", (json.dumps(state, indent=1) + "\n").encode())
        kept = {steps} | ({self.record[self.best]["steps"]} if self.best >= 0 else set())
        for old in self.out.glob("checkpoint-*"):
            if old not in [self._at(number) for number in kept]:
                shutil.rmtree(old, ignore_errors=True)
        if best is not None:
            self._publish()

    def _publish(self) -> None:
        """The cards of the best agent and of the adversary that it met, from their checkpoint to the folder itself."""
        if self.best < 0 or self.out is None:
            return
        place = self._at(self.record[self.best]["steps"])
        for folder in ("", "adversary"):
            for name in ("weights.safetensors", "card.json"):
                if (place / folder / name).exists():
                    write(self.out / folder / name, (place / folder / name).read_bytes())

    def finish(self, threat: ThreatModel | None) -> Found:
        """The best agent and what it met there, from their cards where there is a folder.

        Args:
            threat: the last one met; where an adversary learned, that of the best takes its place.
        """
        if self.out is None:
            assert self.found is not None
            return self.found
        if threat is not None and isinstance(threat.how, Learned):
            threat = replace(threat, how=Learned(card=str(self.out / "adversary")))
        return load_card(self.out), threat
