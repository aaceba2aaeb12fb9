"""What a plan or a suite will take, before it begins (:mod:`adv_wrappers.evaluation.cost`).

The run without an attack is played first, and its row kept: it says how many steps a run has. Of every attack some
steps are timed, of a search its first ones, of what is trained a few steps, which are thrown away.
"""

from __future__ import annotations

import contextlib
import inspect
import random
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from gymnasium import spaces

from adv_wrappers.errors import AdvWrappersError, ValueRangeError
from adv_wrappers.evaluation.cost import Cost, Costs, run_seconds
from adv_wrappers.evaluation.row import Row
from adv_wrappers.evaluation.searches.beam import BEAM_FILE, TOGETHER
from adv_wrappers.evaluation.store import Store
from adv_wrappers.evaluation.threat_stacks import CLEAN_RUN
from adv_wrappers.studies.cell_player import CellPlayer
from adv_wrappers.studies.cells import AttackRecipe, Expansion, PlanCell, expand
from adv_wrappers.studies.plan import Plan
from adv_wrappers.studies.runner import cells_of
from adv_wrappers.studies.suite.attack_lists import ADVERSARIES, SUITES, entry_named
from adv_wrappers.studies.suite.entry import AttackSetting, Entry, MadeAttack
from adv_wrappers.studies.suite.trained import SARSA
from adv_wrappers.studies.suite.untrained import beam, beam_attack
from adv_wrappers.training.critic import CriticTraining, scan_critics, train_one_critic
from adv_wrappers.training.folder import read_record
from adv_wrappers.utils.pace import StepTimer
from adv_wrappers.utils.threads import one_thread
from adv_wrappers.victims import Victim

_MANY = 10  # cells of a kind, of which one is played
_SEARCHED, _SEARCHED_SECONDS = 10, 1.5  # steps of a search that are timed, at its full width
_CRITIC_STEPS = 64  # of the training of a critic that is timed


def estimate(plan: Plan | Expansion, store: Store, *, victims: Mapping[str, Victim] | None = None) -> Costs:
    """What the cells of a plan will take that a store does not hold, kind by kind.

    Cells that differ in their seed and their budget alone are of one kind. Of each victim in each environment one cell
    without an attack is played, and one of every kind that has many, since attacks shorten episodes; their rows are
    written. Of other kinds some steps are timed.

    Args:
        plan: the plan, or its cells.
        store: where rows are looked for, and those of the cells that are played written.
        victims: victims that the plan calls by these names.

    Raises:
        AdvWrappersError: one of its kinds, for a plan that cannot work, and for a cell that fails.
    """
    cells = cells_of(plan if isinstance(plan, Expansion) else expand(plan, victims), store)
    store.place(cell.key for cell in cells)
    known = store.done(cell.key for cell in cells)
    clean, kinds = dict[str, PlanCell](), defaultdict[tuple[str, ...], list[PlanCell]](list)
    for cell in cells:
        if cell.name == CLEAN_RUN.name and (_agent_of(cell) not in clean or cell.key in known):
            clean[_agent_of(cell)] = cell
        kinds[cell.kind].append(cell)
    parts = list[Cost]()
    with closing(CellPlayer(victims)) as player, one_thread():
        rows = {agent: _played(cell, player, store) for agent, cell in clean.items()}
        done = store.done(cell.key for cell in cells)
        for of_kind in kinds.values():
            left = [cell for cell in of_kind if cell.key not in done]
            if left:
                parts += _costs_of_kind(left, player, store, rows[_agent_of(left[0])])
    return Costs(tuple(parts), "cells", len(known))


def _agent_of(cell: PlanCell) -> str:
    """What the clean runs of cells have in common whose episodes are as long."""
    return repr((cell.victim, cell.select, cell.device, cell.environment.described, replace(cell.episodes, seed=0)))


