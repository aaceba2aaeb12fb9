"""The physical parameters of one environment: read, written and restored, whatever simulates it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import gymnasium as gym
import mujoco
import numpy as np
from gymnasium.envs.classic_control import (
    AcrobotEnv,
    CartPoleEnv,
    Continuous_MountainCarEnv,
    MountainCarEnv,
    PendulumEnv,
)
from numpy.typing import NDArray

from adv_wrappers.core.parameter_space import Parameter, ParameterSpace
from adv_wrappers.core.types import Array, Floats
from adv_wrappers.environments.object_snapshot import KeepsItself, NotCopied, Walk, is_of_box2d
from adv_wrappers.errors import SpaceError

LOWEST, HIGHEST = 0.01, 100.0  # factors of what must stay above 0
MOST_FORCE = 1e5  # newtons


class PhysicalParameters(KeepsItself):
    """The parameters of one environment, which a subclass writes into its simulator.

    Args:
        space: names, ranges and own values.

    Attributes:
        values: as they are now, float64 ``[n]``.
        mass: of all bodies, kilograms; None where it is not known.
        servos: whether actuators are controllers with a stiffness, and no plain motors.
    """

    mass: float | None = None
    servos = False

    def __init__(self, space: ParameterSpace) -> None:
        self.space = space
        self.values: Floats = space.nominal.copy()

    def set(self, values: Floats) -> None:
        """Write values ``[n]`` into the simulator, where they differ from those that are there."""
        changed = values != self.values
        if changed.any():
            self.values = values.copy()
            self.write(values, changed)

    def restore(self) -> None:
        """Give the environment its own values back."""
        self.set(self.space.nominal)

    @property
    def changed(self) -> bool:
        """Whether any parameter is not the environment's own."""
        return bool((self.values != self.space.nominal).any())

    def write(self, values: Floats, changed: NDArray[np.bool_]) -> None:
        """Write those of ``values`` that ``changed``, both ``[n]``."""
        raise NotImplementedError

    def begin_step(self) -> None:
        """Called before every step: for what a simulator forgets after each."""

    def begin_episode(self) -> None:
        """Called after every reset, which may have made new bodies; the parameters are the environment's own."""

    def fault(self) -> str:
        """Why what was just simulated is none of the environment's states; "" where nothing is wrong."""
        return ""

    def keep(self, walk: Walk) -> None:
        """Keep the values for a snapshot."""
        walk.kept.append((_put, self, self.values.copy()))


def _put(parameters: PhysicalParameters, values: Floats) -> None:
    parameters.set(values)


# ----------------------------------------------------------------------------------------------------------------------
# The physical parameters of MuJoCo's models, those of Gymnasium, Gymnasium-Robotics and dm_control.
#
# Factors of a body's mass (and of its inertia with it, as of a denser body) and of its inertia alone, of a geom's
# three frictions, of a joint's damping, of gravity, of what an actuator makes of its control (``gain``: the force of a
# motor, the stiffness of a position servo), and of the largest force that it has (``torque``). Beside them stand loads
# at the centres of mass of bodies, in kilograms, dry friction of driven joints (``frictionloss``), in N m or N, a slope
# that rises along x and along y, in degrees, forces on bodies in newtons at their centres of mass (``xfrc_applied``),
# and wind in metres a second, where the medium is denser than nothing. A contact has the larger friction of its two
# geoms, so ``at="friction"`` means all of them. On a slope gravity is tilted, and the ground stays: what an environment
# computes from the world's axes, such as heights, is then relative to the ground.


# ----------------------------------------------------------------------------------------------------------------------


MOST_WIND = 1e3  # metres a second
MOST_LOAD = 1e4  # kilograms, and N m of friction
STEEPEST = 60.0  # degrees
STABLE_STEPS = 100  # of the simulator, by which it is found unstable

_UNIT = np.array([-1.0, 1.0])  # of controls without limits
_ONE_AXIS = (int(mujoco.mjtJoint.mjJNT_HINGE), int(mujoco.mjtJoint.mjJNT_SLIDE))
_AT_JOINT = (int(mujoco.mjtTrn.mjTRN_JOINT), int(mujoco.mjtTrn.mjTRN_JOINTINPARENT))
_WRITTEN = (
    "body_mass", "body_inertia", "geom_friction", "dof_damping", "dof_frictionloss", "actuator_gainprm",
    "actuator_biasprm", "actuator_forcerange", "jnt_actfrcrange",
)  # fmt: skip
_DIVERGED = (mujoco.mjtWarning.mjWARN_BADQPOS, mujoco.mjtWarning.mjWARN_BADQVEL, mujoco.mjtWarning.mjWARN_BADQACC)


