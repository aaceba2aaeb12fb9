"""A call that does not answer is told of by its name, once; what answers is not."""

from __future__ import annotations

import threading
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

import adv_wrappers as adv
from adv_wrappers.environments import checked
from adv_wrappers.environments.checked import Watchdog


class Hanging(gym.Env[Any, Any]):
    """Waits in one of its calls until it is told to go on."""

    observation_space, action_space = spaces.Box(-1, 1, (2,)), spaces.Discrete(2)

    def __init__(self, call: str = "step") -> None:
        self.call, self.entered, self.go_on = call, threading.Semaphore(0), threading.Semaphore(0)
        self.wait("init")

    def wait(self, call: str) -> None:
        if call == self.call:
            self.entered.release()
            assert self.go_on.acquire(timeout=60)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.wait("reset")
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        self.wait("step")
        return np.zeros(2, np.float32), 1.0, False, False, {}


@pytest.mark.parametrize("call", ["step", "reset"])
def test_a_call_that_hangs(call: str) -> None:
    told: list[str] = []
    dog = Watchdog(checked._WATCHDOG._calls, lambda: True, tell=told.append)
    made = Hanging(call)
    env = adv.Environment(lambda: made)()

    def play() -> None:
        if call == "step":
            env.reset(seed=0)
        for _ in range(2):
            env.step(0) if call == "step" else env.reset()

    player = threading.Thread(target=play)
    player.start()
    assert made.entered.acquire(timeout=60)
    assert [dog.look(second) for second in (0.0, 15.0, 29.0)] == [True] * 3 and told == []
    dog.look(31.0), dog.look(60.0)
    (sentence,) = told
    assert sentence.startswith(f"{call} of Hanging has not answered for 31 s (it is in ")
    made.go_on.release()
    assert made.entered.acquire(timeout=60)  # the next call: nothing is known of it yet
    dog.look(70.0), dog.look(99.0)
    assert len(told) == 1
    made.go_on.release()
    player.join()
    assert not dog.look(120.0)


def test_an_environment_that_is_made_for_ever() -> None:
    told: list[str] = []
    dog = Watchdog(checked._WATCHDOG._calls, lambda: False, tell=told.append)
    entered, go_on = threading.Event(), threading.Event()

    def slow() -> Any:
        entered.set()
        go_on.wait(60)
        return Hanging("none")

    player = threading.Thread(target=adv.Environment(slow))
    player.start()
    assert entered.wait(60)
    dog.look(0.0), dog.look(30.0)
    go_on.set()
    player.join()
    assert told and "that makes the environment" in told[0] and "has not answered for 30 s" in told[0]


def test_the_thread_ends_where_nothing_is_left_to_watch() -> None:
    dog = Watchdog({}, lambda: False, seconds=0.0)
    dog.start()
    assert dog._thread is not None
    dog._thread.join(60)
    assert not dog._thread.is_alive()
    dog.start()  # and begins again
    dog._thread.join(60)
