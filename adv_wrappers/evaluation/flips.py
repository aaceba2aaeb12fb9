"""What an attack in lower precision takes for the victim: the actions that would flip in it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from adv_wrappers.core.arrays import to_victim
from adv_wrappers.core.perturber import Perturber
from adv_wrappers.core.session import select
from adv_wrappers.victims.precision import flipped

MOST = 0.01  # a share of flipped actions above which a report warns


def flips(engine: Perturber, obs: Any, rows: NDArray[np.intp]) -> tuple[int, int]:
    """At how many true observations this was looked at, and at how many of these the action flips.

    Args:
        engine: of an observation layer; without a lower precision nothing is looked at.
        obs: true observations ``[B, *S]``, or a dictionary of them.
        rows: which of them, int ``[n]``.
    """
    how = engine.threat.how
    victim, precision = getattr(how, "victim", None), getattr(how, "precision", None)
    if victim is None or precision is None:
        return 0, 0
    full = to_victim(select(obs, rows), victim.dtype, victim.device, True, space=victim.observation_space)
    return len(rows), int(flipped(victim, full, precision, engine.session.state(victim, rows)).sum())
