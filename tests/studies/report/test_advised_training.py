"""Which training is advised: one that can begin, that was not tried, and whose price is measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import adv_wrappers as adv
from adv_wrappers.core.budgets.budget import Linf
from adv_wrappers.environments.environment import json_value
from adv_wrappers.studies.report.advised_training import advised_training, training_step_seconds
from adv_wrappers.studies.report.choices import ReportChoices, write_choices
from adv_wrappers.utils.deadline import Deadline
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
    tried, most = list[str](), []
    for _ in range(5):
        found = advised_training(with_training(adv.load_victim(ref), tried=tried))
        assert list(found.tried) == tried
        tried.append(found.by)
        most.append(found.most)
    assert len(set(tried[:4])) == 4 and tried[4] == tried[0]


@pytest.mark.slow
def test_a_card_says_what_the_agent_has_behind_it(tmp_path: Path) -> None:
    small = {**SMALL, "env_kwargs": {"max_episode_steps": 20}}
    adv.train_agent("CartPole-v1", robust="wocar", eps=0.1, victim="zoo:cartpole-a2c", out=tmp_path / "a", **small)
    found = advised_training(adv.load_victim(f"card:{tmp_path / 'a'}"))
    assert (found.by, found.tried, found.most, found.begins_with) == ("sa", ("wocar",), None, "")
    second = adv.train_agent("CartPole-v1", "pa-ad", 0.1, victim=f"card:{tmp_path / 'a'}", out=tmp_path / "b", **small)
    assert advised_training(second.victim).tried == ("wocar", "pa-ad")


@pytest.mark.parametrize(("name", "loss"), [("smoothed-dqn", "smoothed"), ("radial-dqn", "radial"), ("wocar", "wocar")])
def test_a_robust_training_is_known_by_its_loss(name: str, loss: str) -> None:
    agent = with_training(adv.load_victim("zoo:cartpole-dqn"), robust={"type": name, "within": {"eps": 0.1}})
    assert advised_training(agent).tried == (loss,)


def test_trainings_beside_the_report_that_began_with_the_agent_count(tmp_path: Path) -> None:
    agent = adv.load_victim("zoo:cartpole-dqn")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "state.json").write_text("[")
    adv.train_agent("CartPole-v1", robust="radial", eps=0.1, victim=agent, out=tmp_path / "mine", **SMALL)
    assert advised_training(agent, beside=tmp_path).by == "sa" and advised_training(agent).by == "radial"
    assert advised_training(adv.load_victim("zoo:cartpole-ppo"), beside=tmp_path).tried == ()


@pytest.mark.parametrize(
    ("kept", "most"),
    [([{"1": -500.0, "0.5": -496.0}, {"1": -500.0, "0.5": -300.0}], 0.2), ([{"1": -90.0}, {"1": -480.0}], 0.4),
     ([{"1": -500.0, "0.5": -500.0}], 0.2), ([{"1": -499.0, "0.25": -480.0}], 0.1)],
)  # fmt: skip
def test_where_all_was_lost_at_every_checkpoint_the_next_eps_is_one_that_leaves_something(
    kept: list[Any], most: float
) -> None:
    rows = [{"steps": i, "late": True, "clean": -80.0, "max_diff": one} for i, one in enumerate(kept)]
    about = {"robust": {"type": "wocar", "within": {"type": "linf", "eps": 0.4}}, "checkpoints": rows}
    found = advised_training(with_training(adv.load_victim("zoo:cartpole-a2c"), **about))
    assert (found.by, found.tried, found.most) == ("sa", ("wocar",), most)


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


def failed(**more: Any) -> dict[str, Any]:
    """What the card of an agent says that earns half of what the one earned that it was trained from."""
    within = {"type": "linf", "eps": 0.2, "scale": [1.0, 2.0, 0.5, 3.0]}
    began_with = {"ref": "zoo:cartpole-dqn", "clean": 500.0}
    return {
        "victim": adv.load_victim("zoo:cartpole-dqn").fingerprint(), "robust": {"type": "radial", "within": within},
        "began_with": began_with, "checkpoints": [{"steps": 1, "clean": 250.0}], **more,
    }  # fmt: skip


def test_a_worse_agent_is_left_for_the_one_that_it_was_trained_from(tmp_path: Path) -> None:
    worse = with_training(adv.load_victim("zoo:cartpole-radial-dqn"), **failed())
    found = advised_training(worse)
    assert (found.by, found.tried, found.begins_with) == ("sa", ("radial",), "zoo:cartpole-dqn")
    assert (found.most, found.scale, found.report) == (0.1, (1.0, 2.0, 0.5, 3.0), "")
    for cost in (400.0, 600.0):  # it gave up less than a fifth, or nothing
        kept = with_training(worse, **failed(checkpoints=[{"steps": 1, "clean": cost}]))
        assert not advised_training(kept).begins_with and advised_training(kept).most is None
    nameless = with_training(worse, **failed(began_with={"ref": None, "clean": 500.0}))
    assert not advised_training(nameless).begins_with and advised_training(nameless).most == 0.1


def test_the_report_of_the_agent_before_is_found_beside(tmp_path: Path) -> None:
    worse = with_training(adv.load_victim("zoo:cartpole-radial-dqn"), **failed())
    agent = adv.load_victim("zoo:cartpole-dqn")
    environment = adv.Environment.of("CartPole-v1", agent)
    for name, seed, of in (("other", 0, worse), ("later", 7, agent), ("mine", 0, agent)):
        identity = {"victim": of.described(), "env": json_value(environment.described), "seed": seed}
        (tmp_path / name).mkdir()
        write_choices(tmp_path / name, ReportChoices(identity=identity))
    assert advised_training(worse, environment, tmp_path).report == str(tmp_path / "mine")
    assert advised_training(worse, environment, tmp_path, seed=7).report == str(tmp_path / "later")


@pytest.mark.slow
def test_trainings_that_failed_beside_the_report_make_the_next_one_smaller(tmp_path: Path) -> None:
    """So the advice is another where somebody makes the report of the agent before again."""
    agent = adv.load_victim("zoo:cartpole-dqn")
    out, short = tmp_path / "mine", {"max_episode_steps": 60}
    adv.train_agent("CartPole-v1", robust="radial", eps=0.1, victim=agent, out=out, env_kwargs=short, **SMALL)
    state = json.loads((out / "state.json").read_text())
    assert state["result"]["began_with"] == {"ref": "zoo:cartpole-dqn", "clean": 60.0}
    for row in state["record"]:
        row["clean"] = 20.0
    (out / "state.json").write_text(json.dumps(state))
    found = advised_training(agent, beside=tmp_path)
    assert (found.by, found.most, found.begins_with) == ("sa", 0.05, "")


@every_case(
    "training",
    [{"tried": 3}, {"tried": ["rm -r", None]}, {"robust": 3}, {"robust": {"type": ["wocar"]}}, {"adversary": "x"},
     {"robust": {"type": "wocar", "within": 1}, "checkpoints": {"a": 1}},
     {"robust": {"type": "x", "within": {"eps": "much"}}, "checkpoints": [3, {"late": 1, "max_diff": {"x": "y"}}]},
     {"robust": {"type": "wocar", "within": {"eps": 1, "scale": ["x", 2]}}, "began_with": {"ref": 3, "clean": "x"}},
     {**failed(), "victim": 3}, {**failed(), "began_with": [1]}, {"algorithm": {}, "settings": [1], "rewards": 1}],
)  # fmt: skip
def test_a_card_of_another_hand_is_only_read(training: Any) -> None:
    found = advised_training(with_training(adv.load_victim("zoo:cartpole-a2c"), **training))
    assert found.by in ("wocar", "sa") and {*found.tried} <= {"wocar", "radial"} and not found.begins_with


@pytest.mark.parametrize("by", ["max-diff", pytest.param("radial", marks=pytest.mark.slow)])
def test_a_step_is_timed(by: str) -> None:
    agent = adv.load_victim("zoo:cartpole-dqn")
    environment = adv.Environment.of("CartPole-v1", agent)
    seconds = training_step_seconds(by, agent, environment, Linf(0.1), Deadline(None))
    assert seconds is not None and seconds > 0
    assert training_step_seconds(by, agent, environment, Linf(0.1), Deadline(0)) is None
    assert training_step_seconds(by, agent, adv.Environment.of("Acrobot-v1", None), Linf(0.1), Deadline(None)) is None
