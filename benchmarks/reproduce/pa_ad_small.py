"""SA-RL and PA-AD on CartPole and MountainCar (PA-AD, appendix F.1), and their learning curves (Figure 12).

    python benchmarks/reproduce/pa_ad_small.py --victims FOLDER --work FOLDER

CartPole: the card's A2C agent with sampled actions at eps 0.05 raw, five seeds of each. MountainCar: the zoo's DQN
agent at several eps, in units of the half-range (0.9, 0.07), 100k steps of each. Writes ``pa_ad_small.json`` as
results come and ``pa_ad_small.md``.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from pathlib import Path
from typing import Any

import learning
import torch
from adversaries import record_of
from figures import command, kept, load, machine, options, save, table, write

import adv_wrappers as adv

HALF = (0.9, 0.07)  # of MountainCar's positions and speeds
SWEEP = (0.05, 0.052, 0.054, 0.06, 0.075)
SEEDS = 5
# SA-RL learns CartPole's four numbers in the time given with a larger step only; PA-AD's single number needs no care.
CARTPOLE: dict[str, dict[str, Any]] = {
    "sa-rl": {"steps": 55_000, "n_steps": 16, "learning_rate": 1e-3, "checks": 11},
    "pa-ad": {"steps": 20_000, "n_steps": 32, "checks": 4},
}


def agent(victims: Path) -> adv.Victim:
    """The A2C agent of CartPole, sampling."""
    return adv.load_victim(f"card:{victims / 'zoo-cartpole-a2c'}", select="sample")


def cartpole(arguments: argparse.Namespace) -> dict[str, Any]:
    """Five trainings of each kind, and the best of each kind over 50 episodes."""
    victim, within = agent(arguments.victims), adv.Linf(0.05)
    out: dict[str, Any] = {"runs": {}}
    threats = [adv.ThreatModel("observation", how, within) for how in (adv.Noise(), adv.MaxDiff(victim))]
    for kind, settings in CARTPOLE.items():
        runs = []
        for seed in range(SEEDS):
            folder = arguments.work / "cartpole" / f"{kind}-s{seed}"
            adv.train_adversary(kind, "CartPole-v1", victim, 0.05, seed=seed, out=folder, **settings)
            runs.append(record_of(folder))
        out["runs"][kind] = runs
        best = min(range(SEEDS), key=lambda seed: min(point["mean_return"] for point in runs[seed]))
        folder = arguments.work / "cartpole" / f"{kind}-s{best}"
        threats.append(adv.ThreatModel("observation", adv.Learned(card=str(folder), victim=victim), within))
    report = adv.evaluate(victim, "CartPole-v1", threats, arguments.episodes, arguments.seed).to_dict()
    names = ("none", "noise", "max-diff", *CARTPOLE)
    out["rows"] = {name: kept(row) for name, row in zip(names, report["threats"], strict=True)}
    return out


def mountaincar(arguments: argparse.Namespace, eps: float) -> dict[str, Any]:
    """One eps: noise, MaxDiff, MinBest, MinQ, and a training of each kind."""
    victim, within = adv.load_victim("zoo:mountaincar-dqn"), adv.Linf(eps, HALF)
    hows: dict[str, Any] = {
        "noise": adv.Noise(), "min-best": adv.MinBest(victim, steps=10, step=0.25), "max-diff": adv.MaxDiff(victim),
    }  # fmt: skip
    for kind, actor in (("sa-rl", adv.SARL()), ("pa-ad", adv.PAAD(victim, steps=10, step=0.2))):
        folder = arguments.work / "mountaincar" / f"{kind}-{eps:g}"
        hows[kind] = adv.train_adversary(
            actor, "MountainCar-v0", victim, within=within, steps=100_000, seed=0, out=folder, learning_rate=1e-3
        )
    threats = [adv.ThreatModel("observation", how, within) for how in hows.values()]
    report = adv.evaluate(victim, "MountainCar-v0", threats, arguments.episodes, arguments.seed).to_dict()
    return {name: kept(row) for name, row in zip(("none", *hows), report["threats"], strict=True)}


def text(row: dict[str, Any]) -> str:
    """A mean, its deviation and the median."""
    return f"{row['mean_return']:.1f} +- {row['std']:.1f} ({row['median']:.1f})"


def markdown(data: dict[str, Any]) -> str:
    """The whole page."""
    parts = [
        "# SA-RL and PA-AD on CartPole and MountainCar",
        f"Made by `{data['command']}`\n\non {data['machine']}.",
        "Mean return +- standard deviation (median) over 50 episodes that no training chose on; `noise` is uniform "
        "over the budget. The paper's appendix "
        "F.1: SA-RL and PA-AD meet in CartPole, PA-AD earlier; in MountainCar SA-RL leaves -128 and PA-AD -199.45.",
    ]
    cart = data.get("cartpole")
    if cart:
        names = list(cart["rows"])
        parts.append(
            "## CartPole, A2C, sampled actions, eps 0.05\n\n"
            + table(names, [[text(cart["rows"][name]) for name in names]])
            + "\n\nSA-RL and PA-AD are the best checkpoint of five trainings, chosen over 30 episodes each.\n\n"
            "### Learning curves\n\nWhat checkpoints leave, with the 95% interval of the mean over seeds. Minutes are "
            "the processor's on one thread, checkpoints left out. SA-RL learns with n_steps=16 and learning_rate=1e-3, "
            "PA-AD with n_steps=32 and the default rate of 3e-4.\n\n"
            "![learning curves](pa_ad_small.png)\n\n" + learning.summary(cart["runs"])
        )
        lines = [
            [kind, point["steps"], *(f"{run[i]['mean_return']:.1f}" for run in runs)]
            for kind, runs in cart["runs"].items() for i, point in enumerate(runs[0])
        ]  # fmt: skip
        header = ["", "steps", *(f"seed {seed}" for seed in range(SEEDS))]
        parts.append("What is left at each checkpoint of each training:\n\n" + table(header, lines))
    cars = data.get("mountaincar") or {}
    if cars:
        names = list(next(iter(cars.values())))
        lines = [[eps, *(text(rows[name]) for name in names)] for eps, rows in cars.items()]
        parts.append(
            "## MountainCar, DQN\n\neps in units of the half-range (0.9, 0.07); one training of 100k steps each, the "
            "best of ten checkpoints, learning_rate=1e-3. PA-AD's actor takes ten steps of 0.2 eps.\n\n"
            + table(["eps", *names], lines)
        )
    return "\n\n".join(parts) + "\n"


def main() -> None:
    """Train and evaluate what is missing, then write the page."""
    parser = options(__doc__, episodes=50)
    parser.add_argument("--work", type=Path, required=True, help="folder of trainings")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", module="gymnasium")
    path = arguments.out / "pa_ad_small.json"
    data = {} if arguments.again else load(path)
    data = {"command": command(sys.argv[1:]), "machine": machine(), "mountaincar": {}, **data}

    def keep() -> None:
        save(path, data)
        learning.draw(data["cartpole"]["runs"], arguments.out / "pa_ad_small.png")
        write(arguments.out / "pa_ad_small.md", markdown(data))

    if "cartpole" not in data:
        data["cartpole"] = cartpole(arguments)
        keep()
    for eps in SWEEP:
        if f"{eps:g}" not in data["mountaincar"]:
            data["mountaincar"][f"{eps:g}"] = mountaincar(arguments, eps)
            keep()
            print(eps, {name: text(row) for name, row in data["mountaincar"][f"{eps:g}"].items()}, flush=True)
    keep()


if __name__ == "__main__":
    main()
