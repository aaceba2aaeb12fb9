"""What a suite found: every attack's figures, the worst case, each attack's share, and how the figures came about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adv_wrappers.errors import ValueRangeError
from adv_wrappers.evaluation.rows.report import Report, victim_name
from adv_wrappers.evaluation.rows.row import Row
from adv_wrappers.evaluation.statistics.confidence_intervals import (
    caveat,
    footnotes,
    marked_interval,
    mean_interval,
    summary,
)
from adv_wrappers.evaluation.statistics.return_range import described_range
from adv_wrappers.rendering.table import Tabular, TextTable, grouped
from adv_wrappers.utils.files import write_json
from adv_wrappers.utils.number_text import number_text, share_text
from adv_wrappers.utils.reading import decoding, read_result, value_of

_BY_IMPORTANCE = ("attack", "return", "95% interval", "share", "impact", "changed", "regret", "median")
_OTHER_BUDGET = "‡"
_CLOSE = 0.05  # of the return that the strongest attack takes: a lower mean by less would change little
_WHY_APART = (
    ". The lowest of several means is low by chance as well, the more so the more returns vary: what the attack leaves "
    "is its mean on fresh episodes, on which nothing was chosen"
)
_DERIVED = ("worst", "chosen", "shares", "worst_per_episode")  # in files for their readers


@dataclass(frozen=True)
class SuiteReport(Tabular):
    """Results of a suite, such as :func:`adv_wrappers.studies.run_suite`.

    Attributes:
        suite: its name.
        settings: what it was called with: ``victim``, ``environment``, ``budget`` (as text) and ``within`` (as a
            dictionary), ``seed``, ``episodes``, ``steps``, ``critics``, ``num_envs``, ``training``, ``attacks``,
            ``quantize``.
        report: of :func:`adv_wrappers.evaluate`: the clean run, and a row an attack, whose ``threat`` is its name here.
        fresh: the same of the strongest of them alone, on episodes that had no part in finding it.
        tie_break: the same of the attacks that may be the strongest (:func:`close_attacks`), on further episodes which
            choose between them; None where there is one such attack.
        protocol: by attack, of how many runs, settings and checkpoints its figure is the best.
        left_out: by attack that was not run, the reason.
        warnings: signs that a figure should not be trusted, the report's own included.
        other_budgets: by attack that is not under the suite's budget, the one that it is under, in words. Its figures
            say nothing of the suite's budget, and are not comparable with those of the other attacks. Of a suite
            without a budget these are all attacks, unless they share one.
    """

    suite: str
    settings: dict[str, Any]
    report: Report
    fresh: Report
    protocol: dict[str, str]
    left_out: dict[str, str]
    warnings: tuple[str, ...]
    other_budgets: dict[str, str] = field(default_factory=dict)
    tie_break: Report | None = None

    @property
    def attacks(self) -> tuple[str, ...]:
        """Names of the attacks that were run."""
        return tuple(row.threat for row in self.report.threats[1:])

    @property
    def clean(self) -> Row:
        """The row of the run without an attack."""
        return self.report.threats[0]

    @property
    def chosen(self) -> Row:
        """The row of the strongest attack on the episodes that all were scored on.

        Its mean is the lowest there, or with a ``tie_break`` the lowest over those episodes and these.
        """
        return strongest_of(self.report, self.tie_break)

    @property
    def worst(self) -> Row:
        """The row of the strongest attack on fresh episodes; ``threat`` is its name.

        Its mean is that attack's own. The one that ``chosen`` has is too low: it is the lowest of several, by chance.
        """
        return self.fresh.threats[1]

    def _ties(self) -> tuple[Row, ...]:
        return () if self.tie_break is None else self.tie_break.threats[1:]

    def _returns(self) -> NDArray[np.float64]:
        return np.array([row.returns for row in self.report.threats[1:]], np.float64)

    @property
    def shares(self) -> dict[str, float]:
        """By attack, the share of the episodes on which it is the strongest; ties are shared equally, the sum is 1."""
        returns = self._returns()
        lowest = returns == returns.min(0)
        return dict(zip(self.attacks, (lowest / lowest.sum(0)).mean(1).tolist(), strict=True))

    @property
    def worst_per_episode(self) -> dict[str, Any]:
        """``mean_return``, ``low``, ``high``, ``caveat``, ``median``, ... of every episode's lowest return.

        Optimistic for the attacker, who would have to know beforehand which attack an episode is weakest against.
        """
        lowest = self._returns().min(0)
        known = described_range(self.report.env)
        return {**summary(lowest, known), "caveat": caveat(lowest), "episodes": len(lowest)}

    def to_dict(self) -> dict[str, Any]:
        """Everything, as values that JSON knows."""
        found = {key: getattr(self, key) for key in _DERIVED}
        for name in ("worst", "chosen"):
            row = found[name]
            found[name] = {key: row[key] for key in ("threat", "mean_return", "low", "high", "caveat", "median")}
        # reports by their own form, and figures that follow from them for readers of the file
        own = {key: value for key, value in asdict(self).items() if key not in ("report", "fresh", "tie_break")}
        if not self.other_budgets:
            own.pop("other_budgets")
        reports = {"report": self.report.to_dict(), "fresh": self.fresh.to_dict()}
        if self.tie_break is not None:
            reports["tie_break"] = self.tie_break.to_dict()
        return {**own, "warnings": list(self.warnings), **found, **reports}

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> SuiteReport:
        """Inverse of :meth:`to_dict`; raises :class:`ValueRangeError` for a dictionary of another form."""
        with decoding("a suite's report", ValueRangeError):
            found: SuiteReport = value_of(SuiteReport, {key: data[key] for key in data if key not in _DERIVED})
        # what a file of somebody else might lack, and every figure needs
        for part in (found.report, found.fresh, found.tie_break or found.report):
            if len(part.threats) < 2 or not all({"returns", "mean_return", "threat"} <= {*row} for row in part.threats):
                raise ValueRangeError(
                    "a suite's report holds the clean run and at least one attack, with their returns"
                )
        if not {row.threat for row in found._ties()} <= {*found.attacks}:
            raise ValueRangeError("the further episodes of a suite's report are those of attacks that it has")
        if found.worst.threat != found.chosen.threat:
            raise ValueRangeError("the fresh episodes of a suite's report are those of its strongest attack")
        return found

    def to_json(self, path: str | Path) -> None:
        """Write :meth:`to_dict` as JSON: all of it, or nothing."""
        write_json(Path(path), self.to_dict())

    @staticmethod
    def from_json(path: str | Path) -> SuiteReport:
        """Read what :meth:`to_json` wrote; raises :class:`ValueRangeError` for a file that is no suite's report."""
        data = read_result(path)
        with decoding(path, ValueRangeError):
            return SuiteReport.from_dict(data)

    def table(self) -> TextTable:
        """The table, one row an attack, the strongest marked, and two rows of the worst case; with :meth:`notes`."""
        about = self.report
        strongest = self.chosen.threat
        shares = self.shares
        rows, bold = list[tuple[str, ...]](), list[int]()
        # a row for each attack, with the share of the episodes on which it is the strongest
        for row in about.threats:
            name = row.threat
            bold += [len(rows)] * (name == strongest)
            text = name + " *" * (name == strongest) + f" {_OTHER_BUDGET}" * (name in self.other_budgets)
            rows.append((text, *_cells(row), share_text(shares.get(name))))
        bold.append(len(rows))
        rows.append((f"worst case: {strongest}, fresh episodes", *_cells(self.worst), ""))
        rows.append(("worst per episode (optimistic)", *_figures(self.worst_per_episode), "", "", "", ""))
        title = (
            f"{self.suite} suite: {victim_name(about.victim)} on {about.env['id']}, {self.settings.get('budget')}, "
            f"{about.episodes} episodes, seed {about.seed}"
        )
        columns = ("attack", "return", "95% interval", "median", "regret", "impact", "changed", "share")
        notes = tuple(self.notes())
        return TextTable(title, columns, tuple(rows), notes, self.warnings, bold=bold, by_importance=_BY_IMPORTANCE)

    @property
    def verdict(self) -> str:
        """The worst case, how it was chosen, and why its mean on the episodes that chose it is another."""
        row = self.worst
        chosen = self.chosen
        clean = self.fresh.threats[0]
        other = self.other_budgets.get(row.threat)
        name = f"{row.threat} ({other})" if other else row.threat
        count, over = self.report.episodes, number_text(chosen.mean_return)
        # how it was chosen: on the episodes of the table, and where these do not tell on further ones
        how = f"it is the lowest of {len(self.attacks)} means over the {count} episodes of the table, {over} there"
        if self.tie_break is not None:
            further = {tie.threat: tie.returns for tie in self._ties()}
            over = number_text(float(np.mean([*chosen.returns, *further[chosen.threat]])))
            how = f"the {count} episodes of the table do not tell {', '.join(further)} apart; with "
            how += f"{self.tie_break.episodes} more it is the lowest of them, {over} over both"
        return (
            f"worst case: {name} leaves {number_text(row.mean_return)} ({marked_interval(row)}) of "
            f"{number_text(clean.mean_return)} over {self.fresh.episodes} fresh episodes, seed {self.fresh.seed}; "
            f"{how}" + _WHY_APART * (len(self.attacks) > 1)
        )

    def notes(self) -> list[str]:
        """Notes to print below the figures: marks, the verdict, the protocol, what was left out; warnings apart."""
        left_out = {name: f"left out: {reason}" for name, reason in self.left_out.items()}
        rows = (*self.report.threats, *self.fresh.threats, self.worst_per_episode)
        return [
            *footnotes(rows),
            *self._budget_notes(),
            self.verdict,
            "worst per episode: the lowest of all attacks, which no attacker can know beforehand",
            *(f"{names}: {how}" for how, names in grouped({**self.protocol, **left_out}).items()),
        ]

    def _budget_notes(self) -> list[str]:
        """What the mark of another budget means; none where no row has it."""
        listed = "; ".join(f"{names} ({text})" for text, names in grouped(self.other_budgets).items())
        against = f"not under {self.settings.get('budget')}" if self.settings.get("within") else "under several budgets"
        return [f"{_OTHER_BUDGET} {against}, so not comparable: {listed}"] if listed else []

    def plot(self, path: str | Path) -> None:
        """Write a figure (see :meth:`adv_wrappers.Report.plot`): one line an attack and one for the worst case."""
        fresh = replace(self.worst, threat=f"worst case: {self.worst.threat}, fresh episodes")
        replace(self.report, threats=(*self.report.threats, fresh)).plot(path)


