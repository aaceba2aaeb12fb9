"""A section of a page of results: what is measured, where its rows are kept, and what is written of them.

A script declares one :class:`Page`. Its command line has ``--out`` and ``--page`` besides the script's own options: a
run measures the rows that ``NAME.json`` does not have, keeps each as it comes (so that a run that was killed goes on
where it stopped), and then writes its section of a page and the pictures beside it; ``--page`` writes these alone, from
the rows that are there. What stands around the sections of a page is written by hand.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import re
import shlex
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Data = dict[str, Any]
RESULTS = Path("docs/results")
# options that many scripts have, by their names; the values are arguments of ``ArgumentParser.add_argument``
VICTIMS: dict[str, Data] = {"--victims": {"type": Path, "help": "folder of cards"}}
WORK: dict[str, Data] = {"--work": {"type": Path, "help": "folder of trainings"}}
AGAIN: dict[str, Data] = {"--again": {"action": "store_true", "help": "measure also what an earlier run has left"}}


def episode_options(count: int) -> dict[str, Data]:
    """The options ``--episodes``, with its default, and ``--seed``."""
    return {"--episodes": {"type": int, "default": count}, "--seed": {"type": int, "default": 0}}


class Results:
    """The rows of a page while they are measured.

    Attributes:
        data: all rows, as the page's JSON holds them.
        given: the options of the command line.
        made: what every run that keeps a row leaves in ``data``: its command, the machine, and the page's releases.
    """

    def __init__(self, page: Page, given: argparse.Namespace, parser: argparse.ArgumentParser, command: str) -> None:
        self.page, self.given, self._parser = page, given, parser
        self.data = load(page.path(given.out))
        self.made = {"command": command, "machine": machine()}
        if page.releases:
            self.made["releases"] = releases(*page.releases)

    def need(self, option: str, why: str) -> None:
        """End with an error if a folder was not given.

        Args:
            option: the name of the option.
            why: what the folder is for, as in "for what is trained".

        Raises:
            SystemExit: it was not given.
        """
        if getattr(self.given, option.removeprefix("--").replace("-", "_")) is None:
            self._parser.error(f"{option} FOLDER is needed {why}")

    def part(self, *names: str) -> Data:
        """The dictionary of ``data`` under these names, made where it is missing."""
        found = self.data
        for name in names:
            found = found.setdefault(name, {})
        return found

    def keep(self) -> None:
        """Write the rows, whole or not at all."""
        self.data |= self.made
        save(self.page.path(self.given.out), self.data)

    def once(self, rows: Data, key: str, make: Callable[..., Any], *arguments: Any, **settings: Any) -> Any:
        """The row ``key`` of ``rows``: the one that is there, or else what ``make`` returns, which is kept.

        Args:
            rows: a part of ``data``.
            key: the name of the row.
            make: measures it.
            arguments: of ``make``.
            settings: of ``make``, by name. They are entries of the row; one that has others is measured again.
        """
        known = rows.get(key)
        there = key in rows and all(known.get(name) == value for name, value in settings.items())
        if not there or getattr(self.given, "again", False):
            began = time.process_time()
            made = make(*arguments, **settings)
            rows[key] = {**settings, **made} if settings else made
            self.keep()
            print(f"{self.page.name}: {key}, {time.process_time() - began:.0f} s of a processor", flush=True)
        return rows[key]


def prose(doc: str | None, first: int = 2) -> list[str]:
    """The paragraphs of a script's docstring from the ``first`` on, each in one line, for a page to say."""
    return [part.strip().replace("\n", " ") for part in (doc or "").split("\n\n")[first:]]


def made_by(data: Data) -> str:
    """The command, the processor and the releases that a page is of."""
    more = f"; {data['releases']}" if "releases" in data else ""
    return f"Made by `{data['command']}` on {hardware(data['machine'])}{more}."


def hardware(machines: str) -> str:
    """What :func:`machine` says without the releases, which a reader of the page finds with the rows."""
    return re.sub(r", \d+ thread\(s\) of torch.*?gymnasium [\w.]*\w", "", machines)


