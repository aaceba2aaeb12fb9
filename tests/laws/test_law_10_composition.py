"""Law 10: layers compose; ``wrap(env, a, b)`` equals ``wrap(wrap(env, a), b)``."""

from __future__ import annotations

import pytest

from tests.laws.checks import by_turns, check_composition, of_each_sort
from tests.rigs import PLAIN


@pytest.mark.parametrize(("case", "kind"), by_turns(of_each_sort(), PLAIN), ids=str)
def test_every_preset(case, kind):
    check_composition(case, kind)
