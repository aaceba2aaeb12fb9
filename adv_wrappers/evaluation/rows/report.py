"""The report: what was evaluated, on what, with which seeds, and one row a threat, the clean run first."""

from __future__ import annotations

import copy
import importlib
import json
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

import numpy as np

from adv_wrappers.environments.environment import environment_text
from adv_wrappers.errors import AdvWrappersError, ValueRangeError
from adv_wrappers.evaluation.rows.row import Row
from adv_wrappers.evaluation.statistics.confidence_intervals import footnotes, marked, marked_interval
from adv_wrappers.rendering.plots import plot_returns
from adv_wrappers.rendering.table import Tabular, TextTable, plain
from adv_wrappers.threats.text import unique
from adv_wrappers.utils.files import write_json
from adv_wrappers.utils.json_schema import json_schema
from adv_wrappers.utils.number_text import number_text, share_text
from adv_wrappers.utils.reading import decoding, read_result, value_of
from adv_wrappers.utils.scalar_log import scalar_log, summary_writer
from adv_wrappers.utils.validation import Count, Positive, checked

# headers of the table, from what matters most; sampled distances matter less
BY_IMPORTANCE = (
    "threat", "return", "95% interval", "loss", "impact", "changed", "attacked", "regret", "median", "linf", "ms/step",
)  # fmt: skip

SCALARS = (
    "mean_return", "low", "high", "std", "regret", "impact", "attacked_fraction", "action_change", "mean_length", "loss"
)  # fmt: skip


class _Victim(TypedDict):
    ref: Annotated[str | None, "such as zoo:NAME"]
    fingerprint: Annotated[str, "sha256 of its weights"]
    select: Annotated[Literal["mode", "sample"], "how it acts on its distribution"]


class _Make(TypedDict, total=False):
    make: Annotated[str, "the function that made it, where that is not gymnasium.make"]


class _Env(_Make):
    id: str
    kwargs: dict[str, Any]


class _Minimum(TypedDict):
    kind: Annotated[
        Literal["fixed", "argmin-Q agent", "least likely action", "unknown"],
        "given, or that of the game's rules; or the mean return of the run worst-action, of an agent with or without Q",
    ]
    value: float | None


