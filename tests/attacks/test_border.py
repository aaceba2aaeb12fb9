"""A device from which nothing can be read: what attacks and the engine around them never do on a device.

Tensors on torch's device ``meta`` have shapes and no numbers, so whatever waits for one, takes it to the host or makes
a shape of it fails here as it would break a graph on CUDA.
"""

from __future__ import annotations

import functools

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn
from torch.overrides import TorchFunctionMode

from adv_wrappers.core.budgets.budget import L0, L2, Linf
from adv_wrappers.core.engine.engine import Engine, Wrapped
from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.threats.presets import presets
from adv_wrappers.utils.trees import tensors
from adv_wrappers.victims import from_module
from tests.attacks.helpers import KINDS, NoTrips, Untaped, arm, critic, short
from tests.core.helpers import mlp

META = torch.device("meta")
RECORDED = [name for name, preset in presets.items() if preset.kind.capturable]
SLOW = ("multi-targeted", "min-played-q", "hop-skip-jump")  # many steps of the same kernels
SPACES = {"floats": spaces.Box(-5, 5, (4,), np.float64), "bytes": spaces.Box(0, 255, (4,), np.uint8)}


class Abroad(NoTrips):
    """Also fails on every tensor on the host but numbers."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = super().__torch_dispatch__(function, types, args, kwargs)
        name = function.name().removeprefix("aten::")
        for tensor in tensors((args, kwargs, out)):
            assert tensor.device == META or (tensor.dim() == 0 and "copy" not in name), f"{name} on the host"
        return out


class Numbers(TorchFunctionMode):
    """Fails where a tensor on the device is made of numbers on the host: the other two do not see that copy."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        if getattr(function, "__name__", "") in ("tensor", "as_tensor", "asarray", "from_numpy", "new_tensor"):
            assert out.device != META or isinstance(args[0], torch.Tensor), function.__name__
        return out


def engine(how, budget, space, victim=None, rows=5):
    """A layer around an environment whose tensors, like the victim's, are on a device that holds nothing."""
    actions = spaces.Discrete(3) if victim is None else victim.action_space
    made = Engine(ThreatModel("observation", how, budget), Wrapped(space, actions, rows))
    made.to(META)
    return made


def watched(made, attacked, anew=True):
    """One step of the engine under watch: decision, attack, clock."""
    x = torch.empty(5, 4, dtype=made.applied.field.exact if not made.applied.field.grid else torch.uint8, device=META)
    if anew:
        made.apply(x, attacked)  # what is computed once a budget and device may be
    with Numbers(), Abroad():
        decided = made.decide(x, attacked)
        y = made.apply(x, decided)
        made.clock.count(decided)
        made.clock.tick()
    assert y.shape == x.shape and y.dtype == x.dtype and y.device == META


def test_the_border_is_watched():
    x = torch.empty(3, device=META)
    for trip in (lambda: torch.ones(3).to(META), lambda: torch.tensor(1.0).to(META), lambda: x.copy_(torch.ones(3))):
        with pytest.raises(AssertionError, match="on the host"), Abroad():
            trip()
    for trip in (lambda: torch.as_tensor(np.ones(3), device=META), lambda: torch.tensor(1.0, device=META)):
        with pytest.raises(AssertionError, match="tensor"), Numbers():
            trip()
    for trip in (lambda: x.sum().item(), lambda: x.nonzero(), lambda: x[x > 0]):
        with pytest.raises(AssertionError), NoTrips():
            trip()
    with Abroad():
        x.mul(2).view(3, 1).add_(1)


@pytest.mark.parametrize(
    ("name", "space"),
    [
        *(pytest.param(name, "floats", marks=[pytest.mark.slow] * (name in SLOW)) for name in RECORDED),
        *((name, "bytes") for name in RECORDED[::8]),
    ],
)
def test_recorded_attacks_never_leave_the_device(name, space):
    """Through the engine, on a device from which nothing can be read: victims that fit, and budgets, take turns."""
    grid, turn = space == "bytes", RECORDED.index(name)
    radius = 2.0 if grid else 0.3
    budgets = [Linf(radius, (1.0, 2.0, 0.0, 1.5)), Linf(radius), L0(2)]
    if not grid:  # on whole numbers L2 sends its radius from the host
        budgets.append(L2(radius))
    kinds = [*((kind, nn.Sequential) for kind in KINDS), ("q", Untaped), ("mean", Untaped)]
    victims = [abroad(kind, wrap, space) for kind, wrap in kinds]
    fitting = [(victim, how) for victim in victims if (how := arm(presets[name], victim)) is not None]
    victim, how = fitting[turn % len(fitting)]
    made = engine(short(how), budgets[turn % len(budgets)], SPACES[space], victim)
    watched(made, torch.empty(5, dtype=torch.bool, device=META))
    watched(made, True, anew=False)


@functools.cache
def abroad(kind, wrap, space):
    """A victim of a kind on the device, for observations of this name."""
    values = critic(mlp(7, 1).to(META))
    nets = {"mean": 3, "gaussian": 6, "multi": 5}
    actions = spaces.Discrete(3) if kind in ("q", "logits") else spaces.Box(-1, 1, (3,), np.float64)
    actions = spaces.MultiDiscrete([2, 3]) if kind == "multi" else actions
    more = {"critic": values, "robust_sarsa": values} if kind == "mean" else {}
    net = wrap(mlp(4, nets.get(kind, 3)))
    return from_module(net, SPACES[space], actions, "logits" if kind == "multi" else kind, device="meta", **more)
