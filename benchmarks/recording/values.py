"""What all sections use: names without a public place, and values that can be kept and compared.

Floats are compared within the tolerance of their section, everything else exactly: ``exact`` makes a text of a float
that has to be the same to the bit, and ``digest`` one of bytes.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import json
import math
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests.rigs import leaves

TIMED = ("seconds", "ms_per_step", "minutes", "when", "created")  # columns that no two runs have alike
# the only places inside the package that are named here
ELSEWHERE = {
    "AttackSetting": "adv_wrappers.studies",
    "SUITES": "adv_wrappers.studies",
    "StateBoxSearch": "adv_wrappers.certification.all_starts",
    "action_bounds": "adv_wrappers.victims.certified_actions",
    "beam_search": "adv_wrappers.evaluation.searches.beam",
    "crown": "adv_wrappers.bounds",
    "decide": "adv_wrappers.bounds.branch_and_bound",
    "entries_that_apply": "adv_wrappers.studies",
    "fewest_perturbations": "adv_wrappers.evaluation.searches.fewest_perturbations",
    "interval": "adv_wrappers.bounds",
    "main": "adv_wrappers.cli",
    "parse_threat": "adv_wrappers.threats.presets",
    "possible_actions": "adv_wrappers.victims.certified_actions",
    "resilience_profile": "adv_wrappers.evaluation.searches.fewest_perturbations",
    "text_of": "adv_wrappers.threats.text",
    "write_page": "adv_wrappers.studies.report.page",
    "zoo_names": "adv_wrappers.victims",
}

Value = Any  # what JSON holds
Items = dict[str, Callable[[], Value]]


def inner(name: str) -> Any:
    """A name that has no public place."""
    return getattr(importlib.import_module(ELSEWHERE[name]), name)


def exact(number: float) -> str:
    """A float that is compared to the bit."""
    return repr(float(number))


def digest(*values: Any) -> str:
    """A hash of texts, arrays and trees of arrays: their types, shapes and bytes."""
    found = hashlib.sha256()
    for value in values:
        for key, leaf in leaves(value).items():
            array = leaf if isinstance(leaf, str) else np.asarray(leaf)
            text = array if isinstance(array, str) else f"{array.dtype}{array.shape}"
            found.update(f"{key}:{text}:".encode() + (b"" if isinstance(array, str) else array.tobytes()))
    return found.hexdigest()[:16]


def summary(values: Any, first: int = 3) -> list[float]:
    """A few floats that tell arrays apart: sums with weights of one's own for every place, and the first values."""
    flat = np.concatenate([np.asarray(value, np.float64).reshape(-1) for value in values] or [np.zeros(0)])
    weights = np.random.default_rng(len(flat)).uniform(-1, 1, (2, len(flat)))
    return [*(weights @ flat).tolist(), *flat[:first].tolist()]


def plain(value: Any) -> Value:
    """What JSON holds of a value: floats of nine digits, and texts of those that are not finite."""
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    if isinstance(value, (np.ndarray, torch.Tensor)):
        return plain(value.tolist())
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float):
        return float(f"{value:.9g}") if math.isfinite(value) else str(value)
    return value if value is None or isinstance(value, (str, int, bool)) else str(value)


def answered(function: Callable[..., Any], *given: Any, **options: Any) -> Value:
    """The value of a call, or the text of its error."""
    try:
        return plain(function(*given, **options))
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def differences(was: Value, now: Value, tolerance: float, place: str = "") -> Iterator[tuple[str, Value, Value]]:
    """(place, was, is) of everything that differs between two values."""
    if isinstance(was, dict) and isinstance(now, dict):
        for key in [*was, *(key for key in now if key not in was)]:
            yield from differences(was.get(key), now.get(key), tolerance, f"{place} {key}")
    elif isinstance(was, list) and isinstance(now, list) and len(was) == len(now):
        for i, pair in enumerate(zip(was, now, strict=True)):
            yield from differences(*pair, tolerance, f"{place} [{i}]")
    elif type(was) is float and type(now) is float:
        if not abs(was - now) <= tolerance * max(1.0, abs(was)):
            yield place, was, now
    elif was != now or type(was) is not type(now):
        yield place, was, now


def raised(function: Callable[[], Any]) -> str:
    """The class and message of the error of a call, or that there was none."""
    try:
        function()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


def data_text(data: Any) -> str:
    """A dictionary as a text."""
    return unplaced(json.dumps(data, sort_keys=True))


def unplaced(text: str) -> str:
    """Without the names of temporary folders."""
    return re.sub(re.escape(tempfile.gettempdir()) + r"/[\w.-]+", "FOLDER", text)


def untimed(value: Value) -> Value:
    """Without what no two runs have alike."""
    if isinstance(value, dict):
        return {key: untimed(one) for key, one in value.items() if key not in TIMED}
    return [untimed(one) for one in value] if isinstance(value, list) else value


@contextlib.contextmanager
def in_folder() -> Iterator[Path]:
    """An empty folder, which is the current one."""
    with tempfile.TemporaryDirectory() as name, contextlib.chdir(name):
        yield Path(name).resolve()
