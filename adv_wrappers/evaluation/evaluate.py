"""evaluate: what an agent earns, clean and under each threat, on the same episodes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from adv_wrappers.environments.environment import AnyEnvironment, Environment, EnvKwargs, MakeEnv
from adv_wrappers.errors import OutputError, ValueRangeError, VictimError
from adv_wrappers.evaluation.cell_loop import CellLoop
from adv_wrappers.evaluation.cell_run import PlayedCell
from adv_wrappers.evaluation.cost import warn_of_long_attacks
from adv_wrappers.evaluation.episodes import Distances, Episodes
from adv_wrappers.evaluation.evaluator import CellsInBlocks, Evaluator, EvaluatorCell
from adv_wrappers.evaluation.executor import Processes
from adv_wrappers.evaluation.measurements.measurements import BlockMeasurements
from adv_wrappers.evaluation.measurements.target_distance import Measure
from adv_wrappers.evaluation.player import Block, PlayerSetup
from adv_wrappers.evaluation.rows.report import Report
from adv_wrappers.evaluation.rows.row import Row
from adv_wrappers.evaluation.rows.store import ROWS_FILE, Store, unknown_key
from adv_wrappers.evaluation.threat_stacks import as_threat_stacks, is_worst_action, worst_action
from adv_wrappers.registry import By
from adv_wrappers.utils.files import holding
from adv_wrappers.utils.pace import Progress
from adv_wrappers.utils.threads import one_thread
from adv_wrappers.utils.validation import BestOf, EnvCount, EpisodeCount, Minimum, Seed, Workers, checked
from adv_wrappers.victims import load_victim
from adv_wrappers.victims.victim import Victim, device_of


@checked
@holding
def evaluate(
    victim: Victim | str,
    env: AnyEnvironment,
    threats: Any = (),
    episodes: EpisodeCount | Episodes = 10,
    seed: Seed = 0,
    num_envs: EnvCount | None = None,
    device: torch.device | str | None = None,
    *,
    env_kwargs: EnvKwargs | None = None,
    make: MakeEnv | None = None,
    minimum: Minimum | None = None,
    distances: Distances = None,
    progress: Progress | None = None,
    out: str | Path | None = None,
    quantize: bool = True,
    resume: bool = False,
    measure: Measure = None,
    best_of: BestOf = 1,
    by: By = "return",
    workers: Workers = 1,
    metrics: Sequence[str] = (),
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
        threats: such as ``max-diff:eps=0.1``; with `` + `` between threats a stack, innermost first. Each is a text, a
            :class:`ThreatModel`, a perturbation with a budget or a dictionary; or, for a stack, a list of these,
            innermost first, or one text with `` + `` between them. One without a victim is aimed at ``victim``; one
            with a victim of its own is a transfer attack, and its row says so.
        episodes: episodes of every run. Or an :class:`adv_wrappers.Episodes`, which has its own
            ``seed``, ``num_envs``, ``best_of``, ``by``, ``measure``, ``distances`` and ``quantize``.
        seed: seeds all randomness.
        num_envs: environments that are stepped at once; None takes 32, or 8 for images. There are never more than
            ``episodes`` (and their draws). Tasks of the DeepMind Control Suite that
            :class:`~adv_wrappers.environments.dmc.DmcVectorEnv` knows step MuJoCo directly.
        device: the device that a victim is loaded onto; None takes the CPU. A victim that is loaded stays where it is.
        env_kwargs: keyword arguments of the environment; None takes those of the victim's card, if it names the same
            id.
        make: a function called as ``make(id, **env_kwargs)`` instead of ``gymnasium.make``.
        minimum: return that impact counts from: a number, or ``"worst-action"``; None takes the game's own. That is
            what is known of the environment's rewards
            (:class:`adv_wrappers.evaluation.statistics.return_range.LeastReturn`), if anything is. ``"worst-action"``
            is the agent that takes the action it values least in every state, which is then a run of its own.
        distances: how observations are compared beside ``l2`` and ``linf``, which are always taken: ``"ssim"``,
            ``"psnr"``, and functions of two batches with a ``name``, computed on at most 256 attacked steps of a run.
            None takes ssim and psnr where observations are images of uint8.
        progress: called as ``progress(threat, episodes finished, episodes)``, which counts every draw of an episode.
        quantize: integer observations stay integers, not float32, which has room for budgets below one grey level.
        out: a folder for ``report.json`` and the rows as they come. Every row is written to ``rows.db`` in it as it
            comes, a :class:`.Store`, which keeps the rows of all evaluations of the folder; ``report.json`` holds all
            rows of this one. No other process gets it meanwhile.
        resume: play only rows that ``out`` does not hold yet. A row is taken over if it was played with the same
            victim, environment, episodes, layers (trained adversaries and critics by their hashes), distances (by
            name), ``num_envs``, ``quantize``, device and versions. A function that makes the environment is known by
            its name. Always played is what nothing distinguishes: a victim that is a function, a layer without a JSON
            form, an environment made by a lambda, a method or a partial, an object among ``env_kwargs``.
        measure: a loss of states beside the return, such as ``"height=0"``, or ``"own"`` for the environment's. Its
            total over an episode is reported, over every control step where actions are held for several: what
            :func:`adv_wrappers.attacks.targets.as_target` takes, or True, which is the environment's own.
        best_of: draws of every attacked episode, of which the best is reported. They have other random numbers of the
            attack (Weng et al. 2020, rand-U and rand-B): one number for all threats, or a dictionary by the text of a
            threat. A threat without any randomness is played twice, and a warning says so.
        by: what the best is chosen by: the lowest return, or the lowest loss, which needs ``measure``.
        workers: processes that play episodes. With 1 it is this one, which else waits for the others. Rows are the same
            to the last digit, whatever it is: every run is cut into blocks of about ``num_envs`` episodes (at most 16
            of them), which are played by whoever is free. So one run of no more than ``num_envs`` episodes is played by
            one process; a smaller ``num_envs`` makes more blocks. The processes are spawned (a script needs its
            ``if __name__ == "__main__":``) and stay for the next call.
        metrics: what is counted beside the return, once an episode. ``success`` is whether ``info["is_success"]`` or
            ``info["success"]`` was true, ``terminated`` whether it ended by itself, as by a fall, ``truncated`` whether
            it lasted until the limit of time, ``cost`` the sum of ``info["cost"]``; any other name is a key of
            ``info``, whose last value counts, or ``sum:KEY``, ``mean:KEY``, ``min:KEY``, ``max:KEY`` or ``any:KEY``.
            ``row.metric(name)`` has the rate or mean, its interval and the worst 5%.

    Raises:
        AdvWrappersError: one of its kinds, before any episode is played, for arguments that cannot work: a victim that
            does not fit the environment, a threat or a distance that does not fit either, an unknown id.
            :class:`ValueRangeError` for observations, rewards or distances that are not finite.
        :class:`WorkerError` for a victim, an environment or a threat that cannot be sent to another process, and for
            a process that dies.
        :class:`OutputError`, before any episode is played, for a folder that cannot be written to or that another
        process holds; and where a row cannot be written, with the report of all so far as its ``report``.

    Warns:
        UserWarning: before any episode is played, of an attack that computes a network thousands of times for every
            observation.

    >>> from adv_wrappers import evaluate
    >>> report = evaluate("zoo:cartpole-dqn", "CartPole-v1", ["max-diff:eps=0.1"], episodes=2)
    >>> [row.threat for row in report.threats]
    ['none', 'max-diff:eps=0.1']
    """
    if resume and out is None:
        raise ValueRangeError("resume=True goes on with the rows of a folder: give out=")
    # the settings, and what is run under them: a threat or a stack each
    how = Episodes.of(
        episodes,
        seed=seed,
        num_envs=num_envs,
        best_of=best_of,
        by=by,
        measure=measure,
        distances=distances,
        quantize=quantize,
        metrics=metrics,
    )
    victim = _load(victim, device)
    stacks = as_threat_stacks(threats, victim)
    if isinstance(minimum, str) and not any(is_worst_action(stack, victim) for stack in stacks):
        stacks.insert(1, worst_action(victim))
    with closing(Evaluator(victim, Environment.of(env, victim, env_kwargs, make), stacks, how)) as evaluator:
        return play_missing(evaluator, minimum=minimum, progress=progress, out=out, resume=resume, workers=workers)


