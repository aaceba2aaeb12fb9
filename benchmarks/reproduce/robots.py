"""Two robots under policies that others published: what pushes, loads, delays and attacks leave of their walk.

    python benchmarks/reproduce/robots.py --robots FOLDER

The folder holds a Unitree Go1 (``go1/go1.xml`` and ``go1/policy.onnx``, an MLP with its normaliser, from MuJoCo
Playground), a Unitree G1 (``g1/g1.xml`` and ``g1/policy.pt``, an LSTM in TorchScript, from unitree_rl_gym), and
``walk.py``, which walks both in plain MuJoCo without this library: its classes ``Go1`` and ``G1`` say what a policy
observes and how an action drives the joints, its function ``walk`` plays an episode.

Metres forward in ten seconds, or until a fall: means over the same episodes, and their range. Pushes go sideways, for
0.2 s every 2 s. The environments here are Gymnasium's around the classes of ``walk.py``, with two other definitions:
under a delay of actions the policy observes the last action that was received, in ``walk.py`` the last one sent; under
a load this library also changes what MuJoCo computes from masses beforehand (``mj_setConst``). ``redefined`` is
``walk.py`` with these definitions, without this library; the column beside it says how far this library is from that
where it runs the policy's file (by ONNX Runtime or TorchScript) in one environment. ``network`` is what the library
reads from the file, with all episodes at once: its actions differ in the last digits of float32, which near a fall
alone changes an episode.
"""

from __future__ import annotations

import importlib.util
import os
import time
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import gymnasium as gym
import mujoco
import numpy as np
import torch
from figures import span, table
from gymnasium import spaces
from page import AGAIN, Data, Page, Results, episode_options, prose

import adv_wrappers as adv
from adv_wrappers.evaluation.episodes import draw_seeds
from adv_wrappers.victims.certified_actions import Method, action_bounds

ROBOTS = {"Go1": 48, "G1": 47}  # classes of walk.py, and the numbers of an observation
STEPS = 500  # of an episode, 0.02 s each
PUSH = "fixed-dynamics:at=force.{body},values=0;200;0,when=every(100,10,90)"  # 0.2 s every 2 s, sideways
# the threat, the same as an argument of walk(), and steps that observations are late
DISTURBANCES: dict[str, tuple[str, dict[str, float], int]] = {
    "nothing": ("", {}, 0),
    "push of 200 N": (PUSH, {"push": 200}, 0),
    "load of 5 kg": ("fixed-dynamics:at=load.{body},values=5", {"load": 5}, 0),
    "load of 15 kg": ("fixed-dynamics:at=load.{body},values=15", {"load": 15}, 0),
    "actions 1 step late": ("action-delay:steps=1", {"delay": 1}, 0),
    "actions 3 steps late": ("action-delay:steps=3", {"delay": 3}, 0),
    "observations 3 steps late": ("observation-delay:steps=3", {}, 3),
}
ATTACKS = ("max-diff:eps=0.1,steps=30", "square:eps=0.1")
RADII, STATES, POINTS = (1e-4, 1e-3, 1e-2, 1e-1), 10, 10_000  # radii of boxes, boxes, and points in each
METHODS: tuple[Method, ...] = ("interval", "crown", "full-crown")
NUM_ENVS, MANY = (1, 3, 8), 8  # and the episodes of all but the table of disturbances
ROUNDING = 1e-6  # of actions, which are between -1 and 1


