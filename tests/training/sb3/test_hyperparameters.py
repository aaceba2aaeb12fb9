"""The default settings of algorithms: a user's come first, and what follows from them follows."""

from __future__ import annotations

import inspect

import pytest

pytest.importorskip("stable_baselines3")
from stable_baselines3.common.base_class import BaseAlgorithm

from adv_wrappers.training.resilience.resilience import timing_settings
from adv_wrappers.training.sb3.algorithms import ALGORITHMS, check_settings
from adv_wrappers.training.sb3.hyperparameters import adversary_settings, agent_settings
from adv_wrappers.training.sb3.prioritized_dqn import PrioritizedDQN


@pytest.mark.parametrize("algorithm", list(ALGORITHMS))
@pytest.mark.parametrize("flat", [True, False])
def test_the_algorithm_takes_them_and_what_is_given_comes_first(algorithm, flat):
    for found in (
        adversary_settings(algorithm, 4, flat, {"gamma": 0.5}),
        timing_settings(algorithm, flat, {"gamma": 0.5}),
        agent_settings(algorithm, 4, not flat, {"gamma": 0.5}),
    ):
        check_settings(algorithm, found)
        assert found["gamma"] == 0.5


@pytest.mark.parametrize(("rows", "steps"), [(1, 16), (4, 24), (32, 64)])
def test_batches_divide_a_rollout(rows, steps):
    for found in (
        adversary_settings("ppo", rows, True, {"n_steps": steps}),
        agent_settings("ppo", rows, False, {"n_steps": steps}),
        agent_settings("ppo", rows, True, {"n_steps": steps}),
    ):
        assert rows * steps % found["batch_size"] == 0 and found["n_steps"] == steps


def test_a_recurrent_agent_learns_as_one_of_ppo():
    for given in ({}, {"n_steps": 24}):
        assert agent_settings("recurrent-ppo", 4, False, given) == agent_settings("ppo", 4, False, given)


def test_an_agent_of_dqn_learns_once_in_eight_steps():
    for rows in (1, 2, 8, 16):
        found = agent_settings("dqn", rows, False, {})
        assert found["train_freq"] * rows / found["gradient_steps"] == 8


def test_the_dqn_of_the_paper_begins_with_them():
    model = PrioritizedDQN("MlpPolicy", "CartPole-v1", buffer_size=10)
    assert isinstance(model, BaseAlgorithm) and "buffer_size" not in inspect.signature(PrioritizedDQN).parameters
    kept = {name: getattr(model, name) for name in adversary_settings("dqn", 1, True, {}) if name != "train_freq"}
    assert kept == {
        "gamma": 0.99, "learning_rate": 1e-3, "buffer_size": 10, "learning_starts": 1000, "batch_size": 32,
        "target_update_interval": 500, "exploration_fraction": 0.1, "exploration_final_eps": 0.02,
    }  # fmt: skip
