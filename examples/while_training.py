"""Watch how robust an agent is while it learns, and let eps grow: the pictures of the page "While an agent trains".

    python examples/while_training.py --out pictures

Three trainings on CartPole, of a minute or so each:

- PPO of Stable-Baselines3 with a ``RobustnessCallback``: every so many steps the agent is played clean and attacked;
- a loop in the style of CleanRL under attack by its own network, with ``RecordAttackStatistics``: what every episode of
  the training earned, how much of it was attacked, and how often that changed the action;
- PPO under noise whose eps grows with a schedule, beside PPO under all of it from the first step on.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from evaluate_cleanrl import Agent
from evaluate_cleanrl import train as reinforce
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecEnv

import adv_wrappers as adv
from adv_wrappers.rendering.frames import ATTACKED, CLEAN, GRID, INK
from adv_wrappers.rendering.plots import bottom_spine_only, new_figure, save_figure

ENV, MAX_DIFF, NOISE = "CartPole-v1", "max-diff:eps=0.1", "noise:eps=0.2"
ORANGE = "#d97706"
COLOURS = {"none": CLEAN, NOISE: ORANGE, MAX_DIFF: ATTACKED}


def ppo(venv: VecEnv, seed: int) -> PPO:
    """PPO with the settings of RL Zoo for CartPole, but for its falling rates."""
    settings: dict[str, Any] = {"n_steps": 32, "batch_size": 256, "n_epochs": 20, "learning_rate": 1e-3}
    return PPO("MlpPolicy", venv, seed=seed, device="cpu", gamma=0.98, gae_lambda=0.8, **settings)


def watch(steps: int, episodes: int, seed: int) -> list[dict[str, Any]]:
    """Train PPO without attacks, and measure it under two: the rows of the callback."""
    callback = adv.RobustnessCallback([NOISE, MAX_DIFF], every=max(steps // 20, 1), episodes=episodes)
    ppo(make_vec_env(ENV, 8, seed=seed), seed).learn(steps, callback=callback)
    print(f"PPO took {steps:,} steps; of its time {callback.seconds:.0f} s were evaluations")
    return callback.rows


def record(steps: int, seed: int) -> list[dict[str, float]]:
    """Train under PGD against the network as it is at that step: the statistics of every episode."""
    torch.manual_seed(seed)
    envs = gym.make_vec(ENV, num_envs=8, vectorization_mode="sync")
    agent = Agent(4, 2)
    spaces = envs.single_observation_space, envs.single_action_space
    victim = adv.from_module(agent.actor, *spaces, "logits", live=True)
    attacked = adv.PerturbObservation(envs, "pgd:eps=0.05,p=0.5", victim=victim)
    recorded: Any = adv.RecordAttackStatistics(attacked, victim)
    found: list[dict[str, float]] = []

    def tell(step: int, info: dict[str, Any]) -> None:
        for row in np.flatnonzero(info.get("_attack", ())).tolist():
            found.append({"steps": step, **{name: float(of[row]) for name, of in info["attack"].items()}})

    reinforce(agent, recorded, steps, seed, tell)
    return found


def harden(schedule: adv.LinearSchedule, steps: int, episodes: int, seed: int) -> list[dict[str, Any]]:
    """Train PPO under noise with a share of its eps that follows a schedule; the rows of a callback."""
    venv = adv.PerturbObservation(make_vec_env(ENV, 8, seed=seed), "noise:eps=0.4")
    watching = adv.RobustnessCallback(["noise:eps=0.4"], every=max(steps // 20, 1), episodes=episodes)
    ppo(venv, seed).learn(steps, callback=[adv.ScheduleBudgetCallback(schedule), watching])
    return watching.rows


def attacked_rows(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of a callback that are under a threat."""
    return [row for row in rows if row["threat"] != "none"]


def axes_of(figure: Any, count: int, heights: list[float]) -> list[Any]:
    """Axes one above the other that share their steps."""
    axes = figure.subplots(count, 1, sharex=True, height_ratios=heights)
    for one in axes:
        one.grid(color=GRID, linewidth=0.8)
        one.tick_params(colors=INK, length=0)
        bottom_spine_only(one)
    axes[-1].set_xlabel("steps of the training", color=INK)
    return list(axes)


def curve(axes: Any, rows: list[dict[str, Any]], key: str, colour: str, label: str) -> None:
    """A line over steps; of returns with their interval."""
    steps = [row["steps"] for row in rows]
    axes.plot(steps, [row[key] for row in rows], color=colour, label=label, linewidth=1.8)
    if key == "return":
        low, high = ([np.clip(row[end], 0, 500) for row in rows] for end in ("low", "high"))
        axes.fill_between(steps, low, high, color=colour, alpha=0.15, linewidth=0)


