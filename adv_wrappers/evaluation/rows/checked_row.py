"""A row of a report with its threats as objects, as the warnings need it, and how two of them compare."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adv_wrappers.core.serialization import encode
from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.errors import ThreatError
from adv_wrappers.evaluation.rows.row import Row
from adv_wrappers.evaluation.statistics.confidence_intervals import mean_interval, paired_differences
from adv_wrappers.evaluation.threat_stacks import ThreatStack


@dataclass(frozen=True)
class CheckedRow:
    """One row of a report, as the checks need it.

    Attributes:
        name: text of the threat.
        layers: the threats, innermost first, victims filled in; empty for the clean run.
        returns: of the episodes, float ``[episodes]``.
        transfer: whether the attack is aimed at another victim.
        checks: the counts of observations that the row has.
    """

    name: str
    layers: tuple[ThreatModel, ...]
    returns: NDArray[np.float64]
    transfer: bool = False
    checks: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, stack: ThreatStack, row: Row) -> CheckedRow:
        """A row and the threats that it was played under."""
        return cls(stack.name, stack.layers, np.array(row.returns, np.float64), stack.transfer, row.checks or {})

    @property
    def only(self) -> ThreatModel | None:
        """The one threat; None for the clean run and a stack."""
        return self.layers[0] if len(self.layers) == 1 else None

    @property
    def attack(self) -> ThreatModel | None:
        """The one threat, if it is one to observations."""
        return self.only if self.only is not None and self.only.on == "observation" else None

    @property
    def mean(self) -> float:
        """Of the returns."""
        return float(self.returns.mean())

    def count(self, name: str) -> int:
        """A count of observations; 0 where the row has none."""
        return int(self.checks.get(name, 0))

    def least_taken(self, of: CheckedRow) -> float:
        """The lower end of the interval of what it takes of another row's return, on the episodes of both."""
        return mean_interval(paired_differences(of.returns, self.returns))[0]

    def is_stronger(self, than: CheckedRow) -> bool:
        """Whether it leaves less than another, beyond the interval of the paired difference; one episode has none."""
        return len(self.returns) > 1 and self.least_taken(than) > 0

    def against(self, other: CheckedRow) -> str:
        """Both means, as sentences have them."""
        return f"{self.mean:.6g} against {other.mean:.6g}"


def clean_row(rows: Sequence[CheckedRow]) -> CheckedRow | None:
    """The first run without threats."""
    return next((row for row in rows if not row.layers), None)


def setting_of(threat: ThreatModel, *without: str) -> str | None:
    """A text by which the budgets, timings and keys of two threats are compared; None where one has no JSON form.

    Args:
        threat: the threat.
        *without: arguments of the budget that are left out.
    """
    try:
        budget, when = threat.budget.to_dict(), encode(threat.when)
    except ThreatError:  # a function has no JSON form: nothing to compare by
        return None
    kept = {name: value for name, value in budget.items() if name not in without}
    return json.dumps([kept, threat.at, when], sort_keys=True, default=str)
