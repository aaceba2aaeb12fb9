"""Rows with their columns, from stores, folders, files and reports."""

from __future__ import annotations

import dataclasses
import sqlite3
from pathlib import Path

import pytest

import adv_wrappers as adv
from adv_wrappers.errors import AdvWrappersError, StoreError, ValueRangeError
from adv_wrappers.evaluation.rows.stored_rows import read_rows
from adv_wrappers.studies import Store
from tests.evaluation.made_reports import made_report, made_row
from tests.every_case import every_case

REPORT = made_report({"none": [9, 9], "pgd:eps=0.1": [4, 5]})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("folder")
    short = adv.Environment("CartPole-v1", {"max_episode_steps": 20})
    adv.evaluate("zoo:cartpole-dqn", short, ["pgd:eps=0.1"], 1, out=path)
    return path


def test_a_folder_its_store_and_its_report_have_the_same_rows(folder: Path) -> None:
    with Store(folder / "rows.db") as store:
        rows = read_rows(store)
    assert [(row.threat, row.attack, row.eps, row.seed) for row in rows] == [
        ("none", "none", 0.0, 0), ("pgd:eps=0.1", "pgd", 0.1, 0),
    ]  # fmt: skip
    for source in (folder, str(folder / "rows.db"), folder / "report.json"):
        found = read_rows(source)
        assert [(row.victim, row.env, row.threat) for row in found] == [(r.victim, r.env, r.threat) for r in rows]
        assert found[1].clean == found[0].row and found[0].is_clean and not found[1].is_clean
    assert {row.env for row in rows} == {"CartPole-v1 (max_episode_steps=20)"}


def test_reading_leaves_no_file_behind(tmp_path: Path) -> None:
    for source in (tmp_path / "no.db", tmp_path):
        with pytest.raises(ValueRangeError, match=r"there is no file .*: expected a store of rows, or a folder"):
            read_rows(source)
    assert not [*tmp_path.iterdir()]


def test_what_holds_no_rows_is_named(tmp_path: Path) -> None:
    with Store(tmp_path / "rows.db"):
        pass
    with pytest.raises(ValueRangeError, match=r"rows\.db holds no rows"):
        read_rows(tmp_path / "rows.db")
    with pytest.raises(ValueRangeError, match="the source holds no rows"):
        read_rows([])
    with pytest.raises(ValueRangeError, match="expected a Store, the path of one or of a folder, or reports, got int"):
        read_rows(3)  # type: ignore[arg-type]
    with pytest.raises(AdvWrappersError, match="Report is missing versions"):
        (tmp_path / "report.json").write_text("{}")
        read_rows(tmp_path / "report.json")


@every_case(("form", "age"), [(7, "a newer"), (0, "an older")])
def test_a_store_of_another_release_is_named_with_what_to_do(form: int, age: str, tmp_path: Path) -> None:
    path = tmp_path / f"{form}.db"
    with Store(path):
        pass
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA user_version = {form}")
    connection.close()
    said = f"form {form} and not 1: {age} release of adv_wrappers wrote it; use that release, or another folder, where"
    with pytest.raises(StoreError, match=said):
        read_rows(path)


def test_the_row_of_most_episodes_counts_where_episodes_were_played_twice() -> None:
    longer = made_report({"none": [9, 9, 8], "pgd:eps=0.1": [4, 5, 6]})
    for sources in ([REPORT, longer], [longer, REPORT]):
        assert [row.row["episodes"] for row in read_rows(sources)] == [3, 3]
    other = made_report({"none": [1, 1]}, seed=1)
    assert len(read_rows([REPORT, other])) == 3


def test_what_differs_has_different_names() -> None:
    sampled = dataclasses.replace(REPORT, victim={**REPORT.victim, "select": "sample"})
    floats = dataclasses.replace(REPORT, quantize=False)
    names = {row.victim for row in read_rows([REPORT, sampled, floats])}
    assert names == {"zoo:a", "zoo:a (sampled actions)", "zoo:a (float observations)"}
    retrained = dataclasses.replace(REPORT, victim={**REPORT.victim, "fingerprint": "0123456789"})
    assert {row.victim for row in read_rows([REPORT, retrained])} == {"zoo:a (zoo:a we)", "zoo:a (01234567)"}
    nameless = dataclasses.replace(REPORT, victim={**REPORT.victim, "ref": None, "fingerprint": "0123456789"})
    assert {row.victim for row in read_rows(nameless)} == {"01234567"}
    best = made_row("pgd:eps=0.1", [1, 2], best_of=3)
    trained = made_row("pgd:eps=0.1", [1, 2], layers=[{"within": {"eps": 0.1}, "how": "trained again"}])
    rows = dataclasses.replace(REPORT, threats=(*REPORT.threats, best, trained))
    assert [(row.threat, row.attack) for row in read_rows(rows)] == [
        ("none", "none"), ("pgd:eps=0.1", "pgd"), ("pgd:eps=0.1 (best of 3)", "pgd (best of 3)"),
        ("pgd:eps=0.1 #2", "pgd #2"),
    ]  # fmt: skip
