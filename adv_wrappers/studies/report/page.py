"""The page of a report, or of several: one file of HTML that needs nothing else, neither other files nor a network."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from adv_wrappers.errors import OutputError
from adv_wrappers.evaluation.rows.report import Report
from adv_wrappers.studies.report.agent_article import article_of, notes_of
from adv_wrappers.studies.report.article import check_target, render
from adv_wrappers.studies.report.charts import Cell, Column, Table, TableLine
from adv_wrappers.studies.report.sections import AgentSections, StoredReports, read_reports, sorted_report
from adv_wrappers.utils.files import write

PAGE_FILE = "report.html"  # in the folder of a report, beside its rows
LARGEST_PAGE = 3_000_000  # bytes
_MOST_AGENTS = 12  # that are shown in full


def write_page(source: str | Path | Report | Sequence[Report], out: str | Path) -> Path:
    """Write what a folder or store of rows holds as one page of HTML, of less than 3 MB.

    Args:
        source: a folder that ``evaluate``, a suite or a report wrote, or a file of rows (:class:`.Store`); or the
            reports that ``evaluate`` returned, one or several.
        out: the file to be written; a page of an earlier call is replaced, any other file is not.

    Returns:
        ``out``.

    Raises:
        ValueRangeError: where there are no rows to show, or ``choices.json`` is not of its form.
        StoreError: for a file that is damaged, something else, or of another release.
        OutputError: for a file that cannot be written, is there and is no page of ours, or would be too large.
    """
    path = Path(out)
    check_target(path)
    if isinstance(source, (str, Path)):
        stored = read_reports(source)
    else:
        reports = [source] if isinstance(source, Report) else source
        stored = StoredReports(Path("what evaluate returned"), tuple(map(sorted_report, reports)), (), {})
    write(path, page_of(stored, path.name))
    return path


def page_of(stored: StoredReports, name: str) -> bytes:
    """The page of some reports; what is left out where it would be too large is said on it.

    Raises:
        OutputError: where it is too large even so.
    """
    count = min(len(stored.agents), _MOST_AGENTS)
    while count:
        page = _page(stored, count)
        if len(page) <= LARGEST_PAGE:
            return page
        count //= 2
    raise OutputError(f"{name} would be larger than {LARGEST_PAGE / 1e6:g} MB: it has too many rows for one page")


def _page(stored: StoredReports, count: int) -> bytes:
    """The page with so many reports in full."""
    agents, notes = stored.agents, list[str]()
    articles = [article_of(agent, f"a{i}", len(agents) > 1) for i, agent in enumerate(agents[:count])]
    # what is not shown, and why
    if count < len(agents):
        notes.append(f"The first {count} of {len(agents)} reports are shown in full, the others in the first table.")
    errors = [f"{name} ({error})" for name, error in stored.errors.items()]
    for why, names in (
        ("there is no run without an attack to compare them with", stored.left_out), ("they failed", errors),
    ):  # fmt: skip
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        notes += [f"Not shown, since {why}: {', '.join(names[:3])}{more}."] if names else []
    titles = {f"{agent.victim} in {agent.environment}" for agent in agents}
    return render(
        "page.html",
        articles=articles,
        version=agents[0].report.versions.get("adv_wrappers", ""),
        source=stored.path.name,
        title=next(iter(titles)) if len(titles) == 1 else f"{len(agents)} reports",
        overview=_overview(agents, count) if len(agents) > 1 else None,
        notes=notes,
    )


def _overview(agents: Sequence[AgentSections], count: int) -> Table:
    """All reports, those in full with a link."""
    lines = list[TableLine]()
    for i, agent in enumerate(agents):
        worst = min(agent.attacked, key=lambda row: row.mean, default=None)
        under = f"{agent.environment}, {agent.episodes}" + (f"; lowest under {worst.label}" if worst else "")
        cells: list[Cell] = [agent.clean.returned, worst.returned if worst else None]
        lines.append(TableLine(agent.victim, cells, under, link=f"a{i}" if i < count else ""))
    columns = [Column("no attack"), Column("lowest under attack")]
    notes = notes_of([row for agent in agents for row in agent.rows])
    return Table("All reports", "agent", columns, lines, notes=notes)
