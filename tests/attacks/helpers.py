"""Victims of every kind, attacks with few steps, and a device from which nothing may be read."""

from __future__ import annotations

from dataclasses import replace

import torch
from gymnasium import spaces
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from adv_wrappers import PAAD, Learned
from adv_wrappers.adversaries import Director
from adv_wrappers.core.perturbation import VictimAttack
from adv_wrappers.errors import VictimError

FORBIDDEN = ("_local_scalar_dense", "nonzero", "_to_cpu", "masked_select", "item")


class Untaped(nn.Module):
    """A layer whose gradient is not written out: its victims are differentiated by autograd."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x):
        return self.net(x).clone()


class NoTrips(TorchDispatchMode):
    """Fails on every kernel that waits for the device or makes a shape from data."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.name().removeprefix("aten::")
        assert not name.startswith(FORBIDDEN), name
        indices = args[1] if name.startswith("index") and isinstance(args[1], (list, tuple)) else ()
        assert not any(i is not None and i.dtype in (torch.bool, torch.uint8) for i in indices), f"{name} by a mask"
        return function(*args, **(kwargs or {}))


def critic(net):
    return lambda obs, act: net(torch.cat([obs, act], -1)).squeeze(-1)


def arm(preset, victim):
    """The preset against a victim, or None where it is not defined for it."""
    if preset.kind is Learned:
        if victim.action_space.shape == (2,):  # several actions at once have no direction
            return None
        actor = PAAD(victim)
        actions = actor.action_space((4,))
        discrete = isinstance(actions, spaces.Discrete)
        size = int(actions.n) if discrete else actions.shape[0]
        return Learned(Director(nn.Sequential(nn.Linear(4, size)), discrete, clip=True), actor)
    if not issubclass(preset.kind, VictimAttack):
        return preset.kind(**preset.arguments)
    try:
        return preset.kind(victim=victim, **preset.arguments)
    except VictimError:
        return None


def short(how):
    """The same with fewer steps, where it takes more than one."""
    few = {"steps": 2, "searches": 2, "queries": 5 if how.name == "square" else 16, "restarts": 2}
    return replace(how, **{name: number for name, number in few.items() if getattr(how, name, 1) != 1})


KINDS = ("q", "logits", "mean", "gaussian", "multi")


def flips(victim, x, y):
    return victim.params(y).argmax(-1) != victim.params(x).argmax(-1)


def anywhere(victim, x, eps, points=41):
    """Which rows an exhaustive grid of the box flips."""
    line = torch.linspace(-eps, eps, points, dtype=x.dtype)
    moves = torch.cartesian_prod(line, line)
    return torch.stack([flips(victim, x, x + move) for move in moves]).any(0)
