"""Law 12: more ascents, more steps of one length and a larger budget never make a search weaker."""

from __future__ import annotations

import pytest

import adv_wrappers as adv
from adv_wrappers.attacks.gradient_attack import GradientAttack
from tests.laws.checks import cases, check_never_weaker

SEARCHES = [c for c in cases(rigs=1) if issubclass(adv.presets[c.preset].kind, GradientAttack)]


@pytest.mark.parametrize("case", SEARCHES, ids=str)
def test_never_weaker(case):
    check_never_weaker(case)
