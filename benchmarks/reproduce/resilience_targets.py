"""Trains the agents whose resilience Behzadan and Hsu (2019) measure: DQN, A2C and PPO on CartPole-v1, Tables 2 to 4.

    python benchmarks/reproduce/resilience_targets.py --out FOLDER

writes a card per agent (``FOLDER/dqn``, ``FOLDER/a2c``, ``FOLDER/ppo``) and ``FOLDER/targets.json``. A killed run, done
again, leaves the agents that were finished. The tables' names and figures are those of Stable-Baselines 2 and of RL
Baselines Zoo's entries for CartPole, so what they leave out is taken from there: A2C plays 8 environments and 5 steps
an update, PPO clips at 0.2, and both have two layers of 64 with tanh. The DQN is
``training/sb3/prioritized_dqn.py``.

The paper does not say which of a training's policies it attacks. Here the best of 50 checkpoints is kept, by its mean
return over 20 episodes, the latest among equals; the scores that are printed are over 100 episodes of other seeds.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from page import command, load, machine, save
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env

import adv_wrappers as adv
from adv_wrappers.training.sb3.prioritized_dqn import PrioritizedDQN
from adv_wrappers.training.scoring import CheckpointEvaluator
from adv_wrappers.victims.card import save_card

ENV = "CartPole-v1"
CHECKPOINTS = 50
TABLES: dict[str, dict[str, Any]] = {
    "dqn": {
        "algorithm": PrioritizedDQN, "steps": 100_000, "num_envs": 1, "gamma": 0.99, "learning_rate": 1e-3,
        "buffer_size": 50_000, "learning_starts": 1000, "target_update_interval": 500, "exploration_fraction": 0.1,
        "exploration_final_eps": 0.02,
    },
    "a2c": {
        "algorithm": A2C, "steps": 500_000, "num_envs": 8, "gamma": 0.99, "learning_rate": 7e-4, "n_steps": 5,
        "ent_coef": 0.0, "vf_coef": 0.25,
    },
    "ppo": {
        "algorithm": PPO, "steps": 1_000_000, "num_envs": 8, "gamma": 0.99, "learning_rate": 3e-4, "n_steps": 2048,
        "batch_size": 8 * 2048 // 32, "n_epochs": 10, "gae_lambda": 0.95, "ent_coef": 0.0, "vf_coef": 0.5,
        "clip_range": 0.2,
    },
}  # fmt: skip


class BestCheckpoint(BaseCallback):
    """Keeps the best policy of a training as a card.

    Args:
        folder: for the card.
        every: steps between two checkpoints.
        seed: the seed of the training; those of the episodes that compare checkpoints follow from it.
        about: what the card says.

    Attributes:
        record: one dictionary a checkpoint: ``steps`` and ``mean_return``.
        best: the one that is kept.
    """

    def __init__(self, folder: Path, every: int, seed: int, about: dict[str, Any]) -> None:
        super().__init__()
        self.folder, self.every, self.next, self.about = folder, every, every, about
        self.evaluator = CheckpointEvaluator(adv.Environment(ENV), 20, seed)
        self.record: list[dict[str, float]] = []
        self.best: dict[str, float] = {"steps": 0, "mean_return": -np.inf}

    def _on_step(self) -> bool:
        if self.num_timesteps >= self.next:
            self.next += self.every
            victim = adv.from_sb3(self.model)
            row = {"steps": self.num_timesteps, "mean_return": float(self.evaluator.play(victim).mean())}
            self.record.append(row)
            if row["mean_return"] >= self.best["mean_return"]:
                self.best = row
                save_card(self.folder, victim, environment=ENV, **self.about, checkpoint=row)
        return True


def train(name: str, folder: Path, seed: int) -> dict[str, Any]:
    """Train one agent, write its card and return its figures."""
    settings = dict(TABLES[name])
    algorithm, steps, rows = (settings.pop(key) for key in ("algorithm", "steps", "num_envs"))
    env = make_vec_env(ENV, rows, seed=seed)
    model: BaseAlgorithm = algorithm("MlpPolicy", env, seed=seed, device="cpu", **settings)
    about = {
        "name": f"cartpole-{name}-resilience",
        "source": "Behzadan and Hsu (2019), Tables 2 to 4",
        "training": {"algorithm": algorithm.__name__, "steps": steps, "num_envs": rows, "seed": seed, **settings},
    }
    best = BestCheckpoint(folder, steps // CHECKPOINTS, seed, about)
    started = time.process_time()
    model.learn(steps, callback=best)
    seconds = time.process_time() - started
    clean = adv.evaluate(f"card:{folder}", ENV, [], episodes=100, seed=seed + 1).to_dict()["threats"][0]
    return {
        "seed": seed,
        "mean_return": clean["mean_return"],
        "std": clean["std"],
        "lowest": min(clean["returns"]),
        "at_500": float(np.mean(np.asarray(clean["returns"]) == 500)),
        "checkpoint": best.best,
        "checkpoints": best.record,
        "seconds": round(seconds, 1),
        "machine": machine(),
    }


def main() -> None:
    """Train what is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for the cards")
    parser.add_argument("--only", nargs="+", choices=TABLES, default=list(TABLES), help="agents to train")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    path = arguments.out / "targets.json"
    for name in arguments.only:
        results = load(path)
        if results.get(name, {}).get("seed") != arguments.seed:
            results[name] = {"command": command(sys.argv[1:]), **train(name, arguments.out / name, arguments.seed)}
            save(path, results)
        row = results[name]
        print(
            f"{name}: {row['mean_return']:.1f} +- {row['std']:.1f} over 100 episodes, {row['at_500']:.0%} of them at "
            f"500, from the checkpoint at {row['checkpoint']['steps']} steps; {row['seconds']:.0f} s of training",
            flush=True,
        )


if __name__ == "__main__":
    main()
