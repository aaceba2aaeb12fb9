"""The script of optimised bounds: what it counts, and that its search for points reaches the ends of boxes."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.result_scripts import result_script


@pytest.fixture(scope="module")
def script():
    with result_script("alpha_crown") as module:
        yield module


def test_there_are_twenty_networks(script):
    names = [name for name, _, _ in script.networks()]
    assert len(names) == len(set(names)) == 20


def test_outputs_and_all_differences(script):
    assert script.combinations(3).tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, -1, 0], [1, 0, -1], [0, 1, -1]]


def test_points_reach_what_a_linear_network_has(script, monkeypatch):
    monkeypatch.setattr(script, "POINTS", 2000)
    net = nn.Linear(3, 2).double().requires_grad_(False)
    low, high, spec = -torch.ones(2, 3).double(), torch.ones(2, 3).double(), script.combinations(2)
    least, most = script.searched(net, low, high, spec)
    rows, offset = spec @ net.weight, spec @ net.bias
    assert torch.allclose(most, (offset + rows.abs().sum(1)).expand(2, -1))
    assert torch.allclose(least, (offset - rows.abs().sum(1)).expand(2, -1))


def test_a_row_counts_bounds_and_what_lies_outside(script, monkeypatch):
    monkeypatch.setattr(script, "POINTS", 2000)
    make = {name: make for name, _, make in script.networks()}["4-32-32-3, relu, trained"]
    monkeypatch.setattr(script, "trained", lambda net, size, outputs: net)
    row = script.compared(make, 0.1)
    assert row["bounds"] == 96 and row["outside"] == 0 and row["linear"]["looser"] == row["interval"]["looser"] == 0
    assert row["linear"]["tighter"] > 0 and 0 < row["reached"] <= 1 and row["linear"]["width"] < 1
    loose = script.crown
    monkeypatch.setattr(script, "crown", lambda *a: tuple(x / (2 if len(a) == 6 else 1) for x in loose(*a)))
    assert script.compared(make, 0.1)["outside"] > 0  # bounds that are not sound are seen
