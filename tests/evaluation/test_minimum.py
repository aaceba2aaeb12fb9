"""What impact counts from, and the attacked share of an episode."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import adv_wrappers as adv
from adv_wrappers.errors import AdvWrappersError
from adv_wrappers.evaluation.rows.report import Report
from adv_wrappers.victims import Victim, from_module
from tests.evaluation.agents import Film, balancing, make_short, short, watcher
from tests.evaluation.test_evaluate import Still


def impact(clean: float, attacked: float, least: float) -> float:
    return (clean - attacked) / (clean - least)


def test_the_minimum_is_fixed_where_nothing_is_said(victim: Victim) -> None:
    how: Any = {"episodes": 2, "env_kwargs": {"max_episode_steps": 100}}
    report = adv.evaluate(victim, "CartPole-v1", ["noise:eps=0.5"], **how)
    assert report.minimum == {"kind": "fixed", "value": 0.0}
    given = adv.evaluate(victim, "CartPole-v1", ["noise:eps=0.5"], minimum=8, **how)
    assert given.minimum == {"kind": "fixed", "value": 8.0}
    for made, least in ((report, 0.0), (given, 8.0)):
        row = made.threats[1]
        assert row["impact"] == row["general_impact"] == pytest.approx(impact(100, row["mean_return"], least))
    unknown = adv.evaluate(watcher(Film()), Film, ["noise:eps=5"], episodes=1)
    assert unknown.minimum == {"kind": "unknown", "value": None}
    assert unknown.threats[1]["impact"] is unknown.threats[1]["general_impact"] is None


def test_the_minimum_is_that_of_the_environment_at_hand() -> None:
    longer, made = (
        adv.evaluate("zoo:mountaincar-dqn", "MountainCar-v0", ["worst-action"], 1, env_kwargs=kwargs, make=make)
        for kwargs, make in (({"max_episode_steps": 210}, None), ({"steps": 30}, make_short))
    )
    assert (longer.minimum["value"], made.minimum["value"]) == (-210.0, -30.0)
    attacked = longer.threats[1]
    assert attacked["mean_return"] == -210 and attacked["impact"] == 1.0  # more where it counts from -200
    rest = adv.evaluate(balancing(), "CartPole-v1", (), 1, env_kwargs={"sutton_barto_reward": True})
    assert rest.minimum == {"kind": "fixed", "value": -1.0}
    bonus = adv.evaluate(balancing(), lambda: gym.wrappers.TransformReward(short(), lambda reward: reward - 2), (), 1)
    assert bonus.minimum == {"kind": "unknown", "value": None}


@pytest.mark.parametrize(("kind", "word"), [("q", "argmin-Q agent"), ("logits", "least likely action")])
def test_the_minimum_of_the_agent_that_does_its_worst(kind: str, word: str, tmp_path: Path) -> None:
    agent = balancing(kind)
    how: Any = {"episodes": 3, "env_kwargs": {"max_episode_steps": 100}}
    report = adv.evaluate(agent, "CartPole-v1", ["noise:eps=0.5"], minimum="worst-action", out=tmp_path, **how)
    clean, worst, noise = report.threats
    assert [row["threat"] for row in report.threats] == ["none", "worst-action", "noise:eps=0.5"]
    least = worst["mean_return"]
    assert report.minimum == {"kind": word, "value": least} and 5 < least < 15 and worst["action_change"] == 1
    assert (clean["impact"], worst["impact"]) == (0, 1)
    assert noise["impact"] == pytest.approx(impact(clean["mean_return"], noise["mean_return"], least))
    assert noise["general_impact"] == pytest.approx(impact(clean["mean_return"], noise["mean_return"], 0))
    assert noise["impact"] > noise["general_impact"]
    alone = adv.evaluate(agent, "CartPole-v1", ["worst-action"], **how)
    assert alone.threats[1]["returns"] == worst["returns"]
    assert Report.from_json(tmp_path / "report.json") == report


def test_a_worst_action_of_the_callers_own_is_not_played_twice(victim: Victim, tmp_path: Path) -> None:
    early: list[Any] = []

    def progress(threat: str, done: int, total: int) -> None:
        if threat == "worst-action" and done == 0:
            early.append(Report.from_json(tmp_path / "report.json"))

    listed = ["noise:eps=0.5", "worst-action"]
    report = adv.evaluate(victim, short, listed, 2, minimum="worst-action", out=tmp_path, progress=progress)
    assert [row["threat"] for row in report.threats] == ["none", *listed]
    assert report.threats[1]["impact"] is not None and report.threats[2]["impact"] == 1
    assert early[0].minimum["value"] is None and early[0].threats[1]["impact"] is None  # not known yet
    same = adv.evaluate(victim, short, adv.WorstAction(victim), 2, minimum="worst-action")
    assert len(same.threats) == 2 and same.minimum == report.minimum


@pytest.mark.parametrize("other", ["worst-action:when=every(2)", ["noise:eps=0.1", "worst-action"], "sharper"])
def test_another_worst_action_is_not_it(victim: Victim, other: Any) -> None:
    other = adv.WorstAction(balancing("q", sharpness=1.0)) if other == "sharper" else other
    report = adv.evaluate(victim, short, [other], 1, minimum="worst-action")
    assert len(report.threats) == 3 and report.threats[1]["threat"] == "worst-action"
    assert report.minimum["value"] == report.threats[1]["mean_return"]


def test_victims_that_have_no_worst_action(monkeypatch: pytest.MonkeyPatch, victim: Victim) -> None:
    monkeypatch.setattr("adv_wrappers.evaluation.player.play_episodes", None)

    class Free(Still):
        action_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)

    actor = from_module(lambda x: x[:, :2] * 0, Free.observation_space, Free.action_space, "mean")
    with pytest.raises(AdvWrappersError, match="worst-action"):
        adv.evaluate(actor, Free, minimum="worst-action")
    for bad in ("noise", True, [1.0], float("inf")):
        with pytest.raises(AdvWrappersError, match="minimum must be"):
            adv.evaluate(victim, short, minimum=bad)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "num_envs"),
    [("noise:eps=5,when=every(4)&atmost(4)", 1), ("action-flip:when=every(4)&atmost(4)", 3)],
)
def test_the_attacked_share_of_every_episode(text: str, num_envs: int) -> None:
    row = adv.evaluate(watcher(Film()), Film, [text], episodes=5, num_envs=num_envs).threats[1]
    was_attacked = [min(4, (length + 3) // 4) for length in row["lengths"]]
    shares = [n / length for n, length in zip(was_attacked, row["lengths"], strict=True)]
    assert row["attacked_fractions"] == pytest.approx(shares) and len({*row["lengths"]}) > 1
    assert row["e_adv"] == pytest.approx(np.mean(shares)) and row["e_adv_std"] == pytest.approx(np.std(shares, ddof=1))
    assert row["attacked_fraction"] == pytest.approx(sum(was_attacked) / sum(row["lengths"]))
    assert row["e_adv"] != pytest.approx(row["attacked_fraction"])


def test_a_stack_attacks_where_any_layer_does(victim: Victim) -> None:
    stack = ["noise:eps=0.5,when=every(3)", "action-flip:when=every(2)"]
    clean, row = adv.evaluate(victim, short, [stack], episodes=2).threats
    for length, share in zip(row["lengths"], row["attacked_fractions"], strict=True):
        assert share == pytest.approx(sum(t % 2 == 0 or t % 3 == 0 for t in range(length)) / length)
    assert clean["attacked_fractions"] == [0, 0] and clean["e_adv"] == clean["e_adv_std"] == 0
