"""The bases of perturbations and timings, and what may stand in their place: functions of ``(x, context)``."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

from gymnasium import spaces
from torch import Tensor

from adv_wrappers.core.budgets.budget import Budget, Valid
from adv_wrappers.core.engine.context import Context
from adv_wrappers.core.serialization import Value
from adv_wrappers.core.spaces import Field
from adv_wrappers.core.types import Chance, Counter, Flags
from adv_wrappers.errors import BudgetError, SpaceError, ThreatError, VictimError

On = Literal["observation", "action", "dynamics", "reward"]
MOST_PASSES = 10**7  # of a network for one observation: minutes, for the smallest ones
Observes = Literal["shown", "shared"]
Variants = Mapping[str, tuple[Mapping[str, object], str]]


class Effect(Value):
    """What perturbations and actors say of themselves; an actor (:class:`.Actor`) is one that also takes an action."""

    @property
    def within(self) -> Budget | None:
        """The budget where none is given."""
        return None

    @property
    def on(self) -> On:
        """What it perturbs."""
        return "observation"

    @property
    def native(self) -> bool:
        """Whether it gets batches in the space's own dtype."""
        return False

    @property
    def needs_victim(self) -> bool:
        """Whether it cannot work without a victim."""
        return False

    @property
    def declines(self) -> bool:
        """Whether it may leave a step alone: the engine then asks :meth:`DecliningPerturbation.accepts`."""
        return False

    @property
    def simulates(self) -> bool:
        """Whether it always needs ``context.simulator``."""
        return False

    def check(self, field: Field, within: Budget) -> None:
        """Raise, before anything is spent, if it cannot work on a field under a budget."""


class Perturbation(Effect):
    """What is done to a batch of observations: ``(x: [B, *S], context) -> [B, *S]``.

    ``x`` is float, in the units of the space. The engine projects whatever comes back, so a perturbation need not
    respect its own budget. What else there is to know of one is said by the base that it picks, or by several:

    - :class:`ActionPerturbation`: it perturbs actions.
    - :class:`DynamicsPerturbation`: it perturbs physical parameters of the environment.
    - :class:`RewardPerturbation`: it perturbs rewards, of trainings.
    - :class:`NativePerturbation`: it gets ``x`` in the space's own dtype, as image transforms do.
    - :class:`BoundedPerturbation`: it goes as far as its budget allows, which must then have an end.
    - :class:`VictimAttack`: such a one, aimed at a victim.
    - :class:`DecliningPerturbation`: it may leave a step alone.
    - :class:`SimulatingPerturbation`: it tries actions in the environment.

    A base says so by a property; a perturbation that depends on its arguments overrides that property.

    Attributes:
        name: of the perturbation, and of its preset.
        within: the budget where none is given; None where one has to be.
        variants: presets of other names: their arguments, and what tells them from the class.
        capturable: a promise that its call is the same kernels at every call of one shape: no branch on data, nothing
            that waits for a device, no look at ``t``, ``spent`` or ``memory``, and no writing to the box. On CUDA it is
            then recorded once as a graph and replayed (:mod:`adv_wrappers.accel.cuda_graphs`).
        arrays: a promise that its ``__call__`` computes on numpy arrays as it does on tensors, with the same bits, and
            neither writes to what it is given nor returns it. The context then holds arrays, without an action mask
            (:mod:`adv_wrappers.core.engine.numpy_backend`). A subclass may have another ``__call__``, so it promises
            anew.
    """

    variants: ClassVar[Variants] = {}
    capturable: ClassVar[bool] = False
    arrays: ClassVar[bool] = False

    @property
    def observes(self) -> Observes | None:
        """What an action layer without a victim has in ``context.observation``.

        ``"shown"`` is what the agent acted on, and ``"shared"`` what the observation layer of the same adversary
        received, which then says ``"shared"`` too. None asks for nothing.
        """
        return None

    @property
    def network_passes(self) -> int:
        """About how often the victim's network, or a model, is computed at every observation that is attacked."""
        return 1

    def __call__(self, x: Tensor, context: Context) -> Tensor:
        """The perturbed batch."""
        raise NotImplementedError

    def label(self, within: Budget) -> str:
        """How tables and ``info`` call this perturbation under a budget."""
        return self.name

    def initial_memory(self, x: Tensor) -> dict[str, Tensor] | None:
        """What is remembered a row, leaves ``[B, ...]``, reset every episode; None for a stateless perturbation.

        ``x`` is a batch of zeros as :meth:`__call__` will get it, ``[B, *S]``, with as many rows as there are.
        """
        return None


class ActionPerturbation(Perturbation):
    """A perturbation of actions: ``x`` is a batch of them, discrete ones as int64 ``[B]``.

    Where no budget is given, every action of the space is allowed.
    """

    within: ClassVar[Budget | None] = Valid()

    @property
    def on(self) -> On:
        return "action"


class DynamicsPerturbation(Perturbation):
    """A perturbation of physical parameters: ``x`` is a batch of the environment's own values, float64 ``[B, n]``."""

    @property
    def on(self) -> On:
        return "dynamics"


class RewardPerturbation(Perturbation):
    """A perturbation of rewards: ``x`` is a batch of them, ``[B, 1]``."""

    @property
    def on(self) -> On:
        return "reward"


