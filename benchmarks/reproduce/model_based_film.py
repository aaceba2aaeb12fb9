"""Frames of the walker without an attack, under flipped observations and under a model-based attack.

    MUJOCO_GL=egl python benchmarks/reproduce/model_based_film.py --models FOLDER

As Figure 2 of Weng et al. 2020, on zoo:walker-walk-sac and one episode: what the environment itself looks like at the
same times, and the height of the torso beside it. FOLDER has the model that ``model_based.py`` learned. Writes
``walker.png``; a machine without a display needs EGL.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from model_based import ROWS, attack, model_of

import adv_wrappers as adv
from adv_wrappers.environments.dmc import dmc
from adv_wrappers.rendering.frames import INK
from adv_wrappers.rendering.plots import new_figure, save_figure
from adv_wrappers.victims.policy_runner import PolicyRunner

EPS, SEED, TIMES = 0.2, 7, (0, 25, 50, 100, 200, 300, 400, 499)  # decisions; each is 0.05 seconds


def film(threat: Any, row: Any) -> list[tuple[Any, float]]:
    """Frames and heights of one episode at ``TIMES``."""
    victim = adv.load_victim(row.victim)
    env: Any = dmc(row.env, 2)
    physics = env.unwrapped._env.physics
    if threat is not None:
        env = adv.wrap(env, threat, victim=victim)
    frames = []
    for t, _ in enumerate(PolicyRunner(victim, 1).episode(env, SEED)):
        if t in TIMES:
            frames.append((physics.render(240, 320, camera_id="side"), float(physics.torso_height())))
        if t == TIMES[-1]:
            break
    return frames


def main() -> None:
    """Play three episodes and draw them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("docs/_static/model_based"))
    arguments = parser.parse_args()
    row = next(row for row in ROWS if row.task == "walker-walk")
    model = model_of(row, arguments.models)
    films = {
        "no attack": film(None, row),
        "flip": film(f"flip:eps={EPS}", row),
        "model-based": film(attack(row, model, EPS, row.steps), row),
    }
    figure = new_figure(1.35 * len(TIMES), 1.25 * len(films) + 0.35, 110)
    grid = figure.add_gridspec(
        len(films), len(TIMES), left=0.07, right=0.995, top=0.93, bottom=0.01, wspace=0.03, hspace=0.16
    )
    for i, (name, frames) in enumerate(films.items()):
        for j, (picture, height) in enumerate(frames):
            axes = figure.add_subplot(grid[i, j])
            axes.imshow(picture)
            axes.set_xticks([])
            axes.set_yticks([])
            above = f"{TIMES[j] * 0.05:g} s, " if i == 0 else ""
            axes.set_title(f"{above}{height:.2f} m", fontsize=7, color=INK, pad=2)
            if j == 0:
                axes.set_ylabel(name, fontsize=8, color=INK)
    save_figure(figure, arguments.out / "walker.png")


if __name__ == "__main__":
    main()
