"""Law 10: layers compose; ``wrap(env, a, b)`` equals ``wrap(wrap(env, a), b)``."""

from __future__ import annotations

import pytest

from tests.laws.checks import by_turns, cases, check_composition
from tests.rigs import KINDS


@pytest.mark.parametrize(("case", "kind"), by_turns(cases(rigs=1), KINDS), ids=str)
def test_every_preset(case, kind):
    check_composition(case, kind)
