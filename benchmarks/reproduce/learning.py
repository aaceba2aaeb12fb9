"""Learning curves of adversaries, the paper's Figure 12: means over seeds with their intervals, drawn and written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from figures import of_seeds, table

from adv_wrappers.evaluation.statistics.confidence_intervals import mean_interval
from adv_wrappers.rendering.frames import ATTACKED, MUTED

COLOURS = {"sa-rl": "#7c3aed", "pa-ad": ATTACKED, "robust-sarsa": "#0f766e", "max-diff": "#b45309", "noise": MUTED}
STYLE = {"font.size": 13, "axes.spines.top": False, "axes.spines.right": False}
Runs = Mapping[str, Sequence[Sequence[Mapping[str, Any]]]]  # a kind's trainings, each a list of checkpoints


def left(runs: Sequence[Sequence[Mapping[str, Any]]]) -> tuple[list[int], np.ndarray[Any, Any]]:
    """Steps of the checkpoints ``[C]``, and what the victim had left at each in every training ``[R, C]``."""
    count = min(len(run) for run in runs)
    steps = [int(point["steps"]) for point in runs[0][:count]]
    return steps, np.array([[point["mean_return"] for point in run[:count]] for run in runs])


def draw(kinds: Runs, path: Path) -> None:
    """Mean over seeds, shaded its 95% interval."""
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
        for kind, runs in kinds.items():
            steps, values = left(runs)
            x, mean = np.array(steps) / 1000, values.mean(0)
            low, high = np.array([mean_interval(at) for at in values.T]).T
            axes.plot(x, mean, color=COLOURS[kind], lw=2.5)
            axes.fill_between(x, np.maximum(low, 0), high, color=COLOURS[kind], alpha=0.15, lw=0)
            axes.annotate(
                kind.upper(),
                (x[-1], mean[-1]),
                (6, 0),
                textcoords="offset points",
                color=COLOURS[kind],
                va="center",
                weight="bold",
            )
        axes.set(xlabel="thousand steps of training", ylabel="the victim's return", ylim=(0, None))
        figure.savefig(path, dpi=120)
        plt.close(figure)


def summary(kinds: Runs) -> str:
    """A table: the best checkpoint of every training, their mean with its interval, and what a training costs."""
    lines = []
    for kind, runs in kinds.items():
        best = left(runs)[1].min(1)
        cost = [run[-1]["seconds"] / run[-1]["steps"] * 1e6 / 60 for run in runs]
        lines.append(
            [
                kind,
                len(runs),
                ", ".join(f"{value:.0f}" for value in best),
                of_seeds(best.tolist()),
                f"{np.mean(cost):.2f} +- {np.std(cost, ddof=1):.2f}",
            ]
        )
    header = [
        "attack",
        "seeds",
        "best checkpoint of each",
        "mean +- deviation [95% interval]",
        "minutes per million steps",
    ]
    return table(header, lines)
