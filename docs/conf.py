"""Sphinx configuration, and what is generated: tables of presets, the map of folders, the command line's help."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any, get_type_hints

import click
from sphinx.util import logging

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from package_map import drawn  # noqa: E402

import adv_wrappers  # noqa: E402
from adv_wrappers.cli import main as cli  # noqa: E402
from adv_wrappers.threats.presets import presets  # noqa: E402
from adv_wrappers.utils.validation import expected_arguments, expected_fields  # noqa: E402

GENERATED = HERE / "_generated"

project = "adv_wrappers"
author = "adv_wrappers maintainers"
project_copyright = "2026, adv_wrappers maintainers"
version = release = adv_wrappers.__version__

extensions = [
    "sphinx.ext.autodoc", "sphinx.ext.doctest", "sphinx.ext.extlinks", "sphinx.ext.napoleon", "sphinx.ext.viewcode",
    "myst_parser",
]  # fmt: skip
extlinks = {"arxiv": ("https://arxiv.org/abs/%s", "arXiv:%s"), "doi": ("https://doi.org/%s", "doi:%s")}
exclude_patterns = ["_build", "_generated/*.inc"]
default_role = "py:obj"
highlight_language = "python"
python_maximum_signature_line_length = 88
maximum_signature_line_length = 88

autodoc_inherit_docstrings = False
autodoc_typehints = "none"
autodoc_member_order = "bysource"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
doctest_global_setup = """
import importlib
import numpy as np
import gymnasium as gym
import torch
import adv_wrappers as adv
from adv_wrappers import *
from adv_wrappers.atari import *
from adv_wrappers.daylight import *
from adv_wrappers.core.image_layouts import layout_of
from adv_wrappers.daylight.daylight import transform_of
from adv_wrappers.evaluation.statistics.confidence_intervals import impact, mean_interval
from adv_wrappers.threats.presets import parse_when
torch.set_num_threads(1)


def lacking(module):  # snippets of libraries that are not installed, or lack what they need, are not run
    try:
        importlib.import_module(module)
    except ImportError:
        return True
    return False
"""

html_theme = "furo"
html_title = f"adv_wrappers {release}"
html_static_path = ["_static", "results/standing.html"]
html_css_files = ["wide.css"]
html_copy_source = False


def table(rows: list[list[str]]) -> list[str]:
    """A list-table of presets; the first row is its head."""
    out = [".. list-table::", "   :header-rows: 1", "   :class: presets", ""]
    for row in rows:
        out += [f"   {'* -' if i == 0 else '  -'} {cell}".rstrip() for i, cell in enumerate(row)]
    return [*out, ""]


def reference(package: str) -> list[str]:
    """Sections on the classes of a package that have presets, in the order of the table: the file's head, the class."""
    out, heads = [], set()
    for kind in dict.fromkeys(preset.kind for preset in presets.values()):
        if kind.__module__.startswith(package):
            public = getattr(adv_wrappers, kind.__name__, None) is kind
            path = f"adv_wrappers.{kind.__name__}" if public else f"{kind.__module__}.{kind.__name__}"
            head = [f".. automodule:: {kind.__module__}", "   :no-members:", ""]
            out += [kind.__name__, "-" * len(kind.__name__), "", *([] if kind.__module__ in heads else head)]
            out += [f".. autoclass:: {path}", ""]
            heads.add(kind.__module__)  # which two classes of one file share
    return out


