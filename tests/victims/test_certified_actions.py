"""Possible actions: no action that is played in a box is missing, whatever the method, float32 ties included."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from adv_wrappers import load_victim
from adv_wrappers.bounds import crown
from adv_wrappers.errors import ValueRangeError, VictimError
from adv_wrappers.networks.policy_layers import MeanAndLogStd
from adv_wrappers.victims.certified_actions import action_bounds, possible_actions
from tests.bounds.networks import Dueling, Residual
from tests.core.helpers import actor, chooser, mlp, randn
from tests.every_case import every_case

METHODS = ["interval", "crown", "full-crown", "bisect"]


def inside(low, high, count=300):
    """Points of boxes ``[count, B, *S]``: half of them corners."""
    share = torch.rand(count, *low.shape, dtype=low.dtype, generator=torch.Generator().manual_seed(0))
    share[: count // 2] = share[: count // 2].round()
    return torch.minimum(torch.maximum(low + share * (high - low), low), high)


def played(victim, points):
    """Which actions are played at some of these points, ``[B, A]``."""
    modes = victim.params(points.flatten(0, 1)).argmax(-1).view(points.shape[:2])
    return nn.functional.one_hot(modes, victim.width).bool().any(0)


@every_case("method", METHODS)
@every_case("radius", [0.0, 0.3])
def test_every_action_that_is_played_is_possible(method, radius):
    victim, x = chooser(mlp(4, 3), "q"), randn(30, 4)
    possible = possible_actions(victim, x - radius, x + radius, method)
    assert possible.shape == (30, 3) and possible.dtype == torch.bool
    found = played(victim, inside(x - radius, x + radius))
    assert (possible | ~found).all()
    if radius == 0:
        assert torch.equal(possible, found)


def test_tighter_bounds_leave_no_more_than_cheaper_ones_and_are_asked_for_few_boxes(monkeypatch):
    torch.manual_seed(0)
    layers = (nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 3))
    victim, x = chooser(nn.Sequential(*layers).double(), "q"), randn(200, 4)
    asked = list[tuple[int, str]]()

    def counted(net, low, high, rows, hidden):
        asked.append((len(low), hidden))
        return crown(net, low, high, rows, hidden)

    monkeypatch.setattr("adv_wrappers.victims.certified_actions.crown", counted)
    full, plain = (possible_actions(victim, x - 0.2, x + 0.2, m) for m in ("full-crown", "crown"))
    assert (plain | ~full).all() and full.sum() < plain.sum()
    (first, way), (second, tighter), *_ = asked
    assert (way, tighter) == ("interval", "crown") and 200 == first > second > 0


@pytest.mark.parametrize("method", ["interval", "full-crown"])
def test_float32_around_a_tie(method):
    """Boxes of a few floats around points where two outputs are equal: rounding decides what is played there."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2, bias=False))
    victim = chooser(net.float(), "logits", actions=2)
    start, end = randn(2, 400, 4, dtype=torch.float32) * 5
    differs = victim.params(start).argmax(-1) != victim.params(end).argmax(-1)
    start, end = start[differs][:10], end[differs][:10]
    for _ in range(60):
        middle = (start + end) / 2
        same = (victim.params(middle).argmax(-1) == victim.params(start).argmax(-1))[:, None]
        start, end = torch.where(same, middle, start), torch.where(same, end, middle)
    for radius in (0.0, 1e-6):
        low, high = torch.minimum(start, end) - radius, torch.maximum(start, end) + radius
        seen = played(victim, inside(low, high, 100))
        for hull in (None, (low.amin(0, keepdim=True), high.amax(0, keepdim=True))):
            possible = possible_actions(victim, low, high, method, hull)
            assert len(low) == 10 and possible.all()
            assert (possible | ~seen).all()


@pytest.mark.parametrize("method", METHODS)
def test_rounding_errors_of_the_widest_box_exclude_no_more(method):
    victim, x = chooser(mlp(4, 3), "q"), randn(300, 4)
    alone = possible_actions(victim, x - 0.02, x + 0.02, method)
    together = possible_actions(victim, x - 0.02, x + 0.02, method, (x.amin(0, True) - 1, x.amax(0, True) + 1))
    assert (together | ~alone).all() and (together != alone).float().mean() < 0.02