def walk_of(folder: str) -> ModuleType:
    """The module ``walk.py``."""
    spec = importlib.util.spec_from_file_location("walk", f"{folder}/walk.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Walk(gym.Env[Any, Any]):
    """A robot of ``walk.py``: the reward is metres forward, and an episode ends with a fall or after ten seconds.

    Args:
        folder: of the robots.
        name: ``Go1`` or ``G1``.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}

    def __init__(self, folder: str, name: str) -> None:
        walk = walk_of(folder)
        self.robot = getattr(walk, name)()
        self.model = mujoco.MjModel.from_xml_path(f"{folder}/{self.robot.xml}")
        self.model.opt.timestep = self.robot.dt
        self.data = mujoco.MjData(self.model)
        self.observation_space = spaces.Box(-np.inf, np.inf, (ROBOTS[name],), np.float32)
        self.action_space = spaces.Box(-100, 100, (12,), np.float32)
        self.steps = 0

    def observed(self) -> Any:
        """What the policy observes."""
        return self.robot.observe(self.model, self.data).astype(np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Stand, with joints up to 0.02 rad from home."""
        super().reset(seed=seed)
        self.robot.reset(self.model, self.data)
        self.data.qpos[7:] += self.np_random.uniform(-0.02, 0.02, 12)
        mujoco.mj_forward(self.model, self.data)
        self.steps = 0
        return self.observed(), {"x_position": float(self.data.qpos[0])}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """One action, for 0.02 s."""
        before = float(self.data.qpos[0])
        self.robot.last = np.asarray(action)
        for _ in range(self.robot.substeps):
            self.robot.control(self.model, self.data, self.robot.last)
            mujoco.mj_step(self.model, self.data)
        self.steps += 1
        x = float(self.data.qpos[0])
        fallen = bool(self.data.qpos[2] < self.robot.least_height)
        return self.observed(), x - before, fallen, self.steps >= STEPS, {"x_position": x}


class Redefined:
    """A robot of ``walk.py`` with the definitions of this page, for its function ``walk``.

    Args:
        robot: one of ``walk.py``.
        loaded: whether it carries a load.
        late: steps that observations are late.
    """

    def __init__(self, robot: Any, loaded: bool, late: int) -> None:
        self.robot, self.loaded, self.late = robot, loaded, late
        self.seen: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.robot, name)

    def reset(self, model: Any, data: Any) -> None:
        """Also computes what follows from masses."""
        self.seen = []
        if self.loaded:
            mujoco.mj_setConst(model, mujoco.MjData(model))
        self.robot.reset(model, data)

    def act(self, observation: Any) -> Any:
        """The action for the observation that has arrived; the last one is not that which is sent."""
        self.seen.append(observation)
        last = self.robot.last
        action = self.robot.act(self.seen[max(len(self.seen) - 1 - self.late, 0)])
        self.robot.last = last
        return action

    def control(self, model: Any, data: Any, action: Any) -> None:
        """The last action is that which is received."""
        self.robot.last = action
        self.robot.control(model, data, action)


def victim_of(name: str, folder: str) -> adv.Victim:
    """The network of a published policy."""
    env = Walk(folder, name)
    if name == "Go1":
        return adv.from_onnx(f"{folder}/go1/policy.onnx", env.observation_space, env.action_space, "mean")
    return adv.from_torchscript(f"{folder}/g1/policy.pt", env.observation_space, env.action_space, "mean", trust=True)


def as_in_walk(name: str, folder: str) -> adv.Victim:
    """The policy as ``walk.py`` runs its file, one observation at a time."""
    if name == "G1":
        return victim_of(name, folder)
    env = Walk(folder, name)

    def run(observations: Any) -> Any:
        return np.stack([env.robot.act(one) for one in np.asarray(observations)])

    return adv.from_module(run, env.observation_space, env.action_space, "action")


def played(name: str, folder: str, victim: adv.Victim, threats: Any, num_envs: int | None = None, **how: int) -> Any:
    """Rows of a report: without a threat, and under each."""
    env = adv.Environment(Walk, {"folder": folder, "name": name})
    metrics = ["x_position", "terminated"]
    return adv.evaluate(victim, env, threats, num_envs=num_envs, metrics=metrics, **how).threats


