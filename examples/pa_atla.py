"""Harden an agent: train it in turns with an adversary that learns (PA-ATLA), and compare it with plain training.

    python examples/pa_atla.py --steps 80000 --eps 0.05 --out agents

Both agents are PPO on CartPole with the same seed and number of steps; the second one is attacked by PA-AD, which
learns in turns with the agent. Then each is evaluated clean, under noise, under MaxDiff, under the adversary that the
second one was trained with, and under a new PA-AD adversary that is trained against it: the lowest return counts. With
``--out`` the agents are saved as cards, and an interrupted training continues. ``--adversary sa-rl`` is ATLA,
``max-diff`` or ``min-best`` train under attacks that need no training.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import adv_wrappers as adv
from adv_wrappers.training.adversary import train_adversary
from adv_wrappers.training.agent import Hardened, train_agent

ENV = "CartPole-v1"


def train(adversary: str | None, arguments: argparse.Namespace) -> Hardened:
    """One agent, trained without attacks or against an adversary."""
    name = adversary or "plain"
    checks, steps = arguments.checks, arguments.steps

    def show(step: int, clean: float, attacked: float | None) -> None:
        print(f"  {name} {step}: clean {clean:.1f}" + ("" if attacked is None else f", attacked {attacked:.1f}"))

    return train_agent(
        ENV,
        adversary,
        arguments.eps,
        steps,
        seed=arguments.seed,
        num_envs=8,
        phase=4096,
        checks=checks,
        progress=show,
        episodes=arguments.episodes,
        out=arguments.out and arguments.out / name,
        settings={"learning_rate": 1e-3},
    )


def main() -> None:
    """Train both agents, attack both, and print their returns."""
    parser = argparse.ArgumentParser(description="Harden an agent by PA-ATLA and evaluate it.")
    parser.add_argument("--adversary", default="pa-ad", help="pa-ad, sa-rl, or a threat such as max-diff")
    parser.add_argument("--steps", type=int, default=80_000, help="environment steps of each agent")
    parser.add_argument("--attack-steps", type=int, default=80_000, help="steps of the adversaries at the end")
    parser.add_argument("--eps", type=float, default=0.05, help="l-infinity radius, in CartPole's raw units")
    parser.add_argument("--episodes", type=int, default=20, help="episodes of each evaluation")
    parser.add_argument("--checks", type=int, default=5, help="checkpoints of each training")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="folder for the agents; without it they are not saved")
    arguments = parser.parse_args()

    agents = {name: train(name, arguments) for name in (None, arguments.adversary)}
    met = agents[arguments.adversary].threat
    for name, hardened in agents.items():
        fresh = train_adversary(
            "pa-ad",
            ENV,
            hardened.victim,
            arguments.eps,
            arguments.attack_steps,
            checks=arguments.checks,
            seed=arguments.seed + 1,
            episodes=arguments.episodes,
        )
        threats: dict[str, Any] = {
            "noise": f"noise:eps={arguments.eps}",
            "max-diff": f"max-diff:eps={arguments.eps}",
            "training adversary": met,
            "new pa-ad": adv.ThreatModel("observation", fresh, adv.Linf(arguments.eps)),
        }
        report = adv.evaluate(
            hardened.victim, ENV, list(threats.values()), episodes=arguments.episodes, seed=arguments.seed
        )
        print(f"trained {'without attacks' if name is None else 'against ' + name}: {hardened.protocol}")
        for label, row in zip(["clean", *threats], report.threats, strict=True):
            print(f"  {label:18} {row['mean_return']:6.1f}  [{row['low']:.1f}, {row['high']:.1f}]")


if __name__ == "__main__":
    main()
