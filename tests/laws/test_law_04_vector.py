"""Law 4: vector(wrap) equals wrap(vector), in every autoreset mode, final observations and later episodes included."""

from __future__ import annotations

import pytest

import adv_wrappers as adv
from tests.laws.checks import Case, Remembering, by_turns, cases, check_vector
from tests.rigs import KINDS, RIGS


@pytest.mark.parametrize(("case", "kind"), by_turns(cases(rigs=1), KINDS[1:]), ids=str)
def test_every_preset(case, kind):
    """A vector of wrapped environments is made of the single ones: looking inside the first kind of all is enough."""
    check_vector(case, kind, inside=kind == "next")


@pytest.mark.parametrize(("kind", "preset"), by_turns(KINDS[1:], ["noise", "rotation", "pgd"]))
def test_a_past_that_stays(preset, kind):
    """Under Newest every row remembers what it was shown, through resets and steps that are not attacked."""
    check_vector(Case(preset, RIGS["image"]), kind, adv.Bernoulli(0.6), "newest")


TIMINGS = {
    "every": adv.Every(2),
    "window": adv.Window(1, 3),
    "bernoulli": adv.Bernoulli(0.5),
    "at-most": adv.AtMost(2),
    "mixed": (adv.Bernoulli(0.6) & adv.AtMost(3)) | ~adv.Window(0, 2),
}


@pytest.mark.parametrize("kind", KINDS[1:])
@pytest.mark.parametrize(("when", "preset"), by_turns(TIMINGS, ["noise", "action-noise"]))
def test_every_timing(preset, when, kind):
    check_vector(Case(preset, RIGS["mean"]), kind, TIMINGS[when])


@pytest.mark.parametrize(("kind", "rig"), by_turns(KINDS[1:], ["logits", "recurrent"]))
def test_timing_that_looks(rig, kind):
    """Strategic timing asks the victim, whose state, where it has one, follows what was handed out."""
    check_vector(Case("min-best", RIGS[rig]), kind, adv.Strategic(0.4) & adv.Bernoulli(0.8))


@pytest.mark.parametrize(
    ("kind", "rig", "timed"), [("next", "mean", True), ("sb3", "image", False), ("disabled", "recurrent", True)]
)
def test_a_director_that_remembers(rig, kind, timed):
    """Its state is a row's own, begins anew with every episode, and stays where it is while a row is not attacked."""
    check_vector(Remembering("learned", RIGS[rig]), kind, adv.Bernoulli(0.7) if timed else None)
