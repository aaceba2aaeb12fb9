"""Law 3: the same seed gives the same bytes; neither the number nor the order of environments changes a row."""

from __future__ import annotations

import pytest

from tests.laws.checks import Remembering, by_turns, cases, check_fresh, check_seeds, fitting
from tests.rigs import PLAIN, RIGS


@pytest.mark.parametrize(("case", "kind"), by_turns(cases(rigs=1), PLAIN), ids=str)
def test_rows(case, kind):
    check_seeds(case, kind)


NOISE = [c for c in cases("observation") if c.preset == "noise" and "linf" in fitting(c)]  # choices do repeat


@pytest.mark.parametrize("case", NOISE, ids=str)
def test_every_draw_is_new(case):
    check_fresh(case)


@pytest.mark.parametrize(("kind", "rig"), [("env", "mean"), ("next", "q"), ("next", "recurrent")])
def test_a_director_that_remembers(rig, kind):
    check_seeds(Remembering("learned", RIGS[rig]), kind)
