"""A part of what ``benchmarks/record.py`` recorded is what the library does; the whole is compared by the script."""

from __future__ import annotations

import json

import pytest

from benchmarks import record
from tests.every_case import every_case

OTHER = record.other_releases()
SLOW = {"certificates", "evaluation", "searches", "trainings"}  # parts of a second or more


@pytest.mark.skipif(bool(OTHER), reason=f"recorded with {'; '.join(OTHER)}")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "section",
    [
        pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW))
        for name, one in record.SECTIONS.items()
        if one.test
    ],
)
def test_a_part_is_what_was_recorded(section):
    keys = record.keys_to_test(section)
    lines = record.compared(section, keys)
    assert keys and not lines, "\n".join([*lines, f"python benchmarks/record.py --compare --only {section}"])


def test_every_section_is_kept_and_no_other():
    kept = {path.stem for path in record.FOLDER.glob("*.json")} - {"cards", "releases", "speed"}
    assert kept == {*record.SECTIONS} - {"cards"} and all(map(record.stored, kept))


@every_case(
    ("was", "now", "differs"),
    [
        (1.0, 1.0 + 1e-7, 0), (1.0, 1.0 + 1e-5, 1), (1e6, 1e6 + 0.5, 0), (1, 1.0, 1), (1, True, 1), ("a", "a", 0),
        ("1.0", "1.0000001", 1), ([1, 2.0], [1, 2.5], 1), ([1], [1, 2], 1), ({"a": 1}, {}, 1), ({}, {"b": None}, 0),
        ({"a": {"b": [1.0, 3]}}, {"a": {"b": [1.1, 4]}}, 2), (None, 0, 1), (0.0, float("nan"), 1),
    ],
)  # fmt: skip
def test_what_differs(was, now, differs):
    assert len([*record.differences(was, now, 1e-6)]) == differs


def test_files_can_be_read_line_by_line():
    for path in record.FOLDER.glob("*.json"):
        keys = [*json.loads(path.read_text(encoding="utf-8"))]
        assert keys == sorted(keys), path
