"""``run``: tables, exit statuses, interruptions and wrong usage."""

from __future__ import annotations

import sys

import pytest
from click.testing import CliRunner

from adv_wrappers.cli import main
from adv_wrappers.environments.environment import environment_text
from adv_wrappers.evaluation.rows.report import victim_text
from adv_wrappers.studies import Plan, Store, expand
from tests.modules import card_naming, noted_module  # noqa: F401
from tests.studies.test_runner import failing

PLAN = Plan.of(victims=["zoo:cartpole-dqn"], threats=["noise:eps=0.1"], seeds=[0, 1], episodes=2)


def call(*words):
    return CliRunner().invoke(main, [str(word) for word in words])


@pytest.fixture
def plan(tmp_path):
    PLAN.save(tmp_path / "plan.json")
    return tmp_path / "plan.json"


def test_a_plan_is_run_and_its_rows_are_shown(plan, tmp_path):
    store = tmp_path / "rows.db"
    done = call("run", plan, "--store", store)
    assert done.exit_code == 0 and "4 cells played" in done.output and "noise:eps=0.1" in done.output
    assert "4 known before" in call("run", plan, "--store", store).output
    line = next(line for line in done.output.splitlines() if "none" in line)
    assert line.split()[3] == "60" and line.split()[-2:] == ["2", "4"]


def test_the_table_keeps_apart_what_differs_in_more_than_the_seed(tmp_path):
    longer = {"id": "CartPole-v1", "kwargs": {"max_episode_steps": 30}}
    made = {"id": "CartPole-v1", "make": "tests.evaluation.agents:make_short"}
    plan = Plan.of(victims=["zoo:cartpole-dqn"], environments=["CartPole-v1", longer, made], episodes=1, seeds=[0, 1])
    plan += Plan.of(victims=["zoo:cartpole-ppo"], select="sample", episodes=1)
    plan.save(tmp_path / "plan.json")
    done = call("run", tmp_path / "plan.json", "--store", tmp_path / "rows.db")
    assert done.exit_code == 0, done.output
    with Store(tmp_path / "rows.db") as store:
        keys = {cell.key for cell in expand(plan).cells}
        played = [(one.about, one.row["mean_return"]) for one in store.played() if one.key in keys]
    means = {(victim_text(about), environment_text(about["env"])): mean for about, mean in played}
    dqn, ppo = "zoo:cartpole-dqn", "zoo:cartpole-ppo"
    assert {*means} == {
        (dqn, "CartPole-v1"),
        (dqn, "CartPole-v1 (max_episode_steps=30)"),
        (dqn, "CartPole-v1 (made by tests.evaluation.agents:make_short)"),
        (ppo + " (sampled actions)", "CartPole-v1"),
    }
    assert [means[dqn, f"CartPole-v1{more}"] for more in ("", " (max_episode_steps=30)")] == [60, 30]
    lines = [line for line in done.output.splitlines() if "none" in line]
    assert len(lines) == 4 and [line.split()[-2:] for line in lines] == [["2", "2"]] * 3 + [["1", "1"]]


def test_a_dry_run_plays_the_clean_runs(plan, tmp_path):
    done = call("run", plan, "--store", tmp_path / "rows.db", "--dry-run", "--workers", 2)
    assert done.exit_code == 0 and "3 cells are left, 0 are known: with 2 processes about" in done.output
    with Store(tmp_path / "rows.db") as store:
        assert len(store) == 1


@pytest.mark.parametrize("form", ["make", "id"])
def test_a_dry_run_imports_and_runs_nothing_that_the_plan_names(form, tmp_path, noted_module):  # noqa: F811
    name, imported = noted_module
    given = {"id": "CartPole-v1", "make": f"{name}:system"} if form == "make" else f"{name}:CartPole-v1"
    Plan.of(victims=["zoo:cartpole-dqn"], environments=[given], episodes=1).save(tmp_path / "plan.json")
    words = "run", tmp_path / "plan.json", "--store", tmp_path / "rows.db", "--dry-run"
    done = call(*words)
    assert done.exit_code != 0 and f"{name}:" in done.output and "--dry-run --trust" in done.output
    assert not imported() and not (tmp_path / "rows.db").exists()
    done = call(*words, "--trust")
    assert imported() and (done.exit_code == 0) == (form == "id")


def test_a_card_of_another_module_needs_trust(tmp_path, noted_module):  # noqa: F811
    name, imported = noted_module
    Plan.of(victims=[card_naming(tmp_path / "agent", f"{name}:CartPole-v1")], episodes=1).save(tmp_path / "plan.json")
    words = "run", tmp_path / "plan.json", "--store", tmp_path / "rows.db"
    done = call(*words)
    assert done.exit_code != 0 and "--trust" in done.output and not imported()
    assert call(*words, "--trust").exit_code == 0 and imported()


def test_cells_that_fail_make_the_exit_status(tmp_path):
    failing("raises").save(tmp_path / "plan.json")
    done = call("run", tmp_path / "plan.json", "--store", tmp_path / "rows.db")
    assert done.exit_code == 1 and "RuntimeError: no more" in done.output and "1 failed" in done.output


def test_an_interruption_says_what_is_kept(plan, tmp_path, monkeypatch):
    add = Store.add

    def add_and_stop(self, played, replace=False):
        add(self, played)
        raise KeyboardInterrupt

    monkeypatch.setattr(Store, "add", add_and_stop)
    done = call("run", plan, "--store", tmp_path / "rows.db")
    assert done.exit_code == 130
    assert f"1 of 4 rows are in {tmp_path / 'rows.db'}; the same command plays only the others" in done.stderr
    with Store(tmp_path / "rows.db") as store:
        assert len(store.done(cell.key for cell in expand(PLAN).cells)) == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--gpus", "0.5"), "go with --ray"), (("--ray", "local", "--workers", "2"), "give --actors with --ray"),
        (("--workers", "0"), "--workers must be an integer from 1 to"),
    ],
)  # fmt: skip
def test_wrong_usage_of_run(plan, tmp_path, words, message):
    done = call("run", plan, "--store", tmp_path / "rows.db", *words)
    assert done.exit_code == 2 and message in done.output and not (tmp_path / "rows.db").exists()


def test_a_file_that_is_no_store(plan, tmp_path):
    (tmp_path / "rows.db").write_text("no store " * 100)
    done = call("run", plan, "--store", tmp_path / "rows.db")
    assert done.exit_code == 2 and "rows.db is damaged, or no store" in done.output


def test_ray_that_is_not_installed(plan, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    done = call("run", plan, "--store", tmp_path / "rows.db", "--ray", "local")
    assert done.exit_code == 2 and "pip install 'adv_wrappers[ray]'" in done.output
