"""RADIAL-DQN and SA-DQN on CartPole and MountainCar: clean, greedy worst-case and certified returns over eps.

    python benchmarks/reproduce/radial_dqn.py --work FOLDER

Trains DQN from scratch with every method (Oikarinen et al. 2020: equation 5, and the later form of the authors' code;
Zhang et al. 2020: the hinge of SA-DQN) and three seeds, and certifies what comes out; trainings resume. ``--cost``
measures what agents of Atari would take.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gymnasium as gym
from figures import span, table
from page import WORK, Data, Page, Results, episode_options
from radial import FREEWAY, measured_cost, predicted
from radial_paper import AGENTS, TABLE_1, table_1

import adv_wrappers as adv
from adv_wrappers.certification.all_starts import certify_all_starts
from adv_wrappers.core.budgets import Budget
from adv_wrappers.evaluation.beam import beam_search
from adv_wrappers.training.defences.dqn import SADQN, RadialDQN


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
BEAM_EPISODES = 3  # that are searched
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


def beam(game: Game, victim: adv.Victim, row: dict[str, Any], arguments: argparse.Namespace) -> None:
    """The search over whole episodes, at every eps where it is missing."""
    for eps in game.certified:
        if "beam" not in row[f"{eps:g}"]:
            found = beam_search(victim, game.env, None, BEAM_EPISODES, arguments.seed, within=game.within(eps))
            row[f"{eps:g}"]["beam"] = float(found.returns.mean())


def section(game: Game, rows: dict[str, Any]) -> str:
    """The table of one game; nothing where nothing was measured."""
    figures = {"beam": "beam", "GWC": "gwc", "ACR": "acr", "at least": "lower"}
    agents = {method: [row for row in rows.get(method, {}).values() if "clean" in row] for method in METHODS}
    measured = [row[f"{eps:g}"] for rows in agents.values() for row in rows for eps in game.certified]
    if not measured:
        return ""
    if all(at["lower"] is None for at in measured):
        del figures["at least"]
    lines = []
    for method, seeds in agents.items():
        if not seeds:
            continue
        cells = [span([row["clean"] for row in seeds])]
        for eps in game.certified:
            at = [row[f"{eps:g}"] for row in seeds]
            for key in figures.values():
                known = [row[key] for row in at if key in row]
                cells.append(span(known, 2 if key == "acr" else 0) if known else "-" if method == ZOO else "not kept")
        trained = [len(seeds), f"{statistics.fmean(row['seconds'] for row in seeds):.0f}"]
        count, seconds = trained if method != ZOO else ("-", "-")  # one agent, however often it was measured
        lines.append([method, count, *cells, seconds])
    header = [f"{what} {eps:g}" for eps in game.certified for what in figures]
    unit = "raw units" if game.scale is None else f"units of {game.scale}"
    start = f"from {game.zoo}" if game.from_zoo else "from scratch"
    return f"## {game.env}\n\nTrained {start} for {game.steps} steps at eps {game.eps:g} in {unit}.\n\n" + table(
        ["method", "seeds", "clean", *header, "seconds of a processor"], lines
    )


def body(data: Data) -> list[str]:
    """The page after its head."""
    parts = [
        "DQN, means over the seeds of the training with their range in brackets. Every trained agent is the best "
        "checkpoint of the second half of its training by the mean of clean return and greedy worst-case return (GWC) "
        f"at the eps of the training, by interval bounds. The columns are of {data['episodes']} other episodes and of "
        "full CROWN, at one eps each: GWC is an estimate of the worst case, ACR the share of steps of the clean path "
        "with one possible action, `at least` the certified return of all starts, which no attack goes below (a "
        f"search over {data['boxes']} boxes of states, which took two to eight seconds of a processor).",
        "`beam` is the search over whole episodes (`adv_wrappers.evaluation.beam`), the strongest attack here, on "
        f"{BEAM_EPISODES} episodes. Agents that were trained for an earlier page and not kept have none (`not kept`): "
        "their GWC says little of the worst case, and the script searches them too when it trains them again.",
    ]
    parts.append(
        "The goals on CartPole were a clean return of 475, a GWC of 450 at 0.02, and certified returns of 200, 140 and "
        "90 at 0.01, 0.02 and 0.05 within ten seconds of an episode (the columns are of all starts at once, of which "
        "less can be said). What limits the last ones is probably the share of steps at which both actions are "
        "possible, since boxes of states grow there. Equation 5 loses the policy while eps grows, and so does SA-DQN; "
        "the later form, by overlap, keeps it. On MountainCar, where training goes on from the agent of the zoo, it is "
        "the other way round: at 0.02 equation 5 is the one that gains."
    )
    parts += [section(game, data["games"].get(name, {})) for name, game in GAMES.items()]
    parts.append(atari(data))
    return [part for part in parts if part]


def atari(data: dict[str, Any]) -> str:
    """The paper's games, of which there is no agent: what it would take, and the paper's rows."""
    cost = data.get("cost")
    if not cost:
        return ""
    ours = [f"{method}: {predicted(cost[method], steps)}" for method, steps in ATARI_STEPS.items()]
    agents = [name for name in TABLE_1["Pong"] if "DQN" in name]
    return (
        "## Atari (Table 1 of the paper)\n\nNot measured: there is no DQN of an Atari game, plain or hardened. With "
        f"the paper's numbers of steps and of updates a game would take, on one core: {'; '.join(ours)} (rates of "
        f"short trainings on {FREEWAY}, without checkpoints).\n\n{AGENTS}. The rows with a name behind them the "
        "paper took from there. CartPole and MountainCar are not in it, so nothing above stands beside a figure of "
        "its.\n\n" + table_1(agents)
    )


# of the paper, and its updates: 128 transitions every 8 steps (appendix B)
ATARI_STEPS = {"plain": 6_000_000, "RADIAL, equation 5": 4_500_000}


def costs() -> dict[str, Any]:
    """Short trainings on images by the paper's settings: plain, and hardened."""
    settings = {
        "batch_size": 128,
        "train_freq": 8,
        "gradient_steps": 1,
        "buffer_size": 5000,
        "learning_starts": 200,
        "exploration_fraction": 0.01,
    }
    return {
        method: measured_cost(FREEWAY, 3200, num_envs=8, algorithm="dqn", robust=METHODS[method], settings=settings)
        for method in ATARI_STEPS
    }


