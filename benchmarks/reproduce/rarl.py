"""RARL: forces that learn, and what an agent keeps of other masses and frictions when it was trained against them.

    python benchmarks/reproduce/rarl.py --work FOLDER --victims FOLDER

Pinto et al. 2017 train an agent and an adversary that pushes its body, and then vary mass and friction. Here both are
PPO (the paper: TRPO), a million steps each, of two layers of 64; forces act on the feet, of HalfCheetah on the torso
too. Forces of one size act on a fixed agent over ten episodes; the grid scales all masses and all frictions, five
episodes each. Plain agents and those that met forces share algorithm, settings, steps and seed.
"""

from __future__ import annotations

import itertools
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
from figures import kept, margin, of_row, table
from page import AGAIN, VICTIMS, WORK, Data, Page, Results, episode_options, prose

import adv_wrappers as adv

TASKS = ("hopper", "halfcheetah")
SHIPPED = Path("benchmarks/reproduce/rarl")
BODIES = {"Hopper-v5": ("foot",), "HalfCheetah-v5": ("torso", "bfoot", "ffoot")}
TRAINED_AT = {"Hopper-v5": 20.0, "HalfCheetah-v5": 10.0}  # newtons
STEPS, ATTACK_STEPS, SEEDS = 1_000_000, 400_000, (1, 2, 3)
# agents that forces learn against, their environments, and the size of the forces in newtons
ATTACKED: dict[str, tuple[str, float]] = {
    "zoo:hopper-ppo": ("Hopper-v5", 40.0), "hopper-ppo": ("Hopper-v5", 40.0),
    "halfcheetah-ppo": ("HalfCheetah-v5", 20.0), "wocar-halfcheetah-ppo": ("HalfCheetah-v4", 20.0),
}  # fmt: skip
AGENT_SEEDS = (0, 1)
FACTORS = (0.5, 0.7, 0.85, 1.0, 1.15, 1.3, 1.5)
EPISODES_OF_GRID = 5


def agent(name: str, given: Any) -> str:
    """The reference of an agent: of the zoo, of the folder of victims, shipped, or trained here."""
    if name.startswith("zoo:"):
        return name
    if name.startswith("wocar"):
        return f"card:{given.victims / name}"
    folder = SHIPPED / name
    if name.startswith("hopper-ppo"):  # the same settings, trained for another page
        folder = Path(f"benchmarks/reproduce/hardened/hopper-ppo-s{seed_of(name)}")
    if not (folder / "card.json").exists():
        folder = given.work / "agents" / name
        train(name, folder)
    return f"card:{folder}"


def named(task: str, kind: str, seed: int) -> str:
    """The name of an agent, such as ``hopper-rarl`` and, of seed 1, ``hopper-rarl-s1``."""
    return f"{task}-{kind}" + (f"-s{seed}" if seed else "")


def seed_of(name: str) -> int:
    """The seed that an agent was trained from."""
    seed = name.rpartition("-s")[2]
    return int(seed) if seed.isdigit() else 0


def train(name: str, folder: Path) -> None:
    """Train an agent, or go on; with ``rarl`` in its name in turns with forces."""
    env = next(env for env in BODIES if env.lower().startswith(name.partition("-")[0]))
    against: dict[str, Any] = {"adversary": None}
    if "rarl" in name:
        against = {"adversary": adv.Forces(bodies=BODIES[env]), "within": adv.Linf(TRAINED_AT[env])}
    adv.train_agent(env, steps=STEPS, seed=seed_of(name), checks=20, out=folder, **against)


def bodies_of(env: str) -> tuple[str, ...]:
    """The bodies that are pushed, of any version of a task."""
    return BODIES[f"{env.partition('-')[0]}-v5"]


def pushed(name: str, given: Any, episodes: int, seed: int) -> dict[str, Any]:
    """The rows of an agent under forces that learned, one a seed, and random ones."""
    began = time.perf_counter()
    env, eps = ATTACKED[name]
    ref, bodies = agent(name, given), bodies_of(env)
    learned = [
        adv.train_adversary(
            adv.Forces(bodies=bodies), env, ref, eps, ATTACK_STEPS, seed=each, checks=8, episodes=10,
            out=given.work / "forces" / f"{name.replace(':', '-')}-{each}",
        )
        for each in SEEDS
    ]  # fmt: skip
    trained = time.perf_counter() - began
    within, at = adv.Linf(eps), adv.Forces(bodies=bodies).at
    random = [
        adv.ThreatModel("dynamics", adv.DynamicsNoise(every=every), within, at=at) for every in ("step", "episode")
    ]
    rows = adv.evaluate(ref, env, [*random, *learned], episodes=episodes, seed=seed).threats
    names = ["none", "random, every step", "random, every episode", *(f"learned, seed {each}" for each in SEEDS)]
    found = {said: kept(row) for said, row in zip(names, rows, strict=True)}
    for row in found.values():  # a result must not name a folder of a machine
        row["threat"] = row["threat"].replace(str(given.work), "FOLDER")
    return {"rows": found, "seconds": trained}


