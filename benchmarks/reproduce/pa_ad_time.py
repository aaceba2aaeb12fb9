"""What training costs, PA-AD against SA-RL (Table 5 of Sun et al. 2022), by the size of observations and actions.

    python benchmarks/reproduce/pa_ad_time.py

Victims are untrained networks of two layers of 64, so that episodes are as long under either attack: a strong attack
ends episodes early, and resets cost time that is not the method's. Every round trains each kind once, anew, beginning
one place later than the round before; ratios are taken within a round, and medians given.
"""

from __future__ import annotations

import statistics
import tempfile
import warnings
from pathlib import Path
from typing import Any

import gymnasium as gym
import torch
from figures import table
from page import Data, Page, Results, load
from torch import nn

import adv_wrappers as adv

ENVS = ("Hopper-v5", "Walker2d-v5", "Ant-v5", "Humanoid-v5")
KINDS: dict[str, dict[str, Any]] = {
    "SA-RL": {"type": "sa-rl"}, "PA-AD, 1 step": {"type": "pa-ad", "steps": 1, "step": 1.0},
    "PA-AD, 5 steps": {"type": "pa-ad"},
}  # fmt: skip


def victim_of(name: str) -> adv.Victim:
    """An untrained agent."""
    env = gym.make(name)
    n, k = env.observation_space.shape[0], env.action_space.shape[0]
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(n, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, k))
    victim = adv.from_module(net, env.observation_space, env.action_space, "mean")
    env.close()
    return victim


def cost(name: str, kind: str, victim: adv.Victim, steps: int, seed: int) -> float:
    """The processor's minutes per million steps of one training, without its checkpoint."""
    with tempfile.TemporaryDirectory() as folder:
        adv.train_adversary(KINDS[kind], name, victim, 0.05, steps, seed=seed, checks=1, episodes=1, out=folder)
        point = load(Path(folder) / "state.json")["record"][-1]
    return float(point["seconds"] / point["steps"] * 1e6 / 60)


def body(data: Data) -> list[str]:
    """The page after its head."""
    lines = []
    for name, row in data["envs"].items():
        rounds = row["rounds"]
        ratios = [statistics.median(r[kind] / r["SA-RL"] for r in rounds) for kind in KINDS]
        minutes = [statistics.median(r[kind] for r in rounds) for kind in KINDS]
        cells = (f"{m:.1f} ({ratio:.2f})" for m, ratio in zip(minutes, ratios, strict=True))
        lines.append([name, row["observations"], row["actions"], len(rounds), *cells])
    parts = [
        f"A processor's minutes per million steps, medians over trainings of {data['steps']} steps against an "
        "untrained agent without checkpoints, and in brackets the median of the ratio to SA-RL within a round. "
        "PA-AD's actor takes five steps by default, one in the paper.",
        table(["environment", "observations", "actions", "rounds", *KINDS], lines),
    ]
    return parts


def measure(results: Results) -> None:
    """Every round of every environment, anew."""
    given, kinds = results.given, list(KINDS)
    warnings.filterwarnings("ignore")
    results.data["steps"] = given.steps
    for name in given.only:
        victim = victim_of(name)
        sizes = victim.observation_space.shape, victim.action_space.shape
        row: Data = {"observations": sizes[0][0], "actions": sizes[1][0], "rounds": []}
        for i in range(given.rounds):
            at = i % len(kinds)
            row["rounds"].append({kind: cost(name, kind, victim, given.steps, i) for kind in kinds[at:] + kinds[:at]})
            results.part("envs")[name] = row
            results.keep()
        print(name, {kind: [round(r[kind], 2) for r in row["rounds"]] for kind in kinds}, flush=True)


PAGE = Page(
    "pa_ad_time",
    "What training SA-RL and PA-AD costs",
    __doc__,
    measure,
    body,
    page="pa_ad",
    options={
        "--steps": {"type": int, "default": 16_384},
        "--rounds": {"type": int, "default": 5},
        "--only": {"nargs": "+", "choices": ENVS, "default": ENVS},
    },
    partly=["--only"],
)


if __name__ == "__main__":
    PAGE.main()
