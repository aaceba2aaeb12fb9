"""RADIAL-PPO beside plain PPO and SA-PPO: the shape of Table 1 of Oikarinen et al. 2020, and a sweep like its Figure 1.

    python benchmarks/reproduce/radial.py --work FOLDER
    python benchmarks/reproduce/radial.py --work FOLDER --agents "Pong:RADIAL-PPO=card:FOLDER"

Trains PPO on CartPole and MountainCar from scratch with every method, and measures what comes out: clean and attacked
returns, and what is certified. Variants are trained with the first seed alone. Agents that were trained elsewhere are
given by ``--agents``, as ``GAME:NAME=REFERENCE``. Trainings resume.
"""

from __future__ import annotations

import argparse
import itertools
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from figures import filled, span
from page import WORK, Data, Page, Results, episode_options
from radial_paper import AGENTS, TABLE_1

import adv_wrappers as adv
from adv_wrappers.core.training_schedules import LinearSchedule
from adv_wrappers.evaluation.searches.beam import beam_search
from adv_wrappers.threats.presets import parse_threat
from adv_wrappers.training.defences.radial import Radial
from adv_wrappers.training.defences.sa import SARegularizer
from adv_wrappers.victims.certified_actions import Method


@dataclass(frozen=True)
class Game:
    """An environment, and what is measured there.

    Attributes:
        scale: the unit of eps, one number a feature.
        unit: what eps is divided by on the page.
        method: of the bounds behind GWC and ACR; searches take those that are fast, ``crown``.
        searched: whether the tree of possible actions is searched.
    """

    env: str
    eps: tuple[float, ...]
    scale: tuple[float, ...] | None = None
    unit: int = 1
    method: Method = "full-crown"
    searched: bool = True


@dataclass(frozen=True)
class Training:
    """How PPO learns a game from scratch.

    Attributes:
        steps: of the environment.
        methods: by name, what makes the loss robust, and eps.
        given: further arguments of :func:`adv_wrappers.train_agent`.
        variants: methods that are trained with the first seed alone.
    """

    steps: int
    methods: Mapping[str, tuple[Any, float]]
    given: Mapping[str, Any]
    variants: Mapping[str, tuple[Any, float]] = field(default_factory=dict)


ATARI: dict[str, Any] = {"unit": 255, "method": "interval", "searched": False}
GAMES = {
    "CartPole": Game("CartPole-v1", (0.01, 0.02, 0.05)),
    "MountainCar": Game("MountainCar-v0", (0.005, 0.01, 0.02), (0.9, 0.07)),
    "Pong": Game("PongNoFrameskip-v4", (1.0, 3.0), **ATARI),
    "RoadRunner": Game("RoadRunnerNoFrameskip-v4", (1.0,), **ATARI),
    "BankHeist": Game("BankHeistNoFrameskip-v4", (1.0,), **ATARI),
}
TRAININGS = {
    "CartPole": Training(
        200_000,
        {"PPO": (None, 0.1), "RADIAL-PPO": (Radial(0.5, form="ratio"), 0.1)},
        {
            "num_envs": 8, "rewards": "raw", "observations": "raw", "checks": 10, "episodes": 10,
            "settings": {
                "n_steps": 128, "n_epochs": 10, "batch_size": 256, "learning_rate": LinearSchedule(0.0, 1e-3),
                "gamma": 0.98, "gae_lambda": 0.8, "ent_coef": 0.0,
            },
        },
        {
            "SA-PPO": (SARegularizer(0.1), 0.1),
        },
    ),
    "MountainCar": Training(
        600_000,
        {"PPO": (None, 0.02), "RADIAL-PPO": (Radial(0.5, LinearSchedule(0.0, 1.0, 0.4, 0.8)), 0.02)},
        {
            "num_envs": 16, "checks": 20, "episodes": 20,
            "settings": {
                "n_steps": 16, "n_epochs": 4, "batch_size": 64, "learning_rate": LinearSchedule(0.0, 6e-4),
                "gamma": 0.99, "gae_lambda": 0.98, "ent_coef": 0.0,
            },
        },
    ),
}  # fmt: skip
SWEEP = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2)  # of the figure, on CartPole


