"""RADIAL-DQN and SA-DQN on CartPole and MountainCar: clean, greedy worst-case and certified returns over eps.

    python benchmarks/reproduce/radial_dqn.py --work FOLDER

Trains DQN from scratch with every method (Oikarinen et al. 2020: equation 5, and the later form of the authors' code;
Zhang et al. 2020: the hinge of SA-DQN) and three seeds, and certifies what comes out; trainings resume.
"""

from __future__ import annotations

import argparse
import itertools
import time
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gymnasium as gym
from figures import span, table
from page import WORK, Data, Page, Results, episode_options

import adv_wrappers as adv
from adv_wrappers.certification.all_starts import certify_all_starts
from adv_wrappers.core.budgets.budget import Budget
from adv_wrappers.training.defences.radial import RadialDQN
from adv_wrappers.training.defences.sa import SADQN


@dataclass(frozen=True)
class Game:
    """An environment, how agents are trained there, and the budgets that are certified."""

    env: str
    steps: int
    eps: float
    certified: tuple[float, ...]
    zoo: str
    scale: tuple[float, ...] | None = None
    from_zoo: bool = False
    given: dict[str, Any] = field(default_factory=dict)

    def within(self, eps: float) -> Budget:
        """The budget of a radius."""
        return adv.Linf(eps, self.scale)


GAMES = {
    "cartpole": Game("CartPole-v1", 160_000, 0.05, (0.01, 0.02, 0.05), "zoo:cartpole-dqn"),
    "mountaincar": Game(  # from scratch it takes far more updates, so training goes on from the agent of the zoo
        "MountainCar-v0", 40_000, 0.02, (0.005, 0.01, 0.02), "zoo:mountaincar-dqn", (0.9, 0.07), True,
        {"rewards": "raw", "settings": {"gamma": 0.98, "learning_rate": 5e-4, "exploration_fraction": 0.01}},
    ),
}  # fmt: skip
ZOO = "agent of the zoo"
METHODS: dict[str, Any] = {
    ZOO: None,
    "plain": None,
    "RADIAL, overlap": RadialDQN(),
    "RADIAL, equation 5": RadialDQN(0.5, form="equation-5"),
    "SA-DQN": SADQN(),
}


def done(row: dict[str, Any], game: Game, arguments: argparse.Namespace) -> bool:
    """Whether an earlier run has measured an agent, searches included where they are asked for."""
    measured = [row.get(f"{eps:g}") for eps in game.certified]
    return all(at is not None and (at["lower"] is not None or not arguments.boxes) for at in measured)


def train(game: Game, method: str, seed: int, folder: Path) -> tuple[adv.Victim, dict[str, Any]]:
    """The agent of a training, and the figures of its best checkpoint; resumes an earlier one."""
    if method == ZOO:
        return adv.load_victim(game.zoo), {"steps": 0, "seconds": 0.0}
    hardened = adv.train_agent(
        game.env,
        None,
        within=game.within(game.eps),
        steps=game.steps,
        algorithm="dqn",
        num_envs=8,
        seed=seed,
        robust=METHODS[method],
        victim=game.zoo if game.from_zoo else None,
        checks=32,
        episodes=20,
        out=folder,
        **game.given,
        progress=lambda steps, clean, attacked: print(game.env, method, seed, steps, clean, flush=True),
    )
    seconds = hardened.record[-1]["seconds"]["agent"]
    return hardened.victim, {"steps": hardened.record[hardened.best]["steps"], "seconds": seconds}


def certify(game: Game, victim: adv.Victim, row: dict[str, Any], arguments: argparse.Namespace) -> None:
    """Certificates at every eps."""
    for eps in game.certified:
        began = time.process_time()
        found = adv.certify(
            victim,
            game.env,
            episodes=arguments.episodes,
            seed=arguments.seed,
            within=game.within(eps),
            method="full-crown",
            budget_s=None,
            max_nodes=0,
        )
        boxes = arguments.boxes and certify_all_starts(
            victim, gym.make(game.env), within=game.within(eps), budget_s=None, max_boxes=arguments.boxes
        )
        row["clean"] = found.clean
        row[f"{eps:g}"] = {
            "gwc": found.gwc,
            "acr": found.acr,
            "lower": boxes.lower if boxes else None,
            "seconds": round(time.process_time() - began, 1),
        }


def section(game: Game, rows: dict[str, Any]) -> list[str]:
    """The table of one game."""
    lines = []
    for method in METHODS:
        seeds = [row for row in rows.get(method, {}).values() if "clean" in row]
        for eps in game.certified if seeds else ():
            at = [row[f"{eps:g}"] for row in seeds]
            cells = [span([row["gwc"] for row in at]), span([row["acr"] for row in at], 2)]
            count = "-" if method == ZOO else len(seeds)
            clean = span([row["clean"] for row in seeds])
            lines.append([method, count, clean, f"{eps:g}", *cells, span([row["lower"] for row in at])])
    unit = "raw units" if game.scale is None else f"units of {game.scale}"
    start = f"from {game.zoo}" if game.from_zoo else "from scratch"
    return [
        f"{game.env}, trained {start} for {game.steps} steps at eps {game.eps:g} in {unit}:",
        table(["method", "seeds", "clean", "eps", "GWC", "ACR", "at least"], lines),
    ]


def body(data: Data) -> list[str]:
    """The section after its head."""
    about = (
        "Means over the seeds of the training, with their range. Every trained agent is the best checkpoint of the "
        "second half of its training by the mean of clean return and GWC; figures are of "
        f"{data['episodes']} other episodes and of full CROWN, `at least` the certified return of all starts (a search "
        f"over {data['boxes']} boxes of states). `overlap` is the later form of the authors' code."
    )
    return [about, *(part for name, game in GAMES.items() for part in section(game, data["games"][name]))]


def measure(results: Results) -> None:
    """Train and certify what is not there yet, or measure what agents of Atari would take."""
    given = results.given
    warnings.filterwarnings("ignore")
    results.need("--work", "for what is trained")
    results.data |= {"episodes": given.episodes, "boxes": given.boxes}
    for seed, name, method in itertools.product(given.seeds, given.games, given.methods):
        row, game = results.part("games", name, method, str(seed)), GAMES[name]
        if done(row, game, given):
            continue
        folder = given.work / f"{name}-{method.replace(', ', '-').replace(' ', '-')}-{seed}"
        victim, trained = train(game, method, seed, folder)
        row |= trained
        certify(game, victim, row, given)
        results.keep()


PAGE = Page(
    "radial_dqn",
    "RADIAL-DQN: clean, greedy worst-case and certified returns",
    __doc__,
    measure,
    body,
    page="radial",
    options={
        **WORK,
        **episode_options(20),
        "--seeds": {"type": int, "nargs": "+", "default": [0, 1, 2], "help": "of the trainings"},
        "--boxes": {"type": int, "default": 500_000, "help": "boxes of states that a search follows, 0 for none"},
        "--games": {"nargs": "+", "choices": GAMES, "default": list(GAMES)},
        "--methods": {"nargs": "+", "choices": METHODS, "default": list(METHODS)},
    },
    partly=["--games", "--methods"],
)


if __name__ == "__main__":
    PAGE.main()
