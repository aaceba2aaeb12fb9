"""Newest: a frame may be changed when it is shown first, and is then shown as it was."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from gymnasium import spaces

import adv_wrappers as adv
from adv_wrappers.errors import BudgetError
from adv_wrappers.threats.presets import parse_threat
from tests.every_case import every_case
from tests.rigs import RIGS, ReplayEnv, run


def stacks(count: int, frames: int = 4, seed: int = 0, axis: int = 0) -> list[np.ndarray]:
    """A rolling stack of random frames of 3x5 pixels, the newest last."""
    rng = np.random.default_rng(seed)
    film = rng.integers(0, 256, (count + frames - 1, 3, 5), dtype=np.uint8)
    return [np.moveaxis(film[i : i + frames], 0, axis) for i in range(count)]


def env(axis: int = 0, film: list[np.ndarray] | None = None) -> ReplayEnv:
    film = stacks(8, axis=axis) if film is None else film
    space = spaces.Box(0, 255, film[0].shape, np.uint8)
    return ReplayEnv([film], space, spaces.Discrete(2))


def play(wrapper: object) -> list[np.ndarray]:
    obs, over = [wrapper.reset(seed=0)[0]], False
    while not over:
        seen, _, terminated, truncated, _ = wrapper.step(0)
        obs.append(seen)
        over = terminated or truncated
    return obs


@pytest.mark.parametrize("axis", [0, -1, 2])
@pytest.mark.parametrize("threat", ["noise:eps=9", "brightness:beta=7", "noise:eps=40,norm=l0", "noise:eps=20,norm=l2"])
def test_the_past_is_shown_as_it_was(axis, threat):
    seen = [np.moveaxis(obs, axis, 0) for obs in play(wrapped(threat, axis))]
    true = [np.moveaxis(obs, axis, 0) for obs in stacks(8, axis=axis)]
    for before, now in itertools.pairwise(seen):
        np.testing.assert_array_equal(now[:-1], before[1:])
    assert all((a[-1] != b[-1]).any() for a, b in zip(seen, true, strict=True))


def wrapped(threat: str, axis: int, **kwargs: object) -> object:
    made = parse_threat(threat)
    return adv.PerturbObservation(env(axis), made, within=adv.Newest(made.budget, axis=axis), **kwargs)


def test_steps_that_are_not_attacked_show_the_perturbed_past():
    seen, true = play(wrapped("brightness:beta=7", 0, when=adv.Every(2))), stacks(8)
    assert (seen[2][3] != true[2][3]).any()
    np.testing.assert_array_equal(seen[3][3], true[3][3])
    np.testing.assert_array_equal(seen[3][2], seen[2][3])


def test_a_gradient_attack_spends_nothing_on_the_past():
    rig = RIGS["image"]
    threat = adv.threat("pgd", rig.victim(), eps=3, newest=True, steps=2, restarts=1)
    attacked, clean = run("env", rig, lambda one: adv.wrap(one, threat)), run("env", rig)
    for row, bare in zip(attacked, clean, strict=True):
        for episode, original in zip(row, bare, strict=True):
            for t, (x, y) in enumerate(zip(original.seen, episode.seen, strict=True)):
                assert np.abs(x.astype(int) - y).max() <= 3
                assert (x[-1] != y[-1]).any()
                if t:
                    np.testing.assert_array_equal(y[:-1], episode.seen[t - 1][1:])


def test_every_frame_is_new_at_the_start_and_after_a_jump():
    film = [stacks(1, seed=s)[0] for s in range(3)]  # nothing in common
    for seen, true in zip(play(wrapped_film(film)), film, strict=True):
        assert all((a != b).any() for a, b in zip(seen, true, strict=True))


def wrapped_film(film: list[np.ndarray]) -> object:
    return adv.PerturbObservation(
        env(film=film), adv.daylight.Brightness(1.0, 7.0), within=adv.Newest(adv.Valid(), axis=0)
    )


def test_frames_of_several_entries():
    film = stacks(9)[::2]  # two frames more at every step
    wrapper = adv.PerturbObservation(
        env(film=film), adv.daylight.Brightness(), within=adv.Newest(adv.Valid(), 0, size=2)
    )
    seen = play(wrapper)
    for before, now in itertools.pairwise(seen):
        np.testing.assert_array_equal(now[:2], before[2:])


def test_what_is_no_stack_is_refused():
    with pytest.raises(BudgetError, match="needs the budget of a frame"):
        adv.Newest(adv.Newest(adv.Valid()))
    for wrong in (
        adv.Newest(adv.Valid(), axis=3),
        adv.Newest(adv.Valid(), axis=1, size=2),
        adv.Newest(adv.Valid(), axis=0, size=4),
    ):
        with pytest.raises(BudgetError, match="a stack of at least two frames"):
            adv.PerturbObservation(env(), adv.daylight.Brightness(), within=wrong)
    with pytest.raises(BudgetError, match="axis must be an integer"):
        adv.Newest(adv.Valid(), axis=True)
    with pytest.raises(BudgetError, match="below one grey level"):
        adv.PerturbObservation(env(), adv.Noise(), within=adv.Newest(adv.Linf(0.5), axis=0))


def test_its_dictionary():
    threat = adv.threat("noise", eps=2, newest=True)
    assert adv.ThreatModel.from_dict(threat.to_dict()) == threat


@every_case(
    ("shape", "axis"),
    [((4, 84, 84), 0), ((84, 84, 4), -1), ((4,), 0), ((4, 17), 0), ((4, 84, 84, 3), 0), ((2, 210, 160, 3), 0),
     ((84, 84), None), ((210, 160, 3), None), ((3, 84, 84), None), ((84, 84, 12), None), ((84, 84, 84), None)],
)  # fmt: skip
def test_where_the_frames_are(shape, axis):
    budget = adv.Newest(adv.Valid())
    if axis is not None:
        assert budget.along(shape) == axis and adv.Newest(adv.Valid(), axis=1).along(shape) == 1
        return
    with pytest.raises(BudgetError, match="say which axis"):
        budget.along(shape)


def test_the_stacks_of_stable_baselines():
    """Frames last: what is told from the shape is what the axis says."""
    film = [np.ascontiguousarray(np.moveaxis(np.repeat(obs, 3, 1), 0, -1)) for obs in stacks(6)]
    seen = []
    for budget in (adv.Newest(adv.Valid()), adv.Newest(adv.Valid(), axis=-1)):
        seen.append(play(adv.PerturbObservation(env(film=film), adv.daylight.Brightness(), within=budget)))
        for before, now in itertools.pairwise(seen[-1]):
            np.testing.assert_array_equal(now[..., :-1], before[..., 1:])
    np.testing.assert_array_equal(*seen)
