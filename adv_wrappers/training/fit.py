"""Trainings by Stable-Baselines3: their checkpoints, how these are written and scored, and how a training goes on.

Weights are in SB3's own ``.zip``, statistics in JSON. Both are read as data: ``BaseAlgorithm.load`` and
``VecNormalize.load`` would unpickle, which runs any code that a file holds. Settings are therefore not read at all: the
caller makes the model and its normaliser anew, as for a new training, and :func:`restore_model` loads the rest.
"""

from __future__ import annotations

import functools
import json
import math
import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.running_mean_std import RunningMeanStd
from stable_baselines3.common.utils import set_random_seed

from adv_wrappers.core.types import Info
from adv_wrappers.errors import CardError
from adv_wrappers.training.folder import TrainingFolder, later_seed
from adv_wrappers.training.sb3.algorithms import Training
from adv_wrappers.training.scoring import Scoring
from adv_wrappers.utils.checks import integer
from adv_wrappers.utils.files import write
from adv_wrappers.utils.reading import decoding, members, read_bytes, read_json
from adv_wrappers.victims.sb3.zip_file import stored_tensors

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
    # weights and the state of the optimizer, which have to be those of such a model
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


def next_multiple(steps: int, every: int) -> int:
    """The first multiple of ``every`` above ``steps``: when it is next time for something.

    >>> next_multiple(199, 100), next_multiple(200, 100)
    (200, 300)
    """
    return (steps // every + 1) * every


def write_at(logger: Logger, values: Mapping[str, float], steps: int, unprinted: Mapping[str, float]) -> None:
    """Write to the outputs of SB3's logger at once: what the algorithm has recorded there waits for its own moment.

    Args:
        logger: the logger.
        values: what is written, by name.
        steps: those of the training that the values are of.
        unprinted: what is written besides, but not in the tables that are printed.
    """
    excluded = {**dict.fromkeys(values, ()), **dict.fromkeys(unprinted, ("stdout",))}
    for output in logger.output_formats:
        output.write({**values, **unprinted}, excluded, steps)


P = TypeVar("P")
R = TypeVar("R")
SavedModel = tuple[BaseAlgorithm, str, str]


class Fit(BaseCallback, Generic[P, R]):
    """A training by an algorithm of Stable-Baselines3, with its checkpoints; a subclass says what of.

    Checkpoints are taken between rollouts, after the update that follows one, so that each is whole. Its episodes are
    played at once, or in another process while the training goes on (:class:`.Scoring`). When its score is known, a
    checkpoint becomes a row of the folder's record, and the best so far is kept as what a training returns.

    Args:
        models: what is trained, and the names of the two files of :func:`save_model`; the first calls this between its
            rollouts. Their weights are those of the folder's last checkpoint, where there is one.
        scoring: plays the episodes that checkpoints are compared on.
        training: how many steps are trained, and checked.
        folder: what is kept.

    Attributes:
        taken: the steps of the last checkpoint, whose score may not be known yet.
        seconds: of the processor, without what checkpoints take, by what is trained.
    """

    log: ClassVar[str]  # the name of the training in SB3's logs

    def __init__(
        self,
        models: Sequence[SavedModel],
        scoring: Scoring[P, R],
        training: Training,
        folder: TrainingFolder,
    ) -> None:
        super().__init__()
        self.models = models
        self.scoring = scoring
        self.training = training
        self.folder = folder
        self.model = models[0][0]
        self.seconds = Counter[str]()
        self.since = time.process_time()
        self.taken = int(folder.record[-1]["steps"]) if folder.record else 0
        self.next = 0  # steps of the next checkpoint
        self._schedule()

    def snapshot(self, row: Info) -> P:
        """What is scored of the present moment; its figures that are known already are added to a row."""
        raise NotImplementedError

    def add_score(self, row: Info, found: R) -> dict[str, float]:
        """Add what was found to the row of a checkpoint; returns what is logged of it."""
        raise NotImplementedError

    def is_best(self, row: Info) -> bool:
        """Whether a checkpoint is better than the best of the record."""
        raise NotImplementedError

    def keep(self, snapshot: P, row: Info, part: Path | None) -> None:
        """Keep the best checkpoint so far, and its card in ``part``, where there is a folder."""
        raise NotImplementedError

    def tell(self, row: Info) -> None:
        """Tell the caller of a new row of the record."""

    def begin(self) -> None:
        """What comes before the first step of a call."""

    def pause(self, checkpoint: bool) -> None:
        """What else is trained between two rollouts, maybe before a checkpoint."""

    @property
    def is_due(self) -> bool:
        """Whether the training pauses before the next rollout."""
        return self.num_steps >= self.next or self.scoring.ready

    @property
    def num_steps(self) -> int:
        """Steps that were trained."""
        return int(self.model.num_timesteps)

    def train(self) -> None:
        """Train what is left of the steps, and score the last of them too."""
        model, steps = self.model, self.training.steps
        if model.num_timesteps:  # other draws and episodes than at the beginning
            later = later_seed(self.training.seed, self.num_steps)
            set_random_seed(later)
            assert model.env is not None
            model.env.seed(later)
        # what is left of the steps, and the scores of the checkpoints that are still being played
        self.init_callback(model)
        try:
            if self.num_steps < steps:
                self.begin()
                model.learn(steps - self.num_steps, self, reset_num_timesteps=False, tb_log_name=self.log)
            if self.taken < self.num_steps:
                self._pause(True)
            self.scoring.deliver(0)
        finally:
            self.folder.remove_parts()
        for each, *_ in self.models:
            if hasattr(each, "_logger"):  # else it has not learned in this call
                each.logger.close()

    def count_seconds(self, of: str) -> None:
        """Add the time since the last count to what something took."""
        now = time.process_time()
        self.seconds[of] += now - self.since  # type: ignore[assignment]
        self.since = now

    def _schedule(self) -> None:
        self.next = next_multiple(self.num_steps, self.training.checkpoint_every)

    def _on_training_start(self) -> None:
        self.since = time.process_time()

    def _on_step(self) -> bool:
        return True

    def _on_rollout_start(self) -> None:
        if self.is_due:
            self._pause(self.num_steps >= self.next)

    def _pause(self, checkpoint: bool) -> None:
        self.count_seconds(self.log)
        self.scoring.deliver()
        self.pause(checkpoint)
        self._schedule()
        if checkpoint:
            self._checkpoint()
        self.since = time.process_time()

    def _checkpoint(self) -> None:
        self.taken = self.num_steps
        recent = [episode["r"] for episode in self.model.ep_info_buffer or ()]
        row: Info = {"steps": self.taken, "in_training": float(np.mean(recent)) if recent else None}
        part = self.folder.begin_checkpoint(self.taken)
        for model, weights, statistics in self.models if part is not None else ():
            assert part is not None
            save_model(model, part / weights, part / statistics)
        snapshot = self.snapshot(row)
        self.scoring.submit(snapshot, functools.partial(self._add, row, snapshot, part))

    def _add(self, row: Info, snapshot: P, part: Path | None, found: R) -> None:
        """Add a checkpoint to the record, now that its score is known."""
        self._log(row["steps"], self.add_score(row, found))
        best = self.is_best(row)
        if best:
            self.keep(snapshot, row, part)
        self.folder.add(row, part, best)
        self.tell(row)

    def _log(self, steps: int, values: Mapping[str, float]) -> None:
        """Enter what a checkpoint measured in the logs, at the steps that it was taken at."""
        if not hasattr(self.model, "_logger"):  # a training that was complete when it was resumed has none
            return
        if self.num_steps == steps:
            for name, value in values.items():
                self.model.logger.record(name, value)
        else:
            write_at(self.model.logger, values, steps, {})