class MujocoParameters(PhysicalParameters):
    """The parameters of one simulation of MuJoCo.

    Args:
        owner: has the attributes ``model`` and ``data``: an environment of Gymnasium, or a ``Physics`` of dm_control.
    """

    def __init__(self, owner: Any) -> None:
        self._owner, model = owner, _pointer(owner.model)
        # the parts of the model that a parameter would change something of
        bodies = [i for i in range(model.nbody) if model.body_mass[i] > 0]
        damped = [i for i in range(model.njnt) if _damping(model, i).any()]
        driven = {int(model.actuator_trnid[i, 0]) for i in range(model.nu) if model.actuator_trntype[i] in _AT_JOINT}
        moved = [i for i in sorted(driven) if model.jnt_type[i] in _ONE_AXIS]
        limited = [i for i in range(model.nu) if _is_limited(model, i)]
        self._bodies, self._joints = np.array(bodies, np.intp), np.array(damped, np.intp)
        self._moved, self._limited = model.jnt_dofadr[moved].astype(np.intp), np.array(limited, np.intp)
        self._windy = bool(model.opt.density > 0 or model.opt.viscosity > 0)
        # the parameters in groups: the names of their parts, and lowest, highest and nominal value, and size
        of_bodies = [_name(model.body(i), "body") for i in bodies]
        of_joints = [_name(model.joint(i), "joint") for i in range(model.njnt)]
        actuators = [_name(model.actuator(i), "actuator") for i in range(model.nu)]
        groups: list[tuple[str, Sequence[str] | None, tuple[float, float, float, int]]] = [
            ("mass", of_bodies, (LOWEST, HIGHEST, 1.0, 1)),
            ("inertia", of_bodies, (LOWEST, HIGHEST, 1.0, 1)),
            ("load", of_bodies, (0.0, MOST_LOAD, 0.0, 1)),
            ("friction", [_name(model.geom(i), "geom") for i in range(model.ngeom)], (LOWEST, HIGHEST, 1.0, 1)),
            ("damping", [of_joints[i] for i in damped], (0.0, HIGHEST, 1.0, 1)),
            ("frictionloss", [of_joints[i] for i in moved], (0.0, MOST_LOAD, 0.0, 1)),
            ("gain", actuators, (0.0, HIGHEST, 1.0, 1)),
            ("torque", [actuators[i] for i in limited], (0.0, HIGHEST, 1.0, 1)),
            ("gravity", None, (0.0, HIGHEST, 1.0, 1)),
            ("slope", None, (-STEEPEST, STEEPEST, 0.0, 2)),
            ("wind", None if self._windy else (), (-MOST_WIND, MOST_WIND, 0.0, 3)),
            ("force", of_bodies, (-MOST_FORCE, MOST_FORCE, 0.0, 3)),  # the last, which are no part of the model
        ]
        # where each group stands in a vector of all parameters
        parameters = list[Parameter]()
        self._parts = dict[str, slice]()
        start = 0
        for group, parts, about in groups:
            found = [group] if parts is None else [f"{group}.{part}" for part in parts]
            parameters += [Parameter(name, *about) for name in found]
            self._parts[group] = slice(start, start := start + len(found) * about[-1])
        # the model's own values, which factors multiply and which are restored
        self._own: dict[str, Array] = {name: getattr(model, name).copy() for name in _WRITTEN}
        self.mass, self.servos = float(model.body_mass.sum()), bool(model.actuator_biasprm.any())
        self._gravity: Floats = model.opt.gravity.copy()
        self._wind: Floats = model.opt.wind.copy()
        super().__init__(ParameterSpace(parameters))
        self._scratch: Any = None  # MuJoCo's data in which it computes what follows from masses

    def write(self, values: Floats, changed: NDArray[np.bool_]) -> None:
        model = _pointer(self._owner.model)
        own = self._own
        part = self._parts
        # forces on bodies belong to the data; all others change the model
        if changed[part["force"]].any():
            _pointer(self._owner.data).xfrc_applied[self._bodies, :3] = values[part["force"]].reshape(-1, 3)
        if not changed[: part["force"].start].any():
            return
        model.geom_friction[:] = own["geom_friction"] * values[part["friction"], None]
        for joint, factor in zip(self._joints.tolist(), values[part["damping"]].tolist(), strict=True):
            dofs = _dofs(model, joint)
            model.dof_damping[dofs] = own["dof_damping"][dofs] * factor
        model.dof_frictionloss[self._moved] = own["dof_frictionloss"][self._moved] + values[part["frictionloss"]]
        # actuators: how strong they are, and the most they can do
        gain = values[part["gain"], None]
        model.actuator_gainprm[:] = own["actuator_gainprm"] * gain
        model.actuator_biasprm[:] = own["actuator_biasprm"] * gain
        torque, joints = values[part["torque"], None], model.actuator_trnid[self._limited, 0]
        model.actuator_forcerange[self._limited] = own["actuator_forcerange"][self._limited] * torque
        at_joint = [model.actuator_trntype[i] in _AT_JOINT for i in self._limited.tolist()]
        model.jnt_actfrcrange[joints[at_joint]] = own["jnt_actfrcrange"][joints[at_joint]] * torque[at_joint]
        # the world: gravity, whose direction is the slope's, and wind
        model.opt.gravity[:] = _tilted(self._gravity * values[part["gravity"]], values[part["slope"]])
        if self._windy:
            model.opt.wind[:] = self._wind + values[part["wind"]]
        # masses last, since MuJoCo computes other constants anew from them
        if any(changed[part[group]].any() for group in ("mass", "inertia", "load")):
            self._write_masses(model, values[part["mass"]], values[part["inertia"]], values[part["load"]])

    def _write_masses(self, model: Any, mass: Floats, inertia: Floats, load: Floats) -> None:
        own, bodies = self._own, self._bodies
        model.body_mass[bodies] = own["body_mass"][bodies] * mass + load
        model.body_inertia[bodies] = own["body_inertia"][bodies] * (mass * inertia)[:, None]
        if self._scratch is None:
            self._scratch = mujoco.MjData(model)
        mujoco.mj_setConst(model, self._scratch)  # what follows from masses; of its own ones to the bit

    def fault(self) -> str:
        warnings = _pointer(self._owner.data).warning
        kinds = [kind for kind in _DIVERGED if warnings[int(kind)].number]
        return f"MuJoCo warned of {kinds[0].name.removeprefix('mjWARN_')}" if kinds else ""

    def __getstate__(self) -> dict[str, Any]:
        """Without data that is only computed in."""
        return {**self.__dict__, "_scratch": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """A copied environment may have the model that it was made with, or the one as it was: both become its own."""
        self.__dict__.update(state)
        changed = np.ones(len(self.values), bool)
        self.values = self.space.nominal.copy()
        changed[self._parts["force"]] = False
        self.write(self.values, changed)


def mujoco_parameters(env: Any) -> MujocoParameters | None:
    """The parameters of an environment without wrappers; None where it is none of MuJoCo or dm_control."""
    inner = getattr(env, "_env", None)  # Shimmy's name for dm_control's environment
    for owner in (env, getattr(inner, "physics", None)):
        if owner is not None and isinstance(_pointer(getattr(owner, "model", None)), mujoco.MjModel):
            return MujocoParameters(owner)
    return None


def _pointer(value: Any) -> Any:
    """MuJoCo's own object, which dm_control wraps."""
    return getattr(value, "ptr", value)


def _name(element: Any, kind: str) -> str:
    return str(element.name or f"{kind}{element.id}")


def _dofs(model: Any, joint: int) -> slice:
    start = int(model.jnt_dofadr[joint])
    end = int(model.jnt_dofadr[joint + 1]) if joint + 1 < model.njnt else int(model.nv)
    return slice(start, end)


def _is_limited(model: Any, actuator: int) -> bool:
    """Whether an actuator has a largest force: of its own, or at its joint."""
    joint = int(model.actuator_trnid[actuator, 0]) if model.actuator_trntype[actuator] in _AT_JOINT else None
    return bool(model.actuator_forcelimited[actuator] or (joint is not None and model.jnt_actfrclimited[joint]))


def _tilted(gravity: Floats, slope: Floats) -> Floats:
    """Gravity as on a slope that rises by these angles along x and y, degrees."""
    steepness = float(np.hypot(*slope))
    if steepness == 0:
        return gravity
    angle, uphill = np.deg2rad(steepness), np.array([*slope / steepness, 0.0])
    tilted: Floats = gravity * np.cos(angle) - uphill * np.linalg.norm(gravity) * np.sin(angle)
    return tilted


def _damping(model: Any, joint: int) -> Array:
    found: Array = model.dof_damping[_dofs(model, joint)]
    return found


# ----------------------------------------------------------------------------------------------------------------------
# The physical parameters of Box2D's worlds: gravity, the density of all bodies, and a force on the agent's body.
#
# Bodies are made anew at every reset, with the environment's own densities. Wind is a horizontal force.
# ----------------------------------------------------------------------------------------------------------------------


_AGENTS = ("lander", "hull")  # attributes under which environments keep the agent's body


class Box2dParameters(PhysicalParameters):
    """The parameters of one world of Box2D.

    Args:
        env: the environment itself.
    """

    def __init__(self, env: Any) -> None:
        self._env = env
        self._agent = next((name for name in _AGENTS if hasattr(env, name)), None)
        parameters = [Parameter("gravity", 0.0, HIGHEST), Parameter("density", LOWEST, HIGHEST)]
        if self._agent is not None:
            parameters.append(Parameter(f"force.{self._agent}", -MOST_FORCE, MOST_FORCE, 0.0, 2))
        super().__init__(ParameterSpace(parameters))
        self._fixtures: list[tuple[Any, Any, float]] = []  # body, fixture, its own density
        self._gravity = self._own_gravity()

    def _own_gravity(self) -> tuple[float, float]:
        gravity = self._env.world.gravity
        return float(gravity[0]), float(gravity[1])

    def begin_episode(self) -> None:
        self._gravity = self._own_gravity()
        found = [
            (body, fixture, float(fixture.density)) for body in self._env.world.bodies for fixture in body.fixtures
        ]
        self._fixtures = [one for one in found if one[2] > 0]  # others do not move

    def write(self, values: Floats, changed: NDArray[np.bool_]) -> None:
        if changed[0]:
            self._env.world.gravity = tuple(float(values[0]) * part for part in self._gravity)
        if changed[1]:
            for body, fixture, density in self._fixtures:
                fixture.density = density * float(values[1])
                body.ResetMassData()

    def begin_step(self) -> None:
        if self._agent is not None and self.values[2:].any():
            body = getattr(self._env, self._agent)
            body.ApplyForceToCenter((float(self.values[2]), float(self.values[3])), True)

    def keep(self, walk: Walk) -> None:
        raise NotCopied(self, "of a world that is replayed, and a replay knows no other parameters")

    def __getstate__(self) -> dict[str, Any]:
        """Without fixtures, and with the environment's own values: a copy has a world of its own once it is reset."""
        return {**self.__dict__, "_fixtures": [], "values": self.space.nominal.copy()}


def box2d_parameters(env: Any) -> Box2dParameters | None:
    """The parameters of an environment without wrappers; None where it has no world of Box2D."""
    return Box2dParameters(env) if is_of_box2d(getattr(env, "world", None)) else None


# ----------------------------------------------------------------------------------------------------------------------
# Physical parameters that are attributes of an environment, as in Gymnasium's classic control tasks.
#
# An environment of one's own lists them in a class attribute ``physical_parameters``: by the name of the parameter the
# attribute, as in ``{"mass.pole": "masspole", "gravity": "gravity"}``.
# ----------------------------------------------------------------------------------------------------------------------


_MAY_VANISH = ("gravity", "gain", "damping", "wind")

_KNOWN: dict[type, dict[str, str]] = {
    CartPoleEnv: {
        "mass.cart": "masscart", "mass.pole": "masspole", "length.pole": "length", "gravity": "gravity",
        "gain": "force_mag",
    },
    PendulumEnv: {"mass": "m", "length": "l", "gravity": "g"},
    AcrobotEnv: {
        "mass.link1": "LINK_MASS_1", "mass.link2": "LINK_MASS_2", "length.link1": "LINK_LENGTH_1",
        "center.link1": "LINK_COM_POS_1", "center.link2": "LINK_COM_POS_2", "inertia": "LINK_MOI",
    },
    MountainCarEnv: {"gain": "force", "gravity": "gravity"},
    Continuous_MountainCarEnv: {"gain": "power"},
}  # fmt: skip


class AttributeParameters(PhysicalParameters):
    """Attributes of an environment as factors of their own values.

    Args:
        env: the environment itself.
        attributes: by the name of a parameter, the attribute.

    Raises:
        SpaceError: for an attribute that is no number other than 0.
    """

    def __init__(self, env: Any, attributes: Mapping[str, str]) -> None:
        self._env, self._attributes = env, dict(attributes)
        self._own: dict[str, float] = {}
        for name, attribute in attributes.items():
            value = getattr(env, attribute, None)
            if not isinstance(value, (int, float, np.number)) or not np.isfinite(value) or value == 0:
                raise SpaceError(
                    f"{type(env).__name__} lists {name!r} in physical_parameters: expected a number other than 0 as "
                    f"its attribute {attribute!r}, got {value!r:.80}"
                )
            self._own[attribute] = float(value)
        self._of_class = {name for name in self._own if name not in vars(env)}
        lowest = {name: 0.0 if name.partition(".")[0] in _MAY_VANISH else LOWEST for name in attributes}
        super().__init__(ParameterSpace([Parameter(name, low, HIGHEST) for name, low in lowest.items()]))

    def write(self, values: Floats, changed: NDArray[np.bool_]) -> None:
        for (attribute, own), value in zip(self._own.items(), values.tolist(), strict=True):
            if value == 1 and attribute in self._of_class:
                vars(self._env).pop(attribute, None)
            else:
                setattr(self._env, attribute, own if value == 1 else own * value)
        if isinstance(self._env, CartPoleEnv):  # which it computes of them once, when it is made
            env: Any = self._env
            env.total_mass = env.masspole + env.masscart
            env.polemass_length = env.masspole * env.length


def attribute_parameters(env: Any) -> AttributeParameters | None:
    """The parameters of an environment without wrappers; None where its class lists none."""
    declared = getattr(type(env), "physical_parameters", None)
    if declared is not None:
        if not isinstance(declared, Mapping):
            raise SpaceError(
                f"{type(env).__name__}.physical_parameters must be a dictionary from names to attributes, as in "
                f"{{'mass.pole': 'masspole'}}, got {declared!r:.80}"
            )
        return AttributeParameters(env, declared)
    found = next((attributes for kind, attributes in _KNOWN.items() if isinstance(env, kind)), None)
    return None if found is None else AttributeParameters(env, found)


# ----------------------------------------------------------------------------------------------------------------------
# Which physical parameters an environment has, whatever simulates it.
# ----------------------------------------------------------------------------------------------------------------------


_FINDERS: tuple[Callable[[Any], PhysicalParameters | None], ...] = (
    attribute_parameters, mujoco_parameters, box2d_parameters,
)  # fmt: skip


class _Joined(PhysicalParameters):
    """Parameters of several kinds as one: attributes of an environment beside those of its simulator."""

    def __init__(self, parts: Sequence[PhysicalParameters]) -> None:
        self._each, starts = tuple(parts), np.cumsum([0, *(len(part.values) for part in parts)]).tolist()
        self._slices = [slice(*ends) for ends in itertools.pairwise(starts)]
        super().__init__(ParameterSpace([one for part in parts for one in part.space.parameters]))
        self.mass = next((part.mass for part in parts if part.mass is not None), None)
        self.servos = any(part.servos for part in parts)

    def _parts(self, *values: Any) -> Iterator[tuple[Any, ...]]:
        return ((part, *(each[where] for each in values)) for part, where in zip(self._each, self._slices, strict=True))

    def set(self, values: Floats) -> None:
        self.values = values.copy()
        for part, own in self._parts(values):
            part.set(own)

    def begin_step(self) -> None:
        for part in self._each:
            part.begin_step()

    def begin_episode(self) -> None:
        for part in self._each:
            part.begin_episode()

    def fault(self) -> str:
        return next(filter(None, (part.fault() for part in self._each)), "")

    def keep(self, walk: Walk) -> None:
        for part in self._each:
            part.keep(walk)
        super().keep(walk)


def parameters_of(env: gym.Env[Any, Any]) -> PhysicalParameters:
    """The physical parameters of an environment, through any wrappers.

    Raises:
        SpaceError: for an environment of which none are known, and one that lists a name that its simulator has too.
    """
    found = [part for find in _FINDERS if (part := find(env.unwrapped)) is not None]
    names = [name for part in found for name in part.space.names]
    if double := sorted({name for name in names if names.count(name) > 1}):
        raise SpaceError(
            f"{type(env.unwrapped).__name__} lists {', '.join(double)} in physical_parameters, which its simulator has "
            f"too: give them other names"
        )
    if found:
        return found[0] if len(found) == 1 else _Joined(found)
    raise SpaceError(
        f"{type(env.unwrapped).__name__} has no physical parameters that are known: those of MuJoCo, dm_control, Box2D "
        f"and classic control are, and attributes that an environment lists in physical_parameters"
    )
