"""Pictures of PA-AD: the simplex of policies, the polytope of their values, what an actor reaches, who sees what.

    python -m benchmarks.reproduce.pa_ad_pictures [--out docs/_static/pa_ad]

writes ``simplex.png`` and ``polytope.png`` (the paper's two-state example, appendices B.5, B.6 and F.1),
``reach.png`` (an agent of the zoo) and ``roles.png``. Every point is where the library's own attack lands.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.collections import LineCollection
from matplotlib.patches import Rectangle

import adv_wrappers as adv
from adv_wrappers.rendering.figures import save_png
from adv_wrappers.rendering.pixels import ATTACKED, GRID, INK, MUTED
from benchmarks.reproduce import pa_ad_sketches as sketches
from benchmarks.reproduce.pa_ad_sketches import figure, flat, plain
from tests.adversaries import two_states as paper

MARKS = {"MinBest": ("s", "#7c3aed"), "MaxWorst": ("^", "#b45309"), "MAD": ("D", "#0f766e"), "PA-AD": ("*", ATTACKED)}
TURNS = np.linspace(0, 2 * np.pi, 721)
X, Y = (1.26, 1.86), (3.26, 3.72)  # what is enlarged of the polytope


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


def main() -> None:
    """Write everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("docs/_static/pa_ad"))
    out = parser.parse_args().out
    torch.set_num_threads(1)
    points = landed()
    simplex(points, out / "simplex.png")
    polytope(points, out / "polytope.png")
    sketches.reach(out / "reach.png")
    sketches.roles(out / "roles.png")


if __name__ == "__main__":
    main()
