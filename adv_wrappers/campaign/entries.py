"""The attacks of a suite: which of them apply to a victim, and why the others do not."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gymnasium import spaces

from adv_wrappers.attacks.robust_sarsa import RobustSarsa
from adv_wrappers.core.budgets import Budget
from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.errors import AdvWrappersError, CardError, SpaceError, ThreatError, VictimError
from adv_wrappers.evaluation.environments import spaces_of
from adv_wrappers.presets import parse_threat, threat
from adv_wrappers.training.sarsa import exploring_victim
from adv_wrappers.victims.victim import Victim
from adv_wrappers.wrappers.adversary_config import as_actor
from adv_wrappers.wrappers.base import as_float

# Attacks that need no training, as the texts of threats. MaxDiff is here in its published form and as a search for the
# largest divergence: more divergence is not less return, so either may be the stronger one.
READY = {name: name for name in ("noise", "min-best", "pgd", "apgd", "multi-targeted", "momentum", "min-q", "max-diff")}
READY["strong-max-diff"] = "max-diff:restarts=6,keep=best,noise=0"
MANY = ("apgd", "multi-targeted")  # of a hundred gradients a step and more, which take hours on images
SARSA = "robust-sarsa"
LEARNED = ("sa-rl", "pa-ad")
ATTACKS = (*READY, SARSA, *LEARNED)
_OURS = {
    "env",
    "victim",
    "eps",
    "scale",
    "within",
    "kind",
    "form",
    "steps",
    "seed",
    "num_envs",
    "when",
    "out",
    "progress",
}
_OURS |= {"env_kwargs", "make", "quantize"}


def asked(attacks: Any) -> tuple[str, ...]:
    """The names that a caller keeps, in the suite's order; None keeps all.

    Raises:
        ThreatError: for none, and for a name that no attack of the suite has.
    """
    names = ATTACKS if attacks is None else (attacks,) if isinstance(attacks, str) else tuple(attacks)
    unknown = [name for name in names if name not in ATTACKS]
    if unknown or not names:
        got = ", ".join(map(repr, unknown)) or "none"
        raise ThreatError(f"expected names of attacks out of {', '.join(ATTACKS)}, got {got}")
    return tuple(name for name in ATTACKS if name in names)


def ready(name: str, budget: Budget) -> ThreatModel:
    """The threat that a name of ``READY`` stands for."""
    return parse_threat(READY[name], within=budget)


def reasons(
    names: Sequence[str], victim: Victim, one: Callable[[], Any], budget: Budget, quantize: bool
) -> dict[str, str]:
    """Why attacks are left out, by name.

    Args:
        names: of the attacks that were asked for.
        one: makes one environment.
        quantize: as for :func:`adv_wrappers.evaluate`.

    Raises:
        AdvWrappersError: for a victim or a budget that does not fit, and where no attack is left.
    """
    seen, acted = spaces_of(one, victim)
    seen = seen if quantize else as_float(seen, threat("noise", within=budget))
    found = {name: against(name, victim, budget, seen, acted) for name in names}
    if all(found.values()):
        raise ThreatError("no attack applies: " + "; ".join(f"{name}: {reason}" for name, reason in found.items()))
    whole = {name: found.get(name, "not asked for") for name in ATTACKS}
    return {name: reason for name, reason in whole.items() if reason is not None}


def against(name: str, victim: Victim, budget: Budget, seen: spaces.Space[Any], acted: spaces.Space[Any]) -> str | None:
    """Why an attack does not apply to a victim, or None where it does.

    Args:
        name: of ``ATTACKS``.
        seen, acted: the environment's spaces.

    Raises:
        BudgetError: for a budget that makes no sense there.
    """
    try:
        if name in READY:
            ready(name, budget).against(victim).check(seen, acted)
            if name in MANY and len(seen.shape or ()) > 1:
                return "on images it takes too long: evaluate it by itself"
        elif name == SARSA:
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


def trainer() -> Callable[..., Any]:
    """``train_adversary``; raises :class:`AdvWrappersError` where Stable-Baselines3 is missing."""
    try:
        from adv_wrappers.training.train_adversary import train_adversary
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "stable_baselines3":
            raise
        needs = "adversaries that learn are trained with Stable-Baselines3: pip install 'adv_wrappers[sb3]'"
        raise AdvWrappersError(needs) from error
    return train_adversary


def check_training(training: Mapping[str, Any]) -> None:
    """Raise :class:`ThreatError` for what :func:`train_adversary` does not take, or the suite decides itself."""
    train = trainer()
    from adv_wrappers.training.train_adversary import ALGORITHMS

    algorithm = training.get("algorithm", "ppo")
    if algorithm not in ALGORITHMS:
        raise ThreatError(f"algorithm must be one of {', '.join(map(repr, ALGORITHMS))}, got {algorithm!r}")
    known = {*inspect.signature(train).parameters, *inspect.signature(ALGORITHMS[algorithm]).parameters}
    known -= {*_OURS, "settings", "policy", "device", "self"}
    unknown = sorted({*training} - known)
    if unknown:
        raise ThreatError(f"training takes {', '.join(sorted(known))}, not {', '.join(unknown)}")


def checkpoints(folder: str | Path) -> list[dict[str, Any]]:
    """The checkpoints of a training in a folder: each with ``steps`` and the ``mean_return`` that it leaves.

    Raises:
        CardError: for a folder without a training.
    """
    try:
        record = json.loads((Path(folder) / "state.json").read_text(encoding="utf-8"))["record"]
        return [dict(row) for row in record]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CardError(f"cannot read the training in {folder}: {error}") from error
