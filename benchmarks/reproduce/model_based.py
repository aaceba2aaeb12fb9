"""Model-based attacks on tasks of the DeepMind Control Suite: Tables 1 and 2 of Weng et al. 2020.

    python benchmarks/reproduce/model_based.py --models FOLDER [--row NAME ...] [--part NAME ...]

For every row a model is learned from transitions of the zoo's agent and of random actions (kept in FOLDER), eps is
chosen on other seeds, and ten runs of 1000 control steps are played at it: without an attack, under noise of which the
best draw counts (rand-U and rand-B), under flipped observations or actions, under the attack at one setting, under the
best of the paper's grid of settings for every run, and under a planner that plans in the simulator itself. Rows whose
agents the zoo does not have (humanoid's: ``examples/train_victim.py`` has their recipes) are not measured.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from figures import table
from page import Data, Page, Results

import adv_wrappers as adv
from adv_wrappers.victims import zoo_names
from adv_wrappers.victims.auxiliary_networks import load_dynamics

RUNS, SEED = 10, 0
OTHER_RUNS, OTHER_SEED = 4, 1  # that eps is chosen on
LRS, APPLIES = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0), (1, 2)  # of the paper's grid: six learning rates, and n
PARTS = ("sweep", "table", "truth", "grid")
OBS, ACT = "observation", "action"
BASELINES = ("rand-U", "rand-B", "flip")


@dataclass(frozen=True)
class Row:
    """One row of the tables.

    Attributes:
        task: of the suite.
        on: what is perturbed.
        target: the unsafe state, by the number of a feature.
        transitions: that the model is learned from, in decisions.
        radii: that are tried, smallest first.
        steps: T of the attack at one setting.
        truth_steps: T of the planner in the simulator, also chosen on other seeds.
        grid: the two T of the grid.
        draws: of random baselines.
        paper: mean losses of the paper: rand-U, rand-B, flip, its attack; then rewards, or none.
    """

    task: str
    on: str
    target: str
    transitions: int
    radii: tuple[float, ...]
    steps: int
    truth_steps: int
    grid: tuple[int, int]
    draws: int
    paper: tuple[tuple[int, int, int, int], tuple[int, int, int, int] | None]

    @property
    def name(self) -> str:
        return f"{self.task}, {self.on}s"

    @property
    def victim(self) -> str:
        return f"zoo:{self.task}-sac"

    @property
    def env(self) -> str:
        return f"dm_control/{self.task}-v0"

    @property
    def settings(self) -> list[tuple[float, int, int]]:
        """The paper's grid: learning rate, T and n, which is at most T."""
        return [(lr, steps, n) for lr, steps, n in itertools.product(LRS, self.grid, APPLIES) if n <= steps]

    @property
    def has_victim(self) -> bool:
        """Whether the zoo has the agent."""
        return self.victim.removeprefix("zoo:") in zoo_names()

    @property
    def prefix(self) -> str:
        return "action-" if self.on == ACT else ""

    @property
    def lr(self) -> float:
        """Adam's learning rate at one setting; both were chosen among these two on the seeds that eps is chosen on."""
        return 0.25 if self.on == ACT else 1.0

    @property
    def signs(self) -> str:
        return "bernoulli" if self.on == ACT else "sign"


SMALL, LARGE = (0.05, 0.1, 0.2, 0.3), (0.1, 0.2, 0.3, 0.5, 0.7)
ROWS = (
    Row("walker-stand", OBS, "0=0", 200_000, (0.1, 0.15, 0.2, 0.3), 3, 10, (1, 5), 100,
        ((1462, 1126, 1458, 258), (937, 744, 993, 235))),
    Row("walker-walk", OBS, "0=0", 200_000, (0.1, 0.15, 0.2, 0.3), 3, 10, (1, 5), 100,
        ((1517, 1231, 1601, 466), (941, 796, 981, 225))),
    Row("humanoid-stand", OBS, "15=0", 1_000_000, (0.05, 0.1, 0.2), 10, 10, (5, 10), 100,
        ((1986, 1808, 1997, 516), (927, 809, 959, 193))),
    Row("humanoid-walk", OBS, "15=0", 1_000_000, (0.05, 0.1, 0.2), 10, 10, (5, 10), 100,
        ((1935, 1921, 1982, 1457), (934, 913, 966, 608))),
    Row("cartpole-balance", OBS, "1=-1", 170_000, SMALL, 30, 15, (20, 30), 1000,
        ((4000, 3999, 3989, 2101), (995, 986, 985, 385))),
    Row("cartpole-swingup", OBS, "1=-1", 170_000, SMALL, 20, 20, (10, 20), 1000,
        ((3530, 3525, 3516, 2032), (873, 851, 852, 353))),
    Row("cartpole-balance", ACT, "1=-1", 170_000, LARGE, 20, 20, (10, 20), 1000, ((4000, 3999, 3046, 1917), None)),
    Row("cartpole-swingup", ACT, "1=-1", 170_000, LARGE, 20, 10, (10, 20), 1000, ((3571, 3487, 1433, 1388), None)),
    Row("fish-upright", ACT, "7=0", 170_000, LARGE, 20, 20, (10, 20), 100, ((935, 936, 907, 824), None)),
)  # fmt: skip
NAMES = [row.name for row in ROWS]


