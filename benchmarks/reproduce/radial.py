"""RADIAL-PPO beside plain PPO and SA-PPO: the shape of Table 1 of Oikarinen et al. 2020, and a sweep like its Figure 1.

    python benchmarks/reproduce/radial.py --work FOLDER
    python benchmarks/reproduce/radial.py --work FOLDER --agents "Pong:RADIAL-PPO=card:FOLDER"

Trains PPO on CartPole from scratch with every method, in raw units, and measures what comes out: clean and attacked
returns, and what is certified. Variants are trained with the first seed alone. Agents that were trained elsewhere are
given by ``--agents``, as ``GAME:NAME=REFERENCE``. Writes ``radial.json`` as rows come, and from it ``radial.md`` and
``radial.png``; what is there is not made again, and trainings resume.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from figures import command, load, machine, save, span, table, write

import adv_wrappers as adv
from adv_wrappers.training.radial import Radial, SARegularizer
from adv_wrappers.training.schedules import LinearSchedule
from adv_wrappers.training.training_folder import read_record
from adv_wrappers.victims.possible import Method

PPO = {
    "n_steps": 128, "n_epochs": 10, "batch_size": 256, "learning_rate": LinearSchedule(0.0, 1e-3), "gamma": 0.98,
    "gae_lambda": 0.8, "ent_coef": 0.0,
}  # fmt: skip
STEPS, EPS = 100_000, 0.1  # of the trainings on CartPole


@dataclass(frozen=True)
class Game:
    """An environment, and what is measured there.

    Attributes:
        unit: what eps is divided by on the page.
        method: of the bounds.
        searched: whether the tree of possible actions is searched.
    """

    env: str
    eps: tuple[float, ...]
    unit: int = 1
    method: Method = "full-crown"
    searched: bool = True


GAMES = {
    "CartPole": Game("CartPole-v1", (0.01, 0.02, 0.05)),
    "Pong": Game("PongNoFrameskip-v4", (1.0, 3.0), 255, "interval", False),
    "RoadRunner": Game("RoadRunnerNoFrameskip-v4", (1.0,), 255, "interval", False),
}
METHODS: dict[str, Any] = {"PPO": (None, EPS), "RADIAL-PPO": (Radial(0.5, form="ratio"), EPS)}
VARIANTS: dict[str, Any] = {
    "RADIAL-PPO, eps 0.05": (Radial(0.5, form="ratio"), 0.05),
    "RADIAL-PPO, kappa 0.8": (Radial(0.8, form="ratio"), EPS),
    "RADIAL-PPO, logarithms": (Radial(0.5, form="log"), EPS),
    "SA-PPO": (SARegularizer(0.1), EPS),
}
SWEEP = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2)  # of the figure, on CartPole


def train(method: str, seed: int, folder: Path) -> tuple[adv.Victim, dict[str, Any]]:
    """The agent of a training, and the figures of its best checkpoint; resumes an earlier one."""
    robust, eps = (METHODS | VARIANTS)[method]
    hardened = adv.train_agent(
        "CartPole-v1", None, eps, STEPS, num_envs=8, seed=seed, robust=robust, rewards="raw",
        observations="raw", settings=PPO, checks=10, episodes=10, out=folder,
        progress=lambda steps, clean, attacked: print(method, seed, steps, clean, flush=True),
    )  # fmt: skip
    best, last = hardened.record[hardened.best], hardened.record[-1]
    return hardened.victim, {"steps": best["steps"], "seconds": last["seconds"]["agent"], "protocol": hardened.protocol}


def measure(game: Game, victim: adv.Victim, row: dict[str, Any], arguments: argparse.Namespace) -> None:
    """Attacked and certified returns at every eps."""
    attacks = [f"{attack}:eps={eps:g}" for eps in game.eps for attack in ("fgsm", "pgd")]
    attacks = [attack + (",steps=30" if attack.startswith("pgd") else "") for attack in attacks]
    episodes = arguments.episodes if game.unit == 1 else arguments.image_episodes
    report = adv.evaluate(victim, game.env, attacks, episodes=episodes, seed=arguments.seed).to_dict()
    rows = {entry["threat"]: entry for entry in report["threats"]}
    clean, *attacked = list(rows.values())
    row["clean"], row["clean_std"], row["episodes"] = clean["mean_return"], clean["std"], episodes
    for i, eps in enumerate(game.eps):
        began = time.monotonic()
        shown = adv.certify(victim, game.env, eps, episodes, arguments.seed, game.method, 0)
        row[f"{eps:g}"] = {
            "fgsm": attacked[2 * i]["mean_return"], "pgd": attacked[2 * i + 1]["mean_return"], "gwc": shown.gwc,
            "acr": shown.acr, "lower": None, "finished": None,
        }  # fmt: skip
        if game.searched and arguments.searched:
            found = adv.certify(
                victim, game.env, eps, arguments.searched, arguments.seed, game.method, arguments.budget_s
            )
            row[f"{eps:g}"] |= {"lower": found.lower, "finished": found.finished}
        row[f"{eps:g}"]["minutes"] = round((time.monotonic() - began) / 60, 1)


def sweep(victim: adv.Victim, arguments: argparse.Namespace) -> dict[str, list[float]]:
    """Returns under PGD, and greedy worst-case returns, over eps."""
    found: dict[str, list[float]] = {"pgd": [], "gwc": []}
    for eps in SWEEP:
        entry = adv.evaluate(
            victim, "CartPole-v1", [f"pgd:eps={eps:g},steps=30"] if eps else [], episodes=arguments.episodes,
            seed=arguments.seed,
        ).to_dict()["threats"][-1]  # fmt: skip
        certificate = adv.certify(
            victim, "CartPole-v1", eps, arguments.episodes, arguments.seed, method="full-crown", budget_s=0
        )
        found["pgd"].append(entry["mean_return"])
        found["gwc"].append(certificate.gwc)
    return found


def figure(data: dict[str, Any], path: Path) -> None:
    """The sweep: lines over eps, one colour an agent."""
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
    shown.savefig(path, dpi=120, metadata={"Software": None})
    plt.close(shown)


def markdown(data: dict[str, Any]) -> str:
    """The whole page."""
    parts = [
        "# RADIAL-PPO: attacked and certified returns",
        f"Made by `{data['command']}`\n\non {data['machine']}.",
        "The shape of Table 1 of Oikarinen et al. 2020, whose rows took 20M + 10M steps a game (A3C) and 6M + 4.5M "
        "(DQN): here PPO trained for minutes (CartPole) or an hour (Pong) of a core. Means over the seeds of a "
        "training, with their range in brackets. GWC is the greedy worst-case return, an estimate; ACR the share of "
        "the steps of the clean path with one possible action; `at least` the certified return, which no attack goes "
        f"below (searches of {data['budget_s']:g} seconds, {data['searched']} episodes; empty where nothing was "
        "searched). Other figures are of "
        f"{data['episodes']} episodes, of Atari {data['image_episodes']}.",
    ]
    for name, game in GAMES.items():
        lines = []
        for method, seeds in data["games"].get(name, {}).items():
            rows = [row for row in seeds.values() if "clean" in row]
            for eps in game.eps if rows else ():
                at = [row[f"{eps:g}"] for row in rows]
                clean = span([row["clean"] for row in rows], 1) if eps == game.eps[0] else ""
                radius = f"{eps:g}/{game.unit}" if game.unit > 1 else f"{eps:g}"
                cells = [span([row[what] for row in at], 1) for what in ("fgsm", "pgd", "gwc")]
                lower = [row["lower"] for row in at]
                cells += [span([row["acr"] for row in at], 2), "" if None in lower else span(lower)]
                first = [method, str(len(rows)), clean] if eps == game.eps[0] else ["", "", ""]
                lines.append([*first, radius, *cells])
        if lines:
            header = ["agent", "seeds", "clean", "eps", "FGSM", "PGD-30", "GWC", "ACR", "at least"]
            parts.append(f"## {game.env}\n\n{NOTES[name]}\n\n{table(header, lines)}")
    if data.get("checkpoints"):
        lines = [
            [row["steps"], f"{row['clean']:.1f}", f"{row['gwc']:.1f}", f"{row['in_training']:.1f}"]
            for row in data["checkpoints"]
        ]
        header = ["steps", "clean", "GWC at 1/255", "in training"]
        parts.append(f"## Pong, while it learns\n\n{LEARNING}\n\n{table(header, lines)}")
    if data.get("sweep"):
        parts.append(
            "## Over eps\n\n![Mean returns over eps](radial.png)\n\nCartPole, the first seed of every training. At 0.1 "
            "PGD and GWC leave plain PPO of this seed its 500, more than any hardened agent: neither is a bound. What "
            "is certified of it is less than two fifths of what is certified of the agents of RADIAL."
        )
    return "\n\n".join(parts) + "\n"


NOTES = {
    "CartPole": f"Trained from scratch for {STEPS} steps, in raw units, the learning rate falling to zero; at eps "
    f"{EPS:g} and kappa 0.5 where nothing else is said. The best checkpoint of the second half by the mean of clean "
    "return and GWC (of plain PPO by clean return).",
    "Pong": "84x84, four frames, no sticky actions; eps in grey levels of the range. The hardened agent is "
    "`zoo:pong-radial-ppo`, which goes on from `zoo:pong-ppo` for 700 000 steps (`examples/train_victim.py`).",
    "RoadRunner": "As Pong. The plain agent, `zoo:roadrunner-ppo`, has had 1.1 of the 3 million steps of its recipe, "
    "the hardened one 500 000 more (`examples/train_victim.py`).",
}


LEARNING = """Checkpoints of `examples/train_victim.py pong-radial-ppo` (3 episodes each; `in training` is the mean
return of the last 100 games with sampled actions). The share of the budget that is used rises as a power, and is whole
from 490 000 steps on.

