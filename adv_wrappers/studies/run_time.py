"""What a plan, a suite or a submission to a standing will take, before it begins (:mod:`adv_wrappers.evaluation.cost`).

The run without an attack is played first: it says how many steps a run has. Of every attack some steps are timed, of a
search its first ones, of what is trained a few steps, which are thrown away.
"""

from __future__ import annotations

import inspect
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces

from adv_wrappers.errors import AdvWrappersError, ValueRangeError
from adv_wrappers.evaluation.cost import Cost, Costs, run_seconds
from adv_wrappers.evaluation.episodes import Episodes
from adv_wrappers.evaluation.evaluate import kept_rows
from adv_wrappers.evaluation.evaluator import Evaluator
from adv_wrappers.evaluation.rows.row import Row
from adv_wrappers.evaluation.rows.store import Store
from adv_wrappers.evaluation.searches.beam import BEAM_FILE, TOGETHER
from adv_wrappers.evaluation.threat_stacks import CLEAN_RUN, as_threat_stack
from adv_wrappers.studies.cell_player import CellPlayer
from adv_wrappers.studies.plan import Plan
from adv_wrappers.studies.plan_cells import Expansion, PlanCell, expand
from adv_wrappers.studies.runner import cells_of
from adv_wrappers.studies.suite.attack_lists import (
    ADVERSARIES,
    SUITES,
    chosen_entries,
    entries_of,
    entry_named,
    some_that_apply,
)
from adv_wrappers.studies.suite.entry import AttackSetting, Entry, MadeAttack
from adv_wrappers.studies.suite.trained_attacks import SARSA
from adv_wrappers.studies.suite.untrained_attacks import beam, beam_attack
from adv_wrappers.training.folder import read_record
from adv_wrappers.training.models.critic_scan import scan_critics
from adv_wrappers.training.models.robust_sarsa import CriticSettings, CriticTraining
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
    # cells by their kind, and of every setting the run without an attack
    for cell in cells:
        if cell.is_clean and (cell.setting not in clean or cell.key in known):
            clean[cell.setting] = cell
        kinds[cell.kind].append(cell)
    parts, unknown = list[Cost](), list[str]()
    with closing(CellPlayer(victims)) as player, one_thread():
        # those runs are played first, since they say how many steps a run has
        rows = {setting: _played(cell, player, store) for setting, cell in clean.items()}
        done = store.done(cell.key for cell in cells)
        for of_kind in kinds.values():
            # what is left of a kind, by the price of one cell
            left = [cell for cell in of_kind if cell.key not in done]
            if left:
                name = f"{left[0].victim} on {left[0].environment.name}, {left[0].kind[0]}"
                found = _costs_of_kind(name, left, player, store, rows[left[0].setting])
                parts += found
                unknown += [] if found else [name]
    return Costs(tuple(parts), "cells", len(known), tuple(unknown))


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


