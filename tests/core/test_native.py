"""Native perturbations of whole images: their own dtype from end to end, and a context that is made when asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from adv_wrappers.core.budgets.budget import Valid
from adv_wrappers.core.engine.context import Context
from adv_wrappers.core.engine.engine import Engine, Wrapped
from adv_wrappers.core.perturbation import NativePerturbation
from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.errors import ThreatError

IMAGE = spaces.Box(0, 255, (2, 3), np.uint8)
DEVICES = [None, torch.device("cpu")]


@dataclass(frozen=True)
class Native(NativePerturbation):
    """Calls whatever the test wants."""

    name: ClassVar[str] = "test-native"
    do: object = None

    def __call__(self, x, context):
        return self.do(x, context)


@dataclass(frozen=True)
class Counting(Native):
    """Adds the number of attacks that it remembers."""

    name: ClassVar[str] = "test-native-counting"

    def initial_memory(self, x):
        return {"count": torch.zeros(len(x), dtype=torch.int64)}

    def __call__(self, x, context):
        count = context.memory["count"]
        context.memory["count"] = count + 1
        return x + count.to(torch.uint8)[:, None, None]


def engine(how, rows=3, stream=0, device=None, seed=0, space=IMAGE):
    made = Engine(
        ThreatModel("observation", how), Wrapped(space, spaces.Discrete(2), rows, device=device), stream=stream
    )
    made.begin_episode(seed)
    return made


def images(rows=3):
    return np.arange(rows * 6, dtype=np.uint8).reshape(rows, 2, 3)


def given(device, rows=3):
    return images(rows) if device is None else torch.from_numpy(images(rows))


@pytest.mark.parametrize("device", DEVICES)
def test_no_box_is_made_unless_it_is_asked_for(monkeypatch, device):
    asked = []
    box = Context.exact_box
    monkeypatch.setattr(Context, "exact_box", lambda self: asked.append(1) or box(self))
    made = engine(Native(lambda x, c: 255 - x), device=device)
    np.testing.assert_array_equal(np.asarray(made.apply(given(device), True)), 255 - images())
    engine(Native(lambda x, c: x + c.key.to(torch.uint8)[:, None, None]), device=device).apply(given(device), True)
    assert not asked
    seen = {}
    made = engine(Native(lambda x, c: seen.update(low=c.low, x=c.x, t=c.t, budget=c.budget) or x), device=device)
    made.apply(given(device), True)
    assert asked and seen["x"].dtype == torch.float32 and bool((seen["low"] == 0).all()) and seen["budget"] == Valid()


@pytest.mark.parametrize(
    ("do", "message"),
    [
        (lambda x, c: x.float(), "must return torch.uint8, got torch.float32"),
        (lambda x, c: x[:, :1], r"must return a tensor \(3, 2, 3\), got torch.uint8 \(3, 1, 3\)"),
        (lambda x, c: None, "got NoneType"),
    ],
)
def test_what_comes_back_is_checked(do, message):
    with pytest.raises(ThreatError, match=message):
        engine(Native(do)).apply(images(), True)


def test_an_unknown_attribute():
    with pytest.raises(AttributeError, match="no attribute 'surprise'"):
        engine(Native(lambda x, c: c.surprise)).apply(images(), True)


def test_a_narrower_space_is_still_projected():
    space = spaces.Box(10, 200, (2, 3), np.uint8)
    out = engine(Native(lambda x, c: x * 0 + 255), space=space).apply(images() + 20, True)
    assert (out == 200).all()


@pytest.mark.parametrize("device", DEVICES)
def test_memory(device):
    made = engine(Counting(), device=device)
    attacked = np.array([True, False, True])
    attacked = attacked if device is None else torch.from_numpy(attacked)
    made.apply(given(device), attacked)
    made.apply(given(device), True)
    out = np.asarray(made.apply(given(device), True))
    np.testing.assert_array_equal(out - images(), np.broadcast_to(np.array([2, 1, 2])[:, None, None], (3, 2, 3)))


def keys_of(made, device=None) -> tuple[Tensor, Tensor]:
    made.apply(given(device), True)
    return SEEN[-1]


SEEN = []


def recorder():
    def record(x, c):
        SEEN.append((c.key.clone(), c.episode_key.clone()))
        return x

    return Native(record)


@pytest.mark.parametrize("device", DEVICES)
def test_the_key_of_an_episode(device):
    made = engine(recorder(), device=device)
    step, episode = keys_of(made, device)
    made.clock.tick()
    later, same = keys_of(made, device)
    assert torch.equal(episode, same) and not (step == later).any()
    assert len({*episode.tolist(), *step.tolist(), *later.tolist()}) == 9
    made.clock.next_episode(np.array([True, False, False]) if device is None else torch.tensor([True, False, False]))
    _, other = keys_of(made, device)
    assert (other == episode).tolist() == [False, True, True]
    assert not (keys_of(engine(recorder(), stream=1, device=device), device)[1] == episode).any()
    assert torch.equal(keys_of(engine(recorder()))[1], episode)
