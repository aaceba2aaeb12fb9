"""What the scripts of this folder share: figures of cards as intervals, results that survive a killed run, tables."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import shlex
import statistics
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adv_wrappers.evaluation.statistics import interval, t_quantile


@dataclass(frozen=True)
class Figure:
    """A mean return with a 95% interval; ``low`` and ``high`` are None where only the mean was reported."""

    mean: float
    std: float | None = None
    episodes: int | None = None
    low: float | None = None
    high: float | None = None

    def overlaps(self, other: Figure) -> bool | None:
        """Whether two intervals share a point; None where one of them is not known."""
        if self.low is None or self.high is None or other.low is None or other.high is None:
            return None
        return self.low <= other.high and other.low <= self.high

    def __str__(self) -> str:
        text = number(self.mean)
        if self.std is not None:
            text += f" +- {number(self.std)}"
        if self.episodes is not None:
            text += f" (n={self.episodes})"
        if self.low is not None and self.high is not None:
            text += f" [{number(self.low)}, {number(self.high)}]"
        return text


def number(value: float) -> str:
    """One decimal below 1000, none above."""
    return f"{value:.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.1f}"


def measured(mean: float, std: float, episodes: int) -> Figure:
    """A mean and a standard deviation over ``episodes`` episodes, with the interval of Student's t."""
    if episodes < 2:
        return Figure(mean, None, episodes)
    half = t_quantile(episodes - 1) * std / episodes**0.5
    return Figure(mean, std, episodes, mean - half, mean + half)


def of_row(row: dict[str, Any]) -> Figure:
    """A row of a report, with the interval of its returns: rows of older releases come with one that covers less."""
    return Figure(row["mean_return"], row["std"], row["episodes"], *interval(row["returns"]))


def of_seeds(scores: Sequence[float]) -> Figure:
    """The mean over the seeds of a training, with its interval."""
    return Figure(statistics.fmean(scores), statistics.stdev(scores), len(scores), *interval(scores))


def margin(row: dict[str, Any], other: dict[str, Any]) -> Figure:
    """What ``row`` leaves more than ``other`` over the same episodes: mean, and interval, of the paired difference."""
    more = [a - b for a, b in zip(row["returns"], other["returns"], strict=True)]
    low, high = interval(more)
    return Figure(statistics.fmean(more), low=low, high=high)


def said(margins: dict[str, tuple[Figure, Figure]]) -> str:
    """What became of margins, each before and now, as a list: which shrank, are gone, turned round, or stay."""
    found: dict[str, list[str]] = {"shrinks": [], "is gone": [], "was not there in the first run": [], "stays": []}
    for name, (before, now) in margins.items():
        less = 1 - now.mean / before.mean if before.mean else 0.0
        if before.low is not None and before.low <= 0:
            found["was not there in the first run"].append(name)
        elif now.low is not None and now.low <= 0:
            found["is gone"].append(name)
        elif less > 0.005:
            found["shrinks"].append(f"{name} by {less:.0%}")
        else:
            found["stays"].append(name)
    return "\n".join(f"- The margin **{word}**: {'; '.join(names)}." for word, names in found.items() if names)


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


def releases(*names: str) -> str:
    """Names and versions of those packages that are installed, in one line."""
    found = []
    for name in names:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return ", ".join(found)


def options(doc: str | None, episodes: int, victims: bool = True) -> argparse.ArgumentParser:
    """The options that the scripts share; ``doc`` is theirs, and ``victims`` whether they need a folder of cards."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--victims", type=Path, required=victims, help="folder of cards")
    parser.add_argument("--episodes", type=int, default=episodes)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    parser.add_argument("--again", action="store_true", help="evaluate also what an earlier run has left")
    return parser


def done(old: dict[str, Any] | None, arguments: argparse.Namespace) -> bool:
    """Whether an earlier run has left this result, and it is not to be made again."""
    wanted = (arguments.episodes, arguments.seed)
    return old is not None and not arguments.again and (old["episodes"], old["seed"]) == wanted


def kept(row: dict[str, Any]) -> dict[str, Any]:
    """A row of a report without what a page does not need."""
    return {key: value for key, value in row.items() if key not in ("layers", "lengths")}


def command(arguments: Sequence[str]) -> str:
    """The command line of this run, its folders made anonymous: a result must not name a folder of a machine."""
    folders = ("--victims", "--targets", "--surrogates", "--work", "--record")
    shown = ["FOLDER" if before in folders else item for before, item in zip(["", *arguments], arguments, strict=False)]
    if "--out" in shown:
        at = shown.index("--out")
        del shown[at : at + 2]
    script = Path(sys.argv[0]).resolve()
    parts = script.parts[script.parts.index("benchmarks") :] if "benchmarks" in script.parts else (script.name,)
    return " ".join(["python", "/".join(parts), *(shlex.quote(item) for item in shown)])


def span(values: Iterable[float | None], digits: int = 0) -> str:
    """The mean of the values that are known, and their range where they differ; nothing where none is."""
    known = [value for value in values if value is not None]
    if not known:
        return ""
    low, high = (f"{value:.{digits}f}" for value in (min(known), max(known)))
    return low if low == high else f"{statistics.fmean(known):.{digits}f} ({low} to {high})"


def table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A Markdown table; a cell that has nothing to say holds a dash."""
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join(lines + ["| " + " | ".join(str(cell) or "-" for cell in row) + " |" for row in rows])


def filled(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A Markdown table without the columns that say nothing in any row: empty, or a dash."""
    kept = [i for i, _ in enumerate(header) if any(str(row[i]) not in ("", "-") for row in rows)]
    return table([header[i] for i in kept], [[row[i] for i in kept] for row in rows])


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
