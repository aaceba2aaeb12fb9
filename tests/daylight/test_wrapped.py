"""Daylight through the wrappers: parameters fixed, drawn once an episode, drawn once a step, from the seed alone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import adv_wrappers as adv
from adv_wrappers import daylight
from adv_wrappers.core.engine.context import AttackedStep
from adv_wrappers.core.image_layouts import LAYOUTS
from adv_wrappers.daylight import Rotation
from adv_wrappers.daylight.transform import Transform
from adv_wrappers.errors import SpaceError
from tests.daylight.helpers import FIXED, LENGTH, PICTURE, RANGED, Still, X, at_step, episodes, force_torch
from tests.daylight.test_images import SHAPES
from tests.every_case import every_case


@every_case("name", FIXED)
def test_fixed_parameters_through_a_wrapper(name):
    how, expected = FIXED[name]
    assert how.name == name
    assert not torch.equal(expected, X)
    env = adv.PerturbObservation(Still(), how)
    for episode in episodes(env, seed=0):
        assert set(episode) == {expected.numpy().tobytes()}


@every_case("name", FIXED)
def test_floats_through_a_wrapper_keep_to_the_space(name):
    env = adv.PerturbObservation(Still("float"), FIXED[name][0])
    obs, _ = env.reset(seed=0)
    assert env.observation_space.contains(obs)
    levels = torch.from_numpy((obs.astype(np.float64) + 1) / 4 * 255)
    assert (levels - FIXED[name][1][0]).abs().max() <= 0.5 + 1e-3  # the grid's answer is rounded


@every_case("name", RANGED)
def test_drawn_once_an_episode(name):
    env = adv.PerturbObservation(Still(), RANGED[name])
    shown = episodes(env, seed=3, count=4)
    assert all(len(set(episode)) == 1 for episode in shown)
    assert len({episode[0] for episode in shown}) > 1
    assert episodes(env, seed=3, count=4) == shown
    assert len({tuple(episodes(env, seed, 1)[0]) for seed in range(5)}) > 1


@every_case("name", RANGED)
def test_drawn_once_a_step(name):
    env = adv.PerturbObservation(Still(), replace(RANGED[name], per="step"))
    shown = episodes(env, seed=3, count=3)
    assert all(len(set(episode)) > 1 for episode in shown)
    assert shown[0] != shown[1]
    assert episodes(env, seed=3, count=3) == shown


@every_case("per", ["episode", "step"])
@every_case("name", ["rotation", "shift", "perspective"])
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


@every_case(("space", "message"), [
    (spaces.Box(-np.inf, np.inf, (16, 20, 3), np.float32), "finite bounds"),
    (spaces.Box(0, 255, (16, 20, 3), np.int32), "got int32"),
    (spaces.Box(0, 1, (17,), np.float32), "layout"), (spaces.Box(0, 255, (8, 8, 8), np.uint8), "layout"),
    (spaces.Discrete(4), "layout"),
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


ALL = {**{name: how for name, (how, _) in FIXED.items()}, **{f"drawn {name}": how for name, how in RANGED.items()}}
ALL["clip"], ALL["daylight"] = daylight.Brightness(2.4, -275), daylight.Daylight("pong", "rotation")
ALL["reflected"], ALL["nearest"] = daylight.Shift(-3, 2, "reflect"), daylight.Rotation(40, "zero", "nearest")
ALL["bgr"] = daylight.JPEG(70, "4:4:4", "BGR")


@pytest.mark.parametrize(
    ("name", "layout"),
    [(name, layout) for i, name in enumerate(ALL) for j, layout in enumerate(LAYOUTS) if (i + j) % 3 == 0],
)
def test_arrays_and_tensors_come_out_the_same(monkeypatch, name, layout):
    """What the engine hands over as an array, by OpenCV, and the same as a tensor, by torch."""
    how = replace(ALL[name], layout=layout)
    for batch, step in (1, False), (5, True), (5, False):
        x = np.random.default_rng(batch).integers(
            0, 256, (batch, *[s + 12 * (s in (5, 7)) for s in SHAPES[layout]]), np.uint8
        )
        x = x[:, ::-1] if step else x
        kept = x.copy()
        x.setflags(write=False)
        how = replace(how, per="step") if step else how
        y = how(x, at_step(batch))
        assert type(y) is np.ndarray and y.dtype == np.uint8 and not np.shares_memory(x, y)
        assert np.array_equal(x, kept)
        tensor = torch.from_numpy(kept)
        assert torch.equal(how(tensor, at_step(batch)), torch.from_numpy(y))
        with monkeypatch.context() as forced:
            force_torch(forced)
            assert torch.equal(how(tensor, at_step(batch)), torch.from_numpy(y))


def test_the_engine_takes_arrays():
    for how in ALL.values():
        engine = adv.PerturbObservation(Still(), how).engine
        assert engine.in_numpy is not None
        engine.begin_episode(0)
        shown, kept = engine.observe(PICTURE), PICTURE.copy()
        engine.in_numpy = None
        engine.begin_episode(0)
        assert np.array_equal(engine.observe(PICTURE), shown) and np.array_equal(PICTURE, kept)
        assert type(shown) is np.ndarray and not np.shares_memory(shown, PICTURE)


@every_case("name", RANGED)
def test_rows_that_are_attacked_draw_the_same_as_arrays_and_tensors(name):
    shown = []
    for tensors in (False, True):
        inner = SyncVectorEnv([Still] * 3, autoreset_mode=AutoresetMode.NEXT_STEP)
        env = adv.PerturbObservation(inner, replace(RANGED[name], per="step"), when=adv.Bernoulli(0.5))
        env.engine.in_numpy = None if tensors else env.engine.in_numpy
        shown.append([env.reset(seed=4)[0], *(env.step(np.zeros(3, np.int64))[0] for _ in range(2 * LENGTH))])
    assert np.array_equal(*map(np.stack, shown))


def test_what_needs_tensors():
    """Floats, frames that are new, budgets that clip, and arrays that are not of the space's own dtype."""
    how = Rotation(3)
    assert adv.PerturbObservation(Still("float"), how).engine.in_numpy is None
    assert adv.PerturbObservation(Still(), how, within=adv.Linf(8)).engine.in_numpy is None
    assert adv.PerturbObservation(Still(), how, within=adv.Newest(adv.Valid(), axis=2)).engine.in_numpy is None
    engine, part = adv.PerturbObservation(Still(), how).engine, PICTURE[None]
    step = partial(AttackedStep, engine.applied, engine.state, PICTURE)
    assert engine.in_numpy(step(part)) is not None
    assert engine.in_numpy(step(part.astype(np.int64))) is None
    assert engine.in_numpy(step(torch.from_numpy(part))) is None


@dataclass(frozen=True)
class Negative(Transform):
    """Knows tensors alone, and writes to what it is given."""

    name: ClassVar[str] = "test-negative"

    def change(self, x, layout, limits, **parameters):
        return x.neg_().sub_(1)


@dataclass(frozen=True)
class Half(Transform):
    """Claims arrays, and returns of them what does not fit."""

    name: ClassVar[str] = "test-half"
    arrays: ClassVar[bool] = True

    def change(self, x, layout, limits, **parameters):
        return x[:, :1] if isinstance(x, np.ndarray) else 255 - x


@pytest.mark.parametrize("how", [Negative(), Half()])
def test_a_transform_of_ones_own(how):
    env, picture = adv.PerturbObservation(Still(), how), PICTURE.copy()
    obs, _ = env.reset(seed=0)
    assert np.array_equal(obs, 255 - PICTURE) and np.array_equal(env.unwrapped.picture, picture)
