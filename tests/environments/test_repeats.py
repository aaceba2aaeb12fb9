"""The replay: what does not repeat is named, and the environment is left as it was."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch

from adv_wrappers.environments.snapshot import check_repeats, difference
from adv_wrappers.errors import SnapshotError
from tests.every_case import every_case


class Scripted(gym.Env):
    """Returns what functions of the number of all steps ever played return, of which it forgets to hold the count."""

    observation_space = gym.spaces.Discrete(9)
    action_space = gym.spaces.Discrete(3)

    def __init__(self, played, masked=False, **answers):
        self.count, self.answers, self.masked = lambda: (played.append(None), len(played))[1], answers, masked
        self.taken = []

    def __str__(self):
        return "<Scripted>"

    def reset(self, *, seed=None, options=None):
        return 0, {}

    def step(self, action):
        self.taken.append(int(action))
        count = self.count()
        info = {"action_mask": np.array([0, 0, 1], np.int8)} if self.masked else {}
        whole = {"observation": 0, "reward": 1.0, "terminated": False, "truncated": False, "info": info}
        return tuple(self.answers[name](count) if name in self.answers else value for name, value in whole.items())


@every_case(
    ("answers", "where"),
    [
        ({"observation": lambda n: n}, r"step 1 .* another observation \(1, then 4\)"),
        ({"reward": lambda n: float(n == 5)}, r"step 2 .* another reward \(0.0, then 1.0\)"),
        ({"terminated": lambda n: n == 6}, "step 3 .* another terminated"),
        ({"truncated": lambda n: n == 4}, "step 1 .* another truncated"),
        ({"info": lambda n: {"a": [0, {"b": n}]}}, r"step 1 .* another info\[a\]\[1\]\[b\] \(1, then 4\)"),
        ({"info": lambda n: {"x": 1} if n > 4 else {}}, r"step 2 .* another info \(with \['x'\] only once\)"),
    ],
)
def test_what_differs_is_named(answers, where):
    with pytest.raises(SnapshotError, match=f"<Scripted> does not repeat: {where}"):
        check_repeats(Scripted([], **answers))


def test_seconds_and_the_end_of_an_episode():
    played = []
    check_repeats(Scripted(played, info=lambda n: {"episode": {"t": n, "l": 3}}))
    assert len(played) == 6
    played.clear()
    check_repeats(Scripted(played, terminated=lambda n: n in (2, 4)))  # over after two steps, both times
    assert len(played) == 4


def test_actions_are_allowed_and_the_environment_stays_as_it_was():
    env = Scripted([], masked=True)
    env.action_space.seed(5)
    before, taken = env.action_space.np_random.bit_generator.state, []
    env.step = lambda action: (taken.append(int(action)), Scripted.step(env, action))[1]
    check_repeats(env, np.int64(1))
    assert taken == [1, 2, 2, 1, 2, 2] and env.taken == []
    assert env.action_space.np_random.bit_generator.state == before


def test_before_a_reset():
    with pytest.raises(SnapshotError, match="has no state yet: call reset first"):
        check_repeats(gym.make("CartPole-v1"))


def test_differences():
    array = np.arange(3.0)
    same = [
        (array, array.copy()),
        (torch.ones(2), torch.ones(2)),
        (float("nan"), float("nan")),
        ("a", "a"),
        (None, None),
        (10**40, 10**40),
        (np.array([None, {"a": 1}], dtype=object), np.array([None, {"a": 1}], dtype=object)),
        (object(), object()),
    ]
    assert [difference(one, two, "x") for one, two in same] == [""] * len(same)
    other = [
        (0.0, -0.0),
        (1, 1.0),
        (True, False),
        ("a", "b"),
        ((1,), (1, 2)),
        (array, array.astype(np.float32)),
        (array, array[:2]),
        (torch.ones(2), torch.zeros(2)),
    ]
    assert all(difference(one, two, "x").startswith("x (") for one, two in other)
