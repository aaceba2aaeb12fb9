"""A plan: victims x environments x threats x budgets x timings x seeds, as a value that is read from JSON and TOML.

A plan is a sum of grids, each the product of its lists. It expands to cells, each one row of an evaluation
(:mod:`adv_wrappers.studies.plan_cells`).
"""

from __future__ import annotations

import itertools
import json
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, get_type_hints

from adv_wrappers.environments.environment import named_code
from adv_wrappers.errors import BudgetError, SpaceError, ValueRangeError
from adv_wrappers.evaluation.episodes import Episodes
from adv_wrappers.registry import By, Select
from adv_wrappers.threats.presets import as_threat, parse_threat
from adv_wrappers.utils.files import write_json
from adv_wrappers.utils.frozen import set_fields
from adv_wrappers.utils.parsing import split_arguments, split_stack
from adv_wrappers.utils.reading import decoding, json_form, read_bytes, read_json, value_of
from adv_wrappers.utils.validation import (
    DrawCount,
    EnvCount,
    EpisodeCount,
    Seed,
    TrainingSeed,
    TrainingSteps,
)

Threat = str | Mapping[str, Any] | Sequence[str | Mapping[str, Any]]
_LISTS = ("victims", "environments", "threats", "budgets", "timings", "seeds", "metrics")


@dataclass(frozen=True)
class Grid:
    """The product of some lists. The run without a threat is a cell of every victim, environment and seed.

    Attributes:
        victims: references such as ``"zoo:hopper-ppo"``, or names of victims that are handed over with the plan.
        environments: ids, or dictionaries with ``id``, ``kwargs`` and ``make`` (a function as ``module:function``);
            without any, that of each victim's card.
        threats: texts, dictionaries, or lists of these for stacks, innermost first.
        budgets: arguments such as ``"eps=0.1,scale=victim"``, each given to every threat that has no budget of its own.
        timings: texts such as ``"bernoulli(0.5)"``, each given to every threat that has no timing of its own; none is
            at every step.
        suite: the name of a suite, such as ``"everything"``, or names of entries of suites, which are threats as well,
            under each of the budgets.
        train: whether entries of the suite that are trained, for minutes to hours each, are not left out. Each is
            trained once for all seeds, by the first cell that needs it.
        steps, training, training_seed: as ``steps``, ``training`` and ``seed`` of :class:`AttackSetting`.
        seeds: of the evaluations.
        episodes, num_envs, quantize, measure, best_of, by, metrics: as for :func:`adv_wrappers.evaluate`.
        select, device: as for :func:`adv_wrappers.load_victim`.
    """

    victims: tuple[str, ...]
    environments: tuple[str | Mapping[str, Any], ...] = ()
    threats: tuple[Threat, ...] = ()
    budgets: tuple[str, ...] = ()
    timings: tuple[str, ...] = ()
    suite: str | tuple[str, ...] | None = None
    train: bool = False
    steps: TrainingSteps = 100_000
    training: Mapping[str, Any] = field(default_factory=dict)
    training_seed: TrainingSeed = 1
    seeds: tuple[Seed, ...] = (0,)
    episodes: EpisodeCount = 10
    num_envs: EnvCount | None = None
    quantize: bool = True
    measure: str | None = None
    best_of: DrawCount = 1
    by: By = "return"
    metrics: tuple[str, ...] = ()
    select: Select | None = None
    device: str = "cpu"

    def __post_init__(self) -> None:
        hints = get_type_hints(Grid, include_extras=True)
        for name in _LISTS:
            items = getattr(self, name)
            if isinstance(items, (str, Mapping)) or not isinstance(items, Iterable):
                raise ValueRangeError(f"{name} of a plan must be a list, got {items!r:.80}")
            set_fields(self, **{name: tuple(items)})
        for name in {*hints} - {"environments", "threats", "suite"}:
            set_fields(self, **{name: value_of(hints[name], getattr(self, name), name)})
        if not self.victims or not self.seeds:
            raise ValueRangeError("a plan needs at least one victim and one seed")
        # what a file can hold: everything is checked, and kept as JSON would have it
        for given in self.environments:
            environment_parts(given)  # raises for what is none
        for threat in self.threats:
            _check_threat(threat)
        kept = {name: getattr(self, name) for name in ("environments", "threats", "training")}
        for name, found in json_form("a plan", kept).items():
            set_fields(self, **{name: tuple(found) if name != "training" else found})
        if self.suite is not None and not isinstance(self.suite, str):  # else a name, or names
            set_fields(self, suite=value_of(tuple[str, ...], self.suite, "suite"))
        # the same twice would be two rows of one key
        for name in _LISTS:
            texts = Counter(json.dumps(item, sort_keys=True) for item in getattr(self, name))
            if double := [text for text, count in texts.items() if count > 1]:
                raise ValueRangeError(f"{name} of a plan name {double[0]} twice")

    def how(self, seed: int) -> Episodes:
        """How the cells with a seed are played."""
        return Episodes(
            self.episodes,
            seed,
            self.num_envs,
            best_of=self.best_of,
            by=self.by,
            measure=self.measure,
            quantize=self.quantize,
            metrics=self.metrics,
        )

    def stacks(self) -> Iterator[Threat]:
        """Every threat under every budget and timing that it takes."""
        for threat in self.threats:
            parts = split_stack(threat) if isinstance(threat, str) else threat
            parts = [parts] if isinstance(parts, Mapping) else list(parts)
            open_, untimed = any(_needs_budget(part) for part in parts), any(_takes_timing(part) for part in parts)
            if open_ and not self.budgets:
                raise BudgetError(f"{threat!r:.80} needs a budget: eps=... in its text, or budgets in the plan")
            budgets, timings = self.budgets if open_ else ("",), self.timings if untimed and self.timings else ("",)
            for budget, timing in itertools.product(budgets, timings):
                made = [_completed(part, budget, timing) for part in parts]
                yield " + ".join(made) if all(isinstance(part, str) for part in made) else made  # type: ignore[arg-type]


