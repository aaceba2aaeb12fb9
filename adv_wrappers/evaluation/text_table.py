"""A table of texts, as Markdown, LaTeX and HTML: whatever its texts hold, they are shown and never read as markup."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable
from dataclasses import dataclass

_MARKDOWN = re.compile(r"[\\`*_\[\]<>|~&$#]")
_LATEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", '"': r"\symbol{34}", "'": r"\textquotesingle{}", "`": r"\textasciigrave{}",
    "†": r"\textdagger{}", "‡": r"\textdaggerdbl{}",
}  # fmt: skip


@dataclass(frozen=True)
class TextTable:
    """A title, a table of texts and what is said below it.

    Attributes:
        title: one line.
        columns: heads of the columns. The first column holds names, the others hold figures and are set to the right.
        rows: the cells, as many a row as there are columns.
        notes: what marks in the table mean.
        warnings: why a figure should not be trusted.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def markdown(self) -> str:
        """A table as GitHub and most other readers of Markdown show it; special characters are escaped."""
        lines = [f"**{_markdown(self.title)}**", "", _row(map(_markdown, self.columns))]
        lines += [_row("---:" if i else ":---" for i in range(len(self.columns)))]
        lines += [_row(map(_markdown, row)) for row in self.rows]
        below = [*self.notes, *(f"warning: {warning}" for warning in self.warnings)]
        return "\n".join([*lines, *(f"\n{_markdown(line)}" for line in below)]) + "\n"

    def latex(self) -> str:
        r"""A ``table`` for the package booktabs; special characters are escaped.

        The notes are in the caption, since a figure that they qualify must not be printed without them. Warnings are
        comments.
        """
        caption = " ".join([self.title + ".", *(f"{note}." for note in self.notes)])
        body = [" & ".join([_latex(name), *map(_figure, figures)]) + r" \\" for name, *figures in self.rows]
        lines = [r"% needs \usepackage{booktabs}", *(f"% warning: {plain(warning)}" for warning in self.warnings)]
        lines += [r"\begin{table}", r"\centering", rf"\caption{{{_latex(caption)}}}"]
        lines += [rf"\begin{{tabular}}{{l{'r' * (len(self.columns) - 1)}}}", r"\toprule"]
        lines += [" & ".join(map(_latex, self.columns)) + r" \\", r"\midrule", *body, r"\bottomrule"]
        return "\n".join([*lines, r"\end{tabular}", r"\end{table}"]) + "\n"

    def html(self) -> str:
        """A ``table`` without any style or script; special characters are escaped."""
        heads = "".join(f'<th scope="col">{_html(column)}</th>' for column in self.columns)
        lines = ["<table>", f"<caption>{_html(self.title)}</caption>", f"<thead><tr>{heads}</tr></thead>", "<tbody>"]
        for name, *figures in self.rows:
            cells = "".join(f"<td>{_html(figure)}</td>" for figure in figures)
            lines.append(f'<tr><th scope="row">{_html(name)}</th>{cells}</tr>')
        lines += ["</tbody>", "</table>", *(f"<p>{_html(note)}</p>" for note in self.notes)]
        return "\n".join([*lines, *(f"<p>warning: {_html(warning)}</p>" for warning in self.warnings)])


class Tabular:
    """What can be written as a :class:`TextTable`."""

    def text_table(self) -> TextTable:
        """The table with the columns that its written forms have."""
        raise NotImplementedError

    def to_markdown(self) -> str:
        """The table as GitHub shows it, with the intervals, what is marked, and the warnings."""
        return self.text_table().markdown()

    def to_latex(self) -> str:
        """The table for a paper, with the package booktabs; special characters of names are escaped.

        What marks mean is in the caption, and warnings are comments.
        """
        return self.text_table().latex()

    def _repr_html_(self) -> str:
        """The table as notebooks show it."""
        return self.text_table().html()


def plain(text: str) -> str:
    r"""A text on one line, without control characters and halves of surrogate pairs, which no file may hold.

    >>> plain("two\nlines")
    'two lines'
    """
    one_line = " ".join(re.sub(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]", " ", text).split())
    return re.sub(r"[\ud800-\udfff\ufffe\uffff]", "\N{REPLACEMENT CHARACTER}", one_line)


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _markdown(text: str) -> str:
    return _MARKDOWN.sub(r"\\\g<0>", plain(text))


def _html(text: str) -> str:
    return html.escape(plain(text))


def _latex(text: str) -> str:
    escaped = "".join(_LATEX.get(letter, letter) for letter in plain(text))
    apart = re.sub(r"-(?=-)", "-{}", escaped)  # two hyphens would be a dash
    return re.sub(r"^[\[*]", r"{\g<0>}", apart)  # which would belong to the \\\\ before it


def _figure(text: str) -> str:
    """A number, an interval, or the dash where there is none, with minus signs."""
    if text == "-":
        return "--"
    return re.sub(r"(?<!\w)-(?=\d)", "$-$", _latex(text))
