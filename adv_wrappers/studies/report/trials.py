"""The trials of a report: single rows under one threat each, played one after another while there is time for them."""

from __future__ import annotations

import re
from collections import defaultdict
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from adv_wrappers.core.budgets.budget import Budget, Linf
from adv_wrappers.core.spaces import At
from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.environments.environment import Environment
from adv_wrappers.errors import AdvWrappersError, ThreatError
from adv_wrappers.evaluation.cost import run_seconds
from adv_wrappers.evaluation.episodes import Episodes
from adv_wrappers.evaluation.evaluate import kept_rows, play_missing
from adv_wrappers.evaluation.evaluator import Evaluator
from adv_wrappers.evaluation.player import Player
from adv_wrappers.evaluation.rows.report import Report
from adv_wrappers.evaluation.rows.row import Row
from adv_wrappers.evaluation.rows.store import ROWS_FILE
from adv_wrappers.evaluation.statistics.confidence_intervals import paired_differences
from adv_wrappers.evaluation.threat_stacks import CLEAN_RUN, ThreatStack, as_threat_stack
from adv_wrappers.threats.presets import parse_threat
from adv_wrappers.threats.text import without_number
from adv_wrappers.utils.deadline import NEVER, Deadline, OutOfTime
from adv_wrappers.utils.number_text import duration
from adv_wrappers.utils.pace import Progress
from adv_wrappers.utils.parsing import without_arguments
from adv_wrappers.victims.victim import Victim

ROOM = 1.25  # a row may take so much longer than estimated
# of the return without an attack, up to which nothing counts as lost, and from which much
NO_LOSS, SOME_LOSS = 0.02, 0.1


