"""The report: what was evaluated, on what, with which seeds, and one row a threat that starts with the clean run.

A row holds what one run measured, and what that means beside the clean run and the lowest return.
"""

from __future__ import annotations

import copy
import importlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from adv_wrappers.errors import AdvWrappersError, ValueRangeError
from adv_wrappers.evaluation import statistics
from adv_wrappers.evaluation.best_of import EpisodeDraws
from adv_wrappers.evaluation.run_monitor import Distance, ObservationSample
from adv_wrappers.evaluation.statistics import KnownRange, ReportRow, footnotes, marked
from adv_wrappers.evaluation.tables import (
    LONG_COLUMNS,
    long_rows,
    model_index,
    row_label,
    victim_name,
    write_tensorboard,
)
from adv_wrappers.evaluation.threat_stacks import WORST, ThreatStack, json_form
from adv_wrappers.evaluation.warning_counts import CheckedRow
from adv_wrappers.rendering.plots import plot_returns
from adv_wrappers.rendering.text_table import Tabular, TextTable
from adv_wrappers.threats.text import unique
from adv_wrappers.utils.checks import finite_float
from adv_wrappers.utils.files import write
from adv_wrappers.utils.reading import decoding, read_result, value_of
from adv_wrappers.victims.victim import Victim

# ----------------------------------------------------------------------------------------------------------------------
# The JSON schema of ``report.json``, by which programs in any language can check what they read (draft 2020-12).
# ----------------------------------------------------------------------------------------------------------------------


JsonSchema = dict[str, Any]


def _described(about: str, **schema: Any) -> JsonSchema:
    return {"description": about, **schema}


def _number(about: str, **limits: float) -> JsonSchema:
    return _described(about, type="number", **limits)


def _number_or_null(about: str, **limits: float) -> JsonSchema:
    return _described(about, type=["number", "null"], **limits)


def _count(about: str, least: int = 0) -> JsonSchema:
    return _described(about, type="integer", minimum=least)


def _list(of: JsonSchema, about: str) -> JsonSchema:
    return _described(about, type="array", items=of)


def _list_or_null(of: JsonSchema, about: str) -> JsonSchema:
    return _described(about, type=["array", "null"], items=of)


def _object(properties: Mapping[str, JsonSchema], about: str, *, required: bool = True, more: bool) -> JsonSchema:
    needed = {"required": [*properties]} if required else {}
    return _described(about, type="object", properties=dict(properties), **needed, additionalProperties=more)


