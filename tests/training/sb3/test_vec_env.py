"""The adapter: what an algorithm of Stable-Baselines3 receives at the end of an episode, and what it makes of it."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import adv_wrappers as adv
from tests.core.helpers import linear, randn

pytest.importorskip("stable_baselines3")

from stable_baselines3 import A2C, PPO

from adv_wrappers.training.sb3.vec_env import AgentVecEnv, EpisodicNormalize, Sb3Adapter
from adv_wrappers.wrappers.sb3_vec_env import VecAdversaryEnv

LENGTH, STEPS, GAMMA, VALUE = 3, 8, 0.5, 80.0
ENDS = {"terminated": (True, False), "truncated": (False, True), "both": (True, True)}


class Counted(gym.Env):
    """Observations that count the steps of all episodes; each step pays 1, each episode lasts three."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self, end):
        self.end, self.count = ENDS[end], 0

    def _seen(self):
        self.count += 1
        return np.array([self.count, -self.count], np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self._seen(), {}

    def step(self, action):
        self.t += 1
        over = self.t == LENGTH
        return self._seen(), 1.0, over and self.end[0], over and self.end[1], {}


def env_of(whose, end):
    vector = SyncVectorEnv([lambda: Counted(end)] * 2, autoreset_mode=AutoresetMode.SAME_STEP)
    if whose == "agent":
        return AgentVecEnv(vector)
    victim = adv.from_module(linear(randn(1, 2).float()), Counted.observation_space, Counted.action_space, "mean")
    return VecAdversaryEnv(Sb3Adapter(vector, np.float64), victim, "sa-rl", adv.Linf(0.1))


@pytest.mark.parametrize("kind", [PPO, A2C])
@pytest.mark.parametrize("whose", ["adversary", "agent"])
@pytest.mark.parametrize("end", ENDS)
def test_an_episode_that_is_cut_short_has_a_value_after_it(kind, whose, end):
    """SB3 adds ``gamma V(last observation)`` where ``TimeLimit.truncated`` says so, and nowhere else."""
    env = env_of(whose, end)
    more = {"batch_size": 2 * STEPS, "n_epochs": 1} if kind is PPO else {}
    model = kind("MlpPolicy", env, n_steps=STEPS, gamma=GAMMA, seed=0, device="cpu", **more)
    with torch.no_grad():
        model.policy.value_net.weight.zero_()
        model.policy.value_net.bias.fill_(VALUE)
    model.learn(2 * STEPS)
    paid = -1.0 if whose == "adversary" else 1.0
    expected = np.full((STEPS, 2), paid)
    if end == "truncated":
        expected[LENGTH - 1 :: LENGTH] += GAMMA * VALUE
    np.testing.assert_allclose(model.rollout_buffer.rewards, expected)
    starts = np.zeros((STEPS, 2))
    starts[::LENGTH] = 1
    np.testing.assert_array_equal(model.rollout_buffer.episode_starts, starts)
    env.close()


@pytest.mark.parametrize("end", ENDS)
def test_without_a_discount_nothing_follows_a_time_limit(end):
    env = EpisodicNormalize(env_of("adversary", end), norm_obs=False, norm_reward=False, gamma=1.0)
    model = PPO("MlpPolicy", env, n_steps=STEPS, gamma=1.0, seed=0, device="cpu", batch_size=2 * STEPS, n_epochs=1)
    with torch.no_grad():
        model.policy.value_net.bias.fill_(VALUE)
    model.learn(2 * STEPS)
    np.testing.assert_allclose(model.rollout_buffer.rewards, np.full((STEPS, 2), -1.0))
    env.close()


@pytest.mark.parametrize("whose", ["adversary", "agent"])
@pytest.mark.parametrize("end", ENDS)
def test_what_an_ended_row_says(whose, end):
    env = env_of(whose, end)
    first = env.reset()
    np.testing.assert_array_equal(first, [[1, -1]] * 2)
    actions = np.zeros((2, *env.action_space.shape), np.float32)
    for step in range(1, 2 * LENGTH + 1):
        obs, rewards, done, infos = env.step(actions)
        assert done.all() == done.any() == (step % LENGTH == 0)
        assert (rewards == (-1 if whose == "adversary" else 1)).all()
        for row in range(2):
            if not done[row]:
                assert {*infos[row]} <= {"adv_wrappers"}
                continue
            last = (step // LENGTH - 1) * (LENGTH + 1) + LENGTH + 1
            np.testing.assert_array_equal(infos[row]["terminal_observation"], [last, -last])
            np.testing.assert_array_equal(obs[row], [last + 1, -last - 1])
            assert infos[row]["TimeLimit.truncated"] is (end == "truncated")
            assert infos[row]["episode"] == {"r": LENGTH * float(rewards[row]), "l": LENGTH, "t": 0.0}
    env.close()
