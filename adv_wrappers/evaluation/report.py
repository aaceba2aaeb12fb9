"""The report: what was evaluated, on what, with which seeds, and one row a threat that starts with the clean run."""

from __future__ import annotations

import importlib
import importlib.metadata
import io
import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from adv_wrappers.core.errors import AdvWrappersError, ValueRangeError


@dataclass(frozen=True)
class Report:
    """Results of :func:`adv_wrappers.evaluate`.

    Attributes:
        versions: of Python and of the packages that numbers depend on.
        seed: the one given; ``episode_seeds`` are those drawn from it, one an episode, the same for every threat.
        git: revision of this package's sources, or None outside a git repository.
        device: where the victim computed.
        victim: ``ref``, ``fingerprint`` (sha256 of the weights) and ``select``.
        env: ``id`` and ``kwargs``.
        episodes, num_envs: per threat, and side by side.
        warnings: signs that a number should not be trusted.
        threats: rows, the clean run first. Each holds ``threat`` (text), ``layers`` (dictionaries, where they have a
            JSON form), ``transfer`` (whether the attack looks at another victim), ``mean_return`` with its 95%
            bootstrap interval ``low`` and ``high``, ``std``, ``median``, ``min``, ``max``, ``regret``, ``impact``,
            ``attacked_fraction`` (of all steps), ``action_change`` (of the attacked steps: the environment was told
            something else than the agent would do on the true observation; a continuous action by at least 5% of its
            range), ``l2`` and ``linf`` (mean distance over the attacked steps, of observations, or of continuous
            actions where those alone are attacked, in the units of the environment), ``ms_per_step`` (wall clock, of
            one environment), ``episodes``, ``mean_length``, ``returns`` and ``lengths``.
    """

    versions: dict[str, str]
    seed: int
    episode_seeds: tuple[int, ...]
    git: str | None
    device: str
    victim: dict[str, Any]
    env: dict[str, Any]
    episodes: int
    num_envs: int
    warnings: tuple[str, ...]
    threats: tuple[dict[str, Any], ...]

    def to_dict(self) -> dict[str, Any]:
        """Everything, as values that JSON knows."""
        data = asdict(self)
        return {**data, **{key: list(data[key]) for key in ("episode_seeds", "warnings", "threats")}}

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Report:
        """Inverse of :meth:`to_dict`; raises :class:`ValueRangeError` for a dictionary of another form."""
        names = [f.name for f in fields(Report)]
        if not isinstance(data, Mapping) or sorted(data) != sorted(names):
            raise ValueRangeError(f"expected a report with {', '.join(names)}, got {data!r:.200}")
        rows = data["threats"]
        if not isinstance(rows, (list, tuple)) or not all(isinstance(r, Mapping) and "mean_return" in r for r in rows):
            raise ValueRangeError(f"the threats of a report are a list of rows with mean_return, got {rows!r:.200}")
        made = {**data, **{key: tuple(data[key]) for key in ("episode_seeds", "warnings")}}
        return Report(**{**made, "threats": tuple(dict(row) for row in rows)})

    def to_json(self, path: str | Path) -> None:
        """Write :meth:`to_dict` as JSON: all of it, or nothing (a file beside it takes its place at the end)."""
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            with beside.open("w", encoding="utf-8") as file:
                json.dump(self.to_dict(), file, indent=1, allow_nan=False)
                file.flush()
                os.fsync(file.fileno())
            os.replace(beside, path)
        finally:
            beside.unlink(missing_ok=True)

    @staticmethod
    def from_json(path: str | Path) -> Report:
        """Read what :meth:`to_json` wrote; raises :class:`ValueRangeError` for a file that is no report."""
        try:
            return Report.from_dict(json.loads(Path(path).read_text(encoding="utf-8")))
        except (OSError, ValueError) as error:
            raise ValueRangeError(f"cannot read a report from {path}: {error}") from error

    def to_dataframe(self) -> Any:
        """A pandas ``DataFrame`` with one row a threat; raises :class:`AdvWrappersError` where pandas is missing."""
        try:
            pandas = importlib.import_module("pandas")
        except ImportError as error:
            raise AdvWrappersError("to_dataframe needs pandas: pip install pandas") from error
        return pandas.DataFrame([dict(row) for row in self.threats])

    def table(self) -> Table:
        """A rich table, one row a threat (not every column of it: ``to_dict`` has them all); warnings are below it."""
        about = f"{self.victim.get('ref') or 'victim'} on {self.env['id']}, {self.episodes} episodes, seed {self.seed}"
        table = Table(title=escape(about), caption=escape("\n".join(self.warnings)) or None, box=box.SIMPLE_HEAD)
        table.title_style, table.title_justify = "bold", "left"
        table.caption_style, table.caption_justify = "yellow", "left"
        table.add_column("threat", overflow="fold", min_width=12)
        for name in ("return", "95% interval", "median", "regret", "impact", "attacked", "changed", "linf", "ms/step"):
            table.add_column(name, justify="right", no_wrap=True)
        for row in self.threats:
            table.add_row(
                escape(str(row["threat"])) + (" (transfer)" if row.get("transfer") else ""),
                number(row["mean_return"]), f"{number(row['low'])} .. {number(row['high'])}",
                *(number(row.get(key)) for key in ("median", "regret")),
                *(share(row.get(key)) for key in ("impact", "attacked_fraction", "action_change")),
                *(number(row.get(key)) for key in ("linf", "ms_per_step")),
            )  # fmt: skip
        return table

    def __str__(self) -> str:
        """The table and the warnings as plain text."""
        table = self.table()
        table.caption = None
        text = io.StringIO()
        Console(file=text, width=160, color_system=None).print(table)
        lines = [line.rstrip() for line in text.getvalue().splitlines()]
        return "\n".join([*lines, *(f"warning: {warning}" for warning in self.warnings)]).rstrip()

    def plot(self, path: str | Path) -> None:
        """Write a PNG of the returns: means with their intervals, episodes behind them, the clean mean as a line."""
        from adv_wrappers.evaluation.figure import draw

        draw(self, path)


def number(value: float | None) -> str:
    """A number of a table: four digits that matter, and a dash where there is none."""
    if value is None:
        return "-"
    return f"{value:.1f}" if abs(value) >= 100 else f"{value:.3g}"


def share(value: float | None) -> str:
    """A share of a table, as a percentage."""
    return "-" if value is None else f"{100 * value:.0f}%"


def versions() -> dict[str, str]:
    """Versions of Python, this package and those that numbers depend on; packages that are missing are left out."""
    root = sys.modules[__name__.partition(".")[0]]
    found = {"python": platform.python_version(), "adv_wrappers": str(getattr(root, "__version__", "unknown"))}
    for name in ("gymnasium", "torch", "numpy", "mujoco", "ale-py", "opencv-python"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def revision() -> str | None:
    """Git revision of this package's sources; None where git does not know this very file (an installed copy)."""
    here = Path(__file__)
    how: dict[str, Any] = {"cwd": here.parent, "capture_output": True, "text": True, "timeout": 10}
    try:
        for arguments in (["ls-files", "--error-unmatch", here.name], ["rev-parse", "HEAD"]):
            done = subprocess.run(["git", *arguments], check=True, **how)
    except (OSError, subprocess.SubprocessError):
        return None
    return str(done.stdout).strip() or None
