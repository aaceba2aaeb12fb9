"""Settings of algorithms: what cannot work is refused by name, before an environment is made."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from adv_wrappers.errors import AdvWrappersError, ThreatError, ValueRangeError

pytest.importorskip("stable_baselines3")

from adv_wrappers.training.adversary import train_adversary
from adv_wrappers.training.agent import AGENT_ALGORITHMS, train_agent
from adv_wrappers.training.folder import later_seed
from adv_wrappers.training.models.dynamics_model import train_dynamics
from adv_wrappers.training.resilience.resilience import resilience
from adv_wrappers.training.sb3.algorithms import ALGORITHMS, Training, algorithm_class, check_settings, made_model
from adv_wrappers.utils.validation import MOST_SEED
from tests.every_case import every_case

QUICK = Training(steps=100, algorithm="ppo", num_envs=None, checks=3, episodes=2, seed=0)
WRONG = [
    ({"n_steps": 0}, ThreatError, "n_steps must be an integer of at least 1, got 0"),
    ({"n_steps": "a"}, ThreatError, "n_steps must be"), ({"batch_size": None}, ThreatError, "batch_size must be"),
    ({"n_epochs": True}, ThreatError, "n_epochs must be"), ({"policy_kwargs": None}, ThreatError, "policy_kwargs are"),
    ({"gamma": 5.0}, ValueRangeError, "gamma must be a finite number from 0 to 1"),
    ({"gae_lambda": None}, ValueRangeError, "gae_lambda must be"), ({"n_step": 32}, ThreatError, "not n_step"),
    ({"policy": 1}, ThreatError, "policy cannot be set here"),
]  # fmt: skip


def nothing(**kwargs):
    raise AssertionError("something was spent")


@every_case(("settings", "error", "message"), WRONG)
def test_what_no_algorithm_takes(settings, error, message):
    with pytest.raises(error, match=message):
        check_settings("ppo", settings)
    with pytest.raises(error, match=message):
        train_adversary("sa-rl", nothing, "zoo:cartpole-ppo", 0.1, 64, **settings)
    with pytest.raises(error, match=message):
        train_agent(nothing, None, steps=64, settings=settings)
    with pytest.raises(error, match=message):
        train_agent(nothing, "sa-rl", 0.1, steps=64, adversary_settings=settings)


@every_case("name", ["seed", "device"])
def test_a_training_sets_its_seed_and_device_itself(name):
    with pytest.raises(ThreatError, match=f"{name} cannot be set here"):
        train_agent(nothing, None, steps=64, settings={name: 0})


def test_settings_of_every_algorithm():
    check_settings("ppo", {"n_steps": 8, "learning_rate": lambda left: left, "policy_kwargs": {}})
    check_settings("dqn", {"alpha": 0.5, "train_freq": 4, "policy_kwargs": {}})
    check_settings("recurrent-ppo", {"n_steps": 8, "batch_size": 8, "policy_kwargs": {"lstm_hidden_size": 8}})
    check_settings("td3", {"exploration_noise": 0.2, "train_freq": 4, "policy_kwargs": {}})
    assert {*ALGORITHMS} == {"ppo", "a2c", "dqn"}
    for one in AGENT_ALGORITHMS.values():
        assert one.robust is None or issubclass(one.robust, algorithm_class(one.name))


def test_what_an_algorithm_refuses_itself_is_an_error_of_this_package():
    with pytest.raises(AdvWrappersError, match="PPO cannot take these settings: AssertionError"):
        made_model(ALGORITHMS["ppo"], {"policy": "MlpPolicy", "env": "CartPole-v1", "device": "cpu"}, {"batch_size": 1})


@every_case(
    ("change", "error"),
    [({"num_envs": 0}, ValueRangeError), ({"n_step": 32}, ThreatError), ({"observe": "foo"}, ValueRangeError)],
)
def test_a_measurement_checks_its_training_before_it_plays(change, error, tmp_path):
    how = {"steps": 128, "episodes": 1, "checks": 1, "check_episodes": 1, "out": tmp_path}
    with pytest.raises(error, match=next(iter(change))):
        resilience("zoo:cartpole-dqn", "CartPole-v1", progress=nothing, **how, **change)
    assert not [path for path in tmp_path.iterdir() if not path.name.startswith(".")]


@every_case(
    ("transitions", "more"), [(200, {"num_envs": 64}), (1000, {"random": 0.02}), (100, {"random": 0.0, "num_envs": 32})]
)
def test_a_model_holds_steps_of_every_row_out(transitions, more, tmp_path):
    with pytest.raises(ValueRangeError, match="could be held out: expected none, or more than"):
        train_dynamics("zoo:hopper-ppo", nothing, transitions, **more, out=tmp_path / "model")
    assert not (tmp_path / "model" / "card.json").exists()


def test_seeds_of_resumed_trainings_stay_in_range():
    assert later_seed(3, 1000) == 1003 and later_seed(MOST_SEED, 5) == 4


def test_checkpoints_are_evenly_apart_and_at_least_one_step():
    assert QUICK.checkpoint_every == 33 and replace(QUICK, checks=1000).checkpoint_every == 1


def test_logs_are_a_text_as_stable_baselines3_takes_it():
    assert QUICK.logs is None and replace(QUICK, tensorboard=Path("logs")).logs == "logs"


def test_settings_are_those_of_the_algorithm():
    assert replace(QUICK, settings={"n_epochs": 3}).settings == {"n_epochs": 3}
    with pytest.raises(ThreatError, match=r"A2C takes .*, not n_epochs"):
        replace(QUICK, algorithm="a2c", settings={"n_epochs": 3})