def put(path: Path, name: str, text: str) -> None:
    """Write a text between the marks ``name`` of a file of Markdown, which are added at its end where it has none."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    page = path.read_text(encoding="utf-8") if path.exists() else ""
    if begin not in page:
        page += f"\n{begin}\n{end}\n"
    before, _, rest = page.partition(begin)
    write(path, f"{before}{begin}\n{text}\n{end}{rest.partition(end)[2]}")


@dataclass(frozen=True)
class Page:
    """A section of a page of results.

    Attributes:
        name: of its rows, ``NAME.json``, and of its marks in the page.
        title: its heading.
        about: the docstring of its script, which ``--help`` shows.
        measure: makes the rows that are missing.
        body: the paragraphs, tables and sections after its head.
        draw: makes the pictures from the rows, in a folder.
        page: the page that it stands in, ``PAGE.md``.
        options: of the command line, by name, as arguments of ``add_argument``.
        needs: options that must be given where something is measured.
        partly: options that pick a part of the rows: the command that the page names is that of the whole.
        releases: packages whose versions the page names.
        head: says which command made the page, on which machine.
    """

    name: str
    title: str
    about: str | None
    measure: Callable[[Results], None]
    body: Callable[[Data], Iterable[str]]
    draw: Callable[[Data, Path], None] = lambda data, folder: None
    page: str = ""
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    needs: Sequence[str] = ()
    partly: Sequence[str] = ()
    releases: Sequence[str] = ()
    head: Callable[[Data], str] = made_by

    def path(self, folder: Path) -> Path:
        """The file of its rows."""
        return folder / f"{self.name}.json"

    def markdown(self, data: Data) -> str:
        """The whole section; its own sections are a level below."""
        parts = [re.sub(r"^#", "##", part) for part in self.body(data)]
        return "\n\n".join(part for part in [f"## {self.title}", self.head(data), *parts] if part) + "\n"

    def write(self, folder: Path) -> None:
        """Write the section and its pictures from the rows that are in a folder.

        Raises:
            SystemExit: no rows are there.
        """
        data = load(self.path(folder))
        if not data:
            raise SystemExit(f"{self.path(folder)} has no rows: measure them first, without --page")
        put(folder / f"{self.page}.md", self.name, self.markdown(data))
        self.draw(data, folder)

    def main(self, words: Sequence[str] | None = None) -> None:
        """Measure what is missing, unless ``--page`` is among the words of the command line, and write the section."""
        import torch

        words = sys.argv[1:] if words is None else words
        parser = argparse.ArgumentParser(description=self.about, formatter_class=argparse.RawDescriptionHelpFormatter)
        for option, arguments in self.options.items():
            parser.add_argument(option, **arguments)
        parser.add_argument("--page", action="store_true", help="the section alone, from what was measured")
        parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the page")
        given = parser.parse_args(words)
        torch.set_num_threads(1)
        warnings.filterwarnings("ignore", module="gymnasium")
        if not given.page:
            folders = [name for name, arguments in self.options.items() if arguments.get("type") is Path]
            results = Results(self, given, parser, command(words, folders, self.partly))
            for option in self.needs:
                results.need(option, "where something is measured")
            self.measure(results)
        if given.page or self.path(given.out).exists():  # parts that only train or play leave no rows
            self.write(given.out)


def command(
    words: Sequence[str],
    folders: Sequence[str] = ("--victims", "--work"),
    left_out: Sequence[str] = (),
) -> str:
    """The command line of this run, its folders made anonymous: a result must not name a folder of a machine.

    Args:
        words: of the command line, after the script.
        folders: options whose value is a folder.
        left_out: options that are left out with their values, as ``--out`` is.
    """
    shown: list[str] = []
    option = ""
    for word in words:
        value = word
        if word.startswith("--"):
            option, _, value = word.partition("=")
            if option not in ("--out", *left_out):
                shown.append(option)
        if value and option not in ("--out", *left_out):
            shown.append("FOLDER" if option in folders else value)
    script = Path(sys.argv[0]).resolve()
    parts = script.parts[script.parts.index("benchmarks") :] if "benchmarks" in script.parts else (script.name,)
    return " ".join(["python", "/".join(parts), *map(shlex.quote, shown)])


def machine() -> str:
    """The processor and the versions that numbers depend on."""
    import gymnasium
    import numpy
    import torch

    return (
        f"{processor()}, {os.cpu_count()} cores, {torch.get_num_threads()} thread(s) of torch, Python "
        f"{platform.python_version()}, torch {torch.__version__}, numpy {numpy.__version__}, gymnasium "
        f"{gymnasium.__version__}"
    )


def processor() -> str:
    """The processor's name and, on x86, its family and model: virtual machines hide the rest of the name."""
    asked = {"Darwin": ["sysctl", "-n", "machdep.cpu.brand_string"], "Linux": ["lscpu"]}.get(platform.system())
    try:  # in English: the names of fields are translated
        said = asked and subprocess.run(asked, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"}).stdout
    except OSError:
        said = None
    return processor_of(said or "") or platform.processor() or platform.machine() or "unknown processor"


def processor_of(said: str) -> str:
    """The processor that the output of ``lscpu`` describes, or of macOS's ``sysctl``; nothing without a name."""
    fields = {key.strip(): value.strip() for key, colon, value in (line.partition(":") for line in said.splitlines())}
    if len(fields) == 1 and ":" not in said:
        return said.strip()
    name, family, model = (fields.get(key, "") for key in ("Model name", "CPU family", "Model"))
    return f"{name} (family {family}, model {model})" if name and family.isdigit() else name


def releases(*names: str) -> str:
    """Names and versions of those packages that are installed, in one line."""
    found = []
    for name in names:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return ", ".join(found)


def write(path: Path, text: str) -> None:
    """Write a whole file or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_text(text, encoding="utf-8")
    os.replace(beside, path)


def load(path: Path) -> dict[str, Any]:
    """Results of an earlier run, or an empty dictionary."""
    if not path.exists():
        return {}
    data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return data


def save(path: Path, data: dict[str, Any]) -> None:
    """Write results as JSON."""
    write(path, json.dumps(data, indent=1, sort_keys=False) + "\n")
