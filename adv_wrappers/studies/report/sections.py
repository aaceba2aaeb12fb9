"""Rows of a report sorted by what they vary: the sections of a page.

A row's layers (``ThreatModel.to_dict``) say what it is. They are read as plain dictionaries: a row whose threat can no
longer be made, or has no JSON form, still has its place.

- ``sweep``: one layer on observations, at every step, under the whole of a budget that has a radius.
- ``feature``: the same under a budget whose scale leaves some features alone.
- ``entries``: the same under a budget that counts entries (``L0``) or allows every value (``Valid``), at every step or
  at a share of them: what discrete observations have in place of a radius.
- ``moment``: one layer whose timing is a window of steps; ``few``: one whose timing is at most so many steps.
- ``action``, ``daylight``, ``fault`` and ``dynamics``: one layer on actions, one that is a transform of images, one
  that is a fault of sensors or channels, and one on the dynamics.
- ``other``: stacks, other timings, other budgets.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from adv_wrappers.core.value import Value
from adv_wrappers.errors import StoreError, ThreatError, ValueRangeError
from adv_wrappers.evaluation.report import Report
from adv_wrappers.evaluation.return_range import described_range
from adv_wrappers.evaluation.row import Row
from adv_wrappers.evaluation.statistics import KnownRange, MeanWithInterval, cut, paired_difference
from adv_wrappers.evaluation.store import ROWS_FILE, Store
from adv_wrappers.studies.report.choices import FeatureSpread, ReportChoices, read_choices
from adv_wrappers.studies.report.trials import Trial
from adv_wrappers.threats.text import without_number
from adv_wrappers.utils.parsing import split_arguments

Kind = Literal[
    "clean", "sweep", "feature", "entries", "moment", "few", "action", "daylight", "fault", "dynamics", "other"
]
_NONE_MADE = ReportChoices()
_SUITE_PARTS = {"evaluation": "", "tie_break": "tie break", "fresh": "fresh episodes"}  # folders of a suite


@dataclass(frozen=True)
class AttackRow(Trial):
    """A row of a report, and what it varies; ``attack`` is its text without that.

    Attributes:
        kind: the section that it belongs to.
        label: its text without a long scale, which all rows of a section share; with the features that it may change.
        group: the same for rows that differ in nothing else.
        ball: of sweeps, the budget without its radius.
        keys: of a Dict or Tuple observation, those that are attacked; empty for the whole observation.
        features: the indices of the features that may change; empty for all of them.
        window: the first step that may be attacked, and the first that may not any more; or None.
        count: the number of steps that may be attacked, or None.
        change: paired difference of its returns to those without an attack.
        known: the range of returns of the environment.
    """

    kind: Kind
    label: str
    group: str
    ball: str
    keys: tuple[str, ...]
    features: tuple[int, ...]
    window: tuple[int, int] | None
    count: int | None
    change: MeanWithInterval
    known: KnownRange

    @property
    def name(self) -> str:
        """Its whole text."""
        return self.row.label

    @property
    def returned(self) -> MeanWithInterval:
        """Its mean return; of a row of fewer episodes than the clean one :attr:`mean`, with what the change may be."""
        row, change = self.row, self.change
        if row.episodes >= self.clean.episodes:
            return MeanWithInterval(row.mean_return, row.low, row.high, row.caveat)
        ends = self.clean.mean_return + change.low, self.clean.mean_return + change.high
        return MeanWithInterval(self.mean, *cut(ends, self.mean, self.known), change.caveat)


@dataclass(frozen=True)
class Curve:
    """Rows of one group, in the order of what they vary."""

    attack: str
    rows: tuple[AttackRow, ...]


@dataclass(frozen=True)
class Sweep:
    """Attacks under one budget over its radius.

    Attributes:
        budget: the budget in words.
        curves: one an attack.
        clean: the row without an attack.
        keys: of a Dict or Tuple observation, those that the budget is of; empty for the whole observation.
    """

    budget: str
    curves: tuple[Curve, ...]
    clean: AttackRow
    keys: tuple[str, ...] = ()

    @cached_property
    def strongest(self) -> tuple[tuple[float, AttackRow], ...]:
        """By radius, 0 first, the row of the lowest mean among those with this radius or less."""
        rows = sorted((row for curve in self.curves for row in curve.rows), key=lambda row: row.eps or 0.0)
        found, best = {0.0: self.clean}, self.clean
        for row in rows:
            best = row if row.mean < best.mean else best
            found[row.eps or 0.0] = best
        return tuple(found.items())


@dataclass(frozen=True)
class AgentSections:
    """One report, sorted.

    Attributes:
        report: the report.
        choices: what was chosen for it; empty where that is not known.
        rows: all its rows, the one without an attack first.
        part: what its episodes are for, where they are not those of the whole: of a suite, which chooses the strongest
            attack on some and measures it on others.
    """

    report: Report
    choices: ReportChoices
    rows: tuple[AttackRow, ...]
    part: str = ""

    def of(self, kind: Kind) -> tuple[AttackRow, ...]:
        """Its rows of a kind."""
        return tuple(row for row in self.rows if row.kind == kind)

    def curves(self, kind: Kind) -> tuple[Curve, ...]:
        """Its rows of a kind, in groups that differ in nothing else."""
        return _curves(self.of(kind))

    @cached_property
    def sweeps(self) -> tuple[Sweep, ...]:
        """Its sweeps by budget, that which the choices are of first, and then those with the most rows."""
        balls = defaultdict[str, list[AttackRow]](list)
        for row in self.of("sweep"):
            balls[row.ball].append(row)
        groups = sorted(balls.values(), key=lambda rows: (rows[0].keys == self.choices.at, len(rows)), reverse=True)
        return tuple(
            Sweep(_budget_words(rows[0], self.choices), _curves(rows), self.clean, rows[0].keys) for rows in groups
        )

    @property
    def clean(self) -> AttackRow:
        """The row without an attack."""
        return self.rows[0]

    @property
    def attacked(self) -> tuple[AttackRow, ...]:
        """The other rows."""
        return self.rows[1:]

    @property
    def victim(self) -> str:
        """The agent, by its reference, or by its weights where it has none."""
        ref, known = self.report.victim.get("ref"), str(self.report.victim.get("fingerprint") or "")
        return str(ref or (f"agent {known[:12]}" if known else "an agent without a name"))

    @property
    def episodes(self) -> str:
        """Which episodes it is of."""
        return f"seed {self.report.seed}" + (f", {self.part}" if self.part else "")

    @property
    def environment(self) -> str:
        """The id of the environment."""
        return str(self.report.env["id"])


@dataclass(frozen=True)
class StoredReports:
    """What a folder or file holds.

    Attributes:
        path: the file of rows.
        agents: a report of every victim, environment and seed.
        left_out: names of rows that have no run without an attack to be compared with.
        errors: by the name of a cell that failed, its error.
    """

    path: Path
    agents: tuple[AgentSections, ...]
    left_out: tuple[str, ...]
    errors: Mapping[str, str]


def read_reports(source: str | Path) -> StoredReports:
    """Read the rows of a folder that ``evaluate``, a suite or a report wrote, or of a store, and sort them.

    Args:
        source: a folder with ``rows.db``, and with ``choices.json`` where a report was played; or a file of rows.

    Raises:
        ValueRangeError: where there is none, or it has no run without an attack.
        StoreError: for a file that is damaged, something else, or of another release.
        OutputError: for one that cannot be opened.
    """
    path, stores = _stores(Path(source))
    agents, errors, names = list[AgentSections](), dict[str, str](), Counter[str]()
    for part, file in stores.items():
        choices = read_choices(file.parent) if file.name == ROWS_FILE else ReportChoices()
        with Store(file, read_only=True) as store:
            reports = store.reports()
            errors |= store.errors()
            names.update(row.threat for _, row in store.rows())
        theirs = report_of(choices, reports)
        for report in reports:
            names.subtract(without_number(row.threat) for row in report.threats)
            agents.append(replace(sorted_report(report, choices if report is theirs else _NONE_MADE), part=part))
    if not agents:
        what = "its rows lack the run without an attack" if +names else "it has no rows yet"
        raise ValueRangeError(f"nothing can be shown of {path}: {what}")
    return StoredReports(path, tuple(agents), tuple((+names).elements()), errors)


def report_of(choices: ReportChoices, reports: Sequence[Report]) -> Report | None:
    """The report that some choices belong to: the one that they name, else the one of most rows."""
    known = choices.identity
    if known is not None:
        own = {"victim": known.get("victim"), "env": known.get("env"), "seed": known.get("seed")}
        reports = [one for one in reports if own == {"victim": one.victim, "env": one.env, "seed": one.seed}]
    return max(reports, key=lambda report: len(report.threats), default=None)


def _stores(path: Path) -> tuple[Path, dict[str, Path]]:
    """The file or folder that a report is read from, and by what their episodes are for the files of rows."""
    found = {"": path}
    if path.is_dir():
        found = {"": path / ROWS_FILE}
        if not found[""].is_file():
            parts = {words: path / part / ROWS_FILE for part, words in _SUITE_PARTS.items()}
            found = {words: file for words, file in parts.items() if file.is_file()}
        if not found:
            raise ValueRangeError(f"the folder {path} holds no {ROWS_FILE}, which evaluate, suite and report write")
    for file in found.values():
        if not file.is_file():
            raise ValueRangeError(f"there is no folder or file {file}: expected a folder with {ROWS_FILE}, or a store")
        if file.stat().st_size == 0:
            raise StoreError(f"{file} is empty, and no store of rows")
    return (path if len(found) > 1 else next(iter(found.values()))), found


def sorted_report(report: Report, choices: ReportChoices = _NONE_MADE) -> AgentSections:
    """A report in sections."""
    used = _usable_features(report.threats)
    known = described_range(report.env)
    made = [_attack_row(row, report.threats[0], used, known) for row in report.threats]
    labels = [_label(row, choices) for row in made]
    count = Counter(labels)  # where the text without its scale is not enough, all of it is shown
    rows = tuple(
        replace(row, label=(label if count[label] == 1 else row.name) + held(row, made[0]))
        for row, label in zip(made, labels, strict=True)
    )
    return AgentSections(report, choices, rows)


def held(row: AttackRow, clean: AttackRow) -> str:
    """How many of the episodes a row holds, where it has fewer than the one without an attack; else ""."""
    count, whole = (len(one.row.returns) for one in (row, clean))
    return f" on {count} of {whole} episodes" if count < whole else ""


def _label(row: AttackRow, choices: ReportChoices) -> str:
    known = known_features(row, choices)
    if row.kind == "clean":
        return "no attack" if row.name == "none" else row.name  # which names the threats of the environment itself
    layers = row.row.layers
    if row.kind == "fault" and (stuck := _stuck_features(layers[0])):
        return f"{_type(layers[0]['how'])} on {', '.join(feature_name(index, known, row.keys) for index in stuck)}"
    if row.kind in ("entries", "moment", "few") and (words := _entries_label(row)):
        return words
    if row.kind == "dynamics" and (changed := _factor(layers[0])):
        return changed
    if len(layers) != 1 or not isinstance(layers[0], Mapping):
        return row.name
    own = row.kind in ("sweep", "feature") and row.keys and row.keys == choices.at  # which stand beside them
    if not own and not _ball(layers[0].get("within"))[2]:
        return row.name
    text = _text(_threat_text(row.row), "scale", *(["at"] if own else []))
    return text + (f" on {feature_names(row, known)}" if row.features else "") + row.row.marks


def _entries_label(row: AttackRow) -> str:
    """What shows other values, of how much of the observation, and when; "" for other budgets and timings."""
    within, when = row.row.layers[0]["within"], row.row.layers[0].get("when")
    if _type(within) not in ("l0", "valid") or _type(when) not in ("", "always", "bernoulli", "window", "atmost"):
        return ""
    count = within.get("k") if _type(within) == "l0" else None
    much = "any value" if count is None else f"{count} {'entry' if count == 1 else 'entries'}"
    where = f" of {', '.join(row.keys)}" if row.keys else ""
    often = f" at {100 * float(when['p']):.3g}% of steps" if _type(when) == "bernoulli" else ""
    often = f" in steps {row.window[0]} to {row.window[1] - 1}" if row.window else often
    often = f" in at most {row.count} step{'' if row.count == 1 else 's'}" if row.count is not None else often
    attack = _text(_threat_text(row.row), "norm", "eps", "at", "when", "p")
    if often and count is None:  # short, since charts cut long names
        return f"{attack}{where.replace(' of ', ' on ', 1)}{often}{row.row.marks}"
    return f"{attack}, {much}{where}{often}{row.row.marks}"


def _stuck_features(layer: Mapping[str, Any]) -> tuple[int, ...]:
    """The features that a sensor that sticks at every step gives; none for any other fault."""
    how = layer.get("how")
    alone = _type(how) == "stuck-sensor" and layer.get("when") is None
    return tuple(how.get("features") or ()) if alone and isinstance(how, Mapping) else ()


def _factor(layer: Mapping[str, Any]) -> str:
    """What a layer multiplies by one factor from the first step on, and by which; "" for any other change."""
    how, at = layer.get("how"), layer.get("at")
    value = how.get("values") if isinstance(how, Mapping) and _type(how) == "fixed-dynamics" else None
    names = [at] if isinstance(at, str) else list(at or ())
    absolute = any(name.partition(".")[0] in ("force", "wind") for name in names)
    alone = isinstance(value, (int, float)) and layer.get("when") is None and not absolute
    return f"{' and '.join(names)} times {value:g}" if alone and names else ""


def _threat_text(row: Row) -> str:
    """The text of a row's threat, in which a search has its name: what it found is played as a record of its own.

    A trained adversary is named by its folder alone.
    """
    text = row.threat.replace("<recorded>", "episode search")
    return re.sub(r"(learned:card=)[^,]*[/\\](?=[^,/\\]+)", r"\1", text)  # its folder, without the way there


def known_features(row: AttackRow, choices: ReportChoices) -> Sequence[FeatureSpread] | None:
    """What is known of the features that a row's indices count, or None."""
    return choices.features if row.keys == choices.at else None


