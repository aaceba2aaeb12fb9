"""What a row of a report says of its threat, as columns to sort and group by: its radius, and all of it but that."""

from __future__ import annotations

from adv_wrappers.errors import ThreatError
from adv_wrappers.evaluation.return_statistics import ReportRow
from adv_wrappers.threats.text import without_number
from adv_wrappers.utils.text import parse_value, split_arguments


def row_label(row: ReportRow) -> str:
    """The threat of a row, and what else tells it from others."""
    return str(row["threat"]) + _besides(row)


def is_clean(row: ReportRow) -> bool:
    """Whether a row is a run without a threat, in reports of older releases too, which have no layers."""
    return not row["layers"] if "layers" in row else row["threat"] == "none"


def eps_of(row: ReportRow) -> float | None:
    """The radius of a row's budget: 0 without a threat; None for a stack, and for a budget that has no radius.

    >>> from adv_wrappers.evaluation.threat_columns import eps_of
    >>> eps_of({"layers": [{"within": {"type": "linf", "eps": 0.1}}]})
    0.1
    """
    if is_clean(row):
        return 0.0
    [layer, *others] = row.get("layers") or [None]
    if layer is None or others:
        return None
    budget = layer.get("within") or {}
    while isinstance(budget.get("within"), dict):  # Newest holds the budget of the newest frame
        budget = budget["within"]
    eps = budget.get("eps")
    return float(eps) if isinstance(eps, (int, float)) else None


def argument_of(row: ReportRow, name: str) -> float | None:
    """A number among the arguments of a threat's text, such as ``steps``; None where there is none.

    >>> from adv_wrappers.evaluation.threat_columns import argument_of
    >>> argument_of({"threat": "pgd:eps=0.1,steps=20"}, "steps")
    20.0
    """
    values = [parse_value(value.strip()) for key, value in _arguments(row)[1] if key == name]
    number = values[0] if len(values) == 1 else None
    return float(number) if isinstance(number, (int, float)) and not isinstance(number, bool) else None


def attack_text(row: ReportRow, without: str = "eps") -> str:
    """The text of a threat without its radius, or without another argument; a stack's stays as it is.

    >>> from adv_wrappers.evaluation.threat_columns import attack_text
    >>> attack_text({"threat": "pgd:eps=0.1,steps=20"}), attack_text({"threat": "noise:eps=0.1"})
    ('pgd:steps=20', 'noise')
    """
    text = str(row["threat"])
    name, arguments = _arguments(row)
    kept = [f"{key}={value}" for key, value in arguments if key != without]
    if len(kept) == len(arguments):
        return text
    number = text.strip().removeprefix(without_number(text))  # of rows that have one text
    return f"{name}:{','.join(kept)}{number}" if kept else name + number


def attack_label(row: ReportRow, without: str = "eps") -> str:
    """:func:`attack_text`, and what else tells a row from others."""
    return attack_text(row, without) + _besides(row)


def _arguments(row: ReportRow) -> tuple[str, list[tuple[str, str]]]:
    """The name of a threat and its arguments as they are written; none of a stack, or of a text that is none."""
    name, colon, rest = without_number(str(row["threat"])).partition(":")
    if not colon or " + " in rest or len(row.get("layers") or [None]) > 1:
        return name, []
    try:
        pairs = [piece.partition("=") for piece in split_arguments(rest)]
    except ThreatError:
        return name, []
    return name, [(key.strip(), value) for key, _, value in pairs]


def _besides(row: ReportRow) -> str:
    draws = f" (best of {row['best_of']})" if row.get("best_of", 1) > 1 else ""
    return draws + (" (transfer)" if row.get("transfer") else "")