@dataclass(frozen=True)
class Report(Tabular):
    """Results of :func:`adv_wrappers.evaluate`.

    Its fields, with their meanings, are the entries of ``report.json``; those of :class:`.Row` are the columns of
    ``threats``.
    """

    written = ("threat", "return", "95% interval", "regret", "impact", "attacked", "changed", "loss")
    versions: Annotated[dict[str, str], "of Python and of the packages that numbers depend on"]
    seed: Annotated[Count, "the seed that was given"]
    episode_seeds: Annotated[tuple[Count, ...], "drawn from it, one an episode, the same for every threat"]
    git: Annotated[
        str | None,
        "revision of the package's sources, of the last call where rows were taken over; null outside a git repository",
    ]
    device: Annotated[str, "on which the victim computed"]
    victim: Annotated[
        dict[str, Any],
        {**json_schema(_Victim), "additionalProperties": True},
        "the agent; without a ref also the structure, a sha256 over its networks and how their outputs are read",
    ]
    env: Annotated[dict[str, Any], json_schema(_Env), "the environment"]
    episodes: Annotated[Positive, "of every threat"]
    num_envs: Annotated[Positive, "environments that were stepped at once"]
    warnings: Annotated[tuple[str, ...], "signs that a number should not be trusted"]
    threats: Annotated[tuple[Annotated[Row, "what one run measured"], ...], "one row a threat, the clean run first"]
    minimum: Annotated[dict[str, Any], json_schema(_Minimum), "the return that impact counts from"] = field(
        default_factory=lambda: {"kind": "unknown", "value": None}
    )
    quantize: Annotated[bool | None, "whether integer observations stayed integers"] = None
    measure: Annotated[str | None, "the target whose loss was measured, as text"] = None
    metrics: Annotated[tuple[str, ...], "what was counted beside the return, by name"] = ()
    by: Annotated[Literal["return", "loss"], "what the best of several draws was chosen by"] = "return"

    def to_dict(self) -> dict[str, Any]:
        """Everything, as values that JSON knows."""
        data = asdict(self)
        return {**data, **{key: list(data[key]) for key in ("episode_seeds", "warnings", "threats", "metrics")}}

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Report:
        """Inverse of :meth:`to_dict`; raises :class:`ValueRangeError` for a dictionary of another form.

        Entries that have a default may be missing.
        """
        with decoding("a report", ValueRangeError):
            rows = data.get("threats")
            threats = tuple(map(Row.from_dict, rows)) if isinstance(rows, list) else rows
            report: Report = value_of(Report, {**data, "threats": threats})
            if {*report.minimum} != {"kind", "value"}:
                raise ValueRangeError("expected a minimum with its kind and value")
        return report

    def to_json(self, path: str | Path) -> None:
        """Write :meth:`to_dict` as JSON: all of it, or nothing (a file beside it takes its place at the end)."""
        write_json(Path(path), self.to_dict())

    @staticmethod
    def from_json(path: str | Path) -> Report:
        """Read what :meth:`to_json` wrote; raises :class:`ValueRangeError` for a file that is no report."""
        data = read_result(path)
        with decoding(path, ValueRangeError):
            return Report.from_dict(data)

    @staticmethod
    def json_schema() -> dict[str, Any]:
        """The JSON schema (draft 2020-12) of what :meth:`to_json` writes, also in ``docs/report.schema.json``.

        It is that of this release: :meth:`from_json` also reads reports of older ones, which lack some columns.
        """
        return {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": "report.json of adv_wrappers",
            "description": "what adv_wrappers.evaluate found",
            **copy.deepcopy(json_schema(Report)),
        }

    def to_dataframe(self, long: bool = False) -> Any:
        """A pandas ``DataFrame`` with one row a threat, in which every distance is a column of its own.

        Args:
            long: one row for every draw of every episode of every threat instead, for statistics and plots of one's
                own. The columns are ``threat``, ``eps`` (0 for the clean run, NaN where a budget has none), ``attack``
                (the threat's text without its eps), ``episode`` and ``draw`` (both from 0), ``episode_seed``,
                ``return``, ``length`` and ``attacked_fraction`` (of draws that are not the best NaN), ``loss``,
                ``victim``, ``env`` and ``seed``.

        Raises:
            AdvWrappersError: where pandas is missing.
        """
        pandas = pandas_module()
        if long:
            figures = dict.fromkeys(("eps", "length", "attacked_fraction", "loss"), "float64")  # None is NaN
            return pandas.DataFrame(self._long_rows()).astype(figures)
        return pandas.DataFrame([{**row.to_dict(), **row.distances} for row in self.threats]).drop(columns="distances")

    def _long_rows(self) -> list[dict[str, Any]]:
        """One row for every draw of every episode of every threat."""
        shared = {"victim": victim_name(self.victim), "env": environment_text(self.env), "seed": self.seed}
        found = []
        for row in self.threats:
            names = {"threat": row.threat, "eps": row.eps, "attack": row.attack()}
            # returns and losses by draw and episode, and the draw that counts
            returns = np.atleast_2d(row.returns if row.draws is None else row.draws["returns"])
            listed = row.losses if row.draws is None else row.draws["losses"]
            losses = None if listed is None else np.atleast_2d(listed)
            best = (losses if losses is not None and self.by == "loss" else returns).argmin(0)
            for draw, e in np.ndindex(*returns.shape):
                counted = best[e] == draw
                found.append(
                    {
                        **names,
                        "episode": e,
                        "episode_seed": self.episode_seeds[e],
                        "draw": draw,
                        "return": float(returns[draw, e]),
                        "length": row.lengths[e] if counted else None,
                        "attacked_fraction": row.attacked_fractions[e] if counted and row.attacked_fractions else None,
                        "loss": None if losses is None else float(losses[draw, e]),
                        **shared,
                    }
                )
        return found

    def table(self) -> TextTable:
        """The table, one row a threat, with the first two of the distances that were sampled.

        It does not have every column: :meth:`to_dict` does. ``table().fitted(80)`` has room in 80 columns of a
        terminal.
        """
        sampled = list(dict.fromkeys(k for row in self.threats for k, v in row.distances.items() if v is not None))[:2]
        # columns that every report has, and those of what was measured beside
        columns = ["threat", "return", "95% interval", "median", "regret", "impact", "attacked", "changed", "linf"]
        columns += ["loss"] if self.measure is not None else []
        columns += self.metrics
        rows = [
            (
                row.label,
                number_text(row.mean_return),
                marked_interval(row),
                *(number_text(row.get(key)) for key in ("median", "regret")),
                *(share_text(row.get(key)) for key in ("impact", "attacked_fraction", "action_change")),
                number_text(row.linf),
                *([number_text(row.loss)] if self.measure is not None else []),
                *(metric_text(row, name) for name in self.metrics),
                *(number_text(row.distances.get(key)) for key in sampled),
                number_text(row.ms_per_step),
            )
            for row in self.threats
        ]
        # in a narrow terminal the less important columns are left out
        title = f"{victim_name(self.victim)} on {self.env['id']}, {self.episodes} episodes, seed {self.seed}"
        notes, every = tuple(self.footnotes()), (*columns, *sampled, "ms/step")
        important = (*BY_IMPORTANCE[:3], *self.metrics, *BY_IMPORTANCE[3:])
        return TextTable(title, every, tuple(rows), notes, self.warnings, by_importance=important)

    @checked
    def log(self, log: object, step: Count = 0) -> None:
        """Write numbers of every threat, such as ``mean_return/pgd:eps=0.1`` and ``regret/...``, and the table.

        Reports of several checkpoints of one training, each with its step, become curves.

        Args:
            log: a folder, into which a new file of events for TensorBoard is written; a ``SummaryWriter`` of torch; a
                run of Weights & Biases, as ``wandb.init()`` makes it, where the steps are ``global_step``; or one of
                MLflow, as ``mlflow.start_run()`` makes it, where letters that its names cannot have become ``_``.
            step: of the training, 0 or more.

        Raises:
            AdvWrappersError: for a folder, where tensorboard is missing.
            ValueRangeError: for a step below 0, and any other log.
            OutputError: for a folder that cannot be written to.
        """
        if isinstance(log, (str, Path)):
            with summary_writer(log) as writer:
                self.log(writer, step)
            return
        # one number for each column and threat that has it
        names = unique(plain(row.label) for row in self.threats)
        values: dict[str, float | str] = {
            f"{column}/{name}": row[column]
            for name, row in zip(names, self.threats, strict=True)
            for column in SCALARS
            if row.get(column) is not None
        }
        scalar_log(log)({**values, "report": self.to_markdown()}, step)

    def to_tensorboard(self, folder: str | Path, step: int = 0) -> None:
        """:meth:`log` by the name that it had before 0.3."""
        warnings.warn("to_tensorboard(folder, step) is now log(folder, step)", DeprecationWarning, stacklevel=2)
        self.log(folder, step)

    def to_model_index(self, name: str | None = None) -> str:
        """The ``model-index`` of a model card of the Hugging Face Hub, as YAML between the card's two ``---``.

        As agents of Stable-Baselines3 are shared (huggingface_sb3): the task is reinforcement-learning, the dataset the
        environment, and a value reads ``500.00 +/- 0.00``, mean and standard deviation. The clean run has the type
        ``mean_reward`` and comes first, as leaderboards expect; attacked runs have ``attacked_mean_reward``, and the
        threat, the episodes and the seed in ``args``.

        Args:
            name: of the model; None takes the victim's reference.

        Raises:
            ValueRangeError: for a report without rows.
        """
        if not self.threats:
            raise ValueRangeError("a model index needs a report with at least one row")
        # every row as a metric, in the form that the Hub reads
        metrics = []
        for place, row in enumerate(self.threats):
            label = row.label
            metrics += [
                f"    - type: {'attacked_mean_reward' if place else 'mean_reward'}",
                f"      value: {row.mean_return:.2f} +/- {row.std:.2f}",
                f"      name: {yaml_text(f'mean_reward under {label}' if place else 'mean_reward')}",
                "      verified: false",
                f"      args: {{threat: {yaml_text(label)}, episodes: {self.episodes}, seed: {self.seed}}}",
            ]
        return "\n".join(
            [
                "model-index:",
                f"- name: {yaml_text(victim_name(self.victim) if name is None else name)}",
                "  results:",
                "  - task:",
                "      type: reinforcement-learning",
                "      name: reinforcement-learning",
                "    dataset:",
                f"      name: {yaml_text(environment_text(self.env))}",
                f"      type: {yaml_text(str(self.env['id']))}",
                "    metrics:",
                *metrics,
                "",
            ]
        )

    def footnotes(self) -> list[str]:
        """What the marks of the table mean; none where nothing is marked."""
        return footnotes(self.threats)

    def plot(self, path: str | Path) -> None:
        """Write a figure of the returns: means with their intervals, episodes behind them, the clean mean as a line.

        The file's name says what it is, ``.png``, ``.svg`` or ``.pdf``; :class:`ValueRangeError` for another.
        """
        labels = unique("no attack" if row.threat == "none" else row.label for row in self.threats)
        rows = {marked(label, row): row for label, row in zip(labels, self.threats, strict=True)}
        title = f"{self.victim.get('ref') or 'victim'} on {self.env['id']}"
        axis = f"return of an episode (mean and 95% interval, {self.episodes} episodes)"
        plot_returns(rows, path, title, [axis, *self.footnotes()])


