"""evaluate: what an agent earns, clean and under each threat, on the same episodes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection
from contextlib import closing
from pathlib import Path
from typing import Any

import torch

from adv_wrappers.errors import OutputError, ValueRangeError, VictimError
from adv_wrappers.evaluation.best_of import BestOf
from adv_wrappers.evaluation.environments import AnyEnvironment, Environment, EnvKwargs, MakeEnv
from adv_wrappers.evaluation.long_attacks import warn_of_long_attacks
from adv_wrappers.evaluation.losses import Measure
from adv_wrappers.evaluation.pool import play_runs
from adv_wrappers.evaluation.prepared import Distances, PreparedEvaluation
from adv_wrappers.evaluation.report import Report, Row, check_minimum
from adv_wrappers.evaluation.resume import StoredRows
from adv_wrappers.evaluation.threat_stacks import ThreatStack, as_threat_stack, is_worst_action, worst_action
from adv_wrappers.utils.files import holding
from adv_wrappers.utils.processes import check_workers
from adv_wrappers.utils.threads import one_thread
from adv_wrappers.victims import load_victim
from adv_wrappers.victims.victim import Victim, device_of

Progress = Callable[[str, int, int], None]


@holding
def evaluate(
    victim: Victim | str,
    env: AnyEnvironment,
    threats: Any = (),
    episodes: int = 10,
    seed: int = 0,
    num_envs: int | None = None,
    device: torch.device | str | None = None,
    *,
    env_kwargs: EnvKwargs | None = None,
    make: MakeEnv | None = None,
    minimum: float | str | None = None,
    distances: Distances = None,
    progress: Progress | None = None,
    out: str | Path | None = None,
    quantize: bool = True,
    resume: bool = False,
    measure: Measure = None,
    best_of: BestOf = 1,
    by: str = "return",
    workers: int = 1,
) -> Report:
    """Evaluate an agent without an attack and under each threat, on the same episodes.

    Episode e has a seed of its own, drawn from ``seed``, and a row that plays it whatever happens, so runs are paired
    and the results do not depend on ``num_envs`` beyond the rounding of floats. Torch computes on one thread meanwhile,
    whatever ``torch.set_num_threads`` has set: more cores are for ``workers``.

    Args:
        victim: the agent, or a reference such as ``"zoo:hopper-ppo"``.
        env: the id of the environment, a function that makes one, or an :class:`adv_wrappers.Environment`, which has
            its own ``env_kwargs`` and ``make``. For victims of 84x84 frame stacks an Atari id is made by
            :func:`adv_wrappers.atari.atari`.
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
            what is known of the environment's rewards
            (:class:`adv_wrappers.evaluation.least_return.LeastReturn`), if anything is.
        distances: how observations are compared beside ``l2`` and ``linf``, which are always taken: ``"ssim"``,
            ``"psnr"``, and functions of two batches with a ``name`` such as
            :class:`adv_wrappers.evaluation.lpips.Lpips`, computed on at most 256 attacked steps of a run. None takes
            ssim and psnr where observations are images of uint8.
        progress: called as ``progress(threat, episodes finished, episodes)``, which counts every draw of an episode.
        quantize: whether integer observations stay integers; False makes them float32, so that budgets below one grey
            level have room.
        out: a folder; after every run ``report.json`` in it holds all rows so far. No other process gets it meanwhile.
        resume: take over rows that ``out`` holds and play only the others. A row is taken over if it was played with
            the same victim, environment, episodes, layers (trained adversaries and critics by their hashes), distances
            (by name), ``num_envs``, ``quantize``, device and versions. A function that makes the environment is known
            by its name. Always played is what nothing distinguishes: a victim that is a function, a layer without a
            JSON form, an environment made by a lambda, a method or a partial, an object among ``env_kwargs``. No row
            is lost: a ``report.json`` with rows of other runs becomes ``report-1.json``, ..., from which rows are taken
            over as well.
        measure: a loss of states whose total over an episode is reported beside the return, over every control step
            where actions are held for several: what :func:`adv_wrappers.attacks.targets.as_target` takes, such as
            ``"height=0"``, or True for the environment's own.
        best_of: play every episode so many times with other random numbers of the attack, and report the best of them
            (Weng et al. 2020, rand-U and rand-B): one number for all threats, or a dictionary by the text of a threat.
            A threat without any randomness is played twice, and a warning says so.
        by: what the best is chosen by: the lowest ``"return"``, or the lowest ``"loss"``, which needs ``measure``.
        workers: the number of processes that play; 1 is this one alone. Rows are the same to the last digit, whatever
            it is: every run is cut into blocks of about ``num_envs`` episodes (at most 16 of them), which are played
            by whoever is free. So one run of no more than ``num_envs`` episodes is played by one process; a smaller
            ``num_envs`` makes more blocks. The processes are spawned (a script needs its
            ``if __name__ == "__main__":``) and stay for the next call.

    Raises:
        AdvWrappersError: one of its kinds, before any episode is played, for arguments that cannot work: a victim that
            does not fit the environment, a threat or a distance that does not fit either, an unknown id.
            :class:`ValueRangeError` for observations, rewards or distances that are not finite.
        :class:`WorkerError` for a victim, an environment or a threat that cannot be sent to another process, and for
            a process that dies.
        :class:`OutputError`, before any episode is played, for a folder that cannot be written to or that another
        process holds; and at the end, with the report as its ``report``, where the last one could not be written.

    Warns:
        UserWarning: before any episode is played, of an attack that computes a network thousands of times for every
            observation, with the time that this takes.

    >>> from adv_wrappers import evaluate
    >>> report = evaluate("zoo:cartpole-dqn", "CartPole-v1", ["max-diff:eps=0.1"], episodes=2)
    >>> [row["threat"] for row in report.threats]
    ['none', 'max-diff:eps=0.1']
    """
    check_minimum(minimum)
    workers = check_workers(workers)
    if resume and out is None:
        raise ValueRangeError("resume=True goes on with the report of a folder: give out=")
    victim = _load(victim, device)
    stacks = [ThreatStack("none", (), False), *(as_threat_stack(item, victim) for item in _listed(threats))]
    if isinstance(minimum, str) and not any(is_worst_action(stack, victim) for stack in stacks):
        stacks.insert(1, worst_action(victim))
    prepared = PreparedEvaluation(
        victim,
        Environment.of(env, victim, env_kwargs, make),
        stacks,
        episodes,
        seed,
        num_envs,
        distances=distances,
        quantize=quantize,
        measure=measure,
        best_of=best_of,
        by=by,
    )
    with closing(prepared):
        return play_missing(prepared, {}, minimum=minimum, progress=progress, out=out, resume=resume, workers=workers)


def play_missing(
    prepared: PreparedEvaluation,
    rows: dict[int, Row],
    wanted: Collection[int] | None = None,
    *,
    minimum: float | str | None = None,
    progress: Progress | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    workers: int = 1,
) -> Report:
    """Play the runs of an evaluation that have no row yet.

    Args:
        prepared: the evaluation.
        rows: by index of the run, the rows that are known; those of ``out`` and those that are played are added.
        wanted: the runs that are played, the first among them; None is all.
        minimum, progress, out, resume, workers: as for :func:`evaluate`.

    Returns:
        The report of all rows.
    """
    with one_thread():
        stacks, totals = prepared.stacks, [count * prepared.episodes for count in prepared.counts]
        keys = [prepared.key(i) for i in range(len(stacks))]
        stored = StoredRows(Path(out), stacks, keys) if resume and out is not None else None
        for i, row in {} if stored is None else stored.rows.items():
            rows.setdefault(i, row)
        chosen = [i for i in range(len(stacks)) if wanted is None or i in wanted]
        unwritten: OutputError | None = None

        def report() -> Report:
            """Of the rows so far; it is written where there is a folder."""
            nonlocal unwritten
            made = prepared.report(rows, minimum)
            if out is not None:
                unwritten = _write(made, Path(out), stored)
            return made

        def add(i: int, row: Row) -> None:
            rows[i] = row
            if 0 in rows:
                report()

        def move(i: int, finished: int) -> None:
            if progress is not None:
                progress(stacks[i].name, finished, totals[i])

        if 0 in rows:
            report()  # the rows that were taken over, in the order of this call
        missing = [i for i in chosen if i not in rows]
        warn_of_long_attacks([stacks[i] for i in missing], prepared.victim, prepared.player.venv.num_envs)
        for i in chosen if workers == 1 or not missing else []:
            move(i, 0)
            if i in missing:
                add(i, prepared.play(i, None, functools.partial(move, i)))
            else:
                move(i, totals[i])
        if workers > 1 and missing:
            for i in chosen:
                move(i, 0 if i in missing else totals[i])
            play_runs({i: functools.partial(prepared.play, i) for i in missing}, prepared.setup, workers, move, add)
        made = report()
        if unwritten is not None:
            raise unwritten
        return made


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
