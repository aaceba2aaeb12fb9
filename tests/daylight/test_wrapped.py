"""Daylight through the wrappers: parameters fixed, drawn once an episode, drawn once a step, from the seed alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import adv_wrappers as adv
from adv_wrappers.daylight import Rotation
from adv_wrappers.errors import SpaceError
from tests.daylight.helpers import FIXED, LENGTH, PICTURE, RANGED, Still, X, episodes


@pytest.mark.parametrize("name", FIXED)
def test_fixed_parameters_through_a_wrapper(name):
    how, expected = FIXED[name]
    assert how.name == name
    assert not torch.equal(expected, X)
    env = adv.PerturbObservation(Still(), how)
    for episode in episodes(env, seed=0):
        assert set(episode) == {expected.numpy().tobytes()}


@pytest.mark.parametrize("name", FIXED)
def test_floats_through_a_wrapper_keep_to_the_space(name):
    env = adv.PerturbObservation(Still("float"), FIXED[name][0])
    obs, _ = env.reset(seed=0)
    assert env.observation_space.contains(obs)
    levels = torch.from_numpy((obs.astype(np.float64) + 1) / 4 * 255)
    assert (levels - FIXED[name][1][0]).abs().max() <= 0.5 + 1e-3  # the grid's answer is rounded


@pytest.mark.parametrize("name", RANGED)
def test_drawn_once_an_episode(name):
    env = adv.PerturbObservation(Still(), RANGED[name])
    shown = episodes(env, seed=3, count=4)
    assert all(len(set(episode)) == 1 for episode in shown)
    assert len({episode[0] for episode in shown}) > 1
    assert episodes(env, seed=3, count=4) == shown
    assert len({tuple(episodes(env, seed, 1)[0]) for seed in range(5)}) > 1


@pytest.mark.parametrize("name", RANGED)
def test_drawn_once_a_step(name):
    env = adv.PerturbObservation(Still(), replace(RANGED[name], per="step"))
    shown = episodes(env, seed=3, count=3)
    assert all(len(set(episode)) > 1 for episode in shown)
    assert shown[0] != shown[1]
    assert episodes(env, seed=3, count=3) == shown


@pytest.mark.parametrize("per", ["episode", "step"])
@pytest.mark.parametrize("name", ["rotation", "shift", "random"])
def test_a_row_is_what_a_single_environment_is(name, per):
    how = replace(RANGED[name], per=per)
    single = [episodes(adv.PerturbObservation(Still(), how), seed) for seed in (5, 6, 7)]
    inner = SyncVectorEnv([Still] * 3, autoreset_mode=AutoresetMode.NEXT_STEP)
    env = adv.PerturbObservation(inner, how)
    obs = env.reset(seed=[5, 6, 7])[0]
    shown = [[[row.tobytes()]] for row in obs]
    for t in range(2 * LENGTH + 1):
        obs = env.step(np.zeros(3, np.int64))[0]
        for row, own in zip(obs, shown, strict=True):
            if t == LENGTH:
                own.append([])
            own[-1].append(row.tobytes())
    assert shown == single


@pytest.mark.parametrize(("space", "message"), [
    (spaces.Box(-np.inf, np.inf, (16, 20, 3), np.float32), "finite bounds"),
    (spaces.Box(0, 255, (16, 20, 3), np.int32), "got int32"),
    (spaces.Box(0, 1, (17,), np.float32), "layout"), (spaces.Box(0, 255, (8, 8, 8), np.uint8), "layout"),
    (spaces.Discrete(4), r"Discrete\(4\): expected a Box"),
])  # fmt: skip
def test_spaces_without_pictures_are_refused_at_wrapping(space, message):
    env = Still()
    env.observation_space = space
    for how, _ in FIXED.values():
        with pytest.raises(SpaceError, match=message):
            adv.PerturbObservation(env, how)


def test_labels():
    assert Rotation(3).label(adv.Valid()) == "rotation"
    assert Rotation(3).label(adv.Linf(1)) == "clipped-rotation"
    env = adv.PerturbObservation(Still(), Rotation(30), within=adv.Linf(2))
    obs, info = env.reset(seed=0)
    assert list(info["adv_wrappers"]) == ["0:clipped-rotation"]
    assert 0 < np.abs(obs.astype(int) - PICTURE).max() <= 2