class DoesNotFit(OutOfTime):
    """A row takes about so many seconds, which are not left.

    Args:
        seconds: the attribute of that name.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__(f"about {duration(seconds)}, more than was left")
        self.seconds = seconds


@dataclass(frozen=True)
class Trial:
    """A row beside the one without an attack."""

    row: Row
    clean: Row

    @property
    def eps(self) -> float | None:
        """The radius of its budget, as :attr:`.Row.eps`."""
        return self.row.eps

    @cached_property
    def attack(self) -> str:
        """The text of its attack without budget and timing; all of it for a stack."""
        text = without_number(shown_text(self.row.threat))
        if len(self.row.layers) != 1:
            return text
        return text_without(text, "eps", "norm", "scale", "at", "when") + self.row.marks

    @property
    def mean(self) -> float:
        """The mean return; of a row of fewer episodes than the clean one, that less what was lost in its episodes.

        Else a row of a few episodes that return little without an attack would seem to have lost much.
        """
        left, without = self.row.returns, self.clean.returns
        if len(left) >= len(without):
            return self.row.mean_return
        return float(self.clean.mean_return + paired_differences(left, without).mean())

    @property
    def lost(self) -> float:
        """What it takes of the mean return."""
        return self.clean.mean_return - self.mean

    def takes(self, share: float) -> bool:
        """Whether it takes more than a share of the return."""
        return self.lost > share * abs(self.clean.mean_return)


class TrialPlayer:
    """Plays rows of one agent, all on the same episodes, each kept in a folder as it comes.

    Args:
        victim: the agent.
        environment: how its environments are made.
        episodes: how rows are played.
        deadline: after which no row is played any more; a row that takes longer than it seemed ends with it.
        out: the folder.
        workers: as for :func:`adv_wrappers.evaluate`.
        progress: called as ``progress(threat, episodes finished, episodes)``.
        at: the key or keys of a Dict or Tuple that texts of attacks on observations are aimed at; None for the whole.

    Attributes:
        clean: the row without an attack, once :meth:`play_clean` has played it.
        left_out: by attack and what it was for, about how many seconds its rows take that did not fit.
        purpose: what rows are played for at present, in words.
    """

    def __init__(
        self,
        victim: Victim,
        environment: Environment,
        episodes: Episodes,
        deadline: Deadline,
        out: Path,
        workers: int = 1,
        progress: Progress | None = None,
        at: At = None,
    ) -> None:
        self.victim = victim
        self.environment = environment
        self.episodes = episodes
        self.at = at
        self.deadline = deadline
        self.out = out
        self._workers = workers
        self._progress = progress
        self.left_out = defaultdict[tuple[str, str], float](float)
        self.purpose = ""
        self._clean_until = NEVER
        self._goes_on = (out / ROWS_FILE).exists()  # rows of an earlier call may be there
        self._stacks = [CLEAN_RUN]
        self._rows = dict[int, Row]()
        self._player = Player(on_step=self._check)
        # prices of attacks, from rows that were played
        self._seconds = dict[str, float]()  # of a step of one environment, by attack
        self._steps = dict[str, int]()  # of the row that they are of

    @property
    def has_clean(self) -> bool:
        """Whether the row without an attack was played."""
        return 0 in self._rows

    @property
    def clean(self) -> Row:
        """The row without an attack."""
        return self._rows[0]

    def evaluator(self, stacks: list[ThreatStack]) -> Evaluator:
        """An evaluator whose player is this one's, so that environments stay open."""
        return Evaluator(self.victim, self.environment, stacks, self.episodes, self._player)

    def play_clean(self, until: Deadline = NEVER) -> Row:
        """The row without an attack; :class:`OutOfTime` where that is not played before ``until``."""
        self._clean_until = until
        with closing(self.evaluator([CLEAN_RUN])) as evaluator:
            self._play(evaluator, self._progress)
        return self.clean

    def fits(self, text: str, budget: Budget | None, at: At = None) -> str | None:
        """Why an attack cannot be aimed at the agent, or None where it can be."""
        try:
            stack = self._stack(text, budget, None, at)
            with closing(self.evaluator([CLEAN_RUN, stack])):
                return None
        except AdvWrappersError as error:
            return str(error)

    def play(
        self,
        attack: str | ThreatModel | tuple[ThreatModel, ...],
        budget: Budget | None = None,
        when: str | None = None,
        label: str = "",
        at: At = None,
        episodes: int | None = None,
    ) -> Trial:
        """Play a row, or take it over from the folder.

        Args:
            attack: its text without a budget, or the threat itself, or those of a stack, innermost first.
            budget: its budget; None for an attack without.
            when: the timing, as a text.
            label: what a threat that is no text is called.
            at: the key or keys that a text is aimed at, in place of the player's own.
            episodes: how many of the episodes it holds, the first ones; None for all.

        Raises:
            DoesNotFit: into the time that is left; it is noted.
            AdvWrappersError: one of its kinds, for an attack that cannot be aimed at the agent.
        """
        # over the time only rows that are there already are taken
        text = attack if isinstance(attack, str) else label
        stack = replace(self._stack(attack, budget, when, at), episodes=episodes)
        if self.deadline.passed and not self._goes_on:
            raise self.leave_out(text, self._row_seconds(text, budget))
        with closing(self.evaluator([CLEAN_RUN, stack])) as evaluator:
            # a row that is not kept has to fit into what is left
            kept = self._goes_on and 1 in kept_rows(evaluator, self.out)
            seconds = self._row_seconds(text, budget, None if kept else evaluator)
            if not kept and not self.has_time_for(seconds):
                raise self.leave_out(text, seconds)
            try:
                row = self._play(evaluator, self._progress if kept else self._told)[1]
            except OutOfTime as over:  # it takes longer than it seemed: another program uses the machine
                raise self.leave_out(text, seconds) from over
            self._stacks.append(evaluator.stacks[1])
            self._rows[len(self._stacks) - 1] = row
        steps = sum(row.lengths)
        if steps >= self._steps.get(text, 0):  # short rows cost more a step than others
            self._steps[text], self._seconds[text] = steps, row.ms_per_step / 1000
        return Trial(row, self.clean)

    def has_time_for(self, seconds: float) -> bool:
        """Whether a row that is said to take so long fits into the time that is left."""
        return seconds * ROOM <= self.deadline.left

    def leave_out(self, threat: str, seconds: float) -> DoesNotFit:
        """Note what does not fit; the error that says so."""
        self.left_out[threat, self.purpose] += seconds
        return DoesNotFit(seconds)

    def price(self, attack: str, budget: Budget | None) -> float:
        """About how many seconds a row under an attack takes; some of its steps are timed, if there is time for that.

        Raises:
            AdvWrappersError: one of its kinds, for an attack that cannot be aimed at the agent.
        """
        with closing(self.evaluator([CLEAN_RUN, self._stack(attack, budget, None)])) as evaluator:
            return self._row_seconds(attack, budget, evaluator)

    def report(self) -> Report:
        """All rows, with the warnings of a report."""
        with closing(self.evaluator(self._stacks)) as evaluator:
            return evaluator.report(self._rows)

    def close(self) -> None:
        """Close the environments."""
        self._player.close()

    def _check(self) -> None:
        """Raise :class:`OutOfTime` after the end of the row without an attack, on which others depend, or of these."""
        (self.deadline if self.has_clean else self._clean_until).check()

    def _told(self, threat: str, finished: int, episodes: int) -> None:
        self._check()
        if self._progress is not None:
            self._progress(threat, finished, episodes)

    def _stack(
        self,
        attack: str | ThreatModel | tuple[ThreatModel, ...],
        budget: Budget | None,
        when: str | None,
        at: At = None,
    ) -> ThreatStack:
        if not isinstance(attack, str):
            return as_threat_stack(attack, self.victim)
        threat = parse_threat(attack, within=budget, when=when)
        if threat.on == "observation" and threat.at is None:
            threat = replace(threat, at=self.at if at is None else at)
        return as_threat_stack(threat, self.victim)

    def _row_seconds(self, attack: str, budget: Budget | None, evaluator: Evaluator | None = None) -> float:
        """Seconds of the row of an attack, of which some steps are timed where there is time for that.

        Else it takes as long as others of its name; or what has no budget, such as a fault of sensors, little more than
        a row without an attack, and what has one may cost as much as the slowest attack so far.
        """
        steps, name = sum(self.clean.lengths), attack.partition(":")[0]
        if attack not in self._seconds and evaluator is not None and not self.deadline.passed:
            self._seconds[attack] = run_seconds(evaluator, 1, self.clean) / steps
        if attack in self._seconds:
            return self._seconds[attack] * steps
        alike = [each for text, each in self._seconds.items() if text.partition(":")[0] == name]
        slowest = self._seconds.values() if budget is not None else ()
        return max(alike or [self.clean.ms_per_step / 1000, *slowest], default=0.0) * steps

    def _play(self, evaluator: Evaluator, progress: Progress | None) -> dict[int, Row]:
        """The rows of an evaluator, whose first is that without an attack; those of the folder are not played again."""
        rows = {i: row for i, row in self._rows.items() if i == 0}
        play_missing(evaluator, rows, progress=progress, out=self.out, workers=self._workers)
        self._rows[0] = rows[0]
        return rows


def shown_text(threat: str) -> str:
    """A threat's text as pages have it.

    What a search over whole episodes found, and is played as a record, has that name; of a trained adversary the last
    folder is enough.
    """
    return re.sub(r"(learned:card=)[^,]*[/\\](?=[^,/\\]+)", r"\1", threat.replace("<recorded>", "episode search"))


def text_without(threat: str, *arguments: str) -> str:
    """A threat's text without some of its arguments; all of it where it cannot be read."""
    try:
        return without_arguments(threat, *arguments)
    except ThreatError:
        return threat


def one_feature(budget: Linf, feature: int, scale: tuple[float, ...]) -> Linf:
    """A budget that moves one feature alone."""
    return Linf(budget.eps, tuple(unit if i == feature else 0.0 for i, unit in enumerate(scale)))
