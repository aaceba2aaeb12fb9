"""Every table and figure of the five papers that are reproduced, with ours beside it, on the page of each paper.

    python benchmarks/reproduce/reproductions.py

What a paper has, and what became of it here, is written by hand in ``reproductions.json``. What is ours is read from
the rows of the sections that are named, so it cannot go stale.
"""

from __future__ import annotations

import fnmatch
import functools
import re
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from figures import number, table
from page import RESULTS, Data, Page, load

STATUSES = ("came out", "in shape", "in part", "did not come out", "not built", "nothing to measure")
FIGURE = re.compile(r"\{([^{}|]+?)(?: \| ([^{}]+))?\}")


@functools.cache
def rows_of(name: str) -> Data:
    """The rows of a section; none where there is no such section."""
    return load(RESULTS / f"{name}.json")


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
    """The figures under ``SECTION > KEY > ... > KEY``.

    Raises:
        LookupError: nothing is there, or something that is no number.
    """
    name, *keys = path.split(" > ")
    values = list(found(rows_of(name), keys))
    if not values or not all(isinstance(value, (int, float)) for value in values):
        raise LookupError(f"expected figures under {path!r} of the results, got {values[:3]}")
    return values


def filled_in(text: str) -> str:
    """A text with its figures in place of their paths, ``{SECTION > KEY | FORMAT}``, with or without one.

    Where a path leads to several figures, as the returns of episodes or the seeds of a training, their mean stands.
    """

    def figure(match: re.Match[str]) -> str:
        mean = statistics.fmean(figures(match[1]))
        return format(mean, match[2]) if match[2] else number(round(mean, 1))

    return FIGURE.sub(figure, text)


def body(data: Data, page: str) -> Iterator[str]:
    """The section of one paper."""
    paper = data[page]
    yield paper["note"]
    counted = Counter(item["status"] for item in paper["items"])
    yield ", ".join(f"{counted[one]} {one}" for one in STATUSES if counted[one]) + "."
    rows = []
    for item in paper["items"]:
        files = ", ".join(f"`{path}`" for path in item.get("files", ()))
        outcome = f"**{item['status']}**" + (f": {item['why']}" if item["why"] else "")
        ours = filled_in(item["ours"]) + (f" ({files})" if files else "")
        rows.append([item["item"], item["title"], item["theirs"], ours, outcome])
    yield table(["item", "what it shows", "theirs", "ours", "what became of it"], rows)


PAGES = {
    page: Page(
        "reproductions",
        "The paper's tables and figures",
        __doc__,
        lambda results: None,  # nothing is measured
        functools.partial(body, page=page),
        page=page,
        head=lambda data: "",
    )
    for page in ("pa_ad", "resilience", "model_based", "radial", "daylight")
}

if __name__ == "__main__":
    for one in PAGES.values():
        one.main()
