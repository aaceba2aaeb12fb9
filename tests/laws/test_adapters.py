"""Adapters conform: around every other kind of environment a layer does what it does around single ones.

The laws run on an environment and on a vector. What another adapter has to do is here, whatever it translates: each row
is a single environment, its last observations, infos, later episodes and seeds included, so that what the laws say of
what comes out holds here too; types stay what they are, and the environment gets what was sent and draws as before.
"""

from __future__ import annotations

import pytest

import adv_wrappers as adv
from tests.laws.checks import (
    Case,
    Remembering,
    by_turns,
    check_declined,
    check_dynamics,
    check_types,
    check_vector,
    of_each_sort,
)
from tests.rigs import ADAPTED, RIGS

RECURRENT, STACK = RIGS["recurrent"], RIGS["image"]


@pytest.mark.parametrize("kind", ADAPTED)
@pytest.mark.parametrize("case", of_each_sort(), ids=str)
def test_rows_are_single_environments(case, kind):
    check_vector(case, kind, inside=False)
    check_types(case, kind)


@pytest.mark.parametrize("kind", ADAPTED)
@pytest.mark.parametrize(
    ("case", "when", "budget"),
    [
        (Case("noise", STACK), adv.Bernoulli(0.6), "newest"),
        (Case("min-best", RECURRENT), adv.Strategic(0.4) & adv.Bernoulli(0.8), ""),
        (Case("action-noise", RIGS["mean"]), (adv.Bernoulli(0.6) & adv.AtMost(3)) | ~adv.Window(0, 2), ""),
        (Remembering("learned", RECURRENT), adv.Bernoulli(0.7), ""),
    ],
    ids=str,
)
def test_what_is_kept_from_step_to_step_is_a_rows_own(case, when, budget, kind):
    """Frames that were shown, hidden states, clocks and memories, through resets and steps that are not attacked."""
    check_vector(case, kind, when, budget, inside=False)


@pytest.mark.parametrize(("case", "kind"), by_turns(of_each_sort(), ADAPTED), ids=str)
def test_environments_draw_and_act_as_before(case, kind):
    check_dynamics(case, kind)


@pytest.mark.parametrize(("kind", "preset"), by_turns(ADAPTED, ["noise", "action-flip"]))
def test_what_is_declined_is_not_attacked(preset, kind):
    check_declined(Case(preset, RIGS["q"]), kind)
