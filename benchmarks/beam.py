"""The beam search over its width, and beside it a wide search of another kind on CartPole.

    python benchmarks/beam.py

What the search over whole episodes (``evaluation/searches/beam.py``) leaves of six agents by its width, on the same
episodes. The second search shares nothing with it but the agent: it steps the equations of CartPole for all states of a
step at once, tries all corners of the box and random points without a gradient, and keeps up to 2000 states a step.
Neither is a bound.
"""

from __future__ import annotations

import time
import warnings
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium.envs.classic_control import CartPoleEnv
from numpy.typing import NDArray
from timing import Data, Page, Results, episode_options, prose, table

import adv_wrappers as adv
from adv_wrappers.evaluation.episodes import draw_seeds
from adv_wrappers.evaluation.searches.beam import beam_search

Floats = NDArray[np.float64]
HALF = [0.9, 0.07]  # half of the ranges of MountainCar's positions and speeds
WIDTHS = (1, 2, 8, 32, 128, 256, 1024)  # the widest for one agent alone: their time is in proportion
CASES: list[dict[str, Any]] = [
    {"victim": "zoo:cartpole-radial-ppo", "env": "CartPole-v1", "eps": 0.05, "widths": (*WIDTHS, 2048)},
    {"victim": "zoo:cartpole-radial-ppo", "env": "CartPole-v1", "eps": 0.1, "widths": WIDTHS},
    *(
        {"victim": f"zoo:cartpole-{kind}", "env": "CartPole-v1", "eps": 0.05, "widths": WIDTHS[:5]}
        for kind in ("radial-dqn", "dqn", "a2c", "ppo")
    ),
    {"victim": "zoo:mountaincar-dqn", "env": "MountainCar-v0", "eps": 0.01, "scale": HALF, "widths": WIDTHS[:4]},
]
POINTS, STATES, CELL = 16, 2000, 0.01  # random points in a box; states that are kept, and the size of their cells


def rises(returns: list[list[float]]) -> list[int]:
    """The episodes that earn more at some width than at the one before."""
    return sorted(set(np.nonzero((np.diff(returns, axis=0) > 0).any(0))[0].tolist()))


def measure(case: dict[str, Any], width: int, episodes: int, seed: int) -> dict[str, Any]:
    """One search."""
    began = time.process_time()
    found = beam_search(case["victim"], case["env"], case["eps"], episodes, seed, width, scale=case.get("scale"))
    row = {"width": width, "returns": found.returns.tolist(), "nodes": found.nodes.tolist()}
    return {**row, "seconds": round(time.process_time() - began, 1)}


def fall(states: Floats, actions: NDArray[np.int64]) -> tuple[Floats, NDArray[np.bool_]]:
    """States ``[N, 4]`` after one step of CartPole, and whether the episode is over; the equations of Gymnasium's."""
    game = CartPoleEnv()
    x, speed, angle, turning = states.T
    force = np.where(actions == 1, game.force_mag, -game.force_mag)
    cos, sin = np.cos(angle), np.sin(angle)
    push = (force + game.polemass_length * np.square(turning) * sin) / game.total_mass
    twist = (game.gravity * sin - cos * push) / (
        game.length * (4.0 / 3.0 - game.masspole * np.square(cos) / game.total_mass)
    )
    pull = push - game.polemass_length * twist * cos / game.total_mass
    after = np.stack([x, speed, angle, turning], 1) + game.tau * np.stack([speed, pull, turning, twist], 1)
    over = (np.abs(after[:, 0]) > game.x_threshold) | (np.abs(after[:, 2]) > game.theta_threshold_radians)
    return after, over


def choose(states: Floats, draws: np.random.Generator) -> NDArray[np.int64]:
    """Which of some states go on: one of each cell, and of more than fit the extremes and some at random."""
    _, cells = np.unique(np.floor(states / CELL), axis=0, return_index=True)
    if len(cells) <= STATES:
        return cells
    kept = states[cells]
    scaled = (kept - kept.mean(0)) / kept.std(0)
    extremes = np.unique((scaled @ draws.normal(size=(4, STATES))).argmax(0))
    others = np.setdiff1d(np.arange(len(cells)), extremes)
    return cells[np.concatenate([extremes, draws.permutation(others)[: STATES - len(extremes)]])]


