"""Two of the pictures of PA-AD: the policies that an actor reaches, and who sees what. See ``pa_ad_pictures.py``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyBboxPatch, Polygon

import adv_wrappers as adv
from adv_wrappers.evaluation.compare_threats import ConstantEnv
from adv_wrappers.rendering.figures import new_figure, save_png
from adv_wrappers.rendering.pixels import ATTACKED, CLEAN, GRID, INK, MUTED
from adv_wrappers.victims.runner import PolicyRunner
from tests.adversaries import two_states as paper

CORNERS = np.eye(3) @ paper.PLANE.T * [1, -1]
EPS, HALF = 0.05, (0.9, 0.07)  # of MountainCar's half-ranges
TURNS = np.linspace(0, 2 * np.pi, 24, endpoint=False)
ROUND = np.stack([np.cos(TURNS), np.sin(TURNS)], -1) @ paper.PLANE  # directions [24, 3] of length one


def flat(p: Any) -> Any:
    """Policies ``[..., 3]`` as points of the picture, the third action on top."""
    return np.asarray(p) @ paper.PLANE.T * [1, -1]


def figure(width: int, height: int) -> Figure:
    """A white figure of so many pixels."""
    return new_figure(width / 100, height / 100, 100)


def plain(axes: Any) -> None:
    """No frame; the triangle of all policies and the names of its corners."""
    axes.set_aspect("equal")
    axes.axis("off")
    axes.add_patch(Polygon(CORNERS, closed=True, facecolor="#f8fafc", edgecolor=MUTED, lw=1.6, zorder=0))
    for (x, y), name in zip(CORNERS, ("$a_1$", "$a_2$", "$a_3$"), strict=True):
        where = y + (-0.08 if y < 0 else 0.055)
        axes.text(x, where, name, fontsize=19, color=MUTED, ha="center", va="center", clip_on=True)
    axes.set_xlim(-0.8, 0.8)
    axes.set_ylim(-0.54, 0.93)


def reach(path: Path) -> None:
    """Where actors go for actions in all directions: in the paper's example, and against an agent of the zoo."""
    made = figure(1400, 610)
    victim = paper.victim()
    clean = flat(paper.POLICY[0])
    for i, (title, actor) in enumerate(
        (
            ("literal, one step", adv.PAAD(victim, variant="literal", steps=1, step=1.0)),
            ("this library", adv.PAAD(victim)),
        )
    ):
        axes = panel(made, i, title, clean, 0.27)
        axes.add_patch(Circle(clean, paper.RADIUS, fc="#dcfce7", ec="#16a34a", lw=1.8, zorder=1))
        for j, d in enumerate(ROUND):
            asked, found = flat(paper.towards(d)), flat(paper.attacked(paper.steered(actor, d), j))
            axes.plot(*np.stack([asked, found]).T, color=MUTED, lw=1.2, zorder=3)
            axes.scatter(*asked, s=90, fc="white", ec=INK, lw=1.8, zorder=4)
            axes.scatter(*found, s=34, c=ATTACKED, zorder=5)
    victim = adv.load_victim("zoo:mountaincar-dqn")
    env, runner = gym.make("MountainCar-v0"), PolicyRunner(victim, 1)
    obs, _ = env.reset(seed=1)
    runner.reset(seeds=[1])
    for _ in range(15):
        obs, *_ = env.step(runner.act(obs[None])[0])
    x, side = torch.as_tensor(obs), torch.linspace(-1, 1, 161)
    clean = flat(victim.params(x[None]).softmax(-1)[0].numpy())
    axes = panel(made, 2, "MountainCar, one state", clean + np.array([0.175, 0.05]), 0.42)
    moves = torch.stack(torch.meshgrid(side, side, indexing="ij"), -1).reshape(-1, 2)
    mesh = flat(victim.params(x + moves * EPS * torch.tensor(HALF)).softmax(-1).numpy()).reshape(161, 161, 2)
    quads = np.stack([mesh[:-1, :-1], mesh[1:, :-1], mesh[1:, 1:], mesh[:-1, 1:]], 2).reshape(-1, 4, 2)
    axes.add_collection(PolyCollection(quads, facecolor="#86efac", edgecolor="#86efac", lw=0.8, zorder=1))
    for steps, length, mark in ((1, 1.0, {"ec": INK, "fc": "none", "s": 150}), (5, 0.4, {"c": ATTACKED, "s": 34})):
        actor = adv.PAAD(victim, form="direction", steps=steps, step=length)
        axes.scatter(*landed(victim, actor, x, env).T, lw=1.8, zorder=5 + steps, **mark)
    notes = (
        ("ring: asked for, dot: reached", 0.333),
        ("ring: one step, dot: five steps", 0.833),
    )
    for text, at in notes:
        made.text(at, 0.05, text, fontsize=17, color=MUTED, ha="center")
    save_png(made, path)


