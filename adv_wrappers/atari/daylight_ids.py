"""The daylight paper's threats as environment ids: ``adv-daylight/<Game>-<Transform>-v0``, thirty of them.

``gymnasium.make`` gives the game of :func:`adv_wrappers.atari.atari`, ``gymnasium.make_vec`` that of
:func:`adv_wrappers.atari.atari_vec`, in both cases without sticky actions and under the transform with the paper's
parameters. Rewards are the game's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gymnasium.envs.registration import EnvSpec

from adv_wrappers.atari.ale import AtariGame, AtariWrapper
from adv_wrappers.atari.env import (
    atari,
    atari_vec,
    single_game_arguments,
    unknown_arguments,
    vector_game_arguments,
)
from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.daylight.daylight import PROBABILITIES, SETTINGS, Daylight
from adv_wrappers.errors import ThreatError
from adv_wrappers.threats.presets import threat
from adv_wrappers.utils.checks import check_choice, is_number
from adv_wrappers.wrappers.layer import AnyVectorEnv, Layer

ROMS = {"JamesBond": "Jamesbond", "RiverRaid": "Riverraid"}  # where ALE spells a game otherwise
PLACES = ("raw", "frame", "stack")
_OWN = ("place", "p", "newest")
_RENDER = (None, "human", "rgb_array")


class KeepSpec(AtariWrapper):
    """Keeps the spec of the id, which describes all the wrappers inside."""

    @property
    def spec(self) -> EnvSpec | None:  # type: ignore[override]
        """The spec of the id."""
        return self.env.unwrapped.spec


def make_daylight(
    game: str,
    transform: str,
    place: str = "stack",
    p: float | str | None = None,
    newest: bool = False,
    render_mode: str | None = None,
    **env_kwargs: Any,
) -> AtariGame:
    """One game under one transform.

    Args:
        game, transform: the names that :class:`adv_wrappers.daylight.Daylight` takes.
        place: where the transform acts, ``stack``, ``frame`` or ``raw`` (see :func:`adv_wrappers.atari.atari`).
        p: the probability of an attack at a step; ``"paper"`` for that of the paper's table 7; None for every step.
        newest: whether, at ``stack``, the newest frame alone is changed.
        render_mode: the render mode of the game.
        **env_kwargs: as for :func:`adv_wrappers.atari.atari`.

    Raises:
        ThreatError: for an unknown argument or a value out of range, before the emulator starts.
    """
    given: dict[str, Any] = {place: _threat(game, transform, place, p, newest, env_kwargs, single_game_arguments())}
    check_choice("render_mode", render_mode, _RENDER, error=ThreatError)
    extra: dict[str, str] = {} if render_mode is None else {"render_mode": render_mode}
    env = atari(f"{ROMS.get(game, game)}NoFrameskip-v4", **given, **extra, **env_kwargs)
    if not isinstance(env, Layer):
        return KeepSpec(env)
    env.whole_spec = True  # type: ignore[attr-defined]
    return env


def make_daylight_vec(
    num_envs: int,
    game: str,
    transform: str,
    place: str = "stack",
    p: float | str | None = None,
    newest: bool = False,
    render_mode: None = None,
    **env_kwargs: Any,
) -> AnyVectorEnv:
    """``num_envs`` games under one transform (see :func:`adv_wrappers.atari.atari_vec`).

    Args:
        num_envs: the number of rows.
        game, transform, place, p, newest: as for :func:`make_daylight`.
        render_mode: None.
        **env_kwargs: as for :func:`adv_wrappers.atari.atari_vec`.

    Raises:
        ThreatError: for an unknown argument or a value out of range, before the emulator starts.
    """
    if render_mode is not None:
        raise ThreatError(f"ALE's vector environment draws no pictures: render_mode is None, got {render_mode!r}")
    accepted = {*single_game_arguments(), "autoreset_mode"} if place == "raw" else vector_game_arguments()
    given: dict[str, Any] = {place: _threat(game, transform, place, p, newest, env_kwargs, accepted)}
    name = ROMS.get(game, game)
    return atari_vec(f"{name}NoFrameskip-v4", num_envs, **given, **env_kwargs)


def _threat(
    game: str,
    transform: str,
    place: str,
    p: float | str | None,
    newest: bool,
    env_kwargs: Mapping[str, object],
    accepted: set[str],
) -> ThreatModel:
    game = Daylight(game, transform).game
    if others := set(env_kwargs) - accepted:
        raise unknown_arguments(f"this id takes {', '.join((*_OWN, *sorted(accepted)))}", others)
    check_choice("place", place, PLACES, error=ThreatError)
    check_choice("newest", newest, (True, False), error=ThreatError)
    # where the threat acts, and how often
    if newest and place != "stack":
        raise ThreatError(f"newest=True goes with place='stack'; at {place!r} there are new frames only")
    if p == "paper":
        p = PROBABILITIES[game]
    if p is not None and not (is_number(p) and 0 <= p <= 1):
        raise ThreatError(f"p must be a number from 0 to 1, or 'paper' ({PROBABILITIES[game]} for {game}), got {p!r}")
    return threat(transform, **SETTINGS[game][transform], newest=bool(newest), p=p)
