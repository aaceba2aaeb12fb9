"""Entries of suites: an attack by name, whether it applies to a victim, and how it is made against that victim.

A suite is a sequence of entries. What an entry may know is an :class:`AttackSetting`: one victim in one environment
under one budget. So an attack of one's own joins a suite as one more entry, and whoever runs many victims, environments
and budgets makes one setting for each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from gymnasium import spaces

from adv_wrappers.core.arrays import Scale
from adv_wrappers.core.budgets.budget import L0, L2, Budget, Linf, Valid
from adv_wrappers.core.perturbation import On
from adv_wrappers.core.spaces import has_images
from adv_wrappers.core.threat import ThreatModel, needed_budget
from adv_wrappers.core.types import Space
from adv_wrappers.environments.environment import AnyEnvironment, Environment, EnvKwargs, MakeEnv
from adv_wrappers.errors import ThreatError
from adv_wrappers.evaluation.episodes import Episodes
from adv_wrappers.threats.presets import threat
from adv_wrappers.training.models.critic_scan import SMALL
from adv_wrappers.training.models.robust_sarsa import CriticSetting
from adv_wrappers.utils.frozen import set_fields
from adv_wrappers.utils.pace import Progress
from adv_wrappers.victims import load_victim
from adv_wrappers.victims.auxiliary_networks import Dynamics, load_dynamics
from adv_wrappers.victims.victim import Victim
from adv_wrappers.wrappers.layer import as_float

ONE_RUN = "one setting, one run"
NO_BUDGET = "it needs a budget: eps=, or within="
NO_ACTION_BUDGET = (
    "continuous actions need a budget in their own units: action_within=, where eps= or within= has another unit"
)


@dataclass(frozen=True)
class AttackSetting:
    """One victim in one environment under one budget, and all that an entry may know of how it is attacked.

    Args:
        victim: the victim or its reference.
        env: an id, a function that makes one environment, or an :class:`.Environment`.
        quantize: as for :func:`adv_wrappers.evaluate`.
        budget: of perturbed observations; None leaves out the entries that need one.
        action_budget: of perturbed actions; None takes any action where they are discrete, and else the numbers of
            ``budget``, unless that has a unit of its own.
        train: whether attacks may be trained, which takes minutes to hours each.
        seed: seeds all trainings.
        steps: training steps of each adversary that learns.
        critics: settings for :func:`adv_wrappers.training.models.critic_scan.scan_critics`.
        training: further arguments of :func:`adv_wrappers.train_adversary`.
        num_envs: the number of environments of trainings; None takes that of each training.
        dynamics: a model of the environment or its reference, or None.
        out: a folder in which every training gets a folder of its own; or None.
        episodes, episode_seed: the episodes that the attack is scored on, for what is searched for on these very ones.
        part: the name of these episodes.
        progress: called as ``progress(what, done, total)``.

    Raises:
        VictimError: for what is no victim.
        BudgetError: for a budget in the victim's unit where it has none.
    """

    victim: Victim
    env: AnyEnvironment
    budget: Budget | None = None
    action_budget: Budget | None = None
    quantize: bool = True
    train: bool = False
    seed: int = 1
    steps: int = 100_000
    critics: Sequence[CriticSetting] = SMALL
    training: Mapping[str, object] = field(default_factory=dict)
    num_envs: int | None = None
    dynamics: Dynamics | None = None
    out: Path | None = None
    episodes: int = 50
    episode_seed: int = 0
    part: str = "evaluation"
    progress: Progress | None = None

    def __post_init__(self) -> None:
        given = cast(dict[str, object], vars(self))
        set_fields(self, victim=load_victim(self.victim))
        if given["dynamics"] is not None:
            set_fields(self, dynamics=load_dynamics(given["dynamics"]))  # type: ignore[arg-type]
        if self.budget is not None:
            self.budget.resolve(self.victim)

    @classmethod
    def of(
        cls,
        victim: Victim | str,
        env: AnyEnvironment,
        eps: float | None,
        scale: Scale,
        within: Budget | None,
        env_kwargs: EnvKwargs | None,
        make: MakeEnv | None,
        seed: int,
        **others: Any,
    ) -> AttackSetting:
        """What :func:`adv_wrappers.run_suite` is given: trainings get the next seed.

        Args:
            victim, env, eps, scale, within, env_kwargs, make, seed: as for it.
            **others: attributes by name.
        """
        agent = load_victim(victim)
        without = eps is None and within is None and scale is None
        budget = None if without else needed_budget("the suite", eps, scale, within)
        environment = Environment.of(env, agent, env_kwargs, make)
        return cls(agent, environment, budget, seed=seed + 1, episode_seed=seed, **others)

    @cached_property
    def environment(self) -> Environment:
        """The environment, as the victim needs it."""
        return Environment.of(self.env, self.victim)

    @cached_property
    def spaces(self) -> tuple[Space, Space]:
        """The environment's spaces of observations and actions, as threats meet them."""
        seen, acted = self.environment.spaces_for(self.victim)
        return (seen if self.quantize else as_float(seen, threat("noise", norm="valid"))), acted

    @property
    def scored_episodes(self) -> Episodes:
        """The episodes that attacks are scored on."""
        return Episodes(self.episodes, self.episode_seed, self.num_envs, distances=(), quantize=self.quantize)

    @property
    def images(self) -> bool:
        """Whether observations are images, on which some attacks take hours."""
        return has_images(self.spaces[0])

    def within(self, on: On) -> Budget | None:
        """The budget of perturbed observations or actions; None where there is none."""
        if on == "observation":
            return self.budget
        if self.action_budget is not None or not isinstance(self.spaces[1], spaces.Box):
            return self.action_budget or Valid()
        plain = isinstance(self.budget, (Linf, L2, L0)) and getattr(self.budget, "scale", None) is None
        return self.budget if plain else None

    def no_budget(self, on: On = "observation") -> str | None:
        """Why there is no budget of perturbed observations or actions; None where there is one."""
        return None if self.within(on) is not None else NO_BUDGET if on == "observation" else NO_ACTION_BUDGET

    def folder(self, name: str) -> Path | None:
        """The folder of what is trained under this name; or None."""
        return None if self.out is None else self.out / name

    def report(self, what: str, done: int, total: int) -> None:
        """Tell ``progress``, if there is one."""
        if self.progress is not None:
            self.progress(what, done, total)


