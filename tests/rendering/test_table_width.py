"""A table that is too wide loses the columns that matter least, and never breaks a number."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from rich.table import Table

from adv_wrappers.rendering.table_width import LEAST_TEXT, PrintedTable, fit_table, full_width

COLUMNS = ("threat", "return", "interval", "median", "impact", "ms/step")
ROWS = [
    ("max-diff:eps=0.1,scale=victim,restarts=6,keep=best", "1659.6", "1339.9 .. 2116.1", "1512.2", "-", "2.25"),
    ("none", "3462.7", "3459.8 .. 3464.9", "3463.9", "-", "0.166"),
]


def table() -> Table:
    made = Table(title="what was played")
    for name in COLUMNS:
        made.add_column(name, justify="left" if name == "threat" else "right", overflow="fold")
    for row in ROWS:
        made.add_row(*row)
    return made


def printed(made: Table, width: int) -> list[str]:
    text = io.StringIO()
    Console(file=text, width=width, color_system=None).print(made)
    return text.getvalue().splitlines()


@pytest.mark.parametrize("width", [30, 40, 60, 70, 80, 110, 200])
def test_what_is_left_fits_and_has_whole_numbers(width: int) -> None:
    made = table()
    left_out = fit_table(made, width, ["return", "threat", "ms/step"])
    kept = [column.header for column in made.columns]
    assert sorted([*kept, *left_out]) == sorted(COLUMNS) and "return" in kept
    lines = printed(made, width)
    assert max(map(len, lines)) <= width
    for row in ROWS:
        for name, cell in zip(COLUMNS, row, strict=True):
            assert name == "threat" or name not in kept or any(cell in line for line in lines)


def test_columns_go_by_importance_and_those_that_say_nothing_first() -> None:
    widths = range(full_width(table()), 5, -1)
    gone = [fit_table(made, width, ["return", "threat", "ms/step"]) for width in widths if (made := table())]
    assert gone[0] == []
    order = list(dict.fromkeys(name for names in gone for name in names if len(names)))
    first = [names for names in gone if names]
    assert first[0] == ["impact"] and first[-1] == [name for name in COLUMNS if name != "return"]
    steps = list(dict.fromkeys(map(tuple, first)))
    new = [set(after) - set(before) for before, after in zip([(), *steps], steps, strict=False)]
    assert new == [{"impact"}, {"median"}, {"interval"}, {"ms/step"}, {"threat"}] and set(order) == set(COLUMNS) - {
        "return"
    }


def test_a_text_is_folded_before_a_column_goes_but_not_to_a_few_letters() -> None:
    made = table()
    longest = len(ROWS[0][0])
    assert fit_table(made, full_width(table()) - longest + LEAST_TEXT, ["threat"]) == []
    assert made.columns[0].width is None and made.columns[0].header == "threat"
    assert fit_table(made, full_width(table()) - longest + LEAST_TEXT - 1, ["threat"]) == ["impact"]


def test_a_table_is_printed_as_text():
    table = PrintedTable("threat", "return")
    table.add_row("noise:eps=0.1", "436.2")
    lines = str(table).splitlines()
    assert any(line.split() == ["│", "noise:eps=0.1", "│", "436.2", "│"] for line in lines)
    assert all(line == line.rstrip() for line in lines)
