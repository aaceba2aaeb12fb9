"""Actions that perturbations force: also those that are played in corners alone, and the same in every batch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from adv_wrappers import Linf, from_module
from adv_wrappers.evaluation.searches.beam import Batches, TargetedAttacks
from adv_wrappers.evaluation.searches.search_tree import DeterministicEpisodes
from tests.core.helpers import OnlySpaces
from tests.every_case import every_case

SEEN, ACTED = spaces.Box(-5, 5, (2,), np.float32), spaces.Discrete(5)


class Corners(nn.Module):
    """Action 0, but in each corner of the square around the origin another one; flat but for the corners."""

    def __init__(self):
        super().__init__()
        self.signs = nn.Parameter(torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]]))

    def forward(self, x):
        corner = torch.relu(x @ self.signs.T - 1.8)
        return torch.cat([torch.full_like(x[:, :1], 0.05), corner], 1)


def layers():
    """The same in layers, of which there are bounds."""
    hidden, out = nn.Linear(2, 4), nn.Linear(4, 5)
    with torch.no_grad():
        hidden.weight.copy_(Corners().signs)
        hidden.bias.fill_(-1.8)
        out.weight.copy_(torch.cat([torch.zeros(1, 4), torch.eye(4)]))
        out.bias.copy_(torch.tensor([0.05, 0, 0, 0, 0]))
    return nn.Sequential(hidden, nn.ReLU(), out)


@pytest.mark.parametrize(
    ("make_net", "eps", "forced"), [(Corners, 1.0, [1, 2, 3, 4]), (layers, 1.0, [1, 2, 3, 4]), (layers, 0.9, [])]
)
def test_actions_that_are_played_in_corners_alone(make_net, eps, forced):
    episodes = DeterministicEpisodes(from_module(make_net(), SEEN, ACTED, "q"), lambda: OnlySpaces(SEEN, ACTED))
    found = TargetedAttacks(episodes, Linf(eps), 8, 2, True)
    found.begin(0)
    (one,) = found.find(np.zeros((1, 2), np.float32), np.array([0]))
    assert [item.action for item in one] == forced
    assert all(abs(item.shown).max() <= eps for item in one)


def test_what_is_found_does_not_depend_on_what_follows():
    x = np.random.default_rng(0).uniform(-2, 2, (150, 2)).astype(np.float32)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 5))
    episodes = DeterministicEpisodes(from_module(net, SEEN, ACTED, "logits"), lambda: OnlySpaces(SEEN, ACTED))
    own = np.asarray(episodes.actions(x))
    found = []
    for count in (1, 7, 40, 150):
        forced = TargetedAttacks(episodes, Linf(0.5), 4, 2, True)
        forced.begin(3)
        found.append(
            [[(item.action, item.shown.tobytes()) for item in one] for one in forced.find(x[:count], own[:count])]
        )
    assert all(some == found[-1][: len(some)] for some in found) and any(found[-1])


@every_case("count", [0, 1, 2, 3, 10, 75])
def test_sizes_of_batches_depend_on_their_place_alone(count):
    batches, x = Batches(2, 32), np.arange(count)
    parts = list(batches.of(x, count))
    assert [len(part) for _, part in parts] == [2, 8, 32, 32, 32][: len(parts)] and batches.sizes == [2, 8, 32]
    assert np.concatenate([x[:0], *(part for _, part in parts)])[:count].tolist() == x.tolist()
    assert [start for start, _ in parts] == [0, 2, 10, 42, 74][: len(parts)] and (count > 0) == bool(parts)