def _costs_of_kind(name: str, cells: Sequence[PlanCell], player: CellPlayer, store: Store, clean: Row) -> list[Cost]:
    """What the cells of one kind take, and their trainings or searches; empty where that is not estimated."""
    cell, recipe = cells[0], cells[0].recipe
    if cell.is_clean:
        return [Cost(name, len(cells), clean.seconds)]
    # of many cells one is played, of few some steps are timed
    entry = None if recipe is None else entry_named(recipe.entry)
    if entry is None and len(cells) >= _MANY:
        began = time.perf_counter()
        _played(cells[len(cells) // 2], player, store)
        return [Cost(name, len(cells) - 1, time.perf_counter() - began)]
    if recipe is None or entry is None or not (recipe.trained or entry.per_episodes):
        with closing(player.open(cell)) as evaluator:
            return [Cost(name, len(cells), run_seconds(evaluator, 0, clean))]
    # cells of several seeds share a training, and each has a search of its own
    settings = [player.setting(one) for one in cells]
    making = making_cost(entry, [*{setting.out or i: setting for i, setting in enumerate(settings)}.values()], clean)
    if making is None:
        return []
    if entry.per_episodes:
        return [Cost(name, len(cells), making.each + clean.seconds)]
    return [replace(making, name=f"{name}: training"), Cost(name, len(cells), clean.seconds)]


# ----------------------------------------------------------------------------------------------------------------------
# The attacks of a suite, or of a standing, on one agent.
# ----------------------------------------------------------------------------------------------------------------------


def suite_cost(
    suite: str | Iterable[Entry | str], setting: AttackSetting, attacks: str | Iterable[str] | None = None
) -> Costs:
    """What a suite will take on this machine, attack by attack: seconds of some of its steps, times the steps.

    The run without an attack is played, and says how many steps there are. Some steps of every attack are timed, the
    first steps of a search, and a rollout of every training, which is thrown away. Nobody knows beforehand how long
    episodes are under an attack. The strongest, which is played again on fresh episodes, is counted once.

    Args:
        suite, attacks: as for :func:`run_suite`.
        setting: what the attacks are made for. A folder, ``out``, is that of :func:`run_suite`: what it holds is not
            estimated. Nothing is written to it.

    Raises:
        AdvWrappersError: one of its kinds, as :func:`run_suite` does.

    >>> from adv_wrappers import Linf
    >>> from adv_wrappers.studies import AttackSetting, suite_cost
    >>> setting = AttackSetting("zoo:cartpole-dqn", "CartPole-v1", Linf(0.05), episodes=2)
    >>> cost = suite_cost(["noise", "pgd", "beam"], setting)
    >>> max(cost.parts, key=lambda part: part.seconds).name
    'beam: search'
    """
    entries, reasons = some_that_apply(chosen_entries(entries_of(suite), attacks), setting)
    return attack_costs(entries, setting, setting.scored_episodes, setting.folder(setting.part), "entries", reasons)


def attack_costs(
    entries: Sequence[Entry],
    setting: AttackSetting,
    episodes: Episodes,
    rows: Path | None,
    of: str,
    left_out: Mapping[str, str],
) -> Costs:
    """What some attacks on one agent take, but for those whose rows are there.

    Args:
        entries: of a suite.
        setting: what they are made for.
        episodes: how their rows are played.
        rows: the folder that may hold some of them, or None.
        of, left_out: of the :class:`Costs`.
    """
    # what needs no training or search is timed as it is
    at_hand = [entry for entry in entries if is_made(entry, setting)]
    stacks = [as_threat_stack(entry.attack(setting).threat, setting.victim) for entry in at_hand]
    place = {entry.name: i for i, entry in enumerate(at_hand, 1)}
    parts, unknown = list[Cost](), list[str]()
    with (
        closing(Evaluator(setting.victim, setting.environment, [CLEAN_RUN, *stacks], episodes)) as evaluator,
        one_thread(),
    ):
        known = kept_rows(evaluator, rows)
        clean = known[0] if 0 in known else evaluator.play(0)
        for entry in entries:
            i, name = place.get(entry.name), entry.name
            if i is not None:
                parts.append(Cost(name, 0, 0.0) if i in known else Cost(name, 1, run_seconds(evaluator, i, clean)))
            elif (making := making_cost(entry, [setting], clean)) is not None:
                parts += [making, Cost(name, 1, clean.seconds)]  # what is trained or found is as fast as nothing
            else:
                unknown.append(name)
    return Costs(tuple(parts), of, sum(not part.left for part in parts), tuple(unknown), left_out)


# ----------------------------------------------------------------------------------------------------------------------
# Searches and trainings.
# ----------------------------------------------------------------------------------------------------------------------


def making_cost(entry: Entry, settings: Sequence[AttackSetting], clean: Row) -> Cost | None:
    """What an entry takes that has to be trained or searched for; None where that is not estimated.

    That are entries of one's own, and ``transfer``, whose training takes about as long with few queries.

    Args:
        entry: of a suite.
        settings: what it is made for, which differ in the budget and the folder alone.
        clean: the row of the run without an attack.
    """
    alone, left = replace(settings[0], out=None, progress=None), [share_left(entry, one) for one in settings]
    missing = [share for share in left if share]
    if entry is beam:
        return Cost(f"{beam.name}: search", len(missing), timed_search(alone, clean.mean_length)[0], True)
    if entry not in SUITES["everything"] or entry.name not in (*ADVERSARIES, SARSA):
        return None
    whole = _critic_seconds(alone, clean) if entry.name == SARSA else adversary_seconds(entry.name, alone)
    return Cost(f"{entry.name}: training", len(missing), whole * float(np.mean(missing or [0.0])), True)


def is_made(entry: Entry, setting: AttackSetting) -> bool:
    """Whether an attack takes no time to be made: it is neither trained nor searched for, or its folder holds that."""
    return not (entry.per_episodes or entry.trains(setting)) or share_left(entry, setting) == 0


def share_left(entry: Entry, setting: AttackSetting) -> float:
    """The share of the training or search of an entry that its folder does not hold, of one's own all of it."""
    name, folder = entry.name, setting.folder(entry.name)
    if folder is None or not folder.is_dir():
        return 1.0
    if entry is beam:
        return float(not (folder / setting.part / BEAM_FILE).is_file())
    # steps of the training, or of both, that are done
    if name in ADVERSARIES:
        forms = 2 if name == "pa-ad" and isinstance(setting.victim.action_space, spaces.Box) else 1
        steps = [int(read_record(path.parent)[-1]["steps"]) for path in sorted(folder.rglob("state.json"))]
        return 1 - sum(min(done / setting.steps, 1.0) for done in steps) / forms
    if name == SARSA:
        return max(1 - len([*folder.glob("*/weights.safetensors")]) / len(setting.critics), 0.0)
    return 1.0


def timed_search(
    setting: AttackSetting, length: float, most: int = _SEARCHED, limit: float = _SEARCHED_SECONDS
) -> tuple[float, MadeAttack | None]:
    """About how many seconds a beam search takes, by some of its steps, and what it found if it ended before.

    Args:
        setting: of the search.
        length: mean length of an episode, which the search shortens.
        most, limit: of the steps, and of their seconds, after which the search is ended.

    Raises:
        AdvWrappersError: one of its kinds, as :func:`.beam_search` does.
    """
    timer, found = StepTimer(most, limit), None
    with timer.ends():
        found = beam_attack(replace(setting, progress=None), timer)
    each = float(np.mean(timer.seconds or 0.0))
    return each * max(setting.episodes / TOGETHER, 1) * length, found


def adversary_seconds(name: str, setting: AttackSetting) -> float:
    """About how long the training of an adversary takes, in seconds, from its first steps and a checkpoint.

    Args:
        name: of the entry, one of ``ADVERSARIES``.
        setting: what it is trained for, with all its steps.
    """
    # one rollout at least of every form, and a checkpoint, whatever the number of steps
    short = replace(setting, steps=1, training={**setting.training, "checks": 1})

    def train() -> list[dict[str, Any]]:
        with tempfile.TemporaryDirectory() as folder:
            entry_named(name).attack(replace(short, out=Path(folder)))
            return [read_record(path.parent)[-1] for path in Path(folder).rglob("state.json")]

    spent, records = _timed(train)
    training, steps = sum(float(one["seconds"]) for one in records), sum(int(one["steps"]) for one in records)
    checks, checkpoint = int(str(setting.training.get("checks", 10))), (spent - training) / len(records)
    return len(records) * (setting.steps * training / steps + checks * checkpoint)


def _critic_seconds(setting: AttackSetting, clean: Row) -> float:
    """Seconds of the training of all critics, and of the episodes that choose one of them and score it."""
    how = CriticSettings.of({"seed": 3 * setting.seed}, setting.critics[0], {"steps": _CRITIC_STEPS})
    spent, _ = _timed(lambda: CriticTraining(setting.victim, setting.environment, how).run())
    episodes = inspect.signature(scan_critics).parameters["episodes"].default
    runs = (len(setting.critics) + 1) * episodes / setting.episodes
    steps = sum(CriticSettings.of(critic).steps for critic in setting.critics)
    return float(spent / _CRITIC_STEPS * steps + runs * clean.seconds)


def _timed(train: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds of a short training, and what it returns; the first one also imports what others find imported."""
    train()
    began = time.perf_counter()
    found = train()
    return time.perf_counter() - began, found
