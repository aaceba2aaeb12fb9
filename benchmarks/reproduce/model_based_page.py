"""The page of :mod:`model_based`: its tables beside the paper's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from figures import table

BASELINES = ("rand-U", "rand-B", "flip")


def mean(cell: Mapping[str, Any] | None, what: str = "losses") -> str:
    """Mean and deviation of a cell; a dash where it was not measured."""
    if not cell:
        return "-"
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
        return "-"
    best = min((cells[name][what] for name in BASELINES), key=np.mean)
    return f"{np.mean(np.array(ours) / best):.2f}"


def halfway(found: Mapping[str, Any]) -> str:
    """Whether the attack is at least halfway from the best baseline to the planner in the simulator."""
    cells = found.get("table", {})
    if "truth" not in found or "attack" not in cells or not complete(cells):
        return "-"
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
        line = [row.name, f"{found['eps']:g}" if "eps" in found else "no agent", mean(cells.get("none"), what)]
        line += [mean(cells.get(name), what) for name in BASELINES]
        for values, of in ((own, "/"), (grid, " of ")):
            won = wins(values, cells, what)
            line += [mean(None if values is None else {what: values}, what), ratio(values, cells, what)]
            line.append("-" if values is None or won is None else f"{won}{of}{len(values)}")
        if grid is None and found.get("grid"):
            line[-3] = f"{len(found['grid'])} of {len(row.settings)} settings"
        line.append(mean(found.get("truth"), what))
        lines.append(line + ([halfway(found)] if what == "losses" else []))
        theirs = row.paper[0 if what == "losses" else 1]
        if theirs is not None:
            *others, ours = map(str, theirs)
            best = min(map(int, others))
            paper = ["the paper's", "-", "-", *others, "-", "-", "-", ours, f"{int(ours) / best:.2f}"]
            lines.append(paper + ["-"] * (len(header) - len(paper)))
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
            far = [f"{loops[n]:.2g}" if loops.get(n) is not None else "-" for n in ("5", "20", "100")]
            lines.append([row.name, source, *parts, *far])
    return table(["row", "transitions of", "one step", "mean squared", "5 steps", "20 steps", "100 steps"], lines)


def why_missing(results: Mapping[str, Any], rows: Sequence[Any]) -> str:
    """What stands behind the dashes of our rows, as a list."""
    said = []
    for row in rows:
        found = results["rows"].get(row.name, {})
        played = found.get("grid", {})
        if 0 < len(played) < len(row.settings):
            seconds = np.mean([cell["seconds"] for cell in played.values()])
            left = (len(row.settings) - len(played)) * seconds / 60
            said.append(
                f"- {row.name}: the grid was not finished. The best of {len(played)} of {len(row.settings)} settings "
                f"would be no figure of the grid, so it is left out; the others take about {left:.0f} minutes of one "
                f"core at the {seconds:.0f} seconds that these took each, with the same learned model, which is not "
                "kept."
            )
    for task, cost in results.get("cost", {}).items():
        rate = cost["decisions"] / cost["seconds"]
        said.append(
            f"- {task}: the zoo has no agent. Its recipe (`examples/train_victim.py {task}-sac`) takes "
            f"{cost['wanted'] / 1e6:g} million decisions, which at {rate:.0f} a second of one core of an "
            f"{cost['processor']}, measured over {cost['decisions']:g}, are {cost['wanted'] / rate / 3600:.0f} hours."
        )
    return "\n".join(said)


def what_limits(results: Mapping[str, Any], rows: Sequence[Any]) -> str:
    """What is said of rows at which the attack is far from the planner in the simulator."""
    said = []
    for row in rows:
        found = results["rows"].get(row.name, {})
        if halfway(found) != "no":
            continue
        cells = found["table"]
        least = min(BASELINES, key=lambda name: np.mean(cells[name]["losses"]))
        ours, baseline, simulator = (
            f"{np.mean(cell['losses']):.0f}" for cell in (cells["attack"], cells[least], found["truth"])
        )
        loops = found.get("errors", {}).get("victim", {}).get("open_loop", {}).get("20")
        error = f" (its error over 20 decisions is {loops:.2g} of the variance of observations)" if loops else ""
        said.append(
            f"**{row.name}: the learned model limits the attack{error}.** Planning in the simulator itself, within the "
            f"same budget, leaves {simulator}; the attack leaves {ours}, {least} {baseline}. So this row says more of "
            "the model than of the method."
        )
    return "\n\n".join(said)


def markdown(results: Mapping[str, Any], rows: Sequence[Any]) -> str:
    """The page."""
    return f"""# Model-based attacks on the control suite

Made by `python benchmarks/reproduce/model_based.py --models FOLDER` on {results["machine"]}. Weng et al. 2020 compare
attacks by the total loss of a run of 1000 control steps, the squared distance to an unsafe state, and by its return.
The agents are the zoo's. Cells are means over ten runs, deviations in parentheses; the simulator's column is over fewer
(the first {results.get("truth_runs", 4)} runs), as it is slow. Noise is the best of 100 draws of every run (1000 on
cartpole), chosen by the true loss, in the table of returns by the return. The attack at one setting has no such choice;
its wins over all baselines are counted as `8/10`, those of the best of the grid for every run as `8 of 10`. *ratio*:
to the baseline of the least mean, run by run, of which the mean is shown (above 1 where few runs with a very low
baseline weigh more than many that are won); of the paper's rows, the ratio of its means. *halfway*: whether the
loss of the attack is at most halfway between the best baseline and the planner in the simulator, a reference and no
bound. The paper's agents, models and eps are others, and it does not give its eps: its rows show how far its attack is
ahead of its own baselines, and their losses cannot be compared with ours one by one. A dash: not measured, or not in
the paper.

{why_missing(results, rows)}

## Total loss (Table 1)

{main_table(results, rows, "losses")}

{what_limits(results, rows)}

## Total reward (Table 2)

The paper has no rewards for attacks on actions.

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
