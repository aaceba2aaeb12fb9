"""The budgets of a sweep end where nothing more is to be found."""

from __future__ import annotations

import pytest

from adv_wrappers.studies.report.eps_search import EpsSweep, strongest_by_eps
from adv_wrappers.studies.report.trials import Trial
from tests.evaluation.made_reports import made_row


def trial(eps: float, mean: float) -> Trial:
    row = made_row("noise", [mean], action_change=1.0)
    return Trial("noise", eps, row, row)


@pytest.mark.parametrize("clean", [0.0, -200.0])
def test_no_half_is_looked_for_where_nothing_can_be_lost(clean: float) -> None:
    """Of a return of 0, or of the least there is, every eps would leave half or less."""
    sweep = EpsSweep(False, 1.0, False, clean)
    assert sweep.next_between(strongest_by_eps([trial(0.05, clean), trial(0.1, clean)])) is None


@pytest.mark.parametrize(("clean", "left", "largest"), [(100.0, 0.0, 0.1), (-100.0, -400.0, 0.5)])
def test_a_sweep_goes_up_until_half_is_lost_where_that_is_known(clean: float, left: float, largest: float) -> None:
    """Larger eps take time from stronger attacks at smaller ones. Half of a negative return is of all that is lost."""
    sweep = EpsSweep(False, 1.0, False, clean)
    lost = {0.1: 0.6, 0.2: 1.0}
    played = sweep.outwards(lambda eps: trial(eps, clean + (left - clean) * lost.get(eps, float(eps > 0.2))))
    assert max(one.eps or 0.0 for one in played) == largest


def test_of_integers_no_eps_is_below_one_of_them() -> None:
    sweep = EpsSweep(False, 1.0, False, 10.0, least=0.125)
    assert sweep.ladder == (0.2, 0.5, 1.0)
    played = sweep.outwards(lambda eps: trial(eps, 0.0))
    while (eps := sweep.next_between(strongest_by_eps(played))) is not None:
        played.append(trial(eps, 0.0))
    assert min(one.eps or 0.0 for one in played) >= 0.125
    assert EpsSweep(False, 1.0, False, 10.0, least=2.0).ladder == (1.0,)
