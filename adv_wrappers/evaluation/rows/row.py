"""The row of a report: what one run under one threat measured, and what that means beside the clean run.

A row is the same in memory, in a store, in ``report.json`` and in a data frame; its fields are its schema. What it is
beside the clean run (``regret``, ``impact``, ``general_impact``) is filled in where a report is made
(:func:`compared`): in a store, and for a study, these are None.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Annotated, Any, TypedDict

import numpy as np

from adv_wrappers.errors import ThreatError, ValueRangeError
from adv_wrappers.evaluation.measurements.metrics import MetricSummary, metric_summary
from adv_wrappers.evaluation.statistics import confidence_intervals
from adv_wrappers.threats.text import without_number
from adv_wrappers.utils.checks import is_number
from adv_wrappers.utils.parsing import parse_value, split_arguments, without_arguments
from adv_wrappers.utils.reading import value_of
from adv_wrappers.utils.validation import Count, NotNegative, Positive, Share


class EnvironmentNotes(TypedDict, total=False):
    """Sentences about the environment, where there is something to say."""

    unrepeated: Annotated[str, "how two playings of one episode differed"]
    outside: Annotated[str, "observations and actions that do not go with the spaces that the environment declares"]
    unmasked: Annotated[str, "a part of observations that may be a mask of actions, which were attacked"]


class Checks(EnvironmentNotes):
    """Counts of observations, which warnings are made of."""

    attacked: Annotated[Count, "observations that were attacked"]
    unchanged: Annotated[Count, "those of them that the attack left as they were"]
    gradients: Annotated[Count, "observations at which an attack's gradient was looked at"]
    zero_gradients: Annotated[Count, "those of them at which it is zero or not finite"]
    integers: Annotated[bool, "whether the observation is made of integers"]
    alike: Annotated[bool, "whether two draws of every episode came out the same"]
    asked_twice: Annotated[Count, "observations about which the victim was asked twice"]
    unequal_answers: Annotated[Count, "those of them at which the second answer was another one"]


class DrawResults(TypedDict):
    """Returns and losses of every draw (outer) of every episode (inner)."""

    returns: Annotated[list[list[float]], "by draw"]
    losses: Annotated[list[list[float]] | None, "by draw"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Row(Mapping[str, Any]):
    """What one run measured: its fields, with their meanings, are the columns of a report.

    A column is an attribute, and read by its name too: ``row.mean_return`` and ``row["mean_return"]``.

    >>> import adv_wrappers as adv
    >>> short = adv.Environment("CartPole-v1", {"max_episode_steps": 50})
    >>> row = adv.evaluate("zoo:cartpole-dqn", short, ["pgd:eps=0.1,steps=20"], episodes=2).threats[1]
    >>> row.eps, row.attack(), row.argument("steps"), row["episodes"]
    (0.1, 'pgd:steps=20', 20.0, 2)
    """

    threat: Annotated[str, "the threat as text, none for the run without one"]
    mean_return: Annotated[float, "mean return over the episodes"]
    low: Annotated[float, "lower end of its 95% interval"]
    high: Annotated[float, "upper end of its 95% interval"]
    std: Annotated[NotNegative, "standard deviation of the sample of returns"]
    median: Annotated[float, "of the returns"]
    min: Annotated[float, "of the returns"]
    max: Annotated[float, "of the returns"]
    caveat: Annotated[
        str | None, "a sentence where low and high are no 95% interval, which tables mark with a dagger"
    ] = None
    regret: Annotated[float | None, "clean mean return minus this one, on the episodes that both hold"] = None
    impact: Annotated[
        float | None,
        "(clean - attacked) / (clean - minimum), the share of what can be lost; null where no minimum is known",
    ] = None
    general_impact: Annotated[
        float | None, "the same, counted from the lowest return that the rules of the game allow"
    ] = None
    attacked_fraction: Annotated[Share, "share of all steps at which any layer attacked"] = 0.0
    e_adv: Annotated[Share, "mean over the episodes of the attacked share of an episode"] = 0.0
    e_adv_std: Annotated[NotNegative, "its standard deviation over the episodes"] = 0.0
    action_change: Annotated[
        Share | None,
        "share of the attacked steps at which the environment received another action than the agent would take on the "
        "true observation; a continuous one another by at least 5% of its range",
    ] = None
    l2: Annotated[
        NotNegative | None,
        "mean Euclidean distance of the attacked steps from the true observation, or from the agent's continuous "
        "action where actions alone are attacked, in the units of the environment: what the attack used",
    ] = None
    linf: Annotated[NotNegative | None, "mean largest distance of the attacked steps, of the same"] = None
    distances: Annotated[
        dict[str, float | None], "mean of every other distance, by its name, over a sample of the attacked steps"
    ] = field(default_factory=dict)
    distance_images: Annotated[Count, "observations over which distances are means"] = 0
    ms_per_step: Annotated[
        NotNegative, "milliseconds of wall clock for a step of one environment, agent and attack included"
    ] = 0.0
    episodes: Annotated[Positive, "number of episodes"]
    mean_length: Annotated[NotNegative, "mean number of steps of an episode"]
    transfer: Annotated[bool, "whether the attack is aimed at another victim"] = False
    layers: Annotated[
        list[Annotated[Any, {"type": ["object", "null"]}]],
        "the dictionaries of the threats, from which they can be rebuilt, innermost first; null where one has no JSON "
        "form; none if clean",
    ]
    returns: Annotated[list[float], "of every episode"]
    lengths: Annotated[list[Count], "steps of every episode"]
    attacked_fractions: Annotated[list[Share] | None, "attacked share of every episode"] = None
    loss: Annotated[
        float | None, "mean over the episodes of the total loss of states, where ``measure=`` names one"
    ] = None
    loss_std: Annotated[NotNegative | None, "its standard deviation over the episodes"] = None
    losses: Annotated[list[float] | None, "of every episode"] = None
    metrics: Annotated[dict[str, list[float]], "by name what was counted beside the return, of every episode"] = field(
        default_factory=dict
    )
    best_of: Annotated[
        Positive, "draws of every episode, of which the best counts; means over attacked steps are of all draws"
    ] = 1
    draws: Annotated[DrawResults | None, "of every episode; null for one draw"] = None
    checks: Annotated[Checks | None, "counts of observations, which warnings are made of"] = None

    @property
    def is_clean(self) -> bool:
        """Whether this is a run without a threat."""
        return not self.layers

    @property
    def label(self) -> str:
        """The threat, and what else tells the row from others."""
        return self.threat + self.marks

    @property
    def marks(self) -> str:
        """What tells the row from others beside its threat."""
        draws = f" (best of {self.best_of})" if self.best_of > 1 else ""
        return draws + (" (transfer)" if self.transfer else "")

    @property
    def environment_notes(self) -> dict[str, str]:
        """What :mod:`.first_steps` found out about the environment, a sentence of a kind."""
        checks: Mapping[str, Any] = self.checks or {}
        return {kind: checks[kind] for kind in EnvironmentNotes.__annotations__ if kind in checks}

    @property
    def seconds(self) -> float:
        """Seconds that its steps took, one environment after the other."""
        return self.ms_per_step * sum(self.lengths) / 1000

    @property
    def eps(self) -> float | None:
        """The radius of its budget: 0 without a threat; None for a stack, and for a budget that has no radius."""
        if self.is_clean:
            return 0.0
        [layer, *others] = self.layers
        if layer is None or others:
            return None
        budget = layer.get("within") or {}
        while isinstance(budget.get("within"), dict):  # Newest holds the budget of the newest frame
            budget = budget["within"]
        eps = budget.get("eps")
        return float(eps) if isinstance(eps, (int, float)) else None

    def metric(self, name: str) -> MetricSummary:
        """Rate or mean of what was counted beside the return, with its interval and the worst 5%.

        Raises:
            ValueRangeError: for a metric that the row does not have.

        >>> import adv_wrappers as adv
        >>> [row] = adv.evaluate("zoo:cartpole-dqn", "CartPole-v1", episodes=4, metrics=["terminated"]).threats
        >>> print(row.metric("terminated"))
        0% (0 to 49)
        """
        if name not in self.metrics:
            raise ValueRangeError(f"the row has {', '.join(self.metrics) or 'no metrics'}, not {name!r:.80}: metrics=")
        return metric_summary(name, self.metrics[name], self.lengths)

    def argument(self, name: str) -> float | None:
        """A number among the arguments of the threat's text, such as ``steps``; None where there is none."""
        values = [parse_value(value.strip()) for key, value in self._arguments() if key == name]
        number = values[0] if len(values) == 1 else None
        return float(number) if is_number(number) else None

    def attack(self, without: str = "eps") -> str:
        """The text of the threat without its radius, or without another argument; a stack's stays as it is."""
        if all(key != without for key, _ in self._arguments()):
            return self.threat
        text = without_number(self.threat)
        return without_arguments(text, without) + self.threat.strip().removeprefix(text)  # of rows that have one text

    def _arguments(self) -> list[tuple[str, str]]:
        """The arguments of the threat as they are written; none of a stack, or of a text that is none."""
        _, _, rest = without_number(self.threat).partition(":")
        if " + " in rest or len(self.layers) > 1:
            return []
        try:
            pairs = [piece.partition("=") for piece in split_arguments(rest)]
        except ThreatError:
            return []
        return [(key.strip(), value) for key, _, value in pairs]

    # a mapping, for whoever chooses a column by its name

    def __getitem__(self, column: str) -> Any:
        if column not in COLUMNS:
            raise KeyError(column)
        return getattr(self, column)

    def __iter__(self) -> Iterator[str]:
        return iter(COLUMNS)

    def __len__(self) -> int:
        return len(COLUMNS)

    def to_dict(self) -> dict[str, Any]:
        """Every column, as values that JSON knows."""
        return asdict(self)

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Row:
        """Inverse of :meth:`to_dict`; columns that are none are left out.

        Raises:
            ValueRangeError: for a dictionary of another form.
        """
        row: Row = value_of(Row, {column: value for column, value in data.items() if column in COLUMNS})
        return row


COLUMNS = tuple(column.name for column in fields(Row))


def compared(rows: Sequence[Row], lowest: float | None, fixed: float | None) -> tuple[Row, ...]:
    """The rows, the clean one first, with ``regret``, ``impact`` and ``general_impact``.

    Args:
        rows: the rows as they were played.
        lowest: the return that ``impact`` counts from; None where it is not known (yet).
        fixed: the one that ``general_impact`` counts from.
    """
    found = list[Row]()
    for row in rows:
        clean = float(np.mean(rows[0].returns[: row.episodes]))  # on the episodes that the row holds
        impact, general = (confidence_intervals.impact(clean, row.mean_return, least) for least in (lowest, fixed))
        found.append(replace(row, regret=clean - row.mean_return, impact=impact, general_impact=general))
    return tuple(found)
