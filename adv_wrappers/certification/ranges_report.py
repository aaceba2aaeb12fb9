"""What is known of the worst case over several radii: certificates beside attacks, as a table, a figure and a file."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from adv_wrappers.certification.certificate import cut_text
from adv_wrappers.core.types import JSON, Floats
from adv_wrappers.evaluation.report import number
from adv_wrappers.rendering.certified_ranges_plot import RangePoint, plot_certified_ranges
from adv_wrappers.utils.files import write

_AWC = (
    "AWC is the lowest return of all sequences of actions that the bounds ({}) do not exclude: the worst case itself "
    "where these are by bisect, else at most that"
)


@dataclass(frozen=True)
class CertifiedRange:
    """What is known of the worst case within one budget.

    Attributes:
        eps: the radius.
        certificate: the :class:`adv_wrappers.certification.certificate.Certificate`, as its dictionary, with lower
            bounds that are at least those of larger radii, which hold for smaller ones.
        attacks: returns of every episode, by the name of the attack; float ``[E]``.
        left_out: by the name of an attack that was not run, the reason.
    """

    eps: float
    certificate: Mapping[str, JSON]
    attacks: Mapping[str, Sequence[float]]
    left_out: Mapping[str, str]

    @property
    def lower_returns(self) -> Floats:
        """The certified returns, ``[E]``; NaN where nothing was searched."""
        return np.array([np.nan if value is None else value for value in self.certificate["lower_returns"]])

    @property
    def upper_returns(self) -> Floats:
        """What the strongest of the attacks, or none, leaves of every episode, ``[E]``: the worst case is no higher."""
        clean = self.certificate["clean_returns"]
        found: Floats = np.fmin.reduce(np.array([clean, *self.attacks.values()], np.float64))  # clean may be cut
        return found

    @property
    def strongest(self) -> str:
        """The name of the attack with the lowest mean return; "" where none is below the clean one."""
        means = {name: float(np.mean(returns)) for name, returns in self.attacks.items()}
        lowest = min(means, key=means.__getitem__, default="")
        return lowest if means.get(lowest, np.inf) < _number(self.certificate["clean"], np.inf) else ""

    def point(self) -> RangePoint:
        """The mean returns, as a figure has them."""
        gwc, clean = (_number(self.certificate[name], np.nan) for name in ("gwc", "clean"))
        return RangePoint(self.eps, clean, float(self.lower_returns.mean()), float(self.upper_returns.mean()), gwc)

    def to_dict(self) -> dict[str, JSON]:
        """Everything, as values that JSON knows, the means included."""
        point = self.point()
        return {
            "eps": self.eps,
            "lower": _known(point.lower),
            "upper": _known(point.upper),
            "strongest": self.strongest,
            "certificate": dict(self.certificate),
            "attacks": dict(self.attacks),
            "left_out": dict(self.left_out),
        }


@dataclass(frozen=True)
class CertifiedRanges:
    """Certificates beside attacks over several radii.

    Attributes:
        settings: what was asked for: ``victim``, ``env``, ``scale``, ``episodes``, ``seed``, ``method``, ``budget_s``,
            ``max_nodes``, ``max_boxes``, ``width``, ``quantize`` and ``versions``.
        ranges: one a radius, in the order in which they were asked for.
    """

    settings: Mapping[str, JSON]
    ranges: tuple[CertifiedRange, ...]

    @property
    def title(self) -> str:
        """What was measured, in one line."""
        about = self.settings
        unit = "" if about["scale"] is None else f" in units of {_unit_text(about['scale'])}"
        return (
            f"{about['victim']['ref'] or 'victim'} on {about['env']['id']}{unit}, {about['episodes']} episodes, seed "
            f"{about['seed']}"
        )

    def rows(self) -> list[dict[str, str]]:
        """The cells of the table, by the names of the columns."""
        found = list[dict[str, str]]()
        for one in self.ranges:
            about, point = one.certificate, one.point()
            found.append(
                {
                    "eps": f"{one.eps:g}",
                    "clean": number(_known(point.clean)),
                    "certified": number(_known(point.lower)),
                    "attacked": number(_known(point.upper)),
                    "strongest": one.strongest or "-",
                    "GWC": number(_known(point.gwc)),
                    "ACR": "-" if about["acr"] is None else f"{about['acr']:.2f}",
                    "AWC": number(about["awc"]),
                    "searches finished": f"{sum(about['finished_searches'])} of {len(about['finished_searches'])}",
                }
            )
        return found

    def attack_rows(self) -> list[dict[str, str]]:
        """Mean returns under every attack, one row an attack and one column a radius."""
        names = dict.fromkeys(name for one in self.ranges for name in one.attacks)
        means = {(one.eps, name): float(np.mean(one.attacks[name])) for one in self.ranges for name in one.attacks}
        return [
            {"attack": name, **{f"{one.eps:g}": number(means.get((one.eps, name))) for one in self.ranges}}
            for name in names
        ]

    def table(self) -> Table:
        """A rich table, one row a radius."""
        table = Table(title=escape(self.title), box=box.SIMPLE_HEAD, title_style="bold", title_justify="left")
        rows = self.rows()
        for column in rows[0]:
            table.add_column(column, justify="left" if column == "strongest" else "right", overflow="fold")
        for row in rows:
            table.add_row(*(escape(cell) for cell in row.values()))
        return table

    def notes(self) -> list[str]:
        """What the columns mean, and what was left out."""
        left_out = {name: reason for one in self.ranges for name, reason in one.left_out.items()}
        return [
            "certified: no attack within eps leaves a lower mean on these episodes; attacked: the mean over episodes "
            "of what the strongest of these attacks leaves of each, and others may leave less",
            "GWC is an estimate and no bound; ACR is the share of steps with one possible action",
            _AWC.format(self.settings["method"]),
            *(f"eps {one.eps:g}: {text}" for one in self.ranges if (text := cut_text(one.certificate.get("cut", ())))),
            *(f"{name}: left out: {reason}" for name, reason in left_out.items()),
        ]

    def markdown(self) -> str:
        """The table, and that of all attacks, as Markdown."""
        tables = [_markdown(rows) for rows in (self.rows(), self.attack_rows()) if rows]
        return "\n\n".join([*tables, *self.notes()]) + "\n"

    def __str__(self) -> str:
        """The table and the notes as plain text."""
        text = io.StringIO()
        Console(file=text, width=140, color_system=None).print(self.table())
        return "\n".join([*(line.rstrip() for line in text.getvalue().splitlines()), *self.notes()])

    def plot(self, path: str | Path) -> None:
        """Write the figure (:func:`adv_wrappers.rendering.certified_ranges_plot.plot_certified_ranges`)."""
        scale = self.settings["scale"]
        unit = "eps" if scale is None else f"eps, in units of {_unit_text(scale)}"
        points = sorted((one.point() for one in self.ranges), key=lambda point: point.eps)
        plot_certified_ranges(points, path, self.title, unit)

    def to_dict(self) -> dict[str, JSON]:
        """Everything, as values that JSON knows."""
        return {"settings": dict(self.settings), "ranges": [one.to_dict() for one in self.ranges]}

    def to_json(self, path: str | Path) -> None:
        """Write :meth:`to_dict` as JSON: all of it, or nothing."""
        write(Path(path), (json.dumps(self.to_dict(), indent=1, allow_nan=False) + "\n").encode())


def _unit_text(scale: JSON) -> str:
    return "the victim" if scale == "victim" else f"{scale}"


def _number(value: JSON, missing: float) -> float:
    return missing if value is None else float(value)


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _markdown(rows: Sequence[Mapping[str, str]]) -> str:
    lines = [list(rows[0]), ["---"] * len(rows[0]), *(list(row.values()) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
