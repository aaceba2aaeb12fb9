"""The page of layers on environments of tensors, and the environment that it plays."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import gymnasium as gym
import numpy as np
import torch

FOLDER = Path(__file__).resolve().parents[1] / "benchmarks"


def test_the_page_has_every_layer(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    tensors = importlib.import_module("tensors")
    quick = ["--num-envs", "3", "--rounds", "1", "--least", "0", "--out", str(tmp_path)]
    monkeypatch.setattr("sys.argv", ["tensors.py", *quick])
    assert tensors.main() == 0
    data, page = json.loads((tmp_path / "tensors_cpu.json").read_text()), (tmp_path / "tensors_cpu.md").read_text()
    assert list(data["ratios"]) == ["bare", *tensors.LAYERS] and min(data["ratios"].values()) > 0
    assert all(f"| {name} |" in page for name in data["ratios"]) and "3 rows" in page


def test_its_physics_are_those_of_gymnasium(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    env, theirs = importlib.import_module("tensors").TensorCartPole(2, "cpu"), gym.make("CartPole-v1")
    obs, _ = env.reset(seed=0)
    theirs.reset(seed=0)
    theirs.unwrapped.state = tuple(obs[0].double().tolist())
    over = False
    while not over:
        obs, _, terminated, _, info = env.step(torch.ones(2, dtype=torch.int64))
        expected, _, over, _, _ = theirs.step(1)
        assert bool(terminated[0]) == over
        np.testing.assert_allclose(info["final_obs"][0], expected, rtol=1e-4, atol=1e-6)
    assert obs[0].abs().max() <= 0.05