@pytest.mark.parametrize("method", ["interval", "crown"])
@pytest.mark.parametrize("last", [nn.Tanh(), nn.Identity()])
def test_float32_where_large_numbers_cancel(method, last):
    """Layers before the last may round much more than it does; what the victim plays lies in the box all the same."""
    torch.manual_seed(0)
    wide, sum_ = nn.Linear(4, 64), nn.Linear(64, 3)
    with torch.no_grad():
        wide.bias.add_(3000.0)
        sum_.weight.copy_(torch.cat([torch.ones(3, 32), -torch.ones(3, 32)], 1) / 8)
    victim = actor(nn.Sequential(wide, nn.ReLU(), sum_, nn.Sigmoid(), nn.Linear(3, 3), last).float())
    x = randn(200, 4, dtype=torch.float32)
    least, most = action_bounds(victim, x, x, method)
    action = victim.mode(victim.params(x))
    assert ((least <= action) & (action <= most)).all() and (most - least).max() < 0.2


@pytest.mark.parametrize("method", METHODS)
def test_outputs_that_tie_everywhere(method):
    net = nn.Linear(4, 3).double()
    with torch.no_grad():
        net.weight.zero_()
        net.bias.copy_(torch.tensor([1.0, 1.0, 0.0]))
    x = randn(2, 4)
    assert possible_actions(chooser(net), x, x + 1, method).tolist() == [[True, True, False]] * 2


@every_case("method", [m for m in METHODS if m != "bisect"])
@every_case("kind", ["mean", "gaussian"])
def test_every_action_lies_in_the_box_of_actions(method, kind):
    victim, x = actor(mlp(4, 6 if kind == "gaussian" else 3), kind, clip=kind == "gaussian"), randn(20, 4)
    low, high = x - 0.1, x + 0.1
    least, most = action_bounds(victim, low, high, method)
    points = inside(low, high)
    modes = victim.mode(victim.params(points.flatten(0, 1))).view(300, 20, 3)
    assert least.shape == (20, 3) and (modes >= least).all() and (modes <= most).all()
    if kind == "gaussian":
        assert (least >= -1).all() and (most <= 1).all()
    assert ((most - least).mean() < 2.5 * (modes.amax(0) - modes.amin(0)).mean()) or kind == "mean"


def test_a_class_that_answers_with_a_pair():
    class Pair(nn.Module):
        def __init__(self):
            super().__init__()
            self.mean, self.log_std = mlp(4, 3), nn.Parameter(torch.zeros(3, dtype=torch.float64))

        def forward(self, x):
            return self.mean(x), self.log_std

    x = randn(2, 4)
    victim = actor(Pair(), "gaussian")
    least, most = action_bounds(victim, x, x, "interval")
    torch.testing.assert_close(least, victim.mode(victim.params(x)), rtol=1e-12, atol=1e-12)
    assert (least < most).all()


def test_two_heads():
    """SAC's: actions follow from the mean alone, whatever the other head says."""
    heads = MeanAndLogStd(mlp(16, 3), mlp(16, 3, seed=5))
    victim, x = actor(nn.Sequential(mlp(4, 16), heads), "gaussian", clip=True), randn(10, 4)
    least, most = action_bounds(victim, x - 0.01, x + 0.01, "full-crown")
    modes = victim.mode(victim.params(inside(x - 0.01, x + 0.01).flatten(0, 1))).view(300, 10, 3)
    assert (modes >= least).all() and (modes <= most).all() and (most - least).mean() < 1


