"""The budgets of a sweep end where nothing more is to be found."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from adv_wrappers.studies.report.choices import FeatureSpread
from adv_wrappers.studies.report.eps_search import EpsSweep, strongest_by_eps
from adv_wrappers.studies.report.observation_ranges import ObservationRanges
from adv_wrappers.studies.report.trials import Trial
from tests.evaluation.made_reports import made_row


def trial(eps: float, mean: float, clean: float) -> Trial:
    return Trial(made_row(f"noise:eps={eps!r}", [mean], action_change=1.0), made_row("none", [clean]))


def sweep_of(clean: float, least: float = 0.0) -> EpsSweep:
    """Of one feature; of an integer where there is a least eps."""
    feature = FeatureSpread("x", 0.0, 1 / least if least else 1.0, 1.0)
    part = ObservationRanges((feature,), 0.1, 1.0, False, 1.0, grid=bool(least))
    return EpsSweep(part, clean)


def played(sweep: EpsSweep, left: Callable[[float], float]) -> list[float]:
    """The eps that are played, in their order."""
    found = list[Trial]()
    for all in (True, False):
        while (eps := sweep.next(strongest_by_eps(found), all)) is not None:
            found.append(trial(eps, left(eps), sweep.clean))
    return [one.eps or 0.0 for one in found]


@pytest.mark.parametrize("clean", [0.0, -200.0])
def test_no_half_is_looked_for_where_nothing_can_be_lost(clean: float) -> None:
    """Of a return of 0, or of the least there is, every eps would leave half or less."""
    assert {*played(sweep_of(clean), lambda eps: clean)} <= {*sweep_of(1.0).ladder}


@pytest.mark.parametrize(("clean", "left", "largest"), [(100.0, 0.0, 0.1), (-100.0, -400.0, 0.5)])
def test_a_sweep_goes_up_until_half_is_lost_where_that_is_known(clean: float, left: float, largest: float) -> None:
    """Larger eps take time from stronger attacks at smaller ones. Half of a negative return is of all that is lost."""
    lost = {0.1: 0.6, 0.2: 1.0}
    found = played(sweep_of(clean), lambda eps: clean + (left - clean) * lost.get(eps, float(eps > 0.05)))
    assert max(found) == largest


def test_of_integers_no_eps_is_below_one_of_them() -> None:
    sweep = sweep_of(10.0, least=0.125)
    assert sweep.ladder == (0.2, 0.5, 1.0)
    assert min(played(sweep, lambda eps: 0.0)) >= 0.125
    assert sweep_of(10.0, least=2.0).ladder == (1.0,)


def test_between_two_eps_it_looks_where_the_return_halves() -> None:
    """A first attack goes down to where nothing is lost, a later one to where less than half is, and between."""
    sweep = sweep_of(10.0)
    found = played(sweep, lambda eps: 10.0 if eps < 0.003 else 8.0 if eps < 0.03 else 0.0)
    assert found[:5] == [0.05, 0.02, 0.01, 0.005, 0.002]
    assert 0.03 <= min(eps for eps in found if eps >= 0.03) <= 0.036
    known = strongest_by_eps([trial(0.05, 0.0, 10.0), trial(0.02, 8.0, 10.0)])
    between = sweep.next(known, all=False)
    assert sweep.next(known, all=True) == 0.01 and between is not None and 0.02 < between < 0.05
