"""Every error that adv_wrappers raises on purpose: each names what was expected and what came.

A message names an argument of a function as ``eps=``, with a value ``eps=0.1``, or at its head as ``eps must be ...``.
The command line writes the option of that name there (:func:`adv_wrappers.cli.main.by_option`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any


class AdvWrappersError(Exception):
    """Base of the package's own errors.

    Attributes:
        threat: the text of the threat that the error is about, or the name of its preset, if it was given by one. The
            arguments that the message names are those of the threat then.
    """

    threat: str | None = None


class BudgetError(AdvWrappersError, ValueError):
    """A budget that cannot be spent: negative, not a number, below one grey level, or unbounded."""


class SpaceError(AdvWrappersError, ValueError):
    """A space, shape or dtype that a layer, a victim or an attack cannot work on."""


class ValueRangeError(AdvWrappersError, ValueError):
    """Values that are not finite, or an argument outside its range."""


class VictimError(AdvWrappersError, ValueError):
    """A victim that is missing, does not fit, or lacks what an attack needs."""


class ThreatError(AdvWrappersError, ValueError):
    """A threat, preset or text form that cannot be understood."""


class OrderError(AdvWrappersError, ValueError):
    """A layer that sits where it can never reach the agent, or where it cannot be gated."""


class SnapshotError(AdvWrappersError, RuntimeError):
    """A simulator that can neither be saved nor replayed, or does not repeat after it was brought back."""


class SimulationError(AdvWrappersError, ArithmeticError):
    """A simulation that diverged under the physical parameters that a threat gave it."""


class CardError(AdvWrappersError, ValueError):
    """A card or checkpoint file that is missing, malformed or changed."""


class OutputError(AdvWrappersError, OSError):
    """A file or folder that cannot be written: a full disk, no permission, or another process that holds it.

    Attributes:
        report: what was computed and could not be written, if it was that far: a report, or None.
    """

    report: Any = None


class StoreError(AdvWrappersError, RuntimeError):
    """A store of rows that is damaged, of another form, or something else."""


class WorkerError(AdvWrappersError, RuntimeError):
    """A worker process that died, or something that cannot be sent to one."""


class CertificateError(AdvWrappersError, RuntimeError):
    """An attacked episode whose return is below its certified return.

    Attributes:
        counterexample: the seed, the radius, the threat and both returns, as values that JSON knows.
    """

    counterexample: dict[str, object] | None = None


class NotRobust(AdvWrappersError, AssertionError):  # a test fails, and nothing is broken
    """An agent that was not shown to keep what was asked for, with the attack and the episode that say so."""


class TrustError(AdvWrappersError, PermissionError):
    """A file that could only be read by running code in it, which needs ``trust=True``."""


@contextlib.contextmanager
def threat_in_errors(text: object) -> Iterator[None]:
    """Errors raised inside say which threat they are about, where its name is not in them.

    Args:
        text: a threat's text, or the name of a preset; anything else leaves errors as they are.
    """
    try:
        yield
    except AdvWrappersError as error:
        if isinstance(text, str) and error.threat is None:
            error.threat = text
            if text.partition(":")[0].strip() not in str(error):
                error.args = (f"{text:.80}: {error}", *error.args[1:])
        raise
