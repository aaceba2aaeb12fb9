"""A call that does not answer is told of by its name, once; what answers is not."""

import threading

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from adv_wrappers.environments.checked import hanging, made_by


class Hanging(gym.Env):
    """Waits in one of its calls until it is told to go on."""

    observation_space, action_space = spaces.Box(-1, 1, (2,)), spaces.Discrete(2)

    def __init__(self, call):
        self.call, self.entered, self.go_on = call, threading.Semaphore(0), threading.Semaphore(0)
        self.wait("init")

    def wait(self, call):
        if call == self.call:
            self.entered.release()
            assert self.go_on.acquire(timeout=60)

    def reset(self, *, seed=None, options=None):
        self.wait("reset")
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.wait("step")
        return np.zeros(2, np.float32), 1.0, False, False, {}

    def close(self):
        self.wait("close")


@pytest.mark.parametrize("call", ["step", "reset", "close"])
def test_a_call_that_hangs_is_told_of_once(call):
    made = Hanging(call)
    env = made_by(lambda: made)

    def play():
        if call == "step":
            env.reset(seed=0)
        for _ in range(2):
            env.step(0) if call == "step" else getattr(env, call)()

    player = threading.Thread(target=play)
    player.start()
    assert made.entered.acquire(timeout=60)
    since, told = {}, []
    for second in (0.0, 15.0, 29.0, 31.0, 60.0):
        since, sentences = hanging(since, second)
        told += [(second, sentence) for sentence in sentences]
    assert told == [(31.0, f"{call} of Hanging has not answered for 31 s")]

    # of the next call nothing is known yet
    made.go_on.release()
    assert made.entered.acquire(timeout=60)
    for second in (70.0, 99.0):
        since, sentences = hanging(since, second)
        assert not sentences
    made.go_on.release()
    player.join()
    assert hanging(since, 120.0) == ({}, [])


def test_an_environment_that_is_never_made_is_told_of():
    entered, go_on = threading.Event(), threading.Event()

    def slow():
        entered.set()
        go_on.wait(60)
        return Hanging("none")

    player = threading.Thread(target=made_by, args=[slow])
    player.start()
    assert entered.wait(60)
    since, _ = hanging({}, 0.0)
    _, told = hanging(since, 30.0)
    go_on.set()
    player.join()

    assert len(told) == 1
    assert told[0].startswith("the function that makes the environment, <function test_an_environment")
    assert told[0].endswith(" has not answered for 30 s")


@pytest.fixture
def anew(monkeypatch):
    """A thread that looks often is begun by the next environment."""
    monkeypatch.setattr("adv_wrappers.environments.checked.HANGING_SECONDS", 0.0)
    monkeypatch.setattr("adv_wrappers.environments.checked._LOOK_SECONDS", 0.01)
    for thread in threading.enumerate():
        if thread.name == "_watch":
            monkeypatch.setattr(thread, "name", "another")


def test_the_thread_goes_on_where_the_standard_error_is_closed(monkeypatch, anew):
    written = threading.Semaphore(0)

    class Closed:
        def write(self, text):
            written.release()
            raise OSError(9, "Bad file descriptor")

        def flush(self):
            pass

    monkeypatch.setattr("sys.stderr", Closed())
    made = Hanging("reset")
    env = made_by(lambda: made)
    (watching,) = (thread for thread in threading.enumerate() if thread.name == "_watch")
    for _ in range(2):  # each is told of by the same thread
        player = threading.Thread(target=env.reset)
        player.start()
        assert written.acquire(timeout=60)
        made.go_on.release()
        player.join()
        assert watching.is_alive()
    env.close()


def test_the_thread_says_it_on_the_standard_error(anew, capfd):
    made = Hanging("reset")
    env = made_by(lambda: made)
    (watching,) = (thread for thread in threading.enumerate() if thread.name == "_watch")
    player = threading.Thread(target=env.reset)
    player.start()
    assert made.entered.acquire(timeout=60)
    said = ""
    while "reset of Hanging has not answered for" not in said:
        said += capfd.readouterr().err
        assert watching.is_alive()
    made.go_on.release()
    player.join()
    env.close()
