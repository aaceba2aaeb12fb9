"""Attacks of a plan that are made where their cell is played: those that are trained, or searched for its episodes.

What such an attack will be is not known when the plan is expanded, so its cell is known by the recipe: the same entry
under the same budget, trained with the same settings, is the same cell. Trainings are kept in folders, so that the
cells of several seeds share one, and a run that is killed goes on in the middle of it.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from filelock import Timeout

from adv_wrappers.campaign.suite_attack_entry import AttackSetting
from adv_wrappers.campaign.suites import entry_named
from adv_wrappers.core.budgets import Budget
from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.errors import BudgetError, OutputError
from adv_wrappers.evaluation.environments import Environment, json_value
from adv_wrappers.evaluation.episodes import Episodes
from adv_wrappers.threats.presets import BUDGET_ARGUMENTS, as_threat, parse_threat
from adv_wrappers.utils.files import held
from adv_wrappers.utils.text import split_arguments
from adv_wrappers.victims import Victim

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
        return budget_of(self.budget)

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


def budget_of(text: str | None) -> Budget | None:
    """The budget with these arguments, such as ``eps=0.1,scale=victim``; None for None.

    Raises:
        BudgetError: for other arguments than those of a budget.
    """
    if text is None:
        return None
    named = {piece.partition("=")[0].strip() for piece in split_arguments(text)}
    if other := sorted(named - BUDGET_ARGUMENTS):
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
