"""Attacks that are made where their cell is played: what their cells are known by, and that a training is shared."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

import adv_wrappers as adv
from adv_wrappers.errors import ThreatError, ValueRangeError
from adv_wrappers.studies import Plan, Store, expand, run
from adv_wrappers.studies import plan_cells as cells_module
from adv_wrappers.studies.plan_cells import _turn
from adv_wrappers.studies.run_time import estimate
from adv_wrappers.utils.files import held
from tests.every_case import every_case
from tests.studies.test_runner import DQN, rows

pytest.importorskip("stable_baselines3")

SHORT = {"id": "CartPole-v1", "kwargs": {"max_episode_steps": 6}}
TRAINED = {
    "victims": [DQN], "environments": [SHORT], "suite": ["noise", "beam", "pa-ad"], "budgets": ["eps=0.1"],
    "train": True, "steps": 64, "training": {"checks": 1, "episodes": 1, "n_steps": 16}, "num_envs": 4, "episodes": 2,
    "seeds": [0, 1],
}  # fmt: skip


def cells(**change):
    return {cell.name: cell for cell in expand(Plan.of(**(TRAINED | {"seeds": [0]} | change))).cells}


def test_a_cell_is_known_by_how_its_attack_is_made():
    found = cells()
    assert [*found] == ["none", "noise:eps=0.1", "beam:eps=0.1", "pa-ad:eps=0.1"]
    assert [cell.recipe is not None for cell in found.values()] == [False, False, True, True]
    assert found["pa-ad:eps=0.1"].recipe.trained and not found["beam:eps=0.1"].recipe.trained
    again = cells(budgets=["eps=0.10"])
    assert again["pa-ad:eps=0.10"].key == found["pa-ad:eps=0.1"].key
    for change in ({"steps": 1024}, {"training_seed": 2}, {"training": {"checks": 2}}, {"seeds": [3]}):
        assert cells(**change)["pa-ad:eps=0.1"].key != found["pa-ad:eps=0.1"].key
    timed = cells(timings=["every(2)"])
    assert {*timed} == {"none", "noise:eps=0.1,when=every(2)", "pa-ad:eps=0.1,when=every(2)"}
    assert {cell.kind for cell in cells(budgets=["eps=0.2"]).values()} == {cell.kind for cell in found.values()}


def test_a_timing_is_given_to_attacks_that_have_none():
    names = ["max-diff", "strategic-max-diff", "half-action-flip", "timed-max-diff", "sa-rl"]
    timed = [*cells(suite=names, timings=["every(2)", "every(3)"])]
    assert sorted(timed) == sorted(
        [
            "none",
            "max-diff:eps=0.1,when=every(2)",
            "max-diff:eps=0.1,when=every(3)",
            "max-diff:eps=0.1,when=strategic(0.1)",
            "timed-max-diff:eps=0.1",
            "sa-rl:eps=0.1,when=every(2)",
            "sa-rl:eps=0.1,when=every(3)",
            "action-flip:when=bernoulli(0.5)",
        ]
    )


def test_without_train_what_is_trained_is_left_out():
    found = expand(Plan.of(**(TRAINED | {"train": False})))
    assert not any(cell.recipe and cell.recipe.trained for cell in found.cells)
    assert "only where train=True" in found.left_out[f"{DQN} on CartPole-v1 (max_episode_steps=6), pa-ad"]


def test_adversaries_on_actions_are_trained_once_for_all_budgets():
    found = cells(suite=["pa-ad-action"], budgets=["eps=0.1", "eps=0.2"])
    assert [*found] == ["none", "pa-ad-action"]


@every_case(
    ("change", "error", "message"),
    [
        ({"train": "yes"}, ValueRangeError, "train must be true or false"),
        ({"training": 3}, ValueRangeError, "training must be a dictionary"),
        ({"training": {"nonsense": 1}}, ThreatError, "not nonsense"),
        ({"steps": 0}, ValueRangeError, "steps must be an integer from 1"),
        ({"suite": ["nonsense"]}, ThreatError, "nonsense"),
    ],
)  # fmt: skip
def test_what_cannot_work_is_refused(change, error, message):
    with pytest.raises(error, match=message):
        cells(**change)


def test_a_plan_with_trainings_has_its_json_form(tmp_path):
    plan = Plan.of(**TRAINED)
    plan.save(tmp_path / "plan.json")
    assert Plan.load(tmp_path / "plan.json") == plan
    assert plan.grids[0].suite == ("noise", "beam", "pa-ad")
    assert Plan.from_dict(plan.to_dict()).to_dict() == plan.to_dict()


@pytest.mark.slow
def test_seeds_share_a_training_whoever_plays(tmp_path):
    found = {}
    for workers, suite in ((2, ["noise", "pa-ad"]), (1, TRAINED["suite"])):
        with Store(tmp_path / f"{workers}.db") as store:
            summary = run(Plan.of(**(TRAINED | {"suite": suite})), store, workers)
            assert (summary.played, summary.failed) == (2 + 2 * len(suite), {})
            [place] = (tmp_path / f"{workers}.db.trainings").iterdir()
            found[workers] = {what: {**row, "layers": None} for what, row in rows(store).items()}  # paths of cards
            reports = store.reports()
    assert found[2].items() <= found[1].items()
    learned = f"learned:card={place / 'pa-ad'}"
    for report in reports:
        assert [row["threat"] for row in report.threats] == ["none", "noise:eps=0.1", "beam:eps=0.1", "pa-ad:eps=0.1"]
        alone = adv.evaluate(DQN, "CartPole-v1", [learned], 2, report.seed, 4, env_kwargs=SHORT["kwargs"])
        assert alone.threats[1]["returns"] == report.threats[3]["returns"]
        assert any(warning.startswith("beam:eps=0.1 was not checked") for warning in report.warnings)


def test_a_training_that_is_there_is_not_repeated(tmp_path):
    plan = Plan.of(**(TRAINED | {"suite": ["pa-ad"]}))
    with Store(tmp_path / "rows.db") as store:
        first = run(Plan.of(**(TRAINED | {"suite": ["pa-ad"], "seeds": [0]})), store)
        [state] = (tmp_path / "rows.db.trainings").rglob("state.json")
        before = state.stat().st_mtime_ns
        second = run(plan, store)
        assert (first.played, second.played, second.known) == (2, 2, 2)
    assert state.stat().st_mtime_ns == before


def test_a_store_in_memory_trains_into_a_folder_that_goes():
    with Store(":memory:") as store:
        assert store.trainings is None
        assert run(Plan.of(**(TRAINED | {"suite": ["pa-ad"], "seeds": [0]})), store).failed == {}


def test_who_comes_second_waits(tmp_path, monkeypatch):
    order, begun, waits, end = [], threading.Event(), threading.Event(), threading.Event()
    monkeypatch.setattr(cells_module, "time", SimpleNamespace(sleep=lambda _: (waits.set(), end.wait(60))))

    def first():
        with held(tmp_path / "training"):
            begun.set()
            end.wait(60)
            order.append("first")

    def second():
        with _turn(tmp_path / "training"):
            order.append("second")

    threads = [threading.Thread(target=first), threading.Thread(target=second)]
    threads[0].start()
    assert begun.wait(60)
    threads[1].start()
    assert waits.wait(60) and order == []
    end.set()
    for thread in threads:
        thread.join(60)
    assert order == ["first", "second"]


def test_the_cost_of_a_training(tmp_path):
    plan = Plan.of(**(TRAINED | {"suite": ["pa-ad"], "steps": 100}))
    with Store(tmp_path / "rows.db") as store:
        kinds = {part.name.partition(", ")[2]: part for part in estimate(plan, store).parts}
        assert {name: part.left for name, part in kinds.items()} == {"none": 1, "pa-ad: training": 1, "pa-ad": 2}
        assert min(kinds["pa-ad: training"].seconds, kinds["pa-ad"].seconds) > 0
        assert len(store) == 1 and not (tmp_path / "rows.db.trainings").exists()
        run(Plan.of(**(TRAINED | {"suite": ["pa-ad"], "steps": 100, "seeds": [0]})), store)
        kinds = {part.name.partition(", ")[2]: part for part in estimate(plan, store).parts}
        assert kinds["pa-ad: training"].left == 0 and kinds["pa-ad"].left == 1
