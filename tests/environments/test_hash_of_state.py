"""Fingerprints of states: equal where the same was done, other where anything differs, None where nobody can tell."""

from __future__ import annotations

import collections

import gymnasium as gym
import numpy as np
import torch

from adv_wrappers.atari.env import atari
from adv_wrappers.environments.snapshot import Snapshot, StateFingerprints
from tests.every_case import every_case


class Holder(gym.Env):
    """Holds one thing of each kind that a state is made of."""

    def __init__(self):
        self.held = {
            "list": [1, 2.0, "three"],
            "array": np.arange(3),
            "deque": collections.deque([np.zeros(2)], maxlen=4),
            "set": {1, "a"},
            "tuple": (1, [2]),
            "tensor": torch.ones(2),
            "random": np.random.default_rng(3),
            "bytes": bytearray(b"ab"),
            "number": np.float32(1.5),
            "nothing": None,
        }
        self.method, self.zero, self.same = self.step, 0.0, self.held["list"]


def changed_list(env):
    env.held["list"][1] = 2


CHANGES = {
    "an integer for a float": changed_list,
    "an element": lambda env: env.held["array"].__setitem__(0, 5),
    "a dtype": lambda env: env.held.__setitem__("array", np.arange(3, dtype=np.int32)),
    "a shape": lambda env: env.held.__setitem__("array", np.arange(3)[None]),
    "an element of a queue": lambda env: env.held["deque"][0].fill(1.0),
    "a longer queue": lambda env: env.held["deque"].append(np.zeros(2)),
    "an element of a set": lambda env: env.held["set"].add(2),
    "an element in a tuple": lambda env: env.held["tuple"][1].append(3),
    "a tensor": lambda env: env.held["tensor"].mul_(2),
    "a draw": lambda env: env.held["random"].random(),
    "a byte": lambda env: env.held["bytes"].__setitem__(0, 0),
    "a number": lambda env: env.held.__setitem__("number", np.float64(1.5)),
    "a sign of zero": lambda env: setattr(env, "zero", -0.0),
    "a text for nothing": lambda env: env.held.__setitem__("nothing", "None"),
    "the order of a dictionary": lambda env: env.held.__setitem__("list", env.held.pop("list")),
    "an equal list that is another": lambda env: setattr(env, "same", list(env.same)),
    "an attribute more": lambda env: setattr(env, "more", 0),
    "another function": lambda env: setattr(env, "method", env.reset),
}


@every_case("change", CHANGES)
def test_what_differs(change):
    env, fingerprints = Holder(), StateFingerprints()
    before = Snapshot.of(env)
    first = fingerprints.of(before)
    assert first is not None and fingerprints.of(Snapshot.of(env)) == first
    CHANGES[change](env)
    assert fingerprints.of(Snapshot.of(env)) not in (first, None)
    before.restore(env)
    assert fingerprints.of(Snapshot.of(env)) == first


def test_contents_in_new_objects_are_the_same_state():
    env, fingerprints = Holder(), StateFingerprints()
    first = fingerprints.of(Snapshot.of(env))
    env.held["array"], env.held["deque"][0] = env.held["array"].copy(), np.zeros(2)
    env.held["list"] = env.same = list(env.same)
    assert fingerprints.of(Snapshot.of(env)) == first


def test_shared_objects_are_told_apart_also_when_one_is_gone():
    env, fingerprints = Holder(), StateFingerprints()
    seen = set[bytes | None]()
    for _ in range(20):
        env.shared = gym.spaces.Discrete(2)  # soon in the memory of the one before
        seen.add(fingerprints.of(Snapshot.of(env)))
    assert len(seen) == 20 and None not in seen


def test_actions_that_have_the_same_effect():
    env, fingerprints = atari("PongNoFrameskip-v4"), StateFingerprints()
    env.reset(seed=3)
    first = Snapshot.of(env)

    def after(*actions):
        first.restore(env)
        for action in actions:
            env.step(action)
        return fingerprints.of(Snapshot.of(env))

    noop, fire, right = 0, 1, 2
    assert after(fire, noop) == after(noop, noop) != after(right, noop)
    assert after(noop, noop) != after(noop)
    env.close()


class Opaque(gym.Env):
    def __init__(self):
        self.objects = np.array([{}, []], dtype=object)


def test_what_cannot_be_compared():
    assert StateFingerprints().of(Snapshot.of(Opaque())) is None
    env = gym.make("InvertedPendulum-v5")
    env.reset(seed=0)
    assert StateFingerprints().of(Snapshot.of(env)) is None
    env.close()
