"""Pictures of PA-AD: the simplex of policies, the polytope of their values, what an actor reaches, who sees what.

    python -m benchmarks.reproduce.pa_ad_pictures [--out docs/_static/pa_ad]

writes ``simplex.png`` and ``polytope.png`` (the paper's two-state example, appendices B.5, B.6 and F.1),
``reach.png`` (an agent of the zoo) and ``roles.png``. Every point is where the library's own attack lands.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyBboxPatch, Polygon, Rectangle

import adv_wrappers as adv
from adv_wrappers.evaluation.comparison import ConstantEnv
from adv_wrappers.rendering.pixels import ATTACKED, CLEAN, GRID, INK, MUTED
from adv_wrappers.rendering.plots import new_figure, save_png
from adv_wrappers.victims.runner import PolicyRunner
from tests.adversaries import two_states as paper

MARKS = {"MinBest": ("s", "#7c3aed"), "MaxWorst": ("^", "#b45309"), "MAD": ("D", "#0f766e"), "PA-AD": ("*", ATTACKED)}
TURNS = np.linspace(0, 2 * np.pi, 721)
AROUND = np.linspace(0, 2 * np.pi, 24, endpoint=False)  # fewer of them
CORNERS = np.eye(3) @ paper.PLANE.T * [1, -1]
EPS, HALF = 0.05, (0.9, 0.07)  # of MountainCar's half-ranges
X, Y = (1.26, 1.86), (3.26, 3.72)  # what is enlarged of the polytope


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


def landed() -> dict[str, Any]:
    """The policy at s1 under each attack, as a wrapper returns it."""
    victim = paper.victim()
    by_seed = [paper.attacked(adv.MaxDiff(victim, steps=300), seed) for seed in range(12)]
    furthest = max(by_seed, key=lambda p: float((paper.POLICY[0] * np.log(paper.POLICY[0] / p)).sum()))
    return {
        "MinBest": paper.attacked(adv.MinBest(victim)),
        "MaxWorst": paper.attacked(adv.MaxWorst(victim)),
        "MAD": furthest,
        "PA-AD": paper.attacked(paper.trained(0)),
    }


def dot(axes: Any, name: str, at: Any, size: float = 210) -> None:
    """The mark of an attack, or a ring for none."""
    mark, colour = MARKS.get(name, ("o", INK))
    axes.scatter(*at, marker=mark, s=size * (2.1 if mark == "*" else 1), c=colour, ec="white", lw=1.6, zorder=9)


def simplex(points: dict[str, Any], path: Path) -> None:
    """Where attacks land in the ball of policies, and the values around its rim."""
    made = figure(1400, 690)
    axes = made.add_axes((0.0, 0.02, 0.5, 0.96))
    plain(axes)
    clean, reach = paper.perturbed(paper.POLICY[0])[0], 0.19
    colours: dict[str, Any] = {"cmap": "RdBu", "vmin": clean - reach, "vmax": clean + reach}
    radii = np.linspace(0, paper.RADIUS, 60)[:, None, None]
    disc = paper.POLICY[0] + radii * unit(TURNS)  # [60, 721, 3]
    value = paper.perturbed(disc)[..., 0]
    xy = flat(disc)
    axes.pcolormesh(xy[..., 0], xy[..., 1], value, shading="gouraud", alpha=0.55, rasterized=True, **colours)
    axes.contour(xy[..., 0], xy[..., 1], value, 9, colors="white", linewidths=1.0, alpha=0.8)
    rim = xy[-1]
    pieces = LineCollection(np.stack([rim[:-1], rim[1:]], 1), cmap="RdBu", lw=6, capstyle="round", zorder=5)
    pieces.set_array(value[-1, :-1])
    pieces.set_clim(clean - reach, clean + reach)
    axes.add_collection(pieces)
    middle = flat(paper.POLICY[0])
    dot(axes, "no attack", middle, 130)
    axes.annotate("", flat(points["PA-AD"]), middle, arrowprops={"arrowstyle": "-|>", "color": INK, "lw": 2}, zorder=7)
    axes.text(middle[0] + 0.02, middle[1] + 0.045, r"$\pi(s_1)$", fontsize=19, ha="left", va="center", zorder=9)
    for name, p in points.items():
        at = flat(p)
        dot(axes, name, at)
        away = (at - middle) / np.linalg.norm(at - middle)
        axes.text(
            *(at + away * [0.055, 0.06]),
            name,
            fontsize=18,
            color=MARKS[name][1],
            fontweight="bold",
            ha="left" if away[0] > 0 else "right",
            va="center",
            zorder=9,
        )
    right = made.add_axes((0.575, 0.13, 0.405, 0.76))
    zero = angle(points["PA-AD"])
    shown = np.linspace(-180, 180, 721)
    curve = paper.perturbed(paper.towards(unit(np.radians(shown) + zero)))[:, 0]
    line = np.stack([shown, curve], -1)
    pieces = LineCollection(np.stack([line[:-1], line[1:]], 1), cmap="RdBu", lw=6, capstyle="round")
    pieces.set_array(curve[:-1])
    pieces.set_clim(clean - reach, clean + reach)
    right.add_collection(pieces)
    right.axhline(clean, color=MUTED, lw=1.5, ls=(0, (4, 3)))
    right.text(178, clean - 0.009, f"no attack {clean:.3f}", fontsize=17, color=MUTED, ha="right", va="top")
    for name, p in points.items():
        at = ((np.degrees(angle(p) - zero) + 180) % 360 - 180, paper.perturbed(p)[0])
        dot(right, name, at)
        off, side, up = {
            "PA-AD": ((0, -20), "center", "top"),
            "MAD": ((-18, 8), "right", "center"),
            "MaxWorst": ((-16, -2), "right", "center"),
        }.get(name, ((18, 8), "left", "center"))
        right.annotate(
            f"{name}{chr(10) if name == 'MaxWorst' else ' '}{at[1]:.3f}",
            at,
            off,
            textcoords="offset points",
            fontsize=17,
            ha=side,
            va=up,
            color=MARKS[name][1],
            fontweight="bold",
        )
    frame(right, "direction, degrees from PA-AD's", "")
    right.set_xticks(range(-180, 181, 90))
    right.set_xlim(-184, 184)
    right.set_ylim(1.315, 1.79)
    right.set_title("$V(s_1)$ around the rim of the ball", fontsize=19, color=INK, pad=12)
    save_png(made, path)


def angle(p: Any) -> float:
    """The direction from the victim's policy to ``p``, in radians."""
    x, y = (np.asarray(p) - paper.POLICY[0]) @ paper.PLANE.T
    return float(np.arctan2(y, x))


