"""``report``: how an agent breaks, found in a given time, as one page; or the page of rows that are there already."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import click

from adv_wrappers.cli.completion import complete_env_or_path
from adv_wrappers.cli.interruption import resumable
from adv_wrappers.cli.main import BEGAN, make_console
from adv_wrappers.cli.options import VICTIM_FILE, load_agent, repeated
from adv_wrappers.cli.output import tell
from adv_wrappers.cli.progress import show_progress
from adv_wrappers.cli.signatures import command


@command(
    "report",
    "adv_wrappers.report",
    without=("env", "command", "began"),
    victim={**VICTIM_FILE, "required": False, "help": f"{VICTIM_FILE['help']}; with ENV"},
    files=True,
    out={
        "default": None,
        "type": click.Path(path_type=Path),
        "help": "a folder; with STORE, the page; None is adv_report",
    },
)
@click.argument(
    "sources", metavar="ENV | STORE | STORE STORE", nargs=-1, required=True, shell_complete=complete_env_or_path
)
def report_(sources: tuple[str, ...], minutes: float, out: Path | None, **given: Any) -> None:
    """Find out how an agent breaks, and write a page that says it.

    With ENV and --victim, attacks are chosen and played for --minutes; the same command goes on with more. With STORE,
    a folder or file of rows that evaluate, suite, run or report left, the page is made of those. With two of them,
    the page compares two agents, after what only the first was played under was played on the second, for --minutes.
    """
    if given["victim"] is None:
        _draw(sources, out, minutes, given["trust"], given["make"])
        return
    if len(sources) != 1:
        raise click.UsageError(f"one ENV goes with --victim, got {' '.join(sources)}")
    from adv_wrappers.studies.report.report import report

    # the command that repeats it stands on the page
    folder = out or Path("adv_report")
    again = repeated(given, "victim", "kind", "stats", "select", "num_envs")
    words = ["adv-wrappers", "report", sources[0], *again, "--out", str(folder)]
    agent = load_agent(given, given["device"], sources[0])
    with resumable(folder), show_progress() as move:
        found = report(
            agent,
            sources[0],
            minutes,
            out=folder,
            progress=move,
            tell=tell,
            command=shlex.join(words),
            began=BEGAN,
            **given,
        )
    # the verdict, what to do next, and where the page is
    console = make_console()
    console.print(found.verdict.sentence, markup=False)
    for step in found.verdict.next:
        console.print(f"- {step.what}", markup=False)
        if step.command:
            console.print(f"  {step.command}", markup=False, soft_wrap=True)
    console.print(f"the page: {found.page}", markup=False, soft_wrap=True)


def _draw(sources: tuple[str, ...], out: Path | None, minutes: float, trust: bool, make: Any) -> None:
    """The page of one store, or of two that are compared."""
    from adv_wrappers.studies.report.comparison_page import compare_pages
    from adv_wrappers.studies.report.page import PAGE_FILE, write_page

    if len(sources) > 2:
        raise click.UsageError(f"expected one store, or two that are compared, got {len(sources)}")
    paths = [Path(source) for source in sources]
    if len(sources) == 1 and not paths[0].exists():
        raise click.UsageError(f"{sources[0]} is no store; an environment needs --victim")
    # a comparison of two, or the page of one
    if len(paths) == 2:
        page = out or Path("comparison.html")
        with resumable(page.with_name(f"{page.stem}-rows")), show_progress() as move:
            found = compare_pages(paths[0], paths[1], page, minutes, trust=trust, make=make, progress=move)
        for line in (found.sentence, *(f"- {note}" for note in found.notes)):
            make_console().print(line, markup=False)
    else:
        page = write_page(paths[0], out or (paths[0] if paths[0].is_dir() else paths[0].parent) / PAGE_FILE)
    make_console().print(f"the page: {page}", markup=False, soft_wrap=True)
