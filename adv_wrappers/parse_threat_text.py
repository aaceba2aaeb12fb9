"""The text forms of timings, budgets and a preset's arguments. Texts are read, never evaluated."""

from __future__ import annotations

import ast
import re
from dataclasses import fields
from typing import Any

from adv_wrappers.core.budgets import L0, L2, Budget, Linf, Sparse, Valid
from adv_wrappers.core.json_values import Value, construct
from adv_wrappers.core.perturbation import When
from adv_wrappers.core.timing import And, Not, Or, Pair, Strategic, Timing
from adv_wrappers.errors import BudgetError, ThreatError


def _timings() -> dict[str, type[Timing]]:
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
            names = [field.name for field in fields(kind)]  # type: ignore[arg-type]
            if len(call.args) > len(names):
                takes = ", ".join(names) or "nothing"
                raise ThreatError(f"{kind.name} takes {takes}, got {len(call.args)} arguments in {text!r}")
            given = {name: _literal(arg, text) for name, arg in zip(names, call.args, strict=False)}
            for keyword in call.keywords:
                if keyword.arg in given:
                    raise ThreatError(f"{keyword.arg} is given twice in {text!r}")
                given[str(keyword.arg)] = _literal(keyword.value, text)
            return construct(kind, **given)
    known = ", ".join(sorted(_timings()))
    raise ThreatError(f"cannot read the timing {text!r}: known are {known}, combined with &, | and ~")


def _literal(node: ast.expr, text: str) -> object:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError) as error:
        raise ThreatError(f"cannot read the timing {text!r}: arguments must be numbers") from error


def parse_budget(name: str, how: object, eps: float | None, norm: str | None, scale: Any) -> Budget:
    """The budget of ``eps``, ``norm`` and ``scale``: Linf by default, the perturbation's own where none is given.

    ``eps`` is the number of features for ``norm="l0"``; ``norm="sparse(2)"`` is ``Sparse(2, Linf(eps, scale))``.

    Raises:
        BudgetError: for arguments that do not go together, and where a budget is needed and none is given.
    """
    few = re.fullmatch(r"sparse\((\d+)\)", norm.replace(" ", "")) if isinstance(norm, str) else None
    if norm not in (None, "linf", "l2", "l0", "valid") and few is None:
        hint = " (how far a corner moves is distance=)" if hasattr(how, "distance") else ""
        raise BudgetError(f"norm must be linf, l2, l0, sparse(2) for two features or valid, got {norm!r}{hint}")
    if norm == "valid":
        if eps is not None or scale is not None:
            raise BudgetError(f"norm=valid has no eps and no scale, got eps={eps!r}, scale={scale!r}")
        return Valid()
    if eps is None:
        own: Budget | None = getattr(how, "within", None)
        if own is not None and norm is None and scale is None:
            return own
        raise BudgetError(
            f"{name} needs a budget: eps=..., with norm=linf (default), l2, l0 or sparse(2); or norm=valid"
        )
    if scale is not None and norm not in (None, "linf") and few is None:
        raise BudgetError(f"scale belongs to norm=linf and sparse, got norm={norm}")
    if few is not None:
        return Sparse(int(few[1]), Linf(eps, scale))
    if norm == "l0":
        return L0(eps)  # type: ignore[arg-type]  # L0 checks that it is whole
    return L2(eps) if norm == "l2" else Linf(eps, scale)


def norm_of(budget: Budget) -> str:
    """The ``norm`` with which :func:`parse_budget` makes a budget of this kind."""
    return f"sparse({budget.k})" if isinstance(budget, Sparse) else budget.name
