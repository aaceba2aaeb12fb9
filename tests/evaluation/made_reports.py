"""Reports of made-up returns, in the form of real ones, for tests of what is computed from many rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from adv_wrappers.evaluation.rows.report import Report
from adv_wrappers.evaluation.rows.row import Row
from adv_wrappers.evaluation.statistics.confidence_intervals import summary


def made_row(threat: str, returns: Sequence[float], **more: Any) -> Row:
    """A row under a threat of one layer, whose radius is read from its text."""
    radius = "" if "layers" in more else threat.partition("eps=")[2].partition(",")[0]
    within = {"type": "linf", "eps": float(radius)} if radius else {"type": "valid"}
    count = len(returns)
    columns = {
        "threat": threat,
        **summary(np.array(returns, np.float64)),
        "layers": [] if threat == "none" else [{"type": "threat", "within": within}],
        "returns": [*returns],
        "lengths": [10] * count,
        "mean_length": 10.0,
        "attacked_fractions": [float(threat != "none")] * count,
        "episodes": count,
        "action_change": None if threat == "none" else 0.5,
        "distances": {"ssim": 0.9},
    }
    return Row(**{**columns, **more})


def made_report(
    returns: Mapping[str, Sequence[float]], victim: str = "zoo:a", env: str = "CartPole-v1", seed: int = 0, **more: Any
) -> Report:
    """A report of one victim, by threat the returns of its episodes."""
    rows = tuple(made_row(threat, values) for threat, values in returns.items())
    count = rows[0].episodes
    about = {
        "versions": {}, "seed": seed, "episode_seeds": tuple(range(count)), "git": None, "device": "cpu",
        "victim": {"ref": victim, "fingerprint": f"{victim} weights", "select": "mode"},
        "env": {"id": env, "kwargs": {}}, "episodes": count, "num_envs": 1, "warnings": (), "threats": rows,
    }  # fmt: skip
    return Report(**{**about, **more})
