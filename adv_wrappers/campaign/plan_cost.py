"""What a plan will cost, before it is run: seconds and memory, from a sample of every kind of cell.

Cells that differ in their seed and their budget alone are of one kind and cost about the same. The sample is a share
of the cells of every kind, at least one, spread over the plan; their rows are kept, so it costs nothing that the plan
would not. Of adversaries that are trained the sample is a share of the steps of one training. The seconds of the plan
are those of the sample's mean cell, kind by kind, with a 95% interval from the spread within kinds of which it has two
cells or more.
"""

from __future__ import annotations

import collections
import io
import math
import resource
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from adv_wrappers.campaign.attacks_made_per_cell import AttackRecipe
from adv_wrappers.campaign.plan import Plan
from adv_wrappers.campaign.plan_cell_player import CellPlayer
from adv_wrappers.campaign.plan_cells import Expansion, PlanCell, expand
from adv_wrappers.campaign.run_plan import cells_of
from adv_wrappers.campaign.suite_attack_entry import AttackSetting, MadeAttack
from adv_wrappers.campaign.suites import ADVERSARIES, entry_named
from adv_wrappers.errors import AdvWrappersError, ValueRangeError
from adv_wrappers.evaluation.return_statistics import t_quantile
from adv_wrappers.evaluation.store import Store
from adv_wrappers.registry import SAMPLE_SHARE
from adv_wrappers.rendering.table_width import PrintedTable
from adv_wrappers.training.folder import read_record
from adv_wrappers.utils.checks import check_number
from adv_wrappers.utils.threads import one_thread
from adv_wrappers.victims import Victim

SHARE = SAMPLE_SHARE  # of the cells of every kind that is played


@dataclass(frozen=True)
class KindCost:
    """What the cells of one kind cost.

    Attributes:
        name: the victim, the environment and the threat.
        cells: the number of cells that the store does not hold yet, the sample's not counted.
        seconds: of one cell, mean over the sample.
        std: standard deviation over the sample; None where it has one.
        sampled: the number of cells that were played.
    """

    name: str
    cells: int
    seconds: float
    std: float | None
    sampled: int


@dataclass(frozen=True)
class PlanCost:
    """What a plan will cost on this machine.

    Attributes:
        kinds: of every kind of cell.
        known: the number of cells that the store held before.
        sample_seconds: wall clock of the sample.
        worker_bytes: the largest memory of this process, which another that plays the same cells needs about.
    """

    kinds: tuple[KindCost, ...]
    known: int
    sample_seconds: float
    worker_bytes: int

    @property
    def cells(self) -> int:
        """The number of cells that are left."""
        return sum(kind.cells for kind in self.kinds)

    @property
    def seconds(self) -> float:
        """Of the cells that are left, played one after another."""
        return sum(kind.cells * kind.seconds for kind in self.kinds)

    @property
    def interval(self) -> tuple[float, float]:
        """Of ``seconds``, at 95%; kinds of which the sample has one cell count as certain."""
        half = 0.0
        for kind in self.kinds:
            if kind.std is not None:
                half += (t_quantile(kind.sampled - 1) * kind.cells * kind.std) ** 2 * (
                    1 / kind.sampled + 1 / max(kind.cells, 1)
                )
        return max(self.seconds - math.sqrt(half), 0.0), self.seconds + math.sqrt(half)

    def wall_clock(self, workers: int, cores: int | None = None) -> float:
        """Seconds with so many processes, on as many cores unless there are fewer.

        A process begins by importing, which takes some seconds once, and no cell is split.
        """
        busy = min(workers, cores or workers)
        longest = max((kind.seconds for kind in self.kinds if kind.cells), default=0.0)
        return max(self.seconds / busy, longest)

    def table(self) -> Table:
        """A rich table, one row a kind."""
        table = PrintedTable(box=box.SIMPLE_HEAD)
        for name in ("cells", "seconds each", "sampled", "seconds", "kind"):
            table.add_column(name, justify="left" if name == "kind" else "right", overflow="fold")
        for kind in sorted(self.kinds, key=lambda kind: -kind.cells * kind.seconds):
            spread = "" if kind.std is None else f" +- {kind.std:.2g}"
            whole = f"{kind.cells * kind.seconds:.0f}"
            table.add_row(str(kind.cells), f"{kind.seconds:.3g}{spread}", str(kind.sampled), whole, kind.name)
        return table

    def __str__(self) -> str:
        """The table and the sum as plain text."""
        text = io.StringIO()
        Console(file=text, width=120, color_system=None).print(self.table())
        low, high = self.interval
        return (
            f"{text.getvalue()}{self.cells} cells are left, {self.known} are known: {self.seconds:.0f} s of one core "
            f"({low:.0f} to {high:.0f}), {self.worker_bytes / 2**30:.2f} GiB a process; the sample took "
            f"{self.sample_seconds:.0f} s and its rows are kept"
        )