@dataclass(frozen=True)
class MadeAttack:
    """An attack on one victim, with how its figures come about.

    Attributes:
        threat: what is evaluated; a victim that it leaves open is the one under attack.
        protocol: of how many runs, settings and checkpoints it is the best.
        warnings: signs that it could be stronger.
    """

    threat: ThreatModel
    protocol: str = ONE_RUN
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Entry:
    """An attack of a suite.

    Args:
        name: by which reports and folders call it, unlike all others of a suite.
        applies: called with a setting: the reason why the attack is left out there, or None where it applies. It
            raises for arguments that cannot work anywhere.
        make: called with a setting to which it applies: the threat, or a :class:`MadeAttack` where there is more to say
            of how it came about.
        trained: whether making it takes minutes to hours, or a function of the setting that says so; it is left out
            unless the setting allows it.
        per_episodes: whether it is made for the episodes that it is scored on, and so again for others.

    Raises:
        ThreatError: for a name that is none.
    """

    name: str
    applies: Callable[[AttackSetting], str | None]
    make: Callable[[AttackSetting], ThreatModel | MadeAttack]
    trained: bool | Callable[[AttackSetting], bool] = False
    per_episodes: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.strip() or self.name == "none":
            raise ThreatError(f"the name of an entry is a text, and none is that of the clean run, got {self.name!r}")

    def trains(self, setting: AttackSetting) -> bool:
        """Whether making it for this setting takes minutes to hours."""
        return self.trained(setting) if callable(self.trained) else self.trained

    def attack(self, setting: AttackSetting) -> MadeAttack:
        """What ``make`` makes, as a :class:`MadeAttack`; :class:`ThreatError` where it makes something else."""
        made = self.make(setting)
        if isinstance(made, MadeAttack):
            return made
        if not isinstance(made, ThreatModel):
            raise ThreatError(
                f"make of the entry {self.name!r} must return a ThreatModel or a MadeAttack, got {made!r:.80}"
            )
        return MadeAttack(made)