def model_of(row: Row, models: Path, hidden: int = 256, epochs: int = 30) -> str:
    """The reference of a row's model, which is learned where FOLDER does not have it."""
    folder = models / f"{row.task}-{row.transitions}"
    adv.train_dynamics(row.victim, row.env, row.transitions, hidden=(hidden,) * 4, epochs=epochs, out=folder)
    return f"card:{folder}"


def cell(row: Row, threat: Any, runs: int = RUNS, seed: int = SEED, best_of: int = 1, num_envs: int = 32) -> Any:
    """The losses and returns of one threat, and the seconds of one core that they took."""
    begun = time.process_time()
    threats = [] if threat is None else [threat]
    report = adv.evaluate(
        row.victim, row.env, threats, runs, seed, num_envs, measure=row.target, best_of=best_of, by="loss"
    )
    found = report.threats[-1]
    own = {key: found[key] for key in ("losses", "returns")}
    if found["draws"] is not None:  # the paper takes the best of either by itself
        own["returns"] = np.min(found["draws"]["returns"], 0).tolist()
    return {**own, "seconds": time.process_time() - begun, "best_of": best_of}


def attack(row: Row, model: str, eps: float, steps: int, **settings: Any) -> str:
    """The text of the attack."""
    how = {"eps": eps, "steps": steps, "iterations": 10, "restarts": 8, "lr": row.lr, **settings}
    return f"{row.prefix}model-based:dynamics='{model}'," + ",".join(f"{name}={value}" for name, value in how.items())


def truth(row: Row, eps: float) -> str:
    """The text of the planner in the simulator."""
    return (
        f"{row.prefix}model-based:dynamics=simulator,target='{row.target}',eps={eps},steps={row.truth_steps},"
        f"planner=cem,iterations=3,samples=32"
    )


def sweep(row: Row, model: str, results: Results) -> None:
    """Losses on other seeds by eps."""
    for eps in row.radii:
        wanted = {
            "flip": (f"{row.prefix}flip:eps={eps}", 1),
            "noise": (f"{row.prefix}noise:kind={row.signs},eps={eps}", 10),
            "attack": (attack(row, model, eps, row.steps), 1),
        }
        cells = results.part("rows", row.name, "sweep", f"{eps:g}")
        for name, (threat, draws) in wanted.items():
            results.once(cells, name, cell, row, threat, OTHER_RUNS, OTHER_SEED, draws)


def chosen(row: Row, found: Mapping[str, Any]) -> float:
    """Of the radii tried the one at which the attack is farthest ahead of the best baseline, on other seeds."""

    def ahead(eps: float) -> float:
        cells = {name: float(np.mean(one["losses"])) for name, one in found[f"{eps:g}"].items()}
        return min(cells["flip"], cells["noise"]) - cells["attack"]

    return max(row.radii, key=ahead)


def columns(row: Row, model: str, eps: float, results: Results) -> None:
    """The columns at the chosen eps."""
    wanted: dict[str, tuple[str | None, int]] = {
        "none": (None, 1),
        "flip": (f"{row.prefix}flip:eps={eps}", 1),
        "attack": (attack(row, model, eps, row.steps), 1),
        "rand-U": (f"{row.prefix}noise:kind=uniform,eps={eps}", row.draws),
        "rand-B": (f"{row.prefix}noise:kind={row.signs},eps={eps}", row.draws),
    }
    for name, (threat, draws) in wanted.items():
        results.once(results.part("rows", row.name, "table"), name, cell, row, threat, RUNS, SEED, draws)


