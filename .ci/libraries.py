"""Run the snippets of docs/libraries.rst with the libraries that are installed here, and say what happened to each.

``python .ci/libraries.py`` runs the page from top to bottom in one namespace, as Sphinx does, and goes on after a
section that fails. What a section's ``:skipif:`` says is lacking is not run. With ``--write`` the table of the page
gets a row for every section of a library that was run: its releases and the result. Rows of sections that were not run
stay as they are, since no environment holds all libraries: ``tox -e libraries`` and ``tox -e libraries-rllib`` write
their own.
"""

from __future__ import annotations

import argparse
import ast
import doctest
import importlib.metadata
import platform
import re
import sys
import textwrap
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "libraries.rst"
LIBRARIES = {  # distributions of a section, the one that it is about first
    "Stable-Baselines3": ("stable-baselines3", "sb3-contrib"),
    "RLlib": ("ray", "gymnasium"),
    "TorchRL": ("torchrl", "tensordict"),
    "skrl": ("skrl",),
    "Tianshou": ("tianshou",),
    "sbx": ("sbx-rl", "jax"),
    "EnvPool": ("envpool",),
    "Gymnasium's Atari vectors": ("ale-py", "gymnasium"),
    "Minari": ("minari",),
    "DeepMind Control Suite": ("dm-control", "shimmy"),
}
BEGIN, END = ".. begin of what .ci/libraries.py writes", ".. end of what .ci/libraries.py writes"
HEAD = """
.. list-table::
   :header-rows: 1
   :widths: 24 38 14 12 12

   * - section
     - releases
     - Python
     - snippets
     - result
"""


@dataclass(frozen=True)
class Snippet:
    """A block of the page: a ``testcode``, or a ``doctest`` with its prompts."""

    kind: str
    code: str
    line: int
    skipif: str | None


@dataclass
class Section:
    """A section of the page, and what became of its snippets."""

    title: str
    snippets: list[Snippet] = field(default_factory=list)
    ran: int = 0
    skipped: int = 0
    seconds: float = 0.0
    error: str = ""


def sections(text: str) -> list[Section]:
    """The sections of a page in reStructuredText, with their snippets."""
    found, lines = [Section("")], text.splitlines()
    for i, line in enumerate(lines):
        if line and i and not lines[i - 1].startswith((" ", ".")) and re.fullmatch(r"(-+|=+)", line):
            if len(lines[i - 1]) == len(line):
                found.append(Section(lines[i - 1]))
        elif block := re.fullmatch(r"\.\. (testcode|doctest)::", line):
            found[-1].snippets.append(_snippet(block[1], lines, i))
    return [section for section in found if section.snippets]


def _snippet(kind: str, lines: list[str], start: int) -> Snippet:
    body = []
    for line in lines[start + 1 :]:
        if line and not line.startswith(" "):
            break
        body.append(line)
    inner = textwrap.dedent("\n".join(body))
    options, _, code = ("", "", inner) if not re.match(r"\s*:", inner) else inner.strip("\n").partition("\n\n")
    skipif = re.search(r"^:skipif: (.*)$", options, re.MULTILINE)
    return Snippet(kind, code, start + 1, skipif[1] if skipif else None)


def setup() -> str:
    """What Sphinx runs before the snippets of a page, from ``docs/conf.py``."""
    for node in ast.parse((ROOT / "docs" / "conf.py").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "doctest_global_setup":
            return str(ast.literal_eval(node.value))
    raise SystemExit("docs/conf.py has no doctest_global_setup")


def run(section: Section, names: dict[str, Any]) -> None:
    """Run a section's snippets in a namespace, up to the first that fails."""
    begin = time.perf_counter()
    try:
        for snippet in section.snippets:
            if snippet.skipif is not None and eval(snippet.skipif, names):
                section.skipped += 1
                continue
            if snippet.kind == "testcode":
                exec(compile("\n" * snippet.line + snippet.code, str(PAGE), "exec"), names)
            else:
                examples = doctest.DocTestParser().get_doctest(
                    snippet.code, names, section.title, str(PAGE), snippet.line
                )
                if doctest.DocTestRunner(verbose=False).run(examples, clear_globs=False).failed:
                    raise AssertionError("an example gives another answer")
                names.update(examples.globs)
            section.ran += 1
    except Exception as error:
        traceback.print_exc()
        section.error = f"{type(error).__name__}: {error}"
    section.seconds = time.perf_counter() - begin


def releases(title: str) -> str | None:
    """The releases of a section's libraries; None where the one that it is about is not installed."""
    found = []
    for name in LIBRARIES.get(title, ()):
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            if not found:
                return None
    return ", ".join(found) or None


def rows(table: str) -> dict[str, list[str]]:
    """The rows of a table by their first cell."""
    cells = [
        re.findall(r"^   (?:\* |  )- (.*)$", row, re.MULTILINE) for row in re.split(r"^(?=   \* - )", table, flags=re.M)
    ]
    return {row[0]: row for row in cells if row and row[0] != "section"}


def with_table(text: str, ran: list[Section]) -> str:
    """The page with the rows of sections that were run, in the page's order."""
    before, rest = text.split(BEGIN)
    old, after = rest.split(END)
    known = rows(old)
    for section in ran:
        found = releases(section.title)
        if found is None or not (section.ran or section.error):
            continue
        count = f"{section.ran} of {len(section.snippets)}"
        result = "failed" if section.error else "ran"
        known[section.title] = [section.title, found, platform.python_version(), count, result]
    order = [section.title for section in sections(text)]
    kept = sorted((row for title, row in known.items() if title in order), key=lambda row: order.index(row[0]))
    table = "".join("   * - " + "\n     - ".join(row) + "\n" for row in kept)
    return f"{before}{BEGIN}\n{HEAD}{table}\n{END}{after}"


def report(ran: list[Section]) -> Iterator[str]:
    """Lines that say what became of every section."""
    for section in ran:
        state = "failed" if section.error else "ran" if section.ran else "not installed"
        counts = f"{section.ran} of {len(section.snippets)}"
        what = releases(section.title) or "-"
        yield f"{section.title:30} {state:14} {counts:8} {section.seconds:6.1f} s  {what}  {section.error:.200}"


def main(arguments: list[str] | None = None) -> int:
    """The command; returns 1 where a section failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("titles", nargs="*", help="sections to run; all by default")
    parser.add_argument("--write", action="store_true", help="write the rows of what was run into the page")
    options = parser.parse_args(arguments)
    text = PAGE.read_text(encoding="utf-8")
    unknown = set(options.titles) - {section.title for section in sections(text)}
    if unknown:
        parser.error(f"no section {', '.join(sorted(unknown))} with snippets in {PAGE.name}")
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(setup(), names)
    ran = [section for section in sections(text) if not options.titles or section.title in options.titles]
    for section in ran:
        run(section, names)
        print(*report([section]), flush=True)
    if options.write:
        PAGE.write_text(with_table(text, ran), encoding="utf-8")
    failed = [section.title for section in ran if section.error]
    print(f"failed: {', '.join(failed)}" if failed else "no section failed")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
