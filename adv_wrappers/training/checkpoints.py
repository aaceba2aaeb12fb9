"""Checkpoints of trainings: on which episodes they are evaluated, how they are written, and how a training resumes.

Weights are in SB3's own ``.zip``, statistics in JSON. Both are read as data: ``BaseAlgorithm.load`` and
``VecNormalize.load`` would unpickle, which runs any code that a file holds. Settings are therefore not read at all: the
caller makes the model and its normaliser anew, as for a new training, and :func:`restore_model` loads the rest.
"""

from __future__ import annotations

import json
import math
import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.running_mean_std import RunningMeanStd

from adv_wrappers.adversaries.learned import Learned
from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.core.types import Info
from adv_wrappers.errors import CardError
from adv_wrappers.evaluation.report import number_text
from adv_wrappers.training.folder import TrainingFolder
from adv_wrappers.training.sb3_conversion import save_agent
from adv_wrappers.utils.checks import integer
from adv_wrappers.utils.files import write
from adv_wrappers.utils.reading import decoding, members, read_bytes, read_json
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

    Nothing is unpickled, so a file by somebody else cannot run code. The files hold no replay buffer: an off-policy
    model fills its own first, by ``learning_starts`` steps.

    Args:
        model: a model of the same algorithm and settings as the saved one.
        weights, statistics: paths of the two files.

    Raises:
        CardError: for files that are missing, damaged, or of a model of other shapes.
    """
    moments = read_json(statistics)
    normal = model.get_vec_normalize_env()
    assert normal is not None
    with decoding(statistics):
        _load_moments(normal.ret_rms, moments["reward"])
        if normal.norm_obs:
            _load_moments(normal.obs_rms, moments["observation"])
    parts = ["data", *(f"{name}.pth" for name in model._get_torch_save_params()[0])]
    stored = members(read_bytes(weights), weights, parts)
    with decoding(weights):
        about = json.loads(stored.pop("data"))
        counts = {name: integer(name, about[name], 0) for name in _COUNTS}
        found = {name.removesuffix(".pth"): stored_tensors(data, name) for name, data in stored.items()}
        model.set_parameters(found, exact_match=True, device=model.device)
    for name, count in counts.items():
        setattr(model, name, count)
    if isinstance(model, OffPolicyAlgorithm):  # it plays so many steps before it learns on
        model.learning_starts += model.num_timesteps


def _load_moments(rms: RunningMeanStd | dict[str, RunningMeanStd], moments: Any) -> None:
    """Load a mean, a variance and a count into running moments of the same shape."""
    assert isinstance(rms, RunningMeanStd)  # a dictionary of them is for Dict spaces, which no training here takes
    mean, var = (np.asarray(moments[name], np.float64) for name in ("mean", "var"))
    count, shape = float(moments["count"]), np.shape(rms.mean)
    sound = np.isfinite(mean).all() and np.isfinite(var).all() and math.isfinite(count) and count > 0
    if mean.shape != shape or var.shape != shape or not sound:
        raise CardError(f"expected a finite mean, var and count, of shape {shape}, got {moments!r:.80}")
    rms.mean, rms.var = (mean, var) if shape else (float(mean), float(var))  # type: ignore[assignment]
    rms.count = count


AgentProgress = Callable[[int, float, "float | None"], None]
_NAMES = {"attacked": "the attack", "gwc": "the greedy worst case"}  # of returns in a record
AgentAndThreat = tuple[Victim, "ThreatModel | None"]


class AgentCheckpoints:
    """The checkpoints of an agent's training: which is the best.

    Args:
        folder: what is kept.
        tried: by what the agent that the training began with was hardened, for the card.

    Attributes:
        began_with: of that agent the ``ref`` and the ``clean`` mean return in the episodes of the checkpoints; empty
            for a new one.
    """

    def __init__(self, folder: TrainingFolder, tried: Sequence[str] = ()) -> None:
        self.folder, self._tried = folder, [*tried]
        self.began_with: Info = folder.result.get("began_with", {})
        self.found: AgentAndThreat | None = None  # the best so far

    def begin(self, steps: int, model: BaseAlgorithm, adversary: BaseAlgorithm | None) -> Path | None:
        """Write the models of the two sides as they are now, for :meth:`add`; the folder, or None without one."""
        part = self.folder.begin_checkpoint(steps)
        if part is not None:
            for name, side in (("", model), ("adversary", adversary)):
                if side is not None:
                    save_model(side, part / f"{name or 'agent'}.zip", part / f"{name}{name and '-'}normaliser.json")
        return part

    def add(self, row: Info, found: AgentAndThreat, part: Path | None) -> None:
        """Add a checkpoint; it is the best if it is ``late`` and no other has a higher score.

        Two of which all is lost are compared by what they keep under MaxDiff in shares of the budget (``max_diff``).

        Args:
            row: its figures.
            found: the agent, and the threat that it was evaluated under.
            part: what :meth:`begin` returned.
        """
        best, about = self.folder.best_row, self.folder.about
        key = "max_diff_score" if best is not None and "max_diff" in row and "max_diff" in best else "score"
        is_best = row["late"] and (best is None or row[key] >= best[key])
        if is_best:
            self.found = found
            if part is not None:
                agent, threat = found
                environment = about["environment"]["id"], about["environment"]["kwargs"]
                known = {**about, "tried": self._tried, "began_with": self.began_with}
                known["checkpoints"] = [*self.folder.record, row]
                save_agent(part, agent, environment, training=known)
                learns = (part / "adversary.zip").exists()
                if learns and threat is not None and isinstance(threat.how, Learned):
                    threat.how.save(part / "adversary", threat.budget, {**about, "steps": row["steps"]})
        self.folder.add(row, part, is_best, began_with=self.began_with)

    def finish(self, threat: ThreatModel | None) -> AgentAndThreat:
        """The best agent and the threat that it was evaluated under, loaded from their cards where there is a folder.

        Args:
            threat: the threat of the last checkpoint; an adversary that learned is replaced by that of the best one.
        """
        self._warn_of_one_score()
        out = self.folder.out
        if out is None:
            assert self.found is not None
            return self.found
        learned = out / "adversary"
        if threat is not None and isinstance(threat.how, Learned) and (learned / "card.json").exists():
            threat = replace(threat, how=Learned(card=str(learned)))
        return load_card(out), threat

    def _warn_of_one_score(self) -> None:
        """Warn where the attacks of the training's own budget told no two checkpoints apart."""
        late = [row for row in self.folder.record if row["late"]]
        if len(late) < 2 or not all("max_diff" in row for row in late):
            return
        name = "attacked" if late[-1].get("gwc") is None else "gwc"
        low, high = (number_text(edge(row[name] for row in late)) for edge in (min, max))
        left, shares = low if low == high else f"{low} to {high}", " and ".join(late[-1]["max_diff"])
        warnings.warn(
            f"{_NAMES[name]} leaves {left} at each of the {len(late)} checkpoints that are compared, and so tells none "
            "from another: they were chosen by their clean return and what they keep under MaxDiff at "
            f"{shares} of the budget; a smaller eps may leave more to learn from",
            UserWarning,
            stacklevel=7,
        )
