"""What no perturbation may do: gradients of weights, trips to the host, shapes that depend on the data."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from gymnasium import spaces
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from adv_wrappers import PAAD, Learned
from adv_wrappers.adversaries import Director
from adv_wrappers.attacks.discrete_search import DiscreteSearch
from adv_wrappers.attacks.model_based import Planned
from adv_wrappers.core.budgets import L2, Linf, Valid
from adv_wrappers.core.perturbation import NativePerturbation, VictimAttack
from adv_wrappers.errors import VictimError
from adv_wrappers.faults.dynamics import FixedDynamics
from adv_wrappers.threats.presets import presets
from adv_wrappers.victims import from_module
from tests.core.helpers import actor, box, chooser, context, mlp, randn

X = randn(5, 4)
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


def test_the_watchman_wakes():
    for trip in (lambda: X.sum().item(), lambda: X.nonzero(), lambda: X[X > 0], lambda: bool((X > 0).any())):
        with pytest.raises(AssertionError), NoTrips():
            trip()


def critic(net):
    return lambda obs, act: net(torch.cat([obs, act], -1)).squeeze(-1)


def victims(wrap, live: bool):
    """A victim of every kind, around networks that are trained elsewhere if ``live``."""
    values = critic(mlp(7, 1))
    return {
        "q": chooser(wrap(mlp(4, 3)), "q", live=live),
        "logits": chooser(wrap(mlp(4, 3)), live=live),
        "mean": actor(wrap(mlp(4, 3)), critic=values, robust_sarsa=values, live=live),
        "gaussian": actor(wrap(mlp(4, 6)), "gaussian", live=live),
        "multi": from_module(wrap(mlp(4, 5)), box(4), spaces.MultiDiscrete([2, 3]), "logits", live=live),
    }


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


def moment(preset, victim, grid: bool, budget):
    """A context in which the preset can work: observations, or actions of the victim."""
    if preset.on == "observation":
        x = (X * 100).round() if grid else X
        choices = {"choices": (1001,) * 4} if preset.kind is DiscreteSearch else {}
        return context(x, budget, -500 if grid else -5, 500 if grid else 5, grid, **choices)
    if victim.discrete:
        return context(victim.mode(victim.params(X)).double(), Valid(), 0, 2, True, observation=X)
    return context(victim.mode(victim.params(X)).double(), budget, -1, 1, observation=X)


def short(how):
    """The same with fewer steps, where it takes more than one."""
    few = {"steps": 2, "searches": 2, "queries": 5 if how.name == "square" else 16, "restarts": 2}
    return replace(how, **{name: number for name, number in few.items() if getattr(how, name, 1) != 1})


KINDS = ("q", "logits", "mean", "gaussian", "multi")
CHOOSERS = ("min-best", "fgsm", "pgd", "multi-targeted", "max-worst", "momentum", "carlini-wagner")
CLASSIFIERS = dict.fromkeys(CHOOSERS, ("q", "logits"))
DEFINED = {
    **CLASSIFIERS,
    "hop-skip-jump": ("q", "logits"),
    "min-q": ("q", "mean"),
    "min-played-q": ("q",),
    "min-value": ("q",),
    "robust-sarsa": ("mean",),
    "worst-action": KINDS[:-1],
    "learned": KINDS[:-1],
}


# planned attacks ask at every step whether a row needs a new plan (tests/attacks/test_model_based.py has the rest)
WATCHED = [
    name
    for name, preset in presets.items()
    if not issubclass(preset.kind, (NativePerturbation, Planned, FixedDynamics))
]


# every attack against every second kind of victim, by turns
@pytest.mark.parametrize(
    ("name", "kind"),
    [(name, kind) for i, name in enumerate(WATCHED) for j, kind in enumerate(KINDS) if (i + j) % 2 == 0],
)
@torch.no_grad()  # as the engine does: attacks that need a graph say so themselves
def test_no_trips_and_no_gradients_of_weights(name, kind):
    preset, defined = presets[name], False
    for wrap in (nn.Sequential, Untaped) if kind in ("q", "mean") else (nn.Sequential,):
        net: list[nn.Module] = []
        victim = victims(lambda n, wrap=wrap, net=net: net.append(wrap(n)) or net[-1], live=True)[kind]
        how = arm(preset, victim)
        if how is None or (name == "worst-action" and kind == "multi"):
            continue
        defined = True
        assert victim.layer_graph() is None or wrap is nn.Sequential
        how = short(how)
        # floats and whole numbers take turns
        floats = (wrap is nn.Sequential) == ([*KINDS].index(kind) % 2 == 0)
        grid, budget = (False, Linf(0.3)) if floats else (True, L2(2.0))
        made = moment(preset, victim, grid, budget)
        kept = made.x.clone()
        how(made.x, made)  # what is computed once a budget and device may be
        made = moment(preset, victim, grid, budget)
        with NoTrips():
            y = how(made.x, made)
        assert y.shape == made.x.shape and not y.requires_grad and torch.equal(made.x, kept)
        weights = [w for n in net for w in n.parameters()]
        assert weights and all(w.requires_grad and w.grad is None for w in weights)
        assert all(module.training for n in net for module in n.modules())
    assert defined == (kind in DEFINED.get(name, KINDS))
