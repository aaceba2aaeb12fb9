"""The script of the adaptive defence: its attackers, and what is told to what chooses."""

from __future__ import annotations

import numpy as np
import pytest

from tests.result_scripts import result_script


@pytest.fixture(scope="module")
def script():
    with result_script("adaptive") as module:
        yield module


def test_every_attacker_has_an_attack_for_every_round(script):
    attackers = script.attackers()
    assert {attack.shape for attack in attackers.values()} == {(script.ROUNDS,)}
    assert {int(one) for attack in attackers.values() for one in attack} == set(range(len(script.ATTACKS)))
    names = {name: [script.ATTACKS[i] for i in (attack[0], attack[-1])] for name, attack in attackers.items()}
    assert names["pgd, from half-way on max-diff"] == ["pgd:eps=0.15", "max-diff:eps=0.15"]
    changing = attackers["noise and pgd, 100 rounds each"]
    assert np.flatnonzero(np.diff(changing)).tolist() == [*range(99, script.ROUNDS - 1, 100)]


def test_an_agent_that_is_better_in_every_episode_is_found(script, monkeypatch):
    monkeypatch.setattr(script, "DRAWS", 2)
    monkeypatch.setattr(script, "TIMES", (100, 300))
    returns = np.array([np.full((1, 5), 450.0), np.full((1, 5), 50.0)])
    row = script.chosen_by(returns, np.zeros(300, int), None)
    assert row["alone"] == [450.0, 50.0] and row["best"] == 450.0 and row["share"][0] > 0.8
    assert 450 - row["return"] == pytest.approx(row["regret"][1] / 300)
    assert row["regret"][1] < 3 * row["regret"][0]


def test_agents_that_others_dominate_are_not_chosen_from(script):
    def agent(*means):
        return {"returns": dict(zip(script.ATTACKS, ([mean, mean] for mean in means), strict=True))}

    agents = {
        "ppo": agent(500, 200, 50, 10),
        "sa-ppo": agent(500, 400, 300, 100),
        "wocar-ppo": agent(500, 400, 200, 190),
    }
    assert script.kept_of(agents) == ["sa-ppo", "wocar-ppo"]
