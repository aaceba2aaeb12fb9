"""What a plan, a suite or a submission to a standing will take, before it begins (:mod:`adv_wrappers.evaluation.cost`).

The run without an attack is played first: it says how many steps a run has. Of every attack some steps are timed, of a
search its first ones. What is trained is named: it says itself how long it takes, once it has begun.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np

from adv_wrappers.errors import AdvWrappersError
from adv_wrappers.evaluation.cost import Cost, Costs, run_seconds
from adv_wrappers.evaluation.episodes import Episodes
from adv_wrappers.evaluation.evaluate import kept_rows
from adv_wrappers.evaluation.evaluator import Evaluator
from adv_wrappers.evaluation.row import Row
from adv_wrappers.evaluation.searches.beam import BEAM_FILE, TOGETHER
from adv_wrappers.evaluation.store import Store
from adv_wrappers.evaluation.threat_stacks import CLEAN_RUN, as_threat_stack
from adv_wrappers.studies.cell_player import CellPlayer
from adv_wrappers.studies.plan import Plan
from adv_wrappers.studies.plan_cells import Expansion, PlanCell, expand
from adv_wrappers.studies.runner import cells_of, run
from adv_wrappers.studies.suite.attack_lists import chosen_that_apply, entry_named
from adv_wrappers.studies.suite.entry import AttackSetting, Entry, MadeAttack
from adv_wrappers.studies.suite.untrained_attacks import beam, beam_attack
from adv_wrappers.utils.pace import StepTimer
from adv_wrappers.utils.threads import one_thread
from adv_wrappers.victims import Victim

_SEARCHED, _SEARCHED_SECONDS = 10, 1.5  # steps of a search that are timed, at its full width


def estimate(plan: Plan | Expansion, store: Store, *, victims: Mapping[str, Victim] | None = None) -> Costs:
    """What the cells of a plan will take that a store does not hold, kind by kind.

    Cells that differ in their seed and their budget alone are of one kind. Of each victim in each environment one cell
    without an attack is played, whose row is written. Of other kinds some steps are timed.

    Args:
        plan: the plan, or its cells.
        store: where rows are looked for, and those of the cells that are played written.
        victims: victims that the plan calls by these names.

    Raises:
        AdvWrappersError: one of its kinds, for a plan that cannot work, and for a cell that fails.
    """
    cells = cells_of(plan if isinstance(plan, Expansion) else expand(plan, victims), store)
    known = store.done(cell.key for cell in cells)
    clean, kinds = dict[str, PlanCell](), defaultdict[tuple[str, ...], list[PlanCell]](list)
    for cell in cells:
        if cell.name == CLEAN_RUN.name and (cell.setting not in clean or cell.key in known):
            clean[cell.setting] = cell
        kinds[cell.kind].append(cell)
    played = run(Expansion(tuple(clean.values())), store, victims=victims, progress=lambda *_: None)
    store.place(cell.key for cell in cells)  # not those without an attack alone, before all others
    for name, error in played.failed.items():
        raise AdvWrappersError(f"{name} fails: {error}")
    rows, done = store.found([cell.key for cell in clean.values()]), store.done(cell.key for cell in cells)
    parts, unknown = list[Cost](), list[str]()
    with closing(CellPlayer(victims)) as player, one_thread():
        for of_kind in kinds.values():
            if left := [cell for cell in of_kind if cell.key not in done]:
                name = f"{left[0].victim} on {left[0].environment.name}, {left[0].kind[0]}"
                found = _cost_of_kind(name, left, player, rows[clean[left[0].setting].key])
                parts += [] if found is None else [found]
                unknown += [name] if found is None else []
    return Costs(tuple(parts), "cells", len(known), tuple(unknown))


def _cost_of_kind(name: str, cells: Sequence[PlanCell], player: CellPlayer, clean: Row) -> Cost | None:
    """What the cells of one kind take; None where that is not estimated."""
    cell, recipe = cells[0], cells[0].recipe
    if cell.name == CLEAN_RUN.name:
        return Cost(name, len(cells), clean.seconds)
    entry = None if recipe is None else entry_named(recipe.entry)
    if entry is not None and not is_at_hand(entry, player.setting(cell)):
        search = search_cost(entry, player.setting(cell), clean)  # of each cell
        return search and Cost(name, len(cells), search.each + clean.seconds)
    with closing(player.open(cell)) as evaluator:
        return Cost(name, len(cells), run_seconds(evaluator, 0, clean))


# ----------------------------------------------------------------------------------------------------------------------
# The attacks of a suite, or of a standing, on one agent.
# ----------------------------------------------------------------------------------------------------------------------


def suite_cost(
    suite: str | Iterable[Entry | str], setting: AttackSetting, attacks: str | Iterable[str] | None = None
) -> Costs:
    """What a suite will take on this machine, attack by attack: seconds of some of its steps, times the steps.

    The run without an attack is played, and says how many steps there are. Some steps of every attack are timed, and
    the first steps of a search; trainings are not estimated. Nobody knows beforehand how long episodes are under an
    attack. The strongest, which is played again on fresh episodes, is counted once.

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
    entries, reasons = chosen_that_apply(suite, setting, attacks)
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
    at_hand = [entry for entry in entries if is_at_hand(entry, setting)]
    stacks = [as_threat_stack(entry.attack(setting).threat, setting.victim) for entry in at_hand]
    place = {entry.name: i for i, entry in enumerate(at_hand, 1)}
    parts, unknown = list[Cost](), list[str]()
    with (
        closing(Evaluator(setting.victim, setting.environment, [CLEAN_RUN, *stacks], episodes)) as evaluator,
        one_thread(),
    ):
        known = kept_rows(evaluator, rows)
        clean = known[0] if 0 in known else evaluator.play([0])[0]
        for entry in entries:
            i, name = place.get(entry.name), entry.name
            if i is not None:
                parts.append(Cost(name, 0, 0.0) if i in known else Cost(name, 1, run_seconds(evaluator, i, clean)))
            elif (search := search_cost(entry, setting, clean)) is not None:
                parts += [search, Cost(name, 1, clean.seconds)]  # what is found is as fast as nothing
            else:
                unknown.append(name)
    return Costs(tuple(parts), of, sum(not part.left for part in parts), tuple(unknown), left_out)