def _played(cell: PlanCell, player: CellPlayer, store: Store) -> Row:
    """The row of a cell, which is played and written if it is not there."""
    found = store.found([cell.key])
    if not found:
        if not store.claim([cell.key]):
            raise ValueRangeError(f"another run on {store.path} plays {cell} now: wait for it, or give another store")
        played = player.play(cell)
        store.add([played])
        if played.row is None:
            raise AdvWrappersError(f"{cell} fails: {played.error}")
        return played.row
    return found[cell.key]


def _costs_of_kind(cells: Sequence[PlanCell], player: CellPlayer, store: Store, clean: Row) -> list[Cost]:
    """What the cells of one kind take, and their trainings or searches."""
    cell, recipe = cells[0], cells[0].recipe
    name = f"{cell.victim} on {cell.environment.name}, {cell.kind[0]}"
    if cell.name == CLEAN_RUN.name:
        return [Cost(name, len(cells), clean.seconds)]
    if recipe is None and len(cells) >= _MANY:
        began = time.perf_counter()
        _played(cells[len(cells) // 2], player, store)
        return [Cost(name, len(cells) - 1, time.perf_counter() - began)]
    if recipe is None:
        return [Cost(name, len(cells), _cell_seconds(cell, player, clean))]
    setting = player.setting(cell)
    if recipe.entry == beam.name:  # what it finds is shown again in no time
        return [Cost(name, len(cells), search_seconds(setting, clean.mean_length) + clean.seconds)]
    if recipe.entry not in ADVERSARIES:
        return [Cost(name, len(cells), _cell_seconds(cell, player, clean))]
    missing = {_folder(one, player) for one in cells if not _is_trained(recipe, _folder(one, player))}
    made, seconds = adversary_seconds(recipe.entry, setting)
    with closing(player.open(cell, made.threat)) as evaluator:
        playing = run_seconds(evaluator, 0, clean)
    return [Cost(f"{name}: training", len(missing), seconds, True), Cost(name, len(cells), playing)]


def _cell_seconds(cell: PlanCell, player: CellPlayer, clean: Row) -> float:
    with closing(player.open(cell)) as evaluator:
        return run_seconds(evaluator, 0, clean)


def _folder(cell: PlanCell, player: CellPlayer) -> Path:
    """Of the training of a cell that has one."""
    assert cell.recipe is not None
    return cell.recipe.folder(Path(cell.trainings or ""), player.setting(cell))


def _is_trained(recipe: AttackRecipe, folder: Path) -> bool:
    return min(_steps_in(folder), default=0) >= recipe.steps


# suites


def entry_costs(entry: Entry, setting: AttackSetting, clean: Row) -> list[Cost]:
    """What an entry takes that has to be trained or searched for; empty where that is not estimated.

    What is trained, or was found, is taken to be played as fast as nothing. Not estimated are entries of one's own, and
    ``transfer``, whose training takes about as long with few queries.

    Args:
        entry: of a suite.
        setting: what it is made for.
        clean: the row of the run without an attack.
    """
    name, alone = entry.name, replace(setting, out=None, progress=None)
    if entry is beam:
        work = Cost(f"{name}: search", 1, search_seconds(alone, clean.mean_length), True)
    elif entry in SUITES["everything"] and name in (*ADVERSARIES, SARSA):
        whole = _critic_seconds(alone, clean) if name == SARSA else adversary_seconds(name, alone)[1]
        work = Cost(f"{name}: training", 1, share_left(entry, setting) * whole, True)
    else:
        return []
    return [work, Cost(name, 1, clean.seconds)]


def is_made(entry: Entry, setting: AttackSetting) -> bool:
    """Whether the folder of a setting holds all that was trained or searched for an entry."""
    if entry is beam:
        folder = setting.folder(beam.name)
        return folder is not None and (folder / setting.part / BEAM_FILE).is_file()
    return not entry.per_episodes and share_left(entry, setting) == 0


def share_left(entry: Entry, setting: AttackSetting) -> float:
    """The share of the training of an entry that its folder does not hold, of one's own all of it."""
    name, folder = entry.name, setting.folder(entry.name)
    if folder is None or not folder.is_dir():
        return 1.0
    if name in ADVERSARIES:
        forms = 2 if name == "pa-ad" and isinstance(setting.victim.action_space, spaces.Box) else 1
        return 1 - sum(min(steps / setting.steps, 1.0) for steps in _steps_in(folder)) / forms
    if name == SARSA:
        return max(1 - len([*folder.glob("*/weights.safetensors")]) / len(setting.critics), 0.0)
    return 1.0


# searches and trainings


def timed_search(setting: AttackSetting, most: int, limit: float) -> tuple[StepTimer, MadeAttack | None]:
    """The steps of a search that were timed, and what it found if it ended before.

    Args:
        setting: of the search.
        most, limit: of the steps, and of their seconds, after which the search is ended.
    """
    timer, found = StepTimer(most, limit), None
    with timer.ends():
        found = beam_attack(replace(setting, progress=None), timer)
    return timer, found


def search_step(timer: StepTimer, setting: AttackSetting) -> float:
    """Seconds of a step of a search over all episodes of a setting."""
    return float(np.mean(timer.seconds)) * max(setting.episodes / TOGETHER, 1) if timer.seconds else 0.0


def search_seconds(setting: AttackSetting, length: float) -> float:
    """About how long a beam search over the episodes of a setting takes, in seconds; it shortens them.

    Args:
        setting: of the search.
        length: mean length of an episode.

    Raises:
        AdvWrappersError: one of its kinds, as :func:`.beam_search` does.
    """
    timer, _ = timed_search(replace(setting, out=None), _SEARCHED, _SEARCHED_SECONDS)
    return search_step(timer, setting) * length


def adversary_seconds(name: str, setting: AttackSetting) -> tuple[MadeAttack, float]:
    """An adversary after its first steps, and the seconds that its whole training will take.

    Args:
        name: of the entry, one of ``ADVERSARIES``.
        setting: what it is trained for, with all its steps.
    """

    def train() -> tuple[MadeAttack, float, list[Path]]:
        """One rollout at least of every form, and a checkpoint, whatever the number of steps."""
        short = replace(setting, steps=1, training={**setting.training, "checks": 1})
        began = time.perf_counter()
        made = entry_named(name).attack(replace(short, out=Path(folder)))
        return made, time.perf_counter() - began, [path.parent for path in Path(folder).rglob("state.json")]

    for _ in range(2):  # what the first training of a process imports is not the price of others
        with tempfile.TemporaryDirectory() as folder:
            made, spent, forms = train()
            records = [read_record(form)[-1] for form in forms]
    training, steps = sum(float(one["seconds"]) for one in records), sum(int(one["steps"]) for one in records)
    checks, checkpoint = int(str(setting.training.get("checks", 10))), (spent - training) / len(forms)
    return made, len(forms) * (setting.steps * training / steps + checks * checkpoint)


def _critic_seconds(setting: AttackSetting, clean: Row) -> float:
    """Seconds of the training of all critics, and of the episodes that choose one of them and score it."""
    usual = inspect.signature(train_one_critic).parameters["steps"].default
    for _ in range(2):  # as above
        began = time.perf_counter()
        how = {"seed": 3 * setting.seed, **setting.critics[0], "steps": _CRITIC_STEPS}
        CriticTraining(setting.victim, setting.environment, how).run()
        each = (time.perf_counter() - began) / _CRITIC_STEPS
    episodes = inspect.signature(scan_critics).parameters["episodes"].default
    runs = (len(setting.critics) + 1) * episodes / setting.episodes
    steps = sum(int(str(critic.get("steps", usual))) for critic in setting.critics)
    return float(each * steps + runs * clean.seconds)


def _steps_in(folder: Path) -> list[int]:
    """The steps of every training of an adversary in a folder."""
    return [int(read_record(path.parent)[-1]["steps"]) for path in sorted(folder.rglob("state.json"))]


@contextlib.contextmanager
def global_draws_kept() -> Iterator[None]:
    """What is drawn inside from the generators of the process is as if never drawn."""
    state, legacy = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        random.setstate(state)
        np.random.set_state(legacy)