def unit(turns: Any) -> Any:
    """Directions ``[..., 3]`` of angles."""
    return np.stack([np.cos(turns), np.sin(turns)], -1) @ paper.PLANE


def frame(axes: Any, x: str, y: str) -> None:
    """Labels, and a frame on two sides."""
    axes.tick_params(labelsize=16, colors=MUTED, length=0)
    for side in axes.spines.values():
        side.set_color(GRID)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color=GRID, lw=1)
    axes.set_axisbelow(True)
    axes.set_xlabel(x, fontsize=18, color=INK)
    axes.set_ylabel(y, fontsize=18, color=INK)


def polytope(points: dict[str, Any], path: Path) -> None:
    """Values of all policies, of those that the ball allows at both states, and of the attacks on s1."""
    made = figure(1400, 690)
    left, right = made.add_axes((0.07, 0.13, 0.41, 0.82)), made.add_axes((0.575, 0.13, 0.405, 0.82))
    for axes, x, y, count in ((left, (-3.0, 4.0), (-1.5, 5.8), 900), (right, X, Y, 700)):
        v1, v2 = np.meshgrid(np.linspace(*x, count), np.linspace(*y, count))
        for radius, colour in ((None, "#bfdbfe"), (paper.RADIUS, "#86efac")):
            depth = inside(v1, v2, radius)
            axes.contourf(v1, v2, depth, [0, 1e9], colors=[colour], zorder=1)
            axes.contour(v1, v2, depth, [0], colors=["#3b82f6" if radius is None else "#16a34a"], linewidths=1.8)
        rim = paper.perturbed(paper.towards(unit(TURNS)))
        axes.plot(rim[:, 0], rim[:, 1], color=INK, lw=3.5, solid_capstyle="round", zorder=5)
        frame(axes, "$V(s_1)$", "$V(s_2)$")
        axes.set_xlim(*x)
        axes.set_ylim(*y)
    left.add_patch(Rectangle((X[0], Y[0]), X[1] - X[0], Y[1] - Y[0], fill=False, ec=INK, lw=1.6, zorder=8))
    left.text(-0.35, 1.1, "all policies", fontsize=17, color="#1d4ed8", ha="right", va="bottom")
    left.text(1.9, 2.35, "the ball\nat both states", fontsize=17, color="#15803d", ha="left", va="center")
    right.text(1.65, 3.335, "the ball at $s_1$:\na line", fontsize=17, color=INK, ha="left", va="bottom")
    clean = paper.perturbed(paper.POLICY[0])
    dot(right, "no attack", clean, 130)
    right.annotate("no attack", clean, (26, -31), textcoords="offset points", fontsize=17, color=INK, ha="center")
    for name, p in points.items():
        at = paper.perturbed(p)
        dot(right, name, at)
        off, side = {"PA-AD": ((10, -30), "left"), "MaxWorst": ((16, -12), "left")}.get(name, ((-14, 10), "right"))
        right.annotate(
            name, at, off, textcoords="offset points", fontsize=17, color=MARKS[name][1], fontweight="bold", ha=side
        )
    save_png(made, path)


