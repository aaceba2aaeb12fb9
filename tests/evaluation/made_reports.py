"""Reports of made-up returns, in the form of real ones, for tests of what is computed from many rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from adv_wrappers.evaluation.report import Report
from adv_wrappers.evaluation.statistics import summary


def made_row(threat: str, returns: Sequence[float], **more: Any) -> dict[str, Any]:
    """A row under a threat of one layer, whose radius is read from its text."""
    eps = [float(part.removeprefix("eps=")) for part in threat.partition(":")[2].split(",") if part.startswith("eps=")]
    within = {"type": "linf", "eps": eps[0]} if eps else {"type": "valid"}
    count = len(returns)
    return {
        "threat": threat,
        **summary(np.array(returns, np.float64)),
        "layers": [] if threat == "none" else [{"type": "threat", "within": within}],
        "returns": [*returns],
        "lengths": [10] * count,
        "attacked_fractions": [float(threat != "none")] * count,
        "losses": None,
        "episodes": count,
        "action_change": None if threat == "none" else 0.5,
        "distances": {"ssim": 0.9},
        "transfer": False,
        "best_of": 1,
        **more,
    }


def made_report(
    returns: Mapping[str, Sequence[float]], victim: str = "zoo:a", env: str = "CartPole-v1", seed: int = 0, **more: Any
) -> Report:
    """A report of one victim, by threat the returns of its episodes."""
    rows = tuple(made_row(threat, values) for threat, values in returns.items())
    count = len(rows[0]["returns"])
    about = {
        "versions": {}, "seed": seed, "episode_seeds": tuple(range(count)), "git": None, "device": "cpu",
        "victim": {"ref": victim, "fingerprint": f"{victim} weights", "select": "mode"},
        "env": {"id": env, "kwargs": {}}, "episodes": count, "num_envs": 1, "warnings": (), "threats": rows,
    }  # fmt: skip
    return Report(**{**about, **more})
