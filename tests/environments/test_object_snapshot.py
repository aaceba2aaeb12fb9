"""What is kept of every kind of object, put back into the same object; what cannot be kept is named."""

from __future__ import annotations

import collections
import datetime
import functools
import itertools
import random
import threading
from dataclasses import dataclass

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.vector import AsyncVectorEnv

from adv_wrappers.environments.snapshot import Snapshot, difference, random_states
from adv_wrappers.errors import SnapshotError
from tests.every_case import every_case


class Holder(gym.Env):
    """An environment that holds what it is given."""

    observation_space = gym.spaces.Discrete(2)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, **parts):
        self.__dict__.update(parts)

    def __str__(self):
        return "<Holder>"


class Slotted:
    __slots__ = ("__hidden", "x", "y")

    def __init__(self):
        self.x, self.__hidden = [1], 2

    def change(self):
        self.x.append(2)
        self.x, self.y, self.__hidden = None, 3, 4

    def read(self):
        return self.x, hasattr(self, "y"), self.__hidden


class Stateless:
    __slots__ = ()

    def __copy__(self):
        raise AssertionError("there is nothing to copy")

    __deepcopy__ = __copy__


class Counted(dict):
    """A dictionary with an attribute."""


@dataclass(frozen=True)
class Frozen:
    inner: list


def generator(kind):
    return np.random.Generator(kind(3))


def draw(source):
    return torch.rand(3, generator=source).tolist()


CASES = {
    "list": ([1, [2]], lambda v: (v[1].append(3), v.clear()), lambda v: (v[0], v[1][:])),
    "dict": ({"a": [1]}, lambda v: (v["a"].pop(), v.update(b=2)), lambda v: {k: list(x) for k, x in v.items()}),
    "order": (collections.OrderedDict(a=1, b=2), lambda v: v.move_to_end("a"), list),
    "default": (collections.defaultdict(list, a=[1]), lambda v: v["b"].append(v["a"].pop()), dict),
    "queue": (collections.deque([[1], [2]], maxlen=2), lambda v: (v[0].append(5), v.append([3])), lambda v: str(v)),
    "set": ({1, 2}, lambda v: v.add(3), set),
    "tuple": (([1], 2), lambda v: v[0].append(3), str),
    "bytes": (bytearray(b"ab"), lambda v: v.extend(b"c"), bytes),
    "array": (np.arange(3.0), lambda v: v.fill(7), lambda v: v.tobytes()),
    "scalar": (np.array(3), lambda v: v.fill(7), lambda v: v.tobytes()),
    "objects": (np.array([[1], {2: 3}], dtype=object), lambda v: (v[0].pop(), v[1].clear(), v.fill(0)), str),
    "tensor": (torch.arange(3.0), lambda v: v.zero_(), lambda v: v.tolist()),
    "pcg64": (generator(np.random.PCG64), lambda v: v.random(), lambda v: v.random(3).tobytes()),
    "mt19937": (generator(np.random.MT19937), lambda v: v.normal(), lambda v: v.normal(size=700).tobytes()),
    "legacy": (np.random.RandomState(0), lambda v: v.randn(), lambda v: v.randn(3).tobytes()),
    "random": (random.Random(0), lambda v: v.gauss(), lambda v: [v.gauss() for _ in range(3)]),
    "torch": (torch.Generator().manual_seed(0), lambda v: draw(v), lambda v: draw(v)),
    "slots": (Slotted(), lambda v: v.change(), lambda v: (str(v.read()))),
    "subclass": (Counted(a=1), lambda v: (v.clear(), setattr(v, "count", 2)), lambda v: (dict(v), vars(v).copy())),
    "frozen": (Frozen([1]), lambda v: v.inner.append(2), str),
    "partial": (functools.partial(print, [1]), lambda v: v.args[0].append(2), lambda v: str(v.args)),
    "builtin": ([1].append, lambda v: v(2), lambda v: str(v.__self__)),
    "method": (Slotted().change, lambda v: v(), lambda v: str(v.__self__.read())),
}  # fmt: skip


@every_case("kind", CASES)
def test_contents_come_back_into_the_same_objects(kind):
    value, change, read = CASES[kind]
    env = Holder(part=value, alias=[value])
    snapshot = Snapshot.of(env)
    first = read(value)
    for _ in range(2):
        snapshot.restore(env)
        change(value)
        env.part, env.late = None, 1
        snapshot.restore(env)
        assert env.part is value and env.alias[0] is value and not hasattr(env, "late")
        assert read(value) == first