def panel(made: Figure, i: int, title: str, middle: Any, half: float) -> Any:
    """A part of the simplex around a policy."""
    axes = made.add_axes((i / 3 + 0.008, 0.13, 1 / 3 - 0.016, 0.73))
    plain(axes)
    for corner in axes.texts:
        corner.set_visible(False)
    axes.set_xlim(middle[0] - half, middle[0] + half)
    axes.set_ylim(middle[1] - half, middle[1] + half)
    made.text((i + 0.5) / 3, 0.93, title, fontsize=19, color=INK, ha="center", va="center")
    return axes


def landed(victim: Any, actor: Any, x: Any, env: Any) -> Any:
    """Points of the picture to which actions in all directions move the policy, from one observation."""
    axes = actor._direction(torch.eye(2))
    actions = torch.linalg.lstsq(axes.T, torch.as_tensor(ROUND.T, dtype=torch.float32)).solution.T
    actions = actions / actions.abs().amax(-1, keepdim=True)
    rows = gym.vector.SyncVectorEnv(
        [lambda: ConstantEnv(x.numpy(), env.observation_space, env.action_space)] * len(actions)
    )
    layer = adv.PerturbObservation(rows, adv.Learned(lambda _: actions, actor), adv.Linf(EPS, scale=HALF))
    return flat(victim.params(torch.as_tensor(layer.reset(seed=0)[0])).softmax(-1).numpy())


def box(axes: Any, x: float, y: float, text: str, about: str, colour: str, width: float = 2.5) -> None:
    """A named box."""
    shape = FancyBboxPatch(
        (x, y), width, 1.15, boxstyle="round,pad=0,rounding_size=0.12", fc="white", ec=colour, lw=2.4
    )
    axes.add_patch(shape)
    axes.text(x + width / 2, y + 0.77, text, fontsize=19, color=colour, fontweight="bold", ha="center", va="center")
    axes.text(x + width / 2, y + 0.34, about, fontsize=15.5, color=MUTED, ha="center", va="center")


def arrow(axes: Any, points: Any, text: str, at: tuple[float, float], colour: str = INK, **style: Any) -> None:
    """A line along points with an arrow at its end, and what goes along it."""
    points = np.asarray(points, float)
    axes.plot(*points[:-1].T, color=colour, lw=2.2, solid_joinstyle="round", solid_capstyle="round")
    ends = {"arrowstyle": "-|>", "color": colour, "lw": 2.2, "shrinkA": 0, "shrinkB": 0, "mutation_scale": 22}
    axes.annotate("", points[-1], points[-2], arrowprops=ends)
    axes.text(*at, text, fontsize=16.5, color=colour, **{"ha": "center", "va": "center", **style})


def roles(path: Path) -> None:
    """Who sees what at one step."""
    made = figure(1400, 640)
    axes = made.add_axes((0, 0, 1, 1))
    axes.set_xlim(0, 14)
    axes.set_ylim(0, 6.4)
    axes.axis("off")
    inner = FancyBboxPatch(
        (3.95, 0.25), 9.8, 5.9, boxstyle="round,pad=0,rounding_size=0.2", fc="#f8fafc", ec=GRID, lw=2, zorder=0
    )
    axes.add_patch(inner)
    axes.text(4.2, 5.83, "AdversaryEnv", fontsize=18, color=MUTED, fontweight="bold", va="center")
    box(axes, 0.3, 3.6, "director", "learns", ATTACKED)
    box(axes, 4.5, 3.6, "actor", "gradient ascent", INK)
    box(axes, 7.75, 3.6, "budget", "projection", INK)
    box(axes, 11.0, 3.6, "victim", "frozen", CLEAN)
    box(axes, 11.0, 0.75, "environment", "as it was made", INK)
    arrow(axes, [(2.8, 4.18), (4.5, 4.18)], "its action", (3.37, 4.42), ATTACKED)
    arrow(axes, [(7.0, 4.18), (7.75, 4.18)], "", (0, 0))
    arrow(axes, [(10.25, 4.18), (11.0, 4.18)], r"$\tilde s$", (10.6, 4.46))
    arrow(axes, [(12.25, 3.6), (12.25, 1.9)], "action", (12.42, 2.75), ha="left")
    arrow(
        axes,
        [(12.25, 4.75), (12.25, 5.35), (5.75, 5.35), (5.75, 4.75)],
        "policy and its gradient",
        (9.0, 5.6),
        CLEAN,
    )
    arrow(axes, [(11.0, 1.55), (9.0, 1.55), (9.0, 3.6)], "", (0, 0), MUTED)
    arrow(axes, [(9.0, 1.55), (5.75, 1.55), (5.75, 3.6)], "true state $s$", (7.4, 1.82), MUTED)
    arrow(axes, [(5.75, 1.55), (1.9, 1.55), (1.9, 3.6)], "", (0, 0), MUTED)
    arrow(axes, [(11.0, 1.05), (1.2, 1.05), (1.2, 3.6)], "minus the victim's reward", (7.4, 0.78), ATTACKED)
    save_png(made, path)
