"""The two sides of a training: the models of the agent and of an adversary that learns, and their settings."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.vec_env import VecNormalize

from adv_wrappers.core.arrays import fits
from adv_wrappers.core.errors import SpaceError, VictimError
from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.core.values import construct
from adv_wrappers.evaluation.rollout import Tap
from adv_wrappers.training.against import Against
from adv_wrappers.training.agents import Anatomy, fill, policy_kwargs_of
from adv_wrappers.training.chairs import Chairs
from adv_wrappers.training.checkpoint import restore
from adv_wrappers.training.hardening import Opponent, Rival, Seat, Seats, Table
from adv_wrappers.training.networks import minibatch, policy_kwargs
from adv_wrappers.training.normaliser import hold
from adv_wrappers.victims import Victim, from_sb3, load_victim
from adv_wrappers.wrappers.adversary import VectorAdversaryEnv
from adv_wrappers.wrappers.seat import actor_of

ALGORITHMS: dict[str, Any] = {"ppo": PPO, "a2c": A2C}
_APART = 1_000_003  # between the seeds of the two sides


def begun_from(victim: Any) -> Victim | None:
    """The victim that an agent begins as: from an SB3 model, a reference, or itself."""
    if victim is None:
        return None
    model = not isinstance(victim, (Victim, str)) and hasattr(victim, "policy")
    found = from_sb3(victim) if model else load_victim(victim)
    if found.kind not in ("logits", "gaussian"):
        raise VictimError(f"expected an agent of PPO or A2C to begin from, got one of kind {found.kind!r}")
    return found


def check_spaces(one: Callable[[], gym.Env[Any, Any]], begun: Victim | None) -> None:
    """Raise :class:`SpaceError` for an environment that no agent here can be trained in."""
    env = one()
    seen, acted = env.observation_space, env.action_space
    env.close()
    if not isinstance(seen, spaces.Box) or len(seen.shape) != 1 or np.dtype(seen.dtype).kind != "f":
        raise SpaceError(f"train_agent takes observations of float [n], got {seen}: images need another library")
    whole = isinstance(acted, spaces.Discrete) and acted.start == 0
    if not whole and not (isinstance(acted, spaces.Box) and len(acted.shape) == 1):
        raise SpaceError(f"train_agent takes actions Discrete(n) from 0, or Box [n], got {acted}")
    if begun is not None:
        fits(begun, seen, acted)


def _falling(rate: float, left: float) -> float:
    return rate * left


def settings_of(
    algorithm: str, rows: int, given: Mapping[str, Any] | None, parts: Anatomy | None, adversary: bool = False
) -> dict[str, Any]:
    """Settings of an algorithm: the given ones over the defaults at the head of :mod:`adv_wrappers.training.atla`."""
    given = dict(given or {})
    out: dict[str, Any] = {"gamma": 0.99, "gae_lambda": 0.95}
    if algorithm == "ppo":
        steps = given.get("n_steps", 64)
        size = minibatch(rows, steps) if adversary else math.gcd(128, rows * steps)
        out |= {"n_steps": steps, "n_epochs": 10, "batch_size": size, "learning_rate": 3e-4}
    else:
        out |= {"n_steps": 16, "learning_rate": 7e-4}
    kwargs: dict[str, Any] = {}
    if not adversary:
        kwargs = {"net_arch": [64, 64], "activation_fn": torch.nn.Tanh} if parts is None else policy_kwargs_of(parts)
        if algorithm == "ppo":
            kwargs["optimizer_kwargs"] = {"eps": 1e-5, "fused": True}
    out |= {**given, "policy_kwargs": {**kwargs, **given.get("policy_kwargs", {})}}
    return out


def make_agent(
    env: SyncVectorEnv, algorithm: str, settings: Mapping[str, Any], parts: Anatomy | None, seed: int,
    logs: str | None, place: Path | None,
) -> Any:  # fmt: skip
    """The agent's model on its seats: new, begun from ``parts``, or from the checkpoint at ``place``."""
    seats, kind = Seats(Tap(env)), ALGORITHMS[algorithm]
    settings = dict(settings)
    if not callable(settings["learning_rate"]):
        settings["learning_rate"] = functools.partial(_falling, float(settings["learning_rate"]))
    norm = parts is None or parts.normalise is not None
    normal = VecNormalize(seats, norm_obs=norm, norm_reward=True, gamma=settings["gamma"])
    if parts is not None and parts.normalise is not None:
        std = parts.normalise.std.double().numpy()
        rms: Any = normal.obs_rms
        rms.mean, rms.var = parts.normalise.mean.double().numpy(), std**2 - normal.epsilon
        normal.clip_obs = math.inf if parts.normalise.clip is None else parts.normalise.clip
    hold(normal, parts is not None)
    model = construct(kind, policy="MlpPolicy", env=normal, seed=seed, device="cpu", tensorboard_log=logs, **settings)
    if place is not None:
        restore(model, place / "agent.zip", place / "normaliser.json")
    elif parts is not None:
        fill(model.policy, parts)
    return model


def make_rival(
    table: Table, against: Against, vector: Callable[[], SyncVectorEnv], sampled: bool, settings: Mapping[str, Any],
    seed: int, logs: str | None, place: Path | None,
) -> Rival | None:  # fmt: skip
    """The adversary that learns, in its chairs against the live agent; None where none does."""
    if not against.learns or against.within is None:
        return None
    actor = actor_of(against.actor, table.victim)
    chairs = Chairs(
        VectorAdversaryEnv(vector(), table.victim, actor, against.within.resolve(table.victim), against.when)
    )
    normal = VecNormalize(chairs, norm_reward=True, gamma=settings["gamma"])
    given = {**settings, "policy_kwargs": {**policy_kwargs(chairs.observation_space), **settings["policy_kwargs"]}}
    model = construct(
        PPO, policy="MlpPolicy", env=normal, seed=seed + _APART, device="cpu", tensorboard_log=logs, **given
    )
    if place is not None:
        restore(model, place / "adversary.zip", place / "adversary-normaliser.json")
        normal.seed(seed + _APART + int(model.num_timesteps))
    deployed = actor.open() if actor.victim is table.victim else actor
    seat = Seat(sampled)
    seat.take(model)
    opponent = ThreatModel("observation", Opponent(actor, seat), against.within, against.when)
    return Rival(model, chairs, seat, deployed, opponent)
