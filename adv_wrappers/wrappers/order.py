"""Order matters: a perturbation that sits where it cannot reach the agent is found and refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium as gym
from gymnasium import spaces

from adv_wrappers.core.budgets.frame_stack import Newest
from adv_wrappers.core.spaces import Key
from adv_wrappers.errors import OrderError
from adv_wrappers.networks.policy_layers import Normalize
from adv_wrappers.victims import Victim
from adv_wrappers.wrappers.layer import Layer, wrappers_of

# Wrappers that read something else than the observation they get: the emulator's screen, the renderer.
_REPLACING = {
    "AtariPreprocessing": "reads the emulator's screen itself",
    "RawFrames": "reads the emulator's screen itself",
    "AddRenderObservation": "replaces the observation by a rendering",
    "PixelObservationWrapper": "replaces the observation by a rendering",
}
_STACKS = ("FrameStackObservation", "FrameStack", "VecFrameStack")  # make a stack of the frames they get
_NORMALISERS = ("NormalizeObservation", "VecNormalize")  # Gymnasium's two classes have one name
_FILTERS = ("FilterObservation", "VecExtractDictObs")  # pass on some keys of a Dict


def check_order(env: Any) -> None:
    """Raise :class:`OrderError` if a perturbation in this stack can never reach the agent, or not as it was meant.

    Found are layers inside a wrapper that ignores the observation it gets, layers on a key that a wrapper further
    out drops, the budget :class:`adv_wrappers.Newest` where there is no stack of frames yet, and layers outside of a
    wrapper that normalises whose victim normalises by itself: it would be asked about what is normalised twice.

    Args:
        env: a Gymnasium ``Env`` or ``VectorEnv``, or an SB3 ``VecEnv``; environments of vectors that run in this
            process are looked into as well.
    """
    for wrappers in _chains(env, []):
        for depth, layer in enumerate(wrappers):
            if isinstance(layer, Layer):
                for inner in wrappers[depth + 1 :]:
                    _check_unit(layer, inner)
            if isinstance(layer, Layer) and layer.on == "observation":
                for outer in wrappers[:depth]:
                    _check(layer, outer, wrappers[depth + 1 :])


def _chains(env: Any, outside: list[Any]) -> Iterator[list[Any]]:
    """Every way from the agent to an environment, outermost wrapper first."""
    wrappers = [*outside, *wrappers_of(env)]
    yield wrappers
    inside = getattr(wrappers[-1], "envs", None)
    for one in inside if isinstance(inside, (list, tuple)) else ():
        if isinstance(one, gym.Env):
            yield from _chains(one, wrappers)


def _check(layer: Layer, outer: Any, beneath: list[Any]) -> None:
    name = type(outer).__name__
    label = layer.threat.label
    at = layer.threat.at
    # a wrapper that shows something else, one that drops what is attacked, and a stack that is made too late
    reason = None if isinstance(outer, Layer) else _REPLACING.get(name)
    if reason is not None and not (name == "AddRenderObservation" and isinstance(outer.observation_space, spaces.Dict)):
        raise OrderError(
            f"{name} {reason}, so the {label} layer inside it can never reach the agent: wrap {name} in the "
            f"perturbation, not the perturbation in {name}"
        )
    if name in _FILTERS and at is not None and not _passes_on(outer, _outer_keys(layer)):
        raise OrderError(
            f"{name} drops {at!r}, so the {label} layer inside it can never reach the agent: perturb what is kept, or "
            f"keep {at!r}"
        )
    if isinstance(layer.threat.budget, Newest) and _stacks(outer) and not any(map(_stacks, beneath)):
        raise OrderError(
            f"the budget Newest of the {label} layer is for stacks of frames, and inside {name} there is none yet: "
            f"leave Newest away, or wrap {name} in the layer"
        )


def _check_unit(layer: Layer, inner: Any) -> None:
    """Raise if a wrapper beneath the layer normalises, and a victim of the layer does so again."""
    name = type(inner).__name__
    if name not in _NORMALISERS or not getattr(inner, "norm_obs", True):
        return
    keys = getattr(inner, "norm_obs_keys", None)  # SB3 normalises some keys of a Dict
    if keys is not None and layer.on == "observation" and not {*keys} & _outer_keys(layer):
        return
    for victim in layer.threat.victims:
        if _normalises(victim):
            raise OrderError(
                f"{name} normalises observations, and the victim of the {layer.threat.label} layer around it "
                f"{f'({victim.ref}) ' if victim.ref else ''}normalises what it gets by itself: put the layer beneath "
                f"{name}, where observations are raw, or give it a victim without normalisation"
            )


def _normalises(victim: Victim) -> bool:
    """Whether a victim takes raw observations: it holds a normaliser, or has the unit of one."""
    scale = victim.scale
    if scale is not None and not bool((scale == 1).all()):
        return True
    return any(isinstance(part, Normalize) for net in victim.modules() for part in net.modules())


def _stacks(wrapper: Any) -> bool:
    """Whether this wrapper makes one observation of several frames."""
    return type(wrapper).__name__ in _STACKS or getattr(wrapper, "takes_pairs", False)


def _outer_keys(layer: Layer) -> set[Key]:
    """The keys of the outermost Dict or Tuple at which a layer perturbs."""
    return {path[0] for path in layer.engine.applied.field.paths or ()}


def _passes_on(wrapper: Any, keys: set[Key]) -> bool:
    """Whether any of the keys is passed on; those that have other names by then are taken to be."""
    known = [_keys(one) for one in (wrapper.__dict__.get("env") or wrapper.__dict__.get("venv"), wrapper)]
    after = {wrapper.key} if "key" in wrapper.__dict__ else known[1]  # SB3's takes one leaf out
    return not keys <= known[0] or bool(keys & after)


def _keys(env: Any) -> set[Key]:
    space = getattr(env, "single_observation_space", env.observation_space)
    return set(space.spaces) if isinstance(space, spaces.Dict) else set()
