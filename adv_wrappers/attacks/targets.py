"""What a planned attack drives an agent to: a loss of states, which is least where the attacker wants them.

Weng et al. 2020 (equations 3 and 4) sum ``d(s, s_target)``, the squared distance of a part of the observation from an
unsafe state, over the steps of a plan, and over an episode to compare attacks (their "total loss"). :data:`TARGETS` has
the paper's: the pole of cartpole hangs (4 a step upright), the torso of walker and the head of humanoid are on the
floor, fish has no projection on the vertical.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from adv_wrappers.core.serialization import Value
from adv_wrappers.errors import ThreatError, ValueRangeError, VictimError
from adv_wrappers.utils.checks import finite_float, is_integer
from adv_wrappers.utils.frozen import set_fields
from adv_wrappers.victims.victim import Victim


class Target(Value):
    """A loss of states: ``(observations [..., n], rewards [...]) -> [...]``, lower where the attacker wants them."""

    def __call__(self, obs: Tensor, reward: Tensor) -> Tensor:
        """The loss of true observations, in the units of the environment, and of the rewards that came with them."""
        raise NotImplementedError

    @property
    def has_names(self) -> bool:
        """Whether features are given by names, which :meth:`named` replaces."""
        return False

    def named(self, names: Sequence[str], features: int) -> Target:
        """The target with numbers instead of names.

        Args:
            names: of the features; none where the environment has none.
            features: how many numbers an observation has.

        Raises:
            ValueRangeError: for a feature that an observation does not have.
        """
        return self


@dataclass(frozen=True)
class Reach(Target):
    """The squared distance of some features from values: ``sum w (o - v)^2``.

    Args:
        indices: numbers of the features, or their names.
        values: where they are driven to, one each.
        weights: one each; None for ones.

    Raises:
        ValueRangeError: for lists of different lengths, and values or weights that are not finite numbers.
    """

    name: ClassVar[str] = "reach"
    indices: tuple[int | str, ...]
    values: tuple[float, ...]
    weights: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        for name in ("indices", "values", "weights"):
            given = getattr(self, name)
            if given is not None and not isinstance(given, tuple):
                set_fields(self, **{name: tuple(given) if isinstance(given, list) else (given,)})
        weights = self.weights or (1.0,) * len(self.indices)
        if not self.indices or not len(self.indices) == len(self.values) == len(weights):
            raise ValueRangeError(
                f"reach needs one value (and weight) a feature, got indices {self.indices}, values {self.values}, "
                f"weights {self.weights}"
            )
        if any(finite_float(number) is None for number in (*self.values, *weights)):
            raise ValueRangeError(f"values and weights of a target must be finite, got {self.values}, {self.weights}")

    @property
    def has_names(self) -> bool:
        return any(isinstance(index, str) for index in self.indices)

    def named(self, names: Sequence[str], features: int) -> Reach:
        found = tuple(index_of(index, names, features) for index in self.indices)
        return Reach(found, self.values, self.weights)

    def __call__(self, obs: Tensor, reward: Tensor) -> Tensor:
        part = obs[..., list(self.indices)]
        distance = (part - part.new_tensor(self.values)).square()
        return (distance if self.weights is None else distance * part.new_tensor(self.weights)).sum(-1)


@dataclass(frozen=True)
class Fall(Target):
    """A feature itself, such as a height: the lower the better for the attacker.

    Args:
        index: number of the feature, or its name.
    """

    name: ClassVar[str] = "fall"
    index: int | str

    @property
    def has_names(self) -> bool:
        return isinstance(self.index, str)

    def named(self, names: Sequence[str], features: int) -> Fall:
        return Fall(index_of(self.index, names, features))

    def __call__(self, obs: Tensor, reward: Tensor) -> Tensor:
        return obs.select(-1, int(self.index))


@dataclass(frozen=True)
class PredictedReward(Target):
    """The reward, which is driven down; of a plan the one that the model predicts."""

    name: ClassVar[str] = "reward"

    def __call__(self, obs: Tensor, reward: Tensor) -> Tensor:
        return reward


@dataclass(frozen=True)
class VictimValue(Target):
    """The victim's own state value, which is driven down.

    Args:
        victim: with a state value; None takes the attacked one.

    Raises:
        VictimError: for a victim without one.
    """

    name: ClassVar[str] = "victim-value"
    victim: Victim | None = None

    def __post_init__(self) -> None:
        if self.victim is not None and not self.victim.has_value:
            raise VictimError(f"the target victim-value needs a state value, {self.victim!r} has none")

    def __call__(self, obs: Tensor, reward: Tensor) -> Tensor:
        assert self.victim is not None
        values = self.victim.value(obs.flatten(0, -2))
        assert values is not None
        return values.view(obs.shape[:-1])


@dataclass(frozen=True, eq=False)
class LossFunction(Target):
    """A loss that a user wrote, ``observations [..., n] -> [...]``; it has no text and no JSON form.

    Args:
        function: differentiable, for the planners that follow gradients.
    """

    name: ClassVar[str] = "loss-function"
    function: Callable[[Tensor], Tensor]

    def __call__(self, obs: Tensor, reward: Tensor) -> Tensor:
        found = self.function(obs)
        if not isinstance(found, Tensor) or found.shape != obs.shape[:-1]:
            got = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
            raise ThreatError(f"a target must return one number a state, {tuple(obs.shape[:-1])}, got {got}")
        return found


# by what the id of an environment begins with; of the suite's tasks those of Weng et al. 2020, section 4.1
TARGETS: dict[str, Target] = {
    "dm_control/cartpole": Reach(("position[1]",), (-1.0,)),  # the cosine of the pole's angle
    "dm_control/walker": Reach(("height",), (0.0,)),
    "dm_control/humanoid": Reach(("head_height",), (0.0,)),
    "dm_control/fish": Reach(("upright",), (0.0,)),
    "Hopper": Fall(0),  # the height of the torso
    "Walker2d": Fall(0),
    "HalfCheetah": Reach((1,), (torch.pi,)),  # the angle of the torso: on its back
    "Ant": Reach((1, 4), (0.0, 0.0)),  # of the torso's quaternion w and z: on its back
}  # fmt: skip
_SIMPLE: dict[str, Callable[[], Target]] = {"reward": PredictedReward, "victim-value": VictimValue}


def target_of(environment: object) -> Target | None:
    """The target of :data:`TARGETS` for an environment's id; None where there is none."""
    return next((target for start, target in TARGETS.items() if str(environment).startswith(start)), None)


