"""The rows of a report: what a run measured, and what it means beside the clean run and the lowest return."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from adv_wrappers.core.errors import ValueRangeError
from adv_wrappers.evaluation import metrics
from adv_wrappers.evaluation.checks import Outcome
from adv_wrappers.evaluation.distances import Distance, Sample
from adv_wrappers.evaluation.meter import Run
from adv_wrappers.evaluation.stacks import WORST, Stack, form
from adv_wrappers.victims.victim import Victim

COLUMNS = (
    "threat", "mean_return", "low", "high", "caveat", "std", "median", "min", "max", "regret", "impact",
    "general_impact", "attacked_fraction", "e_adv", "e_adv_std", "action_change", "flipped_actions", "l2", "linf",
    "distances", "distance_images", "ms_per_step", "episodes", "mean_length", "transfer", "layers", "returns",
    "lengths", "attacked_fractions", "checks",
)  # fmt: skip


def row(aimed: Stack, run: Run, sample: Sample | None, distances: Mapping[str, Distance]) -> dict[str, Any]:
    """What one run measured, without the columns that other runs decide (see :func:`compared`)."""
    fractions = run.strikes / run.lengths
    return {
        "threat": aimed.name, **metrics.summary(run.returns), "caveat": metrics.caveat(run.returns),
        "regret": None, "impact": None, "general_impact": None,
        "attacked_fraction": run.struck / run.steps, "e_adv": float(fractions.mean()),
        "e_adv_std": float(fractions.std(ddof=1)) if len(fractions) > 1 else 0.0,
        "action_change": run.changed / run.struck if run.struck else None,
        "flipped_actions": run.flipped / run.lowered if run.lowered else None,
        "l2": run.l2 / run.moved if run.moved else None, "linf": run.linf / run.moved if run.moved else None,
        "distances": sample.means(distances) if sample is not None else {},
        "distance_images": len(sample) if sample is not None else 0,
        "ms_per_step": 1000 * run.seconds / run.steps, "episodes": len(run.returns),
        "mean_length": float(run.lengths.mean()), "transfer": aimed.transfer,
        "layers": [form(threat) for threat in aimed.layers],
        "returns": run.returns.tolist(), "lengths": run.lengths.tolist(), "attacked_fractions": fractions.tolist(),
        "checks": {
            "struck": run.moved, "still": run.still, "slopes": run.slopes, "flat": run.flat, "grid": run.grid,
            "flipped": run.flipped / max(run.lowered, 1),
        },
    }  # fmt: skip


def outcome(aimed: Stack, found: Mapping[str, Any]) -> Outcome:
    """What the checks look at, of a run and its :func:`row`."""
    return Outcome(aimed.name, aimed.layers, np.array(found["returns"], np.float64), **found["checks"])


def compared(rows: Sequence[dict[str, Any]], lowest: float | None, fixed: float | None) -> tuple[dict[str, Any], ...]:
    """The rows, the clean one first, with ``regret``, ``impact`` and ``general_impact``.

    Args:
        rows: of :func:`row`.
        lowest: the return that ``impact`` counts from; None where it is not known (yet).
        fixed: the one that ``general_impact`` counts from.
    """
    clean = rows[0]["mean_return"] if rows else 0.0
    return tuple(
        {
            **old, "regret": metrics.regret(clean, old["mean_return"]),
            "impact": metrics.impact(clean, old["mean_return"], lowest),
            "general_impact": metrics.impact(clean, old["mean_return"], fixed),
        }
        for old in rows
    )  # fmt: skip


def check_minimum(minimum: Any) -> None:
    """Raise :class:`ValueRangeError` unless this is None, a finite return or ``"worst-action"``."""
    number = isinstance(minimum, (int, float, np.integer, np.floating)) and not isinstance(minimum, bool)
    if not (minimum is None or (isinstance(minimum, str) and minimum == WORST) or (number and np.isfinite(minimum))):
        raise ValueRangeError(f"minimum must be a finite return, {WORST!r} or None, got {minimum!r}")


def about_minimum(minimum: Any, victim: Victim, lowest: float | None) -> dict[str, Any]:
    """What a report says of the return that ``impact`` counts from: its ``kind`` and ``value``."""
    if isinstance(minimum, str):
        kind = "argmin-Q agent" if victim.has_q else "least likely action"
    else:
        kind = "unknown" if lowest is None else "fixed"
    return {"kind": kind, "value": None if lowest is None else float(lowest)}
