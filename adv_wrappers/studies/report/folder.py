"""The folder of a report: which agent it is of, and what an earlier call chose and played."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from adv_wrappers.environments.environment import Environment, json_value
from adv_wrappers.errors import ValueRangeError
from adv_wrappers.evaluation.store import ROWS_FILE, Store
from adv_wrappers.studies.report.choices import read_choices
from adv_wrappers.studies.report.sections import AgentSections, AttackRow, report_of, sorted_report
from adv_wrappers.utils.files import LOCK
from adv_wrappers.victims.victim import Victim


class ReportFolder:
    """The folder of a report.

    Args:
        path: the folder.
        victim, environment, seed: whose report it is.

    Attributes:
        identity: whose report it is, as its choices say it.
        before: what an earlier call chose.
        earlier: what it played, or None.

    Raises:
        ValueRangeError: for a folder that holds something else, or the report of another agent.
    """

    def __init__(self, path: Path, victim: Victim, environment: Environment, seed: int) -> None:
        self.path, self.seed = path, seed
        self.identity = {"victim": victim.described(), "env": json_value(environment.described), "seed": seed}
        self.before = read_choices(path)
        if self.before.played and self.before.identity != self.identity:
            raise ValueRangeError(
                f"{path} holds the report of {_whose(self.before.identity)}, "
                f"not of {_whose(self.identity)}: give another folder"
            )
        if not self.before.played and path.is_dir() and any(one.name != LOCK for one in path.iterdir()):
            raise ValueRangeError(f"{path} is not empty and holds no report: give a new folder")
        self.earlier: AgentSections | None = None
        if self.before.played and (path / ROWS_FILE).is_file():
            with Store(path / ROWS_FILE, read_only=True) as store:
                found = report_of(self.before, store.reports())
            self.earlier = None if found is None else sorted_report(found, self.before)

    @property
    def swept(self) -> list[AttackRow]:
        """The rows of all features at all steps; another call may have no time for some."""
        sweeps = () if self.earlier is None else self.earlier.sweeps
        return [row for sweep in sweeps[:1] for curve in sweep.curves for row in curve.rows]


def _whose(identity: Mapping[str, Any] | None) -> str:
    about = identity or {}
    victim, env = about.get("victim") or {}, about.get("env") or {}
    return f"{victim.get('ref') or 'an agent'} in {env.get('id')} from seed {about.get('seed')}"
