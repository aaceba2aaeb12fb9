"""Statistics of SB3's ``VecNormalize`` from files, without running code from them.

``VecNormalize.save`` writes a pickle. Here it is read with NumPy's own arrays, and stand-ins in place of all other
classes and functions: they keep what they are given and do nothing, so what comes out is data, of which the statistics
of observations are taken.
"""

from __future__ import annotations

import codecs
import collections
import io
import math
import pickle
import pickletools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from adv_wrappers.errors import AdvWrappersError, CardError, TrustError, VictimError
from adv_wrappers.utils.reading import decoding, members, read_bytes, read_json

_MODULES = ("stable_baselines3", "gymnasium", "gym", "numpy", "collections", "copyreg")
_DATA = {  # what is made as it is: numbers, arrays of them, and dictionaries
    **{("multiarray", name): getattr(np._core.multiarray, name) for name in ("_reconstruct", "scalar")},  # type: ignore[attr-defined]
    ("numeric", "_frombuffer"): np._core.numeric._frombuffer,  # type: ignore[attr-defined]
    ("numpy", "ndarray"): np.ndarray, ("numpy", "dtype"): np.dtype, ("_codecs", "encode"): codecs.encode,
    ("__builtin__", "bytes"): lambda: b"",  # none, in files of protocol 2
    ("collections", "OrderedDict"): dict, ("collections", "defaultdict"): collections.defaultdict,
}  # fmt: skip
_BUILTINS = ("object", "set", "frozenset")
_NORMALIZER = ("stable_baselines3.common.vec_env.vec_normalize", "VecNormalize")
_OPERATIONS = 100_000  # of a pickle; that of a normaliser has a few hundred
_FILES = ("vecnormalize", "vec_normalize", "vecnorm", "vec_norm")  # what files of statistics are called
_ARRAYS = ("mean", "var", "std", "clip", "epsilon")


@dataclass(frozen=True)
class RunningStatistics:
    """Mean and variance of observations, float64 ``[*S]``, and of how many."""

    mean: Any
    var: Any
    count: float = 0.0


@dataclass(frozen=True)
class Normalizer:
    """What a victim takes of a ``VecNormalize``: ``clip((obs - mean) / sqrt(var + epsilon), -clip_obs, clip_obs)``."""

    obs_rms: RunningStatistics | dict[str, RunningStatistics] | None
    epsilon: float = 1e-8
    clip_obs: float = 10.0
    norm_obs: bool = True


def read_statistics(path: str | Path, *, trust: bool = False, max_bytes: int | None = None) -> Any:
    """The normaliser in a file.

    Args:
        path: what ``VecNormalize.save`` wrote; or ``.json`` or ``.npz`` with ``mean``, ``var`` (or ``std``, which is
            the divisor itself) and optionally ``clip`` (10) and ``epsilon`` (1e-8, which is added to ``var`` alone).
        trust: read a pickle that only running code from it can read.

    Raises:
        CardError: for a file that is missing, too large, damaged or holds no statistics.
        TrustError: for a pickle of anything else than SB3's, Gymnasium's and NumPy's objects, without ``trust``.
    """
    # plain numbers in JSON or NumPy's format, or SB3's pickle
    path = Path(path)
    if path.suffix == ".json":
        stated = read_json(path, max_bytes)
        with decoding(path):
            found: Any = _of_arrays(stated)
    elif path.suffix == ".npz":
        stored = members(read_bytes(path, max_bytes), path, [f"{name}.npy" for name in _ARRAYS], max_bytes)
        with decoding(path):
            arrays = {name: np.lib.format.read_array(io.BytesIO(content)) for name, content in stored.items()}
            found = _of_arrays({name.removesuffix(".npy"): array for name, array in arrays.items()})
    else:
        data = read_bytes(path, max_bytes)
        try:
            found = _of_pickle(data, path)
        except TrustError:
            if not trust:
                raise
            found = _by_running(data, path)
    check_statistics(found, path, CardError)
    return found


def _by_running(data: bytes, path: Path) -> Any:
    with decoding(path):
        found = pickle.loads(data)
        if not all(hasattr(found, name) for name in ("norm_obs", "obs_rms", "epsilon", "clip_obs")):
            raise CardError(f"expected a VecNormalize, got {type(found).__name__}")
        return found


def statistics_beside(path: Path) -> Path | None:
    """The file that SB3's callbacks, rl-zoo3 and tutorials write beside a model's zip; None without one.

    Names that hold the model's own come first: a folder may hold several models.
    """
    folder, stem = path.parent, path.stem
    prefix, _, steps = stem.removesuffix("_steps").rpartition("_")
    names = dict.fromkeys([stem, stem.removesuffix("_model")])  # best_model.zip and best_vecnormalize.pkl
    places = [
        folder / f"{prefix}_vecnormalize_{steps}_steps.pkl",
        *(folder / f"{name}_{word}.pkl" for name in names for word in _FILES),
        *(folder / f"{word}_{name}.pkl" for name in names for word in _FILES),
        folder / stem / "vecnormalize.pkl",  # rl-zoo3: ENV_1/ENV.zip and ENV_1/ENV/vecnormalize.pkl
        folder / folder.resolve().name.rpartition("_")[0] / "vecnormalize.pkl",  # ENV_1/best_model.zip
        *(folder / f"{word}.pkl" for word in _FILES),
    ]
    return next((place for place in places if place.is_file()), None)