def layered(victim: adv.Victim, eps: float, seed: int, steps: int = 500) -> tuple[int, list[NDArray[np.float32]]]:
    """The length of the shortest episode of CartPole that this search finds, and what is shown at every step of it."""
    env, draws = gym.make("CartPole-v1"), np.random.default_rng(0)
    env.reset(seed=seed)
    states = np.array(env.unwrapped.state, np.float64)[None]  # type: ignore[attr-defined]
    corners = np.stack(np.meshgrid(*[(-1.0, 1.0)] * 4), -1).reshape(-1, 4)
    offsets = np.concatenate([np.zeros((1, 4)), corners, draws.uniform(-1, 1, (POINTS, 4))]).astype(np.float32)
    layers = list[tuple[NDArray[np.int64], NDArray[np.float32]]]()  # parents, and what was shown to them
    for t in range(1, steps + 1):
        shown = states.astype(np.float32)[:, None] + np.float32(eps * 0.999) * offsets  # inside, whatever is rounded
        with torch.no_grad():
            played = victim.params(torch.from_numpy(shown.reshape(-1, 4))).argmax(-1).numpy().reshape(len(states), -1)
        parents, actions, seen = list[NDArray[np.int64]](), list[NDArray[np.int64]](), list[NDArray[np.float32]]()
        for action in (0, 1):
            found = np.flatnonzero((played == action).any(1))
            parents.append(found)
            actions.append(np.full(len(found), action))
            seen.append(shown[found, (played[found] == action).argmax(1)])
        parent, action_of, view = np.concatenate(parents), np.concatenate(actions), np.concatenate(seen)
        after, over = fall(states[parent], action_of)
        if over.any() or t == steps:
            at, path = int(over.argmax()), list[NDArray[np.float32]]()
            path.append(view[at])
            at = int(parent[at])
            for origin, views in reversed(layers):
                path.append(views[at])
                at = int(origin[at])
            return t, path[::-1]
        kept = choose(after, draws)
        states = after[kept]
        layers.append((parent[kept], view[kept]))
    raise AssertionError("the last step returns")


def played(victim: adv.Victim, eps: float, seed: int, path: list[NDArray[np.float32]]) -> float:
    """The return of an episode in which these observations are shown, each within eps of the true one."""
    env, total, over = gym.make("CartPole-v1"), 0.0, False
    obs, _ = env.reset(seed=seed)
    for shown in path:
        assert not over and np.abs(shown.astype(np.float64) - obs).max() <= eps, "an observation is out of the budget"
        with torch.no_grad():
            action = int(victim.params(torch.from_numpy(shown[None])).argmax())
        obs, reward, terminated, truncated, _ = env.step(action)
        total, over = total + float(reward), terminated or truncated
    assert over, "the episode is not over"
    return total


def reference(case: dict[str, Any], episodes: int, seed: int) -> dict[str, Any]:
    """The second search: its returns, as they were played."""
    victim, began, returns = adv.load_victim(case["victim"]), time.process_time(), list[float]()
    for one in draw_seeds(seed, episodes):
        _, path = layered(victim, case["eps"], one)
        returns.append(played(victim, case["eps"], one, path))
    return {"returns": returns, "seconds": round(time.process_time() - began, 1)}


def body(data: Data) -> list[str]:
    """The section after its head."""
    lines = []
    widths = sorted({row["width"] for case in data["cases"] for row in case["rows"]})
    for case in data["cases"]:
        rows = {row["width"]: row for row in case["rows"]} | {0: case.get("reference")}
        what = f"{case['eps']:g}" + (f" of {tuple(case['scale'])}" if case["scale"] else "")
        cells = [
            f"{np.mean(row['returns']):.1f} ({row['seconds']:.0f} s)" if (row := rows.get(width)) else ""
            for width in [*widths, 0]
        ]
        lines.append([case["victim"], what, *cells])
    return [
        *prose(__doc__),
        f"Mean returns of {data['episodes']} episodes, and seconds of a processor; width 1 is the agent's own way.",
        table(["agent", "eps", *(f"width {width}" for width in widths), "second search"], lines),
    ]


def measure_all(results: Results) -> None:
    """Measure what is missing; a width at which an episode earns more than at the one before ends the run."""
    given, cases = results.given, results.data.setdefault("cases", [])
    warnings.filterwarnings("ignore")
    results.data["episodes"] = given.episodes
    for case in (one for one in CASES if one["victim"] in given.only):
        about = {"victim": case["victim"], "eps": case["eps"], "scale": case.get("scale")}
        known = [one for one in cases if about.items() <= one.items()]
        if not known:
            known = [{**about, "rows": []}]
            cases += known
        found = known[0]
        for width in sorted(given.widths or case["widths"]):
            if all(row["width"] != width for row in found["rows"]):
                row = measure(case, width, given.episodes, given.seed)
                found["rows"] = sorted([*found["rows"], row], key=lambda one: one["width"])
                print(about, row, flush=True)
                results.keep()
        higher = rises([row["returns"] for row in found["rows"]])
        if higher:
            raise SystemExit(f"{about}: episodes {higher} earn more at a larger width")
        if case["env"] == "CartPole-v1":
            results.once(found, "reference", reference, case, given.episodes, given.seed)


VICTIM_REFS = sorted({case["victim"] for case in CASES})
PAGE = Page(
    "beam",
    "Beam search over its width",
    __doc__,
    measure_all,
    body,
    page="strength",
    options={
        **episode_options(4),
        "--widths": {"type": int, "nargs": "+", "help": "[default: each agent's own]"},
        "--only": {"nargs": "*", "choices": VICTIM_REFS, "default": VICTIM_REFS},
    },
    partly=["--widths", "--only"],
)


if __name__ == "__main__":
    PAGE.main()
