"""Threat models: frozen values that name what is attacked, how, how far, when and where."""

from __future__ import annotations

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
from adv_wrappers.core.budgets import Budget, Linf
from adv_wrappers.core.context import Context
from adv_wrappers.core.frame_stack import Newest, frame_budget
from adv_wrappers.core.parameter_space import ParameterSpace
from adv_wrappers.core.perturbation import (
    MOST_PASSES,
    How,
    On,
    Perturbation,
    When,
    check_how,
    check_when,
    function_name,
)
from adv_wrappers.core.plausible import Plausible
from adv_wrappers.core.spaces import At, Field, Key, keys_in
from adv_wrappers.core.types import Space, VictimLike
from adv_wrappers.core.value import Value, Victims, decode
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
                f"{turned(own, other) or _elsewhere(victim, environment, stacked(own, other))}{_made(victim)}"
            )


def _elsewhere(victim: VictimLike, environment: str | None, stack: str) -> str:
    """The environments of a victim and of what it does not fit, as far as they have names, and what to do.

    ``stack`` is advice for the environment of the victim itself.
    """
    about = (getattr(victim, "card", None) or {}).get("environment")
    own = about.get("id") if isinstance(about, dict) else None
    if stack and (own is None or environment in (None, own)):
        return stack
    if environment is None:
        return "" if own is None else f". It is an agent for {own}: play it there"
    if own == environment:
        return f". Both are {environment}, made with other arguments or wrappers"
    if own is not None:
        return f". It is an agent for {own}, and this is {environment}: play it in {own}, or take one for {environment}"
    return f". This is {environment}: play it in the environment that it was trained in, or take one for {environment}"


def _made(victim: VictimLike) -> str:
    """How the card of a victim says that its environment is made, where that takes keyword arguments."""
    about = (getattr(victim, "card", None) or {}).get("environment")
    kwargs = about.get("kwargs") if isinstance(about, dict) else None
    if not isinstance(about, dict) or not isinstance(kwargs, dict) or not kwargs:
        return ""
    words = ", ".join(f"{key}={value!r}" for key, value in kwargs.items())
    return f". Its card says how its own is made: gymnasium.make({about.get('id')!r}, {words})"


def turned(own: Space, other: Space) -> str:
    """What to do where images, also those in a Dict or Tuple, differ in the order of their axes alone."""
    found = _turned(own, other, "x", "env.observation_space")
    if found is None:
        return ""
    value, space, first = found
    layer = "stable_baselines3.common.vec_env.VecTransposeImage(venv), or in " if first else ""
    return (
        f": the channels of the victim's images come {'first' if first else 'last'}. Wrap the environment in {layer}"
        f"gymnasium.wrappers.TransformObservation(env, lambda x: {value}, {space})"
    )


_STACK = "gymnasium.wrappers.FrameStackObservation(env, {}, padding_type='zero')"


def stacked(own: Space, other: Space) -> str:
    """What to do where a victim takes several observations at once, as behind ``VecFrameStack``."""
    if isinstance(own, spaces.Dict) and isinstance(other, spaces.Dict):
        pairs = [(leaf, other.spaces.get(key)) for key, leaf in own.spaces.items()]
        found = {_frames(leaf.shape or (), (o.shape or ()) if o is not None else ()) for leaf, o in pairs}
        frames, way = found.pop() if len(found) == 1 else (1, "")
        joined = way.replace("x", "part")
        way = f"{{key: {joined} for key, part in x.items()}}" if way else ""
    else:
        frames, way = _frames(own.shape or (), other.shape or ())
    if frames == 1:
        return ""
    stack = _STACK.format(frames)
    if way:
        stack = f"gymnasium.wrappers.TransformObservation({stack}, lambda x: {way}, victim.observation_space)"
    return (
        f": the victim takes {frames} observations at once, a stack of frames. Wrap the environment in {stack}; frames "
        "before the first are zero for agents behind VecFrameStack of Stable-Baselines3"
    )


