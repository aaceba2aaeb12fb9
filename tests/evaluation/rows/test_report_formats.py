"""Reports in the forms of other programs."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

import adv_wrappers as adv
from adv_wrappers.errors import ValueRangeError
from adv_wrappers.evaluation.rows.report import yaml_text
from tests.every_case import every_case


@pytest.fixture(scope="module")
def report() -> adv.Report:
    short = adv.Environment("CartPole-v1", {"max_episode_steps": 40})
    how = adv.Episodes(3, best_of={"noise:eps=0.5": 2}, measure="2=0.2", seed=4)
    return adv.evaluate("zoo:cartpole-dqn", short, ["noise:eps=0.5", "action-flip:p=0.5"], how)


def test_the_long_table_has_every_draw_of_every_episode(report: adv.Report) -> None:
    pytest.importorskip("pandas")
    frame = report.to_dataframe(long=True)
    columns = "threat eps attack episode episode_seed draw return length attacked_fraction loss victim env seed"
    assert [*frame.columns] == columns.split() and len(frame) == 3 + 2 * 3 + 3
    assert {*frame["victim"]} == {"zoo:cartpole-dqn"} and {*frame["seed"]} == {4}
    assert {*frame["env"]} == {"CartPole-v1 (max_episode_steps=40)"}
    for name, eps, attack, row in zip(
        ("none", "noise:eps=0.5", "action-flip:p=0.5"),
        (0.0, 0.5, np.nan),
        ("none", "noise", "action-flip:p=0.5"),
        report.threats,
        strict=True,
    ):
        own = frame[frame["threat"] == name]
        assert {*own["attack"]} == {attack} and (own["eps"].isna().all() if eps != eps else {*own["eps"]} == {eps})
        best = own[own["length"].notna()].sort_values("episode")
        assert best["return"].tolist() == row["returns"] and best["length"].tolist() == row["lengths"]
        assert best["attacked_fraction"].tolist() == row["attacked_fractions"]
        assert best["loss"].tolist() == row["losses"] and best["episode_seed"].tolist() == [*report.episode_seeds]
        assert best["return"].tolist() == own.groupby("episode")["return"].min().tolist()  # the best draw is the lowest
    assert frame["draw"].max() == 1 and frame["loss"].notna().all()
    bare = dataclasses.replace(
        report, measure=None, threats=tuple(dataclasses.replace(r, losses=None, draws=None) for r in report.threats)
    )
    assert bare.to_dataframe(long=True)["loss"].isna().all()


def test_the_best_draw_may_be_that_of_the_loss(report: adv.Report) -> None:
    pytest.importorskip("pandas")
    draws = {"returns": [[1.0, 2.0, 3.0], [3.0, 1.0, 9.0]], "losses": [[5.0, 1.0, 7.0], [2.0, 9.0, 6.0]]}
    counted = {"returns": [3.0, 2.0, 9.0], "losses": [2.0, 1.0, 6.0], "draws": draws}
    rows = (report.threats[0], dataclasses.replace(report.threats[1], **counted))
    frame = dataclasses.replace(report, by="loss", threats=rows).to_dataframe(long=True)
    own = frame[frame["threat"] == "noise:eps=0.5"]
    assert own["loss"].tolist() == [5, 1, 7, 2, 9, 6] and own["return"].tolist() == [1, 2, 3, 3, 1, 9]
    best = own[own["length"].notna()].sort_values("episode")
    assert best["draw"].tolist() == [1, 0, 1] and best["loss"].tolist() == counted["losses"]


def test_tensorboard_has_scalars_of_every_threat_at_its_step(report: adv.Report, tmp_path: Path) -> None:
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    for step in (0, 500):
        report.log(tmp_path / "run", step)
    events = reader.EventAccumulator(str(tmp_path / "run"))
    events.Reload()
    names = events.Tags()["scalars"]
    assert {name.split("/")[1] for name in names} == {"none", "noise:eps=0.5 (best of 2)", "action-flip:p=0.5"}
    for row, name in zip(report.threats, ("none", "noise:eps=0.5 (best of 2)", "action-flip:p=0.5"), strict=True):
        found = events.Scalars(f"mean_return/{name}")
        assert [event.step for event in found] == [0, 500]
        assert [event.value for event in found] == pytest.approx([row["mean_return"]] * 2)
    assert "action_change/none" not in names and "loss/none" in names
    with pytest.raises(ValueRangeError, match="step must be an integer of at least 0"):
        report.log(tmp_path / "other", -1)


def test_the_model_index_is_read_as_it_was_meant(report: adv.Report) -> None:
    yaml = pytest.importorskip("yaml")
    evil = 'a: "b"\n- c: \\d\u2028# {e} \ud83d \x07 \N{GRINNING FACE}'
    rows = (report.threats[0], dataclasses.replace(report.threats[1], threat=evil), report.threats[2])
    [entry] = yaml.safe_load(dataclasses.replace(report, threats=rows).to_model_index(evil))["model-index"]
    shown = 'a: "b" - c: \\d # {e} \N{REPLACEMENT CHARACTER} \N{GRINNING FACE}'
    [result] = entry["results"]
    assert entry["name"] == shown and result["task"] == dict.fromkeys(("type", "name"), "reinforcement-learning")
    assert result["dataset"] == {"name": "CartPole-v1 (max_episode_steps=40)", "type": "CartPole-v1"}
    clean, noise, flip = result["metrics"]
    assert clean == {
        "type": "mean_reward", "value": "40.00 +/- 0.00", "name": "mean_reward", "verified": False,
        "args": {"threat": "none", "episodes": 3, "seed": 4},
    }  # fmt: skip
    assert noise["type"] == flip["type"] == "attacked_mean_reward" and noise["args"]["threat"] == f"{shown} (best of 2)"
    row = report.threats[2]
    assert flip["value"] == f"{row['mean_return']:.2f} +/- {row['std']:.2f}"
    assert report.to_model_index().startswith('model-index:\n- name: "zoo:cartpole-dqn"\n')
    with pytest.raises(ValueRangeError, match="at least one row"):
        dataclasses.replace(report, threats=()).to_model_index()


@every_case("text", ["yes", "null", "1e3", "", "!!python/object", "&a *b", "'", "{{x}}", "%\ufeff\u200ba"])
def test_a_text_of_yaml_stays_one(text: str) -> None:
    assert pytest.importorskip("yaml").safe_load(yaml_text(text)) == text


def test_written_tables_have_the_loss_where_it_was_measured(report: adv.Report) -> None:
    for text in (report.to_markdown(), report.to_latex()):
        assert "loss" in text and "noise:eps=0.5 (best of 2)" in text and "†" in text.replace(r"\textdagger{}", "†")
    bare = dataclasses.replace(report, measure=None)
    assert "loss" not in bare.to_markdown() and "| none | 40 | † 40 to 40 | 0 | 0% | 0% | - |" in bare.to_markdown()
