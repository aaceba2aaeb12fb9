"""The attacks of a suite: their names, which of them apply to a victim, and why the others do not."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence

import gymnasium as gym
from gymnasium import spaces

from adv_wrappers.adversaries.learned import Learned
from adv_wrappers.attacks.model_based import ModelBased
from adv_wrappers.attacks.robust_sarsa import RobustSarsa
from adv_wrappers.attacks.targets import target_of
from adv_wrappers.core.budgets import Budget
from adv_wrappers.core.types import Action, Observation, Space
from adv_wrappers.errors import AdvWrappersError, SpaceError, ThreatError, VictimError
from adv_wrappers.evaluation.environments import spaces_of
from adv_wrappers.evaluation.untrained_attacks import (
    BEAM,
    UNTRAINED,
    check_names,
    why_no_beam,
    why_untrained_excluded,
)
from adv_wrappers.presets import threat
from adv_wrappers.training.sarsa import exploring_victim
from adv_wrappers.victims.dynamics import Dynamics
from adv_wrappers.victims.victim import Victim
from adv_wrappers.wrappers.adversary_config import as_actor
from adv_wrappers.wrappers.base import as_float

SARSA = "robust-sarsa"
LEARNED = ("sa-rl", "pa-ad")
MODEL = ModelBased.name
ATTACKS = (*UNTRAINED, BEAM, MODEL, SARSA, *LEARNED)
# arguments of train_adversary that the suite sets itself
_SUITE_ARGUMENTS = {"env", "victim", "eps", "scale", "within", "kind", "form", "steps", "seed", "num_envs", "when"}
_SUITE_ARGUMENTS |= {"out", "progress", "env_kwargs", "make", "quantize"}


def select_attacks(attacks: str | Iterable[str] | None) -> tuple[str, ...]:
    """The chosen names of attacks, in the suite's order; None chooses all.

    Raises:
        ThreatError: for no names, and for unknown ones.
    """
    names = ATTACKS if attacks is None else (attacks,) if isinstance(attacks, str) else tuple(attacks)
    check_names(names, ATTACKS)
    return tuple(name for name in ATTACKS if name in names)


def exclusions(
    names: Sequence[str],
    victim: Victim,
    make_env: Callable[[], gym.Env[Observation, Action]],
    budget: Budget,
    quantize: bool,
    dynamics: Dynamics | None = None,
) -> dict[str, str]:
    """The reasons why attacks are left out, by name.

    Args:
        names: names of the attacks that were chosen.
        victim: the victim under attack.
        make_env: makes one environment.
        budget: the budget of the attacks.
        quantize: as for :func:`adv_wrappers.evaluate`.
        dynamics: the model that ``model-based`` plans through, or None.

    Raises:
        AdvWrappersError: for a victim, a budget or a model that does not fit, and where no attack is left.
    """
    seen, acted = spaces_of(make_env, victim)
    seen = seen if quantize else as_float(seen, threat("noise", within=budget))
    if dynamics is not None:
        model_based(victim, dynamics)

    def why(name: str) -> str | None:
        if name == BEAM:
            return why_no_beam(victim, make_env, budget)
        return why_no_model(dynamics) if name == MODEL else why_excluded(name, victim, budget, seen, acted)

    found = {name: why(name) for name in names}
    if all(found.values()):
        raise ThreatError("no attack applies: " + "; ".join(f"{name}: {reason}" for name, reason in found.items()))
    whole = {name: found.get(name, "not asked for") for name in ATTACKS}
    return {name: reason for name, reason in whole.items() if reason is not None}


def why_no_model(dynamics: Dynamics | None) -> str | None:
    """The reason why a model-based attack is left out, or None where there is a model."""
    return "it needs a model of the environment: dynamics=" if dynamics is None else None


def model_based(victim: Victim, dynamics: Dynamics) -> ModelBased:
    """The attack that plans through a model, to the environment's unsafe state, or else to the least reward.

    Raises:
        AdvWrappersError: one of its kinds, for a victim that the model does not fit.
    """
    about = dynamics.card.get("environment")
    known = isinstance(about, dict) and target_of(about.get("id")) is not None
    return ModelBased(victim, dynamics, None if known else "reward", 5, restarts=8)


def why_excluded(name: str, victim: Victim, budget: Budget, seen: Space, acted: Space) -> str | None:
    """The reason why an attack does not apply to a victim, or None where it does.

    Args:
        name: a name of ``ATTACKS``, other than ``beam`` (:func:`why_no_beam`) and ``model-based``.
        victim: the victim under attack.
        budget: the budget of the attack.
        seen, acted: the environment's spaces of observations and actions.

    Raises:
        BudgetError: for a budget that makes no sense there.
    """
    if name in UNTRAINED:
        return why_untrained_excluded(name, victim, budget, seen, acted)
    try:
        if name == SARSA:
            RobustSarsa(victim, critic=lambda obs, act: act)
            if victim.robust_sarsa is None:
                exploring_victim(victim, 1.0)
        else:
            if not isinstance(seen, spaces.Box):
                raise SpaceError(f"{name} is trained on a Box of observations, this victim sees {seen}")
            if name == "sa-rl" and len(seen.shape) > 1:
                size = " x ".join(map(str, seen.shape))
                return f"on images it would choose {size} numbers a step, which PPO cannot learn"
            as_actor(name, victim).action_space(seen.shape)
            from adv_wrappers.training.director_networks import policy_kwargs

            policy_kwargs(seen)
    except (VictimError, SpaceError) as error:
        return str(error)
    return None


def import_train_adversary() -> Callable[..., Learned]:
    """Import ``train_adversary``; raises :class:`AdvWrappersError` where Stable-Baselines3 is not installed."""
    try:
        from adv_wrappers.training.train_adversary import train_adversary
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "stable_baselines3":
            raise
        needs = "adversaries that learn are trained with Stable-Baselines3: pip install 'adv_wrappers[sb3]'"
        raise AdvWrappersError(needs) from error
    return train_adversary


def check_training(training: Mapping[str, object]) -> None:
    """Raise :class:`ThreatError` for arguments that :func:`train_adversary` does not take, or that the suite sets."""
    train = import_train_adversary()
    from adv_wrappers.training.train_adversary import ALGORITHMS

    algorithm = training.get("algorithm", "ppo")
    if algorithm not in ALGORITHMS:
        raise ThreatError(f"algorithm must be one of {', '.join(map(repr, ALGORITHMS))}, got {algorithm!r}")
    known = {*inspect.signature(train).parameters, *inspect.signature(ALGORITHMS[algorithm]).parameters}
    known -= {*_SUITE_ARGUMENTS, "settings", "policy", "device", "self"}
    unknown = sorted({*training} - known)
    if unknown:
        raise ThreatError(f"training takes {', '.join(sorted(known))}, not {', '.join(unknown)}")
