"""Train an agent of the zoo with Stable-Baselines3 and write it as a card.

    python examples/train_victim.py hopper-ppo --out adv_wrappers/zoo --seed 0

A card is a folder with ``card.json`` (environment, network, observation rule, action rule, scores) and
``weights.safetensors``; ``adv_wrappers.load_victim("card:FOLDER")`` reads it. The best checkpoint is chosen on one
set of evaluation seeds and scored on another, so that the figure in the card is not the luckiest of many.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from atari_vec_env import AtariVecEnv, Trunk
from safetensors.torch import save_file
from stable_baselines3 import A2C, DQN, PPO
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecEnv, VecNormalize

from adv_wrappers.evaluation.environments import atari, is_atari

TANH = {"activation_fn": torch.nn.Tanh, "net_arch": [64, 64]}
MUJOCO: dict[str, Any] = {
    "algorithm": PPO, "num_envs": 8, "normalize": True, "anneal": True,
    "learning_rate": 3e-4, "n_steps": 256, "batch_size": 64, "n_epochs": 10, "gamma": 0.99, "gae_lambda": 0.95,
    "clip_range": 0.2, "ent_coef": 0.0, "policy_kwargs": TANH | {"log_std_init": -0.5},
}  # fmt: skip

RECIPES: dict[str, dict[str, Any]] = {
    "cartpole-dqn": {
        "env": "CartPole-v1", "algorithm": DQN, "num_envs": 1, "steps": 50_000, "learning_rate": 2.3e-3,
        "batch_size": 64, "buffer_size": 100_000, "learning_starts": 1000, "gamma": 0.99,
        "target_update_interval": 10, "train_freq": 256, "gradient_steps": 128, "exploration_fraction": 0.16,
        "exploration_final_eps": 0.04, "policy_kwargs": {"net_arch": [64, 64]},
    },
    "cartpole-a2c": {
        "env": "CartPole-v1", "algorithm": A2C, "num_envs": 8, "steps": 500_000, "anneal": True,
        "learning_rate": 7e-4, "n_steps": 5, "gamma": 0.99, "ent_coef": 0.0, "policy_kwargs": TANH,
    },
    "cartpole-ppo": {
        "env": "CartPole-v1", "algorithm": PPO, "num_envs": 8, "steps": 100_000, "anneal": True,
        "learning_rate": 1e-3, "n_steps": 32, "batch_size": 256, "n_epochs": 20, "gamma": 0.98, "gae_lambda": 0.8,
        "clip_range": 0.2, "ent_coef": 0.0, "policy_kwargs": TANH,
    },
    "mountaincar-dqn": {
        "env": "MountainCar-v0", "algorithm": DQN, "num_envs": 1, "steps": 150_000, "learning_rate": 4e-3,
        "batch_size": 128, "buffer_size": 10_000, "learning_starts": 1000, "gamma": 0.98,
        "target_update_interval": 600, "train_freq": 16, "gradient_steps": 8, "exploration_fraction": 0.2,
        "exploration_final_eps": 0.07, "policy_kwargs": {"net_arch": [256, 256]},
    },
    "hopper-ppo": {"env": "Hopper-v5", "steps": 2_000_000} | MUJOCO,
    "walker2d-ppo": {"env": "Walker2d-v5", "steps": 3_000_000} | MUJOCO,
    "pong-ppo": {
        "env": "PongNoFrameskip-v4", "rom": "pong", "algorithm": PPO, "num_envs": 16, "steps": 3_000_000, "checks": 8,
        "anneal": True, "learning_rate": 5e-4, "n_steps": 128, "batch_size": 512, "n_epochs": 3, "gamma": 0.99,
        "gae_lambda": 0.95, "clip_range": 0.1, "ent_coef": 0.01, "vf_coef": 0.5,
        "policy_kwargs": {"features_extractor_class": Trunk, "net_arch": []},
    },
}  # fmt: skip
CHOOSE, SCORE = 1_000_000, 2_000_000  # disjoint blocks of evaluation seeds


def play(model: BaseAlgorithm, normalizer: VecNormalize | None, env_id: str, episodes: int, seed: int) -> np.ndarray:
    """Return of each of ``episodes`` episodes, actions by the mode, as a float64 array ``[episodes]``."""
    env, returns = atari(env_id) if is_atari(env_id) else gym.make(env_id), np.zeros(episodes)
    for episode in range(episodes):
        obs, _ = env.reset(seed=seed + episode)
        done = False
        while not done:
            seen = normalizer.normalize_obs(obs) if normalizer else obs
            action, _ = model.predict(seen, deterministic=True)
            obs, reward, terminated, truncated, _ = env.step(action)
            returns[episode] += float(reward)
            done = terminated or truncated
    return returns


def layers(prefix: str, *modules: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Weights of the modules, named as those of one ``Sequential``."""
    flat = [m for module in modules for m in (module if isinstance(module, torch.nn.Sequential) else [module])]
    return {
        f"{prefix}.{i}.{name}": value.detach().clone().contiguous()
        for i, module in enumerate(flat)
        for name, value in module.named_parameters()
    }


