"""The page of layers on environments of tensors, and the environment that it plays."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import torch

from tests.result_scripts import result_script


def test_its_physics_are_those_of_gymnasium():
    with result_script("tensors") as tensors:
        env, theirs = tensors.TensorCartPole(2, "cpu"), gym.make("CartPole-v1")
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
