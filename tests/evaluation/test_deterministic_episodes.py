"""What searches go back to: saved states, and how long an episode is at most."""

from __future__ import annotations

from contextlib import closing

import gymnasium as gym
import numpy as np
import pytest

from adv_wrappers import load_victim
from adv_wrappers.errors import SnapshotError
from adv_wrappers.evaluation.deterministic_episodes import DeterministicEpisodes, step_limit
from adv_wrappers.evaluation.environments import Environment
from tests.evaluation.test_optimal_timing import Dice, Handle, agent


def test_states_that_were_saved():
    short = Environment("CartPole-v1", {"max_episode_steps": 70})
    with closing(DeterministicEpisodes("zoo:cartpole-dqn", short)) as episodes:
        assert (episodes.limit, episodes.start, episodes.count, episodes.label) == (70, 0, 2, "zoo:cartpole-dqn")
        first, env = episodes.reset(3), episodes.env
        answers = [env.step(action) for action in (0, 1)]
        after = episodes.saved(*answers[1][::4])
        first.snapshot.restore(env)
        again = [env.step(action) for action in (0, 1)]
        assert all((one[0] == two[0]).all() and one[1:4] == two[1:4] for one, two in zip(answers, again, strict=True))
        episodes.check_drew_nothing(first)
        victim = load_victim("zoo:cartpole-dqn")
        seen = np.stack([first.observation, after.observation])
        assert episodes.own_actions([first, after]) == victim.act_on(seen).tolist()
        assert (episodes.environment().reset(seed=3)[0] == first.observation).all()
        env.np_random.random()
        with pytest.warns(RuntimeWarning, match="draws random numbers in its steps"):
            episodes.check_drew_nothing(first)
        episodes.check_drew_nothing(first)  # says so once


@pytest.mark.parametrize(
    ("env", "words"), [(Handle, "its handle is a generator"), (Dice, "draws random numbers in its steps")]
)
def test_what_a_strict_search_refuses(env, words):
    episodes = DeterministicEpisodes(agent(), env, strict=True)
    with closing(episodes), pytest.raises(SnapshotError, match=words):
        episodes.check_deterministic(0)


def test_the_limit_of_steps_is_that_of_wrappers():
    env = gym.make("CartPole-v1")
    assert step_limit(env) == 500 and step_limit(env.unwrapped) is None  # whose spec has one all the same
    assert step_limit(gym.wrappers.TimeLimit(env, 60)) == 60
