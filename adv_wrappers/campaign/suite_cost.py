"""What a suite will cost, before its attacks begin: the seconds of every entry, from a sample of each.

As of plans (:mod:`adv_wrappers.campaign.plan_cost`), the sample is a share of what the suite does anyway. The clean run
is played first, and its row is kept: it says how many steps a run takes. Of every attack that needs no training a few
steps are timed, once with all rows and once with a single one, since a step costs something by itself and something
for every row that is attacked. Of a search over episodes its first steps are timed, of adversaries that are trained a
share of the steps of one training, as in plans. Then attacks that are so quick that they take a share of the whole at
most are played, and their rows kept, since attacks shorten or lengthen episodes: the others are taken to need as many
steps as these did on average, and a search as many as the strongest of these.

What remains unknown is how long episodes are under the attacks that are left; which attack is the strongest, so that it
is played again on fresh episodes; and whether several are so close that they are played on further ones.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import os
import random
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

import numpy as np
import torch
from gymnasium import spaces
from rich import box
from rich.console import Console
from rich.table import Table

from adv_wrappers.attacks.robust_sarsa import RobustSarsa
from adv_wrappers.campaign.plan_cost import SHARE, sampled_training, steps_in
from adv_wrappers.campaign.suite_attack_entry import AttackSetting, Entry, MadeAttack, SuiteProgress
from adv_wrappers.campaign.suite_attacks_that_train import SARSA, transfer
from adv_wrappers.campaign.suite_attacks_without_training import beam, beam_attack
from adv_wrappers.campaign.suites import ADVERSARIES, SUITES
from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.errors import OutputError
from adv_wrappers.evaluation.beam import TOGETHER
from adv_wrappers.evaluation.episodes import Episodes
from adv_wrappers.evaluation.evaluate import kept_rows, play_missing
from adv_wrappers.evaluation.evaluator import Evaluator
from adv_wrappers.evaluation.report import Row
from adv_wrappers.evaluation.store import ROWS_FILE
from adv_wrappers.evaluation.threat_stacks import CLEAN_RUN, ThreatStack, as_threat_stack
from adv_wrappers.rendering.table_width import PrintedTable
from adv_wrappers.training.critic import CriticTraining, scan_critics, train_one_critic
from adv_wrappers.utils.step_timer import StepTimer
from adv_wrappers.utils.text import duration, duration_between
from adv_wrappers.utils.threads import one_thread

MOST_SECONDS = 1.5  # of the steps of one entry that are timed with all rows, and again with one
_MOST_SEARCHED = 10  # steps of a search that are timed, at its full width
_LEAST_STEPS = 64  # of the sample of a critic's training
_NAMED = 4  # entries that a line names


@dataclass(frozen=True)
class EntryCost:
    """What an entry of a suite costs, in seconds of one core.

    Attributes:
        name: of the entry.
        training: of what is trained; 0 where nothing is, or a folder holds it.
        searching: of a search over the scored episodes, or over as many others.
        playing: of the scored episodes under the attack.
        played: whether its row is known, so that only fresh episodes may be left.
    """

    name: str
    training: float
    searching: float
    playing: float
    played: bool = False

    @property
    def seconds(self) -> float:
        """What is left to do for the row of this entry."""
        return 0.0 if self.played else self.training + self.searching + self.playing


@dataclass(frozen=True)
class SuiteCost:
    """What a suite will cost on this machine.

    Attributes:
        entries: of every entry, in the order of the suite.
        clean: seconds of the run without an attack.
        blocks: into how many parts a run is cut, which several processes play side by side.
        unknown: names of the entries that are not estimated: those of one's own that are trained, or made for the
            episodes that they are scored on; ``transfer``, and runs so short that a sample is hardly shorter.
        sample_seconds: wall clock of the estimate, without that of the rows that it played.
        rows: the rows that are known, by name; that of the clean run is ``none``.
    """

    entries: tuple[EntryCost, ...]
    clean: float
    blocks: int
    unknown: tuple[str, ...]
    sample_seconds: float
    rows: Mapping[str, Row]

    @property
    def seconds(self) -> float:
        """What is left, of one core, before the fresh episodes."""
        return sum(entry.seconds for entry in self.entries)

    def wall_clock(self, workers: int = 1, cores: int | None = None) -> tuple[float, float]:
        """The least and the most seconds that are left with so many processes, on as many cores unless there are fewer.

        They differ in which attack is the strongest and so played again on fresh episodes, with the clean run. Further
        episodes, for attacks that the scored ones do not tell apart, are not counted. Trainings and searches are run
        one after another, and only the episodes are played by several processes.
        """
        busy = min(workers, cores or workers)
        left = [entry for entry in self.entries if not entry.played]
        longest = max((entry.playing for entry in left), default=0.0) / min(busy, self.blocks)
        made = sum(entry.training + entry.searching for entry in left)
        once = made + max(sum(entry.playing for entry in left) / busy, longest)
        again = [
            entry.searching + max((entry.playing + self.clean) / busy, entry.playing / min(busy, self.blocks))
            for entry in self.entries
        ] or [0.0]
        return once + min(again), once + max(again)

    def line(self, workers: int = 1) -> str:
        """One sentence: how long it will take, and the entries that take longest."""
        whole = duration_between(*self.wall_clock(workers, os.cpu_count()))
        left = sorted((entry for entry in self.entries if not entry.played), key=lambda entry: -entry.seconds)
        named, others = (left[:_NAMED], left[_NAMED:]) if len(left) > _NAMED + 1 else (left, [])
        parts = [f"{entry.name} {duration(entry.seconds)}" for entry in named]
        if others:
            parts.append(f"{len(others)} others {duration(sum(entry.seconds for entry in others))}")
        parts.append("and the strongest again on fresh episodes")
        text = f"about {whole} on this machine: {', '.join(parts)}"
        text += "; less or more where attacks shorten or lengthen episodes"
        return text + (f"; not estimated: {', '.join(self.unknown)}" if self.unknown else "")

    def table(self) -> Table:
        """A rich table, one row an entry."""
        table = PrintedTable(box=box.SIMPLE_HEAD)
        for name in ("seconds", "training", "searching", "playing", "entry"):
            table.add_column(name, justify="left" if name == "entry" else "right", overflow="fold")
        for entry in sorted(self.entries, key=lambda entry: -entry.seconds):
            parts = [f"{part:.3g}" if part else "" for part in (entry.training, entry.searching, entry.playing)]
            table.add_row("known" if entry.played else f"{entry.seconds:.3g}", *parts, entry.name)
        return table

    def __str__(self) -> str:
        """The table and the sum as plain text."""
        text = io.StringIO()
        Console(file=text, width=120, color_system=None).print(self.table())
        return f"{text.getvalue()}{self.summary()}"

    def summary(self, workers: int = 1) -> str:
        """:meth:`line`, and what the sample took."""
        known = sum(entry.played for entry in self.entries)
        left = f"{len(self.entries) - known} entries are left, {known} are known: {self.line(workers)}"
        return f"{left}; the sample took {self.sample_seconds:.0f} s"


def estimate_entries(
    entries: Sequence[Entry], setting: AttackSetting, made: Mapping[str, MadeAttack], workers: int = 1
) -> SuiteCost:
    """Play the clean run, time a sample of every entry, and say what the rest will cost.

    Args:
        entries: those that apply to the setting.
        setting: what they are made for. Rows are looked for in its folder, and those that are played written there.
        made: the attacks of entries that are neither trained nor made for their episodes.
        workers: the number of processes that play.

    Raises:
        AdvWrappersError: one of its kinds, as for :func:`adv_wrappers.evaluate`.
    """
    sample = _SuiteSample(entries, setting, made)
    with one_thread(), _global_draws_kept(), sample.timed():
        sample.make()
    stacks = [as_threat_stack(sample.attacks[name].threat, setting.victim) for name in sample.names]
    with closing(opened_suite(setting, stacks)) as evaluator, one_thread():
        rows, folder = dict[int, Row](), setting.folder(setting.part)
        if folder is not None and (folder / ROWS_FILE).exists():
            rows |= kept_rows(evaluator, folder)
            if sample.training or len(sample.names) < len(entries):
                folder = None  # its report may hold rows of runs that are not among these

        def play(which: Collection[int]) -> None:
            with contextlib.suppress(OutputError):  # the suite raises it again, with all rows
                play_missing(
                    evaluator,
                    rows,
                    {0, *which},
                    out=folder,
                    resume=folder is not None,
                    workers=workers,
                    progress=report_scores(setting.progress, evaluator, sample.names),
                )

        play([])  # the clean run; and rows of the folder are taken over
        with _global_draws_kept(), sample.timed():
            sample.time_steps(evaluator, rows)
        quick, limit = list[int](), SHARE * sum(cost.seconds for cost in sample.costs(evaluator, rows))
        for cost in sorted(sample.costs(evaluator, rows), key=lambda cost: cost.seconds):
            if cost.name in made and not cost.played and (limit := limit - cost.seconds) >= 0:
                quick.append(sample.number(cost.name))
        play(quick)
        known = {name: rows[i] for i, name in enumerate(("none", *sample.names)) if i in rows}
        blocks = len(evaluator.episodes.blocks(setting.episodes))
        return SuiteCost(
            tuple(sample.costs(evaluator, rows)),
            seconds_of(rows[0]),
            blocks,
            tuple(sample.unknown),
            sample.seconds,
            known,
        )


class _SuiteSample:
    """What is measured of every entry.

    Args:
        entries, setting, made: as for :func:`estimate_entries`.

    Attributes:
        attacks: those that can be stepped, by name, adversaries that are trained for a share of their steps among them.
        training: seconds of what is left of each training.
        whole_search, search_step: seconds of each search that ended within the sample, or else of a step of it.
        stepping: of each run, by number, the seconds of a step of all rows by itself, and of every row in it.
        unknown: names of what is not estimated.
        seconds: wall clock of the sample.
    """

    def __init__(self, entries: Sequence[Entry], setting: AttackSetting, made: Mapping[str, MadeAttack]) -> None:
        self.entries, self.setting, self.attacks = entries, setting, dict(made)
        self.training, self.whole_search, self.search_step = dict[str, float](), dict[str, float](), dict[str, float]()
        self.stepping = dict[int, tuple[float, float]]()
        self.unknown, self.seconds = list[str](), 0.0

    @contextlib.contextmanager
    def timed(self) -> Iterator[None]:
        """What is done inside is a part of the sample."""
        began = time.perf_counter()
        yield
        self.seconds += time.perf_counter() - began

    @property
    def names(self) -> list[str]:
        """Of the attacks that can be stepped, in the order of the suite."""
        return [entry.name for entry in self.entries if entry.name in self.attacks]

    def number(self, name: str) -> int:
        """The number of a run, from 1; the clean run has 0."""
        return self.names.index(name) + 1

    def make(self) -> None:
        """Make the attacks that are not made yet: from a folder, or a share of their training or search."""
        for entry in self.entries:
            name = entry.name
            if name in self.attacks:
                continue
            if entry is beam:
                self._search(name)
            elif not entry.per_episodes and (left := _share_left(entry, self.setting)) == 0:
                self.attacks[name] = entry.attack(self.setting)
            elif entry.per_episodes or (sample := _training(entry, self.setting)) is None:
                self.unknown.append(name)
            else:
                self.attacks[name], self.training[name] = sample[0], left * sample[1]

    def _search(self, name: str) -> None:
        timer, found, spent = timed_search(self.setting)
        if found is not None:
            self.attacks[name] = found
            if self.setting.out is not None and not timer.seconds:  # it was read, but on fresh episodes it is not
                timer, _, spent = timed_search(replace(self.setting, out=None))
        if timer.ended:
            self.search_step[name] = search_step(timer, self.setting)
        else:
            self.whole_search[name] = spent

    def time_steps(self, evaluator: Evaluator, rows: Mapping[int, Row]) -> None:
        """Time steps of the runs that have no row; the clean run has one."""
        whole = evaluator.steps_of(rows[0]["lengths"])
        steps = int(SHARE / 2 * whole)  # with all rows, and with one
        for i, name in enumerate(self.names, 1):
            if i in rows:
                continue
            if steps:
                self.stepping[i] = _step_costs(evaluator, i, steps)
            elif name in self.training:  # which takes longer by far than to play what was trained
                self.stepping[i] = seconds_of(rows[0]) / whole, 0.0
            else:
                self.unknown.append(name)

    def costs(self, evaluator: Evaluator, rows: Mapping[int, Row]) -> list[EntryCost]:
        """What the entries cost, where episodes are as long as in these rows."""
        known = [row for i, row in rows.items() if i] or [rows[0]]
        whole = np.mean([(evaluator.steps_of(row["lengths"]), sum(row["lengths"])) for row in known], 0)
        strongest = min(rows.values(), key=lambda row: float(row["mean_return"]))
        found = list[EntryCost]()
        for name in (entry.name for entry in self.entries):
            step = self.search_step.get(name, 0.0)
            search = self.whole_search.get(name, step * float(strongest["mean_length"]))
            i = self.number(name) if name in self.attacks else -1
            if i in rows:
                found.append(EntryCost(name, 0.0, search, seconds_of(rows[i]), True))
            elif i in self.stepping:
                playing = float(np.dot(self.stepping[i], whole))
                training = self.training.get(name, 0.0)
                training += _chosen_runs(name, self.setting) * playing if training else 0.0
                found.append(EntryCost(name, training, search, playing))
            elif step:  # what a search finds is shown again, which computes nothing
                found.append(EntryCost(name, 0.0, search, seconds_of(rows[0])))
        return found


def opened_suite(setting: AttackSetting, stacks: Sequence[ThreatStack]) -> Evaluator:
    """The clean run and these attacks on the episodes of a setting."""
    return Evaluator(
        setting.victim,
        setting.environment,
        [CLEAN_RUN, *stacks],
        Episodes(setting.episodes, setting.episode_seed, setting.num_envs, distances=(), quantize=setting.quantize),
    )


def seconds_of(row: Row) -> float:
    """Seconds that the run of a row took."""
    return float(row["ms_per_step"]) * sum(row["lengths"]) / 1000


def _step_costs(evaluator: Evaluator, i: int, steps: int) -> tuple[float, float]:
    """Seconds of a step of all rows by itself, and of every row that is attacked in it."""
    timed = list[float]()
    counts = min(evaluator.player.venv.num_envs, len(evaluator.seeds)), 1
    for count in counts:
        timer = StepTimer(steps, MOST_SECONDS)
        seconds = evaluator.step_seconds(i, timer, count)
        timed.append(float(np.mean(seconds)) if seconds else 0.0)  # none where all episodes have one step
    if counts[0] == 1:
        return 0.0, timed[0]
    row = min(max((timed[0] - timed[1]) / (counts[0] - 1), 0.0), timed[0] / counts[0])
    return timed[0] - counts[0] * row, row


def report_scores(
    progress: SuiteProgress | None, evaluator: Evaluator, names: Sequence[str], on: str = ""
) -> SuiteProgress | None:
    """Progress of an evaluation by the names of a suite.

    Args:
        progress: is told of each run, or None.
        evaluator: the evaluator.
        names: of its runs but the clean one.
        on: says on which episodes, if not on those that are scored.
    """
    if progress is None:
        return None
    known = dict(zip([stack.name for stack in evaluator.stacks], ("none", *names), strict=True))
    return lambda what, done, total: progress(f"scoring {known[what]}{on}", done, total)


# searches and trainings


def timed_search(
    setting: AttackSetting, most: int = _MOST_SEARCHED, limit: float = MOST_SECONDS
) -> tuple[StepTimer, MadeAttack | None, float]:
    """The steps of a search that were timed, what it found if it ended before, and its seconds.

    Args:
        setting: of the search.
        most, limit: of the steps, and of their seconds, after which the search is ended.
    """
    timer, began, found = StepTimer(most, limit), time.perf_counter(), None
    with timer.ends():
        found = beam_attack(replace(setting, progress=None), timer)
    return timer, found, time.perf_counter() - began


def search_seconds(setting: AttackSetting, length: float) -> float:
    """About how long a beam search over the episodes of a setting takes, in seconds, from some of its steps.

    Args:
        setting: of the search.
        length: mean length of an episode; the search shortens them.

    Raises:
        AdvWrappersError: one of its kinds, as :func:`.beam_search` does.
    """
    timer, _, spent = timed_search(replace(setting, out=None))
    return search_step(timer, setting) * length if timer.ended else spent


def search_step(timer: StepTimer, setting: AttackSetting) -> float:
    """Seconds of a step of a search over all episodes of a setting."""
    return float(np.mean(timer.seconds)) * max(setting.episodes / TOGETHER, 1)


def _share_left(entry: Entry, setting: AttackSetting) -> float:
    """The share of the training of an entry that its folder does not hold, of one's own all of it."""
    folder = setting.folder(entry.name)
    if folder is None or not folder.is_dir():
        return 1.0
    if entry.name in ADVERSARIES:
        known = [min(steps / setting.steps, 1.0) for steps in steps_in(folder)]
        return 1 - sum(known) / max(_forms(entry.name, setting), len(known))
    if entry.name == SARSA:
        return max(1 - len([*folder.glob("*/weights.safetensors")]) / len(setting.critics), 0.0)
    return 1.0


