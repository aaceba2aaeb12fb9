"""Order matters: a perturbation that sits where it cannot reach the agent is found and refused."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from adv_wrappers.core.errors import OrderError
from adv_wrappers.wrappers.layer import Layer, chain

# Wrappers that read something else than the observation they are handed: the emulator's screen, the renderer.
_DEAF = {
    "AtariPreprocessing": "reads the emulator's screen itself",
    "AddRenderObservation": "replaces the observation by a rendering",
    "PixelObservationWrapper": "replaces the observation by a rendering",
}


def check_order(env: Any) -> None:
    """Raise :class:`OrderError` if a perturbation in this stack can never reach the agent.

    Args:
        env: a Gymnasium ``Env`` or ``VectorEnv``, or an SB3 ``VecEnv``; environments of vectors that run in this
            process are looked into as well.
    """
    shells = chain(env)
    for i, shell in enumerate(shells):
        name = type(shell).__name__
        reason = None if isinstance(shell, Layer) else _DEAF.get(name)
        if reason is None or (name == "AddRenderObservation" and not getattr(shell, "render_only", True)):
            continue
        for inner in shells[i + 1 :]:
            if isinstance(inner, Layer) and inner.on == "observation":
                raise OrderError(
                    f"{name} {reason}, so the {inner.threat.label} layer inside it can never reach the agent: "
                    f"wrap {name} in the perturbation, not the perturbation in {name}"
                )
    for one in getattr(shells[-1], "envs", None) or []:
        if isinstance(one, gym.Env):
            check_order(one)