def feature_name(index: int, known: Sequence[FeatureSpread] | None, keys: Sequence[str] = ()) -> str:
    """The name of a feature of the observation, or of some of its keys."""
    if known and index < len(known) and known[index].name:
        return known[index].name
    return f"feature {index}" + (f" of {', '.join(keys)}" if keys else "")


def feature_names(row: AttackRow, known: Sequence[FeatureSpread] | None) -> str:
    """The names of the features that a row's budget lets change."""
    names = [feature_name(index, known, row.keys) for index in row.features[:4]]
    return ", ".join(names) + (f" and {len(row.features) - 4} more" if len(row.features) > 4 else "")


def _attack_row(row: Row, clean: Row, usable: Mapping[tuple[str, ...], frozenset[int]], known: KnownRange) -> AttackRow:
    threat, layers = without_number(_threat_text(row)), row.layers
    change = paired_difference(row.returns, clean.returns, known)
    made = AttackRow(threat, None, row, clean, "other", "", "", "", (), (), None, None, change, known)
    if not layers:
        return replace(made, kind="clean")
    if len(layers) > 1 or not isinstance(layers[0], Mapping):
        return made
    layer = layers[0]
    if _type(layer.get("how")) == "recorded":  # a record for each eps: one attack all the same
        layer = {**layer, "how": {"type": "recorded"}}
    within, when = layer.get("within"), layer.get("when")
    ball, eps, scale = _ball(within)
    keys = _keys(layer)
    made = replace(made, eps=eps, keys=keys)
    if _is_of(layer.get("how"), "faults.sensors", "faults.delays", "faults.trigger"):
        return replace(made, kind="fault")
    if layer.get("on") == "action":
        return replace(made, kind="action")
    if layer.get("on") == "dynamics":
        return replace(made, kind="dynamics")
    if _is_of(layer.get("how"), "daylight"):
        return replace(made, kind="daylight")
    everything = usable.get(keys, frozenset())
    varied = frozenset(place for place, unit in enumerate(scale) if unit) if scale else everything
    made = replace(made, features=() if varied == everything else tuple(sorted(varied)))

    def varying(kind: Kind, *left_out: str, **rest: Any) -> AttackRow:
        """The row as one of a group that differs in what is left out of its text and, as ``rest``, of its layer."""
        text = _text(threat, *left_out, *(["scale"] if scale else [])) + row.marks
        group = json.dumps([{**layer, **rest}, row.transfer, row.best_of], sort_keys=True)
        return replace(made, kind=kind, attack=text, group=group)

    if isinstance(when, Mapping) and _type(when) == "window":
        window = (int(when["a"]), int(when["b"]))
        return replace(varying("moment", "when", when=None), window=window)
    always = when is None or _type(when) == "always"
    if not always and (count := _at_most(when)) is not None:
        return replace(varying("few", "atmost", when=_without_count(when)), count=count)
    if _type(within) in ("l0", "valid") and (always or _type(when) == "bernoulli"):
        return replace(made, kind="entries")
    if not always or eps is None:
        return made
    if made.features:
        return varying("feature", "eps", "at", within=_type(within))
    return replace(varying("sweep", "eps", "scale", "norm", "at", within=ball), ball=f"{ball} {keys}")