def disturbed(name: str, folder: str, episodes: int, seed: int) -> Data:
    """Metres under each disturbance: by ``walk.py``, as redefined, and by this library in both ways."""
    walk, seeds = walk_of(folder), draw_seeds(seed, episodes)
    robot, body = getattr(walk, name)(), Walk(folder, name).model.body(1).name
    threats = [threat.format(body=body) for threat, _, _ in DISTURBANCES.values() if threat]
    how = {"episodes": episodes, "seed": seed}
    same = played(name, folder, as_in_walk(name, folder), threats, 1, **how)
    ours = played(name, folder, victim_of(name, folder), threats, **how)
    rows = {}
    for (what, (_, given, late)), one, other in zip(DISTURBANCES.items(), same, ours, strict=True):
        redefined = Redefined(robot, "load" in given, late)
        rows[what] = {
            "walk": None if late else [walk.walk(robot, seed=s, **given)[0] for s in seeds],
            "redefined": [walk.walk(redefined, seed=s, **given)[0] for s in seeds],
            "same": one.metrics["x_position"],
            "ours": other.metrics["x_position"],
            "falls": other.metrics["terminated"],
        }
    return {"rows": rows}


def rounded(folder: str, episodes: int, seed: int) -> Data:
    """Metres of ``walk.py``'s Go1 under pushes, with actions that differ by a rounding."""
    walk, rng = walk_of(folder), np.random.default_rng(seed)
    robot = walk.Go1()
    exact = robot.act

    def act(observation: Any) -> Any:
        robot.last = exact(observation) + rng.uniform(-ROUNDING, ROUNDING, 12)
        return robot.last

    robot.act = act
    return {"metres": [walk.walk(robot, seed=s, push=200)[0] for s in draw_seeds(seed, episodes)]}


def attacked(folder: str, threat: str, episodes: int, seed: int) -> Data:
    """Metres of Go1 without an attack and under one."""
    rows = played("Go1", folder, victim_of("Go1", folder), [threat], episodes=episodes, seed=seed)
    clean, under = (row.metrics["x_position"] for row in rows)
    return {"clean": clean, "metres": under, "falls": rows[-1].metrics["terminated"]}


