"""Queries: a victim's actions at observations of episodes, attacked ones too, and at random points near them.

Every observation that is returned has cost one query: one call of the victim's policy on it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing

import numpy as np
from gymnasium import spaces

from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.core.types import Array, Space
from adv_wrappers.evaluation.environments import EnvFactory
from adv_wrappers.evaluation.episodes_under_one_threat import EpisodesVectorEnv
from adv_wrappers.training.imitation_network import Labels
from adv_wrappers.victims.runner import PolicyRunner
from adv_wrappers.victims.victim import Victim
from adv_wrappers.wrappers.base_layer import AnyVectorEnv
from adv_wrappers.wrappers.wrap_in_layers import wrap

SOURCES = ("victim", "attacked", "surrogate", "nearby")  # where observations are from
VICTIM, ATTACKED, SURROGATE, NEARBY = range(4)
_LENGTH, _ROWS = 1000, 8  # steps that a row plays where there are enough, and the most rows


def episode_seeds(entropy: Sequence[int], test: bool) -> Iterator[int]:
    """Seeds of episodes: even ones for the training, and odd ones to test on, so that no episode is of both."""
    draw = np.random.default_rng(entropy)
    while True:
        yield int(draw.integers(2**30)) * 2 + test


def ask(
    victim: Victim,
    make_env: EnvFactory,
    seeds: Iterator[int],
    count: int | None = None,
    episodes: int | None = None,
    threats: Sequence[ThreatModel] = (),
    player: Victim | None = None,
    source: int = VICTIM,
) -> Labels:
    """Play, and ask the victim for its action at every observation.

    Args:
        victim: the victim, which is asked once for every observation that is returned.
        make_env: makes one environment.
        seeds: of the episodes.
        count, episodes: the number of queries, or of episodes, to stop after.
        threats: between the environment and who plays, innermost first.
        player: who plays; None for the victim itself.
        source: the index into ``SOURCES`` that the labels get.
    """
    rows = 1 if count is None else max(1, min(_ROWS, count // _LENGTH))
    venv: AnyVectorEnv = wrap(EpisodesVectorEnv(make_env, rows), *threats)
    observations, actions, spent, finished = [], [], 0, 0
    with closing(venv):
        runners = [PolicyRunner(victim, rows)] + ([] if player is None else [PolicyRunner(player, rows)])
        first: list[int | None] = [next(seeds) for _ in range(rows)]
        obs, _ = venv.reset(seed=first)  # type: ignore[arg-type]  # list is invariant
        for runner in runners:
            runner.reset(None, first)
        while finished != episodes:
            left = rows if count is None else min(rows, count - spent)
            if left < rows:  # the last query asks about some rows alone
                if left:
                    observations.append(obs[:left])
                    actions.append(runners[0].peek(obs, np.arange(left)))
                break
            taken = [runner.act(obs) for runner in runners]
            observations.append(np.array(obs))
            actions.append(taken[0])
            spent += rows
            obs, _, ended, cut, _ = venv.step(taken[-1])
            over = ended | cut
            if over.any():
                finished += int(over.sum())
                fresh: list[int | None] = [next(seeds) if o else None for o in over]
                obs, _ = venv.reset(seed=fresh, options={"reset_mask": over})  # type: ignore[arg-type]
                for runner in runners:
                    runner.reset(over, fresh)
    seen = np.concatenate(observations)
    return Labels(seen, np.concatenate(actions), np.full(len(seen), source, np.uint8))


def ask_nearby(victim: Victim, space: Space, labels: Labels, radius: Array, count: int, seed: int) -> Labels:
    """Labels at random points near the observations of the other sources, within the bounds of the space.

    Args:
        victim: the victim, without a hidden state.
        space: of the observations, a Box.
        labels: whose observations the points are near.
        radius: the largest distance in every feature, ``[features]``.
        count: the number of queries.
        seed: seeds the points.
    """
    assert isinstance(space, spaces.Box)
    draw, seen = np.random.default_rng(seed), labels.observations[labels.sources != NEARBY]
    around = seen[draw.integers(len(seen), size=count)].astype(np.float64)
    moved = around + draw.uniform(-1, 1, around.shape) * radius
    moved = np.round(moved) if np.issubdtype(seen.dtype, np.integer) else moved
    points = np.clip(moved, space.low, space.high).astype(seen.dtype)
    runner = PolicyRunner(victim, count)
    runner.reset(None, seed)
    return Labels(points, runner.act(points), np.full(count, NEARBY, np.uint8))
