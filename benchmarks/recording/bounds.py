"""Bounds on networks over boxes."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import torch

import adv_wrappers as adv
from benchmarks.recording.values import Items, Value, answered, digest, inner, summary


def bounds() -> Items:
    """Bounds on the networks of the tests at three radii, and the possible actions of agents in 1,000 boxes."""
    from tests.bounds.networks import NETS

    found: Items = {}
    for name in NETS:
        for radius in (0.01, 0.1, 0.5):
            found[f"network {name}, {radius}"] = functools.partial(network_bounds, name, radius)
    for victim in ("cartpole-dqn", "cartpole-ppo", "cartpole-radial-dqn", "mountaincar-dqn"):
        for method, boxes in METHODS.items():
            found[f"actions of {victim} by {method}"] = functools.partial(actions_in_boxes, victim, method, boxes)
    for victim in ("hopper-ppo", "walker2d-ppo"):
        for method in ("interval", "crown", "full-crown"):
            found[f"actions of {victim} by {method}"] = functools.partial(reach_in_boxes, victim, method, 100)
    return found


METHODS = {"interval": 1000, "crown": 1000, "full-crown": 1000, "bisect": 100}  # and how many boxes


def network_bounds(name: str, radius: float) -> Value:
    """Of 6 boxes, by every method; an error as a text where a method has no rule."""
    from tests.bounds.networks import net_of

    net, shape = net_of(name)
    x = torch.as_tensor(np.random.default_rng(1).normal(size=(6, *shape)))
    low, high = x - radius, x + radius
    width = net(x).shape[1]
    spec = torch.eye(width, dtype=x.dtype)[:1] - torch.eye(width, dtype=x.dtype)[-1:]

    def both(found: Any) -> list[float]:
        return [list(found[0].shape), *summary([found[0].numpy(), found[1].numpy()], 4)]

    def decided() -> Value:
        found = inner("decide")(net, low, high, most_boxes=50)
        return [digest(found.found.numpy()), digest(found.undecided.numpy()), found.boxes]

    crown = inner("crown")
    return {
        "interval": answered(lambda: both(inner("interval")(net, low, high))),
        "interval of a difference": answered(lambda: both(inner("interval")(net, low, high, spec))),
        "crown": answered(lambda: both(crown(net, low, high))),
        "crown of a difference": answered(lambda: both(crown(net, low, high, spec))),
        "full-crown": answered(lambda: both(crown(net, low, high, intermediate="crown"))),
        "bisect": answered(decided),
    }


def boxes_of(victim: Any, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Boxes of several sizes around observations as they are early in episodes."""
    rng = np.random.default_rng(2)
    size = victim.observation_space.shape[0]
    unit = np.ones(size) if victim.scale is None else victim.scale.double().numpy()
    if victim.ref == "zoo:mountaincar-dqn":
        unit, centre = np.array([0.9, 0.07]), np.array([-0.3, 0.0])
    else:
        centre = np.zeros(size)
    x = centre + unit * rng.normal(size=(count, size)) * 0.2
    radius = unit * rng.choice([0.002, 0.01, 0.05], (count, 1))
    return torch.as_tensor(x - radius).to(victim.dtype), torch.as_tensor(x + radius).to(victim.dtype)


def actions_in_boxes(name: str, method: str, count: int) -> Value:
    """A hash of the possible actions, and how often each is one."""
    victim = adv.load_victim(f"zoo:{name}")
    found = inner("possible_actions")(victim, *boxes_of(victim, count), method=method).numpy()
    return [digest(found), found.sum(0)]


def reach_in_boxes(name: str, method: str, count: int) -> Value:
    """How far continuous actions may reach."""
    victim = adv.load_victim(f"zoo:{name}")
    low, high = inner("action_bounds")(victim, *boxes_of(victim, count), method=method)
    return summary([low.numpy(), high.numpy()], 6)
