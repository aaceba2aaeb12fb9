"""The attacks that need no training: their names, which of them apply to a victim, and why the others do not."""

from __future__ import annotations

from contextlib import closing

from adv_wrappers.core.budgets.budget import Budget
from adv_wrappers.core.spaces import At, Field, has_images
from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.core.types import Space
from adv_wrappers.environments.environment import Environment
from adv_wrappers.errors import BudgetError, SnapshotError, SpaceError, VictimError
from adv_wrappers.evaluation.searches.search_tree import DeterministicEpisodes, check_searchable
from adv_wrappers.threats.presets import parse_threat, read_text, threat_layers
from adv_wrappers.victims.gradients import need_gradient
from adv_wrappers.victims.victim import Victim

# As the texts of threats. MaxDiff is here in its published form and as a search for the largest divergence: more
# divergence is not less return, so either may be the stronger one.
UNTRAINED = {
    name: name for name in ("noise", "min-best", "pgd", "apgd", "multi-targeted", "momentum", "min-q", "max-diff")
}
UNTRAINED["strong-max-diff"] = "max-diff:restarts=6,keep=best,noise=0"
BEAM = "beam"  # the search over whole episodes, which is made for the episodes that it is played on
SLOW_ON_IMAGES = ("apgd", "multi-targeted")  # of a hundred gradients a step and more, which take hours on images
SLOW = "on images it takes too long: evaluate it by itself"


def untrained_threat(name: str, budget: Budget) -> ThreatModel:
    """The threat with this name of ``UNTRAINED``, under a budget."""
    return parse_threat(UNTRAINED[name], within=budget)


def check_no_budget(text: str) -> None:
    """Raise :class:`BudgetError` for the text of an attack with a budget, where that is given beside all attacks."""
    given = [key for key in ("eps", "norm", "scale") if key in read_text(text)[1]]
    if given:
        raise BudgetError(f"the budget goes beside the attacks, not in them: {', '.join(given)} in {text!r}")


def why_untrained_excluded(name: str, victim: Victim, budget: Budget, seen: Space, acted: Space) -> str | None:
    """The reason why an attack of ``UNTRAINED`` does not apply to a victim, or None where it does.

    Args:
        name: a name of ``UNTRAINED``.
        victim: the victim under attack.
        budget: the budget of the attack.
        seen, acted: the environment's spaces of observations and actions.

    Raises:
        BudgetError: for a budget that makes no sense there.
    """
    reason = why_threat_excluded(untrained_threat(name, budget), victim, seen, acted)
    return reason or (SLOW if name in SLOW_ON_IMAGES and has_images(seen) else None)


def why_threat_excluded(threat: ThreatModel, victim: Victim, seen: Space, acted: Space) -> str | None:
    """The reason why a threat cannot be aimed at a victim with these spaces, or None where it can.

    Raises:
        BudgetError: for a budget that makes no sense there.
    """
    try:
        for layer in threat_layers(threat.against(victim)):
            layer.check(seen, acted)
    except (VictimError, SpaceError) as error:
        return str(error)
    return None


def why_no_beam(victim: Victim, environment: Environment, budget: Budget, at: At = None) -> str | None:
    """The reason why a search over whole episodes does not apply, or None where it does; a few steps are played.

    Args:
        victim: the victim under attack.
        environment: how the environment is made.
        budget: the budget of the attack.
        at: the key, or a tuple of keys, that is perturbed; None for all of a Box.
    """
    try:
        check_searchable(victim)
        need_gradient("a beam search", victim)
        # what the search itself would refuse, and images, for which it is too slow
        if budget.frame is not budget:
            return "a beam search takes the budget of a whole observation at a single step"
        if Field(victim.observation_space, at, "observation").discrete:
            return "a beam search needs observations that have distances, and these are choices"
        if has_images(victim.observation_space):
            return SLOW
        with closing(DeterministicEpisodes(victim, environment, strict=True)) as played:
            played.check_deterministic(0)
    except SnapshotError as error:
        return f"{error}; beam_search, called by itself, may still search it"
    except (VictimError, SpaceError) as error:
        return str(error)
    return None