def measure(results: Results) -> None:
    """Train and certify what is not there yet, or measure what agents of Atari would take."""
    given = results.given
    warnings.filterwarnings("ignore")
    if given.cost:
        results.made = {}
        results.data["cost"] = costs()
        results.keep()
        return
    results.need("--work", "for what is trained")
    results.data |= {"episodes": given.episodes, "boxes": given.boxes}
    for seed, name, method in itertools.product(given.seeds, given.games, given.methods):
        row, game = results.part("games", name, method, str(seed)), GAMES[name]
        kept = method == ZOO and seed == given.seeds[0]  # others are searched when they are trained again
        searched = all("beam" in row.get(f"{eps:g}", {}) for eps in game.certified)
        if done(row, game, given) and (searched or not kept):
            continue
        folder = given.work / f"{name}-{method.replace(', ', '-').replace(' ', '-')}-{seed}"
        victim, trained = train(game, method, seed, folder)
        if not done(row, game, given):
            row |= trained
            certify(game, victim, row, given)
        beam(game, victim, row, given)
        results.keep()


PAGE = Page(
    "radial_dqn",
    "RADIAL-DQN: clean, greedy worst-case and certified returns",
    __doc__,
    measure,
    body,
    options={
        **WORK,
        "--cost": {"action": "store_true", "help": "measure what agents of Atari would take, alone"},
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
