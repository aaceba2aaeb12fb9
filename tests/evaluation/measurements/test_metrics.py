"""Metrics of episodes: what infos and endings say, counted alike however an evaluation is played."""

from __future__ import annotations

import math
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import adv_wrappers as adv
from adv_wrappers.errors import NotRobust, ValueRangeError
from adv_wrappers.evaluation.measurements.metrics import metric_of, metric_summary, pass_hat_k, wilson_interval
from adv_wrappers.studies import Store
from adv_wrappers.studies.gate import assert_robust
from tests.every_case import every_case

DQN, CARTPOLE = "zoo:cartpole-dqn", "CartPole-v1"
NAMES = ("success", "terminated", "truncated", "cost", "x", "max:x", "min:x", "mean:x", "any:x")


class Counting(gym.Wrapper[Any, Any, Any, Any]):
    """CartPole of 30 steps whose info tells where the cart is; an episode succeeds from step 20 on."""

    def __init__(self, key: str = "is_success") -> None:
        super().__init__(gym.make(CARTPOLE, max_episode_steps=30))
        self.key, self.steps = key, 0

    def reset(self, **given: Any) -> tuple[Any, dict[str, Any]]:
        self.steps = 0
        return super().reset(**given)

    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, info = super().step(action)
        self.steps += 1
        info = {**info, self.key: self.steps == 20, "cost": 0.5, "x": np.array([obs[0]])}
        return obs, reward, terminated, truncated, info


def make(id: str, key: str = "is_success") -> gym.Env[Any, Any]:
    return Counting(key)


def evaluate(*threats: str, **given: Any) -> adv.Report:
    return adv.evaluate(DQN, CARTPOLE, threats, make=make, metrics=NAMES, **{"episodes": 6, "num_envs": 4, **given})


@every_case("key", ["is_success", "success"])
def test_metrics_equal_those_of_a_loop_by_hand(key):
    row = evaluate(env_kwargs={"key": key}).threats[0]
    victim, env = adv.load_victim(DQN), Counting(key)
    for i, seed in enumerate(adv.Episodes(6).seeds):
        obs, _ = env.reset(seed=seed)
        seen, over = [], False
        while not over:
            obs, _, terminated, truncated, info = env.step(int(victim.act_on(obs[None])[0]))
            seen.append((info[key], info["cost"], info["x"].item()))
            over = terminated or truncated
        xs = [x for _, _, x in seen]
        expected = [
            any(one for one, _, _ in seen), terminated, truncated, math.fsum(cost for _, cost, _ in seen), xs[-1],
            max(xs), min(xs), math.fsum(xs) / len(xs), True,
        ]  # fmt: skip
        assert [row.metrics[name][i] for name in NAMES] == pytest.approx([*map(float, expected)])


def test_metrics_do_not_depend_on_how_an_evaluation_is_played(tmp_path):
    one = evaluate("noise:eps=0.3", num_envs=1)
    many = evaluate("noise:eps=0.3", num_envs=6, out=tmp_path, workers=2)
    kept = evaluate("noise:eps=0.3", num_envs=6, out=tmp_path, resume=True)
    assert [row.metrics for row in one.threats] == [row.metrics for row in many.threats]
    assert [row.metrics for row in kept.threats] == [row.metrics for row in many.threats] and kept.metrics == NAMES
    assert adv.Report.from_json(tmp_path / "report.json") == many
    with Store(tmp_path / "rows.db") as store:
        [report] = store.reports()
        assert report.metrics == NAMES and report.threats[1].metrics == many.threats[1].metrics
    assert "success" in many.table().columns and many.threats[1].metric("success").is_rate


def test_the_best_draw_has_its_own_metrics():
    row = evaluate("noise:eps=0.3", best_of=4).threats[1]
    assert [cost / 0.5 for cost in row.metrics["cost"]] == row.lengths


def test_metrics_are_another_key_and_none_are_the_old_one(tmp_path):
    adv.evaluate(DQN, CARTPOLE, episodes=1, make=make, out=tmp_path)
    row = evaluate(episodes=1, out=tmp_path, resume=True).threats[0]
    assert set(row.metrics) == set(NAMES)


