"""Numbers as texts: as tables, pages and sentences have means, their intervals, shares, counts and durations."""

from __future__ import annotations


def number_text(value: float | None) -> str:
    """A number of a table: four digits that matter, and a dash where there is none.

    >>> number_text(-123.45), number_text(0.12345), number_text(None)
    ('-123.5', '0.123', '-')
    """
    if value is None:
        return "-"
    return f"{value:.1f}" if abs(value) >= 100 else f"{value:.3g}"


def interval_text(low: float | None, high: float | None, between: str = "to") -> str:
    """The ends of an interval, with a word between them, and a dash where there is none.

    >>> interval_text(1.0, 2.345), interval_text(None, None)
    ('1 to 2.35', '-')
    """
    return "-" if low is None else f"{number_text(low)} {between} {number_text(high)}"


def share_text(value: float | None) -> str:
    """A share of a table, as a percentage."""
    return "-" if value is None else f"{100 * value:.0f}%"


def counted(count: float, name: str) -> str:
    """How many there are, in words: whole numbers as they are, others to three digits.

    >>> counted(1, "critic"), counted(1280, "episode"), counted(2.5, "grey level")
    ('1 critic', '1280 episodes', '2.5 grey levels')
    """
    number = f"{count:.3g}" if isinstance(count, float) else str(count)
    return f"{number} {name}{'' if count == 1 else 's'}"


def duration(seconds: float) -> str:
    """How long something takes, in words, to the second, the minute, or a tenth of an hour.

    >>> duration(31.4), duration(150), duration(9000)
    ('31 s', '2 min', '2.5 h')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