def inside(v1: Any, v2: Any, radius: float | None) -> Any:
    """How far values are within those that policies can have; negative outside.

    Values are those of a policy if at each state some policy of the ball has them against the Q-values that they make:
    a linear function takes every number between its least and its greatest.
    """
    depth = np.full(v1.shape, np.inf)
    for state, own in enumerate((v1, v2)):
        to = paper.TO_S1[state][:, None, None]
        q = paper.REWARDS[state][:, None, None] + paper.GAMMA * (to * v1 + (1 - to) * v2)
        corners = np.eye(3) if radius is None else ball(state, radius)
        reach = np.tensordot(corners, q, 1)
        depth = np.minimum(depth, np.minimum(own - reach.min(0), reach.max(0) - own))
    return depth


def ball(state: int, radius: float) -> Any:
    """Corners ``[N, 3]`` of the ball of policies at a state, met with the simplex: a rim drawn with 120 lines."""
    rays = unit(TURNS[::6])
    room = np.where(rays < 0, paper.POLICY[state] / np.where(rays < 0, -rays, 1.0), np.inf).min(-1)
    return paper.POLICY[state] + np.minimum(radius, room)[:, None] * rays


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
        for j, d in enumerate(unit(AROUND)):
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
        axes.scatter(*reached(victim, actor, x, env).T, lw=1.8, zorder=5 + steps, **mark)
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


def reached(victim: Any, actor: Any, x: Any, env: Any) -> Any:
    """Points of the picture to which actions in all directions move the policy, from one observation."""
    axes = actor._direction(torch.eye(2))
    actions = torch.linalg.lstsq(axes.T, torch.as_tensor(unit(AROUND).T, dtype=torch.float32)).solution.T
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


def main() -> None:
    """Write everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("docs/_static/pa_ad"))
    out = parser.parse_args().out
    torch.set_num_threads(1)
    points = landed()
    simplex(points, out / "simplex.png")
    polytope(points, out / "polytope.png")
    reach(out / "reach.png")
    roles(out / "roles.png")


if __name__ == "__main__":
    main()
