"""Threat models: frozen values that name what is attacked, how, how far, when and where."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, cast, get_args

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from torch import Tensor

from adv_wrappers.core.arrays import Scale
from adv_wrappers.core.budgets.budget import Budget, Linf
from adv_wrappers.core.budgets.frame_stack import Newest
from adv_wrappers.core.budgets.plausible_transitions import Plausible
from adv_wrappers.core.engine.context import Context
from adv_wrappers.core.parameter_space import ParameterSpace
from adv_wrappers.core.perturbation import (
    MOST_PASSES,
    How,
    On,
    Perturbation,
    When,
    check_how,
    check_when,
    expect_victim,
    function_name,
)
from adv_wrappers.core.serialization import Value, Victims, decode
from adv_wrappers.core.spaces import At, Field, Key, keys_in
from adv_wrappers.core.types import Array, Space, VictimLike
from adv_wrappers.errors import (
    BudgetError,
    SpaceError,
    ThreatError,
    ValueRangeError,
    VictimError,
)
from adv_wrappers.utils.checks import check_choice
from adv_wrappers.utils.frozen import set_fields

REWARDS = spaces.Box(-np.inf, np.inf, (1,), np.float64)


def _shapes(space: Space) -> object:
    if isinstance(space, spaces.Dict):
        return {key: _shapes(value) for key, value in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return [_shapes(value) for value in space.spaces]
    if isinstance(space, spaces.Discrete):
        return int(space.n)
    if isinstance(space, spaces.MultiDiscrete):
        return tuple(space.nvec.tolist())
    return space.shape


def fits(victim: VictimLike, observation_space: Space, action_space: Space, environment: str | None = None) -> None:
    """Raise :class:`VictimError` unless the victim's spaces have the kinds and shapes of these of ``environment``."""
    for what, own, other in (
        ("observation", victim.observation_space, observation_space),
        ("action", victim.action_space, action_space),
    ):
        if type(own) is not type(other) or _shapes(own) != _shapes(other):
            raise VictimError(
                f"the victim {victim.ref or repr(victim)} is for {what} space {own}, this environment has {other}"
                f"{_elsewhere(victim, environment, turned_or_stacked(own, other))}"
            )


def _elsewhere(victim: VictimLike, environment: str | None, advice: str) -> str:
    """The environments of a victim and of what it does not fit, as far as they have names, and what to do.

    ``advice`` is for the environment of the victim itself.
    """
    # where the victim was trained, as far as its card says
    about = (getattr(victim, "card", None) or {}).get("environment")
    about = about if isinstance(about, dict) else {}
    own, kwargs = about.get("id"), about.get("kwargs")
    if advice and (own is None or environment in (None, own)):
        return advice
    made = ""
    if isinstance(kwargs, dict) and kwargs:
        words = ", ".join(f"{key}={value!r}" for key, value in kwargs.items())
        made = f". Its card says how its own is made: gymnasium.make({own!r}, {words})"
    # what to advise depends on which of both environments has a name
    if own is None:
        here = f". This is {environment}: play it in the environment that it was trained in, or take one for "
        return "" if environment is None else here + environment
    if environment is None:
        return f". It is an agent for {own}: play it there{made}"
    if own == environment:
        return f". Both are {environment}, made with other arguments or wrappers{made}"
    play = f"play it in {own}, or take one for {environment}{made}"
    return f". It is an agent for {own}, and this is {environment}: {play}"


