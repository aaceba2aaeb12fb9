"""What an interrupted command says: what is kept, and how it goes on. It exits with status 130, as shells expect.

What is kept is read from the folder afterwards, so it is what another call will find there.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import click

INTERRUPTED = 128 + 2  # SIGINT
DescribeKept = Callable[[Path], str | None]


class Interrupted(click.ClickException):
    """An interruption by the user: one line on standard error, without the word ``Error``."""

    exit_code = INTERRUPTED

    def show(self, file: object = None) -> None:
        """Print the line."""
        click.echo(f"Interrupted: {self.format_message()}", err=True)


@contextlib.contextmanager
def resumable(folder: Path | None, kept: DescribeKept | None = None) -> Iterator[None]:
    """On an interruption, say what ``folder`` keeps, and that the same command goes on from there.

    Args:
        folder: the folder of ``--out``, or None where it was not given.
        kept: says what the folder holds of this command's work, None for nothing yet. None names what is there.
    """
    try:
        yield
    except KeyboardInterrupt:
        if folder is None:
            raise Interrupted("nothing is kept; with --out FOLDER the same command would go on") from None
        found = (kept or kept_files)(folder)
        if found is None:
            raise Interrupted(f"{folder} keeps nothing yet; the same command begins anew") from None
        raise Interrupted(f"{found}; the same command goes on from there") from None


@contextlib.contextmanager
def rows_kept(folder: Path | None, resume: bool, total: int) -> Iterator[None]:
    """On an interruption of ``evaluate``, say how many of its rows are kept, and how the others are played.

    Args:
        folder: of ``--out``, or None.
        resume: whether ``--resume`` was given.
        total: the number of rows that were asked for.
    """
    path = None if folder is None else folder / "report.json"
    before = None if path is None else _version(path)
    try:
        yield
    except KeyboardInterrupt:
        if path is None:
            said = "no row is kept; with --out FOLDER they are, and --resume then plays only the others"
        elif _version(path) == before:
            kept = "" if before is None else f", and {path} is as it was"
            goes_on = "plays only what is missing" if resume else "begins anew"
            said = f"no row was finished{kept}; the same command {goes_on}"
        elif (count := len(read_list(path, "threats"))) == total:
            said = f"all rows are in {path}"
        else:
            how = "the same command" if resume else "the same command with --resume"
            said = f"{count} of {total} rows are in {path}; {how} plays only the others"
        raise Interrupted(said) from None


def _version(path: Path) -> tuple[int, int] | None:
    """What tells one writing of a file from another, None where there is none."""
    with contextlib.suppress(OSError):
        found = path.stat()
        return found.st_ino, found.st_mtime_ns
    return None


def kept_files(folder: Path) -> str | None:
    """The names of what a folder holds."""
    names = sorted(path.name for path in folder.glob("[!.]*"))
    return f"{folder} keeps {', '.join(names)}" if names else None


def kept_suite(folder: Path) -> str | None:
    """The rows of a suite that are scored, and the attacks that it has trained or searched for."""
    from adv_wrappers.studies import SUITES

    rows = len(read_list(folder / "evaluation" / "report.json", "threats"))
    work = [entry.name for entry in SUITES["everything"] if any((folder / entry.name).glob("[!.]*"))]
    parts = [f"{rows} row{'s' * (rows != 1)} in evaluation/report.json"] if rows else []
    parts += [f"the work on {', '.join(work)}"] if work else []
    return f"{folder} keeps {' and '.join(parts)}" if parts else None


def kept_ranges(radii: Sequence[float]) -> DescribeKept:
    """Of how many of these radii ``certify`` has the certificates."""

    def kept(folder: Path) -> str | None:
        path = folder / "ranges.json"
        count = sum(one.get("eps") in radii for one in read_list(path, "ranges"))
        return f"the certificates of {count} of {len(radii)} radii are in {path}" if count else None

    return kept


def kept_rounds(rounds: int) -> DescribeKept:
    """How many of the rounds of ``imitate`` are kept, the first included."""

    def kept(folder: Path) -> str | None:
        count = len(read_list(folder / "card.json", "rounds"))
        return f"the surrogate of {count} of {rounds + 1} rounds is in {folder}" if count else None

    return kept


def kept_checkpoints(steps: int, forms: Sequence[str] = (".",)) -> DescribeKept:
    """How many checkpoints a training of an adversary or an agent keeps, and at how many of its steps the last one is.

    Args:
        steps: of one training.
        forms: the folders of the trainings, in that of the command.
    """

    def kept(folder: Path) -> str | None:
        count = sum(len(read_list(folder / form / "state.json", "record")) for form in forms)
        some = f"{count} checkpoint{'s' * (count != 1)}, to step {kept_steps(folder, forms)} of {steps * len(forms)},"
        return f"{some} {'is' if count == 1 else 'are'} in {folder}" if count else None

    return kept


def kept_steps(folder: Path, forms: Sequence[str] = (".",)) -> int:
    """At how many steps the last checkpoints are of the trainings that a folder keeps.

    Args:
        folder: of the command.
        forms: the folders of the trainings, in that one.
    """
    records = (read_list(folder / form / "state.json", "record") for form in forms)
    return sum(int(str(record[-1]["steps"])) for record in records if record)


def read_list(path: Path, key: str) -> list[dict[str, object]]:
    """A list in a file of JSON, empty where there is none."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        return [dict(entry) for entry in json.loads(path.read_text(encoding="utf-8"))[key]]
    return []
