"""Which training is advised: one that can begin, that was not tried, and whose price is measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import adv_wrappers as adv
from adv_wrappers.core.budgets import Linf
from adv_wrappers.studies.report.hardening import Advised, hardened_by, training_step_seconds
from adv_wrappers.utils.deadline import Deadline
from adv_wrappers.victims.victim import Victim
from tests.every_case import every_case

pytest.importorskip("stable_baselines3")
SMALL: Any = {"steps": 16, "num_envs": 2, "checks": 2, "episodes": 1}


def with_training(victim: Victim, **training: Any) -> Victim:
    victim.card = {**(victim.card or {}), "training": training}
    return victim


@pytest.mark.parametrize("ref", ["zoo:cartpole-a2c", "zoo:cartpole-dqn"])
def test_every_training_comes_before_one_comes_again(ref: str) -> None:
    tried, most = list[str](), []
    for _ in range(5):
        found = hardened_by(with_training(adv.load_victim(ref), tried=tried))
        assert list(found.tried) == tried
        tried.append(found.by)
        most.append(found.most)
    assert len(set(tried[:4])) == 4 and tried[4] == tried[0]


def test_a_card_says_what_the_agent_has_behind_it(tmp_path: Path) -> None:
    adv.train_agent("CartPole-v1", robust="wocar", eps=0.1, victim="zoo:cartpole-a2c", out=tmp_path / "a", **SMALL)
    assert hardened_by(adv.load_victim(f"card:{tmp_path / 'a'}")) == Advised("sa", ("wocar",))
    second = adv.train_agent("CartPole-v1", "pa-ad", 0.1, victim=f"card:{tmp_path / 'a'}", out=tmp_path / "b", **SMALL)
    assert hardened_by(second.victim).tried == ("wocar", "pa-ad")


def test_trainings_beside_the_report_that_began_with_the_agent_count(tmp_path: Path) -> None:
    agent = adv.load_victim("zoo:cartpole-dqn")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "state.json").write_text("[")
    adv.train_agent("CartPole-v1", robust="radial", eps=0.1, victim=agent, out=tmp_path / "mine", **SMALL)
    assert hardened_by(agent, beside=tmp_path).by == "sa" and hardened_by(agent).by == "radial"
    assert hardened_by(adv.load_victim("zoo:cartpole-radial-dqn"), beside=tmp_path).by == "radial"


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
    assert hardened_by(with_training(adv.load_victim("zoo:cartpole-a2c"), **about)) == Advised("sa", ("wocar",), most)


@every_case(
    "training",
    [{"tried": 3}, {"tried": ["rm -r", None]}, {"robust": 3}, {"robust": {"type": ["wocar"]}}, {"adversary": "x"},
     {"robust": {"type": "wocar", "within": 1}, "checkpoints": {"a": 1}},
     {"robust": {"type": "x", "within": {"eps": "much"}}, "checkpoints": [3, {"late": 1, "max_diff": {"x": "y"}}]}],
)  # fmt: skip
def test_a_card_of_another_hand_is_only_read(training: Any) -> None:
    found = hardened_by(with_training(adv.load_victim("zoo:cartpole-a2c"), **training))
    assert found.by in ("wocar", "sa") and set(found.tried) <= {"wocar"}


@pytest.mark.parametrize("by", ["radial", "max-diff"])
def test_a_step_is_timed(by: str) -> None:
    agent = adv.load_victim("zoo:cartpole-dqn")
    environment = adv.Environment.of("CartPole-v1", agent)
    seconds = training_step_seconds(by, agent, environment, Linf(0.1), Deadline(None))
    assert seconds is not None and seconds > 0
    assert training_step_seconds(by, agent, environment, Linf(0.1), Deadline(0)) is None
    assert training_step_seconds(by, agent, adv.Environment.of("Acrobot-v1", None), Linf(0.1), Deadline(None)) is None
