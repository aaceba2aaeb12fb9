"""The page of a standing: one table of all agents that sorts and filters, in one file that needs no network.

It is in the style of the page of a report, and made by the same means. What a submission says of itself, from its name
to its claim, is a text of strangers, and escaped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from adv_wrappers.evaluation.statistics.confidence_intervals import footnotes
from adv_wrappers.rendering.table import grouped
from adv_wrappers.studies.report.article import render
from adv_wrappers.studies.standing.entry import StandingEntry
from adv_wrappers.studies.standing.measure import ATTACKS
from adv_wrappers.utils.number_text import duration

STANDING_PAGE = "standing.html"  # the name of its file
TITLE = "The standing of agents under attack"


def standing_page(
    entries: Sequence[StandingEntry],
    pages: Mapping[str, str] = MappingProxyType({}),
    rules: str | None = None,
    notes: Sequence[str] = (),
) -> bytes:
    """The page of some entries, in their order, which is that of :func:`.ranked`.

    Args:
        entries: as :func:`.read_entries` reads them.
        pages: by name of an agent, the address of its own page.
        rules: the address of a page on how to join.
        notes: sentences to be said below the table.
    """
    environments = dict.fromkeys(entry.env_id for entry in entries)
    return render(
        "standing.html",
        title=TITLE,
        entries=entries,
        pages=pages,
        duration=duration,
        environments=[*environments],
        attacks=len(ATTACKS),
        footnotes=figure_footnotes(entries),
        reasons=without_certificate(entries),
        rules=rules,
        notes=notes,
    )


def figure_footnotes(entries: Sequence[StandingEntry]) -> list[str]:
    """What the mark of intervals that are none of 95% means, of the figures that a table shows of these entries."""
    shown = [
        {"episodes": one.episodes or entry.episodes, "caveat": one.caveat}
        for entry in entries
        for one in (entry.clean, entry.noise, entry.strongest and entry.strongest[1])
        if one
    ]
    return footnotes(shown)


def without_certificate(entries: Sequence[StandingEntry]) -> dict[str, str]:
    """By the reason why there is none, the names of the agents that have no certificate."""
    return grouped(
        {entry.name: entry.no_certificate for entry in entries if not entry.certificate and entry.no_certificate}
    )
