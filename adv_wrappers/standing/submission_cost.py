"""What a submission will cost, before it is attacked: how long each attack of the standing takes, and all of them.

The run without an attack is played, and its row kept: it says how many steps a row has. Of every attack that applies a
few steps are timed, as they are before the attack is played. What remains unknown is how long episodes are under it.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from rich import box
from rich.table import Table

from adv_wrappers.agent_report.play_rows_until_deadline import ROOM
from adv_wrappers.campaign.suite_attacks_without_training import beam
from adv_wrappers.campaign.suite_cost import search_seconds, seconds_of
from adv_wrappers.campaign.suites import entries_that_apply
from adv_wrappers.errors import AdvWrappersError
from adv_wrappers.rendering.table_width import PrintedTable
from adv_wrappers.standing.measure_submission import (
    ATTACKS,
    CERTIFIED_SHARE,
    RANGE_SHARE,
    SEARCHED_SHARE,
    Submission,
    is_searched,
    open_submission,
)
from adv_wrappers.utils.checks import number
from adv_wrappers.utils.deadline import Deadline
from adv_wrappers.utils.files import held
from adv_wrappers.utils.text import duration


@dataclass(frozen=True)
class SubmissionCost:
    """What the attacks on a submission take on this machine.

    Attributes:
        clean: seconds of the run without an attack.
        attacks: by name, about how many seconds each attack takes that applies and has no row yet, in their order; of
            the search over whole episodes, where it shortens none.
        kept: names of those that have a row.
        left_out: by name, why others do not apply.
    """

    clean: float
    attacks: Mapping[str, float]
    kept: tuple[str, ...]
    left_out: Mapping[str, str]

    @property
    def seconds(self) -> float:
        """What all the attacks take that have no row yet."""
        return sum(self.attacks.values())

    @property
    def minutes(self) -> float:
        """``minutes`` with which :func:`.add_submission` plays all of them, and has its share for a certificate."""
        return ROOM * self.seconds / (1 - RANGE_SHARE) / (1 - CERTIFIED_SHARE) / 60

    def fitting(self, minutes: float) -> list[str]:
        """The attacks that :func:`.add_submission` plays in a time, in minutes: in their order, each if it fits.

        The search over whole episodes is among them where it does even if it shortens none of them.
        """
        left, found = (1 - CERTIFIED_SHARE) * ((1 - RANGE_SHARE) * 60 * minutes - self.clean), list[str]()
        for name, seconds in self.attacks.items():
            searched = name == beam.name
            room = SEARCHED_SHARE * left if searched else left
            if ROOM * seconds <= room:
                left -= seconds
                found.append(name)
            elif searched:  # it is tried, for as long
                left -= room
        return found

    def table(self, minutes: float) -> Table:
        """A rich table of every attack of the standing: how long it takes, and whether it is played in a time."""
        table, fitting = PrintedTable(box=box.SIMPLE_HEAD), self.fitting(minutes)
        for name in ("attack", "takes about", f"in {minutes:g} minutes"):
            table.add_column(name, justify="right" if name == "takes about" else "left", overflow="fold")
        for name in ATTACKS:
            if name in self.kept:
                table.add_row(name, "", "there already")
            elif name in self.attacks:
                short = "tried" if name == beam.name else "left out"  # a search shortens the episodes that it searches
                table.add_row(name, duration(self.attacks[name]), "played" if name in fitting else short)
            else:
                table.add_row(name, "", "does not apply")
        return table

    def notes(self) -> list[str]:
        """Sentences: how long all attacks take together, and why some do not apply."""
        if self.attacks:
            found = [
                f"{len(self.attacks)} attacks are left, which take about {duration(self.seconds)} on this machine, "
                f"less or more where they shorten or lengthen episodes: {self.minutes:.1f} minutes play all of them"
            ]
        else:
            found = ["no attack of the standing is left to be played"]
        reasons = dict[str, list[str]]()
        for name, reason in self.left_out.items():
            reasons.setdefault(reason, []).append(name)
        return [*found, *(f"{', '.join(names)}: {reason}" for reason, names in reasons.items())]


def submission_cost(given: Submission, out: str | Path, minutes: float = 2.0) -> SubmissionCost:
    """How long the attacks of the standing on an agent take, from the clean run and a few steps of each.

    Args:
        given: the submission, which is checked.
        out: the folder that the agent has, or gets, in the standing: the clean run is kept there, and attacks that have
            a row there are not timed.
        minutes: of wall clock that are given for a submission, above 0, of which the checks take a share.

    Raises:
        AdvWrappersError: as :func:`.add_submission` does.
    """
    folder, limit = Path(out), 60 * number("minutes", minutes, 0.01, 1e5)
    with held(folder):
        opened, _ = open_submission(given, folder, limit)
        setting, attacks, kept = opened.setting(folder), dict[str, float](), list[str]()
        with closing(opened.player(Deadline(None), folder)) as player:
            clean = player.play_clean()
            entries, left_out = entries_that_apply(ATTACKS, setting)
            for entry in entries:
                try:
                    if entry is beam and not is_searched(setting):  # what it finds is shown again in no time
                        attacks[entry.name] = search_seconds(setting, float(clean["mean_length"]))
                        continue
                    threat = entry.attack(setting).threat
                    if player.is_kept(threat, None):
                        kept.append(entry.name)
                    else:
                        attacks[entry.name] = player.price(threat, None, entry.name)
                except AdvWrappersError as error:
                    left_out[entry.name] = str(error)
    return SubmissionCost(seconds_of(clean), attacks, tuple(kept), left_out)
