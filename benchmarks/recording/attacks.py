"""What comes out of every preset, in every kind of environment."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

import adv_wrappers as adv
from benchmarks.recording.values import Items, Value, answered, digest, summary
from tests.laws.checks import ROWS, Case, cases, fitting, pairs, wrapper
from tests.rigs import KINDS, RIGS, run


def transcript(case: Case, threat: Any, kind: str) -> Value:
    """What came out of a layer: a hash of bytes, or of attacks that follow gradients sums of what was changed."""
    rows = run(kind, case.rig, wrapper(threat), ROWS)
    episodes = [episode for row in rows for episode in row]
    parts = [(e.seen, e.received, [np.asarray(e.rewards, np.float64)]) for e in episodes]
    if case.exact:
        return digest(*(value for part in parts for values in part for value in values))
    moved = [y for _, y in pairs(case, rows, run(kind, case.rig, seeds=ROWS))]
    return [len(moved), *summary(moved), *summary([rewards for *_, (rewards,) in parts], 0)]


def attacks() -> Items:
    """Every preset on every rig that it fits under its first budget, in every kind of environment.

    The other budgets, and timings, are recorded of one kind of environment. Victims compute in float64.
    """
    double: Any = {"dtype": torch.float64}

    def case_of(case: Case, kinds: Sequence[str], **options: Any) -> Value:
        threat = case.threat(**double, **options)
        return {kind: answered(transcript, case, threat, kind) for kind in kinds}

    found: Items = {}
    for case in cases(rigs=len(RIGS)):
        found[str(case)] = functools.partial(case_of, case, KINDS)
        for budget in fitting(case)[1:]:
            found[f"{case} {budget}"] = functools.partial(case_of, case, ("next",), budget=budget)
    timings = {
        "every": adv.Every(2), "window": adv.Window(1, 3), "bernoulli": adv.Bernoulli(0.5), "at-most": adv.AtMost(2),
        "mixed": (adv.Bernoulli(0.6) & adv.AtMost(3)) | ~adv.Window(0, 2),
    }  # fmt: skip
    for preset in ("noise", "action-noise"):
        for name, when in timings.items():
            found[f"{preset} when {name}"] = functools.partial(case_of, Case(preset, RIGS["mean"]), KINDS, when=when)
    for rig in ("logits", "recurrent"):
        case, when = Case("min-best", RIGS[rig]), adv.Strategic(0.4) & adv.Bernoulli(0.8)
        found[f"min-best when strategic {rig}"] = functools.partial(case_of, case, KINDS, when=when)
    return found
