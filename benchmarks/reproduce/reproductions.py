"""The index of reproductions: every table and figure of the papers that are reproduced, with ours beside it.

    python benchmarks/reproduce/reproductions.py --page

What a paper has, and what became of each of its tables and figures, is written by hand in ``reproductions.json``. What
is ours is read from the rows of the pages that are named, so it cannot go stale. Times are sums of what these rows
record, which is seldom all: what else a page took was not recorded.
"""

from __future__ import annotations

import fnmatch
import functools
import re
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from figures import number, table
from page import Data, Page, Results, load, prose

ROOT = Path(__file__).resolve().parents[2]
PUBLISHED = ROOT / "docs" / "results"  # the rows of the other pages
STATUSES = {
    "came out": "ours says what theirs says, at about its size",
    "in shape": "order or direction are the same, sizes are not",
    "in part": "some of its rows came out or came out in shape; others did not, or were not measured",
    "did not come out": "measured, and otherwise",
    "not built": "not measured here",
    "nothing to measure": "drawings and settings",
}
FIGURE = re.compile(r"\{([^{}|]+?)(?: \| ([^{}]+))?\}")


@functools.cache
def rows_of(name: str) -> Data:
    """The rows of a page; none where there is no such page."""
    return load(PUBLISHED / f"{name}.json")


def found(value: Any, keys: Sequence[str]) -> Iterator[Any]:
    """The values under a path of keys.

    A key with a ``*`` stands for all keys that match it, or for all items of a list; ``NAME=VALUE`` for the items of a
    list of which NAME is VALUE; a number for one item. A list at the end stands for its items.
    """
    if not keys:
        yield from value if isinstance(value, list) else [value]
        return
    key, *rest = keys
    inner: list[Any] = []
    if isinstance(value, dict):
        inner = [value[key]] if key in value else [value[one] for one in value if fnmatch.fnmatchcase(one, key)]
    elif isinstance(value, list) and re.fullmatch(r"-?\d+", key):
        inner = [value[int(key)]]
    elif isinstance(value, list):
        name, _, wanted = key.partition("=")
        inner = value if key == "*" else [one for one in value if str(one.get(name)) == wanted]
    for one in inner:
        yield from found(one, rest)


def figures(path: str) -> list[float]:
    """The figures under ``PAGE > KEY > ... > KEY``.

    Raises:
        LookupError: nothing is there, or something that is no number.
    """
    name, *keys = path.split(" > ")
    values = list(found(rows_of(name), keys))
    if not values or not all(isinstance(value, (int, float)) for value in values):
        raise LookupError(f"expected figures under {path!r} of the results, got {values[:3]}")
    return values


def filled_in(text: str) -> str:
    """A text with its figures in place of their paths, ``{PAGE > KEY > ... > KEY | FORMAT}``, with or without a format.

    Where a path leads to several figures, as the returns of episodes or the seeds of a training, their mean stands.
    """

    def figure(match: re.Match[str]) -> str:
        mean = statistics.fmean(figures(match[1]))
        return format(mean, match[2]) if match[2] else number(round(mean, 1))

    return FIGURE.sub(figure, text)


def time_of(page: str, paths: Sequence[str]) -> str:
    """The sum of times; those whose last key is ``minutes`` are in minutes, others in seconds."""
    if not paths:
        return "none recorded"
    spent = sum(sum(figures(f"{page} > {path}")) * (60 if path.endswith("minutes") else 1) for path in paths)
    return f"{spent / 3600:.1f} hours" if spent >= 3600 else f"{spent / 60:.0f} minutes"


def command(name: str) -> str:
    """The commands that made a page: its own, or those of its parts."""
    rows = rows_of(name)
    parts = [row for part in rows.values() if isinstance(part, dict) for row in part.values()]
    commands = [rows["command"]] if "command" in rows else [row["command"] for row in parts if "command" in row]
    return ", ".join(f"`{one}`" for one in dict.fromkeys(commands))


def link(name: str) -> str:
    """A link to a page of results."""
    return f"[{name}]({name}.md)"


def where(item: Data) -> str:
    """The pages and files that have an item."""
    return ", ".join([*map(link, item.get("pages", ())), *(f"`{path}`" for path in item.get("files", ()))])


def paper(data: Data) -> Iterator[str]:
    """The section of one paper."""
    yield f"## {data['name']}"
    yield data["note"]
    counted = Counter(item["status"] for item in data["items"])
    yield "; ".join(f"{status}: {counted[status]}" for status in STATUSES if counted[status]) + "."
    header = ["item", "what it shows", "theirs", "ours", "where", "what became of it"]
    rows = []
    for item in data["items"]:
        outcome = f"**{item['status']}**" + (f": {item['why']}" if item["why"] else "")
        rows.append([item["item"], item["title"], item["theirs"], filled_in(item["ours"]), where(item), outcome])
    yield table(header, rows)
    yield "How these pages were made, and the time that their rows record:"
    times = [(name, time_of(name, spent["seconds"]), spent["of"]) for name, spent in data["pages"].items()]
    header = ["page", "command", "time", "of what"]
    yield table(header, [[link(name), command(name), time, what] for name, time, what in times])


def names() -> dict[str, str]:
    """What every entry of the bibliography is cited as, by its label."""
    text = (ROOT / "docs" / "bibliography.rst").read_text(encoding="utf-8")
    return dict(re.findall(r"^\.\. _([\w-]+):\n\n(.+)$", text, re.MULTILINE))


def body(data: Data) -> Iterator[str]:
    """The page."""
    yield from prose(__doc__)
    counted = Counter(item["status"] for one in data["papers"] for item in one["items"])
    yield "The whole text of five papers was at hand. Of their tables and figures:"
    rows = [[f"**{status}**", counted[status], says] for status, says in STATUSES.items()]
    yield table(["what became of it", "how many", "that is"], rows)
    for one in data["papers"]:
        yield from paper(one)
    yield "## The other entries of the bibliography"
    yield (
        "Their texts were not at hand, only what is cited of them, so no table of theirs is quoted: figures are not "
        "quoted from memory. What the repositories of SA-PPO and ATLA say of their agents of Hopper stands in "
        "[defences](defences.md). What of them is built, and the pages that measure it:"
    )
    cited = names()
    yield table(
        ["entry", "what is built", "where"], [[cited[one["key"]], one["built"], where(one)] for one in data["others"]]
    )


def measure(results: Results) -> None:
    """Nothing is measured: the page is made of what the others have."""


PAGE = Page(
    "reproductions",
    "Every table and figure of the papers, with ours beside it",
    __doc__,
    measure,
    body,
    head=lambda data: "Made by `python benchmarks/reproduce/reproductions.py --page`\n\nfrom the rows of other pages.",
)

if __name__ == "__main__":
    PAGE.main()
