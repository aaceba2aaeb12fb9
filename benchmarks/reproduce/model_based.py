"""Model-based attacks on tasks of the DeepMind Control Suite: Tables 1 and 2 of Weng et al. 2020.

    python benchmarks/reproduce/model_based.py --models FOLDER [--row NAME ...] [--part NAME ...]

For every row a model is learned from transitions of the zoo's agent and of random actions (kept in FOLDER), eps is
chosen on other seeds, and ten runs of 1000 control steps are played at it: without an attack, under noise of which the
best draw counts (rand-U and rand-B), under flipped observations or actions, under the attack at one setting, under the
best of the paper's grid of settings for every run, and under a planner that plans in the simulator itself. Rows whose
agents the zoo does not have (humanoid's: ``examples/train_victim.py`` has their recipes) say so, and ``--cost``
measures what they would take. Writes ``model_based.json`` as results come (a killed run goes on where it stopped) and
``model_based.md``, which ``--page`` writes alone.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from figures import load, machine, processor, save, write
from model_based_page import markdown

import adv_wrappers as adv
from adv_wrappers.victims import zoo_names
from adv_wrappers.victims.dynamics import load_dynamics

RUNS, SEED = 10, 0
OTHER_RUNS, OTHER_SEED = 4, 1  # that eps is chosen on
LRS, APPLIES = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0), (1, 2)  # of the paper's grid: six learning rates, and n
PARTS = ("sweep", "table", "truth", "grid")
OBS, ACT = "observation", "action"


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


def sweep(row: Row, model: str, found: dict[str, Any], keep: Callable[[], None]) -> None:
    """Losses on other seeds by eps."""
    other = {"runs": OTHER_RUNS, "seed": OTHER_SEED}
    for eps in row.radii:
        cells = found.setdefault(f"{eps:g}", {})
        wanted = {
            "flip": (f"{row.prefix}flip:eps={eps}", 1),
            "noise": (f"{row.prefix}noise:kind={row.signs},eps={eps}", 10),
            "attack": (attack(row, model, eps, row.steps), 1),
        }
        for name, (threat, draws) in wanted.items():
            if name not in cells:
                cells[name] = cell(row, threat, best_of=draws, **other)
                keep()


def chosen(row: Row, found: Mapping[str, Any]) -> float:
    """Of the radii tried the one at which the attack is farthest ahead of the best baseline, on other seeds."""

    def ahead(eps: float) -> float:
        cells = {name: float(np.mean(one["losses"])) for name, one in found[f"{eps:g}"].items()}
        return min(cells["flip"], cells["noise"]) - cells["attack"]

    return max(row.radii, key=ahead)


def table(row: Row, model: str, eps: float, found: dict[str, Any], keep: Callable[[], None]) -> None:
    """The columns at the chosen eps."""
    wanted: dict[str, tuple[str | None, int]] = {
        "none": (None, 1),
        "flip": (f"{row.prefix}flip:eps={eps}", 1),
        "attack": (attack(row, model, eps, row.steps), 1),
        "rand-U": (f"{row.prefix}noise:kind=uniform,eps={eps}", row.draws),
        "rand-B": (f"{row.prefix}noise:kind={row.signs},eps={eps}", row.draws),
    }
    for name, (threat, draws) in wanted.items():
        if name not in found:
            found[name] = cell(row, threat, best_of=draws)
            keep()


def grid(row: Row, model: str, eps: float, found: dict[str, Any], keep: Callable[[], None]) -> None:
    """Every setting of the paper's grid, of which the best of each run counts."""
    for lr, steps, apply in row.settings:
        name = f"lr={lr:g}, T={steps}, n={apply}"
        if name not in found:
            found[name] = cell(row, attack(row, model, eps, steps, lr=lr, apply=apply, iterations=30, restarts=1))
            keep()


def training_cost(task: str, decisions: int = 500) -> dict[str, Any]:
    """Decisions, and seconds of the processor, of a short training by the recipe of an agent, which is not kept."""
    from stable_baselines3.common.env_util import make_vec_env

    sys.path.append(str(Path(__file__).resolve().parents[2] / "examples"))
    from train_victim import RECIPES, make_env

    recipe = dict(RECIPES[f"{task}-sac"])
    algorithm, wanted = recipe.pop("algorithm"), recipe.pop("steps")
    name, kwargs, rows = recipe.pop("env"), recipe.pop("env_kwargs"), recipe.pop("num_envs")
    env = make_vec_env(lambda: make_env(name, **kwargs), n_envs=rows, seed=SEED)
    model = algorithm("MlpPolicy", env, seed=SEED, device="cpu", **recipe | {"learning_starts": 300})
    model.learn(300)  # these play at random and learn nothing
    begun = time.process_time()
    model.learn(decisions, reset_num_timesteps=False)
    seconds = time.process_time() - begun
    return {"decisions": decisions, "seconds": seconds, "wanted": wanted, "processor": processor()}


def main() -> None:
    """Measure what was asked for and is not there yet."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=Path, help="for the learned models and their transitions")
    parser.add_argument("--page", action="store_true", help="the page alone, from what was measured")
    parser.add_argument("--cost", action="store_true", help="measure what agents that are missing would take, alone")
    parser.add_argument("--row", nargs="+", choices=NAMES, default=NAMES)
    parser.add_argument("--part", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--truth-runs", type=int, default=4, help="of the planner in the simulator")
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    arguments = parser.parse_args()
    path = arguments.out / "model_based.json"
    results = load(path) or {"rows": {}}
    if arguments.page or arguments.cost:
        if arguments.cost:
            torch.set_num_threads(1)
            results["cost"] = {row.task: training_cost(row.task) for row in ROWS if not row.has_victim}
            save(path, results)
        write(arguments.out / "model_based.md", markdown(results, ROWS))
        return
    if arguments.models is None:
        parser.error("--models FOLDER is needed for what is learned")
    results |= {"machine": machine(), "truth_runs": arguments.truth_runs}

    def keep() -> None:
        save(path, results)
        write(arguments.out / "model_based.md", markdown(results, ROWS))

    for row in ROWS:
        if row.name not in arguments.row:
            continue
        if not row.has_victim:
            print(f"{row.name}: the zoo has no {row.victim}; python examples/train_victim.py {row.task}-sac trains it")
            continue
        model, found = model_of(row, arguments.models), results["rows"].setdefault(row.name, {})
        found["errors"] = load_dynamics(model).card["errors"]
        if "sweep" in arguments.part:
            sweep(row, model, found.setdefault("sweep", {}), keep)
        eps = chosen(row, found["sweep"])
        if found.get("eps", eps) != eps:  # cells of another eps are of another table
            found = results["rows"][row.name] = {key: found[key] for key in ("sweep", "errors")}
        found["eps"] = eps
        if "table" in arguments.part:
            table(row, model, eps, found.setdefault("table", {}), keep)
        if "truth" in arguments.part and "truth" not in found:
            found["truth"] = cell(row, truth(row, eps), arguments.truth_runs)
        if "grid" in arguments.part:
            grid(row, model, eps, found.setdefault("grid", {}), keep)
        keep()
        print(
            row.name,
            f"eps {eps:g}",
            {name: round(float(np.mean(one["losses"]))) for name, one in found.get("table", {}).items()},
        )


if __name__ == "__main__":
    main()