class _Inert:
    """Stands for an object of any class, or for what a function returned: it keeps what it was given."""

    origin = ("", "")
    state: Any = None

    def __new__(cls, *args: Any, **kwargs: Any) -> _Inert:
        return super().__new__(cls)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def append(self, item: Any) -> None:
        """What fills a list or a deque."""

    def extend(self, items: Any) -> None:
        """The same, many at once."""

    def __setitem__(self, key: Any, item: Any) -> None:
        """What fills a dictionary."""


class _Reader(pickle.Unpickler):
    """Makes data and stand-ins; what it must not even stand in for is a :class:`TrustError`."""

    def __init__(self, data: bytes) -> None:
        super().__init__(io.BytesIO(data))
        self.kinds: dict[tuple[str, str], type[_Inert]] = {}

    def find_class(self, module: str, name: str) -> Any:
        if (made := _DATA.get((module.split(".")[-1], name))) is not None:
            return made
        plain = module in ("builtins", "__builtin__") and name in _BUILTINS  # the latter in files of protocol 2
        if module.split(".")[0] not in _MODULES and not plain:
            raise TrustError(f"it holds {module}.{name}"[:120])
        inert = self.kinds.get((module, name)) or type("_Inert", (_Inert,), {"origin": (module, name)})
        return self.kinds.setdefault((module, name), inert)


def _of_pickle(data: bytes, path: Path) -> Normalizer:
    with decoding(f"{path} as statistics of VecNormalize"):
        try:
            return _normalizer(data)
        except TrustError as error:
            raise TrustError(
                f"{path}: {error}, which is none of SB3's, Gymnasium's and NumPy's: only running code from it could "
                "read it. trust=True does so; or give the statistics as .npz or .json (mean, var, clip, epsilon), or "
                "sb3:FILE.zip?stats=none (in Python stats=False)"
            ) from error


def _normalizer(data: bytes) -> Normalizer:
    for count, (operation, argument, _) in enumerate(pickletools.genops(data)):
        # a place in the memo that is far away would be memory up to there
        if count > _OPERATIONS or ("PUT" in operation.name and int(argument or 0) > _OPERATIONS):
            raise CardError("it has too many parts")
    found = _Reader(data).load()
    if not isinstance(found, _Inert) or found.origin != _NORMALIZER or not isinstance(found.state, dict):
        raise CardError(f"expected a VecNormalize, got {_name(found)}")
    state = found.state
    on = state.get("norm_obs", True)
    rms = None if not on else _statistics(state.get("obs_rms"))
    return Normalizer(rms, float(_number(state["epsilon"])), float(_number(state["clip_obs"])), bool(on))


def _name(found: Any) -> str:
    return ".".join(found.origin) if isinstance(found, _Inert) else type(found).__name__


def _statistics(found: Any) -> RunningStatistics | dict[str, RunningStatistics]:
    if isinstance(found, dict):
        return {str(key): _one(value) for key, value in found.items()}
    return _one(found)


def _one(found: Any) -> RunningStatistics:
    if not isinstance(found, _Inert) or found.origin[1] != "RunningMeanStd" or not isinstance(found.state, dict):
        raise CardError(f"expected a RunningMeanStd, got {_name(found)}")
    mean, var, count = (_number(found.state[name]) for name in ("mean", "var", "count"))
    return RunningStatistics(mean, var, float(count))


def _number(found: Any) -> np.ndarray:
    """Numbers as float64."""
    if isinstance(found, _Inert) or (array := np.asarray(found)).dtype.kind not in "fiu":
        raise CardError(f"expected numbers, got {_name(found)}")
    return array.astype(np.float64)


def _of_arrays(found: Mapping[str, Any]) -> Normalizer:
    if "mean" not in found or ("var" in found) == ("std" in found):
        raise CardError(f"expected mean, and either var or std, got {', '.join(found)!s:.200}")
    mean, spread = (np.asarray(found[name], np.float64) for name in ("mean", "var" if "var" in found else "std"))
    clip, epsilon = found.get("clip", 10.0), float(found.get("epsilon", 1e-8))
    clip = math.inf if clip is None else float(clip)
    # a deviation is the divisor itself, without an epsilon
    if "std" in found:
        if (spread < 0).any():
            raise CardError("std must be at least 0")
        spread, epsilon = spread**2, 0.0
    return Normalizer(RunningStatistics(mean, spread), epsilon, clip)


def check_statistics(normalizer: Any, where: Any, error: type[AdvWrappersError] = VictimError) -> None:
    """Raise ``error`` unless the statistics are numbers that observations can be divided by."""
    if not normalizer.norm_obs:
        return
    found = normalizer.obs_rms if isinstance(normalizer.obs_rms, dict) else {"observations": normalizer.obs_rms}
    for key, rms in found.items():
        mean, var = np.asarray(rms.mean, np.float64), np.asarray(rms.var, np.float64)
        if mean.shape != var.shape:
            raise error(f"{where}: the mean of {key!s:.40} has shape {mean.shape}, its variance {var.shape}")
        divisor = var + normalizer.epsilon
        if not (np.isfinite(mean).all() and np.isfinite(divisor).all() and (var >= 0).all() and (divisor > 0).all()):
            raise error(
                f"{where}: mean and variance of {key!s:.40} must be finite, the variance at least 0, and above 0 "
                "with epsilon"
            )
    if not normalizer.clip_obs > 0:
        raise error(f"{where}: clip_obs must be above 0, got {normalizer.clip_obs!r:.40}")
