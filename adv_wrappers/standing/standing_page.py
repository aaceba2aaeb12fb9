"""The page of a standing: one table of all agents that sorts and filters, in one file that needs no network.

It is in the style of the page of a report, and made by the same means. What a submission says of itself, from its name
to its claim, is a text of strangers, and escaped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from adv_wrappers.agent_report.html_page import Figures, render
from adv_wrappers.agent_report.rows_by_section import MeanWithInterval
from adv_wrappers.standing.measure_submission import ATTACKS, attacks_played, strongest
from adv_wrappers.standing.standing_table import figure_footnotes, without_certificate
from adv_wrappers.utils.split_and_parse_text import duration

STANDING_PAGE = "standing.html"  # the name of its file
TITLE = "The standing of agents under attack"


def standing_page(
    entries: Sequence[Mapping[str, Any]],
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
    environments = dict.fromkeys(str(entry["environment"]["id"]) for entry in entries)
    figures = {name: _figures([one for one in entries if one["environment"]["id"] == name]) for name in environments}
    return render(
        "standing.html",
        title=TITLE,
        lines=[_line(entry, pages, figures[str(entry["environment"]["id"])]) for entry in entries],
        environments=[*environments],
        attacks=len(ATTACKS),
        footnotes=figure_footnotes(entries),
        reasons=without_certificate(entries),
        rules=rules,
        notes=notes,
    )


def _figures(entries: Sequence[Mapping[str, Any]]) -> Figures:
    """How the returns of one environment are written."""
    means = [abs(float(entry["clean"]["mean"])) for entry in entries]
    means += [abs(float(worst[1]["mean"])) for entry in entries if (worst := strongest(entry))]
    return Figures(max(means))


def _line(entry: Mapping[str, Any], pages: Mapping[str, str], figures: Figures) -> dict[str, Any]:
    """What the template needs to know of one agent."""
    worst, noise, certificate = strongest(entry), entry["attacks"].get("noise"), entry.get("certificate")
    own, added = attacks_played(entry)
    seconds, left_out = entry.get("training_seconds"), sum(entry.get("left_out_seconds", {}).values())
    return {
        "name": entry["name"],
        "page": pages.get(entry["name"]),
        "environment": str(entry["environment"]["id"]),
        "budget": entry["budget"],
        "episodes": entry["episodes"],
        "figures": figures,
        "clean": _mean(entry["clean"]),
        "noise": _mean(noise) if noise else None,
        "worst": _mean(worst[1]) if worst else None,
        "by": worst[0] if worst else "",
        "played": own,
        "added": added,
        "left_out": duration(left_out) if left_out else "",
        "certified": certificate["lower"] if certificate else None,
        "claim": entry.get("claim") or "",
        "trained_with": entry.get("trained_with") or "",
        "training_minutes": None if seconds is None else seconds / 60,
        "attack_seconds": sum(one["seconds"] for one in entry["attacks"].values()),
        "licence": entry["licence"],
        "weights": str(entry["victim"]["fingerprint"])[:12],
    }


def _mean(figures: Mapping[str, Any]) -> MeanWithInterval:
    return MeanWithInterval(figures["mean"], figures["low"], figures["high"], figures.get("caveat"))
