"""What an agent sees in clean episodes: the range of every feature, in which budgets of a report are counted."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from adv_wrappers.agent_report.what_the_report_chose_and_why import FeatureSpread
from adv_wrappers.core.types import Array
from adv_wrappers.errors import SpaceError, ValueRangeError
from adv_wrappers.evaluation.environments import Environment
from adv_wrappers.utils.deadline import Deadline
from adv_wrappers.utils.torch_threads import one_thread
from adv_wrappers.victims.recurrent_policy_runner import PolicyRunner
from adv_wrappers.victims.victim import Victim
from adv_wrappers.wrappers.base_layer import AnyEnv
from adv_wrappers.wrappers.dmc_env import feature_names

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
    """The ranges of what an agent saw.

    Attributes:
        names: of the features; None for images, whose unit is the grey level or the pixel's own.
        low, high: of every feature, the 2.5% and the 97.5% quantile, float64 ``[n]``.
        std: of every feature, float64 ``[n]``.
        steps: the number of observations.
        seconds: wall clock of a step of one environment without an attack.
        length: the mean length of the episodes.
        image: whether observations are images.
        levels: of images, the size of the range of a pixel in its own unit (255 for uint8).
    """

    names: tuple[str, ...] | None
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    std: NDArray[np.float64]
    steps: int
    seconds: float
    length: float
    image: bool
    levels: float

    @property
    def scale(self) -> tuple[float, ...] | None:
        """What an eps of 1 is, feature by feature: the whole range; 0 for a feature that never changed.

        None for images, whose eps is in the unit of their pixels.
        """
        return None if self.image else tuple(float(f"{width:.4g}") for width in self.high - self.low)

    @property
    def spreads(self) -> tuple[FeatureSpread, ...] | None:
        """Of every feature its name, range and deviation; None for images."""
        if self.names is None:
            return None
        columns = zip(self.names, self.low.tolist(), self.high.tolist(), self.std.tolist(), strict=True)
        return tuple(FeatureSpread(*column) for column in columns)


def observed_ranges(
    victim: Victim, environment: Environment, seeds: Sequence[int], seconds: float | None = None
) -> ObservationRanges:
    """Play clean episodes, and take the ranges of what the agent sees in them.

    Args:
        victim: the agent, which sees one array.
        environment: how its environment is made.
        seeds: of the episodes, of which as many are played as there are steps and time for, at least one.
        seconds: after which no other episode begins; None for no limit.

    Raises:
        SpaceError: for observations that are no single array of numbers.
        ValueRangeError: for observations that are not finite.
    """
    deadline = Deadline(seconds)
    with closing(environment.make_one()) as env, one_thread():
        space = env.observation_space
        if not isinstance(space, spaces.Box):
            raise SpaceError(
                f"a report chooses budgets for observations that are one Box, this environment has {space}"
            )
        runner, seen, lengths = PolicyRunner(victim, 1), list[Array](), list[int]()
        began = time.perf_counter()
        for seed in seeds:
            seen_before = len(seen)
            _play(env, runner, int(seed), seen)
            lengths.append(len(seen) - seen_before)
            if len(seen) >= MOST_STEPS or deadline.passed:
                break
        took = (time.perf_counter() - began) / len(seen)
        image = len(space.shape) > 1
        names = None if image else names_of_features(env, int(np.prod(space.shape)))
        if image:
            levels = float(np.max(space.high)) - float(np.min(space.low))
            levels = levels if np.isfinite(levels) else float(np.ptp(np.stack(seen[:: max(len(seen) // 200, 1)])))
            empty = np.zeros(0)
            return ObservationRanges(None, empty, empty, empty, len(seen), took, float(np.mean(lengths)), True, levels)
    values = np.stack(seen).reshape(len(seen), -1).astype(np.float64)
    if not np.isfinite(values).all():
        raise ValueRangeError("the environment returned observations that are not finite")
    low, high = np.quantile(values, [_OUTSIDE, 1 - _OUTSIDE], axis=0)
    few = high == low  # changed too rarely for its quantiles, if ever
    low, high = np.where(few, values.min(0), low), np.where(few, values.max(0), high)
    return ObservationRanges(names, low, high, values.std(0), len(seen), took, float(np.mean(lengths)), False, 1.0)


def _play(env: AnyEnv, runner: PolicyRunner, seed: int, seen: list[Array]) -> None:
    """One clean episode, whose observations are added to ``seen``."""
    obs, _ = env.reset(seed=seed)
    runner.reset(None, [seed])
    while True:
        seen.append(np.array(obs))
        action = runner.act_one(obs)
        obs, _, terminated, truncated, _ = env.step(action)
        if terminated or truncated or len(seen) >= MOST_STEPS:
            return


def names_of_features(env: AnyEnv, count: int) -> tuple[str, ...]:
    """The names of an observation's numbers, where they are known; else ``feature 0`` and so on."""
    found = feature_names(env)
    if not found:
        base = (env.spec.id if env.spec else "").partition("-v")[0]
        found = _NAMES.get(base.removesuffix("Continuous") if base.startswith("LunarLander") else base, ())
    if not found:
        found = _names_by_joints(env)
    return tuple(found) if len(found) == count else tuple(f"feature {i}" for i in range(count))


def _names_by_joints(env: AnyEnv) -> tuple[str, ...]:
    """Names for tasks of MuJoCo whose observation is positions, then velocities, of the model's joints."""
    names = list[str]()
    with contextlib.suppress(AttributeError, KeyError, TypeError, IndexError):
        base: Any = env.unwrapped
        model, structure = base.model, base.observation_structure
        positions, velocities = list[str](), list[str]()
        for i in range(model.njnt):
            joint = model.joint(i)
            sizes = {0: (7, 6), 1: (4, 3)}.get(int(joint.type[0]), (1, 1))  # free, ball; else one number
            for kept, size in zip((positions, velocities), sizes, strict=True):
                kept += [joint.name] if size == 1 else [f"{joint.name} {n}" for n in range(size)]
        skipped = len(positions) - int(structure["qpos"])
        names = [f"position of {name}" for name in positions[skipped:]] + [f"velocity of {n}" for n in velocities]
        if len(names) != sum(int(v) for k, v in structure.items() if k != "skipped_qpos"):
            return ()
    return tuple(names)
