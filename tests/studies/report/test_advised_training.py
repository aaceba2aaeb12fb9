"""Which training is advised: one that can begin, and that was not tried."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import adv_wrappers as adv
from adv_wrappers.studies.report.advised_training import advised_training
from adv_wrappers.victims.victim import Victim
from tests.every_case import every_case

pytest.importorskip("stable_baselines3")

from stable_baselines3 import DQN

SMALL: Any = {"steps": 16, "num_envs": 2, "checks": 2, "episodes": 1}


def with_training(victim: Victim, /, **training: Any) -> Victim:
    victim.card = {**(victim.card or {}), "training": training}
    return victim


@pytest.mark.parametrize("ref", ["zoo:cartpole-a2c", "zoo:cartpole-dqn"])
def test_every_training_comes_before_one_comes_again(ref: str) -> None:
    tried = list[str]()
    for _ in range(5):
        found = advised_training(with_training(adv.load_victim(ref), tried=tried))
        assert list(found.tried) == tried
        tried.append(found.by)
    assert len(set(tried[:4])) == 4 and tried[4] == tried[0]


@pytest.mark.slow
def test_a_card_says_what_the_agent_has_behind_it(tmp_path: Path) -> None:
    small = {**SMALL, "env_kwargs": {"max_episode_steps": 20}}
    adv.train_agent("CartPole-v1", robust="wocar", eps=0.1, victim="zoo:cartpole-a2c", out=tmp_path / "a", **small)
    found = advised_training(adv.load_victim(f"card:{tmp_path / 'a'}"))
    assert (found.by, found.tried) == ("sa", ("wocar",))
    second = adv.train_agent("CartPole-v1", "pa-ad", 0.1, victim=f"card:{tmp_path / 'a'}", out=tmp_path / "b", **small)
    assert advised_training(second.victim).tried == ("wocar", "pa-ad")


@pytest.mark.parametrize(("name", "loss"), [("smoothed-dqn", "smoothed"), ("radial-dqn", "radial"), ("wocar", "wocar")])
def test_a_robust_training_is_known_by_its_loss(name: str, loss: str) -> None:
    agent = with_training(adv.load_victim("zoo:cartpole-dqn"), robust={"type": name, "within": {"eps": 0.1}})
    assert advised_training(agent).tried == (loss,)


def test_an_agent_is_trained_on_as_it_learned(tmp_path: Path) -> None:
    """The values of a DQN are of its rewards and its discount factor: of others, all that it knows is wrong."""
    zoo = advised_training(adv.load_victim("zoo:mountaincar-dqn"))
    assert (zoo.algorithm, zoo.rewards, zoo.gamma) == ("dqn", "raw", 0.98)
    how: Any = {"algorithm": "a2c", "rewards": "clipped", "gamma": 0.9}
    adv.train_agent("CartPole-v1", None, out=tmp_path, **how, **SMALL)
    own = advised_training(adv.load_victim(f"card:{tmp_path}"))
    assert {name: getattr(own, name) for name in how} == how
    model = DQN("MlpPolicy", "MountainCar-v0", gamma=0.97, device="cpu")
    model.save(tmp_path / "model.zip")
    file = advised_training(adv.load_victim(f"sb3:{tmp_path / 'model.zip'}"))
    assert (file.algorithm, file.rewards, file.gamma) == ("dqn", "raw", 0.97)
    other = with_training(adv.load_victim("zoo:cartpole-ppo"), algorithm="dqn", settings={"gamma": 7.0}, rewards=["x"])
    said = advised_training(other)
    assert (said.by, said.algorithm, said.rewards, said.gamma) == ("wocar", "", "", None)


@every_case(
    "training",
    [{"tried": 3}, {"tried": ["rm -r", None]}, {"robust": 3}, {"robust": {"type": ["wocar"]}}, {"adversary": "x"},
     {"robust": {"type": "wocar", "within": 1}}, {"algorithm": {}, "settings": [1], "rewards": 1}],
)  # fmt: skip
def test_a_card_of_another_hand_is_only_read(training: Any) -> None:
    found = advised_training(with_training(adv.load_victim("zoo:cartpole-a2c"), **training))
    assert found.by in ("wocar", "sa") and {*found.tried} <= {"wocar"}
