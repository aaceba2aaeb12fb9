"""Short trainings: the first and last row of their record, and sums of weights."""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import adv_wrappers as adv
from benchmarks.recording.values import TIMED, Items, Value, digest, exact, in_folder, plain, summary, untimed

ALGORITHMS = {  # environment, steps: fewer where a step costs more
    "ppo": ("CartPole-v1", 2048), "a2c": ("CartPole-v1", 2048), "dqn": ("CartPole-v1", 2048),
    "td3": ("Pendulum-v1", 384), "ddpg": ("Pendulum-v1", 384), "recurrent-ppo": ("CartPole-v1", 512),
}  # fmt: skip
AGAINST = (None, "sa-rl", "pa-ad", "max-diff", "noise", "action-flip:p=0.2", "dynamics-noise:at=mass,eps=0.1")
ROBUST = ("radial", "sa", "wocar", "car", "smoothed")
ADVERSARIES = (
    ("sa-rl", "ppo"), ("pa-ad", "ppo"), ("pa-ad-action", "ppo"), ("forces", "ppo"), ("induce", "ppo"),
    ("timed:max-diff", "ppo"), ("sa-rl", "a2c"), ("timed:max-diff", "a2c"), ("timed:max-diff", "dqn"),
    ("induce", "dqn"),
)  # fmt: skip


def trainings() -> Items:
    """Short trainings of every algorithm, adversary and robust loss: the first row of the record, and sums of weights.

    Some are interrupted and go on. They begin new episodes then, so their end is not that of an uninterrupted one.
    """
    found: Items = {}
    for algorithm in ALGORITHMS:
        for adversary in AGAINST:
            found[f"agent {algorithm} against {adversary}"] = functools.partial(agent, algorithm, adversary, None)
        for robust in ROBUST:
            found[f"agent {algorithm} {robust}"] = functools.partial(agent, algorithm, "auto", robust)
        how = ("auto", "sa") if algorithm in ("ppo", "dqn") else ("sa-rl", None)
        found[f"agent {algorithm} interrupted"] = functools.partial(interrupted, agent, algorithm, *how)
    found["agent of continuous actions"] = functools.partial(agent, "ppo", "pa-ad", None, "Pendulum-v1")
    found["agent of continuous actions, sa"] = functools.partial(agent, "ppo", "auto", "sa", "Pendulum-v1")
    found["agent goes on from the zoo"] = functools.partial(agent, "a2c", "max-diff", None, victim="zoo:cartpole-a2c")
    for kind, algorithm in ADVERSARIES:
        found[f"adversary {kind} {algorithm}"] = functools.partial(adversary_trained, kind, algorithm)
    for kind in ("sa-rl", "timed:max-diff"):
        found[f"adversary {kind} interrupted"] = functools.partial(interrupted, adversary_trained, kind, "ppo")
    found["critic"] = critic
    found["dynamics"] = transition_model
    found["imitation"] = imitation
    found["resilience"] = functools.partial(resilience, "resilience")
    found["robustness"] = functools.partial(resilience, "robustness")
    return found


def weights_in(folder: Path) -> Value:
    """Names, shapes and sums of the weights of a card."""
    from safetensors.numpy import load_file

    weights = load_file(folder / "weights.safetensors")
    shapes = {name: list(weights[name].shape) for name in sorted(weights)}
    return [digest(json.dumps(shapes)), *summary([weights[name] for name in sorted(weights)])]


def recorded_row(row: Mapping[str, Any]) -> Value:
    """A row of a record: returns to the bit."""
    kept = {key: value for key, value in row.items() if key not in TIMED}
    return {key: exact(value) if isinstance(value, float) else value for key, value in kept.items()}