class NativePerturbation(Perturbation):
    """A perturbation in the space's own dtype, such as a transform of uint8 images.

    ``x`` may be the environment's own memory, and is not to be written to. Where no budget is given, the space alone
    bounds the result.
    """

    within: ClassVar[Budget | None] = Valid()

    @property
    def native(self) -> bool:
        return True


class BoundedPerturbation(Perturbation):
    """A perturbation that goes as far as its budget allows: the budget or the space must be bounded.

    It is refused on Discrete, MultiDiscrete and MultiBinary observations, between whose values there is no distance,
    unless it declares ``choices = True``.
    """

    choices: ClassVar[bool] = False

    def check(self, field: Field, within: Budget) -> None:
        super().check(field, within)
        if field.discrete and field.what == "observation" and not self.choices:
            raise discrete_observation(self.name, field)
        check_bounded_set(self.name, field, within)


@dataclass(frozen=True)
class VictimAttack(BoundedPerturbation):
    """An attack that searches its budget for what a victim makes of it.

    Args:
        victim: the victim; None until it is filled in (:meth:`adv_wrappers.ThreatModel.against`).

    Attributes:
        instead: of an attack that is defined for one discrete action, what is there for others.

    Raises:
        VictimError: for anything else, and for a victim that acts otherwise.
    """

    instead: ClassVar[str | None] = None
    victim: Any = None

    def __post_init__(self) -> None:
        super().__post_init__()
        expect_victim(getattr(self, "name", "this attack"), self.victim)
        if self.instead is not None:
            need_discrete(self.name, self.victim, self.instead)

    @property
    def needs_victim(self) -> bool:
        return True


class DecliningPerturbation(Perturbation):
    """A perturbation that may leave a step alone. Rows that it declines are not attacked, and count nowhere."""

    @property
    def declines(self) -> bool:
        return True

    def accepts(self, x: Tensor, context: Context) -> Tensor:
        """Those rows of ``x``, which the timing allows, that are to be attacked, bool ``[B]``.

        What is kept in ``context.memory`` stays there.
        """
        raise NotImplementedError


class SimulatingPerturbation(Perturbation):
    """A perturbation that tries actions in ``context.simulator``.

    It is refused at once where there is none, and what cannot be saved is replayed.
    """

    @property
    def simulates(self) -> bool:
        return True

    def check_simulated(self, feature_names: Sequence[str]) -> None:
        """Raise, before anything is spent, if this perturbation cannot work with the environment that it simulates.

        Args:
            feature_names: the environment's names of the numbers of an observation; none where it has none.
        """


def expect_victim(label: str, victim: object) -> None:
    """Raise :class:`VictimError` unless this is a victim, or None for one that is still open."""
    if victim is not None and not hasattr(victim, "fingerprint"):
        raise VictimError(
            f"{label} expects a victim, made by load_victim, from_module or from_sb3, got {type(victim).__name__}"
        )


def need_discrete(attack: str, victim: Any, instead: str) -> None:
    """Raise :class:`VictimError` unless the victim (if there is one yet) chooses one of ``n`` actions."""
    if victim is not None and not isinstance(victim.action_space, spaces.Discrete):
        space = victim.action_space
        raise VictimError(f"{attack} is defined for one discrete action, this victim acts in {space}: {instead}")


def need_q(attack: str, victim: Any, instead: str) -> None:
    """Raise :class:`VictimError` unless the victim (if there is one yet) has Q-values, or a critic."""
    if victim is not None and not victim.has_q:
        raise VictimError(f"{attack} needs Q-values, and this victim has none: {instead}")


def discrete_observation(name: str, field: Field) -> SpaceError:
    """The error of an attack ``name`` that follows distances or gradients, on a field of choices."""
    where = "" if field.at is None else f" at {field.at!r}"
    return SpaceError(
        f"{name} moves values by distances, and the observation{where} is one of choices ({field.leaves[0]}), which "
        "have none: noise, discrete-search and the faults of channels (observation-delay, ...) change those"
    )


def check_bounded_set(name: str, field: Field, within: Budget) -> None:
    """Raise :class:`BudgetError` where neither the budget nor the space has bounds; ``name`` searches between them."""
    if not within.bounded and not field.bounded:
        raise BudgetError(
            f"{name} searches its budget, but {within.name} is unbounded on a space whose bounds are not finite: give "
            "it Linf(eps) or L2(eps)"
        )


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
    """When a layer attacks: ``(x: [B, *S], context) -> bool [B]``. :mod:`.timing` holds the timings."""

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
    # a perturbation of ours is a named dataclass; anything else a function of two arguments
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
            f"{function_name(how)} must take (x, context): a batch of shape [B, *S] and what is known of the step"
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
        raise ThreatError(f"{function_name(when)} must take (x, context) and return bool [B], to say when to attack")


def function_name(function: Any) -> str:
    """What a function, or another object that can be called, is called in tables and messages."""
    return getattr(function, "__name__", type(function).__name__)


def _takes_two(function: Any) -> bool:
    try:
        inspect.signature(function).bind(None, None)
    except TypeError:
        return False
    except ValueError:  # a builtin that does not say
        return True
    return True
