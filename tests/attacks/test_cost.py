"""What no perturbation may do: gradients of weights, trips to the host, shapes that depend on the data."""

from __future__ import annotations

import pytest
import torch
from gymnasium import spaces
from torch import nn

from adv_wrappers.attacks.discrete_search import DiscreteSearch
from adv_wrappers.attacks.model_based import Planned
from adv_wrappers.core.budgets.budget import L2, Linf, Valid
from adv_wrappers.core.perturbation import NativePerturbation
from adv_wrappers.faults.dynamics import FixedDynamics
from adv_wrappers.threats.presets import presets
from adv_wrappers.victims import from_module
from tests.attacks.helpers import KINDS, NoTrips, Untaped, arm, critic, short
from tests.core.helpers import actor, box, chooser, context, mlp, randn

X = randn(5, 4)


def test_the_watchman_wakes():
    for trip in (lambda: X.sum().item(), lambda: X.nonzero(), lambda: X[X > 0], lambda: bool((X > 0).any())):
        with pytest.raises(AssertionError), NoTrips():
            trip()


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


def moment(preset, victim, grid: bool, budget):
    """A context in which the preset can work: observations, or actions of the victim."""
    if preset.on == "observation":
        x = (X * 100).round() if grid else X
        choices = {"choices": (1001,) * 4} if preset.kind is DiscreteSearch else {}
        return context(x, budget, -500 if grid else -5, 500 if grid else 5, grid, **choices)
    if victim.discrete:
        return context(victim.mode(victim.params(X)).double(), Valid(), 0, 2, True, observation=X)
    return context(victim.mode(victim.params(X)).double(), budget, -1, 1, observation=X)


DEFINED = {"min-value": ("q",), "worst-action": KINDS[:-1], "learned": KINDS[:-1]}

# test_border.py has those that are recorded; planned attacks ask at every step whether a row needs a new plan
# (tests/attacks/test_model_based.py has the rest)
WATCHED = [
    name
    for name, preset in presets.items()
    if not (preset.kind.capturable or issubclass(preset.kind, (NativePerturbation, Planned, FixedDynamics)))
]


# every attack against a kind of victim that it is defined for, by turns
@pytest.mark.parametrize(
    ("name", "kind"),
    [(name, kinds[i % len(kinds)]) for i, name in enumerate(WATCHED) if (kinds := DEFINED.get(name, KINDS))],
)
@torch.no_grad()  # as the engine does: attacks that need a graph say so themselves
def test_no_trips_and_no_gradients_of_weights(name, kind):
    preset, defined = presets[name], False
    for wrap in (nn.Sequential, Untaped) if kind in ("q", "mean") else (nn.Sequential,):
        net: list[nn.Module] = []
        victim = victims(lambda n, wrap=wrap, net=net: net.append(wrap(n)) or net[-1], live=True)[kind]
        how = arm(preset, victim)
        if how is None:
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
    assert defined