def _type(value: object) -> str:
    return str(value.get("type")) if isinstance(value, Mapping) else ""


def _keys(layer: Mapping[str, Any]) -> tuple[str, ...]:
    """The keys of an observation that a layer attacks; none where it attacks all of it, or something else."""
    at = layer.get("at")
    if at is None or layer.get("on") != "observation":
        return ()
    return tuple(map(str, at)) if isinstance(at, (list, tuple)) else (str(at),)


def _ball(within: object) -> tuple[str, float | None, tuple[float, ...]]:
    """A budget without its radius as text, the radius, and its scale where that has a number a feature."""
    if not isinstance(within, Mapping):
        return "", None, ()
    inner = within.get("within") if _type(within) == "newest" else within
    if not isinstance(inner, Mapping) or _type(inner) not in ("linf", "l2"):
        return "", None, ()
    scale = inner.get("scale")
    numbers = tuple(map(float, scale)) if isinstance(scale, (list, tuple)) else ()
    rest = {key: value for key, value in inner.items() if key != "eps"}
    outer = {key: value for key, value in within.items() if key != "within"} if inner is not within else None
    return json.dumps([rest, outer], sort_keys=True), float(inner["eps"]), numbers


def _usable_features(rows: Iterable[Row]) -> Mapping[tuple[str, ...], frozenset[int]]:
    """By keys, the features that some budget of a report may change, as far as a budget has a number a feature.

    Beside a budget without such numbers they are all features.
    """
    found = defaultdict[tuple[str, ...], frozenset[int]](frozenset)
    size, whole = dict[tuple[str, ...], int](), set[tuple[str, ...]]()
    for row in rows:
        for layer in row.layers:
            ball, _, scale = _ball(layer.get("within")) if isinstance(layer, Mapping) else ("", None, ())
            if scale:
                found[_keys(layer)] |= {place for place, unit in enumerate(scale) if unit}
                size[_keys(layer)] = len(scale)
            elif ball and layer.get("on") == "observation":
                whole.add(_keys(layer))
    return found | {keys: frozenset(range(size[keys])) for keys in whole & size.keys()}