_ANY_NUMBER = {"type": "number"}
_SHARE = {"minimum": 0.0, "maximum": 1.0}
_ROW: dict[str, JsonSchema] = {
    "threat": _described("the threat as text, none for the run without one", type="string"),
    "mean_return": _number("mean return over the episodes"),
    "low": _number("lower end of its 95% interval"),
    "high": _number("upper end of its 95% interval"),
    "caveat": _described("why low and high are not a 95% interval", type=["string", "null"]),
    "std": _number("standard deviation of the sample of returns", minimum=0.0),
    "median": _number("of the returns"),
    "min": _number("of the returns"),
    "max": _number("of the returns"),
    "regret": _number("clean mean return minus this one"),
    "impact": _number_or_null("regret as a share of what can be lost, counted from minimum"),
    "general_impact": _number_or_null("the same, counted from the lowest return that the rules of the game allow"),
    "attacked_fraction": _number("share of all steps at which any layer attacked", **_SHARE),
    "e_adv": _number("mean over the episodes of the attacked share of an episode", **_SHARE),
    "e_adv_std": _number("its standard deviation over the episodes", minimum=0.0),
    "action_change": _number_or_null("share of the attacked steps at which the action was another", **_SHARE),
    "l2": _number_or_null("mean Euclidean distance of the attacked steps", minimum=0.0),
    "linf": _number_or_null("mean largest distance of the attacked steps", minimum=0.0),
    "distances": _described(
        "mean of every other distance, by its name", type="object", additionalProperties={"type": ["number", "null"]}
    ),
    "distance_images": _count("observations over which distances are means"),
    "ms_per_step": _number("milliseconds of wall clock for a step of one environment", minimum=0.0),
    "episodes": _count("number of episodes", 1),
    "mean_length": _number("mean number of steps of an episode", minimum=0.0),
    "transfer": _described("whether the attack is aimed at another victim", type="boolean"),
    "layers": _list(
        {"type": ["object", "null"]}, "the threats, innermost first; null where one has no JSON form; none if clean"
    ),
    "returns": _list(_ANY_NUMBER, "of every episode"),
    "lengths": _list({"type": "integer", "minimum": 0}, "steps of every episode"),
    "attacked_fractions": _list({"type": "number", **_SHARE}, "attacked share of every episode"),
    "loss": _number_or_null("mean over the episodes of the total loss of states"),
    "loss_std": _number_or_null("its standard deviation over the episodes", minimum=0.0),
    "losses": _list_or_null(_ANY_NUMBER, "of every episode"),
    "best_of": _count("draws of every episode, of which the best counts", 1),
    "draws": {
        "description": "returns and losses of every draw (outer) of every episode (inner); null for one draw",
        "type": ["object", "null"],
        "properties": {
            "returns": _list({"type": "array", "items": _ANY_NUMBER}, "by draw"),
            "losses": _list_or_null({"type": "array", "items": _ANY_NUMBER}, "by draw"),
        },
        "required": ["returns", "losses"],
        "additionalProperties": False,
    },
    "checks": _object(
        {
            **{name: {"type": "integer", "minimum": 0} for name in ("attacked", "unchanged")},
            **{name: {"type": "integer", "minimum": 0} for name in ("gradients", "zero_gradients")},
            **{name: {"type": "boolean"} for name in ("integers", "alike")},
            **{name: {"type": "integer", "minimum": 0} for name in ("asked_twice", "unequal_answers")},
        },
        "counts of observations, which warnings are made of; and unrepeated and outside, sentences of the environment",
        more=True,
    ),
}
_REPORT: dict[str, JsonSchema] = {
    "versions": _described("of Python and of packages", type="object", additionalProperties={"type": "string"}),
    "seed": _count("the seed that was given"),
    "episode_seeds": _list({"type": "integer", "minimum": 0}, "drawn from it, one an episode"),
    "git": _described("revision of the package's sources", type=["string", "null"]),
    "device": _described("on which the victim computed", type="string"),
    "victim": _object(
        {
            "ref": _described("such as zoo:NAME", type=["string", "null"]),
            "fingerprint": _described("sha256 of its weights", type="string"),
            "select": _described("how it acts on its distribution", enum=["mode", "sample"]),
        },
        "the agent",
        more=True,
    ),
    "env": {
        "description": "the environment",
        "type": "object",
        "properties": {
            "id": {"type": "string"},
            "kwargs": {"type": "object"},
            "make": _described("the function that made it, where that is not gymnasium.make", type="string"),
        },
        "required": ["id", "kwargs"],
        "additionalProperties": False,
    },
    "episodes": _count("of every threat", 1),
    "num_envs": _count("environments that were stepped at once", 1),
    "warnings": _list({"type": "string"}, "signs that a number should not be trusted"),
    "threats": _described(
        "one row a threat, the clean run first",
        type="array",
        items=_object(_ROW, "what one run measured", more=True),
    ),
    "minimum": _object(
        {
            "kind": _described("what it is", enum=["fixed", "argmin-Q agent", "least likely action", "unknown"]),
            "value": {"type": ["number", "null"]},
        },
        "the return that impact counts from",
        more=False,
    ),
    "quantize": _described("whether integer observations stayed integers", type=["boolean", "null"]),
    "measure": _described("the target whose loss was measured, as text", type=["string", "null"]),
    "by": _described("what the best of several draws was chosen by", enum=["return", "loss"]),
}
REPORT_SCHEMA: JsonSchema = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "report.json of adv_wrappers",
    **_object(_REPORT, "what adv_wrappers.evaluate found", more=False),
}


Row = dict[str, Any]  # columns of one run, values that JSON knows
COLUMNS = (*_ROW,)
# headers of the table, from what matters most; sampled distances matter less
BY_IMPORTANCE = (
    "threat", "return", "95% interval", "loss", "impact", "changed", "attacked", "regret", "median", "linf", "ms/step",
)  # fmt: skip


