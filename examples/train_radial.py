"""Train an agent that is robust to every perturbation of its observations: RADIAL (Oikarinen et al. 2020) with PPO.

    python examples/train_radial.py cartpole --out agent
    python examples/train_radial.py pong --out agent

CartPole is trained from scratch in a minute or two and then compared with a plain agent of the zoo: clean, under PGD,
and by what is certified. Pong goes on from ``zoo:pong-ppo`` and takes an hour of a core. The agent is a card in
``--out``; the same command goes on with a training that was interrupted.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from train_victim import RECIPES as TRAININGS

import adv_wrappers as adv

RECIPES = {name: TRAININGS[f"{name}-radial-ppo"] for name in ("cartpole", "pong")}  # of adv.train_agent
PLAIN = {"cartpole": "zoo:cartpole-ppo", "pong": "zoo:pong-ppo"}


def main() -> None:
    """Train, and print returns beside those of a plain agent."""
    parser = argparse.ArgumentParser(description="Train a robust agent with RADIAL-PPO.")
    parser.add_argument("recipe", choices=RECIPES)
    parser.add_argument("--out", type=Path, help="folder for the agent and its checkpoints")
    parser.add_argument("--steps", type=int, help="environment steps instead of the recipe's")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--episodes", type=int, default=10, help="episodes of each checkpoint and of the comparison")
    arguments = parser.parse_args()
    recipe = RECIPES[arguments.recipe] | {"episodes": arguments.episodes, "out": arguments.out}
    recipe["steps"] = arguments.steps or recipe["steps"]

    def show(step: int, clean: float, attacked: float | None) -> None:
        print(f"  {step}: clean {clean:.1f}", flush=True)

    hardened = adv.train_agent(**recipe, seed=arguments.seed, progress=show)
    print(f"trained with RADIAL-PPO: {hardened.protocol}")
    env, eps = recipe["env"], recipe["eps"]
    for name, victim in ((PLAIN[arguments.recipe], PLAIN[arguments.recipe]), ("RADIAL-PPO", hardened.victim)):
        report = adv.evaluate(victim, env, [f"pgd:eps={eps},steps=30"], episodes=arguments.episodes)
        returns = [row["mean_return"] for row in report.threats]
        if arguments.recipe == "pong":  # searches of images take far longer than ten seconds
            found = adv.certify(victim, env, eps, arguments.episodes, method="interval", budget_s=None, max_nodes=0)
            certified = f"GWC {found.gwc:.1f}"
        else:
            found = adv.certify(victim, env, eps, arguments.episodes, budget_s=2)
            certified = f"GWC {found.gwc:.1f}, at least {found.lower:.1f}"
        print(f"{name:16} clean {returns[0]:6.1f}, PGD {returns[1]:6.1f}, {certified}, ACR {found.acr:.2f}")


if __name__ == "__main__":
    main()