def agent(
    algorithm: str, adversary: Any, robust: Any, env: str = "", out: Path | None = None, progress: Any = None,
    victim: Any = None,
) -> Value:  # fmt: skip
    """A training of an agent; without a folder it gets one."""
    if out is None:
        with in_folder() as folder:
            return agent(algorithm, adversary, robust, env, folder / "agent", progress, victim)
    its_env, steps = ALGORITHMS[algorithm]
    how: Any = {"robust": robust, "checks": 2, "episodes": 2, "env_kwargs": {"max_episode_steps": 50}, "victim": victim}
    if algorithm in ("td3", "ddpg"):
        how["settings"] = {"learning_starts": 64, "batch_size": 64}
    named = isinstance(adversary, str) and ":" in adversary
    eps = None if adversary is None or named else 0.1
    found = adv.train_agent(
        env or its_env, adversary, eps, steps, algorithm, 8, 1, phase=steps // 2, out=out, progress=progress, **how
    )
    return [recorded_row(found.record[0]), recorded_row(found.record[-1]), weights_in(out)]


def adversary_trained(kind: str, algorithm: str, out: Path | None = None, progress: Any = None) -> Value:
    """A training of an adversary."""
    if out is None:
        with in_folder() as folder:
            return adversary_trained(kind, algorithm, folder / "adversary", progress)
    bodies = kind in ("pa-ad-action", "forces")
    victim, env = ("zoo:hopper-ppo", "Hopper-v5") if bodies else ("zoo:cartpole-dqn", "CartPole-v1")
    within = adv.Valid() if kind == "induce" else adv.Linf(0.1)
    how: Any = {"within": within, "checks": 2, "episodes": 2, "env_kwargs": {"max_episode_steps": 50}}
    steps, envs = (512, 1) if algorithm == "dqn" else (2048, 8)
    adv.train_adversary(kind, env, victim, None, steps, algorithm, envs, 1, out=out, progress=progress, **how)
    record = json.loads((out / "state.json").read_text(encoding="utf-8"))["record"]
    return [recorded_row(record[0]), recorded_row(record[-1]), weights_in(out)]


def interrupted(train: Callable[..., Value], *given: Any) -> Value:
    """The end of a training that is interrupted after its first checkpoint and goes on, with new episodes."""

    def interrupt(*at: Any) -> None:
        raise KeyboardInterrupt

    with in_folder() as folder:
        with contextlib.suppress(KeyboardInterrupt):
            train(*given, out=folder / "cut", progress=interrupt)
        return train(*given, out=folder / "cut")


def critic() -> Value:
    """A critic for robust-sarsa."""
    with in_folder() as folder:
        how: Any = {"settings": [{"eps": 0.02, "weight": 0.1}], "env_kwargs": {"max_episode_steps": 50}}
        how |= {"steps": 512, "episodes": 2, "attack_steps": 2}
        adv.train_critic("zoo:hopper-ppo", "Hopper-v5", out=folder / "critic", **how)
        return weights_in(folder / "critic")


def transition_model() -> Value:
    """A model of the dynamics."""
    with in_folder() as folder:
        how: Any = {"hidden": (16,), "epochs": 2, "num_envs": 4, "out": folder / "model"}
        found = adv.train_dynamics("zoo:hopper-ppo", "Hopper-v5", 1000, **how)
        return [weights_in(folder / "model"), untimed(found.card["errors"])]


def imitation() -> Value:
    """A surrogate of an agent."""
    with in_folder() as folder:
        how: Any = {"epochs": 5, "episodes": 2, "hidden": (16,), "env_kwargs": {"max_episode_steps": 60}}
        adv.imitate("zoo:cartpole-dqn", "CartPole-v1", 400, 1, 0, folder / "surrogate", **how)
        return weights_in(folder / "surrogate")


def resilience(measure: str) -> Value:
    """How few perturbations break an agent, and what some of them cost."""
    how: Any = {
        "steps": 512, "episodes": 5, "checks": 2, "check_episodes": 3, "num_envs": 4, "n_steps": 32, "batch_size": 64,
        "n_epochs": 2, "env_kwargs": {"max_episode_steps": 40},
    }  # fmt: skip
    given = (3,) if measure == "robustness" else (2.0,)
    found = getattr(adv, measure)("zoo:cartpole-dqn", "CartPole-v1", *given, **how)
    kept = {name: value for name, value in found.to_dict().items() if name != "versions"}
    return untimed(json.loads(json.dumps(plain(kept))))
