"""What no attack takes."""

from __future__ import annotations

import functools
from typing import Any

import gymnasium as gym

import adv_wrappers as adv
from benchmarks.recording.values import Items, Value, exact, inner, untimed


def certificates() -> Items:
    """Certified returns at fixed numbers of nodes and boxes, and of smoothed agents with fixed seeds."""
    found: Items = {}
    for victim, env, eps in CERTIFIED:
        for method in ("interval", "crown", "full-crown", "bisect"):
            nodes = 150 if method in ("interval", "crown", "full-crown") else 40
            found[f"{victim} eps {eps} by {method}"] = functools.partial(certified, victim, env, eps, method, nodes)
    for order in ("depth-first", "best-first"):
        found[f"order {order}"] = functools.partial(certified, *CERTIFIED[0], "crown", 150, order=order)
    for victim, env, eps in (*CERTIFIED, ("zoo:cartpole-radial-ppo", "CartPole-v1", 0.02)):
        found[f"all starts {victim} eps {eps}"] = functools.partial(all_starts, victim, env, eps)
    found["smoothed returns"] = smoothed_returns
    return found


CERTIFIED = (
    ("zoo:cartpole-dqn", "CartPole-v1", 0.02), ("zoo:cartpole-radial-dqn", "CartPole-v1", 0.05),
    ("zoo:mountaincar-dqn", "MountainCar-v0", 0.0005),
)  # fmt: skip


def certified(victim: str, env: str, eps: float, method: str, nodes: int, **more: Any) -> Value:
    """Lower bounds, GWC, AWC and ACR of two short episodes."""
    limits = {"max_nodes": nodes, "max_boxes": 10 * nodes, "env_kwargs": {"max_episode_steps": 15}}
    return untimed(adv.certify(victim, env, eps, 2, 0, method, **limits, **more).to_dict())


def all_starts(victim: str, env: str, eps: float) -> Value:
    """A search over boxes of states, from all starts."""
    made = gym.make(env, max_episode_steps=40)
    search = inner("StateBoxSearch")(victim, made, eps)
    found = search.run(search.dynamics.start_low, search.dynamics.start_high, None, 3000)
    return [found.lower, found.steps, search.boxes, search.rounds, found.finished]


SMOOTHED = "smoothed:zoo:cartpole-dqn?sigma=0.1"


def smoothed_returns() -> Value:
    """Returns of a smoothed agent, and what they certify."""
    found = adv.certify_smoothed(SMOOTHED, "CartPole-v1", 20, 0, env_kwargs={"max_episode_steps": 60})
    returns = [exact(one) for one in found.returns]
    return [returns, *(found.certified_return(eps) for eps in (0.0, 0.05, 0.1)), str(found)]
