"""What an agent sees in clean episodes: the range of every feature, in which budgets of a report are counted."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from adv_wrappers.core.spaces import At, Field, Key, keys_in, leaf_keys
from adv_wrappers.core.types import Array, Space
from adv_wrappers.environments.checked import is_limited
from adv_wrappers.environments.dmc import feature_names
from adv_wrappers.environments.environment import Environment
from adv_wrappers.errors import SpaceError, ValueRangeError
from adv_wrappers.studies.report.choices import FeatureSpread
from adv_wrappers.utils.deadline import NEVER, Deadline, OutOfTime
from adv_wrappers.utils.threads import one_thread
from adv_wrappers.victims.policy_runner import PolicyRunner
from adv_wrappers.victims.victim import Victim
from adv_wrappers.wrappers.layer import AnyEnv

MOST_STEPS = 10_000  # of clean episodes, whose observations are looked at
_OUTSIDE = 0.025  # share of the observations left out at either end of a range

_NAMES: dict[str, tuple[str, ...]] = {  # of observations, as Gymnasium's documentation has them
    "CartPole": ("cart position", "cart velocity", "pole angle", "pole angular velocity"),
    "MountainCar": ("position", "velocity"),
    "MountainCarContinuous": ("position", "velocity"),
    "Pendulum": ("cos(angle)", "sin(angle)", "angular velocity"),
    "Acrobot": (
        "cos(angle 1)", "sin(angle 1)", "cos(angle 2)", "sin(angle 2)", "angular velocity 1", "angular velocity 2",
    ),
    "LunarLander": (
        "horizontal position", "vertical position", "horizontal velocity", "vertical velocity", "angle",
        "angular velocity", "left leg touches", "right leg touches",
    ),
}  # fmt: skip


@dataclass(frozen=True)
class ObservationRanges:
    """The ranges of what an agent saw in a part of its observations: all of it, or keys under one budget.

    Attributes:
        features: the name, range and deviation of each, of choices the names of the entries alone; None for images,
            whose unit is the grey level or the pixel's own.
        seconds: wall clock of a step of one environment without an attack.
        length: the mean length of the episodes.
        image: whether they are images.
        levels: of images, the size of the range of a pixel in its own unit (255 for uint8).
        at: the key or keys of a Dict or Tuple space; None for a whole observation.
        grid: whether they are integers.
        choices: of how many values each entry is one (Discrete, MultiDiscrete, MultiBinary); None where values have
            distances.
        others: the other parts of the observations.
        unfit: what no attack can change, in sentences.
    """

    features: tuple[FeatureSpread, ...] | None
    seconds: float
    length: float
    image: bool
    levels: float
    at: At = None
    grid: bool = False
    choices: tuple[int, ...] | None = None
    others: tuple[ObservationRanges, ...] = ()
    unfit: tuple[str, ...] = ()

    @property
    def scale(self) -> tuple[float, ...] | None:
        """What an eps of 1 is, feature by feature: the whole range; 0 for a feature that never changed.

        None for images, whose eps is in the unit of their pixels, and for choices, which have none.
        """
        if self.features is None or self.choices:
            return None
        return tuple(float(f"{(one.high or 0.0) - (one.low or 0.0):.4g}") for one in self.features)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the features or entries; none of images."""
        return tuple(one.name for one in self.features or ())

    @property
    def whole(self) -> bool:
        """Whether an eps is a whole number of grey levels."""
        return self.image and self.grid

    @property
    def least_eps(self) -> float:
        """The least eps that changes anything: one level of the integer with the widest range; 0 for floats."""
        scale = self.scale
        return (1 + 1e-9) / max(scale) if self.grid and scale and max(scale) > 0 else 0.0

    @property
    def words(self) -> str:
        """What it is of an observation, by its keys."""
        return "what the agent sees" if self.at is None else ", ".join(map(str, keys_in(self.at) or ()))


