"""Tests of many small cases, most of all of refused arguments, as one test each: that is most of their time."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import pytest

Test = Callable[..., None]


def every_case(names: str | tuple[str, ...], cases: Iterable[Any]) -> Callable[[Test], Test]:
    """Like ``pytest.mark.parametrize``, but in one test, which goes through all cases and names each that fails.

    Fixtures are made once for all of them, so a case must leave them as they were.

    Args:
        names: of the arguments that differ from case to case.
        cases: their values, or a value each where there is one name.
    """
    keys = (names,) if isinstance(names, str) else names

    def decorated(test: Test) -> Test:
        @functools.wraps(test)
        def every(**fixtures: Any) -> None:
            failed = list[BaseException]()
            for case in cases:
                values = (case,) if isinstance(names, str) else case
                try:
                    test(**fixtures, **dict(zip(keys, values, strict=True)))
                except (Exception, pytest.fail.Exception) as error:
                    error.add_note(f"the case is {case!r}")
                    failed.append(error)
            if failed:
                raise BaseExceptionGroup(f"{len(failed)} cases fail", failed)

        own = [given for given in inspect.signature(test).parameters.values() if given.name not in keys]
        every.__signature__ = inspect.Signature(own)  # type: ignore[attr-defined]
        return every

    return decorated
