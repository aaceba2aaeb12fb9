"""Attack and harden reinforcement-learning agents through Gymnasium wrappers.

A threat is a value: what is done to observations or actions, within which budget, and when. One engine applies it to
single environments, vectors and SB3 ``VecEnv``s alike::

    import gymnasium as gym
    import adv_wrappers as adv

    victim = adv.load_victim("zoo:hopper-ppo")
    env = adv.PerturbObservation(gym.make("Hopper-v5"), adv.MaxDiff(victim), within=adv.Linf(0.075, scale="victim"))
    report = adv.evaluate(victim, "Hopper-v5", ["noise:eps=0.075,scale=victim", "max-diff:eps=0.075,scale=victim"])

``import adv_wrappers`` registers the environment ids, or has them registered when Gymnasium is imported, and imports
neither torch nor anything else of the package until a name of :mod:`adv_wrappers.public` is asked for.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from adv_wrappers.registry import register_with_gymnasium

if TYPE_CHECKING:
    from adv_wrappers import atari as atari
    from adv_wrappers.public import *  # noqa: F403
    from adv_wrappers.threats.all_attacks import *  # noqa: F403

__version__ = "0.3.0"


class _Package(ModuleType):
    """This package as a module whose public names are imported when they are asked for (after PEP 562)."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") and name != "__all__":  # which tools look for, and nothing is imported for
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        if importlib.util.find_spec(f"{__name__}.{name}") is not None:
            return importlib.import_module(f"{__name__}.{name}")
        found = getattr(importlib.import_module(f"{__name__}.public"), name)
        vars(self)[name] = found
        return found

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self.__all__})


sys.modules[__name__].__class__ = _Package
register_with_gymnasium()
