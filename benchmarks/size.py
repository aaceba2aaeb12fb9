"""How large the project is: files, lines, classes, functions, raises, nodes of the syntax tree, and words of its pages.

Nodes are counted without docstrings and comments, so that explaining costs nothing. Revisions of git get a column each:

    python benchmarks/size.py
    python benchmarks/size.py v0.3 HEAD
"""

from __future__ import annotations

import ast
import io
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)
COUNTED: dict[str, Any] = {"classes": ast.ClassDef, "functions": FUNCTION, "raises": ast.Raise}
PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")


def without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    """The statements behind a docstring."""
    first = body[0] if body else None
    text = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
    return body[1:] if text else body


def size_of(folder: Path) -> Counter[str]:
    """What the Python files below a folder are made of."""
    found = Counter[str]()
    for path in folder.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        found.update(files=1, lines=text.count("\n"))
        for node in ast.walk(tree):
            if isinstance(node, (ast.Module, ast.ClassDef, *FUNCTION)):
                node.body = without_docstring(node.body)
        nodes = list(ast.walk(tree))  # walked anew: what was left out had been queued
        found.update(name for node in nodes for name, kind in COUNTED.items() if isinstance(node, kind))
        found["nodes"] += len(nodes)
    return found


def words_of(root: Path) -> int:
    """Words of all pages."""
    pages = [path for path in (root / "docs").rglob("*") if path.suffix in (".rst", ".md")]
    return sum(len(path.read_text(encoding="utf-8").split()) for path in [*pages, *(root / name for name in PAGES)])


def table(root: Path) -> dict[str, int]:
    """Every count of a checkout, by its name."""
    found = {"pages: words": words_of(root)}
    for part in ("adv_wrappers", "tests", "benchmarks", "examples"):
        size = size_of(root / part)
        found |= {f"{part}: {name}": size[name] for name in ("nodes", "files", "lines", *COUNTED)}
    return found


def checkout(revision: str, folder: str) -> Path:
    """The files of a revision of git, in a folder."""
    archive = subprocess.run(["git", "archive", revision], cwd=ROOT, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(folder, filter="data")
    return Path(folder)


def main() -> None:
    """Print the table of this checkout, or of some revisions."""
    columns = dict[str, dict[str, int]]()
    for revision in sys.argv[1:]:
        with tempfile.TemporaryDirectory() as folder:
            columns[revision] = table(checkout(revision, folder))
    columns = columns or {"here": table(ROOT)}
    print(f"{'':24}" + "".join(f"{name:>14.14}" for name in columns))
    for name in next(iter(columns.values())):
        print(f"{name:24}" + "".join(f"{column[name]:14,}" for column in columns.values()))


if __name__ == "__main__":
    main()