def environment_parts(given: object) -> tuple[str, dict[str, Any] | None, str | None]:
    """The id, the keyword arguments (None for those of the card) and the function of an environment in a plan.

    Raises:
        SpaceError: for anything but an id, and a dictionary with these.
    """
    if isinstance(given, str):
        return given, None, None
    if not isinstance(given, Mapping) or not isinstance(given.get("id"), str) or {*given} - {"id", "kwargs", "make"}:
        raise SpaceError(f"an environment is an id, or a dictionary with id, kwargs and make, got {given!r:.80}")
    kwargs, make = given.get("kwargs"), given.get("make")
    if not isinstance(kwargs, (Mapping, type(None))) or not isinstance(make, (str, type(None))):
        raise SpaceError(f"kwargs of an environment are a table and make a text, module:function, got {given!r:.80}")
    return given["id"], None if kwargs is None else dict(kwargs), make


def _check_threat(given: object) -> None:
    """Raise :class:`ValueRangeError` unless this is a text, a dictionary, or a list of at least one of these."""
    parts = given if isinstance(given, (list, tuple)) else [given]
    if not parts or not all(isinstance(part, (str, Mapping)) for part in parts):
        raise ValueRangeError(
            f"a threat of a plan is a text, a dictionary, or a list of these for a stack, got {given!r:.80}"
        )


def _needs_budget(part: str | Mapping[str, Any]) -> bool:
    if not isinstance(part, str):
        return False
    try:
        parse_threat(part)
    except BudgetError:
        return True
    return False


def _takes_timing(part: str | Mapping[str, Any]) -> bool:
    if not isinstance(part, str):
        return part.get("when") is None
    given = [piece.partition("=")[0].strip() for piece in split_arguments(part.partition(":")[2])]
    return not {"when", "p"} & {*given}


def _completed(part: str | Mapping[str, Any], budget: str, timing: str) -> str | dict[str, Any]:
    """A threat with a budget and a timing, where it has none of its own."""
    timing = timing if _takes_timing(part) else ""
    if not isinstance(part, str):
        return dict(as_threat(part, when=timing or None).to_dict())
    more = [budget] * (bool(budget) and _needs_budget(part)) + [f"when={timing}"] * bool(timing)
    return part.strip() + (":" if ":" not in part else ",") * bool(more) + ",".join(more)


