"""Recurrent agents on CartPole without its velocities: plain training, ATLA and PA-ATLA.

    python benchmarks/reproduce/recurrent.py --work FOLDER

trains and attacks the agents that are missing, and goes on where it stopped.

Agents of RecurrentPPO see the positions of cart and pole alone; the budget is 0.05 of both. An agent is the best
checkpoint of the second half of its training, of a plain one by clean return, else by the mean of it and that under the
adversary of its day.
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
from figures import table
from gymnasium.wrappers import TransformObservation
from page import WORK, Data, Page, Results, episode_options, load, prose

import adv_wrappers as adv
from adv_wrappers.studies.standing.measure import what_card_says
from adv_wrappers.training.agent import train_agent

ENV, WITHIN = "CartPole-v1", adv.Linf(0.05)
KINDS = {"plain": None, "ATLA": "sa-rl", "PA-ATLA": "pa-ad"}
ATTACKS, LEARNED = ("noise", "max-diff"), ("sa-rl", "pa-ad")
STEPS, ATTACK_STEPS, ENVS = 131_072, 16_384, 8
SETTINGS = {"learning_rate": 1e-3, "batch_size": 256, "n_epochs": 5, "n_steps": 128}


def positions(env: str, **kwargs: Any) -> gym.Env[Any, Any]:
    """CartPole whose observations are the positions of the cart and of the pole."""
    made = gym.make(env, **kwargs)
    box = made.observation_space
    assert isinstance(box, gym.spaces.Box)
    kept = gym.spaces.Box(box.low[[0, 2]], box.high[[0, 2]], dtype=box.dtype)
    return TransformObservation(made, lambda observation: observation[[0, 2]], kept)


def measured(kind: str, folder: Path, seed: int, episodes: int) -> Data:
    """Train an agent, or go on, and attack it."""
    agent = train_agent(
        ENV, KINDS[kind], steps=STEPS, algorithm="recurrent-ppo", within=WITHIN, num_envs=ENVS, seed=seed, checks=16,
        episodes=10, settings=SETTINGS, make=positions, out=folder,
    ).victim  # fmt: skip
    began = time.process_time()
    attacks: list[Any] = [adv.threat(name, within=WITHIN) for name in ATTACKS]
    for name in LEARNED:
        learned = adv.train_adversary(
            name, ENV, agent, within=WITHIN, steps=ATTACK_STEPS, num_envs=ENVS, checks=4, episodes=10, seed=seed,
            make=positions, out=folder / f"attack-{name}",
        )  # fmt: skip
        attacks.append(adv.ThreatModel("observation", learned, WITHIN))
    report = adv.evaluate(agent, ENV, attacks, episodes=episodes, make=positions)
    rows = zip(("none", *ATTACKS, *LEARNED), report.threats, strict=True)
    return {
        "returns": {name: row["returns"] for name, row in rows},
        "training_seconds": round(what_card_says(load(folder / "card.json"))["training_seconds"]),
        "attack_seconds": round(time.process_time() - began),
    }


def measure(results: Results) -> None:
    """Train and attack what is missing."""
    given = results.given
    for seed in given.seeds:
        for kind in KINDS:
            folder = given.work / f"{kind.lower()}-s{seed}"
            results.once(results.part("agents"), f"{kind}-s{seed}", measured, kind, folder, seed, given.episodes)


def body(data: Data) -> list[str]:
    """The page after its head."""
    lines = []
    for name, found in data["agents"].items():
        means = {attack: statistics.fmean(returns) for attack, returns in found["returns"].items()}
        worst = min(mean for attack, mean in means.items() if attack != "none")
        seconds = (str(found[f"{part}_seconds"]) for part in ("training", "attack"))
        lines.append([name, *(f"{mean:.0f}" for mean in means.values()), f"**{worst:.0f}**", *seconds])
    header = ["agent", "clean", *ATTACKS, *LEARNED, "worst", "training, s", "attacks, s"]
    return [
        *prose(__doc__, 3),
        f"Mean returns of {STEPS:,} steps of training; adversaries learned for {ATTACK_STEPS:,}. Seconds are a "
        "processor's, up to the checkpoint that was taken, the adversary's included.",
        table(header, lines),
    ]


PAGE = Page(
    "recurrent",
    "Recurrent agents, trained against adversaries",
    __doc__,
    measure,
    body,
    page="defences",
    options={
        **WORK,
        "--seeds": {"nargs": "+", "type": int, "default": [0, 1], "help": "of the agents"},
        **episode_options(30),
    },
    needs=["--work"],
    releases=["sb3-contrib"],
)


if __name__ == "__main__":
    PAGE.main()