def pandas_module() -> Any:
    """The package pandas; raises :class:`AdvWrappersError` where it is missing."""
    try:
        return importlib.import_module("pandas")
    except ImportError as error:
        raise AdvWrappersError("to_dataframe needs pandas: pip install pandas") from error


def metric_text(row: Row, name: str) -> str:
    """What a table has of a metric: its rate or mean; a dash for a row without it."""
    if name not in row.metrics:
        return "-"
    found = row.metric(name)
    return share_text(found.mean) if found.is_rate else number_text(found.mean)


def victim_name(victim: Mapping[str, Any]) -> str:
    """The victim of a report: its reference, or the first digits of the hash of its weights."""
    return str(victim.get("ref") or str(victim.get("fingerprint") or "victim")[:8])


def victim_text(about: Mapping[str, Any], *more: str) -> str:
    """The victim of a report with whatever is not as usual, and with what else is to be said of it."""
    how = [*more, *(["sampled actions"] if about["victim"].get("select") == "sample" else [])]
    how += ["float observations"] if about.get("quantize") is False else []
    return f"{victim_name(about['victim'])} ({', '.join(how)})" if how else victim_name(about["victim"])


def yaml_text(text: str) -> str:
    r"""A text as a double-quoted scalar of YAML 1.2: never another type, and never more than a text.

    >>> yaml_text('no: "1"')
    '"no: \\"1\\""'
    """
    quoted = json.dumps(plain(text), ensure_ascii=False)
    return "".join(letter if letter.isprintable() else f"\\U{ord(letter):08x}" for letter in quoted)
