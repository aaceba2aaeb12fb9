"""What a plan, a suite or a submission to a standing will take, before it begins (:mod:`adv_wrappers.evaluation.cost`).

The run without an attack is played first: it says how many steps a run has. Of every attack some steps are timed, of a
search its first ones. What is trained is named: its training says itself how long is left.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np

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
from adv_wrappers.studies.suite.attack_lists import chosen_entries, entries_of, entry_named, some_that_apply
from adv_wrappers.studies.suite.entry import AttackSetting, Entry, MadeAttack
from adv_wrappers.studies.suite.untrained_attacks import beam, beam_attack
from adv_wrappers.utils.pace import StepTimer
from adv_wrappers.utils.threads import one_thread
from adv_wrappers.victims import Victim

_SEARCHED, _SEARCHED_SECONDS = 10, 1.5  # steps of a search that are timed, at its full width


def estimate(plan: Plan | Expansion, store: Store, *, victims: Mapping[str, Victim] | None = None) -> Costs:
    """What the cells of a plan will take that a store does not hold, kind by kind.

    Cells that differ in their seed and their budget alone are of one kind. Of each victim in each environment one cell
    without an attack is played, whose row is written; of other kinds some steps are timed.

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
                found = _cost_of_kind(name, left, player, rows[left[0].setting])
                if found is None:
                    unknown.append(name)
                else:
                    parts.append(found)
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


def _cost_of_kind(name: str, cells: Sequence[PlanCell], player: CellPlayer, clean: Row) -> Cost | None:
    """What the cells of one kind take; None where they are trained, which says itself how long is left."""
    cell, recipe = cells[0], cells[0].recipe
    if cell.is_clean:
        return Cost(name, len(cells), clean.seconds)
    entry = None if recipe is None else entry_named(recipe.entry)
    if recipe is None or entry is None or not (recipe.trained or entry.per_episodes):
        with closing(player.open(cell)) as evaluator:
            return Cost(name, len(cells), run_seconds(evaluator, 0, clean))
    if entry is not beam:
        return None
    searched = timed_search(replace(player.setting(cell), out=None), clean.mean_length)[0]
    return Cost(name, len(cells), searched + clean.seconds)


# ----------------------------------------------------------------------------------------------------------------------
# The attacks of a suite, or of a standing, on one agent.
# ----------------------------------------------------------------------------------------------------------------------


def suite_cost(
    suite: str | Iterable[Entry | str], setting: AttackSetting, attacks: str | Iterable[str] | None = None
) -> Costs:
    """What a suite will take on this machine, attack by attack: seconds of some of its steps, times the steps.

    The run without an attack is played, and says how many steps there are. Some steps of every attack are timed, and
    the first ones of a search; what is trained is not estimated. Nobody knows beforehand how long episodes are under
    an attack. The strongest, which is played again on fresh episodes, is counted once.

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
        clean = known[0] if 0 in known else evaluator.row(0)
        for entry in entries:
            i, name = place.get(entry.name), entry.name
            if i is not None:
                parts.append(Cost(name, 0, 0.0) if i in known else Cost(name, 1, run_seconds(evaluator, i, clean)))
            elif entry is beam:  # what is found is as fast as nothing
                searched = timed_search(replace(setting, out=None), clean.mean_length)[0]
                parts += [Cost(f"{name}: search", 1, searched, True), Cost(name, 1, clean.seconds)]
            else:
                unknown.append(name)
    return Costs(tuple(parts), of, sum(not part.left for part in parts), tuple(unknown), left_out)


def is_made(entry: Entry, setting: AttackSetting) -> bool:
    """Whether an attack takes no time to be made: it is neither trained nor searched for, or its folder holds that."""
    if entry is not beam:
        return not (entry.per_episodes or entry.trains(setting))
    folder = setting.folder(beam.name)
    return folder is not None and (folder / setting.part / BEAM_FILE).is_file()


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