# what makes an observation of an image, or of a stack of frames [F, *S], whose axes are in another order
_TURNS: dict[str, Callable[[Array], Array]] = {
    "{x}.transpose(2, 0, 1)": lambda x: x.transpose(2, 0, 1),
    "{x}.transpose(1, 2, 0)": lambda x: x.transpose(1, 2, 0),
}
_STACKS: dict[str, Callable[[Array], Array]] = {
    "{x}": lambda x: x,
    "numpy.moveaxis({x}, 0, -1)": lambda x: np.moveaxis(x, 0, -1),
    "numpy.concatenate({x}, -1)": lambda x: np.concatenate(x, -1),  # as VecFrameStack joins vectors
    "numpy.concatenate({x}, 0)": lambda x: np.concatenate(x, 0),
    "{x}.transpose(0, 3, 1, 2).reshape({shape})": lambda x: x.transpose(0, 3, 1, 2).reshape(-1, *x.shape[1:3]),
    "{x}.transpose(2, 3, 0, 1).reshape({shape})": lambda x: x.transpose(2, 3, 0, 1).reshape(*x.shape[2:], -1),
}


def turned_or_stacked(own: Space, other: Space) -> str:
    """What to do where observations differ in the order of an image's axes, or take several at once; else ""."""
    if isinstance(own, spaces.Dict) and isinstance(other, spaces.Dict) and own.spaces.keys() == other.spaces.keys():
        found = {key: _way(own[key], other[key], f"x[{key!r}]") for key in own.spaces}
        parts = ", ".join(f"{key!r}: {way}" for key, (_, way) in found.items())
        frames, code = {number for number, _ in found.values()}, f"{{**x, {parts}}}"
    else:
        number, code = _way(own, other, "x")
        frames = {number}
    if len(frames) > 1 or None in frames or (frames == {1} and _alike(own, other)):
        return ""
    # what the difference is, and the wrapper that mends it
    (count,) = frames
    if count == 1:
        says, env = "the channels of the victim's images come in another order", "env"
    else:
        says = f"the victim takes {count} observations at once, a stack of frames"
        env = f"gymnasium.wrappers.FrameStackObservation(env, {count}, padding_type='zero')"
    line = f"gymnasium.wrappers.TransformObservation({env}, lambda x: {code}, victim.observation_space)"
    after = "frames before the first are zero for agents behind VecFrameStack"
    if count == 1:
        after = "where channels come first, a VecEnv of Stable-Baselines3 in VecTransposeImage"
    return f": {says}. Wrap the environment in {env if code == 'x' else line}; {after}"


def _alike(own: Space, other: Space) -> bool:
    """Whether they have the same shapes, so that nothing lies elsewhere."""
    if isinstance(own, spaces.Dict) and isinstance(other, spaces.Dict):
        return all(_alike(own[key], other[key]) for key in own.spaces)
    return (own.shape or ()) == (other.shape or ())


def turned(own: Space, other: Space) -> tuple[Callable[[Any], Any], Space] | None:
    """What turns the images of ``other`` so that their axes lie as those of ``own``, and the space of what comes out.

    None where there is nothing to turn.

    >>> to, space = turned(spaces.Box(0, 255, (3, 8, 9), np.uint8), spaces.Box(0, 255, (8, 9, 3), np.uint8))
    >>> space, to(np.zeros((8, 9, 3))).shape
    (Box(0, 255, (3, 8, 9), uint8), (3, 8, 9))
    """
    if isinstance(own, spaces.Dict) and isinstance(other, spaces.Dict):
        inside = {key: found for key in other if key in own.spaces and (found := turned(own[key], other[key]))}
        made = spaces.Dict([(key, inside[key][1] if key in inside else leaf) for key, leaf in other.items()])
        return (lambda x: {**x, **{key: to(x[key]) for key, (to, _) in inside.items()}}, made) if inside else None
    if isinstance(own, spaces.Box) and isinstance(other, spaces.Box) and own.shape != other.shape:
        for to in _TURNS.values():
            with contextlib.suppress(ValueError):  # an image has three axes
                low, high = to(other.low), to(other.high)
                if low.shape == own.shape:
                    return to, spaces.Box(low, high, dtype=other.dtype.type)
    return None