def grid(row: Row, model: str, eps: float, results: Results) -> None:
    """Every setting of the paper's grid, of which the best of each run counts."""
    for lr, steps, apply in row.settings:
        threat = attack(row, model, eps, steps, lr=lr, apply=apply, iterations=30, restarts=1)
        results.once(results.part("rows", row.name, "grid"), f"lr={lr:g}, T={steps}, n={apply}", cell, row, threat)


def mean(cell: Mapping[str, Any] | None, what: str = "losses") -> str:
    """Mean and deviation of a cell; a dash where it was not measured."""
    if not cell:
        return "-"
    values = np.array(cell[what])
    return f"{values.mean():.0f} ({values.std(ddof=1):.0f})" if len(values) > 1 else f"{values.mean():.0f}"


def best_of_grid(row: Row, found: Mapping[str, Any], what: str = "losses") -> list[float] | None:
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


def main_table(results: Data, rows: Sequence[Row], what: str) -> str:
    """Table 1 (losses) or 2 (rewards) of the paper: every row, and beneath it the paper's."""
    header = ["row", "eps", "no attack", *BASELINES, "one setting", "ratio", "wins", "best of the grid", "ratio"]
    header += ["wins", "simulator", "halfway"] if what == "losses" else ["wins", "simulator"]
    lines = []
    for row in (row for row in rows if row.has_victim):
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


def body(results: Data, rows: Sequence[Row] = ROWS) -> list[str]:
    """The section after its head."""
    return [
        "Runs of 1000 control steps: total loss, the squared distance to an unsafe state, and return, means over ten "
        "runs with deviations in parentheses; the planner in the simulator, a reference and no bound, over the first "
        f"{results.get('truth_runs', 4)}. Noise is the best of 100 draws of every run (1000 on cartpole), by the true "
        "loss, in the table of returns by the return. The attack at one setting has no such choice; `n/10` are its "
        "wins over all baselines, `n of 10` those of the best of the paper's grid of 24 for every run, where all of "
        "the grid was played. *ratio*: to the baseline of the least mean, run by run; of the paper's rows, the ratio "
        "of its means. *halfway*: whether the loss is at most halfway between the best baseline and the planner. eps "
        "is chosen on other seeds, where the attack is farthest ahead. Models are four layers of 256 units, by "
        "decisions of the agent and of random actions.",
        "## Total loss (Table 1)",
        main_table(results, rows, "losses"),
        "## Total reward (Table 2)",
        "The paper has no rewards for attacks on actions.",
        main_table(results, rows, "returns"),
    ]


def measure(results: Results) -> None:
    """Measure what was asked for and is not there yet."""
    given = results.given
    results.need("--models", "for what is learned")
    results.data["truth_runs"] = given.truth_runs
    for row in ROWS:
        if row.name not in given.row:
            continue
        if not row.has_victim:
            print(f"{row.name}: the zoo has no {row.victim}; python examples/train_victim.py {row.task}-sac trains it")
            continue
        model, found = model_of(row, given.models), results.part("rows", row.name)
        found["errors"] = load_dynamics(model).card["errors"]
        if "sweep" in given.part:
            sweep(row, model, results)
        eps = chosen(row, found["sweep"])
        if found.get("eps", eps) != eps:  # cells of another eps are of another table
            found = results.data["rows"][row.name] = {key: found[key] for key in ("sweep", "errors")}
        found["eps"] = eps
        if "table" in given.part:
            columns(row, model, eps, results)
        if "truth" in given.part:
            results.once(found, "truth", cell, row, truth(row, eps), given.truth_runs)
        if "grid" in given.part:
            grid(row, model, eps, results)
        results.keep()


PAGE = Page(
    "model_based",
    "Model-based attacks on the control suite",
    __doc__,
    measure,
    body,
    page="model_based",
    options={
        "--models": {"type": Path, "help": "for the learned models and their transitions"},
        "--row": {"nargs": "+", "choices": NAMES, "default": NAMES},
        "--part": {"nargs": "+", "choices": PARTS, "default": PARTS},
        "--truth-runs": {"type": int, "default": 4, "help": "of the planner in the simulator"},
    },
    partly=["--row", "--part"],
)


if __name__ == "__main__":
    PAGE.main()
