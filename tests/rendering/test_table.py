"""Tables of texts: what a reader of each form shows is what was written, whatever the texts hold."""

from __future__ import annotations

import dataclasses
import html.parser
import io
import itertools
import re

import pytest
from rich.console import Console

from adv_wrappers.rendering.table import LEAST_TEXT, TextTable, plain
from tests.every_case import every_case

MarkdownIt = pytest.importorskip("markdown_it").MarkdownIt  # which rich brings, but for its oldest releases

HOSTILE = (
    "a|b \\| c", "<script>alert('x')</script>", "`code` **bold** _em_ ~~no~~", "[x](javascript:y) ![i](u) &amp; &",
    "# head $x^2$ 50%", "two\nlines\x00\x1b[31m", "\\input{/etc/passwd} {} \\\\", 'quote "\' `', "half \ud83d pair",
    "--",
)  # fmt: skip
TABLE = TextTable(
    "a title | of <b>",
    ("threat", "95% interval", "x_y"),
    tuple((text, "-3 to -1.5", "-") for text in HOSTILE),
    ("† a note_with & things",),
    ("beware\nof <i>",),
)


class Texts(html.parser.HTMLParser):
    """The texts of the cells, and all tags."""

    def __init__(self) -> None:
        super().__init__()
        self.cells: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        assert all(name in ("scope", "style") for name, _ in attrs)
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_data(self, data: str) -> None:
        if self.cells and self.tags[-1] in ("td", "th"):
            self.cells[-1] += data


def test_cells_are_shown_as_they_are() -> None:
    reader = Texts()
    reader.feed(MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(TABLE.markdown()))
    reader.close()
    rows = [cell.rstrip("\n") for cell in reader.cells]
    assert rows == [*TABLE.columns, *(plain(cell) for row in TABLE.rows for cell in row)]
    assert {*reader.tags} <= {"table", "thead", "tbody", "tr", "th", "td", "p", "strong"}
    assert reader.tags.count("table") == 1 and reader.tags.count("tr") == 1 + len(HOSTILE)


def test_markdown_of_a_plain_table() -> None:
    table = TextTable("who", ("threat", "return"), (("pgd:eps=0.1", "46.5"),), ("† few",), ("low",))
    assert table.markdown() == (
        "**who**\n\n| threat | return |\n| :--- | ---: |\n| pgd:eps=0.1 | 46.5 |\n\n† few\n\nwarning: low\n"
    )


def test_latex_escapes_every_special_character() -> None:
    text = TABLE.latex()
    known = r"\\(?:[{}&%$#_]|\\|[a-z]+(?:\{(?:\}|\d\d\}|booktabs\}|table\}|tabular\}|lrr\}))?|(?:caption)\{)"
    rest = re.sub(known, "", text.replace("$-$", ""))
    rest = "\n".join(line for line in rest.splitlines() if not line.startswith("%"))
    head, body = rest.split("threat &")
    assert not re.search(r"[\\$#_^~%\"<>|`]", rest), rest
    assert body.count("&") == 1 + 2 * len(HOSTILE) and "{}" not in head
    assert r"\textbackslash{}input\{/etc/passwd\} \{\} \textbackslash{}\textbackslash{}" in text
    assert r"$-$3 to $-$1.5 & -- \\" in text and "\n-{}- & " in text and "\n% warning: beware of <i>\n" in text
    assert "\n{[}x](javascript:y)" in text  # an option of the row before it else
    lines = TextTable("t", ("threat", "return"), (("max-diff:eps=0.1", "1e-05"),)).latex().splitlines()
    assert r"max-diff:eps=0.1 & 1e-05 \\" in lines


COLUMNS = ("threat", "return", "interval", "median", "impact", "ms/step")
ROWS = (
    ("max-diff:eps=0.1,scale=victim,restarts=6,keep=best", "1659.6", "1339.9 .. 2116.1", "1512.2", "-", "2.25"),
    ("none", "3462.7", "3459.8 .. 3464.9", "3463.9", "-", "0.166"),
)
WIDE = TextTable("what was played", COLUMNS, ROWS, by_importance=("return", "threat", "ms/step"))


def printed(table: TextTable, width: int) -> list[str]:
    text = io.StringIO()
    Console(file=text, width=width, color_system=None).print(table)
    return text.getvalue().splitlines()


@every_case("width", [30, 40, 60, 70, 80, 110, 200])
def test_what_is_left_fits_and_has_whole_numbers(width: int) -> None:
    """A table that is too wide loses the columns that matter least, and never breaks a number."""
    kept = WIDE.fitted(width)
    assert {*kept.columns} <= {*COLUMNS} and "return" in kept.columns
    lines = printed(kept, width)
    assert max(map(len, lines)) <= width
    for row in ROWS:
        for name, cell in zip(COLUMNS, row, strict=True):
            assert name == "threat" or name not in kept.columns or any(cell in line for line in lines)


def test_a_table_is_as_wide_as_it_says() -> None:
    lines = printed(WIDE, 500)
    assert max(map(len, lines)) == WIDE.width()


def test_columns_go_by_importance_and_those_that_say_nothing_first() -> None:
    kept = [WIDE.fitted(width).columns for width in range(WIDE.width(), 5, -1)]
    assert kept[0] == COLUMNS
    gone = [name for before, after in itertools.pairwise(kept) for name in before if name not in after]
    assert gone == ["impact", "median", "interval", "ms/step", "threat"]


def test_a_text_is_folded_before_a_column_goes_but_not_to_a_few_letters() -> None:
    table = dataclasses.replace(WIDE, by_importance=("threat",))
    least = table.width() - len(ROWS[0][0]) + LEAST_TEXT
    assert table.fitted(least).columns == COLUMNS
    assert [name for name in COLUMNS if name not in table.fitted(least - 1).columns] == ["impact"]


def test_a_table_is_printed_as_text_with_what_is_said_below_it() -> None:
    table = TextTable("who", ("threat", "return"), (("noise:eps=0.1 [bold]", "436.2"),), ("a note",), ("low",))
    lines = str(table).splitlines()
    assert lines[-2:] == ["a note", "warning: low"] and all(line == line.rstrip() for line in lines)
    assert any(line.split() == ["noise:eps=0.1", "[bold]", "436.2"] for line in lines)
