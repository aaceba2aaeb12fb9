"""evaluate: what an agent earns, clean and under each threat, on the same episodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from adv_wrappers.core.arrays import fits
from adv_wrappers.core.errors import (
    AdvWrappersError,
    SpaceError,
    ValueRangeError,
    VictimError,
)
from adv_wrappers.evaluation import metrics
from adv_wrappers.evaluation.checks import Outcome, check
from adv_wrappers.evaluation.environments import Make, builder, minimum_of
from adv_wrappers.evaluation.meter import Run
from adv_wrappers.evaluation.report import Report, revision, versions
from adv_wrappers.evaluation.rollout import Tap, play
from adv_wrappers.evaluation.stacks import Stack, form, stack
from adv_wrappers.victims import load_victim
from adv_wrappers.victims.victim import Victim
from adv_wrappers.victims.zoo import device_of
from adv_wrappers.wrappers.order import check_order
from adv_wrappers.wrappers.stack import wrap

Progress = Callable[[str, int, int], None]


def evaluate(
    victim: Victim | str, env: str | Make, threats: Any = (), episodes: int = 10, seed: int = 0,
    num_envs: int | None = None, device: Any = None, *, env_kwargs: Mapping[str, Any] | None = None,
    make: Make | None = None, minimum: float | None = None, progress: Progress | None = None,
    out: str | Path | None = None,
) -> Report:  # fmt: skip
    """Evaluate an agent without an attack and under each threat, on the same episodes.

    Episode e has a seed of its own, drawn from ``seed``, and a row that plays it whatever happens, so runs are paired
    and the results do not depend on ``num_envs`` beyond the rounding of floats.

    Args:
        victim: the agent, or a reference such as ``"zoo:hopper-ppo"``.
        env: id of the environment, or a function that makes one. Victims of 84x84 frame stacks get Atari ids behind
            :func:`adv_wrappers.evaluation.environments.atari`.
        threats: each a text, a :class:`ThreatModel`, a perturbation with a budget or a dictionary; or, for a stack, a
            list of these, innermost first, or one text with `` + `` between them. One without a victim is aimed at
            ``victim``; one with a victim of its own is a transfer attack, and its row says so.
        episodes: of every run.
        seed: at least 0.
        num_envs: environments side by side; None takes 32, or 8 for images, and never more than ``episodes``.
        device: to load a reference onto.
        env_kwargs: of the environment; None takes those of the victim's card, if the card names the same id.
        make: instead of ``gymnasium.make``.
        minimum: the lowest return possible, for ``impact``; None takes it from a table of games that have one.
        progress: called as ``progress(threat, episodes finished, episodes)``.
        out: a folder; after every run ``report.json`` in it holds all rows so far.

    Raises:
        AdvWrappersError: one of its kinds, before any episode is played, for arguments that cannot work: a victim that
            does not fit the environment, a threat that does not fit either, an unknown id. :class:`ValueRangeError`
            for observations or rewards that are not finite.

    >>> from adv_wrappers import evaluate
    >>> report = evaluate("zoo:cartpole-dqn", "CartPole-v1", ["max-diff:eps=0.1"], episodes=2)
    >>> [row["threat"] for row in report.threats]
    ['none', 'max-diff:eps=0.1']
    """
    _whole("episodes", episodes, 1)
    _whole("seed", seed, 0)
    if num_envs is not None:
        _whole("num_envs", num_envs, 1)
    if minimum is not None and (isinstance(minimum, bool) or not np.isfinite(minimum)):
        raise ValueRangeError(f"minimum must be a finite return, got {minimum!r}")
    victim = _load(victim, device)
    seeds = [int(s) for s in np.random.SeedSequence(int(seed)).generate_state(int(episodes))]
    stacks = [stack(item, victim) for item in _listed(threats)]
    one, name, kwargs = builder(env, victim, env_kwargs, make)
    if out is not None:
        try:
            Path(out).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ValueRangeError(f"cannot write to the folder {out}: {error}") from error
    images = len(victim.observation_space.shape or ()) > 1
    venv = _vector(one, min(num_envs or (8 if images else 32), episodes))
    threads = torch.get_num_threads()
    try:
        if not images:  # small networks are slower on several threads, and far slower where cores are shared
            torch.set_num_threads(1)
        check_order(venv)
        fits(victim, venv.single_observation_space, venv.single_action_space)
        lowest = minimum if minimum is not None else minimum_of(name)
        runs: list[tuple[Stack, Tap, Any]] = []
        for aimed in (Stack("none", (), False), *stacks):  # all of them are built before anything is spent
            tap = Tap(venv)
            runs.append((aimed, tap, wrap(tap, *aimed.layers, victim=victim) if aimed.layers else tap))
        about: dict[str, Any] = {
            "versions": versions(), "seed": int(seed), "episode_seeds": tuple(seeds), "git": revision(),
            "device": str(victim.device), "env": {"id": name, "kwargs": kwargs}, "episodes": int(episodes),
            "num_envs": venv.num_envs,
            "victim": {"ref": victim.ref, "fingerprint": victim.fingerprint(), "select": victim.select},
        }  # fmt: skip
        rows: list[dict[str, Any]] = []
        outcomes: list[Outcome] = []
        for aimed, tap, shell in runs:
            tell = None if progress is None else _teller(progress, aimed.name, int(episodes))
            run = play(shell, tap, victim, seeds, tell)
            rows.append(_row(aimed, run, rows[0]["mean_return"] if rows else None, lowest))
            outcomes.append(
                Outcome(aimed.name, aimed.layers, run.returns, run.moved, run.still, run.slopes, run.flat, run.grid)
            )
            report = Report(**about, warnings=tuple(check(outcomes, victim)), threats=tuple(rows))
            if out is not None:
                report.to_json(Path(out) / "report.json")
        return report
    finally:
        torch.set_num_threads(threads)
        venv.close()


def _whole(name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise ValueRangeError(f"{name} must be an integer of at least {least}, got {value!r}")


def _load(victim: Victim | str, device: Any) -> Victim:
    if device is None:
        return load_victim(victim)
    there = device_of(device)
    if not isinstance(victim, Victim):
        return load_victim(victim, device=there)
    if there.type != victim.device.type:
        raise VictimError(f"this victim lives on {victim.device}, asked for {device}: load it there")
    return victim


def _listed(threats: Any) -> list[Any]:
    if isinstance(threats, (list, tuple)):
        return list(threats)
    return [threats]


def _vector(one: Callable[[], Any], rows: int) -> SyncVectorEnv:
    try:
        return SyncVectorEnv([one] * rows, autoreset_mode=AutoresetMode.DISABLED)
    except AdvWrappersError:
        raise
    except Exception as error:  # whatever a user's function, or the environment that it makes, may raise
        raise SpaceError(f"cannot make {rows} environments side by side: {error}") from error


def _teller(progress: Progress, name: str, episodes: int) -> Callable[[int], None]:
    progress(name, 0, episodes)
    return lambda done: progress(name, done, episodes)


def _row(aimed: Stack, run: Run, clean: float | None, lowest: float | None) -> dict[str, Any]:
    numbers = metrics.summary(run.returns)
    reference = numbers["mean_return"] if clean is None else clean
    return {
        "threat": aimed.name, **numbers, "regret": metrics.regret(reference, numbers["mean_return"]),
        "impact": metrics.impact(reference, numbers["mean_return"], lowest),
        "attacked_fraction": run.struck / run.steps, "action_change": run.changed / run.struck if run.struck else None,
        "l2": run.l2 / run.moved if run.moved else None, "linf": run.linf / run.moved if run.moved else None,
        "ms_per_step": 1000 * run.seconds / run.steps, "episodes": len(run.returns),
        "mean_length": float(run.lengths.mean()), "transfer": aimed.transfer,
        "layers": [form(threat) for threat in aimed.layers],
        "returns": run.returns.tolist(), "lengths": run.lengths.tolist(),
    }  # fmt: skip