def _way(own: Space, other: Space, x: str) -> tuple[int | None, str]:
    """How many observations another one holds, None where nothing is known of that, and code that makes it of ``x``."""
    shape, from_shape = own.shape or (), other.shape or ()
    count, rest = divmod(math.prod(shape), max(math.prod(from_shape), 1))
    if shape == from_shape or rest or count < 1:
        return (1, x) if shape == from_shape else (None, x)
    stack = np.zeros(from_shape if count == 1 else (count, *from_shape), np.bool_)
    for way, make in (_TURNS if count == 1 else _STACKS).items():
        with contextlib.suppress(ValueError):  # an image has three axes
            if make(stack).shape == shape:
                return count, way.format(x=x, shape=shape)
    return None, x


def victims_in(value: object) -> list[VictimLike]:
    """Every victim that a value holds, at any depth, in the order of its fields."""
    found, waiting = list[VictimLike](), [value]
    while waiting:
        item: Any = waiting.pop()
        if hasattr(item, "fingerprint"):
            found.append(item)
        elif isinstance(item, Value):
            for field in reversed(dataclasses.fields(item)):  # type: ignore[arg-type]
                waiting.append(getattr(item, field.name))
        elif isinstance(item, tuple):
            waiting.extend(reversed(item))
    return found


def given_budget(eps: float | None, scale: Scale, within: Budget | None) -> Budget | None:
    """The budget that ``eps`` and ``scale``, or ``within`` name; None where nothing is given.

    Raises:
        ThreatError: for ``within`` beside one of the others, and for ``scale`` alone.
        BudgetError: for what is no budget.
    """
    if within is not None and (eps is not None or scale is not None):
        raise ThreatError(f"give either eps=, with scale= if need be, or within=, got both, within={within!r:.200}")
    if scale is not None and eps is None:
        raise ThreatError(f"scale={scale!r:.80} needs eps= beside it")
    budget = within if eps is None else Linf(eps, scale)
    if budget is not None and not isinstance(budget, Budget):
        raise BudgetError(f"within must be a budget such as Linf(0.1), got {budget!r:.80}")
    return budget


def needed_budget(who: str, eps: float | None, scale: Scale, within: Budget | None, zero: bool = False) -> Budget:
    """The budget of :func:`given_budget`, where one is needed; ``zero`` is whether it may allow nothing.

    Raises:
        ThreatError: as there, and where nothing is given; ``who`` needs it.
        BudgetError: as there, and for one that allows nothing: long work would come to nothing.
    """
    budget = given_budget(eps, scale, within)
    if budget is None:
        raise ThreatError(f"{who} needs a budget: give eps=")
    if budget.is_zero and not zero:
        raise BudgetError(f"{who} needs a budget that allows a change, and under {budget!r:.200} nothing can change")
    return budget


def replace_victims(value: Any, before: VictimLike | None, after: VictimLike | None) -> Any:
    """A value with ``after`` in every ``victim`` field that holds ``before``; the value itself where there is none."""
    changes: dict[str, Any] = {}
    for field in dataclasses.fields(value):
        old = getattr(value, field.name)
        if field.name == "victim" and old is before:
            new = after
        else:
            # values in values, down to the fields that hold a victim
            new = replace_victims(old, before, after) if isinstance(old, Value) else old
        if new is not old:
            changes[field.name] = new
    return replace(value, **changes) if changes else value


