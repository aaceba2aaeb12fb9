"""The picture of PA-AD: the simplex of policies of the paper's two-state example (appendices B.5, B.6 and F.1).

    python -m benchmarks.reproduce.pa_ad_pictures [--out docs/_static/pa_ad]

Every point is where the library's own attack lands.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.patches import Polygon

import adv_wrappers as adv
from adv_wrappers.rendering.frames import ATTACKED, GRID, INK, MUTED
from adv_wrappers.rendering.plots import new_figure, save_figure
from tests.adversaries import two_states as paper

MARKS = {"MinBest": ("s", "#7c3aed"), "MaxWorst": ("^", "#b45309"), "MAD": ("D", "#0f766e"), "PA-AD": ("*", ATTACKED)}
TURNS = np.linspace(0, 2 * np.pi, 721)
CORNERS = np.eye(3) @ paper.PLANE.T * [1, -1]


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
    save_figure(made, path)


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


def main() -> None:
    """Write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("docs/_static/pa_ad"))
    out = parser.parse_args().out
    torch.set_num_threads(1)
    simplex(landed(), out / "simplex.png")


if __name__ == "__main__":
    main()
