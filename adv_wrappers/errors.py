"""Every error that adv_wrappers raises on purpose: each names what was expected and what came.

A message that names an argument of a function keeps it as a value (:class:`Message`), so that whoever passes the
message on can write the argument as its reader gives it: ``eps=0.1`` in Python, ``--eps 0.1`` on the command line.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from inspect import Parameter
from typing import Any, TypeAlias, TypeVar

R = TypeVar("R")


@dataclass(frozen=True)
class Argument:
    """An argument of a function, in a message.

    Attributes:
        name: its name.
        value: the value that the message is about; ``...`` for any value. Left out, the argument itself is meant.

    >>> from adv_wrappers.errors import Argument
    >>> [str(argument) for argument in (Argument("eps"), Argument("eps", 0.1), Argument("eps", ...))]
    ['eps', 'eps=0.1', 'eps=']
    """

    name: str
    value: object = Parameter.empty

    def __str__(self) -> str:
        if self.value is Parameter.empty:
            return self.name
        return f"{self.name}={'' if self.value is ... else self.value_text(quoted=True)}"

    def value_text(self, quoted: bool = False) -> str:
        """The value as it is written, a text in quotes if ``quoted``; numbers are rounded to six digits."""
        if isinstance(self.value, float):
            return f"{self.value:g}"
        return f"{self.value!r:.80}" if quoted else f"{self.value!s:.80}"


@dataclass(frozen=True)
class AttackName:
    """The name of a perturbation's class, in a message: a user may have asked for it by that of a preset."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Words:
    """Words for those who call a function, and what is said instead to those who run a command.

    Attributes:
        python: in Python.
        command: on the command line.
    """

    python: str
    command: str

    def __str__(self) -> str:
        return self.python


MessagePart: TypeAlias = str | Argument | AttackName | Words


class Message(str):
    """A text in the words of Python that keeps the parts it is made of.

    >>> from adv_wrappers.errors import Argument, Message
    >>> message = Message(Argument("resume", True), " needs a folder: give ", Argument("out", ...))
    >>> print(message)
    resume=True needs a folder: give out=
    >>> message.worded(lambda part: f"--{part.name}" if isinstance(part, Argument) else str(part))
    '--resume needs a folder: give --out'
    """

    parts: tuple[MessagePart, ...]

    def __new__(cls, *parts: MessagePart) -> Message:
        made = super().__new__(cls, "".join(map(str, parts)))
        made.parts = tuple(inner for part in parts for inner in (part.parts if isinstance(part, Message) else (part,)))
        return made

    def __reduce__(self) -> tuple[type[Message], tuple[MessagePart, ...]]:
        return type(self), self.parts

    def worded(self, word: Callable[[MessagePart], str]) -> str:
        """The text with the parts as ``word`` writes them."""
        return "".join(map(word, self.parts))


ANOTHER_OUT = Message("give another ", Argument("out", ...))  # where a folder holds something else
EPS_OR_WITHIN = Message(Argument("eps", ...), Words(", or within=", ""))  # by which a budget is given


class AdvWrappersError(Exception):
    """Base of the package's own errors.

    Attributes:
        preset: the name of the threat that was read from a text or made of a preset, if the error is about one. The
            arguments that the message names are those of the threat then.
    """

    preset: str | None = None

    @property
    def message(self) -> Message:
        """What is wrong, with its parts."""
        found = self.args[0] if self.args else ""
        return found if isinstance(found, Message) else Message(str(found))

    @property
    def arguments(self) -> tuple[Argument, ...]:
        """The arguments that the message names."""
        return tuple(part for part in self.message.parts if isinstance(part, Argument))

    def change(self, part_of: Callable[[MessagePart], MessagePart]) -> None:
        """Replace the parts of the message."""
        self.args = (Message(*map(part_of, self.message.parts)), *self.args[1:])


@contextlib.contextmanager
def arguments_named(**names: str) -> Iterator[None]:
    """Errors raised inside give arguments the names that a caller has for them.

    Args:
        **names: by the name of an argument in the function that is called, that in the caller's own signature.
    """
    try:
        yield
    except AdvWrappersError as error:
        error.change(
            lambda part: replace(part, name=names.get(part.name, part.name)) if isinstance(part, Argument) else part
        )
        raise


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


@contextlib.contextmanager
def entry_in_errors(items: Sequence[object], i: int) -> Iterator[None]:
    """Say in errors which entry of a list of several threats they are about."""
    try:
        yield
    except AdvWrappersError as error:
        if len(items) > 1:
            text = f", {items[i]:.60}" if isinstance(items[i], str) else ""
            error.args = (Message(f"threat {i + 1} of {len(items)}{text}: ", error.message), *error.args[1:])
        raise


def each_entry(make: Callable[[Any], R], items: Sequence[Any]) -> list[R]:
    """What is made of every threat of a list; an error says of which."""
    made = []
    for i, item in enumerate(items):
        with entry_in_errors(items, i):
            made.append(make(item))
    return made


class NotRobust(AdvWrappersError, AssertionError):  # a test fails, and nothing is broken
    """An agent that was not shown to keep what was asked for, with the attack and the episode that say so."""


class TrustError(AdvWrappersError, PermissionError):
    """A file that could only be read by running code in it, which needs ``trust=True``."""
