"""How much of what a budget allows the actor of PA-AD finds: MountainCar's DQN, every action asked for in turn.

Observations have two features, so that a grid over the box knows (nearly) every policy that it holds::

    python -m benchmarks.strength_actor
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor

import adv_wrappers as adv
from adv_wrappers.core import keys
from adv_wrappers.core.context import Context
from adv_wrappers.wrappers.pilot import Pilot

VICTIM, GAME, EPS, STATES, GRID = "zoo:mountaincar-dqn", "MountainCar-v0", 0.01, 512, 41


def states(count: int = STATES, seed: int = 0) -> Tensor:
    """Observations ``[count, 2]``, float32, of the victim's own episodes."""
    env, seen = gym.make(GAME), list[Any]()
    pilot = Pilot(adv.load_victim(VICTIM), 1)
    while len(seen) < count:
        x, _ = env.reset(seed=seed)
        pilot.reset(seeds=[seed])
        over, seed = False, seed + 1
        while not over:
            seen.append(x)
            x, _, terminated, truncated, _ = env.step(int(pilot.act(x[None])[0]))
            over = terminated or truncated
    return torch.from_numpy(np.array(seen[:count], np.float32))


def context_at(x: Tensor, eps: float = EPS, seed: int = 0) -> Context:
    """What an attack knows at observations of the game, under ``Linf(eps)``."""
    space: Any = gym.make(GAME).observation_space
    low, high = torch.from_numpy(space.low), torch.from_numpy(space.high)
    budget = adv.Linf(eps)
    box = budget.box(x, torch.minimum(low.expand_as(x), x), torch.maximum(high.expand_as(x), x))
    key = keys.fold(torch.arange(len(x)), seed)
    return Context(x, box, (low, high), budget, False, 0, 0, lambda: key, x, lambda victim: None, None)


def reachable(x: Tensor, grid: int = GRID) -> Tensor:
    """Bool ``[B, actions]``: whether a point of a grid over the box makes the victim take an action."""
    victim, around = adv.load_victim(VICTIM), context_at(x)
    found = torch.zeros(len(x), int(victim.action_space.n), dtype=torch.bool)
    for a, b in itertools.product(torch.linspace(0, 1, grid).tolist(), repeat=2):
        y = around.low + torch.tensor([a, b]) * (around.high - around.low)
        found[torch.arange(len(x)), victim.mode(victim.params(y))] = True
    return found


def reached(actor: adv.PAAD, x: Tensor, seed: int = 0) -> Tensor:
    """Bool ``[B, actions]``: whether the actor, asked for an action, makes the victim take it."""
    victim = adv.load_victim(VICTIM)
    columns = []
    for action in range(int(victim.action_space.n)):
        around = context_at(x, seed=seed)
        y = around.project(actor.against(victim)(x, torch.full((len(x),), action), around))
        columns.append(victim.mode(victim.params(y)) == action)
    return torch.stack(columns, 1)


def share(actor: adv.PAAD, x: Tensor | None = None, seed: int = 0) -> float:
    """The part of the reachable actions that the actor reaches when it is asked for each in turn."""
    x = states() if x is None else x
    there = reachable(x)
    return float((reached(actor, x, seed) & there).sum() / there.sum())


def rows() -> Iterator[tuple[str, float]]:
    """Actors, and the share that each reaches."""
    x = states()
    there = reachable(x)
    settings: list[dict[str, Any]] = [
        {"steps": 1, "step": 1.0, "restarts": 1, "keep": "last"}, {"restarts": 1, "keep": "last"},
        {"steps": 30, "step": 0.1, "restarts": 1, "keep": "last"},
        {"restarts": 1, "keep": "best"}, {"restarts": 2, "keep": "best"}, {"restarts": 3, "keep": "best"},
        {"restarts": 5, "keep": "best"}, {"restarts": 9, "keep": "best"},
        {"steps": 10, "step": 0.2, "restarts": 5, "keep": "best"}, {},
    ]  # fmt: skip
    for setting in settings:
        found = reached(adv.PAAD(form="target", **setting), x)
        name = ", ".join(f"{key}={value}" for key, value in setting.items()) or "the default"
        yield name, float((found & there).sum() / there.sum())


if __name__ == "__main__":
    for name, part in rows():
        print(f"{name:48} {part:.3f}")
