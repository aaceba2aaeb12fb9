"""What tree searches share: nodes, steps from them, and how long an episode is at most."""

from __future__ import annotations

from contextlib import closing

import gymnasium as gym
import numpy as np
import pytest

from adv_wrappers import load_victim
from adv_wrappers.environments.environment import Environment
from adv_wrappers.errors import SnapshotError, ValueRangeError
from adv_wrappers.evaluation.searches.search_tree import DeterministicEpisodes, step_limit
from tests.evaluation.searches.test_fewest_perturbations import Dice, Handle, Walk, agent
from tests.every_case import every_case


def test_steps_from_nodes():
    short = Environment("CartPole-v1", {"max_episode_steps": 70})
    with closing(DeterministicEpisodes("zoo:cartpole-dqn", short)) as episodes:
        assert (episodes.limit, episodes.start, episodes.count, episodes.label) == (70, 0, 2, "zoo:cartpole-dqn")
        first, env = episodes.reset(3), episodes.env
        assert (first.steps, first.total) == (0, 0.0)
        one = episodes.save(episodes.step(first, 0))
        after = episodes.step(one, 1)
        assert (after.reward, after.steps, after.total, after.over) == (1.0, 2, 2.0, False)
        two = episodes.save(after)
        episodes.step(first, 1)
        assert episodes.step(first, 0).observation.tolist() == one.observation.tolist()
        assert episodes.step(one, 1).observation.tolist() == two.observation.tolist()
        episodes.check_drew_nothing(first)
        victim = load_victim("zoo:cartpole-dqn")
        seen = episodes.batch([node.observation for node in (first, one, two)])
        assert episodes.actions(seen).tolist() == victim.act_on(seen).tolist()
        assert (episodes.environment().reset(seed=3)[0] == first.observation).all()
        env.np_random.random()
        with pytest.warns(RuntimeWarning, match="draws random numbers in its steps"):
            episodes.check_drew_nothing(first)
        episodes.check_drew_nothing(first)  # says so once


def test_the_end_of_an_episode():
    with closing(DeterministicEpisodes(agent(), lambda: Walk(lost=1.0))) as episodes:
        node, rewards, env = episodes.reset(3), list[float](), Walk(lost=1.0)
        env.reset(seed=3)
        for action in (2, 1, 1, 1, 2, 1):
            after, (observation, reward, terminated, truncated, _) = episodes.step(node, action), env.step(action)
            rewards.append(reward)
            assert (after.reward, after.steps, after.total) == (reward, node.steps + 1, sum(rewards))
            assert (after.observation == observation).all() and after.over == (terminated or truncated)
            if after.over:
                break
            node = episodes.save(after)
        assert after.over and after.steps > 1


@every_case("reward", [np.nan, np.inf, -np.inf])
def test_rewards_that_are_not_finite(reward):
    with closing(DeterministicEpisodes(agent(), lambda: Walk(lost=reward))) as episodes:
        first = episodes.reset(0)
        with pytest.raises(ValueRangeError, match=r"returned a reward that is not finite: -?(nan|inf)"):
            episodes.step(first, 1)


@every_case(("env", "words"), [(Handle, "its handle is a generator"), (Dice, "draws random numbers in its steps")])
def test_what_a_strict_search_refuses(env, words):
    episodes = DeterministicEpisodes(agent(), env, strict=True)
    with closing(episodes), pytest.raises(SnapshotError, match=words):
        episodes.check_deterministic(0)


def test_the_limit_of_steps_is_that_of_wrappers():
    env = gym.make("CartPole-v1")
    assert step_limit(env) == 500 and step_limit(env.unwrapped) is None  # whose spec has one all the same
    assert step_limit(gym.wrappers.TimeLimit(env, 60)) == 60
