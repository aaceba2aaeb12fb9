"""Choosing among policies online, by the returns of those that were chosen."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import adv_wrappers as adv
from adv_wrappers.errors import SimulationError, SpaceError, ValueRangeError
from adv_wrappers.evaluation.policy_bandit import Exp3IX, OnlineSelection, evaluate_adaptive, select_online
from adv_wrappers.faults.dynamics import FixedDynamics
from adv_wrappers.victims import Victim
from tests.evaluation.agents import balancing, short
from tests.evaluation.searches.test_worst_dynamics import Bowl, Fragile
from tests.every_case import every_case
from tests.rigs import RIGS

RANGE = (0.0, 40.0)


def two() -> list[Victim]:
    """One that balances, and one that falls at once."""
    return [balancing(), balancing(sharpness=-4.0)]


def test_an_update_is_that_of_the_paper() -> None:
    bandit = Exp3IX(3, 100, (-10.0, 10.0))
    eta = math.sqrt(2 * math.log(3) / 300)
    assert bandit.learning_rate == pytest.approx(eta)
    np.testing.assert_allclose(bandit.probabilities, 1 / 3)
    bandit.update(1, 5.0)  # a loss of a quarter
    first = 0.25 / (1 / 3 + eta / 2)
    np.testing.assert_allclose(bandit.estimated_losses, [0, first, 0])
    weights = np.array([1, math.exp(-eta * first), 1])
    np.testing.assert_allclose(bandit.probabilities, weights / weights.sum())
    bandit.update(0, -10.0)
    np.testing.assert_allclose(bandit.estimated_losses, [1 / (1 / weights.sum() + eta / 2), first, 0])


def test_returns_outside_of_the_range_count_as_its_ends() -> None:
    for outside, end in ((1e9, 500.0), (-3.0, 0.0)):
        one, other = (Exp3IX(2, 10, (0.0, 500.0)) for _ in range(2))
        one.update(0, outside)
        other.update(0, end)
        np.testing.assert_array_equal(one.estimated_losses, other.estimated_losses)


def test_choices_are_drawn_by_the_probabilities() -> None:
    bandit = Exp3IX(2, 10, (0, 1), learning_rate=1.0)
    bandit.update(0, 0.0)
    drawn = [bandit.choose() for _ in range(2000)]
    assert np.mean(drawn) == pytest.approx(bandit.probabilities[1], abs=0.04) and bandit.probabilities[1] > 0.6


def test_probabilities_stay_numbers_however_much_was_lost() -> None:
    bandit = Exp3IX(2, 10, (0, 1), learning_rate=10.0)
    bandit.estimated_losses[:] = 1e6, 0.0
    assert bandit.probabilities.tolist() == [0.0, 1.0]


def regret_of(table: Any, **more: Any) -> float:
    return float(np.mean([select_online(table, (0, 1), seed=seed, **more).regret[-1] for seed in range(4)]))


@pytest.mark.slow
def test_the_regret_stays_near_its_order_where_the_best_policy_changes_and_is_far_from_that_of_chance() -> None:
    rounds, random = 600, np.random.default_rng(100)
    means = np.repeat([[0.9, 0.3], [0.1, 0.5], [0.1, 0.1]], rounds // 2, 1)  # the first is best over all rounds
    table = (random.uniform(size=means.shape) < means).astype(float)
    by_chance = table.sum(1).max() - table.mean(0).sum()
    order = math.sqrt(2 * 3 * rounds * math.log(3))
    assert regret_of(table) < order < by_chance
    assert regret_of(table, learning_rate=1e-9) == pytest.approx(by_chance, rel=0.15)  # which learns nothing


def test_only_the_return_of_the_chosen_policy_is_told() -> None:
    table = np.random.default_rng(0).uniform(size=(3, 50))
    found = select_online(table, (0, 1), seed=4)
    other = np.random.default_rng(1).uniform(size=table.shape)
    other[found.chosen, np.arange(50)] = found.received
    again = select_online(other, (0, 1), seed=4)
    np.testing.assert_array_equal(again.chosen, found.chosen)
    np.testing.assert_array_equal(again.probabilities, found.probabilities)
    assert not np.array_equal(again.regret, found.regret)
    assert not np.array_equal(select_online(table, (0, 1), seed=5).chosen, found.chosen)


def test_the_regret_is_to_the_best_policy_of_the_rounds_so_far() -> None:
    found = OnlineSelection(np.array([[5.0, 0.0, 0.0], [1.0, 2.0, 6.0]]), np.array([1, 0, 1]), np.full((3, 2), 0.5))
    assert found.received.tolist() == [1.0, 0.0, 6.0] and found.best == 1
    assert found.regret.tolist() == [4.0, 4.0, 2.0]


def test_rounds_are_the_episodes_of_an_evaluation_under_the_threats_that_are_met() -> None:
    threats = ["noise:eps=0.1", ["noise:eps=0.1", "action-noise:p=0.9"]]
    met = [0, 1, 2, 2, 1, 0]
    found = evaluate_adaptive(two(), short, threats, 6, 7, return_range=RANGE, threat_of_round=met)
    for k, victim in enumerate(two()):
        report = adv.evaluate(victim, short, threats, 6, 7)
        returns = [row["returns"] for row in report.threats]
        assert found.returns[k].tolist() == [returns[threat][t] for t, threat in enumerate(met)]
        assert [row["threat"] for row in found.reports[k].threats] == [row["threat"] for row in report.threats]
    again = select_online(found.returns, RANGE, seed=7)
    np.testing.assert_array_equal(found.chosen, again.chosen)


def test_the_first_threat_is_met_in_every_round_or_none_where_there_is_none() -> None:
    agents, threat = two(), "action-noise:p=1.0"
    under, without = (evaluate_adaptive(agents, short, given, 3, return_range=RANGE) for given in (threat, ()))
    assert without.returns[0].tolist() == [40.0] * 3 and under.returns[0].max() < 40
    assert len(without.reports[0].threats) == 1


def test_a_threat_that_no_round_meets_is_not_played() -> None:
    found = evaluate_adaptive(
        two(), short, ["noise:eps=0.1", "noise:eps=0.2"], 2, return_range=RANGE, threat_of_round=[2, 2]
    )
    assert [row["threat"] for row in found.reports[0].threats] == ["none", "noise:eps=0.2"]


class Counted(gym.Wrapper[Any, Any, Any, Any]):
    """Counts its steps."""

    steps = 0

    def step(self, action: Any) -> Any:
        Counted.steps += 1
        return super().step(action)


def counted() -> gym.Env[Any, Any]:
    return Counted(short())


def test_what_was_played_is_kept_and_not_played_again(tmp_path: Path) -> None:
    Counted.steps = 0
    agents = ["zoo:cartpole-ppo", "zoo:cartpole-dqn"]
    first = evaluate_adaptive(agents, counted, "noise:eps=0.1", 3, return_range=RANGE, out=tmp_path)
    played = Counted.steps
    again = evaluate_adaptive(agents, counted, "noise:eps=0.1", 3, return_range=RANGE, out=tmp_path)
    assert 0 < played == Counted.steps
    np.testing.assert_array_equal(first.returns, again.returns)
    assert adv.Report.from_json(tmp_path / "1" / "report.json").victim["ref"] == "zoo:cartpole-dqn"


@every_case(
    ("changed", "words"),
    [
        ({"victims": "zoo:cartpole-ppo"}, "victims must be a list of at least two, got 'zoo:cartpole-ppo'"),
        ({"victims": ["zoo:cartpole-ppo"]}, "victims must be a list of at least two"),
        ({"rounds": 0}, "rounds must be an integer from 1"),
        ({"return_range": (1.0, 1.0)}, r"return_range must go from a return to a higher one, got \(1.0, 1.0\)"),
        ({"return_range": (-1e308, 1e308)}, "return_range must go from"),
        ({"return_range": (0.0, math.inf)}, "return_range must be a list of 2, each a finite number"),
        ({"return_range": (0.0, 1.0, 2.0)}, r"return_range must be a list of 2.*got \(0.0, 1.0, 2.0\)"),
        ({"return_range": 500}, "return_range must be a list of 2.*got 500"),
        ({"learning_rate": 0.0}, "learning_rate must be a finite number above 0"),
        ({"threat_of_round": [0, 1]}, r"threat_of_round must be 3 integers.*from 0 \(no threat\) to 1, got \[0, 1\]"),
        ({"threat_of_round": [0, 1, 2]}, "threat_of_round must be 3 integers"),
        ({"threat_of_round": [0, 1, -1]}, "threat_of_round must be 3 integers"),
        ({"threat_of_round": [0.0, 1.0, 1.0]}, "threat_of_round must be 3 integers"),
        ({"workers": 0}, "workers"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_played(changed: dict[str, Any], words: str) -> None:
    Counted.steps = 0
    usual = {"victims": two(), "env": counted, "threats": "noise:eps=0.1", "rounds": 3, "return_range": RANGE}
    with pytest.raises(ValueRangeError, match=words):
        evaluate_adaptive(**{**usual, **changed})
    assert Counted.steps == 0


def test_a_policy_for_another_space_is_refused_before_anything_is_played() -> None:
    Counted.steps = 0
    with pytest.raises(adv.AdvWrappersError, match="zoo:hopper-ppo is for observation space"):
        evaluate_adaptive([balancing(), "zoo:hopper-ppo"], counted, (), 3, return_range=RANGE)
    assert Counted.steps == 0


def test_policies_whose_cards_ask_for_different_environments_are_refused(tmp_path: Path) -> None:
    agents = []
    for steps in (40, 50):
        folder = tmp_path / str(steps)
        adv.save_card(folder, balancing(), environment=("CartPole-v1", {"max_episode_steps": steps}))
        agents.append(f"card:{folder}")
    with pytest.raises(SpaceError, match=r"that of policy 0 is CartPole-v1 .*40.*and that of policy 1 .*50"):
        evaluate_adaptive(agents, "CartPole-v1", (), 2, return_range=RANGE)
    found = evaluate_adaptive(
        agents, adv.Environment("CartPole-v1", {"max_episode_steps": 20}), (), 2, return_range=RANGE
    )
    assert found.returns.tolist() == [[20.0, 20.0]] * 2


def test_a_simulation_that_diverges_ends_it() -> None:
    threat = adv.ThreatModel("dynamics", FixedDynamics((1.25,)), adv.Linf(0.3), at="mass.a")
    agents = [RIGS["q"].victim(), RIGS["q"].victim()]
    assert evaluate_adaptive(agents, Bowl, threat, 2, return_range=RANGE).returns.shape == (2, 2)
    with pytest.raises(SimulationError, match="policy 0 has no returns under fixed-dynamics"):
        evaluate_adaptive(agents, Fragile, threat, 2, return_range=RANGE)


@every_case(
    ("make", "words"),
    [
        (lambda: Exp3IX(1, 10, (0, 1)), "policies must be an integer of at least 2, got 1"),
        (lambda: Exp3IX(2, 0, (0, 1)), "rounds must be an integer of at least 1, got 0"),
        (lambda: Exp3IX(2, 10, (0, 1), -1.0), "learning_rate"),
        (lambda: Exp3IX(2, 10, (0, 1), seed=-1), "seed"),
        (lambda: Exp3IX(2, 10, (0, 1)).update(2, 0.5), "chosen must be an integer from 0 to 1, got 2"),
        (lambda: Exp3IX(2, 10, (0, 1)).update(0, math.nan), "episode_return must be a finite number, got nan"),
        (lambda: select_online([[1.0, 2.0]], (0, 1)), r"at least 2 by 1, got shape \(1, 2\)"),
        (lambda: select_online([[], []], (0, 1)), r"got shape \(2, 0\)"),
        (lambda: select_online([1.0, 2.0], (0, 1)), r"got shape \(2,\)"),
        (lambda: select_online([[1.0], [math.inf]], (0, 1)), "finite"),
    ],
)
def test_numbers_out_of_their_range_are_refused(make: Any, words: str) -> None:
    with pytest.raises(ValueRangeError, match=words):
        make()