The plain agent's interval bounds at 1/255 are 10^4 times as wide as the gap between its logits. Two earlier runs are
not in the table. Equation 6 alone, with kappa 0.5 and eps rising faster, made the policy nearly uniform within 43 000
steps: perhaps since an agent that wins learns little from its advantages, while bounds are narrowest where all logits
are the same. With the worst case of the cross-entropy to the victim's likeliest action (weight 2, kappa 0.8), bounds
came down to twice the gap after 500 000 steps, and the clean return to 10; equation 6 alone then went on from 16.6 to
5.0 in 200 000 more. What the victim prefers of actions that do the same is chance (the entropy of its policy is 1.26 of
at most 1.79), and takes wide bounds to learn. The run of the table learns the victim's policy itself, squared and
normalised again, as it is seen clean and in the worst case, which is not of the paper."""


def main() -> None:
    """Train and measure what is not there yet, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="folder for the trainings")
    parser.add_argument("--agents", nargs="*", default=[], metavar="GAME:NAME=REF", help="agents trained elsewhere")
    parser.add_argument("--record", type=Path, help="folder of examples/train_radial.py pong, for its checkpoints")
    parser.add_argument("--methods", nargs="*", choices=METHODS | VARIANTS, default=list(METHODS | VARIANTS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="of the trainings")
    parser.add_argument("--episodes", type=int, default=20)
    parser.add_argument("--image-episodes", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0, help="of the episodes")
    parser.add_argument("--budget-s", type=float, default=10.0, help="seconds of a search")
    parser.add_argument("--searched", type=int, default=3, help="episodes that are searched; 0 for none")
    parser.add_argument("--sweep", action="store_true", help="measure the figure's lines")
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    path = arguments.out / "radial.json"
    data = {"games": {}, "sweep": {}, **load(path), "machine": machine(), "command": command(sys.argv[1:])}
    for name in ("episodes", "image_episodes", "searched", "budget_s"):
        data[name] = getattr(arguments, name)

    def finish(row: dict[str, Any], game: str, victim: adv.Victim) -> None:
        measure(GAMES[game], victim, row, arguments)
        save(path, data)
        write(arguments.out / "radial.md", markdown(data))

    for seed in arguments.seeds:
        for method in arguments.methods:
            if method in VARIANTS and seed != arguments.seeds[0]:
                continue
            row = data["games"].setdefault("CartPole", {}).setdefault(method, {}).setdefault(str(seed), {})
            sweeps = arguments.sweep and seed == arguments.seeds[0] and method not in data["sweep"]
            if "clean" in row and not sweeps:
                continue
            folder = arguments.work / f"cartpole-{method.replace(', ', '-').replace(' ', '-')}-{seed}"
            victim, trained = train(method, seed, folder)
            if "clean" not in row:
                row |= trained
                finish(row, "CartPole", victim)
            if sweeps:
                data["sweep"][method] = sweep(victim, arguments)
                save(path, data)
    for given in arguments.agents:
        place, _, reference = given.partition("=")
        game, _, name = place.partition(":")
        row = data["games"].setdefault(game, {}).setdefault(name, {}).setdefault("0", {})
        if "clean" not in row:
            finish(row, game, adv.load_victim(reference))
    if arguments.record is not None:
        data["checkpoints"] = read_record(arguments.record)
    if data["sweep"]:
        figure(data, arguments.out / "radial.png")
    save(path, data)
    write(arguments.out / "radial.md", markdown(data))


if __name__ == "__main__":
    main()
