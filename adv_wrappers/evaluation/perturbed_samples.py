"""One observation under several threats, for the pictures of :mod:`adv_wrappers.rendering.contact_sheet`.

An environment is played for some steps, and every threat is applied to the observation that it has come to.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from adv_wrappers.core.threat import ThreatModel, fits
from adv_wrappers.core.types import Array, Info, Space
from adv_wrappers.daylight import SETTINGS
from adv_wrappers.environments.environment import Environment, EnvKwargs, MakeEnv
from adv_wrappers.errors import SpaceError, ThreatError, ValueRangeError, threat_in_errors
from adv_wrappers.evaluation.measurements.image_distances import l2, linf, psnr, ssim
from adv_wrappers.evaluation.threat_stacks import parts_of_stack
from adv_wrappers.rendering.contact_sheet import ThreatComparison
from adv_wrappers.rendering.frames import FrameReader
from adv_wrappers.threats.presets import as_threat
from adv_wrappers.threats.text import name_and_arguments
from adv_wrappers.utils.validation import Limits, LongCount, checked
from adv_wrappers.victims import Victim, load_victim
from adv_wrappers.victims.policy_runner import PolicyRunner
from adv_wrappers.wrappers.layer import AnyEnv
from adv_wrappers.wrappers.wrap import wrap

# For games that the daylight paper does not have: numbers that change something and leave the picture readable.
_TRANSFORMS = (
    "brightness:alpha=1.2,beta=40", "median-blur:k=3", "rotation:degrees=3", "shift:dx=2,dy=1", "jpeg:quality=30",
    "perspective:distance=3",
)  # fmt: skip


class ConstantEnv(gym.Env[Array, Any]):
    """An environment of one observation."""

    metadata = {"render_modes": []}  # noqa: RUF012 - Gymnasium's own form

    def __init__(self, observation: Array, space: spaces.Box, action_space: Space) -> None:
        self.observation = observation
        self.observation_space = space
        self.action_space = action_space

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Array, Info]:
        """The observation."""
        super().reset(seed=seed)
        return self.observation.copy(), {}

    def step(self, action: Any) -> tuple[Array, float, bool, bool, Info]:
        """The observation, and the end."""
        return self.observation.copy(), 0.0, True, False, {}


@checked
def compare_threats(
    source: str | AnyEnv | Array,
    threats: Sequence[Any] | None = None,
    victim: Victim | str | None = None,
    *,
    step: Annotated[int, Limits(0, 10**9)] = 100,
    seed: LongCount = 0,
    env_kwargs: EnvKwargs | None = None,
    make: MakeEnv | None = None,
) -> ThreatComparison:
    """One observation under each of several threats.

    Every threat is applied to the same observation by a wrapper of its own, as in an episode that begins with it and
    has the reset seed ``seed``. Timings are left out: a picture shows an attack. An environment that perturbs its
    observations itself is played as it is.

    Args:
        source: an id (an Atari game is put behind :func:`adv_wrappers.atari.atari`), an environment, or an observation.
        threats: such as ``shift``, with `` + `` between threats a stack; None takes the six daylight transforms. They
            are as :func:`adv_wrappers.evaluate` takes them.
        victim: the agent that plays until then, at whom threats without a victim are aimed; without one, actions are
            random.
        step: steps that are played before the picture.
        seed: seeds the episode and all draws.
        env_kwargs, make: of an id, as for :func:`adv_wrappers.evaluate`.

    Raises:
        SpaceError: for a source that cannot be made, or whose observations are no images.
        AdvWrappersError: one of its kinds, for a threat that does not fit.
    """
    # the observation: as it was given, or where an episode has come to
    agent = load_victim(victim) if isinstance(victim, str) else victim
    space: Any
    actions: Space = spaces.Discrete(2) if agent is None else agent.action_space
    if isinstance(source, np.ndarray):
        # an observation alone, whose space follows from its dtype
        name = title = "an observation"
        true, space = source, spaces.Box(0, 255 if source.dtype == np.uint8 else 1, source.shape, source.dtype.type)
    else:
        # an environment, which is closed again if it was made here
        made = Environment.of(source, agent, env_kwargs, make).make_one() if isinstance(source, str) else source
        name = source if isinstance(source, str) else getattr(made.spec, "id", None) or "an environment"
        title = f"{name}, step {step}"
        space, actions = made.observation_space, made.action_space
        try:
            true = _played(made, agent, step, seed)
        finally:
            if isinstance(source, str):
                made.close()
    try:
        frames = FrameReader(space)
    except SpaceError as error:
        raise SpaceError(f"only images can be looked at, {name} has the observations {space}: {error}") from error
    limits = None if space.dtype == np.uint8 else (frames.low, frames.high)
    # every threat on that observation, as if an episode began with it
    perturbed, names = list[Array](), list[tuple[str, tuple[str, ...]]]()
    for item in daylight_threats(name) if threats is None else threats:
        stack = [replace(threat, when=None) for threat in _stack(item)]
        with threat_in_errors(item):
            env = wrap(ConstantEnv(true, space, actions), *stack, victim=agent)
        perturbed.append(env.reset(seed=seed)[0])
        found = [name_and_arguments(layer, when=False) for layer in stack]
        names.append((" + ".join(part for part, _ in found), tuple(n for _, numbers in found for n in numbers)))
    # how far each has moved it
    distances = tuple(_distances(true, each, limits) for each in perturbed)
    return ThreatComparison(title, space, true, tuple(perturbed), tuple(names), distances)


def _distances(true: Array, perturbed: Array, limits: tuple[float, float] | None) -> dict[str, float | None]:
    """``l2``, ``linf``, ``ssim`` and ``psnr`` of whole observations; ``ssim`` is None where its window does not fit."""
    pair = true[None], perturbed[None]
    found = {"l2": float(l2(*pair)), "linf": float(linf(*pair)), "ssim": None, "psnr": float(psnr(*pair, limits))}
    with contextlib.suppress(SpaceError):
        found["ssim"] = float(ssim(*pair, limits=limits))
    return found


def daylight_threats(id: str) -> tuple[str, ...]:
    """The six daylight transforms as texts, with a game's own parameters if the daylight paper has it.

    >>> daylight_threats("PongNoFrameskip-v4")[3]
    'daylight:game=Pong,transform=shift'
    """
    word = id.split(":")[-1].split("/")[-1].lower()
    for game, settings in SETTINGS.items():
        if word.startswith(game.lower()):
            return tuple(f"daylight:game={game},transform={transform}" for transform in settings)
    return _TRANSFORMS


def _stack(item: object) -> list[ThreatModel]:
    made = [as_threat(part) for part in parts_of_stack(item)]
    for threat in made:
        if threat.on != "observation":
            raise ThreatError(f"{threat.label} perturbs the action, which no picture of an observation can show")
    return made


def _played(env: AnyEnv, victim: Victim | None, step: int, seed: int) -> Array:
    """The observation after some steps; a new episode begins where one ends."""
    if not isinstance(env.observation_space, spaces.Box):
        raise SpaceError(f"only images can be looked at, these observations are {env.observation_space}")
    # who plays: the victim, or nobody in particular
    runner = None
    if victim is not None:
        fits(victim, env.observation_space, env.action_space)
        runner = PolicyRunner(victim, 1)
        runner.reset(None, [seed])
    obs, _ = env.reset(seed=seed)
    env.action_space.seed(seed)
    # on through the ends of episodes, up to that step
    for _ in range(step):
        action = env.action_space.sample() if runner is None else runner.act_one(obs)
        obs, _, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            obs, _ = env.reset()
            if runner is not None:
                runner.reset()
    seen = np.array(obs)
    if seen.dtype.kind == "f" and not np.isfinite(seen).all():
        raise ValueRangeError("the environment returned an observation that is not finite")
    return seen