def grid(name: str, given: Any, episodes: int, seed: int) -> dict[str, Any]:
    """The mean returns of an agent over factors of mass and friction, ``[mass][friction]``."""
    env = next(env for env in BODIES if env.lower().startswith(name.partition("-")[0]))
    threats = [
        [f"fixed-dynamics:at=mass,values={mass}", f"fixed-dynamics:at=friction,values={friction}"]
        for mass in FACTORS
        for friction in FACTORS
    ]
    rows = adv.evaluate(agent(name, given), env, threats, episodes=episodes, seed=seed).threats[1:]
    means = [row["mean_return"] for row in rows]
    size = len(FACTORS)
    return {"means": [means[i : i + size] for i in range(0, size * size, size)]}


def body(data: Data) -> list[str]:
    """The page after its head."""
    rows = []
    for name, (env, eps) in ATTACKED.items():
        found = data.get("forces", {}).get(name)
        if found is None:
            continue
        random = found["rows"]["random, every step"]
        for said, row in found["rows"].items():
            wins = "-"
            if said.startswith("learned"):
                pairs = zip(row["returns"], random["returns"], strict=True)
                wins = f"{sum(a < b for a, b in pairs)} of {len(row['returns'])}"
            less = "-" if said == "none" else margin(row, random) if said != "random, every step" else "-"
            rows.append([f"{name}, {env}", f"{eps:g} N", said, of_row(row), less, wins])
    text = [*prose(__doc__), table(
        ["agent", "size", "forces", "return", "beside random, every step", "episodes below random, every step"], rows,
    )]  # fmt: skip
    grids = data.get("grid", {})
    rows = []
    for task, seed in itertools.product(TASKS, AGENT_SEEDS):
        pair = [grids.get(named(task, kind, seed)) for kind in ("ppo", "rarl")]
        if None in pair:
            continue
        means = [[value for line in one["means"] for value in line] for one in pair]
        middle = len(FACTORS) // 2
        won = sum(b > a for a, b in zip(*means, strict=True))
        rows.append([
            f"{task}, seed {seed}", *(f"{one['means'][middle][middle]:.0f}" for one in pair),
            *(f"{statistics.fmean(values):.0f}" for values in means), *(f"{min(values):.0f}" for values in means),
            f"{won} of {len(means[0])}",
        ])  # fmt: skip
    if rows:
        heads = ["task", "PPO, own dynamics", "RARL, own dynamics", "PPO, mean of the grid", "RARL, mean of the grid"]
        heads += ["PPO, lowest", "RARL, lowest", "cells in which RARL earns more"]
        text += ["![mean returns over factors of mass and friction](rarl.png)", table(heads, rows)]
    return text


def draw(data: Data, folder: Path) -> None:
    """The heat maps of all agents."""
    from matplotlib.figure import Figure

    grids = data.get("grid", {})
    maps = {
        (task, kind): [grids[name]["means"] for seed in AGENT_SEEDS if (name := named(task, kind, seed)) in grids]
        for task in TASKS
        for kind in ("ppo", "rarl")
    }
    tasks = [task for task in TASKS if maps[task, "ppo"] and maps[task, "rarl"]]
    if not tasks:
        return
    figure = Figure((7.4, 3.1 * len(tasks)), layout="constrained", dpi=110)
    axes = figure.subplots(len(tasks), 2, squeeze=False)
    for line, task in zip(axes, tasks, strict=True):
        both = {kind: np.mean(maps[task, kind], axis=0) for kind in ("ppo", "rarl")}
        high = max(means.max() for means in both.values())
        for axis, (kind, means) in zip(line, both.items(), strict=True):
            image = axis.imshow(means, origin="lower", vmin=0, vmax=high, cmap="viridis")
            ticks = range(len(FACTORS)), [f"{factor:g}" for factor in FACTORS]
            axis.set_xticks(*ticks)
            axis.set_yticks(*ticks)
            axis.set(xlabel="friction", ylabel="mass", title=f"{task}, {'RARL' if kind == 'rarl' else 'plain PPO'}")
        figure.colorbar(image, ax=list(line), label="mean return")
    figure.savefig(folder / "rarl.png", metadata={"Software": None})


def measure(results: Results) -> None:
    """Measure what is missing."""
    given = results.given
    for name in (named(*one) for one in itertools.product(TASKS, ("ppo", "rarl"), AGENT_SEEDS)):
        how = {"episodes": EPISODES_OF_GRID, "seed": given.seed}
        results.once(results.part("grid"), name, grid, name, given, **how)
    for name in ATTACKED:
        results.once(results.part("forces"), name, pushed, name, given, episodes=given.episodes, seed=given.seed)


PAGE = Page(
    "rarl",
    "Forces that learn, and agents that met them",
    __doc__,
    measure,
    body,
    draw,
    page="surfaces",
    options={**WORK, **VICTIMS, **episode_options(10), **AGAIN},
    needs=["--work", "--victims"],
)

if __name__ == "__main__":
    PAGE.main()