@dataclass(frozen=True)
class ThreatModel(Value):
    """What is attacked, how, within which budget, when, and where in a Dict space.

    Args:
        on: ``"observation"``, ``"action"``, ``"dynamics"`` (the physical parameters of the environment), or
            ``"reward"``, in trainings.
        how: a perturbation, or any function ``(x, context) -> x'`` (which then has no JSON form).
        within: the budget; None takes the perturbation's own.
        when: the timing; None attacks at every step.
        at: a key, or a tuple of keys under one budget, of a Dict space; of a Tuple an index. A key of a Dict within a
            Dict is written ``"outer/inner"``. Of the dynamics names of parameters.

    Raises:
        ThreatError: for parts that do not belong together.
        SpaceError: for an ``at`` that names no keys.
        BudgetError: where no budget is given and the perturbation has none.
        ValueRangeError: for an attack that would never end.
    """

    name: ClassVar[str] = "threat"
    on: On
    how: How
    within: Budget | None = None
    when: When | Callable[[Tensor, Context], Tensor] | None = None
    at: At = None

    def __post_init__(self) -> None:
        check_choice("on", self.on, get_args(On), error=ThreatError)
        check_how(self.how)
        if isinstance(self.how, Perturbation) and self.how.on != self.on:
            raise ThreatError(f"{self.how.name} perturbs the {self.how.on}, not the {self.on}")
        if isinstance(self.how, Perturbation) and (passes := self.how.network_passes) > MOST_PASSES:
            raise ValueRangeError(
                f"{self.how.name} would compute its network {passes:,} times for one observation, at most "
                f"{MOST_PASSES:,} are allowed: fewer steps, restarts or queries"
            )
        # a perturbation may bring the budget that it is meant for
        if self.within is None:
            default = getattr(self.how, "within", None)
            if default is None:
                raise BudgetError(f"{self.label} needs a budget: within=Linf(eps), L2(eps), L0(k) or Valid()")
            set_fields(self, within=default)
        if not isinstance(self.within, Budget):
            raise BudgetError(f"within must be a budget such as Linf(0.1), got {self.within!r}")
        if self.when is None:  # an adversary that was trained with a timing brings it along
            set_fields(self, when=getattr(self.how, "when", None))
        check_when(self.when)
        if self.at is None:  # and one on the dynamics the parameters that it changes
            set_fields(self, at=getattr(self.how, "at", None))
        if isinstance(self.at, list):
            set_fields(self, at=tuple(self.at))
        if self.at is not None and not isinstance(self.at, (str, int, tuple)):
            raise SpaceError(
                f"at must be a key, or a tuple of different keys, of a Dict or Tuple space, got {self.at!r:.80}"
            )

    @property
    def label(self) -> str:
        """Short name, for tables and for ``info``."""
        if isinstance(self.how, Perturbation):
            return self.how.label(self.within) if self.within is not None else self.how.name
        return function_name(self.how)

    @property
    def budget(self) -> Budget:
        """The budget, never None."""
        assert self.within is not None
        return self.within

    @cached_property
    def victims(self) -> list[Any]:
        """The victims that this threat looks at."""
        found: dict[int, VictimLike] = {}
        for victim in victims_in((self.how, self.when)):
            found[id(victim)] = victim
        return list(found.values())

    def against(self, victim: VictimLike | None) -> ThreatModel:
        """This threat with ``victim`` wherever one was left open, in the attack, the timing and the budget's unit."""
        if victim is not None and not hasattr(victim, "fingerprint"):
            expect_victim(self.label, victim)
        how = replace_victims(self.how, None, victim) if isinstance(self.how, Value) else self.how
        when = replace_victims(self.when, None, victim) if isinstance(self.when, Value) else self.when
        # the budget's unit is that of the victim under attack, of the keys that are attacked
        owner = next(iter(victims_in(self.how)), victim)
        keys = keys_in(self.at) if self.on == "observation" and owner is not None and owner.scales else None
        within = self.budget.resolve(owner if keys is None else cast(VictimLike, _UnitOfKeys(owner, keys)))
        if how is self.how and when is self.when and within is self.within:
            return self
        return replace(self, how=how, when=when, within=within)

    def resolve(self, victim: VictimLike | None = None) -> ThreatModel:
        """This threat as it is applied: what is left open takes ``victim``, or the one that the rest of it has."""
        if victim is None and self.victims:
            victim = self.victims[0]
        return self.against(victim)

    @staticmethod
    def from_dict(data: Mapping[str, Any], victims: Victims | None = None) -> ThreatModel:
        """Inverse of ``to_dict``.

        Args:
            data: the dictionary.
            victims: victims by reference or by hash, or what loads them by reference: ``adv.load_victim``. A threat
                without victims needs none.

        Raises:
            ThreatError: for a dictionary that is not a threat's.
            VictimError: for a victim that ``victims`` does not give, or that has changed.
        """
        threat = decode(data, victims)
        if not isinstance(threat, ThreatModel):
            raise ThreatError(f"expected the dictionary of a threat, got {type(threat).__name__} from {data!r:.80}")
        return threat

    def check(self, observation_space: Space, action_space: Space, parameters: ParameterSpace | None = None) -> Field:
        """The field this threat perturbs in an environment with these spaces; raises if it cannot.

        Args:
            observation_space, action_space: the environment's.
            parameters: those of its dynamics, where they can be changed.
        """
        # the part that is attacked: parameters of the dynamics, or a part of a space
        budget = self.budget
        if self.on == "dynamics":
            if parameters is None:
                raise SpaceError(f"{self.label} changes the dynamics, and nothing here can: use PerturbDynamics")
            places = parameters.places(self.at)
            field = Field(parameters.box(places), None, self.on)
            _check_range(budget, parameters, places)
        else:
            space = {"observation": observation_space, "action": action_space, "reward": REWARDS}[self.on]
            field = Field(space, self.at, self.on)
        # the budget has to mean something for it, and the perturbation to work on it
        if field.discrete and budget.measured:
            raise BudgetError(
                f"discrete {self.on}s have no distance: use Valid() or L0(k), not {budget!r}; texts say so by "
                f"'noise:norm=valid' or 'noise:eps=1,norm=l0'"
            )
        budget.check(field.low, field.high, field.grid)
        # a budget on transitions needs the actions between observations
        if isinstance(budget, Plausible):
            if self.on != "observation":
                raise BudgetError(f"Plausible is for observations, and this threat is on the {self.on}")
            budget.check_actions(action_space)
        # what the perturbation itself asks for
        if isinstance(self.how, Perturbation):
            if self.how.needs_victim and getattr(self.how, "victim", None) is None:
                raise VictimError(
                    f"{self.label} needs a victim: give victim=zoo:NAME in the text, or in Python a victim to "
                    f"{type(self.how).__name__} or wrap"
                )
            self.how.check(field, budget)
        for victim in self.victims:
            fits(victim, observation_space, action_space)
        return field