def measured_row(
    stack: ThreatStack,
    draws: EpisodeDraws,
    sample: ObservationSample | None,
    distances: Mapping[str, Distance],
    known: KnownRange = (None, None),
) -> Row:
    """The columns that one run decides; those that depend on other runs are None (see :func:`compared`).

    Args:
        stack: the threats.
        draws: what was played.
        sample: the observations that were sampled.
        distances: those that are measured of them.
        known: the range of returns, at which the interval is cut.
    """
    run, best = draws.run, draws.best
    returns, lengths = run.returns[best], run.lengths[best]
    fractions = run.attacked_steps[best] / lengths
    losses = None if run.losses is None else run.losses[best]
    return {
        "threat": stack.name,
        **statistics.summary(returns, known),
        "caveat": statistics.caveat(returns),
        "regret": None,
        "impact": None,
        "general_impact": None,
        "attacked_fraction": run.attacked / run.steps,
        "e_adv": float(fractions.mean()),
        "e_adv_std": float(fractions.std(ddof=1)) if len(fractions) > 1 else 0.0,
        "action_change": run.changed_actions / run.attacked if run.attacked else None,
        "l2": run.l2 / run.compared if run.compared else None,
        "linf": run.linf / run.compared if run.compared else None,
        "distances": sample.means(distances) if sample is not None else {},
        "distance_images": len(sample) if sample is not None else 0,
        "ms_per_step": 1000 * run.seconds / run.steps,
        "episodes": len(returns),
        "mean_length": float(lengths.mean()),
        "transfer": stack.transfer,
        "layers": [json_form(threat) for threat in stack.layers],
        "returns": returns.tolist(),
        "lengths": lengths.tolist(),
        "attacked_fractions": fractions.tolist(),
        "loss": None if losses is None else float(losses.mean()),
        "loss_std": None if losses is None else float(losses.std(ddof=1)) if len(losses) > 1 else 0.0,
        "losses": None if losses is None else losses.tolist(),
        "best_of": draws.count,
        "draws": draws.all_of_them(),
        "checks": {
            "attacked": run.compared,
            "unchanged": run.unchanged,
            "gradients": run.gradients,
            "zero_gradients": run.zero_gradients,
            "integers": run.integers,
            "alike": draws.alike,
            "asked_twice": run.asked_twice,
            "unequal_answers": run.unequal_answers,
            **{name: text for name, text in (("unrepeated", run.unrepeated), ("outside", run.outside)) if text},
        },
    }


def checked_row(stack: ThreatStack, row: Row) -> CheckedRow:
    """A run and its :func:`measured_row`, as the checks need them."""
    returns = np.array(row["returns"], np.float64)
    checks = {name: value for name, value in row["checks"].items() if name != "flipped"}  # of earlier releases
    return CheckedRow(stack.name, stack.layers, returns, transfer=stack.transfer, **checks)


def compared(
    rows: Sequence[Row], lowest: float | None, fixed: float | None, known: KnownRange = (None, None)
) -> tuple[Row, ...]:
    """The rows, the clean one first, with ``regret``, ``impact`` and ``general_impact``.

    Args:
        rows: the rows of :func:`measured_row`.
        lowest: the return that ``impact`` counts from; None where it is not known (yet).
        fixed: the one that ``general_impact`` counts from.
        known: the range of returns, at which intervals are cut: rows of an older release are not.
    """
    means = [_mean_of_first(rows[0], row["episodes"]) for row in rows]
    ends = [statistics.cut((row["low"], row["high"]), row["mean_return"], known) for row in rows]
    return tuple(
        {
            **row,
            "low": low,
            "high": high,
            "regret": statistics.regret(clean, row["mean_return"]),  # on the episodes that the row holds
            "impact": statistics.impact(clean, row["mean_return"], lowest),
            "general_impact": statistics.impact(clean, row["mean_return"], fixed),
        }
        for row, clean, (low, high) in zip(rows, means, ends, strict=True)
    )


def _mean_of_first(row: Row, count: int) -> float:
    """The mean return over the first episodes of a row."""
    whole: float = row["mean_return"]
    return whole if count >= row["episodes"] else float(np.mean(row["returns"][:count]))


def check_minimum(minimum: object) -> None:
    """Raise :class:`ValueRangeError` unless this is None, a finite return or ``"worst-action"``."""
    plain = minimum.item() if isinstance(minimum, (np.integer, np.floating)) else minimum
    if not (minimum is None or (isinstance(minimum, str) and minimum == WORST) or finite_float(plain) is not None):
        raise ValueRangeError(f"minimum must be a finite return, {WORST!r} or None, got {minimum!r}")


def describe_minimum(minimum: float | str | None, victim: Victim, lowest: float | None) -> dict[str, Any]:
    """What a report says of the return that ``impact`` counts from: its ``kind`` and ``value``."""
    if isinstance(minimum, str):
        kind = "argmin-Q agent" if victim.has_q else "least likely action"
    else:
        kind = "unknown" if lowest is None else "fixed"
    return {"kind": kind, "value": None if lowest is None else float(lowest)}


