"""Rows for tables: the columns of threats, data frames, and the formats of other programs."""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from adv_wrappers.environments.environment import environment_text
from adv_wrappers.errors import AdvWrappersError, ThreatError, ValueRangeError
from adv_wrappers.evaluation.statistics import ReportRow
from adv_wrappers.rendering.text_table import plain
from adv_wrappers.threats.text import unique, without_number
from adv_wrappers.utils.checks import check_integer, is_number
from adv_wrappers.utils.files import probe
from adv_wrappers.utils.parsing import parse_value, split_arguments

# ----------------------------------------------------------------------------------------------------------------------
# What a row of a report says of its threat, as columns to sort and group by: its radius, and all of it but that.
# ----------------------------------------------------------------------------------------------------------------------


def row_label(row: ReportRow) -> str:
    """The threat of a row, and what else tells it from others."""
    return str(row["threat"]) + marks_of(row)


def is_clean(row: ReportRow) -> bool:
    """Whether a row is a run without a threat, in reports of older releases too, which have no layers."""
    return not row["layers"] if "layers" in row else row["threat"] == "none"


def eps_of(row: ReportRow) -> float | None:
    """The radius of a row's budget: 0 without a threat; None for a stack, and for a budget that has no radius.

    >>> from adv_wrappers.evaluation.tables import eps_of
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

    >>> from adv_wrappers.evaluation.tables import argument_of
    >>> argument_of({"threat": "pgd:eps=0.1,steps=20"}, "steps")
    20.0
    """
    values = [parse_value(value.strip()) for key, value in _arguments(row)[1] if key == name]
    number = values[0] if len(values) == 1 else None
    return float(number) if is_number(number) else None