def train(game: str, method: str, seed: int, folder: Path) -> tuple[adv.Victim, dict[str, Any]]:
    """The agent of a training, and the figures of its best checkpoint; resumes an earlier one."""
    about = TRAININGS[game]
    robust, eps = {**about.methods, **about.variants}[method]
    hardened = adv.train_agent(
        GAMES[game].env,
        None,
        eps,
        about.steps,
        seed=seed,
        robust=robust,
        scale=GAMES[game].scale,
        out=folder,
        progress=lambda steps, clean, attacked: print(game, method, seed, steps, clean, flush=True),
        **about.given,
    )
    best, last = hardened.record[hardened.best], hardened.record[-1]
    return hardened.victim, {"steps": best["steps"], "seconds": last["seconds"]["agent"], "protocol": hardened.protocol}


def measured(game: Game, row: dict[str, Any]) -> bool:
    """Whether an earlier run has measured all of a row."""
    return all("gwc" in row.get(f"{eps:g}", {}) for eps in game.eps)


def searched(game: Game, row: dict[str, Any], arguments: argparse.Namespace) -> bool:
    """Whether an earlier run has searched all of a row that is to be searched."""
    return not (game.searched and arguments.searched) or all("beam" in row.get(f"{eps:g}", {}) for eps in game.eps)


def beam(
    game: Game, victim: adv.Victim, row: dict[str, Any], arguments: argparse.Namespace, keep: Callable[[], None]
) -> None:
    """Search the episodes that are certified, at every eps where that is missing; ``keep`` is called as they come."""
    for eps in game.eps if game.searched and arguments.searched else ():
        if "beam" not in row[f"{eps:g}"]:
            within = adv.Linf(eps, game.scale)
            found = beam_search(victim, game.env, None, arguments.searched, arguments.seed, within=within)
            row[f"{eps:g}"]["beam"] = float(found.returns.mean())
            keep()


def certify(
    game: Game, victim: adv.Victim, row: dict[str, Any], arguments: argparse.Namespace, keep: Callable[[], None]
) -> None:
    """Attacked and certified returns at every eps; ``keep`` is called as they come, and what is there stays."""
    budgets = {eps: adv.Linf(eps, game.scale) for eps in game.eps}
    attacks = [parse_threat(text, within=within) for within in budgets.values() for text in ("fgsm", "pgd:steps=30")]
    episodes = arguments.episodes if game.unit == 1 else arguments.image_episodes
    if "clean" not in row:
        report = adv.evaluate(victim, game.env, attacks, episodes=episodes, seed=arguments.seed).to_dict()
        clean, *attacked = report["threats"]
        for i, eps in enumerate(game.eps):
            row[f"{eps:g}"] = {"fgsm": attacked[2 * i]["mean_return"], "pgd": attacked[2 * i + 1]["mean_return"]}
        row |= {"clean": clean["mean_return"], "clean_std": clean["std"], "episodes": episodes}
        keep()
    for eps in game.eps:
        at, began = row[f"{eps:g}"], time.monotonic()
        if "gwc" in at:
            continue
        found = None
        if game.searched and arguments.searched:
            found = adv.certify(victim, game.env, eps, arguments.searched, arguments.seed, budget_s=arguments.budget_s)
        shown = adv.certify(
            victim, game.env, None, episodes, arguments.seed, game.method, None, within=budgets[eps], max_nodes=0
        )
        at |= {"lower": found.lower, "finished": found.finished} if found else {"lower": None, "finished": None}
        at |= {"gwc": shown.gwc, "acr": shown.acr, "minutes": round((time.monotonic() - began) / 60, 1)}
        keep()


