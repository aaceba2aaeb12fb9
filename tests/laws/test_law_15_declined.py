"""Law 15: steps that an adversary declines are not attacked and count nowhere; its choice is a timing."""

from __future__ import annotations

import pytest

from tests.laws.checks import REMEMBERING, Case, check_declined, of_each_sort
from tests.rigs import RIGS


# those that remember are refused (tests/adversaries/test_timed.py)
@pytest.mark.parametrize("case", [case for case in of_each_sort() if case.preset not in REMEMBERING], ids=str)
def test_single_environments(case):
    check_declined(case, "env")


VECTORS = [("noise", "q"), ("max-diff", "recurrent"), ("action-flip", "q"), ("brightness", "image")]


@pytest.mark.parametrize("case", [Case(preset, RIGS[rig]) for preset, rig in VECTORS], ids=str)
def test_vectors(case):
    check_declined(case, "next")
