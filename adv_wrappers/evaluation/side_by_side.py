"""One observation under several threats: what the pictures of :mod:`adv_wrappers.rendering.contact_sheet` show.

The stage of a picture: an environment is played for some steps, and every threat gets the same observation.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from adv_wrappers.core.spaces import fits
from adv_wrappers.daylight import SETTINGS
from adv_wrappers.daylight.images import whole
from adv_wrappers.errors import AdvWrappersError, SpaceError, ThreatError, ValueRangeError
from adv_wrappers.evaluation import perceptual
from adv_wrappers.evaluation.environments import atari, builder, is_atari
from adv_wrappers.formatting import caption, words
from adv_wrappers.parsing import stack_of
from adv_wrappers.presets import as_threat, called
from adv_wrappers.rendering.panels import Frames
from adv_wrappers.rendering.spectrum import power_spectral_density, spectrum
from adv_wrappers.victims import Victim, load_victim
from adv_wrappers.victims.runner import Pilot
from adv_wrappers.wrappers.base import layers
from adv_wrappers.wrappers.stack import wrap

BANDS = {"low": (0.0, 1 / 6), "mid": (1 / 6, 1 / 3), "high": (1 / 3, 0.5)}  # cycles a pixel
FLOOR = 1e-3  # squared grey levels; less power than this is none


@dataclass(frozen=True)
class Look:
    """An observation, and what became of it under each threat.

    Attributes:
        title: where it comes from.
        space: of the observation.
        true: the observation.
        shown: the observation as each threat hands it out.
        names: of each threat, with its numbers as ``key=value``.
        layout: which axis of the observation is what; None infers.
        under: threats that the environment has itself, which the observation came through; captions, innermost first.
    """

    title: str
    space: spaces.Box
    true: NDArray[Any]
    shown: tuple[NDArray[Any], ...]
    names: tuple[tuple[str, tuple[str, ...]], ...]
    layout: str | None = None
    under: tuple[str, ...] = ()

    @property
    def origin(self) -> str:
        """What the observation is called: ``original``, or ``as it comes`` where it came through threats."""
        return "as it comes" if self.under else "original"

    @property
    def stacked(self) -> bool:
        """Whether the observation is a stack of frames."""
        return "F" in Frames(self.space, self.layout).layout

    def frame(self, x: NDArray[Any]) -> NDArray[Any]:
        """The newest frame of an observation as grey levels 0 to 255, ``[H, W, 3]``."""
        return Frames(self.space, self.layout).levels(x)[-1]

    def spectrum(self, x: NDArray[Any]) -> NDArray[np.float64]:
        """Log-magnitude of the newest frame's Fourier transform, ``[H, W]``, frequency zero in the middle."""
        found: NDArray[np.float64] = spectrum(self.frame(x).astype(np.float64)[None], "HWC")[0].numpy()
        return found

    def density(self, x: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Frequencies in cycles a pixel, and the power of the newest frame there, ``[R]`` each."""
        frequencies, power = power_spectral_density(self.frame(x).astype(np.float64)[None], "HWC")
        return frequencies.numpy(), power[0].numpy()

    def distances(self) -> list[dict[str, float | None]]:
        """``l2``, ``linf``, ``ssim`` and ``psnr`` of the whole observation, all its frames; a dictionary a threat.

        ``ssim`` is None for pictures that are smaller than its window.
        """
        frames, found = Frames(self.space, self.layout), []
        limits = None if self.space.dtype == np.uint8 else (frames.low, frames.high)
        for shown in self.shown:
            x, y = self.true[None], shown[None]
            row: dict[str, float | None] = {"l2": float(perceptual.l2(x, y)), "linf": float(perceptual.linf(x, y))}
            row["ssim"] = None
            with contextlib.suppress(SpaceError):
                row["ssim"] = float(perceptual.ssim(x, y, frames.layout, limits))
            row["psnr"] = float(perceptual.psnr(x, y, limits))
            found.append(row)
        return found

    def bands(self) -> list[dict[str, float]]:
        """By how much the power of the newest frame changed in each of ``BANDS``, in dB; a dictionary a threat.

        The mean over the rings of a band, of ten times the decimal logarithm of the ratio. Frequency zero, the mean
        brightness, is in none.
        """
        frequencies, power = self.density(self.true)
        found = []
        for shown in self.shown:
            ratio = np.maximum(self.density(shown)[1], FLOOR) / np.maximum(power, FLOOR)
            found.append({name: _mean_db(ratio, frequencies, *ends) for name, ends in BANDS.items()})
        return found


def _mean_db(ratio: NDArray[Any], frequencies: NDArray[Any], low: float, high: float) -> float:
    inside = (frequencies > low) & (frequencies <= high + 1e-9)
    return float(10 * np.log10(ratio[inside]).mean())


# For games that the daylight paper does not have: numbers that change something and leave the picture readable.
_TRANSFORMS = (
    "brightness:alpha=1.2,beta=40", "median-blur:k=3", "rotation:degrees=3", "shift:dx=2,dy=1", "jpeg:quality=30",
    "perspective:distance=3",
)  # fmt: skip


class Still(gym.Env[Any, Any]):
    """An environment of one observation."""

    metadata = {"render_modes": []}  # noqa: RUF012 - Gymnasium's own form

    def __init__(self, observation: NDArray[Any], space: spaces.Box, action_space: spaces.Space[Any]) -> None:
        self.observation, self.observation_space, self.action_space = observation, space, action_space

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """The observation."""
        super().reset(seed=seed)
        return self.observation.copy(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """The observation, and the end."""
        return self.observation.copy(), 0.0, True, False, {}


def look(
    source: str | gym.Env[Any, Any] | NDArray[Any], threats: Sequence[Any] | None = None,
    victim: Victim | str | None = None, *, step: int = 100, seed: int = 0, raw: bool = False, layout: str | None = None,
) -> Look:  # fmt: skip
    """One observation under each of several threats.

    Every threat is applied to the same observation by a layer of its own, as in an episode that begins with it and
    has the reset seed ``seed``. Timings are left out: a picture shows a strike. An environment that perturbs its
    observations itself is played as it is, and the picture says so (``Look.under``).

    Args:
        source: an id (an Atari game is put behind :func:`adv_wrappers.atari`), an environment, or an observation.
        threats: as :func:`adv_wrappers.evaluate` takes them, stacks included; None for the six daylight transforms.
        victim: who plays until then, and whom threats look at that leave it open; without one, actions are random.
        step: number of steps that are played first.
        seed: of the episode and of all draws.
        raw: take the emulator's colour screen, uint8 ``[210, 160, 3]``, at that step instead of the observation.
        layout: which axis of the observation is what; None infers.

    Raises:
        SpaceError: for what is not there, or holds no images.
        AdvWrappersError: one of its kinds, for a threat that does not fit.
    """
    agent = load_victim(victim) if isinstance(victim, str) else victim
    step, seed = whole("step", step, 0, 10**9), whole("seed", seed, 0, 2**63 - 1)
    name = "an observation"
    under: tuple[str, ...] = ()
    space: Any
    actions: Any = spaces.Discrete(2) if agent is None else agent.action_space
    if isinstance(source, np.ndarray):
        if raw:
            raise SpaceError("raw=True takes the screen of an Atari game, but an observation was given")
        high = 255 if source.dtype == np.uint8 else 1
        true, space = source, spaces.Box(0, high, source.shape, source.dtype.type)
    else:
        made = _make(source, agent) if isinstance(source, str) else source
        name = source if isinstance(source, str) else getattr(made.spec, "id", None) or "an environment"
        # the emulator's screen lies beneath all of them
        under = () if raw else tuple(caption(each.threat) for each in layers(made) if each.on == "observation")
        try:
            true, space, actions = _played(made, agent, step, seed, raw), made.observation_space, made.action_space
        finally:
            if isinstance(source, str):
                made.close()
        if raw:
            space, layout = spaces.Box(0, 255, true.shape, np.uint8), None
    try:
        Frames(space, layout)
    except SpaceError as error:
        raise SpaceError(f"only images can be looked at, {name} has the observations {space}: {error}") from error
    shown, names = [], []
    for item in daylight_of(name) if threats is None else threats:
        stack = [replace(threat, when=None) for threat in _stack(item)]
        with called(item):
            env = wrap(Still(true, space, actions), *stack, victim=agent)
        shown.append(env.reset(seed=seed)[0])
        found = [words(layer, when=False) for layer in stack]
        names.append((" + ".join(part for part, _ in found), tuple(n for _, numbers in found for n in numbers)))
    title = name if isinstance(source, np.ndarray) else f"{name}, step {step}"
    return Look(title, space, true, tuple(shown), tuple(names), layout, under)


def daylight_of(id: str) -> tuple[str, ...]:
    """The six daylight transforms as texts, with a game's own parameters if the daylight paper has it.

    >>> daylight_of("PongNoFrameskip-v4")[3]
    'daylight:game=Pong,transform=shift'
    """
    word = id.split(":")[-1].split("/")[-1].lower()
    for game, settings in SETTINGS.items():
        if word.startswith(game.lower()):
            return tuple(f"daylight:game={game},transform={transform}" for transform in settings)
    return _TRANSFORMS


def _stack(item: Any) -> list[Any]:
    parts = stack_of(item) if isinstance(item, str) else item if isinstance(item, (list, tuple)) else [item]
    made = [as_threat(part) for part in parts]
    if not made:
        raise ThreatError("a stack needs at least one threat")
    for threat in made:
        if threat.on != "observation":
            raise ThreatError(f"{threat.label} perturbs the action, which no picture of an observation can show")
    return made


def _make(id: str, victim: Victim | None) -> gym.Env[Any, Any]:
    if victim is not None:
        return builder(id, victim)[0]()
    with contextlib.suppress(ImportError):
        importlib.import_module("ale_py")  # registers its ids
    if is_atari(id):
        return atari(id)
    try:
        return gym.make(id)
    except AdvWrappersError:
        raise
    except Exception as error:  # whatever an environment's own constructor may raise
        raise SpaceError(f"cannot make the environment {id!r}: {error}") from error


def _played(env: gym.Env[Any, Any], victim: Victim | None, step: int, seed: int, raw: bool) -> NDArray[Any]:
    """The observation after some steps, or the emulator's screen; a new episode begins where one ends."""
    screen = getattr(getattr(env.unwrapped, "ale", None), "getScreenRGB", None)
    if raw and screen is None:
        raise SpaceError(f"raw=True takes the screen of an Atari game, {env} has none")
    if not isinstance(env.observation_space, spaces.Box):
        raise SpaceError(f"only images can be looked at, these observations are {env.observation_space}")
    pilot = None
    if victim is not None:
        fits(victim, env.observation_space, env.action_space)
        pilot = Pilot(victim, 1)
        pilot.reset(None, [seed])
    obs, _ = env.reset(seed=seed)
    env.action_space.seed(seed)
    for _ in range(step):
        action = env.action_space.sample() if pilot is None else pilot.act(np.asarray(obs)[None])[0]
        obs, _, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            obs, _ = env.reset()
            if pilot is not None:
                pilot.reset()
    seen = np.array(screen() if raw and screen is not None else obs)
    if seen.dtype.kind == "f" and not np.isfinite(seen).all():
        raise ValueRangeError("the environment handed out an observation that is not finite")
    return seen
