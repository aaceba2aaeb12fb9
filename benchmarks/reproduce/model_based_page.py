"""The page of :mod:`model_based`: its tables beside the paper's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from figures import table

BASELINES = ("rand-U", "rand-B", "flip")


def mean(cell: Mapping[str, Any] | None, what: str = "losses") -> str:
    """Mean and deviation of a cell; nothing where it was not measured."""
    if not cell:
        return ""
    values = np.array(cell[what])
    return f"{values.mean():.0f} ({values.std(ddof=1):.0f})" if len(values) > 1 else f"{values.mean():.0f}"


def best_of_grid(row: Any, found: Mapping[str, Any], what: str = "losses") -> list[float] | None:
    """The least of every run over the settings of a row's grid; None until all were played."""
    if len(found) < len(row.settings):
        return None
    return [float(least) for least in np.min([cell[what] for cell in found.values()], 0)]


def complete(cells: Mapping[str, Any]) -> bool:
    """Whether all baselines were measured."""
    return all(name in cells for name in BASELINES)


def wins(ours: Sequence[float] | None, cells: Mapping[str, Any], what: str = "losses") -> int | None:
    """The runs at which an attack is below all baselines; None where one is missing."""
    if ours is None or not complete(cells):
        return None
    return int((np.array(ours) < np.min([cells[name][what] for name in BASELINES], 0)).sum())


def ratio(ours: Sequence[float] | None, cells: Mapping[str, Any], what: str = "losses") -> str:
    """The mean over the runs of what an attack leaves as a share of what the best baseline does; least mean is best."""
    if ours is None or not complete(cells):
        return ""
    best = min((cells[name][what] for name in BASELINES), key=np.mean)
    return f"{np.mean(np.array(ours) / best):.2f}"


def halfway(found: Mapping[str, Any]) -> str:
    """Whether the attack is at least halfway from the best baseline to the planner in the simulator."""
    cells = found.get("table", {})
    if "truth" not in found or "attack" not in cells or not complete(cells):
        return ""
    best = min(np.mean(cells[name]["losses"]) for name in BASELINES)
    bound = (best + np.mean(found["truth"]["losses"])) / 2
    return "yes" if np.mean(cells["attack"]["losses"]) <= bound else "no"


def main_table(results: Mapping[str, Any], rows: Sequence[Any], what: str) -> str:
    """Table 1 (losses) or 2 (rewards) of the paper: every row, and beneath it the paper's."""
    header = ["row", "eps", "no attack", *BASELINES, "one setting", "ratio", "wins", "best of the grid", "ratio"]
    header += ["wins", "simulator", "halfway"] if what == "losses" else ["wins", "simulator"]
    lines = []
    for row in rows:
        found = results["rows"].get(row.name, {})
        cells = found.get("table", {})
        own = cells["attack"][what] if "attack" in cells else None
        grid = best_of_grid(row, found.get("grid", {}), what)
        line = [row.name, f"{found['eps']:g}" if "eps" in found else "", mean(cells.get("none"), what)]
        line += [mean(cells.get(name), what) for name in BASELINES]
        for values, of in ((own, "/"), (grid, " of ")):
            won = wins(values, cells, what)
            line += [mean(None if values is None else {what: values}, what), ratio(values, cells, what)]
            line.append("" if values is None or won is None else f"{won}{of}{len(values)}")
        line.append(mean(found.get("truth"), what))
        lines.append(line + ([halfway(found)] if what == "losses" else []))
        theirs = row.paper[0 if what == "losses" else 1]
        if theirs is not None:
            *others, ours = map(str, theirs)
            best = min(map(int, others))
            paper = ["paper", "", "", *others, "", "", "", ours, f"{int(ours) / best:.2f}", ""]
            lines.append(paper + [""] * (len(header) - len(paper)))
    return table(header, lines)


def sweep_table(results: Mapping[str, Any], rows: Sequence[Any]) -> str:
    """Losses by eps, on the seeds that eps is chosen on."""
    lines = []
    for row in rows:
        found = results["rows"].get(row.name, {})
        for eps, cells in found.get("sweep", {}).items():
            mark = " (chosen)" if f"{found.get('eps', -1):g}" == eps else ""
            means = [mean(cells.get(name)) for name in ("noise", "flip", "attack")]
            lines.append([row.name, eps + mark, *means])
    return table(["row", "eps", "rand-B, best of 10", "flip", "attack"], lines)


def errors_table(results: Mapping[str, Any], rows: Sequence[Any]) -> str:
    """How well the models predict what was held out."""
    lines = []
    for row in rows:
        for source, errors in results["rows"].get(row.name, {}).get("errors", {}).items():
            loops = errors["open_loop"]
            parts = [f"{float(np.mean(errors['one_step'])):.2g}", f"{errors['mse']:.2g}"]
            far = [f"{loops[n]:.2g}" if loops.get(n) is not None else "" for n in ("5", "20", "100")]
            lines.append([row.name, source, *parts, *far])
    return table(["row", "transitions of", "one step", "mean squared", "5 steps", "20 steps", "100 steps"], lines)


def markdown(results: Mapping[str, Any], rows: Sequence[Any]) -> str:
    """The page."""
    return f"""# Model-based attacks on the control suite

Made by `python benchmarks/reproduce/model_based.py --models FOLDER` on {results["machine"]}. Weng et al. 2020 compare
attacks by the total loss of a run of 1000 control steps, the squared distance to an unsafe state, and by its return.
The agents are the zoo's. Cells are means over ten runs, deviations in parentheses; the simulator's column is over fewer
(the first {results.get("truth_runs", 4)} runs), as it is slow. Noise is the best of 100 draws of every run (1000 on
cartpole), chosen by the true loss, in the table of returns by the return. The attack at one setting has no such choice;
its wins over all baselines are counted as `8/10`, those of the best of the grid for every run as `8 of 10`. *ratio*:
to the baseline of the least mean, averaged over the runs; of the paper's rows, of its means. *halfway*: whether the
loss of the attack is at most halfway between the best baseline and the planner in the simulator, a reference and no
bound. Rows without figures have no agent in the zoo.

## Total loss (Table 1)

{main_table(results, rows, "losses")}

## Total reward (Table 2)

{main_table(results, rows, "returns")}

## Losses by eps

On other seeds, four runs each; eps is that at which the attack is farthest ahead of the better baseline.

{sweep_table(results, rows)}

## The models

Four layers of 256 units. Errors on steps that were held out: the mean over the features of the squared error of one
step's change as a share of the variance of changes, the mean squared error in the units of the environment, and the
squared error of predictions over several decisions without correction, as a share of the variance of observations.

{errors_table(results, rows)}
"""
