"""Law 15: steps that an adversary declines are not attacked and count nowhere; its choice is a timing."""

from __future__ import annotations

import pytest

from tests.laws.checks import PLANNED, REMEMBERING, Case, cases, check_declined
from tests.rigs import KINDS, RIGS


# those that remember are refused (tests/adversaries/test_timed.py)
@pytest.mark.parametrize("case", [case for case in cases(rigs=1) if case.preset not in PLANNED + REMEMBERING], ids=str)
def test_single_environments(case):
    check_declined(case, "env")


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "env"])
@pytest.mark.parametrize(
    ("preset", "rig"), [("noise", "q"), ("max-diff", "recurrent"), ("action-flip", "q"), ("brightness", "image")]
)
def test_vectors(preset, rig, kind):
    check_declined(Case(preset, RIGS[rig]), kind)
