"""The table of disturbances of a robot, and what is known of the robot, by which they are chosen.

Each is a threat of one magnitude in its own unit, from nothing to the largest that is sensible for the robot. What an
environment does not offer is left out with the reason.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from adv_wrappers.environments.physical_parameters import PhysicalParameters, parameters_of
from adv_wrappers.errors import AdvWrappersError, SpaceError, ValueRangeError
from adv_wrappers.wrappers.layer import AnyEnv
from adv_wrappers.wrappers.wrap import wrap

_USUAL_STEP, _USUAL_LENGTH = 0.02, 500  # seconds, and steps of an episode, where the environment does not say them
_GRAVITY = 9.81

# sensors by the names that an environment gives them: what they are, their unit, and how far off each may be
_SENSORS = {
    "velocity": ("velocity estimate", "m/s", 2.0), "gyro": ("gyroscope", "rad/s", 3.0),
    "gravity": ("gravity direction of the IMU", "g", 1.0), "joints": ("joint encoders", "rad", 1.0),
    "joint_speeds": ("joint speeds", "rad/s", 20.0), "command": ("command", "m/s", 1.0),
}  # fmt: skip


@dataclass(frozen=True)
class Disturbance:
    """One kind of disturbance.

    Attributes:
        name, unit: in words.
        most: the largest magnitude that is sensible.
        text: the threat, with ``{m}`` for the magnitude, ``{share}`` for a hundredth of it, ``{left}`` for one less
            that share, and ``{more}`` for one and that share.
        step: seconds of a step where magnitudes are whole steps, else None.
        last: whether it is played after all others.
    """

    name: str
    unit: str
    most: float
    text: str
    step: float | None = None
    last: bool = False

    def threat(self, m: float) -> str:
        """The threat of a magnitude."""
        numbers = {"m": m, "share": m / 100, "left": 1 - m / 100, "more": 1 + m / 100}
        return self.text.format(**{name: f"{value:.6g}" for name, value in numbers.items()})

    def size(self, m: float) -> str:
        """A magnitude in words."""
        if self.step is not None:
            return f"{m:g} step{'s' if m != 1 else ''} ({1000 * m * self.step:.0f} ms)"
        return f"{m:.3g}{'' if self.unit == '%' else ' '}{self.unit}"

    def said(self, m: float) -> str:
        """The disturbance at a magnitude, within a sentence."""
        completes = self.name.endswith((" by", " for", " up to"))
        return f"{self.name} {self.size(m)}" if completes else f"{self.name} ({self.size(m)})"


@dataclass(frozen=True)
class Robot:
    """What the table of disturbances goes by.

    Attributes:
        step: seconds of a step of the environment.
        length: steps of an episode.
        mass: of the robot, kilograms.
        body: what is pushed and loaded.
        joints: those that may drag.
        features: numbers of an observation.
        sensors: by name, the first and the end of their numbers in an observation, and its factor.
        weaker, stiffness: the parameters of the strength of actuators and of the controller's stiffness, or "".
    """

    step: float
    length: int
    mass: float
    body: str
    joints: Sequence[str]
    features: int
    sensors: Mapping[str, tuple[int, int, float]]
    weaker: str
    stiffness: str


def disturbances(robot: Robot) -> list[Disturbance]:
    """The table, in the order in which they are played."""
    # what is sensible for this robot: magnitudes by its weight, times by its step
    two, tenth = (max(round(seconds / robot.step), 1) for seconds in (2, 0.1))
    weight, torque = robot.mass * _GRAVITY, robot.mass * _GRAVITY / 2  # N; N m: of half a metre
    fixed, push = "fixed-dynamics:at=", f"when=every({two},{2 * tenth},{two - 2 * tenth})"
    ways = {"forward": "{m};0;0", "backward": "-{m};0;0", "left": "0;{m};0", "right": "0;-{m};0"}
    rows: list[tuple[Any, ...]] = [
        *((f"push {way} for 0.2 s every 2 s", "N", 2 * weight, f"{fixed}force.{robot.body},values={xyz},{push}")
          for way, xyz in ways.items()),
        (f"load on {robot.body}", "kg", 2 * robot.mass, f"{fixed}load.{robot.body},values={{m}}"),
        ("actions late by", "steps", 2 * tenth, "action-delay:steps={m}", robot.step),
        ("observations late by", "steps", 2 * tenth, "observation-delay:steps={m}", robot.step),
        ("observations late by 0 up to", "steps", 2 * tenth, "observation-jitter:most={m}", robot.step),
        ("lost actions", "%", 95.0, "action-loss:rate={share}"),
        ("lost observations", "%", 95.0, "observation-loss:rate={share}"),
        ("observations that stop after 2 s for", "steps", two,
         f"stuck-sensor:when=~window(0,{two})&atmost({{m}})", robot.step),
        ("less friction of the ground", "%", 99.0, f"{fixed}friction,values={{left}}"),
        ("slope uphill", "degrees", 30.0, f"{fixed}slope,values={{m}};0"),
        ("slope downhill", "degrees", 30.0, f"{fixed}slope,values=-{{m}};0"),
        ("slope to the side", "degrees", 30.0, f"{fixed}slope,values=0;{{m}}"),
        ("drag in every joint", "N m", torque / 4, f"{fixed}frictionloss,values={{m}}"),
    ]  # fmt: skip
    # what not every robot has: limits and gains of its own, sensors, joints
    if robot.weaker:
        rows.append(("weaker actuators by", "%", 100.0, f"{fixed}{robot.weaker},values={{left}}"))
    if robot.stiffness:
        rows.append(("softer controller by", "%", 100.0, f"{fixed}{robot.stiffness},values={{left}}"))
        rows.append(("stiffer controller by", "%", 200.0, f"{fixed}{robot.stiffness},values={{more}}"))
    for sensor, (first, end, factor) in robot.sensors.items():
        what, unit, most = _SENSORS[sensor]
        scale = ";".join(f"{factor:g}" if first <= i < end else "0" for i in range(robot.features))
        rows.append((f"{what} off by", unit, most, f"sensor-bias:eps={{m}},scale={scale}"))
        if sensor != "command":
            rows.append((f"noise of {what}", unit, most, f"noise:eps={{m}},scale={scale}"))
        if sensor in ("gyro", "gravity", "velocity"):
            drift = f"sensor-drift:steps={robot.length},eps={{m}},scale={scale}"
            rows.append((f"drift of {what} up to", unit, most, drift))
    for joint in robot.joints:
        rows.append((f"drag in {joint} alone", "N m", torque, f"{fixed}frictionloss.{joint},values={{m}}", None, True))
    return [Disturbance(*row) for row in rows]


def robot_of(env: AnyEnv, sensors: Mapping[str, Any] | None, body: str | None) -> Robot:
    """What there is to know of a robot before anything is played."""
    inner: Any = env.unwrapped
    known: PhysicalParameters | None = None
    try:
        known = parameters_of(env)
    except SpaceError:  # what needs parameters is left out, with this very reason
        if getattr(inner, "physical_parameters", None):  # but a list of its own that is wrong is a mistake
            raise
    # what its parameters tell: bodies, joints, a controller with gains
    names, servos = () if known is None else known.space.names, known is not None and known.servos
    parts = {
        group: [n.partition(".")[2] for n in names if n.startswith(f"{group}.")] for group in ("load", "frictionloss")
    }
    controller = [name for name in names if name.startswith("controller.stiffness")]
    if body is not None and body not in parts["load"]:
        raise ValueRangeError(
            f"there is no body {body!r} to push and load: {', '.join(parts['load']) or 'none is known'}"
        )
    [features, *_] = env.observation_space.shape or (0,)
    return Robot(
        step=float(getattr(inner, "dt", None) or 1 / env.metadata.get("render_fps", 1 / _USUAL_STEP)),
        length=int(getattr(env.spec, "max_episode_steps", None) or _USUAL_LENGTH),
        mass=getattr(known, "mass", None) or 1.0,
        body=body or next(iter(parts["load"]), "?"),
        joints=parts["frictionloss"],
        features=features,
        sensors=_sensors(_own_sensors(inner) if sensors is None else sensors, features),
        weaker="torque" if any(n.startswith("torque.") for n in names) else "" if servos else "gain",
        stiffness=controller[0] if controller else "gain" if servos else "",
    )


def _own_sensors(inner: Any) -> dict[str, Any]:
    """The sensors that an environment lists and that are known here; it may list others."""
    listed = getattr(inner, "sensors", None) or {}
    return {name: place for name, place in listed.items() if name in _SENSORS}


def _sensors(given: Mapping[str, Any], features: int) -> dict[str, tuple[int, int, float]]:
    """Where sensors stand.

    Raises:
        ValueRangeError: for a name that is not known, for places that an observation does not have or that two
            sensors share, and for a factor of 0.
    """
    found = dict[str, tuple[int, int, float]]()
    for name, place in given.items():
        if name not in _SENSORS:
            raise ValueRangeError(f"there is no sensor {name!r}: known are {', '.join(_SENSORS)}")
        # first and end, and perhaps a factor
        parts = place.split(":") if isinstance(place, str) else place
        try:
            first, end, factor = (kind(part) for kind, part in zip((int, int, float), (*parts, 1.0), strict=False))
        except (TypeError, ValueError) as error:
            raise ValueRangeError(
                f"sensors are places such as gyro=3:6 or gyro=0:3:0.25, got {name}={place!r:.40}"
            ) from error
        if not 0 <= first < end <= features:
            within = f"first:end with 0 <= first < end <= {features}, the numbers of an observation"
            raise ValueRangeError(f"the sensor {name} stands at {within}; got {place!r:.40}")
        if not (math.isfinite(factor) and factor):
            raise ValueRangeError(f"the factor of the sensor {name} is what its unit is multiplied by, got {factor:g}")
        found[name] = first, end, factor
    for (one, a), (other, b) in itertools.combinations(found.items(), 2):
        if a[0] < b[1] and b[0] < a[1]:
            raise ValueRangeError(f"the sensors {one} ({a[0]}:{a[1]}) and {other} ({b[0]}:{b[1]}) share numbers")
    return found


def offered(table: Sequence[Disturbance], env: AnyEnv) -> tuple[list[Disturbance], dict[str, str]]:
    """The disturbances that an environment can have, and why not the others."""
    found, left_out = list[Disturbance](), dict[str, str]()
    for one in table:
        try:
            wrap(env, one.threat(one.most))
            found.append(one)
        except AdvWrappersError as error:  # the parameters that there are, in brackets, are many
            left_out[one.name] = re.sub(r" \([^()]*\)", "", str(error)).removeprefix(f"{one.threat(one.most)}: ")
    if not any("scale=" in one.text for one in table):
        reason = "the environment does not say where they stand in an observation: sensors, such as gyro=3:6"
        left_out["faults of single sensors"] = reason
    return found, left_out
