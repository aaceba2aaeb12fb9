"""The physical parameters of MuJoCo's models, those of Gymnasium, Gymnasium-Robotics and dm_control.

Factors of a body's mass (and of its inertia with it, as of a denser body) and of its inertia alone, of a geom's three
frictions, of a joint's damping, of gravity, and of the force of an actuator; forces on bodies in newtons, at their
centres of mass (``xfrc_applied``), and wind in metres a second, where the medium is denser than nothing. A contact has
the larger friction of its two geoms, so ``at="friction"`` means all of them.
"""

from __future__ import annotations

from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from adv_wrappers.core.parameter_space import Parameter, ParameterSpace
from adv_wrappers.core.types import Array, Floats
from adv_wrappers.physics.physical_parameters import HIGHEST, LOWEST, MOST_FORCE, PhysicalParameters

MOST_WIND = 1e3  # metres a second
STABLE_STEPS = 100  # of the simulator, by which it is found unstable

_UNIT = np.array([-1.0, 1.0])  # of controls without limits
_DIVERGED = (mujoco.mjtWarning.mjWARN_BADQPOS, mujoco.mjtWarning.mjWARN_BADQVEL, mujoco.mjtWarning.mjWARN_BADQACC)


class MujocoParameters(PhysicalParameters):
    """The parameters of one simulation of MuJoCo.

    Args:
        owner: has the attributes ``model`` and ``data``: an environment of Gymnasium, or a ``Physics`` of dm_control.
    """

    def __init__(self, owner: Any) -> None:
        self._owner, model = owner, _pointer(owner.model)
        bodies = [i for i in range(model.nbody) if model.body_mass[i] > 0]
        damped = [i for i in range(model.njnt) if _damping(model, i).any()]
        self._bodies, self._joints = np.array(bodies, np.intp), np.array(damped, np.intp)
        names = {
            "mass": [_name(model.body(i), "body") for i in bodies],
            "inertia": [_name(model.body(i), "body") for i in bodies],
            "friction": [_name(model.geom(i), "geom") for i in range(model.ngeom)],
            "damping": [_name(model.joint(i), "joint") for i in damped],
            "gain": [_name(model.actuator(i), "actuator") for i in range(model.nu)],
        }
        parameters, self._parts = list[Parameter](), dict[str, slice]()
        for group, parts in names.items():
            low = 0.0 if group in ("damping", "gain") else LOWEST
            self._parts[group] = slice(len(parameters), len(parameters) + len(parts))
            parameters += [Parameter(f"{group}.{part}", low, HIGHEST) for part in parts]
        count = len(parameters)
        self._parts["gravity"] = slice(count, count + 1)
        parameters.append(Parameter("gravity", 0.0, HIGHEST))
        self._windy = bool(model.opt.density > 0 or model.opt.viscosity > 0)
        if self._windy:
            self._parts["wind"] = slice(count + 1, count + 4)
            parameters.append(Parameter("wind", -MOST_WIND, MOST_WIND, 0.0, 3))
        start = count + (4 if self._windy else 1)
        self._parts["force"] = slice(start, start + 3 * len(bodies))
        parameters += [Parameter(f"force.{name}", -MOST_FORCE, MOST_FORCE, 0.0, 3) for name in names["mass"]]
        changed = "body_mass", "body_inertia", "geom_friction", "dof_damping", "actuator_gainprm", "actuator_biasprm"
        self._own: dict[str, Array] = {name: getattr(model, name).copy() for name in changed}
        self._gravity: Floats = model.opt.gravity.copy()
        self._wind: Floats = model.opt.wind.copy()
        super().__init__(ParameterSpace(parameters))
        self._scratch: Any = None  # MuJoCo's data in which it computes what follows from masses

    def write(self, values: Floats, changed: NDArray[np.bool_]) -> None:
        model, own, part = _pointer(self._owner.model), self._own, self._parts
        if changed[part["force"]].any():
            _pointer(self._owner.data).xfrc_applied[self._bodies, :3] = values[part["force"]].reshape(-1, 3)
        if not changed[: part["force"].start].any():
            return
        model.geom_friction[:] = own["geom_friction"] * values[part["friction"], None]
        for joint, factor in zip(self._joints.tolist(), values[part["damping"]].tolist(), strict=True):
            dofs = _dofs(model, joint)
            model.dof_damping[dofs] = own["dof_damping"][dofs] * factor
        gain = values[part["gain"], None]
        model.actuator_gainprm[:] = own["actuator_gainprm"] * gain
        model.actuator_biasprm[:] = own["actuator_biasprm"] * gain
        model.opt.gravity[:] = self._gravity * values[part["gravity"]]
        if self._windy:
            model.opt.wind[:] = self._wind + values[part["wind"]]
        if changed[part["mass"]].any() or changed[part["inertia"]].any():
            self._write_masses(model, values[part["mass"]], values[part["inertia"]])

    def _write_masses(self, model: Any, mass: Floats, inertia: Floats) -> None:
        own, bodies = self._own, self._bodies
        model.body_mass[bodies] = own["body_mass"][bodies] * mass
        model.body_inertia[bodies] = own["body_inertia"][bodies] * (mass * inertia)[:, None]
        if self._scratch is None:
            self._scratch = mujoco.MjData(model)
        mujoco.mj_setConst(model, self._scratch)  # what follows from masses; of its own ones to the bit

    def fault(self) -> str:
        warnings = _pointer(self._owner.data).warning
        kinds = [kind for kind in _DIVERGED if warnings[int(kind)].number]
        return f"MuJoCo warned of {kinds[0].name.removeprefix('mjWARN_')}" if kinds else ""

    def check_stable(self, low: Floats, high: Floats) -> str:
        light = high.copy()
        for group in ("mass", "inertia"):
            light[self._parts[group]] = low[self._parts[group]]
        before = self.values
        try:
            for values in (low, high, light):
                self.set(values)
                if why := self._diverges(values):
                    return f"at {self.space.text_of(values)} {why}"
        finally:
            self.set(before)
        return ""

    def _diverges(self, values: Floats) -> str:
        """Why a simulation of full controls, to one side and the other, diverges; "" where it does not."""
        model = _pointer(self._owner.model)
        data = mujoco.MjData(model)
        limits = np.where(model.actuator_ctrllimited[:, None], model.actuator_ctrlrange, _UNIT)
        before = mujoco.get_mju_user_warning()
        mujoco.set_mju_user_warning(lambda text: None)  # which would write a file where the user is
        try:
            for step in range(STABLE_STEPS):
                data.ctrl[:] = limits[:, step // 10 % 2]
                data.xfrc_applied[self._bodies, :3] = values[self._parts["force"]].reshape(-1, 3)
                mujoco.mj_step(model, data)
                if any(data.warning[int(kind)].number for kind in _DIVERGED):
                    return f"the simulation diverges within {step + 1} steps of {model.opt.timestep:g} s"
        finally:
            mujoco.set_mju_user_warning(before)
        return ""

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


def _damping(model: Any, joint: int) -> Array:
    found: Array = model.dof_damping[_dofs(model, joint)]
    return found
