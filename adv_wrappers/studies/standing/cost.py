"""What a submission will take, before it is attacked: each attack of the standing, and all of them.

The run without an attack is played, and its row kept: it says how many steps a row has. Of every attack that applies a
few steps are timed, as they are before the attack is played.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from adv_wrappers.errors import AdvWrappersError
from adv_wrappers.evaluation.cost import Cost, Costs
from adv_wrappers.studies.estimate import is_made, search_seconds
from adv_wrappers.studies.report.trials import ROOM
from adv_wrappers.studies.standing.measure import ATTACKS, CERTIFIED_SHARE, RANGE_SHARE, Submission, open_submission
from adv_wrappers.studies.suite.attack_lists import entries_that_apply
from adv_wrappers.studies.suite.untrained import beam
from adv_wrappers.utils.deadline import Deadline
from adv_wrappers.utils.files import held
from adv_wrappers.utils.limits import Minutes, checked


@dataclass(frozen=True)
class SubmissionCost:
    """What the attacks on a submission take on this machine.

    Attributes:
        costs: of the attacks that apply, in their order; of the search over whole episodes, where it shortens none.
        left_out: by name, why others do not apply.
    """

    costs: Costs
    left_out: Mapping[str, str]

    @property
    def minutes(self) -> float:
        """``minutes`` with which :func:`.add_submission` plays all of them, and has its share for a certificate."""
        return ROOM * self.costs.seconds / (1 - RANGE_SHARE) / (1 - CERTIFIED_SHARE) / 60

    def notes(self) -> list[str]:
        """Sentences: how long all attacks take together, and why some do not apply."""
        reasons = dict[str, list[str]]()
        for name, reason in self.left_out.items():
            reasons.setdefault(reason, []).append(name)
        whole = f"{self.costs.summary()}; {self.minutes:.1f} minutes play all of them"
        return [whole, *(f"{', '.join(names)}: {reason}" for reason, names in reasons.items())]


@checked
def submission_cost(given: Submission, out: str | Path, minutes: Minutes = 2.0) -> SubmissionCost:
    """How long the attacks of the standing on an agent take, from the clean run and a few steps of each.

    Args:
        given: the submission, which is checked.
        out: the folder that the agent has, or gets, in the standing: the clean run is kept there, and attacks that have
            a row there are not timed.
        minutes: of wall clock that are given for a submission, of which the checks take a share.

    Raises:
        AdvWrappersError: as :func:`.add_submission` does.
    """
    folder, limit = Path(out), 60 * minutes
    with held(folder):
        opened, _ = open_submission(given, folder, limit)
        setting, parts = opened.setting(folder), list[Cost]()
        with closing(opened.player(Deadline(None), folder)) as player:
            clean = player.play_clean()
            entries, left_out = entries_that_apply(ATTACKS, setting)
            for entry in entries:
                try:
                    if entry is beam and not is_made(entry, setting):  # what it finds is shown again in no time
                        parts.append(Cost(entry.name, 1, search_seconds(setting, float(clean["mean_length"]))))
                        continue
                    threat = entry.attack(setting).threat
                    if player.is_kept(threat, None):
                        parts.append(Cost(entry.name, 0, 0.0))
                    else:
                        parts.append(Cost(entry.name, 1, player.price(threat, None, entry.name)))
                except AdvWrappersError as error:
                    left_out[entry.name] = str(error)
    costs = Costs(tuple(parts), "attacks", sum(not part.left for part in parts))
    return SubmissionCost(costs, left_out)