def test_what_an_info_does_not_have_is_named():
    with pytest.raises(
        ValueRangeError, match=r"needs info\['speed'\], the environment's info has 'is_success', 'cost'"
    ):
        adv.evaluate(DQN, CARTPOLE, episodes=1, make=make, metrics="speed")
    for wrong, words in (
        ("avg:x", "made by any, last, sum, mean, min, max"),
        ("", "success, terminated"),
        ("sum:", "key"),
    ):
        with pytest.raises(ValueRangeError, match=words):
            adv.Episodes(1, metrics=[wrong])
    with pytest.raises(ValueRangeError, match="the row has no metrics, not 'success'"):
        adv.evaluate(DQN, CARTPOLE, episodes=1).threats[0].metric("success")


@every_case("value", ["far", [1.0, 2.0], math.nan])
def test_a_metric_is_a_finite_number(value):
    class Odd(Counting):
        def step(self, action):
            *answer, info = super().step(action)
            return (*answer, {**info, "odd": value})

    with pytest.raises(ValueRangeError, match="a metric is a"):
        adv.evaluate(DQN, CARTPOLE, episodes=1, make=lambda id: Odd(), metrics="odd")


def test_summaries():
    falls = metric_summary("terminated", [0.0, 1.0, 0.0, 1.0], [30, 10, 30, 20])
    assert (falls.mean, falls.worst, falls.first_failure, falls.is_rate) == (0.5, 1.0, 15.0, True)
    far = metric_summary("x", [*map(float, range(40))], [1] * 40)
    assert (far.mean, far.worst, far.first_failure, far.is_rate) == (19.5, 0.5, None, False)
    assert metric_summary("cost", [*map(float, range(40))], [1] * 40).worst == 38.5
    assert str(metric_summary("success", [1.0] * 10, [1] * 10)) == "100% (72 to 100)"
    assert metric_of("cost").bad_when_high and not metric_of("success").bad_when_high


def test_wilsons_interval_covers_as_often_as_it_says():
    """Newcombe 1998, table I: 81 of 263 and 15 of 148; and in simulations."""
    assert wilson_interval(81, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert wilson_interval(15, 148) == pytest.approx((0.0624, 0.1605), abs=5e-5)
    assert wilson_interval(0, 5)[0] == 0.0 and wilson_interval(5, 5)[1] == 1.0
    drawn = np.random.default_rng(0)
    for rate in (0.05, 0.3, 0.5, 0.9):
        intervals = [wilson_interval(int(n), 50) for n in drawn.binomial(50, rate, 1000)]
        assert 0.92 < np.mean([low <= rate <= high for low, high in intervals]) < 0.99
    for wrong in ((2, 1), (-1, 1), (0, 0)):
        with pytest.raises(ValueRangeError, match="at least one trial"):
            wilson_interval(*wrong)


def test_pass_hat_k_is_the_share_of_all_choices():
    assert [pass_hat_k(3, 4, k) for k in (1, 2, 3, 4)] == [0.75, 0.5, 0.25, 0.0]
    with pytest.raises(ValueRangeError, match="at least k episodes"):
        pass_hat_k(1, 2, 3)


def test_a_gate_on_a_rate():
    given: dict[str, Any] = {"make": make, "attacks": ["noise:eps=0.01"], "metric": "success"}
    found = assert_robust(DQN, CARTPOLE, at_least=0.8, **given)
    assert found.worst.mean == 1.0
    with pytest.raises(NotRobust, match=r"leaves 0.* over \d+ episodes, less than the 0.9 asked for"):
        assert_robust(DQN, CARTPOLE, at_least=0.9, **{**given, "attacks": ["pgd:eps=1"]})
    for wrong in ({}, {"at_least": 0.5, "min_return": 1.0}, {"min_return": 1.0}):
        with pytest.raises(ValueRangeError, match="needs min_return=, or metric= and at_least="):
            assert_robust(DQN, CARTPOLE, **given, **wrong)