def sweep(victim: adv.Victim, arguments: argparse.Namespace) -> dict[str, list[float]]:
    """Returns under PGD, and greedy worst-case returns, over eps."""
    found: dict[str, list[float]] = {"pgd": [], "gwc": []}
    for eps in SWEEP:
        entry = adv.evaluate(
            victim,
            "CartPole-v1",
            [f"pgd:eps={eps:g},steps=30"] if eps else [],
            episodes=arguments.episodes,
            seed=arguments.seed,
        ).to_dict()["threats"][-1]
        certificate = adv.certify(
            victim,
            "CartPole-v1",
            eps,
            arguments.episodes,
            arguments.seed,
            method="full-crown",
            budget_s=None,
            max_nodes=0,
        )
        found["pgd"].append(entry["mean_return"])
        found["gwc"].append(certificate.gwc)
    return found


def draw(data: Data, folder: Path) -> None:
    """The sweep: lines over eps, one colour an agent."""
    if not data.get("sweep"):
        return
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot as plt

    shown, axes = plt.subplots(figsize=(8, 3.5))
    for i, (name, lines) in enumerate(data["sweep"].items()):
        for what, style in (("pgd", "-"), ("gwc", "--")):
            label = f"{name}, {'PGD-30' if what == 'pgd' else 'GWC'}"
            axes.plot(SWEEP, lines[what], style, color=f"C{i}", marker=".", label=label)
    axes.set(xlabel="eps in raw units", ylabel="mean return")
    axes.legend(fontsize=7, loc="center left", bbox_to_anchor=(1, 0.5), handlelength=4)
    shown.tight_layout()
    shown.savefig(folder / "radial.png", dpi=120, metadata={"Software": None})
    plt.close(shown)


def body(data: Data) -> list[str]:
    """The section after its head."""
    parts = [
        f"{AGENTS}. Ours are PPO on 84x84 images of four frames, trained for hours of a core: compare a hardened agent "
        "with the plain one that it comes from.",
        "Means over the seeds of a training, with their range. GWC is the greedy worst-case return, an estimate; ACR "
        "the share of the steps of the clean path with one possible action; `at least` the certified return (searches "
        f"of {data['budget_s']:g} seconds by CROWN, {data['searched']} episodes); `beam` the search over whole "
        f"episodes, the strongest attack here. Other figures are of {data['episodes']} episodes, of Atari "
        f"{data['image_episodes']}.",
    ]
    for name, game in GAMES.items():
        lines = []
        for method, seeds in data["games"].get(name, {}).items():
            rows = [row for row in seeds.values() if measured(game, row)]
            for eps in game.eps if rows else ():
                at = [row[f"{eps:g}"] for row in rows]
                clean = span([row["clean"] for row in rows], 1)
                radius = f"{eps:g}/{game.unit}" if game.unit > 1 else f"{eps:g}"
                cells = [span([row[what] for row in at], 1) for what in ("fgsm", "pgd", "gwc")]
                cells.insert(2, span([row["beam"] for row in at if "beam" in row], 1))
                lower = [row["lower"] for row in at]
                cells += [span([row["acr"] for row in at], 2), "-" if None in lower else span(lower)]
                lines.append([method, str(len(rows)), clean, radius, *cells])
        if lines:
            header = ["agent", "seeds", "clean", "eps", "FGSM", "PGD-30", "beam", "GWC", "ACR", "at least"]
            parts += [f"## {game.env}", NOTES[name], filled(header, lines + paper_rows(name))]
    return [*parts, "CartPole over eps, the first seed of every training:", "![Mean returns over eps](radial.png)"]


def paper_rows(game: str) -> list[list[str]]:
    """The paper's own agents of a game, as rows of its table."""
    rows = []
    for name in ("A3C", "RADIAL-A3C", "DQN", "RADIAL-DQN"):
        cells = ["-" if cell is None else cell for cell in TABLE_1.get(game, {}).get(name, ())]
        if cells:
            clean, near, far, gwc = cells
            rows.append([f"the paper's {name}", "-", clean, "1/255", "-", near, "-", gwc, "-", "-"])
            rows.append([f"the paper's {name}", "-", clean, "3/255", "-", far, "-", "-", "-", "-"])
    return rows