def strongest_of(report: Report, tie_break: Report | None = None) -> Row:
    """The row of the attack with the lowest mean return.

    Args:
        report: of all attacks.
        tie_break: of some of them, on as many other episodes: the lowest mean over both is sought among these.
    """
    returns = {row.threat: row.returns for row in report.threats[1:]}
    if tie_break is not None:
        returns = {row.threat: [*returns[row.threat], *row.returns] for row in tie_break.threats[1:]}
    name = min(returns, key=lambda name: float(np.mean(returns[name])))
    return next(row for row in report.threats[1:] if row.threat == name)


def close_attacks(report: Report) -> tuple[str, ...]:
    """Names of the attacks that may be the strongest: the one with the lowest mean, and those that come close to it.

    An attack comes close where the 95% interval of its paired difference from the lowest goes below zero by more than
    a twentieth of what that attack takes from the clean return. So attacks that are as good as equal are not listed,
    and neither is one that more episodes would hardly show to be stronger.
    """
    clean, *rows = report.threats
    best = strongest_of(report)
    least = _CLOSE * max(clean.mean_return - best.mean_return, 0.0)

    def may_be_lower(row: Row) -> bool:
        return mean_interval(np.subtract(row.returns, best.returns))[0] < -least

    return tuple(row.threat for row in rows if row is best or may_be_lower(row))


def _figures(row: Mapping[str, Any]) -> tuple[str, str, str]:
    return number_text(row["mean_return"]), marked_interval(row), number_text(row["median"])


def _cells(row: Row) -> tuple[str, ...]:
    """All cells of an attack, but for its share."""
    shares = (share_text(row.impact), share_text(row.action_change))
    return (*_figures(row), number_text(row.regret), *shares)
