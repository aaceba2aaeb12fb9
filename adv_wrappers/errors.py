"""Every error that adv_wrappers raises on purpose: each names what was expected and what came."""

from __future__ import annotations

from typing import Any


class AdvWrappersError(Exception):
    """Base of the package's own errors."""


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