_DEFAULTS = Grid(("none",))


@dataclass(frozen=True)
class Plan:
    """Grids of cells.

    >>> from adv_wrappers.studies import Plan
    >>> plan = Plan.of(victims=["zoo:cartpole-dqn"], threats=["noise", "pgd"], budgets=["eps=0.1", "eps=0.2"])
    >>> list(plan.grids[0].stacks())
    ['noise:eps=0.1', 'noise:eps=0.2', 'pgd:eps=0.1', 'pgd:eps=0.2']
    """

    grids: tuple[Grid, ...]

    @staticmethod
    def of(**given: object) -> Plan:
        """A plan of one grid, with the attributes of :class:`Grid`."""
        return Plan.from_dict(given)

    def __add__(self, other: Plan) -> Plan:
        return Plan((*self.grids, *other.grids))

    @property
    def code(self) -> tuple[str, ...]:
        """What its environments import and run: functions that make them, and modules in their ids."""
        parts = [environment_parts(one) for grid in self.grids for one in grid.environments]
        found = [make or named_code(id, kwargs) for id, kwargs, make in parts]
        return tuple(dict.fromkeys(text for text in found if text is not None))

    def to_dict(self) -> dict[str, Any]:
        """Values that JSON knows, without those that are the defaults."""
        grids = []
        for grid in self.grids:
            values = {f.name: getattr(grid, f.name) for f in fields(Grid)}
            missing = [f.name for f in fields(Grid) if f.default is MISSING and f.default_factory is MISSING]
            chosen = [name for name in values if name in missing or values[name] != getattr(_DEFAULTS, name)]
            grids.append(json.loads(json.dumps({name: values[name] for name in chosen})))
        return {"grids": grids}

    @staticmethod
    def from_dict(data: object) -> Plan:
        """A plan from a dictionary with ``grids``, a list; what stands beside it holds for every grid.

        Raises:
            ValueRangeError: for names that a grid does not have, and values that it cannot.
        """
        if not isinstance(data, Mapping):
            raise ValueRangeError(f"expected a plan, a dictionary with victims and threats, got {data!r:.80}")
        shared = {name: value for name, value in data.items() if name != "grids"}
        grids = data.get("grids", [{}])
        if not isinstance(grids, (list, tuple)) or not grids or not all(isinstance(grid, Mapping) for grid in grids):
            raise ValueRangeError(f"grids of a plan are a list of dictionaries, got {grids!r:.80}")
        # every grid with what all of them share
        known = {f.name for f in fields(Grid)}
        made = []
        for grid in ({**shared, **grid} for grid in grids):
            if unknown := sorted(map(str, {*grid} - known)):
                raise ValueRangeError(f"a plan has {', '.join(sorted(known))} and grids, not {', '.join(unknown)}")
            if "victims" not in grid:
                raise ValueRangeError("a plan needs victims, a list of references such as zoo:hopper-ppo")
            made.append(Grid(**grid))
        return Plan(tuple(made))

    @staticmethod
    def load(path: str | Path) -> Plan:
        """Read a plan from a ``.json`` or ``.toml`` file.

        Raises:
            ValueRangeError: for a file that cannot be read, or holds no plan.
        """
        if Path(path).suffix != ".toml":
            return Plan.from_dict(read_json(path, error=ValueRangeError))
        text = read_bytes(path, error=ValueRangeError)
        with decoding(path, ValueRangeError):
            data = tomllib.loads(text.decode())
        return Plan.from_dict(data)

    def save(self, path: str | Path) -> None:
        """Write :meth:`to_dict` as JSON; all of it, or nothing."""
        if Path(path).suffix == ".toml":
            raise ValueRangeError(f"a plan is written as JSON, and read from TOML too, got {str(path)!r:.80}")
        write_json(Path(path), self.to_dict())
