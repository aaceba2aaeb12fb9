"""The script of hardened agents: which agents, their plans, and a page with means over seeds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.result_scripts import result_script


@pytest.fixture(scope="module")
def script():
    with result_script("hardened") as module:
        yield module


def test_every_agent_is_shipped(script):
    root = Path(script.__file__).parent / "hardened"
    names = {f"{env}-{kind}-s{seed}" for env in script.ENVS for kind in script.KINDS for seed in (0, 1)}
    assert {card.parent.name for card in root.glob("*/card.json")} == names


def test_a_plan_has_what_needs_no_training_and_what_was_trained(script, tmp_path):
    agent = script.Agent("hopper", "ppo", 0, tmp_path)
    assert len([*agent.plan(5).grids[0].stacks()]) == len(script.UNTRAINED)
    (agent.attacks / "robust-sarsa").mkdir(parents=True)
    (agent.attacks / "robust-sarsa" / "card.json").write_text("{}")
    (agent.attacks / "sa-rl").mkdir()
    (agent.attacks / "sa-rl" / "state.json").write_text('{"record": [{"steps": 400000}]}')  # not to its end
    assert [name for name, _ in agent.learned()] == ["robust-sarsa"]
    assert all("eps=0.075,scale=victim" in text for text in agent.plan(5).grids[0].threats)


@pytest.mark.slow
def test_figures_of_an_earlier_page_stay_for_the_same_weights(script, tmp_path):
    agents = [script.Agent("hopper", kind, 0, tmp_path) for kind in ("ppo", "sa")]
    same = script.adv.load_victim(agents[0].ref).fingerprint()
    rows = {"apgd": {"mean_return": 1.0}}
    earlier = {
        "machine": "there",
        "agents": {
            "hopper-ppo-s0": {"fingerprint": same, "rows": rows},
            "hopper-sa-s0": {"fingerprint": "of another training", "rows": rows},
        },
    }
    with script.Store(tmp_path / "rows.db") as store:
        found = script.figures(store, agents, 50, earlier)
        assert list(found) == ["hopper-ppo-s0"] and found["hopper-ppo-s0"]["machine"] == "there"
        plan = script.Plan.of(victims=[agents[0].ref], threats=["noise:eps=0.075,scale=victim"], episodes=1, num_envs=1)
        script.run(plan, store, 1)
        found = script.figures(store, agents, 1, earlier)["hopper-ppo-s0"]
    assert {*found["rows"]} == {"none", "noise", "apgd"} and found["machine"] == script.machine()