def _frames(own: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, str]:
    """How many observations of a shape another one holds, 1 for none, and what makes it of a stack ``[frames, *S]``."""
    if len(own) == len(other) + 1:  # along an axis of their own, the first or the last
        if own[1:] == other:
            return own[0], ""
        return (own[-1], "numpy.moveaxis(x, 0, -1)") if own[:-1] == other and other else (1, "")
    if len(own) != len(other) or not own:
        return 1, ""
    ways = {"numpy.concatenate(x, -1)": other}  # as VecFrameStack joins vectors, and images with channels last
    if len(own) == 3:
        first, middle, last = other
        ways |= {
            "numpy.concatenate(x, 0)": (first, middle, last),
            f"x.transpose(0, 3, 1, 2).reshape({own})": (last, first, middle),
            f"x.transpose(2, 3, 0, 1).reshape({own})": (middle, last, first),
        }
    for way, shape in ways.items():
        along = 0 if way in ("numpy.concatenate(x, 0)", f"x.transpose(0, 3, 1, 2).reshape({own})") else len(own) - 1
        others = [i for i in range(len(own)) if i != along]
        frames, rest = divmod(own[along], shape[along]) if shape[along] else (1, 1)
        if frames > 1 and rest == 0 and all(own[i] == shape[i] for i in others):
            return frames, way
    return 1, ""


def _turned(own: Space, other: Space, value: str, space: str) -> tuple[str, str, bool] | None:
    """Code that makes an observation, and its space, of the expressions of another one; whether channels come first.

    None where nothing differs in the order of its axes alone.
    """
    if isinstance(own, spaces.Dict) and isinstance(other, spaces.Dict):
        keys: list[Any] = [key for key in own.spaces if key in other.spaces]
    elif isinstance(own, spaces.Tuple) and isinstance(other, spaces.Tuple):
        keys = [*range(min(len(own.spaces), len(other.spaces)))]
    else:
        a, b = own.shape or (), other.shape or ()
        if len(a) != 3 or len(b) != 3 or a == b or a not in ((b[2], b[0], b[1]), (b[1], b[2], b[0])):
            return None
        first = a == (b[2], b[0], b[1])
        low, high = (own.low.min(), own.high.max()) if isinstance(own, spaces.Box) else (0, 255)
        box = f"gymnasium.spaces.Box({low}, {high}, {a}, '{own.dtype}')"
        return f"{value}.transpose({'2, 0, 1' if first else '1, 2, 0'})", box, first
    inside = {key: _turned(own[key], other[key], f"{value}[{key!r}]", f"{space}[{key!r}]") for key in keys}
    found = {key: one for key, one in inside.items() if one is not None}
    if not found:
        return None
    first = next(iter(found.values()))[2]
    if isinstance(own, spaces.Dict):
        values = "".join(f", {key!r}: {one[0]}" for key, one in found.items())
        parts = "".join(f", {key!r}: {one[1]}" for key, one in found.items())
        return f"{{**{value}{values}}}", f"gymnasium.spaces.Dict({{**{space}.spaces{parts}}})", first
    values = ", ".join(one[0] if one else f"{value}[{key!r}]" for key, one in inside.items())
    parts = ", ".join(one[1] if one else f"{space}[{key!r}]" for key, one in inside.items())
    return f"({values},)", f"gymnasium.spaces.Tuple([{parts}])", first


def expect_victim(label: str, victim: object) -> None:
    """Raise :class:`VictimError` unless this is a victim, or None for one that is still open."""
    if victim is not None and not hasattr(victim, "fingerprint"):
        raise VictimError(
            f"{label} expects a victim, made by load_victim, from_module or from_sb3, got {type(victim).__name__}"
        )


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
        if field.discrete and budget.name in ("linf", "l2", "sparse", "newest", "coupled", "plausible"):
            raise BudgetError(
                f"discrete {self.on}s have no distance: use Valid() or L0(k), not {budget!r}; texts say so by "
                f"'noise:norm=valid' or 'noise:eps=1,norm=l0'"
            )
        budget.check(field.low, field.high, field.grid)
        if isinstance(budget, Plausible):
            if self.on != "observation":
                raise BudgetError(f"Plausible is for observations, and this threat is on the {self.on}")
            budget.check_actions(action_space)
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
    nominal = torch.from_numpy(parameters.nominal[places])[None]
    budget.check(parameters.low[places], parameters.high[places], False)
    budget = frame_budget(budget)
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
