"""Attacks that take long, said before they are played: restarts, steps and queries multiply."""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Iterable

import torch
from gymnasium import spaces

from adv_wrappers.core.perturbation import Perturbation
from adv_wrappers.evaluation.threat_stacks import ThreatStack
from adv_wrappers.victims.victim import Victim

LONG = 4000  # passes for one observation; the presets have 500 at most, and a plan of a suite 3040
_GRADIENT = 3  # forward passes that one with its gradient takes, about


def warn_of_long_attacks(stacks: Iterable[ThreatStack], victim: Victim, rows: int) -> None:
    """Warn of stacks that compute a network thousands of times for every observation, with the time that takes here.

    Args:
        stacks: what is to be played.
        victim: the agent.
        rows: observations that are attacked at once.

    Warns:
        UserWarning: one for every such stack.
    """
    for stack in stacks:
        count = sum(layer.how.network_passes for layer in stack.layers if isinstance(layer.how, Perturbation))
        if count <= LONG:
            continue
        each = _seconds(victim, rows)
        took = "" if each is None else f", about {count * each:.2g} s on this machine"
        warnings.warn(
            f"{stack.name} computes a network {count:,} times at every step that it attacks{took} (pgd: 30 times): "
            "fewer restarts, steps or queries are quicker",
            UserWarning,
            stacklevel=4,
        )


def _seconds(victim: Victim, rows: int) -> float | None:
    """Seconds that a gradient of the victim takes, about, from some forward passes; None for Dict observations."""
    space = victim.observation_space
    if not isinstance(space, spaces.Box):
        return None
    x, state = torch.zeros(rows, *space.shape, device=victim.device, dtype=victim.dtype), victim.initial_state(rows)
    took = list[float]()
    for _ in range(5):
        start = time.perf_counter()
        float(victim.params(x, state).sum())  # waits for a device
        took.append(time.perf_counter() - start)
    return _GRADIENT * statistics.median(took)
