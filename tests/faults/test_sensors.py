"""Faults of sensors on CartPole's own observations, against the same faults written by hand."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import adv_wrappers as adv
from adv_wrappers.errors import SpaceError, ValueRangeError
from tests.core.helpers import Grey
from tests.every_case import every_case

STEPS = 30


def played(env: gym.Env[Any, Any], seed: int = 0, steps: int = STEPS) -> np.ndarray:
    """The observations of an episode of pushes to either side, as they come out."""
    found = [env.reset(seed=seed)[0]]
    for t in range(steps):
        obs, _, terminated, truncated, _ = env.step((t // 2) % 2)
        found.append(obs)
        if terminated or truncated:
            break
    env.close()
    return np.stack(found)


def both(threat: str, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """The true observations, and those under a threat."""
    return played(gym.make("CartPole-v1"), seed), played(adv.wrap(gym.make("CartPole-v1"), threat), seed)


def test_a_bias_is_of_the_radius_and_stays_for_the_episode() -> None:
    true, shown = both("sensor-bias:eps=0.1,scale=1;2;0;0.5")
    offset = shown.astype(np.float64) - true
    np.testing.assert_allclose(np.abs(offset), np.broadcast_to([0.1, 0.2, 0, 0.05], offset.shape), atol=1e-6)
    assert (np.sign(offset) == np.sign(offset[0])).all()
    signs = {
        tuple(np.sign(both("sensor-bias:eps=0.1", seed)[1][0] - both("noise:eps=0", seed)[0][0])) for seed in range(8)
    }
    assert len(signs) > 2, "it is drawn for every episode"


def test_a_drift_grows_evenly_and_stops_at_the_radius() -> None:
    true, shown = both("sensor-drift:eps=0.1,steps=10")
    size = np.abs(shown.astype(np.float64) - true)
    expected = 0.1 * np.minimum(np.arange(len(size)) / 10, 1)
    np.testing.assert_allclose(size, np.broadcast_to(expected[:, None], size.shape), atol=1e-6)
    assert (shown[0] == true[0]).all()


def test_quantization_reads_multiples_of_twice_the_radius() -> None:
    true, shown = both("quantization:eps=0.05,scale=1;0;1;2")
    steps = np.array([0.1, 1, 0.1, 0.2])
    multiples = (shown / steps)[:, [0, 2, 3]]
    np.testing.assert_allclose(multiples, np.round(multiples), atol=1e-5)
    assert (shown[:, 1] == true[:, 1]).all() and (np.abs(shown - true) <= steps / 2 + 1e-6).all()


def test_saturation_clips_its_features_alone() -> None:
    true, shown = both("saturation:low=-0.01,high=0.02,features=0;3")
    expected = true.copy()
    expected[:, [0, 3]] = expected[:, [0, 3]].clip(-0.01, 0.02)
    np.testing.assert_array_equal(shown, expected)


def test_saturation_has_ends_of_every_feature() -> None:
    true, shown = both("saturation:low=-1;-0.1;-1;-0.2,high=0.01;1;1;0.2")
    np.testing.assert_array_equal(shown, true.clip(np.float32([-1, -0.1, -1, -0.2]), np.float32([0.01, 1, 1, 0.2])))


@pytest.mark.parametrize("features", ["", "features=1;2"])
def test_a_stuck_sensor_reads_what_it_read_first(features: str) -> None:
    true, shown = both(f"stuck-sensor:{features}" if features else "stuck-sensor")
    at = [1, 2] if features else [0, 1, 2, 3]
    expected = true.copy()
    expected[:, at] = true[0, at]
    np.testing.assert_array_equal(shown, expected)


def test_a_sensor_sticks_where_its_timing_begins() -> None:
    true, shown = both("stuck-sensor:when=window(5,9)")
    expected = true.copy()
    expected[5:9] = true[5]
    np.testing.assert_array_equal(shown, expected)


def test_dropout_shows_the_fill_at_the_given_rate() -> None:
    true, shown = both("sensor-dropout:rate=0.3,fill=1;2;0.1;4")
    lost = shown != true
    np.testing.assert_array_equal(shown[lost], np.broadcast_to(np.float32([1, 2, 0.1, 4]), shown.shape)[lost])
    assert 0.1 < lost.mean() < 0.5 and len({tuple(row) for row in lost}) > 3, "each sensor by itself"


def test_dropout_shows_what_was_read_last() -> None:
    true, shown = both("sensor-dropout:rate=0.5,fill=last")
    assert (shown[0] == true[0]).all()
    for t in range(1, len(true)):
        assert ((shown[t] == true[t]) | (shown[t] == shown[t - 1])).all()
    assert 0.2 < (shown != true).mean() < 0.8


def test_swapped_sensors() -> None:
    true, shown = both("swapped-sensors:features=0;3")
    np.testing.assert_array_equal(shown, true[:, [3, 1, 2, 0]])
    true, shown = both("swapped-sensors:features=0;1;2")
    np.testing.assert_array_equal(shown, true[:, [2, 0, 1, 3]])


class Late(gym.ObservationWrapper[Any, Any, Any]):
    """A delay as one writes it by hand."""

    def __init__(self, env: gym.Env[Any, Any], steps: int) -> None:
        super().__init__(env)
        self.steps, self.past = steps, list[Any]()

    def reset(self, **kwargs: Any) -> Any:
        self.past = []
        return super().reset(**kwargs)

    def observation(self, observation: Any) -> Any:
        self.past.append(observation)
        return self.past[max(len(self.past) - 1 - self.steps, 0)]


@pytest.mark.parametrize(("id", "steps"), [("CartPole-v1", 1), ("Pendulum-v1", 7), ("CartPole-v1", 40)])
def test_a_delay_equals_one_written_by_hand(id: str, steps: int) -> None:
    for seed in range(3):
        made = gym.make(id), adv.wrap(gym.make(id), f"observation-delay:steps={steps}")
        by_hand, ours = Late(made[0], steps), made[1]
        for env in (by_hand, ours):
            env.action_space.seed(seed)
        a, b = by_hand.reset(seed=seed)[0], ours.reset(seed=seed)[0]
        assert a.tobytes() == b.tobytes() and a.dtype == b.dtype
        for _ in range(60):
            a, *_, end, _, _ = by_hand.step(by_hand.action_space.sample())
            b, *_ = ours.step(ours.action_space.sample())
            assert a.tobytes() == b.tobytes() and a.dtype == b.dtype
            if end:
                break


def test_jitter_shows_the_newest_that_has_arrived() -> None:
    most, late = 4, list[int]()
    for seed in range(20):
        true, shown = both(f"observation-jitter:most={most}", seed)
        places = [int(np.flatnonzero((true == one).all(1))[-1]) for one in shown]
        assert places == sorted(places), "an older one is never shown after a newer one"
        late += [t - place for t, place in enumerate(places) if t > most]  # the reset's has no delay
    assert min(late) == 0 and max(late) <= most and len({*late}) >= 3
    # age a is shown where that packet took at most a, and each newer one longer than its age
    chances = [(a + 1) / (most + 1) * np.prod([1 - (b + 1) / (most + 1) for b in range(a)]) for a in range(most + 1)]
    assert abs(np.mean(late) - np.dot(chances, range(most + 1))) < 0.2


def test_a_lost_observation_is_the_one_before() -> None:
    true, shown = both("observation-loss:rate=0.4")
    for t in range(1, len(true)):
        assert (shown[t] == true[t]).all() or (shown[t] == shown[t - 1]).all()
    assert (shown[0] == true[0]).all() and 0.1 < (shown != true).any(1).mean() < 0.7


def test_occlusion_covers_a_rectangle() -> None:
    places = {"episode": set(), "step": set()}  # type: dict[str, set[Any]]
    for per, found in places.items():
        env = adv.wrap(Grey(255, (4, 20, 30)), f"occlusion:height=6,width=9,value=40,per={per}")
        seen = [env.reset(seed=3)[0], *(env.step(0)[0] for _ in range(5))]
        for picture in seen:
            rows, columns = np.nonzero(picture[0] != 255)
            assert len(rows) == 54 and np.ptp(rows) == 5 and np.ptp(columns) == 8
            assert (picture == picture[0]).all() and {*np.unique(picture)} == {40, 255}
            found.add((rows[0], columns[0]))
    assert len(places["episode"]) == 1 and len(places["step"]) > 3


@every_case(
    ("text", "words"),
    [
        ("sensor-drift:steps=0,eps=1", "steps"),
        ("saturation:low=2", "low < high"), ("saturation:low=0;2,high=1", "low < high"),
        ("saturation:low=nan", "low"),
        ("sensor-dropout:rate=0", "rate must be a finite number above 0"), ("sensor-dropout:rate=1.5", "rate"),
        ("sensor-dropout:fill=first", "fill must be"),
        ("stuck-sensor:features=-1", "different indices"), ("stuck-sensor:features=1;1", "different indices"),
        ("stuck-sensor:features=inf", "different indices"), ("stuck-sensor:features=nan", "different indices"),
        ("swapped-sensors:features=1", "two indices"), ("observation-delay:steps=0", "steps"),
        ("observation-delay:steps=2000", "steps"), ("observation-jitter:most=0.5", "most"),
        ("observation-loss:rate=-1", "rate"), ("occlusion:height=0", "height"), ("occlusion:per=day", "per must be"),
        ("action-delay:steps=0", "steps"), ("action-loss:rate=0", "rate must be a finite number above 0"),
    ],
)  # fmt: skip
def test_bad_arguments_are_named(text: str, words: str) -> None:
    with pytest.raises(ValueRangeError, match=words):
        adv.wrap(gym.make("CartPole-v1"), text)


@every_case(
    ("text", "words"),
    [
        ("stuck-sensor:features=4", "for feature 4"), ("saturation:high=1,features=9", "for feature 9"),
        ("saturation:low=-1;-1,high=1;2", "low has 2 numbers"),
        ("sensor-dropout:fill=1;2", "fill has 2 numbers"), ("occlusion", "expected an image|picture|shape"),
    ],
)  # fmt: skip
def test_what_the_observation_lacks_is_named(text: str, words: str) -> None:
    with pytest.raises(SpaceError, match=words):
        adv.wrap(gym.make("CartPole-v1"), text)


@pytest.mark.parametrize("id", ["CartPole-v1", "Pendulum-v1"])
def test_jitter_equals_one_written_by_hand_with_the_same_delays(id: str) -> None:
    most = 3
    bare, ours = gym.make(id), adv.wrap(gym.make(id), f"observation-jitter:most={most}")
    layer: Any = ours
    for seed in range(3):
        sent = list[tuple[int, Any]]()  # when each observation arrives, and what it is
        bare.action_space.seed(seed)
        true, shown = bare.reset(seed=seed)[0], ours.reset(seed=seed)[0]
        for t in range(60):
            sent.append((t + int(layer.engine.memory["takes"][0, -1]), true))
            newest = [obs for arrives, obs in sent if arrives <= t][-1]
            assert shown.tobytes() == newest.tobytes() and shown.dtype == newest.dtype
            action = bare.action_space.sample()
            true, _, end, _, _ = bare.step(action)
            shown = ours.step(action)[0]
            if end:
                break
