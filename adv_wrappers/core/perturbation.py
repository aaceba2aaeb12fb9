"""The bases of perturbations and timings, and what may stand in their place: functions of ``(x, context)``."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal, Protocol

from torch import Tensor

from adv_wrappers.core.budgets import Budget
from adv_wrappers.core.context import Context
from adv_wrappers.core.spaces import Field
from adv_wrappers.core.types import Chance, Counter, Flags
from adv_wrappers.core.values import Value
from adv_wrappers.errors import BudgetError, ThreatError

On = Literal["observation", "action"]
MOST_PASSES = 10**7  # of a network for one observation: minutes, for the smallest ones
Variants = Mapping[str, tuple[Mapping[str, object], str]]


class Perturbation(Value):
    """What is done to a batch: ``(x: [B, *S], context) -> [B, *S]``.

    ``x`` is float, in the units of the space; or, if the class declares ``native = True``, in the space's own dtype and
    possibly the environment's own memory, not to be written to. The engine projects whatever comes back, so a
    perturbation need not respect its own budget.

    A class that declares ``capturable = True`` promises that its call is the same kernels at every call of one shape:
    no branch on data, nothing that waits for a device, no look at ``t``, ``spent`` or ``memory``, and no writing to
    what it is given. It then works on fewer copies, and on CUDA it is recorded once as a graph and replayed
    (:mod:`adv_wrappers.accel.cuda_graphs`).

    A class that declares ``arrays = True`` computes on numpy arrays as it does on tensors, with the same bits, and does
    not write to what it is given, nor return it; the context then holds arrays, without an action mask
    (:mod:`adv_wrappers.core.numpy_attack`). It is declared of ``__call__``, so a subclass says so again.

    A class that declares ``declines = True`` may leave a step alone. The engine asks :meth:`accepts` of the rows that
    the timing allows; rows that it declines are not attacked, and count nowhere.
    """

    on: ClassVar[On] = "observation"
    native: ClassVar[bool] = False
    search: ClassVar[bool] = False  # walks or samples the budget, which must then be bounded
    needs_victim: ClassVar[bool] = False
    capturable: ClassVar[bool] = False
    # tries actions in context.simulator: refused at once where there is none, and what cannot be saved is replayed
    simulates: ClassVar[bool] = False
    declines: ClassVar[bool] = False  # may leave a step alone: the engine asks accepts() first
    arrays: ClassVar[bool] = False
    within: ClassVar[Budget | None] = None  # budget where none is given
    # presets of other names: their arguments, and what tells them from the class
    variants: ClassVar[Variants] = {}
    shares: ClassVar[bool] = False  # lets action layers beneath know the observation that this layer received
    reads: ClassVar[str | None] = None  # of an action: "shown", what the agent acted on, or "shared", what is shared

    def __call__(self, x: Tensor, context: Context) -> Tensor:
        """The perturbed batch."""
        raise NotImplementedError

    def accepts(self, x: Tensor, context: Context) -> Tensor:
        """Rows of ``x`` that are to be attacked, bool ``[B]``; what is kept in ``context.memory`` stays there."""
        raise NotImplementedError

    def check(self, field: Field, within: Budget) -> None:
        """Raise, before anything is spent, if this perturbation cannot work on a field under a budget."""
        if self.search and not within.bounded and not field.bounded:
            raise BudgetError(
                f"{self.name} searches its budget, but {within.name} is unbounded on a space whose bounds are not "
                f"finite: give it Linf(eps) or L2(eps)"
            )

    @property
    def network_passes(self) -> int:
        """About how often the victim's network, or a model, is computed at every observation that is attacked."""
        return 1

    def check_simulated(self, feature_names: Sequence[str]) -> None:
        """Raise, before anything is spent, if this perturbation cannot work with the environment that it simulates.

        Args:
            feature_names: the environment's names of the numbers of an observation; none where it has none.
        """

    def label(self, within: Budget) -> str:
        """How tables and ``info`` call this perturbation under a budget."""
        return self.name

    def initial_memory(self, rows: int) -> dict[str, Tensor] | None:
        """What is remembered a row, leaves ``[rows, ...]``, reset every episode; None for a stateless perturbation."""
        return None


class Step(Protocol):
    """What a timing decides from: the step of a layer.

    Attributes:
        t, spent: step and attacks of the episode, an integer for a single environment and else ``[B]``.
        on_host: whether these are on the host, and decisions are wanted there.
    """

    @property
    def t(self) -> Counter: ...
    @property
    def spent(self) -> Counter: ...
    @property
    def on_host(self) -> bool: ...
    def chance(self, path: int, stream: int | None = None) -> Chance:
        """Uniform number in [0, 1) a row, from the layer's stream or from a shared one; ``path`` tells draws apart."""


class When(Value):
    """When a layer attacks: ``(x: [B, *S], context) -> bool [B]``. :mod:`adv_wrappers.timing` holds the timings."""

    blind: ClassVar[bool] = True  # decides from t, spent and the key alone, without looking at the observation

    def decide(self, step: Step, path: int = 0) -> Flags:
        """Bool, or bool ``[B]``, from ``step.t``, ``step.spent`` and ``step.chance(path)``; for blind timings."""
        raise NotImplementedError

    def look(self, x: Tensor, context: Context, step: Step, path: int = 0) -> Flags:
        """The same for timings that look at the observation."""
        return self.decide(step, path)


How = Perturbation | Callable[[Tensor, Context], Tensor]


def check_how(how: Any) -> None:
    """Raise :class:`ThreatError` unless this can be called on a batch and a context."""
    if isinstance(how, type):
        raise ThreatError(f"expected a perturbation, got the class {how.__name__}: call it, as in {how.__name__}(...)")
    if isinstance(how, Perturbation):
        kind = type(how)
        if kind.__call__ is Perturbation.__call__ or not hasattr(kind, "name") or not dataclasses.is_dataclass(kind):
            raise ThreatError(
                f"{kind.__name__} must be a frozen dataclass with a class attribute name and a method "
                f"__call__(self, x, context), to be a Perturbation; a plain function (x, context) needs none of it"
            )
    elif not callable(how):
        raise ThreatError(f"how must be a perturbation or a function (x, context), got {how!r}")
    elif not _takes_two(how):
        raise ThreatError(
            f"{_name(how)} must take (x, context): a batch of shape [B, *S] and what is known of the step"
        )


def check_when(when: Any) -> None:
    """Raise :class:`ThreatError` unless this is a timing, or None for every step."""
    if isinstance(when, type):
        raise ThreatError(f"expected a timing, got the class {when.__name__}: call it, as in {when.__name__}(...)")
    if when is None or isinstance(when, When):
        return
    if not callable(when):
        raise ThreatError(f"when must be a timing such as Bernoulli(0.5), got {when!r} (wrappers and texts read texts)")
    if not _takes_two(when):
        raise ThreatError(f"{_name(when)} must take (x, context) and return bool [B], to say when to attack")


def _name(function: Any) -> str:
    return getattr(function, "__name__", type(function).__name__)


def _takes_two(function: Any) -> bool:
    try:
        inspect.signature(function).bind(None, None)
    except TypeError:
        return False
    except ValueError:  # a builtin that does not say
        return True
    return True
