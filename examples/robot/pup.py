"""Pup-v0: a small robot dog in MuJoCo that is to walk at a commanded speed, its actions targets of its joints.

    adv-wrappers robot pup:Pup-v0 --victim onnx:mlp.onnx

It shows what ``adv-wrappers robot`` asks of an environment of one's own: ``model`` and ``data``, a fall that ends an
episode, and where its sensors stand in an observation.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import gymnasium as gym
import mujoco
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

Floats = NDArray[np.float32]
HOME = np.tile([0.75, -1.5], 4)  # rad, of hips and knees
REACH = 0.6  # rad from home, at an action of 1
SUBSTEPS, PERIOD = 2, 0.5  # of the simulator in a step, and seconds of a cycle of the legs
TROT = np.array([1, -1, -1, 1])  # the feet that the clock has on the ground together: front left and rear right
LOWEST, STEEPEST = 0.11, 0.5  # a fall: metres of the trunk's height, and the least upright part of its axis


class Pup(gym.Env[Floats, Floats]):
    """A dog of 5 kg whose trunk is 0.2 m above the ground.

    An observation, float32 ``[33]``, is the gyroscope (a quarter of rad/s), the direction of gravity, the command
    (m/s), angles of the joints from home (rad) and their speeds (a twentieth of rad/s), the last action, and the clock
    of the legs. An action ``[8]`` moves the targets of hips and knees. The reward is for the commanded speed.

    Args:
        command: metres a second forward; None draws one for every episode.
        pushes: whether the trunk is pushed now and then, as in the training.
        render_mode: ``rgb_array``, or None.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 50}  # noqa: RUF012 - Gymnasium's own form
    sensors: ClassVar[dict[str, Any]] = {
        "gyro": (0, 3, 0.25), "gravity": (3, 6), "command": (6, 7), "joints": (7, 15), "joint_speeds": (15, 23, 0.05),
    }  # fmt: skip
    observation_space = spaces.Box(-np.inf, np.inf, (33,), np.float32)
    action_space = spaces.Box(-1.0, 1.0, (8,), np.float32)
    dt = 0.02  # seconds of a step

    def __init__(self, command: float | None = 0.5, pushes: bool = False, render_mode: str | None = None) -> None:
        self.model = mujoco.MjModel.from_xml_path(str(Path(__file__).with_suffix(".xml")))
        self.data = mujoco.MjData(self.model)
        self.render_mode, self.pushes, self._command = render_mode, pushes, command
        self.command, self.steps, self.start, self.last = 0.0, 0, 0.0, np.zeros(8, np.float32)
        feet = ("front_left", "front_right", "rear_left", "rear_right")
        self._feet = {self.model.geom(name).id: i for i, name in enumerate(feet)}
        self._ground = self.model.geom("ground").id
        self._renderer: mujoco.Renderer | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Floats, dict[str, Any]]:
        """Stand, with joints up to 0.05 rad from home, at any time of the clock."""
        super().reset(seed=seed)
        mujoco.mj_resetData(self.model, self.data)
        self.data.qpos[2], self.data.qpos[7:] = 0.235, HOME + self.np_random.uniform(-0.05, 0.05, 8)
        self.command = self.np_random.uniform(0.2, 0.8) if self._command is None else self._command
        self.steps, self.start, self.last = 0, self.np_random.uniform(0, PERIOD), np.zeros(8, np.float32)
        self.data.ctrl[:] = HOME
        mujoco.mj_forward(self.model, self.data)
        return self._observed(), {"x_position": 0.0}

    def step(self, action: Floats) -> tuple[Floats, float, bool, bool, dict[str, Any]]:
        """Drive the joints to targets for 0.02 s."""
        before, self.last = self.last, np.clip(action, -1, 1).astype(np.float32)
        if self.pushes and self.np_random.random() < 0.01:
            self.data.qvel[:2] += self.np_random.uniform(-0.4, 0.4, 2)
        self.data.ctrl[:] = HOME + REACH * self.last
        mujoco.mj_step(self.model, self.data, SUBSTEPS)
        self.steps += 1
        observation = self._observed()

        # the speed counts, upright and straight on; a foot is to be on the ground when the clock says so
        forward, sideways, _ = self._velocity
        off = (forward - self.command) ** 2 + sideways**2
        turning, tilt = observation[2] / 0.25, observation[3] ** 2 + observation[4] ** 2
        in_time = (self.touching() * 2 - 1) @ TROT * np.sign(observation[31]) / 4
        rough = np.square(self.last - before).sum() + 0.1 * np.square(self.last).sum()
        reward = np.exp(-off / 0.05) + 0.3 * np.exp(-(turning**2) / 0.2) + 0.2 * in_time - tilt - 0.03 * rough
        fallen = self.data.qpos[2] < LOWEST or -observation[5] < STEEPEST
        return observation, float(0.02 * reward), bool(fallen), False, {"x_position": float(self.data.qpos[0])}

    def privileged(self) -> Floats:
        """What a critic may see beside an observation, ``[8]``: velocity, height, and which feet are on the ground."""
        return np.concatenate([self._velocity, self.data.qpos[2:3], self.touching()]).astype(np.float32)

    def touching(self) -> NDArray[np.float64]:
        """1 for each foot on the ground, ``[4]``."""
        found, contact = np.zeros(4), self.data.contact
        for one, other in contact.geom.tolist():
            foot = self._feet.get(other if one == self._ground else one)
            if foot is not None:
                found[foot] = 1
        return found

    def render(self) -> Any:
        """The dog from its right side, uint8 ``[240, 320, 3]``."""
        if self._renderer is None:
            self._renderer = mujoco.Renderer(self.model, 240, 320)
        self._renderer.update_scene(self.data, "side")
        return self._renderer.render()

    def close(self) -> None:
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None

    @property
    def _velocity(self) -> NDArray[np.float64]:
        found: NDArray[np.float64] = self.data.sensordata[3:6]
        return found

    def _observed(self) -> Floats:
        data, clock = self.data, 2 * np.pi * (self.steps * self.dt + self.start) / PERIOD
        parts = [
            0.25 * data.sensordata[:3], -data.xmat[1][6:], [self.command], data.qpos[7:] - HOME, 0.05 * data.qvel[6:],
            self.last, [np.sin(clock), np.cos(clock)],
        ]  # fmt: skip
        return np.concatenate(parts).astype(np.float32)


gym.register("Pup-v0", "pup:Pup", max_episode_steps=500)