def attack_text(row: ReportRow, without: str = "eps") -> str:
    """The text of a threat without its radius, or without another argument; a stack's stays as it is.

    >>> from adv_wrappers.evaluation.tables import attack_text
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
    return attack_text(row, without) + marks_of(row)


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


def marks_of(row: ReportRow) -> str:
    """What tells a row from others beside its threat."""
    draws = f" (best of {row['best_of']})" if row.get("best_of", 1) > 1 else ""
    return draws + (" (transfer)" if row.get("transfer") else "")


# ----------------------------------------------------------------------------------------------------------------------
# A report in the forms of other programs: rows of a long table, scalars of TensorBoard, metadata of a model card.
#
# Functions take a report as the dictionary that :meth:`~adv_wrappers.Report.to_dict` gives.
# ----------------------------------------------------------------------------------------------------------------------


LONG_COLUMNS = (
    "threat", "eps", "attack", "episode", "episode_seed", "draw", "return", "length", "attacked_fraction", "loss",
    "victim", "env", "seed",
)  # fmt: skip
SCALARS = (
    "mean_return", "low", "high", "std", "regret", "impact", "attacked_fraction", "action_change", "mean_length", "loss"
)  # fmt: skip
ReportData = Mapping[str, Any]


def victim_name(victim: Mapping[str, Any]) -> str:
    """The victim of a report: its reference, or the first digits of the hash of its weights."""
    return str(victim.get("ref") or str(victim.get("fingerprint") or "victim")[:8])


def victim_text(about: ReportData, *more: str) -> str:
    """The victim of a report with whatever is not as usual, and with what else is to be said of it."""
    how = [*more, *(["sampled actions"] if about["victim"].get("select") == "sample" else [])]
    how += ["float observations"] if about.get("quantize") is False else []
    return f"{victim_name(about['victim'])} ({', '.join(how)})" if how else victim_name(about["victim"])


def long_rows(report: ReportData) -> list[dict[str, Any]]:
    """One row for every draw of every episode of every threat, with the columns ``LONG_COLUMNS``.

    ``draw`` counts from 0. Where an episode was drawn several times, ``length`` and ``attacked_fraction`` are known of
    the best draw alone, and None for the others.
    """
    shared = {"victim": victim_name(report["victim"]), "env": environment_text(report["env"]), "seed": report["seed"]}
    found = []
    for row in report["threats"]:
        names = {"threat": row["threat"], "eps": eps_of(row), "attack": attack_text(row)}
        returns = np.atleast_2d((row.get("draws") or {}).get("returns") or row["returns"])
        losses = (row.get("draws") or {}).get("losses") or row.get("losses")
        scores = returns if losses is None or report.get("by") != "loss" else np.atleast_2d(losses)
        best = scores.argmin(0)
        for draw, episode in np.ndindex(*returns.shape):
            counted = best[episode] == draw
            found.append(
                {
                    **names,
                    "episode": episode,
                    "episode_seed": report["episode_seeds"][episode],
                    "draw": draw,
                    "return": float(returns[draw, episode]),
                    "length": row["lengths"][episode] if counted and "lengths" in row else None,
                    "attacked_fraction": _of_episode(row, "attacked_fractions", episode) if counted else None,
                    "loss": None if losses is None else float(np.atleast_2d(losses)[draw, episode]),
                    **shared,
                }
            )
    return found


def write_tensorboard(report: ReportData, folder: str | Path, step: int, text: str) -> None:
    """Write the ``SCALARS`` of every threat, as ``COLUMN/THREAT`` at a step, and a text in Markdown.

    Raises:
        AdvWrappersError: where tensorboard is missing.
        ValueRangeError: for a step below 0.
        OutputError: for a folder that cannot be written to.
    """
    check_integer("step", step, 0)
    try:
        module = importlib.import_module("torch.utils.tensorboard")
    except ImportError as error:
        raise AdvWrappersError("to_tensorboard needs tensorboard: pip install 'adv_wrappers[tensorboard]'") from error
    probe(Path(folder))
    names = unique(plain(row_label(row)) for row in report["threats"])
    with module.SummaryWriter(str(folder)) as writer:
        for name, row in zip(names, report["threats"], strict=True):
            for column in SCALARS:
                if row.get(column) is not None:
                    writer.add_scalar(f"{column}/{name}", row[column], step)
        writer.add_text("report", text, step)


def model_index(report: ReportData, name: str | None) -> str:
    """The entry ``model-index`` of the metadata of a model card, as YAML: see :meth:`Report.to_model_index`."""
    env = report["env"]
    if not report["threats"]:
        raise ValueRangeError("a model index needs a report with at least one row")
    metrics = []
    for place, row in enumerate(report["threats"]):
        label = row_label(row)
        metrics += [
            f"    - type: {'attacked_mean_reward' if place else 'mean_reward'}",
            f"      value: {row['mean_return']:.2f} +/- {row.get('std', 0.0):.2f}",
            f"      name: {yaml_text(f'mean_reward under {label}' if place else 'mean_reward')}",
            "      verified: false",
            f"      args: {{threat: {yaml_text(label)}, episodes: {report['episodes']}, seed: {report['seed']}}}",
        ]
    return "\n".join(
        [
            "model-index:",
            f"- name: {yaml_text(victim_name(report['victim']) if name is None else name)}",
            "  results:",
            "  - task:",
            "      type: reinforcement-learning",
            "      name: reinforcement-learning",
            "    dataset:",
            f"      name: {yaml_text(environment_text(env))}",
            f"      type: {yaml_text(str(env['id']))}",
            "    metrics:",
            *metrics,
            "",
        ]
    )


def yaml_text(text: str) -> str:
    r"""A text as a double-quoted scalar of YAML 1.2: never another type, and never more than a text.

    >>> yaml_text('no: "1"')
    '"no: \\"1\\""'
    """
    quoted = json.dumps(plain(text), ensure_ascii=False)
    return "".join(letter if letter.isprintable() else f"\\U{ord(letter):08x}" for letter in quoted)


def _of_episode(row: ReportRow, column: str, episode: int) -> float | None:
    values = row.get(column)
    return None if values is None else float(values[episode])
