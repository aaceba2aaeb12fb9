"""evaluate: what an agent earns, clean and under each threat, on the same episodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from adv_wrappers.attacks.targets import Target
from adv_wrappers.core.threat import fits
from adv_wrappers.core.types import JSON
from adv_wrappers.errors import (
    OutputError,
    ValueRangeError,
    VictimError,
)
from adv_wrappers.evaluation.best_of import BestOf, Play, check_by, draws_of, play_draws
from adv_wrappers.evaluation.checks import find_warnings
from adv_wrappers.evaluation.environments import EnvKwargs, MakeEnv, environment_factory, minimum_of
from adv_wrappers.evaluation.losses import EpisodeLosses, Measure, measure_text, measured_target
from adv_wrappers.evaluation.measurements import RunMeasurements
from adv_wrappers.evaluation.provenance import revision, versions
from adv_wrappers.evaluation.report import (
    COLUMNS,
    Report,
    Row,
    check_minimum,
    compared,
    describe_minimum,
    measured_row,
    outcome_of,
)
from adv_wrappers.evaluation.resume import StoredRows
from adv_wrappers.evaluation.rollout import draw_seeds, play_episodes, side_by_side
from adv_wrappers.evaluation.sampled_distances import Distance, ObservationSample, sampled_distances
from adv_wrappers.evaluation.threat_stacks import (
    ThreatStack,
    as_threat_stack,
    is_worst_action,
    threats_of_environment,
    with_unique_names,
    worst_action,
)
from adv_wrappers.presets import preset_in_errors
from adv_wrappers.utils.files import holding
from adv_wrappers.utils.numbers import integer
from adv_wrappers.utils.threads import one_thread
from adv_wrappers.victims import load_victim
from adv_wrappers.victims.references import device_of
from adv_wrappers.victims.victim import Victim
from adv_wrappers.wrappers.base import AnyVectorEnv
from adv_wrappers.wrappers.dmc import feature_names
from adv_wrappers.wrappers.order import check_order
from adv_wrappers.wrappers.recorder import VectorActionRecorder
from adv_wrappers.wrappers.stack import wrap

MOST_EPISODES = 10**6
Progress = Callable[[str, int, int], None]


@holding
def evaluate(
    victim: Victim | str, env: str | MakeEnv, threats: Any = (), episodes: int = 10, seed: int = 0,
    num_envs: int | None = None, device: torch.device | str | None = None, *, env_kwargs: EnvKwargs | None = None,
    make: MakeEnv | None = None, minimum: float | str | None = None,
    distances: Sequence[str | Distance] | str | Distance | None = None, progress: Progress | None = None,
    out: str | Path | None = None, quantize: bool = True, resume: bool = False, measure: Measure = None,
    best_of: BestOf = 1, by: str = "return",
) -> Report:  # fmt: skip
    """Evaluate an agent without an attack and under each threat, on the same episodes.

    Episode e has a seed of its own, drawn from ``seed``, and a row that plays it whatever happens, so runs are paired
    and the results do not depend on ``num_envs`` beyond the rounding of floats. Torch computes on one thread meanwhile,
    whatever ``torch.set_num_threads`` has set: more cores are used by evaluations in processes of their own.

    Args:
        victim: the agent, or a reference such as ``"zoo:hopper-ppo"``.
        env: the id of the environment, or a function that makes one. For victims of 84x84 frame stacks an Atari id is
            made by :func:`adv_wrappers.atari.atari`.
        threats: each a text, a :class:`ThreatModel`, a perturbation with a budget or a dictionary; or, for a stack, a
            list of these, innermost first, or one text with `` + `` between them. One without a victim is aimed at
            ``victim``; one with a victim of its own is a transfer attack, and its row says so.
        episodes: the number of episodes of every run, at most a million.
        seed: seeds all randomness; at least 0.
        num_envs: the number of environments that are stepped at once; None takes 32, or 8 for images, and never more
            than ``episodes`` (and their draws). Tasks of the DeepMind Control Suite that
            :class:`~adv_wrappers.wrappers.dmc_vector.DmcVectorEnv` knows step MuJoCo directly.
        device: the device that a reference is loaded onto.
        env_kwargs: keyword arguments of the environment; None takes those of the victim's card, if it names the same
            id.
        make: a function called as ``make(id, **env_kwargs)`` instead of ``gymnasium.make``.
        minimum: the return that ``impact`` counts from: a number; ``"worst-action"`` for that of the agent that takes
            the action it values least in every state, which is then a run of its own; or None, which takes it from a
            table of games that have one.
        distances: how observations are compared beside ``l2`` and ``linf``, which are always taken: ``"ssim"``,
            ``"psnr"``, and functions of two batches with a ``name`` such as
            :class:`adv_wrappers.evaluation.lpips.Lpips`, computed on at most 256 attacked steps of a run. None takes
            ssim and psnr where observations are images of uint8.
        progress: called as ``progress(threat, episodes finished, episodes)``, which counts every draw of an episode.
        quantize: whether integer observations stay integers; False makes them float32, so that budgets below one grey
            level have room.
        out: a folder; after every run ``report.json`` in it holds all rows so far. No other process gets it meanwhile.
        resume: take over rows that ``out`` holds and play only the others. A row is taken over if it was played with
            the same victim, environment (a function is known by its name), episodes, layers (trained adversaries and
            critics by their hashes), distances (by name), ``num_envs``, ``quantize``, device and versions; never where
            the victim has no weights or a layer no JSON form. No row is lost: a ``report.json`` with rows of other
            runs becomes ``report-1.json``, ..., from which rows are taken over as well.
        measure: a loss of states whose total over an episode is reported beside the return, over every control step
            where actions are held for several: what :func:`adv_wrappers.attacks.targets.as_target` takes, such as
            ``"height=0"``, or True for the environment's own.
        best_of: play every episode so many times with other random numbers of the attack, and report the best of them
            (Weng et al. 2020, rand-U and rand-B): one number for all threats, or a dictionary by the text of a threat.
            A threat without any randomness is played twice, and a warning says so.
        by: what the best is chosen by: the lowest ``"return"``, or the lowest ``"loss"``, which needs ``measure``.

    Raises:
        AdvWrappersError: one of its kinds, before any episode is played, for arguments that cannot work: a victim that
            does not fit the environment, a threat or a distance that does not fit either, an unknown id.
            :class:`ValueRangeError` for observations, rewards or distances that are not finite.
        :class:`OutputError`, before any episode is played, for a folder that cannot be written to or that another
        process holds; and at the end, with the report as its ``report``, where the last one could not be written.

    >>> from adv_wrappers import evaluate
    >>> report = evaluate("zoo:cartpole-dqn", "CartPole-v1", ["max-diff:eps=0.1"], episodes=2)
    >>> [row["threat"] for row in report.threats]
    ['none', 'max-diff:eps=0.1']
    """
    episodes, seed = integer("episodes", episodes, 1, MOST_EPISODES), integer("seed", seed, 0)
    if num_envs is not None:
        num_envs = integer("num_envs", num_envs, 1)
    check_minimum(minimum)
    if resume and out is None:
        raise ValueRangeError("resume=True goes on with the report of a folder: give out=")
    victim = _load(victim, device)
    seeds = draw_seeds(seed, episodes)
    stacks = [ThreatStack("none", (), False), *(as_threat_stack(item, victim) for item in _listed(threats))]
    if isinstance(minimum, str) and not any(is_worst_action(stack, victim) for stack in stacks):
        stacks.insert(1, worst_action(victim))
    stacks = with_unique_names(stacks)
    counts = draws_of(best_of, stacks)
    check_by(by, measure is not None and measure is not False)
    make_env, name, kwargs = environment_factory(env, victim, env_kwargs, make)
    images = len(victim.observation_space.shape or ()) > 1
    width = min(num_envs or (8 if images else 32), max(counts) * episodes)
    venv = side_by_side(make_env, width, name if make is None and isinstance(env, str) else None, kwargs)
    with closing(venv), one_thread():
        check_order(venv)
        fits(victim, venv.single_observation_space, venv.single_action_space)
        if not quantize and distances is None:  # those of images compare whole grey levels
            distances = ()
        target = measured_target(measure, victim, name, feature_names(venv))
        sampled = sampled_distances(distances, venv.single_observation_space, COLUMNS)
        under = threats_of_environment(venv, victim)
        if under:
            stacks[0] = replace(stacks[0], name=f"none (on an environment already perturbed by {' + '.join(under)})")
        fixed = minimum_of(name) if minimum is None or isinstance(minimum, str) else float(minimum)
        lowest = None if isinstance(minimum, str) else fixed
        runs: list[tuple[ThreatStack, VectorActionRecorder, AnyVectorEnv]] = []
        for stack in stacks:  # all of them are wrapped before anything is played
            recorder = VectorActionRecorder(venv)
            with preset_in_errors(stack.name):
                wrapped = wrap(recorder, *stack.layers, victim=victim, quantize=quantize) if stack.layers else recorder
            runs.append((stack, recorder, wrapped))
        about: dict[str, JSON] = {
            "versions": versions(), "seed": seed, "episode_seeds": tuple(seeds), "git": revision(),
            "device": str(victim.device), "env": {"id": name, "kwargs": kwargs}, "episodes": episodes,
            "num_envs": venv.num_envs, "quantize": bool(quantize),
            "victim": {"ref": victim.ref, "fingerprint": victim.fingerprint(), "select": victim.select},
            "measure": measure_text(target), "by": by,
        }  # fmt: skip
        stored = StoredRows(Path(out), about, victim, stacks, sampled, counts) if resume and out is not None else None
        unwritten: OutputError | None = None
        rows: list[Row | None] = [None] * len(stacks) if stored is None else stored.rows
        for i, (stack, recorder, wrapped) in enumerate(runs):
            on_episode = None if progress is None else _on_episode(progress, stack.name, episodes * counts[i])
            if rows[i] is None:
                sample = ObservationSample(seeds * min(counts[i], 2)) if sampled else None
                draws = play_draws(
                    _player(wrapped, recorder, victim, seeds, target, on_episode, sample), counts[i], episodes, by
                )
                rows[i] = measured_row(stack, draws, sample, sampled)
            elif on_episode is not None:
                on_episode(episodes * counts[i])
            played = [(stack, row) for stack, row in zip(stacks, rows, strict=True) if row is not None]
            if isinstance(minimum, str):
                lowest = next((row["mean_return"] for stack, row in played if is_worst_action(stack, victim)), None)
            warnings = find_warnings([outcome_of(*each) for each in played], victim, name, under, seeds)
            report = Report(
                **about, warnings=tuple(warnings), minimum=describe_minimum(minimum, victim, lowest),
                threats=compared([row for _, row in played], *((None, None) if under else (lowest, fixed))),
            )  # fmt: skip
            if out is not None:
                unwritten = _write(report, Path(out), stored)
        if unwritten is not None:
            raise unwritten
        return report


def _write(report: Report, folder: Path, stored: StoredRows | None) -> OutputError | None:
    """Write a report; return the error that this raised, with the report, as the next run's report may be written."""
    try:
        if stored is not None:
            stored.write(report)
        else:
            report.to_json(folder / "report.json")
    except OutputError as error:
        error.report = report
        return error
    return None