@pytest.mark.parametrize(
    ("net", "method"),
    [(Dueling, "interval"), (Dueling, "bisect"), (lambda: Residual(nn.GELU), "crown"), (Dueling, "full-crown")],
)
def test_networks_that_are_no_layers_in_a_row(method, net):
    torch.manual_seed(0)
    victim, x = chooser(net(), "q"), randn(4, 4, dtype=torch.float32)
    for radius in (0.0, 0.01, 0.3):
        possible = possible_actions(victim, x - radius, x + radius, method)
        found = played(victim, inside(x - radius, x + radius))
        assert (possible | ~found).all()
        assert radius or torch.equal(possible, found)
    assert not possible_actions(victim, x - 1e-4, x + 1e-4, method).all()


def test_one_action():
    x = randn(3, 4)
    for method in METHODS:
        assert possible_actions(chooser(mlp(4, 1), actions=1), x, x + 1, method).tolist() == [[True]] * 3


@pytest.mark.parametrize("name", ["cartpole-dqn", "cartpole-a2c", "cartpole-ppo", "mountaincar-dqn", "pong-ppo"])
def test_zoo_agents_that_choose(name):
    victim = load_victim(f"zoo:{name}")
    shape = victim.observation_space.shape
    x = torch.rand(2, *shape) * (255.0 if len(shape) == 3 else 0.05)
    for method in METHODS if len(shape) == 1 else METHODS[:2]:
        possible = possible_actions(victim, x, x + (1e-3 if len(shape) == 3 else 1e-4), method)
        assert (possible | ~played(victim, x[None])).all()
        assert not possible.all()


@pytest.mark.parametrize("name", ["hopper-ppo", "walker2d-ppo"])
def test_zoo_agents_with_continuous_actions(name):
    victim = load_victim(f"zoo:{name}")
    x = randn(3, *victim.observation_space.shape, dtype=torch.float32) * victim.scale.float()
    for method in METHODS:
        if method != "bisect":
            least, most = action_bounds(victim, x, x + 1e-3 * victim.scale.float(), method)
            action = victim.mode(victim.params(x))
            assert ((least <= action) & (action <= most)).all() and (most - least).max() < 0.5


def test_refusals():
    x = randn(2, 4)
    victim = chooser(mlp(4, 3))
    with pytest.raises(ValueRangeError, match="method must be 'interval', 'crown'"):
        possible_actions(victim, x, x, "best")
    with pytest.raises(ValueRangeError, match=r"torch.float64 \('B', 4\), got torch.float32"):
        possible_actions(victim, x.float(), x.float(), "interval")
    with pytest.raises(ValueRangeError, match="finite"):
        possible_actions(victim, x - torch.inf, x, "interval")
    with pytest.raises(ValueRangeError, match="low <= high"):
        possible_actions(victim, x + 1, x, "interval")
    with pytest.raises(VictimError, match="Discrete actions"):
        possible_actions(actor(mlp(4, 3)), x, x, "interval")
    with pytest.raises(VictimError, match="continuous actions"):
        action_bounds(victim, x, x, "interval")
    with pytest.raises(ValueRangeError, match="boxes of actions take other methods"):
        action_bounds(actor(mlp(4, 3)), x, x, "bisect")


def test_networks_without_bounds():
    x = randn(2, 4)
    with pytest.raises(VictimError, match=r"Mish.*known"):
        possible_actions(chooser(nn.Sequential(nn.Mish(), mlp(4, 3))), x, x, "interval")
    from_function = chooser(mlp(4, 3).forward, dtype=torch.float64)
    with pytest.raises(VictimError, match="torch module"):
        possible_actions(from_function, x, x, "interval")
    victim = chooser(mlp(4, 3))
    with torch.no_grad():
        victim.net[0].weight[0, 0] = torch.nan
    with pytest.raises(VictimError, match="not finite"):
        possible_actions(victim, x, x, "interval")


class Remembers(nn.Module):
    """A network with a hidden state."""

    def __init__(self):
        super().__init__()
        self.net = mlp(4, 3)

    def forward(self, x, state):
        return self.net(x), state


def test_a_hidden_state():
    victim = chooser(Remembers(), initial_state=lambda rows: torch.zeros(rows, 1))
    with pytest.raises(VictimError, match="hidden state"):
        possible_actions(victim, randn(2, 4), randn(2, 4), "interval")