def observed_ranges(
    victim: Victim,
    environment: Environment,
    seeds: Sequence[int],
    enough: Deadline = NEVER,
    until: Deadline = NEVER,
) -> ObservationRanges:
    """Play clean episodes, and take the ranges of what the agent sees in them.

    Of a Dict or Tuple, numbers of one dtype are a part together, choices of one dtype likewise, and every image is one
    alone. What is returned is the part that budgets are best chosen for (numbers, else images, else choices); the rest
    are its ``others``.

    Args:
        victim: the agent.
        environment: how its environment is made.
        seeds: of the episodes, of which as many are played as there are steps and time for, at least one.
        enough: after which no other episode begins.
        until: when an episode ends in its middle, and with it all.

    Raises:
        OutOfTime: where that is before the end of the first episode; it says how far that came.
        SpaceError: for observations of which nothing can be changed.
        ValueRangeError: for observations that are not finite.
    """
    with closing(environment.make_one()) as env, one_thread():
        fields, unfit = parts_of(env.observation_space)
        runner = PolicyRunner(victim, 1)
        lengths = list[int]()
        steps = 0
        seen: list[list[Array]] = [[] for _ in fields]
        began = time.perf_counter()
        for seed in seeds:
            # episodes until there are enough steps, or the time is over
            whole, length = _play(env, runner, int(seed), fields, seen, MOST_STEPS - steps, until)
            steps, lengths = steps + length, [*lengths, length] if whole else lengths
            each = (time.perf_counter() - began) / steps
            if not lengths:
                raise OutOfTime(f"the first episode was not over after {steps} steps of about {each:.2g} s")
            if not whole or steps >= MOST_STEPS or enough.passed:
                break
        clean = each, float(np.mean(lengths))
        first, *others = [_ranges(env, field, values, clean) for field, values in zip(fields, seen, strict=True)]
    return replace(first, others=tuple(others), unfit=unfit)


def parts_of(space: Space) -> tuple[list[Field], tuple[str, ...]]:
    """The parts of observations that one budget can hold each, and why the rest can not be changed.

    The first is of floats, else of integers, images or choices; of parts of one kind, that with the most elements.

    Raises:
        SpaceError: where there is none.

    >>> seen = spaces.Dict(speed=spaces.Box(-1, 1, (2,)), goal=spaces.Box(-1, 1, ()), room=spaces.Discrete(4))
    >>> [field.at for field in parts_of(seen)[0]]
    [('goal', 'speed'), 'room']
    """
    keys, unfit = dict[tuple[object, ...], list[Key | None]](), list[str]()
    for key in leaf_keys(space):
        try:
            field = Field(space, key, "observation")
        except SpaceError as error:
            unfit.append(f"Left as it is: {error}.")
            continue
        # leaves of one kind and dtype are one part, every image one alone
        alone = key if _is_image(field) else None
        keys.setdefault((field.discrete, field.dtype, alone), []).append(key)
    if not keys:
        raise SpaceError(f"a report needs observations that an attack can change: {' '.join(unfit)}")
    places = [named[0] if len(named) == 1 else tuple(named) for named in keys.values()]
    fields = [Field(space, place, "observation") for place in places]  # type: ignore[arg-type]  # of several, keys
    fields.sort(key=lambda field: (field.discrete, _is_image(field), field.grid, -field.low.size))
    return fields, tuple(unfit)


def _is_image(field: Field) -> bool:
    return len(field.shape) > 1 and not field.discrete


