"""Rows that several processes step are those of a SyncVectorEnv, and what goes wrong in a process is named."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from contextlib import closing

import gymnasium as gym
import numpy as np
import pytest

from adv_wrappers.environments.environment import Environment
from adv_wrappers.errors import ValueRangeError, WorkerError
from tests.evaluation.agents import short
from tests.every_case import every_case

pytest.importorskip("stable_baselines3")

from adv_wrappers.training.adversary import train_adversary
from adv_wrappers.training.agent import train_agent
from adv_wrappers.training.sb3 import vector_env
from adv_wrappers.training.sb3.vector_env import MultiprocessVectorEnv, make_vector
from adv_wrappers.utils import processes as processes_

VICTIM = "zoo:cartpole-a2c"


class Noted(gym.Wrapper):
    """Notes of every kind in ``info``: some at every step, some now and then, and a dictionary of them."""

    def __init__(self, how="notes"):
        super().__init__(gym.make("CartPole-v1", max_episode_steps=30))
        self.how = how

    def reset(self, **given):
        obs, _ = super().reset(**given)
        self.steps, self.failing = 0, multiprocessing.parent_process() is not None
        return obs, {"first": float(obs[0]), "name": "reset"}

    def step(self, action):
        if self.failing and self.how == "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.failing and self.how == "raises":
            raise ValueRangeError("the environment has had enough")
        obs, reward, terminated, truncated, _ = super().step(action)
        self.steps += 1
        info = {"obs": obs.copy(), "more": {"steps": self.steps}}
        if obs[0] > 0.02:
            info |= {"right": True, "word": "right"}
        return obs, reward, terminated, truncated, info


def same(one, other):
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, np.ndarray):
        equal = all(map(same, one, other)) if one.dtype == object else np.array_equal(one, other)
        return one.dtype == other.dtype and one.shape == other.shape and equal
    return one == other


def test_rows_are_those_of_a_sync_vector_env():
    source = Environment(Noted)
    draws = np.random.default_rng(0).integers(2, size=(80, 7))
    with closing(make_vector(source, 7)) as one, closing(make_vector(source, 7, 3)) as several:
        assert isinstance(one, gym.vector.SyncVectorEnv)
        assert isinstance(several, MultiprocessVectorEnv)
        for name in ("num_envs", "observation_space", "action_space", "single_observation_space", "metadata"):
            assert getattr(one, name) == getattr(several, name)
        for seed in (3, [5, None, 1, 2, 9, 0, 4]):
            first, other = one.reset(seed=seed), several.reset(seed=seed)
            assert same(first[0], other[0]) and same(first[1], other[1])
            ends = 0
            for actions in draws:
                found = one.step(actions), several.step(actions)
                assert all(map(same, *found))
                ends += int((found[0][2] | found[0][3]).sum())
            assert ends > 14  # each row began new episodes


def test_an_interruption_does_not_wait_for_processes_that_still_import(monkeypatch):
    pool = processes_.pool_of(processes_.ON_DEMAND)

    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(vector_env._OtherProcess, "receive", interrupted)
    with pytest.raises(KeyboardInterrupt):
        MultiprocessVectorEnv(Environment(Noted), 2, 2)
    assert processes_._pools.get(processes_.ON_DEMAND) is not pool


def test_no_more_processes_than_rows():
    with closing(make_vector(Environment(short), 1, 4)) as env:
        assert isinstance(env, gym.vector.SyncVectorEnv)


@every_case(
    ("how", "error", "match"),
    [("raises", ValueRangeError, "has had enough"), ("dies", WorkerError, "process that steps environments died")],
)
def test_what_goes_wrong_in_a_process_is_named(how, error, match):
    source = Environment(Noted, {"how": how})
    for _ in range(2):  # the next ones have new processes
        with closing(make_vector(source, 4, 2)) as env:
            env.reset(seed=0)
            with pytest.raises(error, match=match):
                env.step(np.zeros(4, int))


def test_an_adversary_is_the_same_with_environments_in_two_processes(tmp_path):
    found, records = {}, {}
    for count in (1, 2):
        found[count] = train_adversary(
            "sa-rl",
            short,
            VICTIM,
            0.2,
            64,
            num_envs=4,
            checks=1,
            episodes=2,
            n_steps=16,
            batch_size=64,
            n_epochs=1,
            out=tmp_path / str(count),
            env_workers=count,
        )
        state = json.loads((tmp_path / str(count) / "state.json").read_text())
        records[count] = [{**row, "seconds": None} for row in state["record"]]
    assert found[1].sha256 == found[2].sha256
    assert records[1] == records[2] and len(records[1]) == 1


@pytest.mark.slow
def test_an_agent_and_its_adversary_are_the_same_with_environments_in_two_processes():
    settings = {"n_steps": 16, "n_epochs": 2}
    found = [
        train_agent(
            short,
            "sa-rl",
            0.05,
            256,
            num_envs=4,
            phase=128,
            checks=2,
            episodes=2,
            settings=settings,
            adversary_settings=settings,
            workers=count,
            env_workers=count,
        )
        for count in (1, 2)
    ]
    assert found[0].victim.fingerprint() == found[1].victim.fingerprint()
    assert [row["attacked"] for row in found[0].record] == [row["attacked"] for row in found[1].record]


@every_case("train", [train_adversary, train_agent])
def test_what_cannot_be_sent_is_named_before_anything_is_trained(train):
    def call(env, count):
        given = ("sa-rl", env, VICTIM) if train is train_adversary else (env, "sa-rl")
        train(*given, eps=0.2, steps=128, env_workers=count)

    with pytest.raises(WorkerError, match="the environment cannot be sent to another process"):
        call(lambda: short(), 2)
    with pytest.raises(ValueRangeError, match="env_workers"):
        call(short, 0)
