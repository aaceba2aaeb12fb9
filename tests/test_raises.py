"""A refused input is refused for the right reason: tests that expect one of our errors say which words it has."""

from __future__ import annotations

import ast
from pathlib import Path

from adv_wrappers import errors

OURS = {name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, Exception)}
TESTS = Path(__file__).parent


def wordless(source: str) -> list[int]:
    """Lines of ``pytest.raises`` that take any of our errors of a class, whatever it says, and never look at it."""
    tree, found = ast.parse(source), []
    for block in (node for node in ast.walk(tree) if isinstance(node, ast.With)):
        for item in block.items:
            call = item.context_expr
            if not isinstance(call, ast.Call) or getattr(call.func, "attr", "") != "raises" or item.optional_vars:
                continue
            named = {getattr(node, "attr", getattr(node, "id", "")) for node in ast.walk(call.args[0])}
            if named & OURS and not call.keywords:
                found.append(call.lineno)
    return found


def test_every_refusal_is_for_its_reason() -> None:
    found = {str(path.relative_to(TESTS)): wordless(path.read_text(encoding="utf-8")) for path in TESTS.rglob("*.py")}
    assert not {path: lines for path, lines in found.items() if lines}


def test_a_refusal_for_any_reason_is_found() -> None:
    any_, received = (
        "with pytest.raises(adv.BudgetError):\n    f()\n",
        "with pytest.raises(BudgetError, match='eps'):\n    f()",
    )
    assert wordless(any_ + received) == [1]