def _is_of(how: object, *modules: str) -> bool:
    """Whether a perturbation's class is of one of these modules or packages."""
    kind = Value.kinds.get(_type(how))
    return kind is not None and f"{kind.__module__}.".startswith(tuple(f"adv_wrappers.{name}." for name in modules))


def _at_most(when: object) -> int | None:
    """The largest number of attacks that a timing allows, as far as it says so by itself or joined with others."""
    if _type(when) == "atmost" and isinstance(when, Mapping):
        return int(when["n"])
    if _type(when) == "and" and isinstance(when, Mapping):
        counts = [count for part in ("a", "b") if (count := _at_most(when.get(part))) is not None]
        return min(counts, default=None)
    return None


def _without_count(when: Any) -> Any:
    if _type(when) == "atmost":
        return {**when, "n": None}
    return {**when, "a": _without_count(when["a"]), "b": _without_count(when["b"])} if _type(when) == "and" else when


def _text(threat: str, *left_out: str) -> str:
    """A threat's text without some of its arguments, or without the part of its timing that counts."""
    name, colon, arguments = threat.partition(":")
    try:
        parts = split_arguments(arguments)
    except ThreatError:
        return threat
    if "atmost" in left_out:
        parts = [re.sub(r"&atmost\(\d+\)|atmost\(\d+\)&?", "", part) for part in parts]
        parts = [part for part in parts if part != "when="]
    kept = ",".join(part for part in parts if part.partition("=")[0].strip() not in left_out)
    return name + (colon + kept if kept else "")