def draw_robustness(rows: list[dict[str, Any]], path: Path) -> None:
    """Returns, clean and under threats, and below them how many attacked steps change the action."""
    figure = new_figure(8, 5, 120, "constrained")
    returns, flips = axes_of(figure, 2, [3, 1.4])
    for threat, colour in COLOURS.items():
        of_it = [row for row in rows if row["threat"] == threat]
        curve(returns, of_it, "return", colour, "clean" if threat == "none" else threat)
        if threat != "none":
            curve(flips, of_it, "flips", colour, threat)
    returns.set_ylabel("return")
    flips.set_ylabel("flips")
    flips.set_ylim(0, 1)
    returns.legend(frameon=False, loc="upper left")
    save_figure(figure, path)


def draw_episodes(found: list[dict[str, float]], path: Path) -> None:
    """A point for every episode of a training: its return under attack, its attack rate and its flips."""
    figure = new_figure(8, 5, 120, "constrained")
    named = [("r", "return under attack", CLEAN), ("attack_rate", "attack rate", ORANGE), ("flips", "flips", ATTACKED)]
    steps = np.array([one["steps"] for one in found])
    for axes, (key, label, colour) in zip(axes_of(figure, 3, [2, 1, 1]), named, strict=True):
        values = np.array([one[key] for one in found])
        axes.plot(steps, values, ".", color=colour, alpha=0.25, markersize=4, markeredgewidth=0)
        for part in np.array_split(np.arange(len(found)), min(40, len(found))):
            axes.plot(steps[part].mean(), np.nanmean(values[part]), "o", color=colour, markersize=3.5)
        axes.set_ylabel(label)
        axes.set_ylim(0, None if key == "r" else 1)
    save_figure(figure, path)


def draw_curriculum(runs: dict[str, list[list[dict[str, Any]]]], schedule: adv.LinearSchedule, path: Path) -> None:
    """Returns under all of the noise: the mean of the trainings, and each of them, with and without a schedule."""
    figure = new_figure(8, 5, 120, "constrained")
    returns, shares = axes_of(figure, 2, [3, 1.2])
    for (label, trainings), colour in zip(runs.items(), (ORANGE, CLEAN), strict=True):
        attacked = [attacked_rows(rows) for rows in trainings]
        steps = [row["steps"] for row in attacked[0]]
        lines = np.array([[row["return"] for row in rows] for rows in attacked])
        returns.plot(steps, lines.T, color=colour, alpha=0.3, linewidth=0.9)
        returns.plot(steps, lines.mean(0), color=colour, linewidth=2.2, label=label)
    shares.plot(steps, [0.4] * len(steps), color=ORANGE)
    shares.plot(steps, [0.4 * schedule(step / steps[-1]) for step in steps], color=CLEAN)
    returns.set_ylabel("return under noise:eps=0.4")
    shares.set_ylabel("eps")
    returns.legend(frameon=False, loc="upper left")
    save_figure(figure, path)


def main() -> None:
    """Train, and draw."""
    parser = argparse.ArgumentParser(description="Watch how robust an agent is while it learns.")
    parser.add_argument("--steps", type=int, default=40_000, help="steps of a training")
    parser.add_argument("--episodes", type=int, default=20, help="episodes of a run of an evaluation")
    parser.add_argument("--seeds", type=int, default=3, help="trainings with and without a schedule")
    parser.add_argument("--out", type=Path, default=Path("while_training"), help="folder of the pictures")
    arguments = parser.parse_args()
    steps, episodes = arguments.steps, arguments.episodes

    torch.set_num_threads(1)  # networks of this size are slower on several
    draw_robustness(watch(steps, episodes, seed=0), arguments.out / "robustness.png")
    draw_episodes(record(4 * steps, seed=0), arguments.out / "episodes.png")  # REINFORCE needs more steps than PPO
    ramp = adv.LinearSchedule(0.0, 1.0, end=0.75)
    schedules = {"eps 0.4 from the first step": adv.LinearSchedule(1.0, 1.0), "eps grows from 0 to 0.4": ramp}
    runs = {
        name: [harden(schedule, steps, episodes, seed) for seed in range(arguments.seeds)]
        for name, schedule in schedules.items()
    }
    draw_curriculum(runs, ramp, arguments.out / "curriculum.png")
    for name, trainings in runs.items():
        for part in (0.2, 1.0):  # of the training
            moments = [attacked_rows(rows)[round(part * (len(rows) // 2 - 1))] for rows in trainings]
            returns = ", ".join(f"{row['return']:.0f}" for row in moments)
            print(f"{name}: {returns} under all of the noise after {moments[0]['steps']:,} steps")


if __name__ == "__main__":
    main()
