"""How long trainings would take of Atari agents that a page does not have: steps a second of short ones."""

from __future__ import annotations

from typing import Any

import adv_wrappers as adv

FREEWAY = "FreewayNoFrameskip-v4"


def measured_cost(env: str, steps: int, **given: Any) -> dict[str, float]:
    """Steps, and seconds of the processor without the checkpoint, of a short training; ``given`` as for train_agent."""
    trained = adv.train_agent(env, None, 1.0, steps, checks=1, episodes=1, rewards="clipped", **given)
    last = trained.record[-1]
    return {"steps": last["steps"], "seconds": last["seconds"]["agent"]}


def predicted(cost: dict[str, float], steps: int) -> str:
    """How long a training of ``steps`` would take, and why, in a phrase."""
    rate = cost["steps"] / cost["seconds"]
    return f"{steps / 1e6:g} million steps at {rate:.0f} a second, {steps / rate / 3600:.1f} hours"