class _UnitOfKeys:
    """A victim's own unit of some keys of a Dict, side by side; the keys that have none make all of it None."""

    def __init__(self, victim: VictimLike | None, keys: tuple[Key, ...]) -> None:
        self.scales: Mapping[str, Tensor] = {} if victim is None else victim.scales
        units = [self.scales.get(str(key)) for key in keys]
        known = [unit.double().reshape(-1) for unit in units if unit is not None]
        self.scale = torch.cat(known) if len(known) == len(keys) else None


def _check_range(budget: Budget, parameters: ParameterSpace, places: NDArray[np.intp]) -> None:
    """Raise :class:`BudgetError` where a budget around the nominal values holds some that no simulator does."""
    if isinstance(budget, Newest):
        raise BudgetError(f"the budget {budget!r:.80} is for stacks of frames: physical parameters are none")
    # the box of the budget around the nominal values, without bounds of a space that would cut it
    nominal = torch.from_numpy(parameters.nominal[places])[None]
    budget.check(parameters.low[places], parameters.high[places], False)
    budget = budget.frame
    low, high = (side[0].numpy() for side in budget.box(nominal, *(torch.full_like(nominal, s) for s in _ENDLESS)))
    for place, least, most in zip(places.tolist(), low.tolist(), high.tolist(), strict=True):
        lowest, highest = float(parameters.low[place]), float(parameters.high[place])
        if (math.isfinite(least) and least < lowest) or (math.isfinite(most) and most > highest):
            raise BudgetError(
                f"{parameters.name_of(place)} must stay within [{lowest:g}, {highest:g}], where it is "
                f"{parameters.nominal[place]:g} in the environment itself; {budget!r:.80} allows "
                f"[{least:g}, {most:g}]"
            )


_ENDLESS = (-math.inf, math.inf)
