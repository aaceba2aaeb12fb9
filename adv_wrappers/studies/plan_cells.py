"""The cells of a plan: what is played, each one row, and what is left out because it does not apply.

A cell has the key of :func:`adv_wrappers.evaluation.rows.row_key.row_key`, so a row that a store holds already is the
same row. Everything is checked here, before anything is played.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from filelock import Timeout

from adv_wrappers.core.budgets.budget import Budget, Valid
from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.environments.environment import Environment, json_value, named_code
from adv_wrappers.environments.named_function import MakeFunction
from adv_wrappers.errors import (
    AdvWrappersError,
    BudgetError,
    OutputError,
    SpaceError,
    ThreatError,
    ValueRangeError,
    VictimError,
)
from adv_wrappers.evaluation.cost import warn_of_long_attacks
from adv_wrappers.evaluation.episodes import Episodes
from adv_wrappers.evaluation.evaluator import Evaluator
from adv_wrappers.evaluation.player import Cell, Player
from adv_wrappers.evaluation.rows.row_key import row_key
from adv_wrappers.evaluation.threat_stacks import CLEAN_RUN, as_threat_stack, json_form
from adv_wrappers.studies.plan import Grid, Plan, Threat, environment_parts
from adv_wrappers.studies.suite.attack_lists import SUITES, TIMED, entries_that_apply, entry_named
from adv_wrappers.studies.suite.entry import AttackSetting
from adv_wrappers.threats.presets import BUDGET_ARGUMENTS, as_threat, parse_threat
from adv_wrappers.utils.files import held
from adv_wrappers.utils.parsing import split_arguments, split_stack, without_arguments
from adv_wrappers.victims import Victim, environment_of, load_victim
from adv_wrappers.victims.references import load_referenced

# ----------------------------------------------------------------------------------------------------------------------
# Attacks of a plan that are made where their cell is played: those that are trained, or searched for its episodes.
#
# What such an attack will be is not known when the plan is expanded, so its cell is known by the recipe: the same entry
# under the same budget, trained with the same settings, is the same cell. Trainings are kept in folders, so that the
# cells of several seeds share one, and a run that is killed goes on in the middle of it.
# ----------------------------------------------------------------------------------------------------------------------


_WAIT = 0.5  # seconds between two looks at a folder that another process trains in


@dataclass(frozen=True)
class AttackRecipe:
    """How an attack is made, as values that JSON knows.

    Attributes:
        entry: the name of the entry of a suite.
        budget, when: the texts of the budget of observations and of the timing, or None.
        trained: whether it is trained, and not only searched for the episodes that are played.
        steps, seed, training, num_envs: of the training, as for :class:`AttackSetting`.
    """

    entry: str
    budget: str | None = None
    when: str | None = None
    trained: bool = False
    steps: int = 0
    seed: int = 0
    training: Mapping[str, Any] = field(default_factory=dict)
    num_envs: int | None = None

    @property
    def name(self) -> str:
        """Its text: that of a threat with these arguments."""
        given = [self.budget or ""] * bool(self.budget) + [f"when={self.when}"] * bool(self.when)
        return self.entry + (":" if ":" not in self.entry else ",") * bool(given) + ",".join(given)

    @property
    def identity(self) -> Any:
        """What it is known by; how a budget is written does not matter."""
        within = self.within
        return {"recipe": {**asdict(self), "budget": None if within is None else within.to_dict()}}

    @property
    def within(self) -> Budget | None:
        """The budget of observations."""
        return budget_from_text(self.budget)

    def setting(self, victim: Victim, environment: Environment, episodes: Episodes) -> AttackSetting:
        """What the entry is made for: a victim in an environment, and the episodes that are played."""
        return AttackSetting(
            victim,
            environment,
            self.within,
            quantize=episodes.quantize,
            train=self.trained,
            seed=self.seed,
            steps=self.steps,
            training=self.training,
            num_envs=self.num_envs,
            episodes=episodes.count,
            episode_seed=episodes.seed,
        )

    def folder(self, trainings: Path, setting: AttackSetting) -> Path:
        """Of its training, among those of all recipes, victims and environments."""
        victim, about = setting.victim, json_value(setting.environment.described)
        known = [victim.described(), about, setting.quantize, self.identity]
        digest = sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()
        return trainings / f"{self.entry.partition(':')[0]}-{digest[:16]}"

    def threat(self, setting: AttackSetting) -> ThreatModel:
        """Make the attack; where another process trains it, wait for that."""
        with contextlib.nullcontext() if setting.out is None else _turn(setting.out):
            made = entry_named(self.entry).attack(setting).threat
        return with_timing(made, self.when)


def with_timing(threat: ThreatModel, when: str | None) -> ThreatModel:
    """A threat with a timing, where it has none of its own."""
    return threat if when is None or threat.when is not None else as_threat(threat, when=when)


def budget_from_text(text: str | None) -> Budget | None:
    """The budget with these arguments, such as ``eps=0.1,scale=victim``; None for None.

    Raises:
        BudgetError: for other arguments than those of a budget.
    """
    if text is None:
        return None
    named = {piece.partition("=")[0].strip() for piece in split_arguments(text)}
    if other := sorted(named.difference(BUDGET_ARGUMENTS)):
        raise BudgetError(f"a budget has {', '.join(sorted(BUDGET_ARGUMENTS))}, not {', '.join(other)}: {text!r:.80}")
    return parse_threat(f"noise:{text}").budget


@contextlib.contextmanager
def _turn(folder: Path) -> Iterator[None]:
    """Hold a folder, after whoever holds it now."""
    with contextlib.ExitStack() as opened:
        while True:
            try:
                opened.enter_context(held(folder))
                break
            except OutputError as error:
                if not isinstance(error.__cause__, Timeout):
                    raise
                time.sleep(_WAIT)
        yield


_UNTIMED = "it is searched for attacks at every step: a grid without timings has it"


@dataclass(frozen=True)
class PlanCell:
    """One row of an evaluation that is to be played, as values that JSON knows.

    Attributes:
        key: what the row is known by.
        victim, select, device: the agent.
        environment: how the environment is made.
        threat: None for the run without one, and where there is a recipe; else a text, a dictionary or a list of these.
        recipe: of an attack that is made where the cell is played, or None.
        name: the text of the threat.
        episodes: how they are played.
        trainings: the folder where attacks that are trained are kept; None is one that ends with the process.
    """

    key: str
    victim: str
    select: str | None
    device: str
    environment: Environment
    threat: Threat | None
    recipe: AttackRecipe | None
    name: str
    episodes: Episodes
    trainings: str | None = None

    @property
    def is_clean(self) -> bool:
        """Whether nothing is attacked, but perhaps by the environment itself."""
        return self.threat is None and self.recipe is None

    @property
    def setting(self) -> str:
        """What cells have in common whose runs without a threat are alike: all but the threat and the seed."""
        environment, episodes = json.dumps(self.environment.described, sort_keys=True), replace(self.episodes, seed=0)
        return repr((self.victim, self.select, self.device, environment, episodes))

    @property
    def kind(self) -> tuple[str, ...]:
        """Cells of one kind cost about the same: they differ in their seeds, and in the radius of a budget."""
        texts = [] if self.is_clean else split_stack(self.name)
        name = " + ".join(without_arguments(text, "eps") for text in texts) or self.name
        return name, self.setting, repr(self.recipe and replace(self.recipe, budget=None))

    def __str__(self) -> str:
        return f"{self.victim} on {self.environment}, {self.name}, seed {self.episodes.seed}"


@dataclass(frozen=True)
class Expansion:
    """The cells of a plan.

    Attributes:
        cells: in the order in which they are played.
        left_out: by cell that does not apply, as ``victim on environment, threat``, the reason.
    """

    cells: tuple[PlanCell, ...]
    left_out: Mapping[str, str] = field(default_factory=dict)


def expand(plan: Plan, victims: Mapping[str, Victim] | None = None, *, trust: bool = False) -> Expansion:
    """All cells, after checking every threat against every victim and environment; nothing is played.

    Args:
        plan: the plan.
        victims: victims that the plan calls by these names.
        trust: import modules that cards name with their environments, where the plan names none.

    Raises:
        AdvWrappersError: one of its kinds, for an unknown victim or environment, a budget below one grey level, and
            whatever else cannot work; :class:`TrustError` for a card whose environment is of a module, without
            ``trust``.
        ValueRangeError: for two cells of one key.
        ThreatError: where no cell with a threat applies.

    Warns:
        UserWarning: of attacks that take long, as :func:`adv_wrappers.evaluate` does.

    >>> from adv_wrappers.studies import Plan, expand
    >>> plan = Plan.of(victims=["zoo:cartpole-dqn"], threats=["noise", "pgd"], budgets=["eps=0.1"], seeds=[0, 1])
    >>> [str(cell) for cell in expand(plan).cells][:2]
    ['zoo:cartpole-dqn on CartPole-v1, none, seed 0', 'zoo:cartpole-dqn on CartPole-v1, noise:eps=0.1, seed 0']
    """
    check_victims(victims)
    known, left_out = dict[str, PlanCell](), dict[str, str]()
    for grid in plan.grids:
        found, reasons = _GridExpansion(grid, victims or {}, trust).cells()
        for cell in found:
            if not cell.is_clean and cell.key in known:  # grids may share the runs without a threat
                raise ValueRangeError(f"two cells of one key: {known[cell.key]} and {cell}")
            known.setdefault(cell.key, cell)
        left_out |= reasons
    cells = known.values()
    if all(cell.is_clean for cell in cells) and any(grid.threats or grid.suite for grid in plan.grids):
        reasons_ = "; ".join(f"{name}: {reason}" for name, reason in left_out.items())
        raise ThreatError(f"no cell of the plan applies: {reasons_}")
    return Expansion(tuple(cells), left_out)


class _GridExpansion:
    """The cells of one grid, and why others are left out."""

    def __init__(self, grid: Grid, victims: Mapping[str, Victim], trust: bool) -> None:
        self.grid = grid
        self.given = victims
        self.trust = trust
        self.stacks: list[Threat | None] = [None, *grid.stacks()]
        self.left_out: dict[str, str] = {}

    def cells(self) -> tuple[list[PlanCell], dict[str, str]]:
        found: list[PlanCell] = []
        for name in self.grid.victims:
            victim = self.given[name] if name in self.given else load_of_plan(name, self.grid.select, self.grid.device)
            if self.grid.select not in (None, victim.select):
                raise VictimError(f"{name} acts by its {victim.select}, the plan says select={self.grid.select!r}")
            # each victim in the environments that it fits, of which there has to be one
            fitting = 0
            for environment in self.grid.environments or [_own_environment(name, victim, self.trust)]:
                try:
                    found += self._of_pair(name, victim, environment)
                    fitting += 1
                except VictimError as error:  # of a victim for another environment of the same grid
                    if len(self.grid.environments) < 2:
                        raise
                    self.left_out[f"{name} on {environment_of_plan(environment)}"] = str(error)
            if not fitting:
                raise VictimError(f"{name} fits none of the plan's environments: {[*self.left_out.values()][-1]}")
        return found, self.left_out

    def _of_pair(self, name: str, victim: Victim, given: str | Mapping[str, Any]) -> list[PlanCell]:
        grid = self.grid
        environment = environment_of_plan(given)
        # one environment is opened, in which every threat is tried
        evaluator = Evaluator(
            victim, environment, [CLEAN_RUN], replace(grid.how(0), num_envs=1, best_of=1), player=(player := Player())
        )
        made: list[PlanCell] = []
        with closing(player):
            if not victim.is_known:
                raise VictimError(f"{name} is a function, which its rows could not be known by: evaluate it by itself")
            fitted = grid.how(0).fitted(victim)
            width = fitted.num_envs or 1
            for threat in [*self.stacks, *self._of_suite(name, victim, environment)]:
                # a recipe is known by its arguments until it is carried out, a threat by its dictionary
                if isinstance(threat, AttackRecipe):
                    recipe = threat
                    text = threat.name
                    layers = [threat.identity]
                else:
                    try:
                        stack = evaluator.stacks[0] if threat is None else as_threat_stack(threat, victim)
                        player.open([Cell(victim, evaluator.environment, stack, evaluator.episodes)])
                        warn_of_long_attacks([stack])
                    except (SpaceError, VictimError) as error:
                        self.left_out[f"{name} on {environment}, {threat}"] = str(error)
                        continue
                    recipe = None
                    text = stack.name
                    layers = [json_form(layer) for layer in stack.layers]
                # a cell for every seed, by the key of its row
                for seed in grid.seeds:
                    episodes = replace(fitted, seed=seed)
                    about = {**evaluator.about, "seed": seed, "num_envs": width, "episode_seeds": episodes.seeds}
                    # the key is known before anything is played, or the row could not be found again
                    key = row_key(about, layers, grid.best_of if layers else 1, evaluator.sampled)
                    if key is None:
                        raise ThreatError(f"{text} has no JSON form, which a plan needs")
                    made.append(
                        PlanCell(
                            key=key,
                            victim=name,
                            select=grid.select,
                            device=grid.device,
                            environment=environment,
                            threat=None if isinstance(threat, AttackRecipe) else threat,
                            recipe=recipe,
                            name=text,
                            episodes=episodes,
                        )
                    )
        # seed by seed: so a run that is cut short has whole tables
        place = {seed: i for i, seed in enumerate(grid.seeds)}
        return sorted(made, key=lambda cell: place[cell.episodes.seed])

    def _of_suite(self, name: str, victim: Victim, environment: Environment) -> list[Threat | AttackRecipe]:
        """The entries of the grid's suite that apply, under each budget and timing.

        They are dictionaries, or recipes of those that are trained, or searched for the episodes that are played.
        """
        grid, found = self.grid, dict[str, Threat | AttackRecipe]()
        for budget in (grid.budgets or (None,)) if grid.suite is not None else ():
            # what is trained, and under which budget; an entry has its own
            trained = AttackRecipe(
                "", budget, None, grid.train, grid.steps, grid.training_seed, grid.training, grid.num_envs
            )
            setting = trained.setting(victim, environment, grid.how(0))
            entries, reasons = entries_that_apply(grid.suite or (), setting)
            if grid.timings:
                reasons |= {entry.name: _UNTIMED for entry in entries if entry.per_episodes}
                entries = tuple(entry for entry in entries if not entry.per_episodes)
            where = f"{name} on {environment}"
            self.left_out |= {f"{where}, {entry}": reason for entry, reason in reasons.items()}
            # what is trained, or searched, becomes a recipe; all else is made now and kept as its dictionary
            for entry, timing in itertools.product(entries, grid.timings or (None,)):
                timing = None if entry.name in TIMED else timing
                made: Threat | AttackRecipe
                own = None if entry in SUITES["action"] and setting.within("action") == Valid() else budget
                if entry.trains(setting):
                    made = replace(trained, entry=entry.name, budget=own, when=timing)
                elif entry.per_episodes:
                    made = AttackRecipe(entry.name, own, timing)
                else:
                    threat = entry.attack(setting).threat
                    timing = timing if threat.when is None else None
                    made = _loadable_form(with_timing(threat, timing)) or AttackRecipe(entry.name, own, timing)
                known = made.identity if isinstance(made, AttackRecipe) else made
                found.setdefault(json.dumps(known, sort_keys=True), made)  # entries with a budget of their own
        return list(found.values())


def _loadable_form(threat: ThreatModel) -> dict[str, Any] | None:
    """The dictionary that a threat is loaded from; None where there is none, as with a victim made for it."""
    found = json_form(threat)
    try:
        if found is not None:
            ThreatModel.from_dict(found, load_referenced)
    except AdvWrappersError:
        return None
    return found


def check_victims(victims: Mapping[str, Victim] | None) -> None:
    """Raise :class:`VictimError` unless these are victims by their names in a plan."""
    for name, victim in (victims or {}).items():
        if not isinstance(victim, Victim):
            raise VictimError(f"victims are handed over as objects, {name!r} is {victim!r:.80}: a plan has references")


def load_of_plan(name: str, select: str | None, device: str) -> Victim:
    """The victim of a plan; raises :class:`VictimError` for an unknown one."""
    return load_victim(name, select=select, device=device)  # type: ignore[arg-type]  # it says what select must be


def _own_environment(name: str, victim: Victim, trust: bool) -> str | dict[str, Any]:
    """The environment of a victim's card; its keyword arguments follow from the card, or are given where trusted."""
    if victim.card is None:
        raise VictimError(f"{name} has no card that names its environment: give the plan environments")
    id, kwargs = environment_of(victim.card)
    Environment.of_file(id, kwargs, f"the card of {name}", trust)
    return {"id": id, "kwargs": kwargs} if named_code("", kwargs) else id


def environment_of_plan(given: str | Mapping[str, Any]) -> Environment:
    """The environment that a plan gives as an id, or as a dictionary with ``id``, ``kwargs`` and ``make``."""
    id, kwargs, make = environment_parts(given)
    return Environment(id, kwargs, None if make is None else MakeFunction(make))
