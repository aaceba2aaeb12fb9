"""Law 2: ``eps=0`` and ``when=Never()`` are the identity, to the bit; so are the steps that are not attacked."""

from __future__ import annotations

import pytest

from tests.laws.checks import by_turns, cases, check_identity
from tests.rigs import PLAIN


@pytest.mark.parametrize(("case", "kind"), by_turns(cases(rigs=1), PLAIN), ids=str)
def test_every_preset(case, kind):
    check_identity(case, kind)