def _budget_words(row: AttackRow, choices: ReportChoices) -> str:
    """The budget of a sweep in words: what may move, and how far at an eps of 1."""
    within = row.row.layers[0]["within"]
    newest = _type(within) == "newest"
    inner = within["within"] if newest else within
    scale, where = inner.get("scale"), f" of {', '.join(row.keys)}" if row.keys else ""
    if inner["type"] == "l2":
        words = f"the Euclidean norm of the change{where} is at most eps, in the observation's own unit"
    elif isinstance(scale, (list, tuple)):
        own = known_features(row, choices) is not None and tuple(scale) == choices.scale
        numbers = f"its scale ({', '.join(f'{unit:.3g}' for unit in scale[:8])}{', ...' if len(scale) > 8 else ''})"
        words = f"every feature{where} may move by eps times {'its range' if own else numbers}"
    elif scale is None:
        image = choices.played and choices.features is None and choices.unit and row.keys == choices.at
        unit = f"eps {choices.unit}" if image and not choices.unit.startswith("in ") else "eps, in its own unit"
        words = f"every {'pixel' if image else 'feature'}{where} may move by {unit}"
    else:
        words = f"every feature{where} may move by eps times {scale}"
    return words + (", in the newest frame alone" if newest else "")


def _curves(rows: Sequence[AttackRow]) -> tuple[Curve, ...]:
    groups = defaultdict[str, list[AttackRow]](list)
    for row in rows:
        groups[row.group].append(row)

    def order(row: AttackRow) -> tuple[float, ...]:
        return (row.eps or 0.0, *(row.window or ()), row.count or 0, *row.features)

    names = Counter(group[0].attack for group in groups.values())
    made = []
    for group in groups.values():
        attack = group[0].attack
        if names[attack] > 1:  # what differs was left out of their texts
            attack = group[0].label
        made.append(Curve(attack, tuple(sorted(group, key=order))))
    return tuple(made)
