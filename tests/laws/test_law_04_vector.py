"""Law 4: vector(wrap) equals wrap(vector), final observations and later episodes included."""

from __future__ import annotations

import pytest

import adv_wrappers as adv
from tests.laws.checks import Case, Remembering, by_turns, cases, check_vector, of_each_sort
from tests.rigs import RIGS


@pytest.mark.parametrize("case", cases(rigs=1), ids=str)
def test_every_preset(case):
    check_vector(case, "next", inside=case in of_each_sort())  # a vector of wrapped ones is made of single ones


@pytest.mark.parametrize("preset", ["noise", "rotation", "pgd"])
def test_a_past_that_stays(preset):
    """Under Newest every row remembers what it was shown, through resets and steps that are not attacked."""
    check_vector(Case(preset, RIGS["image"]), "next", adv.Bernoulli(0.6), "newest", inside=False)


TIMINGS = {
    "every": adv.Every(2),
    "window": adv.Window(1, 3),
    "bernoulli": adv.Bernoulli(0.5),
    "at-most": adv.AtMost(2),
    "mixed": (adv.Bernoulli(0.6) & adv.AtMost(3)) | ~adv.Window(0, 2),
}


@pytest.mark.parametrize(("when", "preset"), by_turns(TIMINGS, ["noise", "action-noise"]))
def test_every_timing(preset, when):
    check_vector(Case(preset, RIGS["mean"]), "next", TIMINGS[when], inside=False)


@pytest.mark.parametrize("rig", ["logits", "recurrent"])
def test_timing_that_looks(rig):
    """Strategic timing asks the victim, whose state, where it has one, follows what was handed out."""
    check_vector(Case("min-best", RIGS[rig]), "next", adv.Strategic(0.4) & adv.Bernoulli(0.8))


@pytest.mark.parametrize(("rig", "timed"), [("mean", True), ("image", False), ("recurrent", True)])
def test_a_director_that_remembers(rig, timed):
    """Its state is a row's own, begins anew with every episode, and stays where it is while a row is not attacked."""
    check_vector(Remembering("learned", RIGS[rig]), "next", adv.Bernoulli(0.7) if timed else None)
