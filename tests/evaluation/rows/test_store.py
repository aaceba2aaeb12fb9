"""The store: rows are written once, claims end with their process, and files that are none are named."""

from __future__ import annotations

import os
import sqlite3
import time

import pytest

import adv_wrappers as adv
from adv_wrappers.errors import OutputError, StoreError
from adv_wrappers.evaluation import evaluator
from adv_wrappers.evaluation.cell_run import PlayedCell
from adv_wrappers.studies import Plan, Store, run
from tests.episodes import short_episodes_of
from tests.evaluation.agents import short
from tests.every_case import every_case
from tests.modules import noted_module  # noqa: F401  # a fixture

DQN = "zoo:cartpole-dqn"


def perturbed():
    return adv.wrap(short(), "action-flip:p=0.5")


PLAN = Plan.of(victims=[DQN], threats=["noise:eps=0.2", "fgsm:eps=0.2"], seeds=[0, 1], episodes=2)
ERROR = PlayedCell("b", "cell b", None, None, "ValueError: no", 1.0, "here:1")


@pytest.fixture(scope="module", autouse=True)
def short_episodes():
    """Episodes of CartPole of at most 60 steps, instead of 500."""
    with short_episodes_of(60, "CartPole-v1"):
        yield


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    path = tmp_path_factory.mktemp("store") / "rows.db"
    with Store(path) as store:
        run(PLAN, store)
    return path


def test_reports_are_those_of_evaluations(filled):
    with Store(filled) as store:
        found = store.reports()
        assert len(store) == 6 and [report.seed for report in found] == [0, 1]
    for report in found:
        own = adv.evaluate(DQN, "CartPole-v1", ["noise:eps=0.2", "fgsm:eps=0.2"], episodes=2, seed=report.seed)
        untimed = [[{**row, "ms_per_step": 0} for row in which.threats] for which in (report, own)]
        assert untimed[0] == untimed[1] and report.warnings == own.warnings and report.minimum == own.minimum
        assert report.episode_seeds == own.episode_seeds and report.num_envs == own.num_envs


def test_rows_of_several_revisions_of_a_checkout_are_of_one_report(tmp_path, monkeypatch):
    threats = ["noise:eps=0.2", "fgsm:eps=0.2"]
    with Store(tmp_path / "rows.db") as store:
        for count in (0, 1, 2):
            monkeypatch.setattr(evaluator, "revision", lambda count=count: f"revision {count}")
            run(Plan.of(victims=[DQN], threats=threats[:count], episodes=1), store)
        [report] = store.reports()
    assert [row["threat"] for row in report.threats] == ["none", *threats] and report.git == "revision 2"


def test_reading_rows_imports_no_module(tmp_path, noted_module):  # noqa: F811
    name, imported = noted_module
    with Store(tmp_path / "rows.db") as store:
        run(Plan.of(victims=[DQN], environments=[{"id": "CartPole-v1", "kwargs": {}}], episodes=2), store)
        [(about, row)] = store.rows()
        about = {**about, "env": {"id": f"{name}:CartPole-v1", "kwargs": {}}}
        store.add([PlayedCell("strange", "strange", about, row, None, 1.0, "")])
        assert [report.minimum["kind"] for report in store.reports()] == ["fixed", "unknown"]
    assert not imported()


def test_two_stores_of_one_process_keep_their_claims(tmp_path):
    with Store(tmp_path / "rows.db") as one:
        assert one.claim(["a", "b"]) == ["a", "b"]
        with Store(tmp_path / "rows.db") as other:
            assert other.claim(["a", "c"]) == ["c"]
        with Store(tmp_path / "rows.db") as third:
            assert third.claim(["a", "b", "c"]) == ["c"]