def bounded(folder: str, radius: float, seed: int) -> Data:
    """Bounds on Go1's actions around states of a walk, and how many of the actions at random points lie outside.

    Half of the points are corners of the box.
    """
    victim, env, states = victim_of("Go1", folder), Walk(folder, "Go1"), list[Any]()
    observation, _ = env.reset(seed=seed)
    for step in range(STEPS):
        if step % (STEPS // STATES) == 0:
            states.append(observation)
        observation, *_ = env.step(env.robot.act(observation))
    x, generator = torch.as_tensor(np.stack(states)), torch.Generator().manual_seed(seed)
    low, high = x - radius, x + radius

    # points of each box, [STATES, POINTS, features], and what the policy does there
    directions = 2 * torch.rand(STATES, POINTS, x.shape[1], generator=generator) - 1
    directions[:, ::2] = directions[:, ::2].sign()
    points = (x[:, None] + radius * directions).clamp(low[:, None], high[:, None])
    with torch.no_grad():
        actions = victim.mode(victim.params(points.flatten(0, 1))).unflatten(0, (STATES, POINTS))

    rows = {}
    for method in METHODS:
        least, most = action_bounds(victim, low, high, method)
        outside = (actions < least[:, None]) | (actions > most[:, None])
        rows[method] = {"outside": int(outside.any(-1).sum()), "width": float((most - least).mean())}
    return {"reached": float((actions.amax(1) - actions.amin(1)).mean()), "rows": rows}


def side_by_side(folder: str, num_envs: int, episodes: int, seed: int) -> Data:
    """Metres of G1 in so many environments at once, and by ``walk.py`` without this library."""
    walk = walk_of(folder)
    row = played("G1", folder, victim_of("G1", folder), [], num_envs, episodes=episodes, seed=seed)[0]
    robot = walk.G1()
    by_hand = [walk.walk(robot, seed=s)[0] for s in draw_seeds(seed, episodes)]
    return {"metres": row.metrics["x_position"], "by_hand": by_hand}


def timed(make: Any, *arguments: Any, **settings: Any) -> Data:
    """What ``make`` measures, with the seconds of a processor that it took and the load of the machine."""
    began = time.process_time()
    found = make(*arguments, **settings)
    return {**found, "seconds": time.process_time() - began, "load": os.getloadavg()[0]}


def measure(results: Results) -> None:
    """Measure what is missing."""
    given, folder = results.given, str(results.given.robots)
    few, many = ({"episodes": count, "seed": given.seed} for count in (given.episodes, MANY))
    for name in ROBOTS:
        results.once(results.part("disturbed"), name, timed, disturbed, name, folder, **few)
    results.once(results.part("rounded"), "Go1", timed, rounded, folder, **many)
    for radius in RADII:
        results.once(results.part("bounds"), f"{radius:g}", timed, bounded, folder, radius, seed=given.seed)
    for count in NUM_ENVS:
        results.once(results.part("side by side"), f"{count}", timed, side_by_side, folder, count, **many)
    for threat in ATTACKS:
        results.once(results.part("attacked"), threat, timed, attacked, folder, threat, **many)


def apart(some: list[float], others: list[float]) -> str:
    """The largest difference between two lists."""
    return f"{max(abs(a - b) for a, b in zip(some, others, strict=True)):.2g}"


def fallen(falls: list[float]) -> str:
    """How many of the episodes ended with a fall."""
    return f"{sum(falls):.0f} of {len(falls)}"


def body(data: Data) -> list[str]:
    """The page after its head."""
    disturbances = [
        [
            name, what, span(row["walk"] or [], 2), span(row["redefined"], 2), apart(row["same"], row["redefined"]),
            span(row["ours"], 2), fallen(row["falls"]),
        ]
        for name, found in data["disturbed"].items() for what, row in found["rows"].items()
    ]  # fmt: skip
    attacks = [
        [threat, span(row["clean"], 2), span(row["metres"], 2), fallen(row["falls"]), f"{row['seconds']:.0f}"]
        for threat, row in data["attacked"].items()
    ]
    bounds = [
        [
            radius, f"{row['reached']:.2g}", *(f"{one['width']:.2g}" for one in row["rows"].values()),
            sum(one["outside"] for one in row["rows"].values()),
        ]
        for radius, row in data["bounds"].items()
    ]  # fmt: skip
    envs = [
        [count, span(row["metres"], 4), span(row["by_hand"], 4), apart(row["metres"], row["by_hand"])]
        for count, row in data["side by side"].items()
    ]
    lines = ["robot", "disturbance", "`walk.py`, m", "redefined, m", "library, differs by, m", "network, m", "falls"]
    return [
        *prose(__doc__),
        table(lines, disturbances),
        f"How far Go1 comes under pushes of 200 N is chance: with random numbers up to {ROUNDING:g} added to the "
        f"actions, {MANY} episodes of `walk.py` end at {span(data['rounded']['Go1']['metres'], 2)} m.",
        "# Attacks on Go1",
        "Each feature of an observation may be off by 0.1, in its own unit (m/s, rad/s, rad). Seconds are a "
        "processor's, for all episodes, with and without the attack.",
        table(["attack", "clean, m", "attacked, m", "falls", "seconds"], attacks),
        "# Bounds on Go1's network",
        f"Boxes around {STATES} states of a walk: how many of the actions at {STATES * POINTS:,} points in them, half "
        "of which are corners, lie outside of any of the bounds (`action_bounds`), and mean widths of what the points "
        "reach and of the bounds. Actions lie between -1 and 1: bounds of width 2 say nothing.",
        table(["radius", "reached", *METHODS, "outside"], bounds),
        "# G1's LSTM in several environments at once",
        f"{MANY} episodes without a disturbance: how many are played at once changes nothing but the rounding of "
        "float32.",
        table(["environments", "library, m", "`walk.py`, m", "largest difference, m"], envs),
    ]


PAGE = Page(
    "robots",
    "Robots under published policies",
    __doc__,
    measure,
    body,
    page="robots",
    options={"--robots": {"type": Path, "help": "folder of the robots"}, **episode_options(3), **AGAIN},
    needs=["--robots"],
    releases=["mujoco", "onnxruntime"],
)


if __name__ == "__main__":
    PAGE.main()
