"""The cells of a plan: their keys, what does not apply, and what is refused before anything is played."""

from __future__ import annotations

import pytest

import adv_wrappers as adv
from adv_wrappers.errors import (
    BudgetError,
    SpaceError,
    ThreatError,
    TrustError,
    ValueRangeError,
    VictimError,
)
from adv_wrappers.evaluation.rows.store import ROWS_FILE, Store
from adv_wrappers.studies import Plan, expand
from tests.episodes import short_episodes_of
from tests.evaluation import agents
from tests.evaluation.agents import balancing
from tests.every_case import every_case
from tests.modules import card_naming, noted_module  # noqa: F401

DQN, HOPPER = "zoo:cartpole-dqn", "zoo:hopper-ppo"


def cells(**given):
    return expand(Plan.of(**given)).cells


def rows_of(folder):
    """By key, the threats of the rows that an evaluation left in a folder."""
    with Store(folder / ROWS_FILE) as store:
        return {played.key: played.row["threat"] for played in store.played()}


def test_keys_are_those_of_the_rows_of_an_evaluation(tmp_path):
    how = {"episodes": 3, "num_envs": 2}
    threats = ["pgd:eps=0.1", "noise:eps=0.1,when=every(2) + action-flip:p=0.5"]
    mine = {cell.key: cell.name for cell in cells(victims=[DQN], threats=threats, seeds=[4], **how)}
    with short_episodes_of(20, "CartPole-v1"):
        adv.evaluate(DQN, "CartPole-v1", threats, seed=4, out=tmp_path, **how)
    assert rows_of(tmp_path) == mine


@pytest.mark.slow
def test_keys_are_those_of_the_rows_of_an_evaluation_with_arguments_of_a_card(tmp_path):
    pytest.importorskip("dm_control")
    more = {"best_of": 2, "measure": "height=1.4", "episodes": 1}
    walker = {cell.key for cell in cells(victims=["zoo:walker-stand-sac"], threats=["noise:eps=0.1"], **more)}
    adv.evaluate("zoo:walker-stand-sac", "dm_control/walker-stand-v0", ["noise:eps=0.1"], out=tmp_path, **more)
    assert {*rows_of(tmp_path)} == walker


def test_the_product_and_its_order():
    found = cells(victims=[DQN, HOPPER], threats=["noise", "max-diff"], budgets=["eps=0.1"], seeds=[3, 1], episodes=1)
    assert [(cell.victim, cell.episodes.seed, cell.name) for cell in found] == [
        (victim, seed, name)
        for victim in (DQN, HOPPER)
        for seed in (3, 1)
        for name in ("none", "noise:eps=0.1", "max-diff:eps=0.1")
    ]
    assert [cell.environment.name for cell in found] == ["CartPole-v1"] * 6 + ["Hopper-v5"] * 6  # those of their cards


def test_what_another_function_makes_is_another_environment():
    made = {"id": "CartPole-v1", "make": f"{agents.__name__}:make_short"}
    found = cells(victims=[DQN], environments=["CartPole-v1", {"id": "CartPole-v1", "kwargs": {}}, made], episodes=1)
    assert [cell.environment.described.get("make") for cell in found] == [None, made["make"]] and len(
        {cell.key for cell in found}
    ) == 2


def test_cells_of_other_arguments_are_of_other_kinds():
    threats = ["max-diff:steps=2,eps=0.1", "max-diff:steps=9,eps=0.1", "max-diff:steps=2,eps=0.2"]
    _, two, nine, wider = cells(victims=[DQN], threats=threats, episodes=1)
    assert two.kind == wider.kind != nine.kind and two.kind[0] == "max-diff:steps=2"


def test_an_environment_says_what_is_not_as_usual():
    environment = {"id": "CartPole-v1", "kwargs": {"steps": 9}, "make": f"{agents.__name__}:make_short"}
    [cell] = cells(victims=[DQN], environments=[environment], episodes=1)
    assert str(cell) == f"{DQN} on CartPole-v1 (steps=9, made by {agents.__name__}:make_short), none, seed 0"


def test_victims_that_are_handed_over_fit_the_plan():
    given = {"plan": Plan.of(victims=["mine"], environments=["CartPole-v1"])}
    with pytest.raises(VictimError, match="handed over as objects, 'mine' is 'zoo:cartpole-dqn'"):
        expand(**given, victims={"mine": DQN})
    given = {"plan": Plan.of(victims=["mine"], environments=["CartPole-v1"], select="sample")}
    with pytest.raises(VictimError, match="acts by its mode, the plan says select='sample'"):
        expand(**given, victims={"mine": balancing()})


def test_grids_share_the_runs_without_a_threat():
    plan = Plan.of(victims=[DQN], threats=["noise:eps=0.1"]) + Plan.of(victims=[DQN], threats=["pgd:eps=0.1"])
    assert [cell.name for cell in expand(plan).cells] == ["none", "noise:eps=0.1", "pgd:eps=0.1"]


def test_what_does_not_apply_is_left_out_with_the_reason():
    found = expand(Plan.of(victims=[DQN, HOPPER], threats=["pgd:eps=0.1"], environments=["CartPole-v1", "Hopper-v5"]))
    assert [(cell.victim, cell.environment.name, cell.name) for cell in found.cells] == [
        (DQN, "CartPole-v1", "none"),
        (DQN, "CartPole-v1", "pgd:eps=0.1"),
        (HOPPER, "Hopper-v5", "none"),
    ]
    assert {*found.left_out} == {
        f"{DQN} on Hopper-v5",
        f"{HOPPER} on CartPole-v1",
        f"{HOPPER} on Hopper-v5, pgd:eps=0.1",
    }
    assert "use max-diff" in found.left_out[f"{HOPPER} on Hopper-v5, pgd:eps=0.1"]


