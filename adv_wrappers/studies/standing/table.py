"""The table of a standing, in Markdown: one line an agent, and a table an environment."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from adv_wrappers.evaluation.statistics import footnotes, marked
from adv_wrappers.rendering.text_table import grouped
from adv_wrappers.studies.standing.entry import AttackedMean, StandingEntry
from adv_wrappers.studies.standing.measure import ATTACKS

HEAD = (
    "agent", "no attack", "noise", "strongest attack leaves", "by", "attacks played", "certified", "the authors' claim",
    "trained with", "minutes of training", "seconds of attack", "licence", "weights",
)  # fmt: skip


def standing_table(entries: Sequence[StandingEntry]) -> list[str]:
    """Paragraphs and tables: entries in their order, which is that of :func:`.ranked`."""
    parts = [f"{len(entries)} agents."]
    for env, group in groupby(entries, lambda entry: entry.env_id):
        rows = list(group)
        lines = [HEAD, ("---",) * len(HEAD), *map(_line, rows)]
        parts += [
            f"## {env}",
            f"Budget: {rows[0].budget}. {rows[0].episodes} episodes of seed {rows[0].seed}.",
            "\n".join("| " + " | ".join(map(_cell, line)) + " |" for line in lines),
            *(f"{note}." for note in figure_footnotes(rows)),
        ]
    reasons = without_certificate(entries)
    why = [f"- No certificate of {names}: {_cell(reason)}" for reason, names in reasons.items()]
    return [*parts, *(["## Why cells say none", "\n".join(why)] if why else [])]


def _line(entry: StandingEntry) -> Sequence[str]:
    worst, seconds, (own, added) = entry.strongest, entry.training_seconds, entry.attacks_played
    return (
        entry.name,
        _mean(entry.clean) if entry.clean else "not played",
        _mean(entry.noise) if entry.noise else "not played",
        _mean(worst[1]) if worst else "not attacked yet",
        f"`{worst[0]}`" if worst else "none",
        f"{own} of {len(ATTACKS)}{f', {added} added' if added else ''}",
        _number(entry.certificate.lower) if entry.certificate else "none",
        entry.claim or "none",
        entry.trained_with or "no record",
        "no record" if seconds is None else f"{seconds / 60:.1f}",
        f"{entry.attack_seconds:.0f}",
        entry.licence,
        entry.weights,
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


def _mean(figures: AttackedMean) -> str:
    interval = f"[{_number(figures.low)}, {_number(figures.high)}]"
    return f"{_number(figures.mean)} {marked(interval, {'caveat': figures.caveat})}"


def _number(value: float) -> str:
    """A return by four digits, or all digits before the point."""
    return f"{value:.4g}" if abs(value) < 10_000 else f"{value:.0f}"


def _cell(text: str) -> str:
    """A cell of a table: a submission's own words break neither the table nor the page."""
    return " ".join(str(text).replace("|", "/").replace("<", "(").replace(">", ")").split()) or "none"
