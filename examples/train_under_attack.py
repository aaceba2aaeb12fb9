"""Train PPO inside a perturbed environment, and compare it with PPO that never saw an attack.

    python examples/train_under_attack.py --steps 50000 --eps 0.2

Both agents are trained on CartPole with the same seed and budget of steps; the second one sees noisy observations while
it learns. Each is then played clean, under noise and under FGSM aimed at itself. Nothing here is tuned: the point is
that ``PerturbObservation`` is an ordinary wrapper, so that any training code runs inside it.
"""

from __future__ import annotations

import argparse
from typing import Any

import gymnasium as gym
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env

import adv_wrappers as adv


def perturbed(env: gym.Env[Any, Any], eps: float) -> gym.Env[Any, Any]:
    """``env`` as the agent in training sees it: half of the observations are off by up to ``eps``."""
    wrapped: gym.Env[Any, Any] = adv.PerturbObservation(
        env, adv.Noise("uniform"), within=adv.Linf(eps), when=adv.Bernoulli(0.5)
    )
    return wrapped


def train(steps: int, seed: int, eps: float) -> PPO:
    """PPO after ``steps`` steps; under noise unless ``eps`` is 0."""
    wrapper = (lambda env: perturbed(env, eps)) if eps > 0 else None
    venv = make_vec_env("CartPole-v1", n_envs=8, seed=seed, wrapper_class=wrapper)
    model = PPO(
        "MlpPolicy",
        venv,
        seed=seed,
        device="cpu",
        n_steps=32,
        batch_size=256,
        n_epochs=20,
        learning_rate=1e-3,
        gamma=0.98,
        gae_lambda=0.8,
    )
    model.learn(steps)
    venv.close()
    return model


def main() -> None:
    """Train both agents, play both, and print their returns."""
    parser = argparse.ArgumentParser(description="Train PPO under attack and evaluate it.")
    parser.add_argument("--steps", type=int, default=50_000, help="environment steps of each training run")
    parser.add_argument("--eps", type=float, default=0.2, help="l-infinity radius, in CartPole's raw units")
    parser.add_argument("--episodes", type=int, default=20, help="episodes of each evaluation")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()

    torch.set_num_threads(1)  # networks of this size are slower on several
    threats = [f"noise:eps={arguments.eps}", f"fgsm:eps={arguments.eps}"]
    for name, eps in (("trained clean", 0.0), ("trained under noise", arguments.eps)):
        model = train(arguments.steps, arguments.seed, eps)
        report = adv.evaluate(
            adv.from_sb3(model), "CartPole-v1", threats, episodes=arguments.episodes, seed=arguments.seed
        )
        for row in report.threats:
            print(f"{name:20} {row['threat']:16} {row['mean_return']:6.1f}  [{row['low']:.1f}, {row['high']:.1f}]")


if __name__ == "__main__":
    main()
