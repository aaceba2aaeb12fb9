"""Law 10: layers compose; ``wrap(env, a, b)`` equals ``wrap(wrap(env, a), b)``."""

from __future__ import annotations

import pytest

from tests.laws.checks import cases, check_composition
from tests.rigs import KINDS


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", cases(rigs=1), ids=str)
def test_every_preset(case, kind):
    check_composition(case, kind)