def play_missing(
    evaluator: Evaluator,
    rows: dict[int, Row] | None = None,
    *,
    minimum: float | str | None = None,
    progress: Progress | None = None,
    out: str | Path | None = None,
    resume: bool = True,
    workers: int = 1,
) -> Report:
    """Play the cells of an evaluation that have no row yet.

    Args:
        evaluator: the evaluator.
        rows: by index of the cell, the rows that are known; those of ``out`` and those that are played are added.
        minimum, progress, out, workers: as for :func:`evaluate`.
        resume: whether rows that ``out`` holds are known too.

    Returns:
        The report of all rows.
    """
    stacks, rows = evaluator.stacks, {} if rows is None else rows
    places = {stack.name: i for i, stack in enumerate(stacks)}
    folder = None if out is None else Path(out)
    # what is kept needs keys by which later evaluations find it
    keys = [*map(str, range(len(stacks)))] if folder is None else _keys(evaluator)
    failed = dict[int, str]()
    report: Report | None = None  # the last that was written

    def move(i: int, finished: int) -> None:
        if progress is not None:
            progress(stacks[i].name, finished, evaluator.episode_count(i))

    def write() -> None:
        """Write the report of the rows so far, once there is the first."""
        nonlocal report
        if folder is not None and 0 in rows:
            report = evaluator.report(rows, minimum, failed)
            report.to_json(folder / "report.json")

    def keep(played: PlayedCell | None) -> None:
        assert played is not None  # no other run writes into the folder
        if played.row is None:
            failed[places[played.name]] = (played.error or "").partition(": ")[2]
        else:
            rows[places[played.name]] = played.row
        write()

    with ExitStack() as opened:
        opened.enter_context(one_thread())
        store = None if folder is None else opened.enter_context(Store(folder / ROWS_FILE, shared=False))
        if store is not None and resume:
            rows |= {i: row for i, row in _rows_in(store, evaluator, keys).items() if i not in rows}
        # the others are played in this process, or in several
        executor = None
        if workers > 1 and len(rows) < len(stacks):
            setup = PlayerSetup(evaluator.cells)
            executor = opened.enter_context(closing(Processes[Block, BlockMeasurements](workers, setup, tries=1)))
        cells = [EvaluatorCell(key, i) for i, key in enumerate(keys)]
        missing = [cell for cell in cells if cell.index not in rows]
        loop = CellLoop(cells, missing, CellsInBlocks(evaluator, executor, move), store, again=True)
        warn_of_long_attacks(stacks[cell.index] for cell in missing)
        # progress counts known rows as played
        for i in sorted(rows):
            move(i, 0)
            move(i, evaluator.episode_count(i))
        try:
            write()  # in the order of this call
            loop.play(keep)
        except OutputError as error:
            for played in error.report or ():  # what was just played
                rows |= {places[played.name]: played.row} if played.row is not None else {}
            error.report = evaluator.report(rows, minimum, failed) if 0 in rows else None
            raise
        return evaluator.report(rows, minimum, failed) if report is None else report