@dataclass(frozen=True)
class Report(Tabular):
    """Results of :func:`adv_wrappers.evaluate`.

    Attributes:
        versions: the versions of Python and of the packages that numbers depend on.
        seed: the seed that was given.
        episode_seeds: the seeds drawn from it, one an episode, the same for every threat.
        git: the revision of this package's sources (of the last call, where rows were taken over); None outside a git
            repository.
        device: the device on which the victim computed.
        victim: ``ref``, ``fingerprint`` (sha256 of the weights) and ``select``; without a ref ``structure`` too, a
            sha256 over its networks and how their outputs are read.
        env: ``id`` and ``kwargs``, and ``make`` where another function than Gymnasium's made it.
        episodes: the number of episodes of every threat.
        num_envs: the number of environments that were stepped at once.
        warnings: signs that a number should not be trusted.
        threats: the rows, the clean run first. Each holds ``threat`` (text), ``layers`` (dictionaries, where they have
            a JSON form), ``transfer`` (whether the attack is aimed at another victim), ``mean_return`` with its 95%
            interval ``low`` and ``high``, ``caveat`` (a sentence where that is none, see
            :func:`~adv_wrappers.evaluation.statistics.caveat`, or None), ``std``, ``median``, ``min``, ``max``,
            ``regret``, ``impact`` (counted from ``minimum``) and ``general_impact`` (from the lowest return that the
            rules of a game allow), ``attacked_fraction`` (of all steps), ``e_adv`` and ``e_adv_std`` (mean and
            deviation over the episodes of the attacked share of an episode), ``action_change`` (of the attacked steps:
            the environment received another action than the agent would take on the true observation; a continuous
            action by at least 5% of its range), ``l2`` and ``linf``
            (mean distance over the attacked steps, of observations, or of continuous actions where those alone are
            attacked, in the units of the environment), ``distances`` (by name, the mean of every other distance over
            a sample of ``distance_images`` attacked steps, where it is finite; None where there is none),
            ``ms_per_step`` (wall clock, of one environment), ``episodes``, ``mean_length``, per episode ``returns``,
            ``lengths`` and ``attacked_fractions``, where the loss of states was measured ``losses`` with their mean
            ``loss`` and deviation ``loss_std`` (else None), ``best_of`` (draws of every episode, of which the best
            counts; what is averaged over attacked steps is of all draws), ``draws`` (the ``returns`` and ``losses`` of
            every draw of every episode, where there are several), and ``checks`` (the counts of observations that
            warnings are made of: ``attacked``, ``unchanged``, ``gradients``, ``zero_gradients``, ``integers``,
            ``asked_twice``, ``unequal_answers``; ``alike``, whether two draws of every episode were;
            and, where there is something to say of the environment, the sentences ``unrepeated`` and ``outside``).
        minimum: the return that ``impact`` counts from: its ``value``, or None, and its ``kind``: ``"fixed"`` (given,
            or that of the game's rules), ``"argmin-Q agent"`` or ``"least likely action"`` (the mean return of the
            run ``worst-action``, of an agent with or without Q), or ``"unknown"``.
        quantize: whether integer observations stayed integers; None in reports of older releases.
        measure: the text of the target whose loss was measured, or None.
        by: what the best of several draws was chosen by, ``"return"`` or ``"loss"``.
    """

    written = ("threat", "return", "95% interval", "regret", "impact", "attacked", "changed", "loss")
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
    threats: tuple[Row, ...]
    minimum: dict[str, Any] = field(default_factory=lambda: {"kind": "unknown", "value": None})
    quantize: bool | None = None
    measure: str | None = None
    by: str = "return"

    def to_dict(self) -> dict[str, Any]:
        """Everything, as values that JSON knows."""
        data = asdict(self)
        return {**data, **{key: list(data[key]) for key in ("episode_seeds", "warnings", "threats")}}

    @staticmethod
    def from_dict(data: ReportRow) -> Report:
        """Inverse of :meth:`to_dict`; raises :class:`ValueRangeError` for a dictionary of another form.

        Entries that have a default may be missing.
        """
        with decoding("a report", ValueRangeError):
            report: Report = value_of(Report, data)
            if {*report.minimum} != {"kind", "value"} or not all("mean_return" in row for row in report.threats):
                raise ValueRangeError("expected a minimum with its kind and value, and threats with their mean_return")
        return report

    def to_json(self, path: str | Path) -> None:
        """Write :meth:`to_dict` as JSON: all of it, or nothing (a file beside it takes its place at the end)."""
        write(Path(path), json.dumps(self.to_dict(), indent=1, allow_nan=False).encode())

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
        return copy.deepcopy(REPORT_SCHEMA)

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
        try:
            pandas = importlib.import_module("pandas")
        except ImportError as error:
            raise AdvWrappersError("to_dataframe needs pandas: pip install pandas") from error
        if long:
            figures = dict.fromkeys(("eps", "length", "attacked_fraction", "loss"), "float64")  # None is NaN
            return pandas.DataFrame(long_rows(self.to_dict()), columns=[*LONG_COLUMNS]).astype(figures)
        flat = [{k: v for k, v in row.items() if k != "distances"} for row in self.threats]
        return pandas.DataFrame([{**new, **_sampled(row)} for new, row in zip(flat, self.threats, strict=True)])

    def table(self) -> TextTable:
        """The table, one row a threat, with the first two of the distances that were sampled.

        It does not have every column: :meth:`to_dict` does. ``table().fitted(80)`` has room in 80 columns of a
        terminal.
        """
        sampled = list(dict.fromkeys(k for row in self.threats for k, v in _sampled(row).items() if v is not None))[:2]
        columns = ["threat", "return", "95% interval", "median", "regret", "impact", "attacked", "changed", "linf"]
        columns += ["loss"] if self.measure is not None else []
        rows = [
            (
                row_label(row),
                number_text(row["mean_return"]),
                interval_text(row),
                *(number_text(row.get(key)) for key in ("median", "regret")),
                *(share_text(row.get(key)) for key in ("impact", "attacked_fraction", "action_change")),
                number_text(row.get("linf")),
                *([number_text(row.get("loss"))] if self.measure is not None else []),
                *(number_text(_sampled(row).get(key)) for key in sampled),
                number_text(row.get("ms_per_step")),
            )
            for row in self.threats
        ]
        title = f"{victim_name(self.victim)} on {self.env['id']}, {self.episodes} episodes, seed {self.seed}"
        notes, every = tuple(self.footnotes()), (*columns, *sampled, "ms/step")
        return TextTable(title, every, tuple(rows), notes, self.warnings, by_importance=BY_IMPORTANCE)

    def to_tensorboard(self, folder: str | Path, step: int = 0) -> None:
        """Write scalars of every threat for TensorBoard: ``mean_return/pgd:eps=0.1``, ``regret/...``, and the table.

        Reports of several checkpoints of one training, each with its step, become curves.

        Args:
            folder: of the run, into which a new file of events is written.
            step: of the training, 0 or more.

        Raises:
            AdvWrappersError: where tensorboard is missing.
            ValueRangeError: for a step below 0.
            OutputError: for a folder that cannot be written to.
        """
        write_tensorboard(self.to_dict(), folder, step, self.to_markdown())

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
        return model_index(self.to_dict(), name)

    def footnotes(self) -> list[str]:
        """What the marks of the table mean; none where nothing is marked."""
        return footnotes(self.threats)

    def plot(self, path: str | Path) -> None:
        """Write a figure of the returns: means with their intervals, episodes behind them, the clean mean as a line.

        The file's name says what it is, ``.png``, ``.svg`` or ``.pdf``; :class:`ValueRangeError` for another.
        """
        labels = unique("no attack" if row["threat"] == "none" else row_label(row) for row in self.threats)
        rows = {marked(label, row): row for label, row in zip(labels, self.threats, strict=True)}
        title = f"{self.victim.get('ref') or 'victim'} on {self.env['id']}"
        axis = f"return of an episode (mean and 95% interval, {self.episodes} episodes)"
        plot_returns(rows, path, title, [axis, *self.footnotes()])


def _sampled(row: ReportRow) -> Mapping[str, float | None]:
    """The distances of a row; none where none were measured."""
    return row.get("distances") or {}


def interval_text(row: ReportRow) -> str:
    """The interval of a row's mean, as a table has it, :func:`marked` where it is none of 95%."""
    return marked(f"{number_text(row['low'])} .. {number_text(row['high'])}", row)


def number_text(value: float | None) -> str:
    """A number of a table: four digits that matter, and a dash where there is none."""
    if value is None:
        return "-"
    return f"{value:.1f}" if abs(value) >= 100 else f"{value:.3g}"


def share_text(value: float | None) -> str:
    """A share of a table, as a percentage."""
    return "-" if value is None else f"{100 * value:.0f}%"
