"""A refused input is refused for the right reason: tests that expect one of our errors say which words it has."""

from __future__ import annotations

import re
from pathlib import Path

from adv_wrappers import errors

OURS = {name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, Exception)}
TESTS = Path(__file__).parent
# a class or several, no words beside them, and no name for the error that is received
WITHOUT_WORDS = re.compile(r"with [^\n]*\bpytest\.raises\(([\w\s.,]+|\([\w\s.,]+\))\)(?! as )")


def wordless(source: str) -> list[int]:
    """Lines that take any of our errors of a class, whatever it says, and never look at it."""
    found = [match for match in WITHOUT_WORDS.finditer(source) if {*re.findall(r"\w+", match[1])} & OURS]
    return [source.count("\n", 0, match.start()) + 1 for match in found]


def test_every_refusal_is_for_its_reason() -> None:
    sources = {path: path.read_text(encoding="utf-8") for path in TESTS.rglob("*.py") if path != Path(__file__)}
    assert not {str(path): lines for path, source in sources.items() if (lines := wordless(source))}


def test_a_refusal_for_any_reason_is_found() -> None:
    any_ = "with pytest.raises(adv.BudgetError):\n    f()\n"
    several = "with pytest.raises((BudgetError, KeyError)), g():\n    f()\n"
    received = "with pytest.raises(BudgetError, match='eps'):\n    f()\nwith pytest.raises(BudgetError) as error:\n"
    others = "with pytest.raises(ZeroDivisionError):\n    f()\n"
    assert wordless(any_ + several + received + others) == [1, 3]
