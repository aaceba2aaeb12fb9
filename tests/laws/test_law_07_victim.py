"""Law 7: the victim's parameters, gradients, train/eval mode and buffers are unchanged."""

from __future__ import annotations

import pytest

from tests.laws.checks import by_turns, cases, check_victim
from tests.rigs import PLAIN


@pytest.mark.parametrize(("case", "kind"), by_turns([c for c in cases(rigs=1) if not c.exact], PLAIN), ids=str)
def test_every_preset(case, kind):
    check_victim(case, kind)
