"""Perturbed observations that were found beforehand, step by step of known episodes, as an ordinary perturbation.

A search over whole episodes (:mod:`adv_wrappers.evaluation.beam`) finds which observations to show to a victim. Played
by the layers that every attack goes through, they are projected onto the budget and measured as any other attack is.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from adv_wrappers.core import rng
from adv_wrappers.core.context import EPISODE_STREAM, Context
from adv_wrappers.core.perturbation import DecliningPerturbation
from adv_wrappers.core.types import Array, Batch
from adv_wrappers.errors import ThreatError
from adv_wrappers.utils.files import write
from adv_wrappers.utils.frozen import set_fields

_BYTES = 16  # of a digest: which observation a perturbation is for


@dataclass(frozen=True)
class RecordedStep:
    """A perturbed observation, and what it was found for.

    Attributes:
        seed: what the environment was reset with.
        t: the step of the episode, from 0, the observation of the reset.
        digest: of the true observation, see :func:`digest_of`.
        shown: the perturbed observation ``[*S]``, in the dtype in which the layer hands it out.
    """

    seed: int
    t: int
    digest: bytes
    shown: Array


def digest_of(observation: Batch) -> bytes:
    """A digest of the bytes of an observation ``[*S]``, an array or a tensor."""
    array = observation.detach().cpu().numpy() if isinstance(observation, Tensor) else np.asarray(observation)
    return hashlib.blake2b(np.ascontiguousarray(array).tobytes(), digest_size=_BYTES).digest()


@dataclass(frozen=True, eq=False)
class RecordedPerturbations(DecliningPerturbation):
    """Show recorded observations at the steps for which there are some; all other steps are left alone.

    A record belongs to an episode, by the seed that its environment was reset with, and to the true observation of its
    step, to the bit: where another one comes, because the victim or the environment is another, the step is left alone.
    The layer is the innermost one of its environment, as the only layer is.

    Args:
        steps: the record; None to read it from ``file``.
        file: an ``.npz`` file that :meth:`save` wrote, by which this has a JSON form.
        sha256: hash of the record; a file with another is refused. Filled in from the file.

    Raises:
        ThreatError: without a record, and for a file that holds none, or another one than ``sha256`` says.
    """

    name: ClassVar[str] = "recorded"
    steps: Sequence[RecordedStep] | None = None
    file: str | None = None
    sha256: str | None = None

    def __post_init__(self) -> None:
        if self.steps is None:
            if self.file is None:
                raise ThreatError("recorded needs steps=, or file= with a record that save(file) wrote")
            set_fields(self, steps=_read(Path(self.file)))
        sha256 = _hash(self._steps)
        if self.sha256 not in (None, sha256):
            raise ThreatError(f"the record {self.file} changed: expected sha256 {self.sha256:.12}, got {sha256:.12}")
        set_fields(self, sha256=sha256)

    @property
    def _steps(self) -> Sequence[RecordedStep]:
        assert self.steps is not None
        return self.steps

    @cached_property
    def _episodes(self) -> Mapping[int, Mapping[int, RecordedStep]]:
        """The record by the key of an episode and the step in it."""
        found: dict[int, dict[int, RecordedStep]] = {}
        for step in self._steps:
            found.setdefault(_episode_key(step.seed), {})[step.t] = step
        return found

    def to_dict(self) -> dict[str, Any]:
        """The JSON form; raises :class:`ThreatError` for a record without a file."""
        if self.file is None:
            raise ThreatError("a record without a file has no JSON form: save(file) returns one that has")
        return {"type": self.name, "file": self.file, "sha256": self.sha256}

    def save(self, file: str | Path) -> RecordedPerturbations:
        """Write the record to an ``.npz`` file; the same with a JSON form, which names the file."""
        steps, data = self._steps, io.BytesIO()
        shown = np.stack([step.shown for step in steps]) if steps else np.zeros(0)
        np.savez_compressed(
            data,
            seed=np.array([step.seed for step in steps], np.uint64),
            t=np.array([step.t for step in steps]),
            digest=np.frombuffer(b"".join(step.digest for step in steps), np.uint8).reshape(-1, _BYTES),
            shown=shown,
        )
        write(Path(file), data.getvalue())
        return RecordedPerturbations(steps, str(file))

    def accepts(self, x: Tensor, context: Context) -> Tensor:
        """Rows for whose step there is a record, bool ``[B]``."""
        return torch.tensor([step is not None for step in self._present(context)], dtype=torch.bool)

    def __call__(self, x: Tensor, context: Context) -> Tensor:
        y = x.clone()
        for row, step in enumerate(self._present(context)):
            if step is not None:
                y[row] = torch.as_tensor(step.shown).to(y)
        return y

    def _present(self, context: Context) -> list[RecordedStep | None]:
        """The record of every row's present step, or None."""
        keys = [int(key) for key in context.episode_key.tolist()]
        times = np.broadcast_to(np.asarray(context.t), (len(keys),)).tolist()
        found = [self._episodes.get(key, {}).get(t) for key, t in zip(keys, times, strict=True)]
        part = context.part
        same = [step is not None and step.digest == digest_of(part[i]) for i, step in enumerate(found)]
        return [step if alike else None for step, alike in zip(found, same, strict=True)]


def _episode_key(seed: int) -> int:
    """The key by which the innermost layer knows the first episode after a reset with a seed."""
    return rng.signed(rng.fold(rng.fold(rng.fold(rng.root(seed), 0), EPISODE_STREAM), 0))


def _hash(steps: Sequence[RecordedStep]) -> str:
    found = hashlib.sha256()
    for step in steps:
        found.update(f"{step.seed} {step.t} {step.shown.dtype.str} {step.shown.shape} ".encode())
        found.update(step.digest + np.ascontiguousarray(step.shown).tobytes())
    return found.hexdigest()


def _read(path: Path) -> tuple[RecordedStep, ...]:
    try:
        with np.load(path, allow_pickle=False) as data:
            columns = [data[name] for name in ("seed", "t", "digest", "shown")]
        return tuple(
            RecordedStep(int(seed), int(t), digest.tobytes(), shown)
            for seed, t, digest, shown in zip(*columns, strict=True)
        )
    except (OSError, ValueError, KeyError, EOFError) as error:
        raise ThreatError(f"cannot read a record of perturbations from {path}: {error}") from error