@pytest.mark.slow
def test_the_own_loss_of_an_environment_is_measured():
    pytest.importorskip("dm_control")
    with Store(":memory:") as store:
        run(Plan.of(victims=["zoo:walker-stand-sac"], measure="own", episodes=1), store)
        [(about, row)] = store.rows()
    own = adv.evaluate("zoo:walker-stand-sac", "dm_control/walker-stand-v0", episodes=1, measure=True)
    assert about["measure"] == own.measure and row["losses"] == own.threats[0]["losses"]


def test_rows_with_other_distances_are_of_other_reports(tmp_path):
    class Largest:
        name = "largest"

        def __call__(self, x, y):
            return (x - y).abs().amax(1)

    adv.evaluate(DQN, "CartPole-v1", ["noise:eps=0.1"], episodes=1, out=tmp_path / "a")
    adv.evaluate(DQN, "CartPole-v1", ["fgsm:eps=0.1"], episodes=1, out=tmp_path / "b", distances=[Largest()])
    with Store(":memory:") as store:
        for name in "ab":
            with Store(tmp_path / name / "rows.db") as folder:
                store.add(list(folder.played()))
        assert [[row["threat"] for row in report.threats] for report in store.reports()] == [
            ["none", "noise:eps=0.1"],
            ["none", "fgsm:eps=0.1"],
        ]


def test_an_environment_that_is_perturbed_already_is_so_in_reports(tmp_path):
    own = adv.evaluate(DQN, perturbed, ["noise:eps=0.1"], episodes=1, out=tmp_path)
    with Store(tmp_path / "rows.db") as store:
        [report] = store.reports()
    assert report.warnings == own.warnings and report.minimum["value"] is None
    assert report.threats[1]["impact"] is None and own.threats[1]["impact"] is None


def test_a_plan_goes_on_from_the_rows_of_an_evaluation(tmp_path):
    adv.evaluate(DQN, "CartPole-v1", ["noise:eps=0.2"], episodes=2, out=tmp_path)
    adv.evaluate(DQN, "CartPole-v1", ["fgsm:eps=0.2"], episodes=2, out=tmp_path, resume=True)
    with Store(tmp_path / "rows.db") as store:
        assert run(PLAN, store).known == 3


def test_a_row_is_written_once_and_an_error_gives_way_to_it(filled, tmp_path):
    with Store(filled) as store:
        (about, row), *_ = store.rows()
    with Store(tmp_path / "rows.db") as store:
        store.add([ERROR, PlayedCell("a", "cell a", about, row, None, 1.0, "here:1")])
        assert store.errors() == {"cell b": "ValueError: no"} and len(store) == 1 and store.done("ab") == {"a"}
        store.add([PlayedCell("b", "cell b", about, row, None, 1.0, "here:2")])
        store.add([PlayedCell("a", "cell a", None, None, "ValueError: later", 1.0, "here:2")])
        assert store.errors() == {} and len(store) == 2


def test_claims_keep_others_out_while_their_process_gives_signs_of_life(tmp_path):
    path = tmp_path / "rows.db"
    with Store(path) as first, Store(path) as second:
        second.owner = "elsewhere:1"
        assert first.claim(["b"]) == ["b"] and second.claim(["b", "c"]) == ["c"]
        first.add([ERROR])
        assert second.claim(["b"]) == ["b"]  # a cell that failed is tried again
    with Store(path) as store:
        store._connection.execute("INSERT INTO claims VALUES ('d', 'elsewhere:1', ?)", (time.time() - 10,))
        assert store.claim(["d"]) == []
        store._connection.execute("UPDATE claims SET heartbeat = heartbeat - 20")
        assert store.claim(["d"]) == ["d"]


def write_database(path, *statements):
    with sqlite3.connect(path) as connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()


