"""Texts: what stands between separators, and the numbers, words and tuples that it means. Texts are never evaluated."""

from __future__ import annotations

import ast
from typing import Any

from adv_wrappers.errors import ThreatError


def split_outside_quotes(text: str, separator: str) -> list[str]:
    """``text`` between the separators that stand outside of quotes and brackets.

    Raises:
        ThreatError: for a quote or a bracket without its other half.
    """
    pieces = []
    start = 0
    depth = 0
    quote = ""
    i = 0
    while i < len(text):
        letter = text[i]
        # a separator counts where neither a quote nor a bracket is open
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter in "([":
            depth += 1
        elif letter in ")]":
            depth -= 1
        elif depth == 0 and text.startswith(separator, i):
            # the piece ends here
            pieces.append(text[start:i])
            i = start = i + len(separator)
            continue
        i += 1
    if quote or depth:
        raise ThreatError(f"unbalanced quote or bracket in {text!r}")
    return [*pieces, text[start:]]


def split_stack(text: str) -> list[str]:
    """The threats of a stack as reports write it, with `` + `` between them, innermost first."""
    return split_outside_quotes(text, " + ") if " + " in text else [text]


def split_arguments(text: str) -> list[str]:
    """``a=1,b="x,y"`` split at commas outside quotes and brackets."""
    return [piece for piece in split_outside_quotes(text, ",") if piece.strip()]


def without_arguments(threat: str, *names: str) -> str:
    """The text of a threat without its arguments of these names.

    >>> without_arguments("pgd:eps=0.1,steps=20", "eps"), without_arguments("pgd:eps=0.1", "eps")
    ('pgd:steps=20', 'pgd')
    """
    name, _, rest = threat.partition(":")
    kept = [piece.strip() for piece in split_arguments(rest) if piece.partition("=")[0].strip() not in names]
    return f"{name}:{','.join(kept)}" if kept else name


def is_quoted(text: str) -> bool:
    """Whether a text is one quotation: the same quote at both ends, and nowhere in between."""
    return len(text) >= 2 and text[0] in "'\"" and text.find(text[0], 1) == len(text) - 1


def unquote(text: str) -> str:
    """A value that is never a number: what is quoted is taken as it stands, without its quotes."""
    text = text.strip()
    return text[1:-1] if is_quoted(text) else text


def parse_value(text: str) -> Any:
    """A number, word or text; ``a;b`` is a tuple of them, ``a;`` of one, and ``(a;b);(c;d)`` one of tuples."""
    if is_quoted(text):
        return text[1:-1]
    # several values, or one in brackets
    if ";" in text:
        try:
            items = split_outside_quotes(text, ";")
        except ThreatError:
            return text
        if len(items) > 1:
            return tuple(parse_value(item.strip()) for item in (items if items[-1].strip() else items[:-1]))
        if text[:1] == "(" and text[-1:] == ")":
            return parse_value(text[1:-1])
    words = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    # a fraction, a number of Python, or the text itself
    above, slash, below = text.partition("/")
    try:
        if slash:  # 8/255
            return float(above) / float(below)
        value = ast.literal_eval(text)
    except (ValueError, TypeError, SyntaxError, ZeroDivisionError):
        return text
    return value if isinstance(value, (int, float, str)) else text