def estimate(
    plan: Plan | Expansion, store: Store, share: float = SHARE, *, victims: Mapping[str, Victim] | None = None
) -> PlanCost:
    """Play a share of every kind of cell of a plan, and say what the rest will cost.

    Args:
        plan: the plan, or its cells.
        store: where rows are looked for, and those of the sample written.
        share: of the cells of every kind, above 0 and at most 1; at least one is played.
        victims: victims that the plan calls by these names.

    Raises:
        AdvWrappersError: one of its kinds, for a plan that cannot work, and for a cell of the sample that fails.
    """
    check_number("share", share, 0, 1, above=True)
    began = time.perf_counter()
    cells = cells_of(plan if isinstance(plan, Expansion) else expand(plan, victims), store)
    store.place(cell.key for cell in cells)
    done = store.done(cell.key for cell in cells)
    kinds: dict[tuple[str, ...], list[PlanCell]] = collections.defaultdict(list)
    for cell in cells:
        if cell.key not in done:
            kinds[cell.kind].append(cell)
    found: list[KindCost] = []
    with closing(CellPlayer(victims)) as player:
        for of_kind in kinds.values():
            if of_kind[0].recipe is not None and of_kind[0].recipe.entry in ADVERSARIES:
                found += learned_costs(of_kind, player, share)
                continue
            count = max(int(share * len(of_kind)), 1)
            places = np.unique(np.linspace(0, len(of_kind) - 1, count + 2)[1:-1].round().astype(int))
            seconds = [_play(player, store, of_kind[place]) for place in places]
            name = f"{of_kind[0].victim} on {of_kind[0].environment.name}, {of_kind[0].kind[0]}"
            spread = float(np.std(seconds, ddof=1)) if len(seconds) > 1 else None
            found.append(KindCost(name, len(of_kind) - len(seconds), float(np.mean(seconds)), spread, len(seconds)))
    return PlanCost(tuple(found), len(done), time.perf_counter() - began, _peak_bytes())


def learned_costs(cells: Sequence[PlanCell], player: CellPlayer, share: float) -> list[KindCost]:
    """What adversaries that learn cost: their trainings, and the cells of one kind that are played under them.

    A share of the steps of one training is taken, and thrown away, since a training that is resumed draws other
    numbers; it ends with one checkpoint, and a cell is played under it. The adversary is weak then and episodes are
    long, so both what checkpoints cost and what a cell costs are rather too much than too little.

    Args:
        cells: of one kind.
        player: plays them.
        share: of the steps.
    """
    cell, recipe = cells[0], recipe_of(cells[0])
    missing = set[Path]()
    for one in cells:
        folder = recipe_of(one).folder(Path(one.trainings or ""), player.setting(one))
        if one.trainings is None or min(steps_in(folder), default=0) < recipe.steps:
            missing.add(folder)
    with one_thread():
        made, whole = sampled_training(recipe.entry, player.setting(cell), share)
        evaluator = player.open(cell, made.threat)
        began = time.perf_counter()
        evaluator.play([0])
        playing = time.perf_counter() - began
    name = f"{cell.victim} on {cell.environment.name}, {recipe.entry}"
    return [
        KindCost(f"{name}: training", len(missing), whole, None, 0),
        KindCost(name, len(cells), playing, None, 0),
    ]


def sampled_training(name: str, setting: AttackSetting, share: float) -> tuple[MadeAttack, float]:
    """A share of the training of an adversary, and the seconds that the whole will take.

    Args:
        name: of the entry, one of ``ADVERSARIES``.
        setting: what it is trained for, with all its steps.
        share: of the steps.
    """

    def train(steps: int, **training: int) -> tuple[MadeAttack, float, float, list[int]]:
        """What comes out, seconds of the training and of its steps alone, and the steps of its one or two forms."""
        how = replace(setting, steps=steps, training={**setting.training, "checks": 1, **training})
        with tempfile.TemporaryDirectory() as folder:
            began = time.perf_counter()
            made = entry_named(name).attack(replace(how, out=Path(folder)))
            spent = time.perf_counter() - began
            seconds = [read_record(path.parent)[-1]["seconds"] for path in Path(folder).rglob("state.json")]
            return made, spent, sum(seconds), steps_in(Path(folder))

    train(1, episodes=1)  # imports, which the first training of a process waits for
    made, spent, training, steps = train(max(int(share * setting.steps), 1))
    checks, checkpoint = int(str(setting.training.get("checks", 10))), (spent - training) / len(steps)
    return made, len(steps) * (setting.steps * training / sum(steps) + checks * checkpoint)


def recipe_of(cell: PlanCell) -> AttackRecipe:
    """The recipe of a cell that has one."""
    assert cell.recipe is not None
    return cell.recipe


def steps_in(folder: Path) -> list[int]:
    """The steps of every training of an adversary in a folder."""
    return [int(read_record(path.parent)[-1]["steps"]) for path in sorted(folder.rglob("state.json"))]


def _play(player: CellPlayer, store: Store, cell: PlanCell) -> float:
    """Seconds of a cell, without those of opening its environments; its row is written."""
    if not store.claim([cell.key]):
        raise ValueRangeError(f"another run on {store.path} plays {cell} now: wait for it, or give another store")
    player.open_environments(cell)
    played = player.play(cell)
    store.add([played])
    if played.error is not None:
        raise AdvWrappersError(f"{cell} fails: {played.error}")
    return played.seconds


def _peak_bytes() -> int:
    """The largest memory that this process has had."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak << 10
