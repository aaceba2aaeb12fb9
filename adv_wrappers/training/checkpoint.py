"""What a training goes on from: a model's weights, optimiser and step counts, and the statistics of its normaliser.

Weights are in SB3's own ``.zip``, statistics in JSON. Both are read as data: ``BaseAlgorithm.load`` and
``VecNormalize.load`` would unpickle, which runs whatever code a file holds. Settings are therefore not read at all: the
caller makes the model and its normaliser anew, as for a training that begins, and :func:`restore` fills them in.
"""

from __future__ import annotations

import json
import math
import os
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from adv_wrappers.core.errors import CardError
from adv_wrappers.core.files import write
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
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise CardError(f"{weights}: {name} must be a whole number, got {count!r:.60}")
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
