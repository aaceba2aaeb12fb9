"""The JSON schema: real reports are valid, broken ones are not, and the page for other programs is the same."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

import adv_wrappers as adv
from adv_wrappers.evaluation.rows.row import COLUMNS

ROOT = Path(adv.__file__).parents[1]
SCHEMA = adv.Report.json_schema()


def test_the_file_for_other_programs_is_the_schema() -> None:
    written = (ROOT / "docs" / "report.schema.json").read_text(encoding="utf-8")
    assert written == json.dumps(SCHEMA, indent=1) + "\n"


def test_it_has_every_entry_and_every_column() -> None:
    names = {field.name for field in dataclasses.fields(adv.Report)}
    assert {*SCHEMA["properties"]} == {*SCHEMA["required"]} == names
    rows = SCHEMA["properties"]["threats"]["items"]
    assert {*rows["properties"]} == {*rows["required"]} == {*COLUMNS}


def test_nobody_changes_it_for_others() -> None:
    adv.Report.json_schema()["properties"].clear()
    assert adv.Report.json_schema() == SCHEMA


@pytest.fixture(scope="module")
def reports() -> list[adv.Report]:
    victim = adv.load_victim("zoo:cartpole-dqn")
    plain = adv.evaluate(victim, "CartPole-v1", ["noise:eps=0.2"], 1, env_kwargs={"max_episode_steps": 20})
    rich = adv.evaluate(
        victim,
        adv.Environment("CartPole-v1", {"max_episode_steps": 20}),
        ["noise:eps=0.2", "fgsm:eps=0.1 + action-flip"],
        adv.Episodes(2, best_of=2, by="loss", measure="2=0.2"),
        minimum="worst-action",
    )
    return [plain, rich]


def test_real_reports_are_valid_and_broken_ones_are_not(reports: list[adv.Report]) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    reader = jsonschema.Draft202012Validator(SCHEMA)
    for report in reports:
        data = json.loads(json.dumps(report.to_dict()))
        reader.validate(data)
        for change in (
            {"seed": -1}, {"more": 1}, {"victim": {}}, {"threats": [{}]}, {"by": "chance"},
            {"threats": [{**data["threats"][1], "returns": "many"}]},
            {"threats": [{**data["threats"][1], "attacked_fraction": 1.5}]},
        ):  # fmt: skip
            assert not reader.is_valid({**data, **change}), change
