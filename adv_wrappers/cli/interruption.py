"""What an interrupted command says: what is kept, and how it goes on. It exits with status 130, as shells expect."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import click

INTERRUPTED = 128 + 2  # SIGINT


class Interrupted(click.ClickException):
    """An interruption by the user: one line on standard error, without the word ``Error``."""

    exit_code = INTERRUPTED

    def show(self, file: object = None) -> None:
        """Print the line."""
        click.echo(f"Interrupted: {self.format_message()}", err=True)


@contextlib.contextmanager
def resumable(folder: Path | None, again: str = "the same command") -> Iterator[None]:
    """On an interruption, say what ``folder`` keeps, and how the command goes on from there.

    Args:
        folder: the folder of ``--out``, or None where it was not given.
        again: what goes on.
    """
    try:
        yield
    except KeyboardInterrupt:
        if folder is None:
            raise Interrupted(f"nothing is kept; with --out FOLDER {again} would go on") from None
        if not (names := sorted(path.name for path in folder.glob("[!.]*"))):
            raise Interrupted(f"{folder} keeps nothing yet; the same command begins anew") from None
        raise Interrupted(f"{folder} keeps {', '.join(names)}; {again} goes on from there") from None