def _load(victim: Victim | str, device: torch.device | str | None) -> Victim:
    if device is None:
        return load_victim(victim)
    there = device_of(device)
    if not isinstance(victim, Victim):
        return load_victim(victim, device=there)
    if there.type != victim.device.type:
        raise VictimError(f"this victim lives on {victim.device}, asked for {device}: load it there")
    return victim


def _listed(threats: object) -> list[object]:
    if isinstance(threats, (list, tuple)):
        return list(threats)
    return [threats]


def _player(
    env: AnyVectorEnv, recorder: VectorActionRecorder, victim: Victim, seeds: list[int], target: Target | None,
    on_episode: Callable[[int], None] | None, sample: ObservationSample | None,
) -> Play:  # fmt: skip
    """A function that plays draws of all episodes of one run; the first call has a sample of observations."""
    before = 0

    def play(numbers: Sequence[int]) -> RunMeasurements:
        nonlocal before
        done, count = before, len(numbers)
        before += count
        return play_episodes(
            env, recorder, victim, seeds * (count // len(seeds)),
            None if on_episode is None else lambda finished: on_episode(done + finished),
            None if done else sample, draws=numbers,
            losses=None if target is None else EpisodeLosses(target, count, env.num_envs),
        )  # fmt: skip

    return play


def _on_episode(progress: Progress, name: str, episodes: int) -> Callable[[int], None]:
    progress(name, 0, episodes)
    return lambda done: progress(name, done, episodes)