def test_a_suite_has_a_cell_for_every_entry_that_applies():
    found = expand(Plan.of(victims=[DQN], suite="standard", budgets=["eps=0.1", "eps=0.2"], timings=["every(2)"]))
    names = [cell.name for cell in found.cells]
    assert len(names) == len({*names}) == 1 + 2 * 9 and "min-q:eps=0.2,when=every(2)" in names
    assert {name.rpartition(", ")[2] for name in found.left_out} >= {"sa-rl", "pa-ad", "robust-sarsa", "beam"}
    found = expand(Plan.of(victims=[DQN], suite="standard", budgets=["eps=0.1"]))
    assert [cell.name for cell in found.cells if cell.recipe is not None] == ["beam:eps=0.1"]
    daylight = expand(Plan.of(victims=["zoo:pong-ppo"], suite="daylight", budgets=["eps=1", "eps=2"]))
    assert len(daylight.cells) > 5  # under budgets of their own, so once each
    with pytest.raises(ThreatError, match="nonsense"):
        cells(victims=[DQN], suite="nonsense", budgets=["eps=0.1"])


def test_an_attack_through_a_victim_without_a_reference_is_made_where_it_is_played():
    found = expand(Plan.of(victims=[DQN], suite=["lower-bound-pgd"], budgets=["eps=0.1,scale=1;1;1;1"]))
    assert [cell.name for cell in found.cells] == ["none", "lower-bound-pgd:eps=0.1,scale=1;1;1;1"]
    assert found.cells[1].recipe is not None and not found.left_out


def test_cells_of_one_kind_differ_in_seed_and_budget():
    found = cells(victims=[DQN], threats=["noise", "pgd"], budgets=["eps=0.1", "eps=0.2"], seeds=[0, 1])
    assert len(found) == 10 and len({cell.kind for cell in found}) == 3


@every_case(
    ("change", "error", "message"),
    [
        ({"victims": ["zoo:nobody"]}, VictimError, "no agent 'nobody' in the zoo"),
        ({"environments": ["Nowhere-v0"]}, SpaceError, "Nowhere"),
        ({"environments": ["Hopper-v5"]}, VictimError, "is for observation space"),
        ({"environments": [{"kwargs": {}}]}, SpaceError, "an environment is an id"),
        ({"environments": [{"id": "CartPole-v1", "make": "os"}]}, SpaceError, "expected module:name"),
        ({"environments": [{"id": "CartPole-v1", "make": "nowhere:f"}]}, SpaceError, "cannot import 'nowhere'"),
        ({"environments": [{"id": "CartPole-v1", "make": "os:sep"}]}, SpaceError, "expected a function"),
        ({"threats": ["noise:eps=-1"]}, BudgetError, "-1"), ({"threats": ["nonsense:eps=1"]}, ThreatError, "nonsense"),
        ({"victims": ["zoo:pong-ppo"], "threats": ["noise:eps=0.5"]}, BudgetError, "grey level"),
        ({"threats": ["noise:eps=0.1", "noise: eps=0.1"]}, ValueRangeError, "two cells of one key: zoo:cart"),
        ({"suite": "standard", "budgets": ["eps=0.1,p=0.5"]}, BudgetError, r"a budget has .*eps, .*, not p"),
        ({"victims": [HOPPER], "threats": ["pgd:eps=0.1"]}, ThreatError, "no cell of the plan applies: .* max-diff"),
    ],
)  # fmt: skip
def test_what_cannot_work_is_refused(change, error, message):
    with pytest.raises(error, match=message):
        cells(**({"victims": [DQN]} | change))


def test_victims_that_are_handed_over():
    plan = Plan.of(victims=["mine"], environments=["CartPole-v1"], threats=["noise:eps=0.1"])
    first, second = (expand(plan, {"mine": balancing(sharpness=sharp)}).cells for sharp in (4.0, 2.0))
    assert len(first) == 2 and not {cell.key for cell in first} & {cell.key for cell in second}
    with pytest.raises(VictimError, match="has no card that names its environment"):
        expand(Plan.of(victims=["mine"]), {"mine": balancing()})


@pytest.mark.parametrize("form", ["id", "kwargs"])
def test_a_card_imports_no_module(form, tmp_path, noted_module):  # noqa: F811
    name, imported = noted_module
    id, kwargs = (
        (f"{name}:CartPole-v1", {}) if form == "id" else ("adv/noise-v0", {"env": f"{name}:CartPole-v1", "eps": 0.1})
    )
    card = card_naming(tmp_path / "agent", id, kwargs)
    plan = Plan.of(victims=[card], episodes=1)
    with pytest.raises(TrustError, match=f"names an environment of a module, '{name}:CartPole-v1'.*trust=True"):
        expand(plan)
    if form == "kwargs":  # of an id that the user names
        with pytest.raises(TrustError, match="the card names an environment of a module"):
            expand(Plan.of(victims=[card], environments=[id], episodes=1))
    assert not imported()
    [cell] = expand(plan, trust=True).cells
    assert cell.environment.env == id and imported()


def test_a_plan_says_what_it_runs():
    made = {"id": "CartPole-v1", "make": "os:system"}
    plan = Plan.of(victims=[DQN], environments=["CartPole-v1", made, "somemodule:CartPole-v1"])
    assert (plan + plan).code == ("os:system", "somemodule:CartPole-v1")
    assert Plan.of(victims=[DQN]).code == ()