def write_card(
    folder: Path, name: str, model: BaseAlgorithm, normalizer: VecNormalize | None, scores: dict[str, Any]
) -> None:
    """Write ``card.json`` and ``weights.safetensors`` into ``folder``, each atomically."""
    recipe = RECIPES[name]
    policy: Any = model.policy
    observation: dict[str, Any] = {"mean": None, "std": None, "clip": None, "rule": "raw"}
    if normalizer:
        rms: Any = normalizer.obs_rms
        observation = {
            "mean": rms.mean.tolist(),
            "std": np.sqrt(rms.var + normalizer.epsilon).tolist(),
            "epsilon": 0.0,
            "clip": float(normalizer.clip_obs),
            "rule": "clip((o - mean) / std, -clip, clip)",
        }
    if "rom" in recipe:
        kind, activation = "categorical-cnn", "relu"
        weights = layers("trunk", policy.features_extractor.net)
        for head, module in (("policy", policy.action_net), ("value", policy.value_net)):
            weights |= {f"{head}.{key}": value.detach().clone() for key, value in module.named_parameters()}
        weights = {key: value.contiguous().half() for key, value in weights.items()}
        observation = {"mean": 0.0, "std": 255.0, "clip": None, "rule": "o / 255"}
    elif isinstance(model, DQN):
        kind, activation, weights = "q-mlp", "relu", layers("policy", policy.q_net.q_net)
    else:
        extractor = policy.mlp_extractor
        kind, activation = "categorical-mlp", "tanh"
        weights = layers("policy", extractor.policy_net, policy.action_net)
        weights |= layers("value", extractor.value_net, policy.value_net)
        if isinstance(model.action_space, gym.spaces.Box):
            kind = "gaussian-mlp"
            weights["log_std"] = policy.log_std.detach().clone()
    card = {
        "name": name,
        "environment": {"id": recipe["env"], "kwargs": {}},
        "network": {"kind": kind, "hidden": recipe["policy_kwargs"]["net_arch"] or [256], "activation": activation},
        "observation": observation,
        "action": {"select": "mode", "clip": kind == "gaussian-mlp"},
        "measured": [scores],
        "source": {"script": "examples/train_victim.py", "recipe": name},
        "licence": "MIT",
    }
    folder.mkdir(parents=True, exist_ok=True)
    save_file(weights, folder / "weights.tmp")
    (folder / "card.tmp").write_text(json.dumps(card, indent=1) + "\n")
    os.replace(folder / "weights.tmp", folder / "weights.safetensors")
    os.replace(folder / "card.tmp", folder / "card.json")


class KeepBest(BaseCallback):
    """Every ``every`` steps, plays on the choosing seeds; writes the card when the mean return is a new best."""

    def __init__(self, name: str, folder: Path, every: int, seed: int, episodes: int) -> None:
        super().__init__()
        self.name, self.folder, self.every, self.seed, self.episodes = name, folder, every, seed, episodes
        self.next, self.best, self.started = every, -np.inf, time.monotonic()

    def _on_step(self) -> bool:
        if self.num_timesteps >= self.next:
            self.next += self.every
            self.check()
        return True

    def check(self) -> None:
        """Play, compare and, on a new best, score on the other seeds and write."""
        normalizer, env_id = self.model.get_vec_normalize_env(), RECIPES[self.name]["env"]
        chosen = play(self.model, normalizer, env_id, self.episodes, CHOOSE)
        minutes = (time.monotonic() - self.started) / 60
        if self.model.ep_info_buffer:
            print(f"  training return {np.mean([e['r'] for e in self.model.ep_info_buffer]):.1f}")
        print(f"{self.name} {self.num_timesteps} {chosen.mean():.1f} +- {chosen.std():.1f} ({minutes:.1f} min)")
        if chosen.mean() >= self.best:  # of equals, the longest trained
            self.best = float(chosen.mean())
            returns = play(self.model, normalizer, env_id, 30, SCORE)
            scores = {
                "attack": "none", "eps": 0.0, "episodes": len(returns), "mean": round(float(returns.mean()), 1),
                "std": round(float(returns.std()), 1), "steps": self.num_timesteps, "seed": self.seed,
            }  # fmt: skip
            print(f"  best so far; on the scoring seeds {scores['mean']} +- {scores['std']}")
            write_card(self.folder / self.name, self.name, self.model, normalizer, scores)


def main() -> None:
    """Train one recipe and write its card."""
    parser = argparse.ArgumentParser(description="Train an agent of the zoo and write it as a card.")
    parser.add_argument("name", choices=sorted(RECIPES))
    parser.add_argument("--out", type=Path, default=Path("zoo"), help="the card goes to OUT/NAME")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, help="override the recipe's number of environment steps")
    parser.add_argument("--episodes", type=int, default=10, help="episodes of each choosing evaluation")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    recipe = dict(RECIPES[arguments.name])
    algorithm, steps = recipe.pop("algorithm"), arguments.steps or recipe["steps"]
    checks = recipe.pop("checks", 25)
    num_envs, env_id, rom = recipe.pop("num_envs"), recipe.pop("env"), recipe.pop("rom", None)
    env: VecEnv = AtariVecEnv(rom, num_envs, arguments.seed) if rom else make_vec_env(env_id, num_envs, arguments.seed)
    if recipe.pop("normalize", False):
        env = VecNormalize(env, gamma=recipe["gamma"])
    if recipe.pop("anneal", False):
        rate = recipe["learning_rate"]
        recipe["learning_rate"] = lambda remaining: remaining * rate
    recipe.pop("steps")
    model = algorithm("CnnPolicy" if rom else "MlpPolicy", env, seed=arguments.seed, device="cpu", **recipe)
    if rom:
        model.policy.to(memory_format=torch.channels_last)  # twice as fast on a CPU
    keep = KeepBest(arguments.name, arguments.out, max(steps // checks, 1), arguments.seed, arguments.episodes)
    model.learn(steps, callback=keep)
    keep.check()


if __name__ == "__main__":
    main()