def _forms(name: str, setting: AttackSetting) -> int:
    """How many trainings an adversary has."""
    return 2 if name == "pa-ad" and isinstance(setting.victim.action_space, spaces.Box) else 1


def _training(entry: Entry, setting: AttackSetting) -> tuple[MadeAttack, float] | None:
    """A sample of the training of an entry, and the seconds of the whole; None where no sample is taken.

    None is of surrogates, whose training takes about as long with few queries, as they are compared with their victim.
    Of critics the first is trained for a share of its steps; what chooses between them is in :func:`_chosen_runs`.
    """
    alone = replace(setting, out=None, progress=None)
    if entry not in SUITES["everything"] or entry.name == transfer.name:
        return None
    if entry.name in ADVERSARIES:
        return sampled_training(entry.name, alone, SHARE)
    usual = inspect.signature(train_one_critic).parameters["steps"].default
    whole = sum(int(str(critic.get("steps", usual))) for critic in setting.critics)
    steps = max(int(SHARE * whole / len(setting.critics)), _LEAST_STEPS)

    def train(steps: int) -> tuple[RobustSarsa, float]:
        began = time.perf_counter()
        how = {"seed": 3 * setting.seed, **setting.critics[0], "steps": steps}
        training = CriticTraining(setting.victim, setting.environment, how)
        return RobustSarsa(setting.victim, critic=training.run()), time.perf_counter() - began

    train(_LEAST_STEPS)  # imports, which the first training of a process waits for
    how, spent = train(steps)
    return MadeAttack(ThreatModel("observation", how, setting.budget)), spent * whole / steps


def _chosen_runs(name: str, setting: AttackSetting) -> float:
    """How often as many episodes as the scored ones are played under critics, to choose one of them and to score it."""
    episodes = inspect.signature(scan_critics).parameters["episodes"].default
    return (len(setting.critics) + 1) * episodes / setting.episodes if name == SARSA else 0.0


@contextlib.contextmanager
def _global_draws_kept() -> Iterator[None]:
    """What trainings or code of one's own draw inside from the generators of the process is as if never drawn."""
    state, legacy = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        random.setstate(state)
        np.random.set_state(legacy)
