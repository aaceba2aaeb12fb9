"""The text forms of timings and of a preset's arguments. Texts are read, never evaluated."""

from __future__ import annotations

import ast
from dataclasses import fields
from typing import Any

from adv_wrappers.core.errors import ThreatError
from adv_wrappers.core.perturbation import When
from adv_wrappers.core.values import Value, construct
from adv_wrappers.logic import And, Not, Or, Pair, Timing
from adv_wrappers.strategic import Strategic


def _timings() -> dict[str, Any]:
    """The timings that a text may name, those of users included."""
    kinds: dict[str, type[Value]] = {Strategic.name: Strategic, **Value.kinds}
    return {n: k for n, k in kinds.items() if issubclass(k, Timing) and not issubclass(k, (Pair, Not))}


def parse_when(text: str) -> When:
    """The timing that a text describes: ``every(4)``, ``bernoulli(0.1) & ~window(0, 10)``, ``strategic(0.3)``.

    Raises:
        ThreatError: for text that is not a combination of known timings with numbers in them. Nothing is evaluated.
    """
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ThreatError(f"cannot read the timing {text!r}: expected something like 'bernoulli(0.1)'") from error
    try:
        return _build(tree, text)
    except RecursionError as error:
        raise ThreatError(f"the timing {text!r:.80} is nested too deeply to be one") from error


def _build(node: ast.expr, text: str) -> When:
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.BitAnd, ast.BitOr)):
        pair = And if isinstance(node.op, ast.BitAnd) else Or
        return pair(_build(node.left, text), _build(node.right, text))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert):
        return Not(_build(node.operand, text))
    call = node if isinstance(node, ast.Call) else ast.Call(func=node, args=[], keywords=[])
    if isinstance(call.func, ast.Name):
        kind = _timings().get(call.func.id.lower())
        if kind is not None:
            names = [field.name for field in fields(kind)]
            if len(call.args) > len(names):
                takes = ", ".join(names) or "nothing"
                raise ThreatError(f"{kind.name} takes {takes}, got {len(call.args)} arguments in {text!r}")
            given = {name: _literal(arg, text) for name, arg in zip(names, call.args, strict=False)}
            for keyword in call.keywords:
                if keyword.arg in given:
                    raise ThreatError(f"{keyword.arg} is given twice in {text!r}")
                given[str(keyword.arg)] = _literal(keyword.value, text)
            return construct(kind, **given)  # type: ignore[no-any-return]
    known = ", ".join(sorted(_timings()))
    raise ThreatError(f"cannot read the timing {text!r}: known are {known}, combined with &, | and ~")


def _literal(node: ast.expr, text: str) -> Any:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError) as error:
        raise ThreatError(f"cannot read the timing {text!r}: arguments must be numbers") from error


def pieces_of(text: str) -> list[str]:
    """``a=1,b="x,y"`` split at commas outside quotes and brackets."""
    pieces, start, depth, quote = [], 0, 0, ""
    for i, letter in enumerate(text):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter in "([":
            depth += 1
        elif letter in ")]":
            depth -= 1
        elif letter == "," and depth == 0:
            pieces.append(text[start:i])
            start = i + 1
    if quote or depth:
        raise ThreatError(f"unbalanced quote or bracket in {text!r}")
    pieces.append(text[start:])
    return [piece for piece in pieces if piece.strip()]


def value_of(text: str) -> Any:
    """A number, word or text; ``a;b`` is a tuple of them."""
    if ";" in text and text[:1] not in "'\"":
        return tuple(value_of(item.strip()) for item in text.split(";"))
    words = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    above, slash, below = text.partition("/")
    try:
        if slash:  # 8/255
            return float(above) / float(below)
        value = ast.literal_eval(text)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError, ZeroDivisionError):
        return text
    return value if isinstance(value, (int, float, str)) else text