@every_case("kind", ["pcg64", "mt19937", "legacy", "random", "torch"])
def test_what_was_drawn_shows_in_the_random_states(kind):
    value, draw_one, _ = CASES[kind]
    env = Holder(part=value, other=np.zeros(2))
    before = random_states(env)
    env.other += 1
    assert difference(random_states(env), before, "") == ""
    draw_one(value)
    assert difference(random_states(env), before, "") != ""


def test_what_is_hidden_from_python_is_copied_and_rebound():
    env = Holder(count=iter(range(9)), held={"in": [iter([1, 2, 3, 4])]})
    snapshot = Snapshot.of(env)
    for _ in range(2):
        assert (len(list(env.count)), len(list(env.held["in"][0]))) == (9, 4)
        snapshot.restore(env)


def test_an_inference_tensor_and_a_cycle():
    with torch.inference_mode():
        tensor = torch.zeros(2)
    env = Holder(tensor=tensor, me=[])
    env.me.append(env)
    snapshot = Snapshot.of(env)
    with torch.inference_mode():
        tensor += 1
    snapshot.restore(env)
    assert env.tensor is tensor and tensor.tolist() == [0, 0] and env.me == [env]


def test_what_is_shared_stays_as_it_is():
    net, lock, space = torch.nn.Linear(1, 1), threading.Lock(), gym.spaces.Discrete(3)
    parameter = torch.nn.Parameter(torch.zeros(1))
    env = Holder(
        net=net,
        lock=lock,
        space=space,
        parameter=parameter,
        fixed=(Stateless(), object.__str__, str.join, ..., datetime.timedelta(1)),
    )
    snapshot = Snapshot.of(env)
    with torch.no_grad():
        net.weight.fill_(9.0)
        parameter.fill_(9.0)
    snapshot.restore(env)
    assert env.net is net and float(net.weight.detach()) == 9.0 == float(parameter.detach())


def test_what_cannot_be_kept_is_named():
    env = Holder(parts={"waiting": [(i for i in range(3))]})
    with pytest.raises(
        SnapshotError, match=r"<Holder> cannot be saved: its parts\['waiting'\]\[0\] is a generator, .*pickle"
    ):
        Snapshot.of(env)
    with pytest.raises(SnapshotError, match=r"its parts\[1\] is a range_iterator, whose state is hidden from Python"):
        Snapshot.of(Holder(parts=(1, iter(range(3)))))
    for parts in ([itertools.count()], (1, itertools.repeat(1, 2)), collections.deque([itertools.cycle([1])])):
        with pytest.raises(
            SnapshotError, match=r"its parts\[.\] is a (count|repeat|cycle), which Python does not copy"
        ):
            Snapshot.of(Holder(parts=parts))
    wrapped = gym.wrappers.TimeLimit(Holder(inner=collections.deque([[i for i in range(2)], iter(range(3))])), 3)
    with pytest.raises(SnapshotError, match=r"its env\.inner\[1\] is a range_iterator"):
        Snapshot.of(wrapped)
    with pytest.raises(
        SnapshotError, match=r"ALEInterface, which does not save the action .* repeat_action_probability=0"
    ):
        Snapshot.of(gym.make("ALE/Pong-v5"))


def test_other_processes():
    env = AsyncVectorEnv([lambda: gym.make("CartPole-v1")])
    try:
        with pytest.raises(SnapshotError, match="which belongs to another process: use SyncVectorEnv or DummyVecEnv"):
            Snapshot.of(env)
    finally:
        env.close()


def test_memory_that_is_used_again_and_another_environment():
    env = gym.make("Hopper-v5")
    env.reset(seed=0)
    old = Snapshot.of(env)
    kept = next(part for put, _, part in old._kept if type(part).__name__ == "MjData")
    env.step(env.action_space.sample())
    new = Snapshot.of(env, old)
    assert any(part is kept for _, _, part in new._kept)
    height = env.unwrapped.data.qpos.copy()
    env.step(env.action_space.sample())
    new.restore(env)
    assert (env.unwrapped.data.qpos == height).all()
    with pytest.raises(
        SnapshotError, match="a snapshot is of one environment: expected that TimeLimit itself, got another"
    ):
        new.restore(env.unwrapped)