def kept_rows(evaluator: Evaluator, folder: Path | None) -> dict[int, Row]:
    """By index of the cell, the rows of an evaluation that a folder holds, of which nothing is changed."""
    if folder is None or not (folder / ROWS_FILE).is_file():
        return {}
    with Store(folder / ROWS_FILE, read_only=True) as store:
        return _rows_in(store, evaluator, _keys(evaluator))


def _keys(evaluator: Evaluator) -> list[str]:
    """The keys of its cells; of what nothing distinguishes, one that no row has."""
    return [evaluator.key(i) or unknown_key() for i in range(len(evaluator.stacks))]


def _rows_in(store: Store, evaluator: Evaluator, keys: Sequence[str]) -> dict[int, Row]:
    """By index of the cell, the rows of an evaluation that a store holds, named as in this evaluation."""
    found, places = store.found(keys), enumerate(zip(keys, evaluator.stacks, strict=True))
    return {
        i: replace(found[key], threat=stack.name, transfer=stack.transfer) for i, (key, stack) in places if key in found
    }


def _load(victim: Victim | str, device: torch.device | str | None) -> Victim:
    if device is None:
        return load_victim(victim)
    there = device_of(device)
    if not isinstance(victim, Victim):
        return load_victim(victim, device=there)
    if there.type != victim.device.type:
        raise VictimError(f"this victim lives on {victim.device}, asked for {device}: load it there")
    return victim