TargetLike = Target | Callable[[Tensor], Tensor] | str | int


def as_target(given: TargetLike) -> Target:
    """A target, a function of observations, the number of a feature that is driven down, or a text, as a target.

    A text is ``feature=value``, several of them joined by ``&`` (``height=0``, ``0=1.5&3=0``), a feature that is driven
    down (``height``), ``reward`` or ``victim-value``.

    Raises:
        ThreatError: for anything else.
    """
    if isinstance(given, Target):
        return given
    if callable(given):
        return LossFunction(given)
    if is_integer(given):
        return Fall(given)
    # a text: one of the words, the name of a feature alone, or feature=value joined by &
    if not isinstance(given, str) or not given.strip():
        raise ThreatError(f"expected a target, a function of observations or a text such as height=0, got {given!r}")
    if given in _SIMPLE:
        return _SIMPLE[given]()
    parts = [part.strip() for part in given.split("&")]
    if len(parts) == 1 and "=" not in given:
        return Fall(_feature(given))
    # every part with its value, or the text is none
    pairs = [re.fullmatch(r"([^=]+)=([^=]+)", part) for part in parts]
    try:
        found = [(_feature(pair[1]), float(pair[2])) for pair in pairs if pair is not None]
    except ValueError as error:
        raise ThreatError(f"cannot read the target {given!r}: {error}") from error
    if len(found) != len(parts):
        raise ThreatError(f"cannot read the target {given!r}: expected feature=value, joined by &, or a feature")
    return Reach(tuple(index for index, _ in found), tuple(value for _, value in found))


def target_text(target: Target) -> str | None:
    """The text that :func:`as_target` reads; None for a target that has none."""
    if type(target) is Reach and target.weights is None:
        return "&".join(f"{index}={value!r}" for index, value in zip(target.indices, target.values, strict=True))
    if type(target) is Fall:
        return str(target.index)
    return target.name if type(target) in (PredictedReward, VictimValue) else None


def _feature(text: str) -> int | str:
    text = text.strip()
    return int(text) if re.fullmatch(r"-?\d+", text) else text


def index_of(feature: int | str, names: Sequence[str], features: int) -> int:
    """The number of a feature that is given by its number or its name.

    Raises:
        ValueRangeError: for one that an observation does not have.
    """
    if isinstance(feature, str) and feature in names:
        return list(names).index(feature)
    if is_integer(feature) and -features <= feature < features:
        return feature % features
    known = f": {', '.join(names)}" if names else ", and no names"
    raise ValueRangeError(f"an observation has no feature {feature!r}; it has {features} numbers{known}")