# ----------------------------------------------------------------------------------------------------------------------
# Searches.
# ----------------------------------------------------------------------------------------------------------------------


def is_at_hand(entry: Entry, setting: AttackSetting) -> bool:
    """Whether an attack takes no time to be made: it is neither trained nor searched for, or its search is there."""
    folder = setting.folder(entry.name)
    found = entry is beam and folder is not None and (folder / setting.part / BEAM_FILE).is_file()
    return found or not (entry.per_episodes or entry.trains(setting))


def search_cost(entry: Entry, setting: AttackSetting, clean: Row) -> Cost | None:
    """What a search over the episodes of a setting takes; None for what else is made for them, or trained.

    Args:
        entry: of a suite.
        setting: what it is made for.
        clean: the row of the run without an attack.
    """
    if entry is not beam:
        return None
    each, _ = timed_search(replace(setting, out=None), _SEARCHED, _SEARCHED_SECONDS)  # it shortens the episodes
    return Cost(f"{beam.name}: search", 1, each * clean.mean_length, True)


def timed_search(setting: AttackSetting, most: int, limit: float) -> tuple[float, MadeAttack | None]:
    """Seconds of a step of a search over all episodes, by those that were timed; what it found if it ended before.

    Args:
        setting: of the search.
        most, limit: of the steps, and of their seconds, after which the search is ended.

    Raises:
        AdvWrappersError: one of its kinds, as :func:`.beam_search` does.
    """
    timer, found = StepTimer(most, limit), None
    with timer.ends():
        found = beam_attack(replace(setting, progress=None), timer)
    each = float(np.mean(timer.seconds or [0.0]))
    return each * max(setting.episodes / TOGETHER, 1), found