def test_files_that_are_no_stores_are_named(tmp_path, filled):
    (tmp_path / "text.db").write_text("rows " * 1000)
    with pytest.raises(StoreError, match=r"text.db is damaged, or no store"):
        Store(tmp_path / "text.db")
    write_database(tmp_path / "other.db", "CREATE TABLE songs (name TEXT)")
    with pytest.raises(StoreError, match=r"database of something else, with songs"):
        Store(tmp_path / "other.db")
    Store(tmp_path / "newer.db").close()
    write_database(tmp_path / "newer.db", "PRAGMA user_version = 2")
    with pytest.raises(StoreError, match=r"form 2 and not 1: a newer release"):
        Store(tmp_path / "newer.db")
    with pytest.raises(OutputError, match="cannot write the store"):
        Store(tmp_path / "text.db" / "rows.db")


def test_a_damaged_page_is_named(filled, tmp_path):
    data = bytearray(filled.read_bytes())
    data[4096:] = os.urandom(len(data) - 4096)
    (tmp_path / "rows.db").write_bytes(data)
    with pytest.raises(StoreError, match="damaged"), Store(tmp_path / "rows.db") as store:
        store.reports()


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes to read-only files")
def test_a_file_without_permission(filled, tmp_path):
    (tmp_path / "rows.db").write_bytes(filled.read_bytes())
    os.chmod(tmp_path / "rows.db", 0o444)
    with pytest.raises(OutputError, match="cannot write the store"):
        Store(tmp_path / "rows.db")


@every_case("writable", [True, False])
def test_a_store_is_read_without_a_trace(filled, tmp_path, monkeypatch, writable):
    file = tmp_path / "rows.db"
    file.write_bytes(filled.read_bytes())
    with Store(filled) as store:
        rows = list(store.rows())
    monkeypatch.setattr("os.access", lambda path, mode: writable)
    before = file.read_bytes()
    with Store(file, read_only=True) as store:
        assert list(store.rows()) == rows
        with pytest.raises(OutputError, match="readonly"):
            store.claim(["a"])
    assert file.read_bytes() == before and {path.name for path in tmp_path.iterdir()} <= {
        "rows.db", "rows.db-shm", "rows.db-wal",
    }  # fmt: skip


def test_a_store_that_is_not_there_is_not_made_by_reading_it(tmp_path):
    with pytest.raises(OutputError, match="cannot open"):
        Store(tmp_path / "rows.db", read_only=True)
    assert not [*tmp_path.iterdir()]
    (tmp_path / "rows.db").touch()
    with pytest.raises(StoreError, match="empty"):
        Store(tmp_path / "rows.db", read_only=True)


def test_a_full_disk_hands_the_rows_back(filled, tmp_path):
    with Store(filled) as store:
        rows = list(store.rows())
    with Store(tmp_path / "rows.db") as store:
        pages = store._connection.execute("PRAGMA page_count").fetchone()[0]
        store._connection.execute(f"PRAGMA max_page_count = {pages + 1}")
        played = [PlayedCell(str(i), "", about, row, None, 1.0, "") for i, (about, row) in enumerate(rows * 5)]
        with pytest.raises(OutputError, match="full") as raised:
            store.add(played)
        assert raised.value.report == played and len(store) == 0


def test_rows_without_a_clean_run_are_in_no_report(filled, tmp_path):
    with Store(filled) as store:
        rows = [(about, row) for about, row in store.rows() if row["layers"]]
    with Store(tmp_path / "rows.db") as store:
        store.add([PlayedCell(str(i), "", about, row, None, 1.0, "") for i, (about, row) in enumerate(rows)])
        assert len(store) == 4 and store.reports() == []


def test_a_victim_that_is_not_there_any_more_is_said(tmp_path):
    agent = adv.load_victim(DQN)
    agent.ref = "card:/nowhere"
    plan = Plan.of(victims=["mine"], environments=["CartPole-v1"], threats=["noise:eps=0.2"], episodes=2)
    with Store(tmp_path / "rows.db") as store:
        run(plan, store, victims={"mine": agent})
        assert "nothing was checked, as card:/nowhere" in store.reports()[0].warnings[0]