NOTES = {
    "CartPole": f"From scratch for {TRAININGS['CartPole'].steps} steps, raw units, at eps 0.1 and kappa 0.5; the best "
    "checkpoint of the second half by the mean of clean return and GWC (of plain PPO by clean return).",
    "MountainCar": f"From scratch for {TRAININGS['MountainCar'].steps} steps with normalised observations, at eps 0.02 "
    f"in units of {GAMES['MountainCar'].scale}. A certified return of -200 says nothing.",
    "Pong": "No sticky actions; eps in grey levels of the range. `zoo:pong-radial-ppo` goes on from `zoo:pong-ppo` for "
    "700 000 steps (`examples/train_victim.py`). Equation 6 alone made the policy nearly uniform, or lost its clean "
    "return: the plain agent's interval bounds are 10^4 times as wide as the gap between its logits. So it imitates "
    "the plain agent's policy as it is seen clean and in the worst case, which is not of the paper.",
    "RoadRunner": "As Pong. The plain agent had 1.1 of the 3 million steps of its recipe, the hardened 500 000 more.",
    "BankHeist": "As Pong. The plain agent had 2.4 of the 3 million steps of its recipe, the hardened 300 000 more.",
}


def measure(results: Results) -> None:
    """Train and measure what is not there yet, or measure what a game without agents would take."""
    given, data = results.given, results.data
    warnings.filterwarnings("ignore")
    results.need("--work", "for what is trained")
    data |= {name: getattr(given, name) for name in ("episodes", "image_episodes", "searched", "budget_s")}

    def finish(row: dict[str, Any], game: str, victim: adv.Victim) -> None:
        certify(GAMES[game], victim, row, given, results.keep)
        beam(GAMES[game], victim, row, given, results.keep)

    for seed, game in itertools.product(given.seeds, given.games):
        first, about = seed == given.seeds[0], TRAININGS[game]
        for method in [*about.methods, *(about.variants if first else ())]:
            row = results.part("games", game, method, str(seed))
            sweeps = given.sweep and game == "CartPole" and first and method not in results.part("sweep")
            if measured(GAMES[game], row) and searched(GAMES[game], row, given) and not sweeps:
                continue
            folder = given.work / f"{game.lower()}-{method.replace(', ', '-').replace(' ', '-')}-{seed}"
            victim, trained = train(game, method, seed, folder)
            if not measured(GAMES[game], row):
                row |= trained
            finish(row, game, victim)
            if sweeps:
                results.once(data["sweep"], method, sweep, victim, given)
    for agent in given.agents:
        place, _, reference = agent.partition("=")
        game, _, name = place.partition(":")
        finish(results.part("games", game, name, "0"), game, adv.load_victim(reference))


PAGE = Page(
    "radial",
    "RADIAL-PPO: attacked and certified returns",
    __doc__,
    measure,
    body,
    draw,
    page="radial",
    options={
        **WORK,
        "--agents": {"nargs": "*", "default": [], "metavar": "GAME:NAME=REF", "help": "agents trained elsewhere"},
        "--games": {"nargs": "*", "choices": TRAININGS, "default": list(TRAININGS), "help": "to train from scratch"},
        "--seeds": {"type": int, "nargs": "+", "default": [0, 1, 2], "help": "of the trainings"},
        **episode_options(20),
        "--image-episodes": {"type": int, "default": 5},
        "--budget-s": {"type": float, "default": 10.0, "help": "seconds of a search"},
        "--searched": {"type": int, "default": 3, "help": "episodes that are searched; 0 for none"},
        "--sweep": {"action": "store_true", "help": "measure the figure's lines"},
    },
)


if __name__ == "__main__":
    PAGE.main()
