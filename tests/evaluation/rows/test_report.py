"""Report: JSON, tables, frames and figures."""

from __future__ import annotations

import dataclasses
import io
import json
import sys
from pathlib import Path

import pytest
from rich.console import Console

from adv_wrappers.errors import AdvWrappersError, ValueRangeError
from adv_wrappers.evaluation.rows.report import Report
from adv_wrappers.evaluation.rows.row import Row
from adv_wrappers.evaluation.rows.row_key import revision, versions
from tests.evaluation.made_reports import made_row
from tests.every_case import every_case


def row(name: str, mean: float, **more: object) -> Row:
    columns = {
        "low": mean - 1, "high": mean + 2, "regret": 10 - mean, "attacked_fraction": 1.0, "linf": 0.1, "distances": {},
        "ms_per_step": 0.2, "transfer": name == "other", **more,
    }  # fmt: skip
    return made_row(name, [mean - 3, mean + 3], **columns)


@pytest.fixture
def report() -> Report:
    return Report(
        versions=versions(),
        seed=3,
        episode_seeds=(11, 12),
        git=None,
        device="cpu",
        episodes=2,
        num_envs=2,
        victim={"ref": "zoo:[x]", "fingerprint": "ab", "select": "mode"},
        env={"id": "CartPole-v1", "kwargs": {}},
        warnings=("noise: beware",),
        threats=(row("none", 10.0), row("max-diff:eps=0.1", 4.0), row("other", -1.0)),
    )


def test_json_round_trip(report: Report, tmp_path: Path) -> None:
    report.to_json(tmp_path / "deep" / "r.json")
    assert Report.from_json(tmp_path / "deep" / "r.json") == report
    assert [p.name for p in (tmp_path / "deep").iterdir()] == ["r.json"]
    assert json.loads((tmp_path / "deep" / "r.json").read_text())["threats"][0]["threat"] == "none"


def test_a_failed_write_leaves_the_old_file(report: Report, tmp_path: Path) -> None:
    report.to_json(tmp_path / "r.json")
    broken = dataclasses.replace(report, threats=(row("none", 10.0, std=float("nan")),))
    with pytest.raises(ValueError, match="JSON compliant"):
        broken.to_json(tmp_path / "r.json")
    assert Report.from_json(tmp_path / "r.json") == report
    assert len(list(tmp_path.iterdir())) == 1


def test_a_report_is_frozen(report: Report) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        report.seed = 4  # type: ignore[misc]


def test_a_report_of_an_older_release_is_read(report: Report) -> None:
    data = report.to_dict()
    assert data.pop("minimum") == {"kind": "unknown", "value": None}
    assert data.pop("quantize") is None
    assert Report.from_dict(data) == report
    rich = dataclasses.replace(report, minimum={"kind": "argmin-Q agent", "value": -20.9})
    assert Report.from_dict(json.loads(json.dumps(rich.to_dict()))) == rich != report


def test_intervals_that_are_none_of_95_percent_are_marked_and_the_mark_is_explained(
    report: Report, tmp_path: Path
) -> None:
    clean, *others = report.threats
    said = "all 30 returns are equal: 30 episodes miss an event of 1 in 20 in 21% of the runs"
    rows = tuple(dataclasses.replace(r, episodes=30, caveat=None if r in others else said) for r in (clean, *others))
    shown = dataclasses.replace(report, threats=rows)
    lines = str(shown).splitlines()
    assert [line.split()[0] for line in lines if "† " in line] == ["none", "†"] and "† 9 .. 12" in "\n".join(lines)
    (note,) = shown.footnotes()
    assert note in lines and "30 episodes miss an event of 1 in 20 in 21% of the runs" in note
    assert shown.table().notes == (note,) and shown.table().warnings == ("noise: beware",)
    assert shown.to_dict()["threats"][0]["caveat"] == said
    shown.plot(tmp_path / "marked.png")
    assert report.footnotes() == [] and "†" not in str(report)


@every_case(
    ("change", "said"),
    [
        ({"seed": None}, "seed must be an integer of at least 0, got None"), ({"extra": 1}, "extra"),
        ({"threats": 3}, "threats must be"), ({"episode_seeds": [-1]}, "episode_seeds must be a list, each an integer"),
        ({"threats": [{"no": 1}]}, "Row is missing threat, mean_return"), ({"minimum": 3.0}, "minimum must be"),
        ({"minimum": {"kind": "fixed"}}, "a minimum with its kind and value"),
    ],
)  # fmt: skip
def test_dictionaries_of_another_form(report: Report, change: dict[str, object], said: str) -> None:
    data = {**report.to_dict(), **change}
    with pytest.raises(ValueRangeError, match=f"cannot read a report: .*{said}"):
        Report.from_dict(data)


def test_files_that_are_no_report(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("[1")
    for name in ("x.json", "missing.json"):
        with pytest.raises(ValueRangeError, match="cannot read"):
            Report.from_json(tmp_path / name)


def test_dataframe(report: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    pandas = pytest.importorskip("pandas")
    frame = report.to_dataframe()
    assert isinstance(frame, pandas.DataFrame) and frame["mean_return"].tolist() == [10.0, 4.0, -1.0]
    near = row("near", 5.0, distances={"ssim": 0.9, "psnr": None})
    wide = dataclasses.replace(report, threats=(*report.threats, near)).to_dataframe()
    assert wide["ssim"].tolist()[-1] == 0.9 and wide["ssim"].isna().sum() == 3 and "distances" not in wide
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(AdvWrappersError, match="pip install pandas"):
        report.to_dataframe()


def test_table(report: Report) -> None:
    text = io.StringIO()
    Console(file=text, width=150).print(report.table())
    shown = text.getvalue()
    assert "zoo:[x] on CartPole-v1" in shown and "other (transfer)" in shown and "noise: beware" in shown
    assert "9 .. 12" in shown and "50%" in shown


def test_a_table_of_a_given_width_has_the_columns_that_matter_most(report: Report) -> None:
    fitted = report.table().fitted(60)
    assert fitted.columns[:3] == ("threat", "return", "95% interval") and {*fitted.columns} < {*report.table().columns}
    text = io.StringIO()
    Console(file=text, width=60).print(fitted)
    assert "9 .. 12" in text.getvalue() and "…" not in text.getvalue()


def test_a_table_has_columns_for_two_of_the_distances(report: Report) -> None:
    clean, noise, other = report.threats
    none = dataclasses.replace(clean, distances={"none": None, "ssim": None, "psnr": None, "lpips": None})
    measured = {"none": None, "ssim": 0.98765, "psnr": 31.23, "lpips": 0.05}
    far = dataclasses.replace(noise, threat="max-diff:eps=0.1,scale=victim", distances=measured)
    rows = (none, far, other)
    shown = str(dataclasses.replace(report, threats=rows)).splitlines()
    heads, first = (next(line for line in shown if word in line) for word in ("return", "max-diff"))
    assert "lpips" not in heads and "none" not in heads and heads.split()[-3:] == ["ssim", "psnr", "ms/step"]
    assert first.split()[-3:] == ["0.988", "31.2", "0.2"] and max(map(len, shown)) <= 150


def test_plot(report: Report, tmp_path: Path) -> None:
    report.plot(tmp_path / "new" / "p.png")
    data = (tmp_path / "new" / "p.png").read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"


def test_versions_and_revision() -> None:
    assert {"python", "adv_wrappers", "gymnasium", "torch", "numpy"} <= set(versions())
    found = revision()
    assert found is None or len(found) == 40
