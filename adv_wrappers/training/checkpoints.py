"""Checkpoints of trainings: on which episodes they are evaluated, how they are written, and how a training resumes.

Weights are in SB3's own ``.zip``, statistics in JSON. Both are read as data: ``BaseAlgorithm.load`` and
``VecNormalize.load`` would unpickle, which runs any code that a file holds. Settings are therefore not read at all: the
caller makes the model and its normaliser anew, as for a new training, and :func:`restore_model` loads the rest.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.running_mean_std import RunningMeanStd

from adv_wrappers.adversaries.learned import Learned
from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.errors import CardError
from adv_wrappers.training.sb3_agents import save_agent
from adv_wrappers.training.training_folder import as_json, check_no_other_card, check_same, make_part, remove_parts
from adv_wrappers.utils.files import write
from adv_wrappers.utils.numbers import check_integer
from adv_wrappers.victims import Victim, load_card
from adv_wrappers.victims.sb3_zip import stored_tensors

_COUNTS = ("num_timesteps", "_n_updates")


def save_model(model: BaseAlgorithm, weights: Path, statistics: Path) -> None:
    """Write a model and the statistics of its ``VecNormalize``, each file at once or not at all."""
    part = weights.with_name(f"part.{weights.name}")
    model.save(part)
    os.replace(part, weights)
    normal = model.get_vec_normalize_env()
    assert normal is not None
    moments: dict[str, Any] = {"observation": normal.obs_rms if normal.norm_obs else None, "reward": normal.ret_rms}
    about = {
        name: rms and {"mean": np.asarray(rms.mean).tolist(), "var": np.asarray(rms.var).tolist(), "count": rms.count}
        for name, rms in moments.items()
    }
    write(statistics, (json.dumps(about) + "\n").encode())


def restore_model(model: BaseAlgorithm, weights: Path, statistics: Path) -> None:
    """Load into a new model, and the ``VecNormalize`` that it was made on, what :func:`save_model` wrote of another.

    Nothing is unpickled, so a file by somebody else cannot run code.

    Args:
        model: a model of the same algorithm and settings as the saved one.
        weights, statistics: paths of the two files.

    Raises:
        CardError: for files that are missing, damaged, or of a model of other shapes.
    """
    moments = _read_statistics(statistics)
    normal = model.get_vec_normalize_env()
    assert normal is not None
    _load_moments(normal.ret_rms, moments.get("reward"), f"{statistics}: reward")
    if normal.norm_obs:
        _load_moments(normal.obs_rms, moments.get("observation"), f"{statistics}: observation")
    try:
        with zipfile.ZipFile(weights) as archive:
            about = json.loads(archive.read("data"))
            stored = {name: archive.read(f"{name}.pth") for name in model._get_torch_save_params()[0]}
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


def _read_statistics(path: Path) -> dict[str, Any]:
    try:
        moments = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise CardError(f"cannot go on without {path}: give another out=") from error
    except (OSError, ValueError, RecursionError) as error:
        raise CardError(f"cannot read {path}: {error}") from error
    if not isinstance(moments, dict):
        raise CardError(f"{path}: expected a JSON object, got {type(moments).__name__}")
    return moments


def _load_moments(rms: RunningMeanStd | dict[str, RunningMeanStd], moments: Any, where: str) -> None:
    """Load a mean, a variance and a count into running moments of the same shape."""
    assert isinstance(rms, RunningMeanStd)  # a dictionary of them is for Dict spaces, which no training here takes
    try:
        mean, var = (np.asarray(moments[name], np.float64) for name in ("mean", "var"))
        count = float(moments["count"])
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise CardError(f"{where} must hold mean, var and count, numbers: {error}") from error
    shape = np.shape(rms.mean)
    sound = np.isfinite(mean).all() and np.isfinite(var).all() and math.isfinite(count) and count > 0
    if mean.shape != shape or var.shape != shape or not sound:
        raise CardError(f"{where} must be finite, of shape {shape}, got {moments!r:.80}")
    rms.mean, rms.var = (mean, var) if shape else (float(mean), float(var))  # type: ignore[assignment]
    rms.count = count


AgentProgress = Callable[[int, float, "float | None"], None]
AgentAndThreat = tuple[Victim, "ThreatModel | None"]


class AgentCheckpoints:
    """The record of a training, and its folder where it has one.

    A checkpoint is a folder that is written under another name and moved into its place at once, when its score is
    known; then ``state.json`` names it, and folders that it no longer names are removed. So a training that is killed
    at any moment resumes from a complete checkpoint.

    Args:
        out: the folder, or None.
        about: the description that distinguishes this training from others.

    Attributes:
        record: one dictionary a checkpoint.
        best: index of the best checkpoint; -1 before the first.
        resume_from: the folder of the checkpoint to resume from, or None.

    Raises:
        CardError: for a state that cannot be read.
        ValueRangeError: for the folder of another training.
    """

    def __init__(self, out: Path | None, about: dict[str, Any]) -> None:
        self.out, self.about = out, about if out is None else as_json(about)
        self.record: list[dict[str, Any]] = []
        self.best = -1
        self.found: AgentAndThreat | None = None
        self.resume_from: Path | None = None
        if out is None:
            return
        if not (out / "state.json").exists():
            check_no_other_card(out, self.about)
            return
        try:
            state = json.loads((out / "state.json").read_text(encoding="utf-8"))
            theirs, self.record, self.best = dict(state["about"]), list(state["record"]), int(state["best"])
            steps = int(self.record[-1]["steps"])
        except (KeyError, TypeError, IndexError) as error:
            raise CardError(f"{out} holds no training of an agent (no {error}): give another out=") from error
        except (OSError, ValueError) as error:
            raise CardError(f"cannot read {out / 'state.json'}: {error}") from error
        check_same(out, theirs, self.about)
        self.resume_from = self._folder_at(steps)
        if not (self.resume_from / "agent.zip").exists():
            raise CardError(f"{out / 'state.json'} names {self.resume_from.name}, which is not there")
        self._publish()

    def _folder_at(self, steps: int) -> Path:
        assert self.out is not None
        return self.out / f"checkpoint-{steps}"

    def keep(self, steps: int, model: BaseAlgorithm, adversary: BaseAlgorithm | None) -> Path | None:
        """Write the models of the two sides as they are now, for :meth:`add`; the folder, or None without one."""
        if self.out is None:
            return None
        part = make_part(self.out, steps)
        for name, side in (("", model), ("adversary", adversary)):
            if side is not None:
                save_model(side, part / f"{name or 'agent'}.zip", part / f"{name}{name and '-'}normaliser.json")
        return part

    def add(self, row: dict[str, Any], found: AgentAndThreat, part: Path | None) -> None:
        """Add a checkpoint; it is the best if it is ``late`` and no other has a higher score.

        Args:
            row: its figures.
            found: the agent, and the threat that it was evaluated under.
            part: what :meth:`keep` returned.
        """
        self.record.append(row)
        if row["late"] and (self.best < 0 or row["score"] >= self.record[self.best]["score"]):
            self.best, self.found = len(self.record) - 1, found
        if part is not None:
            self._write(row["steps"], part, found if self.best == len(self.record) - 1 else None)

    def _write(self, steps: int, part: Path, best: AgentAndThreat | None) -> None:
        assert self.out is not None
        if best is not None:
            agent, threat = best
            environment = self.about["environment"]
            save_agent(
                part,
                agent,
                (environment["id"], environment["kwargs"]),
                training={**self.about, "checkpoints": self.record},
            )
            learns = (part / "adversary.zip").exists()
            if learns and threat is not None and isinstance(threat.how, Learned):
                threat.how.save(part / "adversary", threat.budget, {**self.about, "steps": steps})
        shutil.rmtree(self._folder_at(steps), ignore_errors=True)
        os.replace(part, self._folder_at(steps))
        state = {"about": self.about, "best": self.best, "record": self.record}
        write(self.out / "state.json", (json.dumps(state, indent=1) + "\n").encode())
        named = {steps} | ({self.record[self.best]["steps"]} if self.best >= 0 else set())
        for old in self.out.glob("checkpoint-*"):
            if old not in [self._folder_at(number) for number in named]:
                shutil.rmtree(old, ignore_errors=True)
        if best is not None:
            self._publish()

    def _publish(self) -> None:
        """Copy the cards of the best agent and of its adversary from their checkpoint to the folder itself."""
        if self.best < 0 or self.out is None:
            return
        checkpoint = self._folder_at(self.record[self.best]["steps"])
        for folder in ("", "adversary"):
            for name in ("weights.safetensors", "card.json"):
                if (checkpoint / folder / name).exists():
                    write(self.out / folder / name, (checkpoint / folder / name).read_bytes())

    def remove_unscored(self) -> None:
        """Remove what is kept of checkpoints without a score."""
        if self.out is not None:
            remove_parts(self.out)

    def finish(self, threat: ThreatModel | None) -> AgentAndThreat:
        """The best agent and the threat that it was evaluated under, loaded from their cards where there is a folder.

        Args:
            threat: the threat of the last checkpoint; an adversary that learned is replaced by that of the best one.
        """
        if self.out is None:
            assert self.found is not None
            return self.found
        learned = self.out / "adversary"
        if threat is not None and isinstance(threat.how, Learned) and (learned / "card.json").exists():
            threat = replace(threat, how=Learned(card=str(learned)))
        return load_card(self.out), threat