def _ranges(env: AnyEnv, field: Field, seen: Sequence[Array], clean: tuple[float, float]) -> ObservationRanges:
    """The ranges of one part; ``clean`` are the seconds of a step, and the length of an episode."""
    # images and choices have no ranges by feature
    if _is_image(field):
        levels = float(np.max(field.high)) - float(np.min(field.low))
        levels = levels if np.isfinite(levels) else float(np.ptp(np.stack(seen[:: max(len(seen) // 200, 1)])))
        return ObservationRanges(None, *clean, True, levels, field.at, field.grid)
    names = names_of_features(env, field.low.size) if field.at is None else _names_by_keys(field)
    if field.discrete:
        return ObservationRanges(tuple(map(FeatureSpread, names)), *clean, False, 1.0, field.at, True, field.choices)
    # quantiles, or the ends of features that hardly ever change
    values = np.stack(seen).reshape(len(seen), -1).astype(np.float64)
    if not np.isfinite(values).all():
        raise ValueRangeError("the environment returned observations that are not finite")
    low, high = np.quantile(values, [_OUTSIDE, 1 - _OUTSIDE], axis=0)
    few = high == low  # changed too rarely for its quantiles, if ever
    low, high = np.where(few, values.min(0), low), np.where(few, values.max(0), high)
    features = map(FeatureSpread, names, low.tolist(), high.tolist(), values.std(0).tolist())
    return ObservationRanges(tuple(features), *clean, False, 1.0, field.at, field.grid)


def _play(
    env: AnyEnv,
    runner: PolicyRunner,
    seed: int,
    fields: Sequence[Field],
    seen: Sequence[list[Array]],
    most: int,
    until: Deadline,
) -> tuple[bool, int]:
    """One clean episode of at most so many steps, whose observations are added to ``seen``.

    Returns:
        Whether it was played before ``until``, and its length.
    """
    for step, (obs, over) in enumerate(runner.episode(env, seed)):
        # an episode that nothing limits goes on until its end, or the error that it has none
        if over or (step >= most and is_limited(env)):
            return True, step
        if step and until.passed:
            return False, step
        # what is seen before it acts
        for field, values in zip(fields, seen, strict=True):
            if not field.discrete and not (_is_image(field) and field.bounded):  # of these nothing is measured
                values.append(np.array(field.take(obs, batched=False)[0]))
    raise AssertionError


def _names_by_keys(field: Field) -> tuple[str, ...]:
    """The names of the numbers of some keys, in their order: the key, with a number where it has several."""
    found = list[str]()
    for key, leaf in zip(field.keys or (), field.leaves, strict=True):
        size = int(np.prod(leaf.shape or ()))
        found += [str(key)] if size == 1 else [f"{key} {i}" for i in range(size)]
    return tuple(found)


def names_of_features(env: AnyEnv, count: int) -> tuple[str, ...]:
    """The names of an observation's numbers, where they are known; else ``feature 0`` and so on."""
    base = (env.spec.id if env.spec else "").partition("-v")[0]
    base = base.removesuffix("Continuous") if base.startswith("LunarLander") else base
    found = tuple(feature_names(env) or _NAMES.get(base) or _names_by_joints(env))
    return found if len(found) == count else tuple(f"feature {i}" for i in range(count))


def _names_by_joints(env: AnyEnv) -> list[str]:
    """Names for tasks of MuJoCo whose observation is positions, then velocities, of the model's joints; else none."""
    with contextlib.suppress(AttributeError, KeyError, TypeError, IndexError):
        base: Any = env.unwrapped
        model, structure = base.model, base.observation_structure
        positions, velocities = list[str](), list[str]()
        # a joint has as many positions and velocities as its type
        for joint in map(model.joint, range(model.njnt)):
            sizes = {0: (7, 6), 1: (4, 3)}.get(int(joint.type[0]), (1, 1))  # free, ball; else one number
            for kept, size in zip((positions, velocities), sizes, strict=True):
                kept += [joint.name] if size == 1 else [f"{joint.name} {n}" for n in range(size)]
        # an observation may leave out the first positions, and has to be as long as these names
        shown = positions[len(positions) - int(structure["qpos"]) :]
        names = [f"position of {name}" for name in shown] + [f"velocity of {name}" for name in velocities]
        if len(names) == sum(int(v) for k, v in structure.items() if k != "skipped_qpos"):
            return names
    return []
