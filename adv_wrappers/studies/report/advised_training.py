"""Which training a report advises to harden an agent by."""

from __future__ import annotations

from typing import Any, get_args

from adv_wrappers.environments.environment import Environment
from adv_wrappers.errors import AdvWrappersError
from adv_wrappers.registry import Rewards
from adv_wrappers.studies.report.choices import AdvisedTraining, HardenedBy
from adv_wrappers.training.defences.method import hardened_before, learned_as
from adv_wrappers.victims.victim import Victim

_RECURRENT: tuple[HardenedBy, ...] = ("max-diff", "pa-ad")  # no loss has bounds through an LSTM
_Q: tuple[HardenedBy, ...] = ("radial", "sa", "car", "max-diff")
_IMAGES: tuple[HardenedBy, ...] = ("radial", "sa", "max-diff")
_POLICIES: tuple[HardenedBy, ...] = ("wocar", "sa", "radial", "pa-ad")


def advised_training(victim: Victim, environment: Environment | None = None) -> AdvisedTraining:
    """The training that an agent is to be hardened by next: the first way that was not tried, as the agent learned.

    Of the losses for policies the one that keeps most comes first, and for DQN the one that keeps most in its worst
    seed (``docs/results/defences.md``). WocaR takes no images, and no loss a hidden state. Once all were tried they
    come again.

    Args:
        victim: the agent.
        environment: where it is trained, if it is to be checked that it can be.
    """
    # whether any training can go on with this agent in its environment
    learned = learned_as(victim.card if victim.card else {"training": getattr(victim, "learned", None)})
    try:
        from adv_wrappers.training.agent import AGENT_ALGORITHMS, check_spaces, victim_and_algorithm
        from adv_wrappers.training.sb3.conversion import networks_of_agent

        own = AGENT_ALGORITHMS.get(learned.get("algorithm", ""))
        fits = own is not None and victim.kind in own.begins_from and victim.recurrent == own.recurrent
        name: Any = own.name if own is not None and fits else ""
        initial, algorithm = victim_and_algorithm(victim, name or None)
        networks_of_agent(victim)
        if environment is not None:
            check_spaces(environment, initial, algorithm)
    except (AdvWrappersError, ImportError) as error:
        return AdvisedTraining(why_none=str(error))
    # of the ways that suit it, the first of those that were tried least often
    image = len(victim.observation_space.shape or ()) > 1
    fitting = _RECURRENT if victim.recurrent else _Q if victim.kind == "q" else _IMAGES if image else _POLICIES
    tried = tuple(by for by in hardened_before(victim.card) if by in get_args(HardenedBy))
    rewards: Any = learned.get("rewards")
    gamma = learned.get("gamma")
    return AdvisedTraining(
        min(fitting, key=tried.count),
        tried,
        name,
        rewards if rewards in get_args(Rewards) else "",
        gamma if gamma is not None and 0 <= gamma <= 1 else None,
    )