def write(path: Path, text: str) -> None:
    """Write a file, unless it holds that text already: unchanged pages are not read again."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def help_of(command: click.Command, name: str) -> str:
    """What ``--help`` prints, 100 columns wide."""
    with click.Context(command, info_name=name, max_content_width=100, terminal_width=100) as context:
        return command.get_help(context)


def generate(app: Any) -> None:
    """Write ``docs/_generated`` before the sources are read."""
    for on in ("observation", "action", "dynamics", "reward"):
        rows = [["preset", "class", "what it does", "arguments of the preset"]]
        for name, preset in sorted(presets.items()):
            if preset.on == on:
                arguments = ", ".join(f"{key}={value}" for key, value in preset.arguments.items())
                rows.append([f"`{name}`", preset.kind.__name__, preset.summary, arguments])
        write(GENERATED / f"{on}.inc", "\n".join(table(rows)))
    for folder in ("attacks", "sensors", "actions"):
        write(GENERATED / f"{folder}.inc", "\n".join(reference(f"adv_wrappers.{folder}.")))
    for name, folder in (("dynamics", "dynamics"), ("reward", "rewards")):  # whose tables have the folder's own name
        write(GENERATED / f"{name}_classes.inc", "\n".join(reference(f"adv_wrappers.{folder}.")))
    write(GENERATED / "map.svg", drawn())
    write(GENERATED / "help.inc", help_of(cli, "adv-wrappers") + "\n")
    for name, command in getattr(cli, "commands", {}).items():
        write(GENERATED / f"help-{name}.inc", help_of(command, f"adv-wrappers {name}") + "\n")


# "Zhang et al. 2020", "Carlini and Wagner (2017)", "Steele, Lea and Flood 2014": how pages and docstrings cite
NAMES = r"(?:[A-Z][a-z]+, )*[A-Z][a-z]+(?: et al\.| and [A-Z][a-z]+)?"
CITATION = re.compile(rf"(?<![\w`])({NAMES})\s+(\(?)((?:19|20)\d\d)\b")


@functools.cache
def references() -> set[str]:
    """What the bibliography's entries are cited as: the terms of its glossaries."""
    text = (HERE / "bibliography.rst").read_text(encoding="utf-8")
    return set(re.findall(r"^   ([A-Z].* \d{4})$", text, re.MULTILINE))


def cite(text: str, role: str = ":term:") -> str:
    """Link every citation to the bibliography; warn of one of several authors that is not there."""

    def link(match: re.Match[str]) -> str:
        name = f"{match[1]} {match[3]}"
        if name not in references():
            if " et al." in name or " and " in name:
                logging.getLogger(__name__).warning("docs/bibliography.rst lacks %r", name)
            return match[0]
        return f"{role}`{match[1]} {match[2]}{match[3]} <{name}>`"

    return CITATION.sub(link, text)


def cite_source(app: Any, docname: str, source: list[str]) -> None:
    """Link the citations of a page."""
    if docname != "bibliography":
        source[0] = cite(source[0], "{term}" if app.env.doc2path(docname).suffix == ".md" else ":term:")


def cite_docstring(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Link the citations of a docstring."""
    lines[:] = cite("\n".join(lines)).split("\n")


def describe_fields(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Say of a data class what the texts in its annotations say: its fields, and their meanings."""
    if not dataclasses.is_dataclass(obj) or not isinstance(obj, type):
        return
    for field, hint in get_type_hints(obj, include_extras=True).items():
        texts = [text for text in getattr(hint, "__metadata__", ()) if isinstance(text, str)]
        lines += [f":ivar {field}: {text}" for text in texts]


def describe_limits(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Say of arguments what their annotations say: the range of a number."""
    if dataclasses.is_dataclass(obj) and isinstance(obj, type):
        known = expected_fields(obj)
    else:
        function = obj.__init__ if isinstance(obj, type) else obj
        known = expected_arguments(function) if inspect.isfunction(function) else {}
    for place, line in enumerate(lines):
        argument = re.match(r":param (\w+)[\w, ]*: ", line)
        parts = known[argument[1]].parts if argument is not None and argument[1] in known else ()
        if ranges := [str(part) for part in parts if part.limits is not None]:
            lines[place] = line.replace(": ", f": ({' or '.join(ranges)}) ", 1)


def check_titles(app: Any, env: Any) -> None:
    """Two pages of one title cannot be told apart in a search or in the sidebar."""
    titles = Counter(title.astext() for title in env.titles.values())
    for title, count in titles.items():
        if count > 1:
            logging.getLogger(__name__).warning("%d pages have the title %r", count, title)


def setup(app: Any) -> None:
    """Sphinx's hook."""
    app.connect("builder-inited", generate)
    app.connect("source-read", cite_source)
    app.connect("autodoc-process-docstring", describe_fields)
    app.connect("autodoc-process-docstring", describe_limits)
    app.connect("autodoc-process-docstring", cite_docstring)
    app.connect("env-check-consistency", check_titles)
